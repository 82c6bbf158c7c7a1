"""A judge that learns: its phase before self-play, in turn with the answers, who is listened to, and a run that is cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.judges.asking import Asked, TokenJudge
from moot.players.checkpoints import judge_state
from moot.players.find import outsider
from moot.rl.lookup import find_reward
from moot.rl.rollout import Player
from moot.settings.train import TrainConfig
from moot.tasks import load
from moot.tasks.countdown import kept
from moot.tokens.rendering import Rendering
from moot.training.judge_lessons import Lessons
from moot.training.loop import train
from moot.training.parts import find_part, find_parts
from moot.training.parts.judge_training import JudgeTraining
from moot.training.state import Setup, Stopped
from support.dying import dies_after
from unit.training.test_train import CONFIG, Silent, make_setup, untimed

SMALL = "judge_training:exercises=4,checks=2,held_out=8,answers=4"
QUIET = replace(CONFIG, eval_every=0, warm_questions=0)
APPROVED = QUIET.protocol.with_choices({"reward": "approved:checks=1,show=answer", "sections": "asked"})
JUDGED = replace(QUIET, protocol=APPROVED)


def having(settings: str, config: TrainConfig = JUDGED) -> TrainConfig:
    return replace(config, parts=(f"{SMALL},{settings}",))


def trained(path: Path, config: TrainConfig, engine: ScriptedEngine | None = None) -> Setup:
    setup = make_setup(path, config, engine=engine)
    asyncio.run(train(setup))
    return setup


def part_of(setup: Setup) -> JudgeTraining:
    (part,) = setup.parts
    assert isinstance(part, JudgeTraining)
    return part


def judge_rows(setup: Setup) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (setup.run.path / "judge" / "steps.jsonl").read_text().splitlines()]


def self_play_rows(setup: Setup) -> list[dict[str, Any]]:
    return [row for row in setup.run.metrics() if row["phase"] == "self_play"]


def test_it_learns_first_and_is_then_listened_to(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", having("steps=3"))
    rows, judged = self_play_rows(setup), judge_rows(setup)
    assert [row["step"] for row in judged] == [0, 1, 2, 3]
    assert ["pair_accuracy" in row for row in judged] == [True, False, False, True]
    assert [row["judge/steps"] for row in rows] == [3] * len(rows)
    assert {row["judge/pair_accuracy_before"] for row in rows} == {judged[0]["pair_accuracy"]}
    assert part_of(setup).steps.trainer is not setup.engine
    assert part_of(setup).steps.trainer.steps == sum(row["trained_tokens"] > 0 for row in judged[1:])
    first = next(setup.run.records(rows[0]["step"]))
    assert first["checks"], "the judge without a seat is heard from the first debate on"
    assert isinstance(setup.watcher, Silent)
    assert setup.watcher.counts[:2] == [("judge steps", 0, 3), ("judge steps", 1, 3)]
    assert "the judge took 3 steps" in setup.watcher.notes[-1]


def test_its_tokens_are_counted_once_with_the_step_that_is_committed_first(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", having("steps=2"))
    rows, learning = self_play_rows(setup), sum(row["tokens"] for row in judge_rows(setup))
    spent = [row["tokens/spent"] for row in rows]
    played = [row["tokens/sampled"] + (row.get("tokens/jury") or 0) for row in rows]
    assert learning > 0
    assert np.diff([0, *spent]).tolist() == pytest.approx([played[0] + learning, *played[1:]])


def test_in_turn_it_takes_a_step_each_so_many_iterations_from_their_debates(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", having("reward=majority,steps=0,every=2,renewed=1"))
    rows = self_play_rows(setup)
    assert [row["judge/steps"] for row in rows] == [0, 1, 1, 2]
    assert all("pair_accuracy" in row for row in judge_rows(setup)), "measured after each of its steps"
    assert json.loads((setup.run.path / "judge" / "serving.json").read_text())["step"] == rows[-1]["judge/serving"]


def test_a_judge_that_became_worse_is_not_listened_to(tmp_path: Path) -> None:
    setup = make_setup(tmp_path / "run", having("steps=0,every=1,renewed=1"))
    part, accuracies = part_of(setup), iter([0.7, 0.8, 0.6, 0.8, None])
    whole = part._measured

    async def measured(setup: Setup) -> dict[str, Any]:
        return {**await whole(setup), "pair_accuracy": next(accuracies)}

    part._measured = measured  # type: ignore[method-assign]
    asyncio.run(train(setup))
    assert [row["judge/serving"] for row in self_play_rows(setup)] == [1, 1, 3, 3]
    assert [row["judge/pair_accuracy"] for row in self_play_rows(setup)] == [0.8, 0.8, 0.8, 0.8]


@pytest.mark.parametrize("calls", [20, 50, 130, 190, 260])
@pytest.mark.parametrize(
    "settings",
    [
        "steps=3,every=1,renewed=2",
        "reward=majority,steps=2,every=2,renewed=1",
        "adapter=policy,steps=2,every=1,renewed=1",
    ],
)
def test_a_run_that_is_cut_goes_on_as_if_nothing_had_happened(tmp_path: Path, settings: str, calls: int) -> None:
    config = having(settings, replace(JUDGED, warm_questions=CONFIG.warm_questions))
    whole = trained(tmp_path / "whole", config)
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", config, engine=dies_after(calls)(seed=0))
    resumed = trained(tmp_path / "cut", config)
    assert untimed(resumed.run.metrics()) == untimed(whole.run.metrics())
    assert judge_rows(resumed) == judge_rows(whole)
    mine, theirs = (part_of(setup).steps.trainer for setup in (resumed, whole))
    assert (mine.steps, mine.trained_tokens) == (theirs.steps, theirs.trained_tokens)


def test_states_that_no_checkpoint_needs_are_let_go(tmp_path: Path) -> None:
    config = replace(having("steps=2,every=1,renewed=1"), save_every=0)
    setup = trained(tmp_path / "run", config)
    kept = {int(each.name) for each in (setup.run.path / "judge").glob("[0-9]*")}
    assert {0, 2, part_of(setup).steps.done} <= kept
    assert len(kept) < len(judge_rows(setup))


class Calculates(ScriptedEngine):
    """Answers a sum with a calculation, and is wrong once in four."""

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> Any:
        samples = await super().sample(prompt, params, num_samples)
        if num_samples == 1:
            return samples
        texts = ["We have 3 + 4 = 7, and 7 * 2 = 14. The answer is \\boxed{14}."] * 3 + ["It is \\boxed{9}."]
        ids = [np.array([*self.tokenizer.encode(each), self.tokenizer.eos_token_id], np.int32) for each in texts]
        return [replace(samples[0], tokens=each, logprobs=np.zeros(len(each), np.float32)) for each in ids]


def test_slips_are_planted_into_solutions_that_most_agree_with(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", having("steps=2,show=solution"), engine=Calculates(seed=0))
    lines = (setup.run.path / "judge" / "held_out.jsonl").read_text().splitlines()
    held_out = [(row["answer"], row["right"]) for row in map(json.loads, lines)]
    assert [right for _, right in held_out] == [True, False] * 3, "of three held-out questions"
    assert {answer for answer, right in held_out if right} == {
        "We have 3 + 4 = 7, and 7 * 2 = 14. The answer is \\boxed{14}."
    }
    assert all("\\boxed{14}" not in answer for answer, right in held_out if not right)


def test_a_judge_of_single_rules_learns_about_single_rules() -> None:
    """As often kept as broken for either rule, and each answer as the judge of a debate is shown it."""
    task, reward = load("countdown"), find_reward("approved:rules=least,show=answer")
    lessons = Lessons.of("planted", "auto", 48, 8, task, reward)
    exercises = lessons.made(task, 3, 48)
    assert len(exercises) == 48 and lessons.made(task, 3, 48) == exercises != lessons.made(task, 4, 48)
    for which in (0, 1):
        own = [exercise for exercise in exercises if exercise.rule == task.rules_of(exercise.question)[which]]
        assert len(own) == 24 and sum(exercise.right for exercise in own) == 12
        assert all(kept(exercise.question, exercise.answer)[which] is exercise.right for exercise in own)
    assert all("=" not in exercise.answer and "\\" not in exercise.answer for exercise in exercises)
    together = Lessons.of("planted", "auto", 48, 8, task, find_reward("approved:show=answer")).made(task, 3, 48)
    assert {exercise.rule for exercise in together} == {""}


def test_a_run_teaches_its_judge_the_rules_that_it_is_asked_about(tmp_path: Path) -> None:
    protocol = QUIET.protocol.with_choices({"reward": "approved:checks=1,rules=least,show=answer", "sections": "asked"})
    debate = replace(QUIET.debate, task="countdown")
    config = having("steps=1", replace(QUIET, protocol=protocol, debate=debate))
    part = find_parts(config)[0]
    part.check(config)
    part.check_tasks([load("countdown")])
    with pytest.raises(ConfigError, match=r"which rules they keep.*task arithmetic"):
        part.check_tasks([load("arithmetic")])
    run = moot.train(config, tmp_path / "run")
    rows = [json.loads(line) for line in (run.path / "judge" / "held_out.jsonl").read_text().splitlines()]
    assert len({row["rule"] for row in rows}) > 2 and "" not in {row["rule"] for row in rows}
    assert [row["judge/steps"] for row in run.metrics() if row["phase"] == "self_play"] == [1] * 4


def test_where_nothing_can_be_planted_the_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="found nothing to judge among the held-out questions of arithmetic: no slip"):
        trained(tmp_path / "run", having("steps=2,show=solution"))
    with pytest.raises(Stopped, match="which are final answers: --reward approved:show=answer"):
        protocol = APPROVED.with_choices(reward="approved:checks=1")
        trained(tmp_path / "other", having("steps=2", replace(JUDGED, protocol=protocol)))


@pytest.mark.parametrize("reward", ["generator_judge", "pairs:show=answer", "majority"])
def test_a_judge_is_heard_as_it_was_taught(reward: str) -> None:
    protocol = QUIET.protocol.with_choices(reward=reward)
    with pytest.raises(ConfigError, match=f"teaches approval, .* got {reward}; use --reward approved, or"):
        find_parts(replace(QUIET, protocol=protocol, parts=("judge_training",)))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("steps=0", "steps or every must be above 0"),
        ("reward=votes", "reward must be 'planted', 'majority' or 'truth'"),
        ("exercises=1", "exercises must be greater than or equal to 2"),
        ("adapter=both", "adapter must be 'own' or 'policy'"),
    ],
)
def test_wrong_settings_are_named(settings: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_parts(replace(JUDGED, parts=(f"judge_training:{settings}",)))


def test_two_judges_are_refused() -> None:
    with pytest.raises(ConfigError, match="got --judge base too"):
        find_parts(replace(QUIET, parts=("judge_training",), recipe=replace(QUIET.recipe, judge="base")))
    with pytest.raises(ConfigError, match="got renewed_judge too"):
        find_parts(replace(CONFIG, parts=("judge_training", "renewed_judge")))


def test_tasks_that_it_cannot_learn_on_are_refused() -> None:
    part = find_part("judge_training:reward=majority")
    with pytest.raises(ConfigError, match="arithmetic, which is open-ended"):
        part.check_tasks([replace(load("arithmetic"), open_ended=True)])


@pytest.mark.parametrize("approves", [True, False])
def test_a_datum_teaches_the_thinking_and_the_word_and_nothing_that_was_read(approves: bool) -> None:
    engine = ScriptedEngine()
    rendering = Rendering(engine.tokenizer)
    judge = TokenJudge(Player(engine, rendering))
    asked = Asked(Question("Two and two?"), ("4",), "approval", "answer")
    heard = asyncio.run(judge.hear(asked, SamplingParams(50, 1.0, seed=1)))
    word, logprobs = asyncio.run(judge.logprobs_of(heard, approves))
    datum = heard.datum(word, logprobs, -0.25, 0.5)
    taught = datum.targets[datum.mask > 0]
    assert taught.tolist() == [*heard.thinking.tokens.tolist(), *word]
    assert engine.tokenizer.decode(list(word)).strip().lower() == ("yes" if approves else "no")
    thought = len(heard.thinking.tokens)
    assert datum.advantages[datum.mask > 0].tolist() == [-0.25] * thought + [0.5] * len(word)
    assert not datum.advantages[datum.mask == 0].any()
    assert datum.logprobs[datum.mask == 0].tolist() == [0] * int((datum.mask == 0).sum())
    assert datum.tokens[: len(heard.prompt)].tolist() == heard.prompt.tolist()


def test_the_judge_of_a_run_has_a_name_of_its_own(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", having("steps=1"))
    state, identity = judge_state(setup.run)
    assert Path(state).parent == setup.run.path / "judge" and identity.startswith("judge ")
    player, told = asyncio.run(
        outsider(f"{setup.run.path}@judge", "judge", setup.config, (setup.engine, setup.rendering), [].append)
    )
    assert isinstance(player, Player) and not player.learns and told.endswith(identity)
    with pytest.raises(ConfigError, match="has no judge of its own: it was not trained with judge_training"):
        judge_state(trained(tmp_path / "plain", QUIET).run)
