"""The remedies, one by one: what each does, that it is off unless named, and that a killed run goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.debate.protocol import V2
from moot.debate.rewards import Grades
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Parsed, Question, Turn
from moot.engine.scripted import ScriptedEngine
from moot.loop.commit import past_steps, restore
from moot.loop.train import Loop, Stopped, answers_by_task, train
from moot.records.played import PlayedDebate
from moot.rl.config import ModelConfig, RecipeConfig, TrainConfig
from moot.rl.metrics import answer_metrics
from moot.rl.remedies import BatchQuestion, Curriculum, found_easy, seats_of_past_selves, still_open
from moot.rl.rollout import Player
from moot.rl.schedules import scheduled
from moot.tasks import load
from moot.tasks.answers import grade
from support.dying import dies_after
from unit.loop.test_train import CONFIG, Silent, make_loop, untimed

QUIET = replace(CONFIG, eval_every=0)


def with_recipe(config: TrainConfig = QUIET, **settings: Any) -> TrainConfig:
    return replace(config, recipe=RecipeConfig(**settings))


def played(path: Path, config: TrainConfig, **options: Any) -> Loop:
    loop = make_loop(path, config, **options)
    asyncio.run(train(loop))
    return loop


def self_play_rows(loop: Loop) -> list[dict[str, Any]]:
    return [row for row in loop.run.metrics() if row["phase"] == "self_play"]


@pytest.mark.parametrize(("schedule", "values"), [("constant", [2, 2, 2]), ("linear", [2, 1, 0]), ("cosine", [2, 1, 0])])
def test_a_schedule_starts_at_the_value_and_ends_at_nothing(schedule: Any, values: list[float]) -> None:
    assert [scheduled(2.0, schedule, done) for done in (0.0, 0.5, 1.0)] == pytest.approx(values)


def test_truth_is_mixed_in_less_and_less(tmp_path: Path) -> None:
    config = with_recipe(replace(QUIET, protocol=QUIET.protocol.with_choices(reward_mix=0.8)), truth_schedule="linear")
    rows = self_play_rows(played(tmp_path / "run", config))
    assert [row["recipe/reward_mix"] for row in rows] == pytest.approx([0.8, 0.6, 0.4, 0.2])


# Curriculum


def easy_and_hard() -> Curriculum:
    tasks = [replace(load("arithmetic", 0, 2), name=name) for name in ("easy", "hard")]
    return Curriculum(tasks, promote_at=0.6)


def test_a_curriculum_moves_on_when_three_iterations_average_the_mark_and_never_back() -> None:
    stages = easy_and_hard()
    assert [stages.update(0, accuracy) for accuracy in (0.9, 0.2, 0.5)] == [False, False, False]  # mean 0.53
    assert stages.update(0, 0.9) is False  # the last three: 0.2, 0.5, 0.9
    assert stages.update(0, 0.4) is True  # 0.5, 0.9, 0.4 average 0.6
    assert stages.task.name == "hard"
    assert [stages.update(1, 1.0) for _ in range(5)] == [False] * 5  # there is no next
    stages.update(1, 0.0)
    assert stages.level == 1


def test_a_batch_sampled_before_the_move_does_not_count_for_the_new_task() -> None:
    stages = easy_and_hard()
    stages.tasks = [*stages.tasks, stages.tasks[1]]
    for _ in range(3):
        stages.update(0, 1.0)
    assert stages.level == 1
    assert stages.update(0, 1.0) is False and stages.recent == []


def test_a_run_with_a_curriculum_trains_on_its_stages_and_says_so(tmp_path: Path) -> None:
    config = with_recipe(curriculum=("arithmetic", "arithmetic"), promote_at=0.0)
    loop = make_loop(tmp_path / "run", config)
    first, second = easy_and_hard().tasks
    loop.curriculum = Curriculum([first, second], 0.0)
    asyncio.run(train(loop))
    rows = self_play_rows(loop)
    assert [row["recipe/curriculum_level"] for row in rows] == [0, 0, 0, 1]
    assert ["train_hard/correct" in row for row in rows] == [False, False, False, True]
    assert isinstance(loop.watcher, Silent) and loop.watcher.notes == ["the curriculum moves on to hard"]


def test_a_curriculum_in_sequence_moves_on_after_its_steps_whatever_the_accuracy(tmp_path: Path) -> None:
    stages = Curriculum(easy_and_hard().tasks, promote_at=2)
    assert [stages.update(0, accuracy) for accuracy in (0.0, None)] == [False, True]
    config = with_recipe(curriculum=("arithmetic", "arithmetic"), promote_at=2)
    loop = make_loop(tmp_path / "run", config)
    loop.curriculum = Curriculum(stages.tasks, 2)
    asyncio.run(train(loop))
    assert [row["recipe/curriculum_level"] for row in self_play_rows(loop)] == [0, 0, 1, 1]


def ended(answers: tuple[int, ...], right: int | None = None, question: Question = Question("?", "7")) -> PlayedDebate:
    """A debate of one round in which agent i ends with the answer `answers[i]`; equal numbers are equal answers."""
    turns = tuple(Turn(1, agent, "", Parsed({"solution": "x"}, {})) for agent in range(len(answers)))
    grades = Grades(tuple(map(str, answers)), tuple(each == right for each in answers), answers)
    return PlayedDebate(Debate(question, len(answers), 1, V2.rules, turns), grades=grades)


def test_answers_count_for_their_own_task_and_its_promotion(tmp_path: Path) -> None:
    """A question of the first task is debated again after the second has begun: three of three are right there, none in the second."""
    loop = make_loop(tmp_path / "run", with_recipe(curriculum=("arithmetic", "arithmetic"), hard_agents=3))
    first, second = easy_and_hard().tasks
    loop.curriculum = Curriculum([first, second, second], promote_at=0.6, level=1)
    for _ in range(3):
        asked = [BatchQuestion(0, 1, 3), BatchQuestion(1, 2, 3)]
        metrics = answers_by_task(loop, asked, [ended((0, 0, 0), right=0), ended((0, 1, 2))])
    assert (metrics["train_easy/correct"], metrics["train_hard/correct"]) == (1.0, 0.0)
    assert loop.curriculum.level == 1 and loop.curriculum.recent == [0.0] * 3
    for _ in range(2):  # the last three average 2/3
        answers_by_task(loop, [BatchQuestion(1, 2, 3)], [ended((0, 0, 0), right=0)])
    assert loop.curriculum.level == 2


def test_a_batch_of_two_tasks_has_the_metrics_of_both(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run", with_recipe(curriculum=("arithmetic", "arithmetic"), promote_at=2, hard_agents=6))
    loop.curriculum = Curriculum(easy_and_hard().tasks, 2)
    asyncio.run(train(loop))
    row = self_play_rows(loop)[2]  # its batch has questions of the second task, and those of the first that stayed open
    assert row["recipe/debated_again"] > 0 and row["recipe/curriculum_level"] == 1
    for name, agents in (("easy", 6), ("hard", 4)):
        own = [each for each in loop.run.debates([row["step"]]) if isinstance(each, PlayedDebate) and each.debate.num_agents == agents]
        grades = [grade(each.debate, loop.task.equal, loop.task.extract) for each in own]
        assert answer_metrics([each.debate for each in own], grades, name).items() <= row.items()


# More agents for what stays open


def test_only_questions_that_ended_in_disagreement_are_asked_again_and_only_once() -> None:
    def debate(agents: int) -> Debate:
        turns = [Turn(1, a, "", Parsed({"solution": "x"}, {})) for a in range(agents)]
        return Debate(Question("?"), agents, 1, V2.rules, tuple(turns))

    asked = [BatchQuestion(0, 7, 3), BatchQuestion(0, 8, 3), BatchQuestion(0, 9, 5)]
    grades = [Grades(("1",) * n, (False,) * n, same) for n, same in ((3, (0, 0, 0)), (3, (0, 1, 0)), (5, (0, 1, 0, 0, 0)))]
    debates = [PlayedDebate(debate(n), grades=each) for n, each in zip((3, 3, 5), grades, strict=True)]
    assert still_open(asked, debates, 5) == [BatchQuestion(0, 8, 5)]


def test_an_open_question_comes_back_with_more_agents_in_the_next_iteration(tmp_path: Path) -> None:
    loop = played(tmp_path / "run", with_recipe(hard_agents=6))
    rows = self_play_rows(loop)
    assert rows[0]["recipe/debated_again"] == 0 and rows[1]["recipe/debated_again"] > 0
    first, second = ([*loop.run.records(step)] for step in (3, 4))
    again = [each for each in second if each["num_agents"] == 6]
    assert len(again) == rows[1]["recipe/debated_again"]
    assert {each["question"]["text"] for each in again} <= {each["question"]["text"] for each in first}
    assert sum(each["num_agents"] == 4 for each in second) == 3


def test_more_agents_have_room_for_more_comparisons(tmp_path: Path) -> None:
    """Six agents have 15 pairs, and each pair has 12 tokens."""

    class Counts(ScriptedEngine):
        most = 0

        async def sample(self, prompt: Any, params: Any, num_samples: int = 1) -> Any:
            self.most = max(self.most, params.max_tokens if params.max_tokens < 1000 else 0)
            return await super().sample(prompt, params, num_samples)

    protocol = QUIET.protocol.with_choices(sections="asked")
    debate = replace(QUIET.debate, evaluation_tokens=1, comparison_tokens=1)
    config = replace(with_recipe(hard_agents=6), protocol=protocol, debate=debate, warm=replace(QUIET.warm, warm_questions=0))
    engine = Counts(seed=0)
    played(tmp_path / "run", config, engine=engine)
    assert engine.most == 12 * 15


@pytest.mark.parametrize("calls", [40, 70, 100, 130])
def test_what_is_to_be_debated_again_survives_a_kill_while_batches_are_sampled_ahead(tmp_path: Path, calls: int) -> None:
    config = replace(with_recipe(hard_agents=6), model=ModelConfig(engine="scripted"), optim=replace(QUIET.optim, max_staleness=1))

    def again(loop: Loop) -> dict[int, list[str]]:
        return {step: [each["question"]["text"] for each in loop.run.records(step) if each["num_agents"] == 6] for step in loop.run.steps()}

    whole = played(tmp_path / "whole", config)
    assert sum(map(len, again(whole).values())) > 2
    with contextlib.suppress(RuntimeError):
        played(tmp_path / "cut", config, engine=dies_after(calls)(seed=0))
    assert again(played(tmp_path / "cut", config)) == again(whole)


# Fewer agents for what was easy


def test_a_question_is_easy_while_all_its_agents_end_with_one_answer() -> None:
    debates = [ended((0, 0, 0)), ended((0, 1, 0)), ended((0, 0, 0)), ended((0, 1, 1)), ended((4, 4, 4))]
    assert found_easy({"0/b", "0/d"}, ["0/a", "0/b", "0/c", "0/c", ""], debates) == {"0/a", "0/d"}
    nobody = replace(ended((0, 0, 0)), grades=Grades((None,) * 3, (False,) * 3, (None,) * 3))
    assert found_easy({"0/a"}, ["0/a"], [nobody]) == set()


def test_an_easy_question_comes_by_again_with_fewer_agents_and_a_killed_run_knows_it(tmp_path: Path) -> None:
    file = tmp_path / "three.jsonl"
    file.write_text("".join(f'{{"question": "What is {i} + {i}?", "answer": "{2 * i}"}}\n' for i in range(3)))
    config = replace(with_recipe(easy_agents=3), warm=replace(QUIET.warm, warm_questions=0))
    config = replace(config, optim=replace(config.optim, num_train_datapoints=24))

    def loop_of(name: str) -> Loop:
        loop = make_loop(tmp_path / name, config)
        loop.task = load(str(file))
        loop.curriculum = Curriculum([loop.task])
        return loop

    loop = loop_of("run")
    asyncio.run(train(loop))
    easy: set[str] = set()
    for row in self_play_rows(loop):
        debates = [each for each in loop.run.debates([row["step"]]) if isinstance(each, PlayedDebate)]
        ids = [each.debate.question.id for each in debates]
        assert [each.debate.num_agents for each in debates] == [3 if each in easy else 4 for each in ids]
        assert row["recipe/fewer_agents"] == sum(each in easy for each in ids)
        graded = [replace(each, grades=grade(each.debate, loop.task.equal, loop.task.extract)) for each in debates]
        easy = found_easy(easy, ids, graded)
    assert sum(row["recipe/fewer_agents"] for row in self_play_rows(loop)) > 0
    resumed = loop_of("run")
    asyncio.run(restore(resumed))
    assert resumed.easy == loop.easy == {f"0/{each}" for each in easy}


def test_questions_that_are_made_anew_are_not_remembered(tmp_path: Path) -> None:
    assert played(tmp_path / "run", with_recipe(easy_agents=3)).easy == set()


# Past selves


def test_past_selves_stay_few_and_stand_for_the_whole_run(tmp_path: Path) -> None:
    config = replace(with_recipe(past_selves=1.0), save_every=1, optim=replace(QUIET.optim, batch_size=1, num_train_datapoints=10))
    loop = played(tmp_path / "run", config)
    assert list(loop.past) == [3, 5, 7, 9, 11]  # of steps 3 to 12, more than eight
    resumed = make_loop(tmp_path / "run", config)
    asyncio.run(restore(resumed))
    assert list(resumed.past) == list(loop.past)
    long = make_loop(tmp_path / "long", replace(config, optim=replace(config.optim, num_train_datapoints=1000)))
    before: set[int] = set()
    for step in range(3, 1002):
        now = set(past_steps(long, step))
        assert len(now) <= 8 and now <= before | {step}, "weights that were let go are not needed again"
        before = now


def test_past_selves_take_one_seat_in_a_share_of_debates() -> None:
    player = Player(ScriptedEngine(), None, learns=False)  # type: ignore[arg-type]
    assert seats_of_past_selves([], 1.0, "s", 4) is None and seats_of_past_selves([player], 0.0, "s", 4) is None
    for share, low, high in ((1.0, 400, 400), (0.25, 70, 130)):
        seats = seats_of_past_selves([player], share, "s", 4)
        assert seats is not None
        taken = [sum(seats(number, seat) is player for seat in range(4)) for number in range(400)]
        assert set(taken) <= {0, 1} and low <= sum(taken) <= high


def test_a_past_self_is_never_trained_on(tmp_path: Path) -> None:
    with_past = played(tmp_path / "run", with_recipe(past_selves=1.0))
    rows = self_play_rows(with_past)
    counts = [np.load(with_past.run.path / "debates" / f"{row['step']:06d}.npz")["tokens"].size for row in rows]
    trained = [row["optim/trained_tokens"] for row in rows]
    # Checkpoints are kept from the second iteration on, so the third and fourth have a guest in every debate.
    assert len(with_past.past) == 2
    assert [tokens < count for tokens, count in zip(trained, counts, strict=True)][2:] == [True, True]


# Distillation


def test_every_second_iteration_takes_a_step_on_what_the_winners_said(tmp_path: Path) -> None:
    loop = played(tmp_path / "run", with_recipe(distill_every=2))
    rows = self_play_rows(loop)
    assert ["distill/examples" in row for row in rows] == [False, True, False, True]
    assert all(row["distill/examples"] >= 1 and row["distill/trained_tokens"] > 0 for row in rows[1::2])
    steps = loop.engine.steps
    assert steps == played(tmp_path / "plain", QUIET).engine.steps + 2


# Budget and alarms


def test_self_play_ends_when_its_tokens_are_spent_and_is_still_evaluated(tmp_path: Path) -> None:
    whole = self_play_rows(played(tmp_path / "whole", CONFIG))
    limit = int(whole[0]["tokens/sampled"]) + 1
    loop = played(tmp_path / "short", with_recipe(CONFIG, max_sampled_tokens=limit))
    rows = loop.run.metrics()
    assert [(row["step"], row["phase"]) for row in rows][-2:] == [(4, "self_play"), (4, "eval")]
    assert len(self_play_rows(loop)) == 2
    before = len(rows)
    assert len(played(tmp_path / "short", with_recipe(CONFIG, max_sampled_tokens=limit)).run.metrics()) == before


def test_an_alarm_stops_the_run_only_when_asked_and_says_what_to_do(tmp_path: Path) -> None:
    config = replace(QUIET, optim=replace(QUIET.optim, batch_size=24, num_train_datapoints=48), warm=replace(QUIET.warm, warm_questions=0))
    engine = ScriptedEngine(style="hostile", seed=0)
    assert self_play_rows(played(tmp_path / "on", config, engine=engine))[-1]["alarm/format_collapse"] == 1
    with pytest.raises(Stopped, match=r"format_collapse rings: .* lower `--learning-rate`"):
        played(tmp_path / "off", with_recipe(config, stop_on_alarm=True), engine=ScriptedEngine(style="hostile", seed=0))


# The warm start's wrong answers


def test_sampled_mistakes_are_kept_with_the_run_and_are_mistakes(tmp_path: Path) -> None:
    class Blurts(ScriptedEngine):
        async def sample(self, prompt: Any, params: Any, num_samples: int = 1) -> Any:
            if num_samples == 1:
                return await super().sample(prompt, params, num_samples)
            text = self.tokenizer.decode(list(prompt))
            self.asked = [*getattr(self, "asked", []), text]
            from moot.engine.protocol import Sample

            said = ["It is \\boxed{-999}.", "<solution>\\boxed{-998}</solution>", "no idea", "It is \\boxed{-999}."]
            ids = [np.array([*self.tokenizer.encode(each), self.tokenizer.eos_token_id], dtype=np.int32) for each in said]
            return [Sample(each, np.zeros(len(each), dtype=np.float32), "stop") for each in ids]

    config = replace(QUIET, warm=replace(QUIET.warm, warm_wrong="sampled"))
    loop = played(tmp_path / "run", config, engine=Blurts(seed=0))
    kept = json.loads((loop.run.path / "warm_wrong.json").read_text())
    assert kept == {str(number): ["It is \\boxed{-999}."] for number in range(4)}  # no tags, no repeats, nothing without an answer


# All of it at once, cut off


@pytest.mark.parametrize("calls", [10, 45, 80, 120])
def test_a_run_with_every_remedy_goes_on_after_a_cut_as_if_nothing_had_happened(tmp_path: Path, calls: int) -> None:
    recipe: dict[str, Any] = {
        "truth_schedule": "cosine", "hard_agents": 5, "past_selves": 0.7, "distill_every": 2, "max_sampled_tokens": 200_000,
        "curriculum": ("arithmetic", "arithmetic"), "promote_at": 0.0, "easy_agents": 3,
    }  # fmt: skip
    config = with_recipe(replace(CONFIG, protocol=CONFIG.protocol.with_choices(reward_mix=0.5)), **recipe)

    def loop_at(name: str, engine: ScriptedEngine | None = None) -> Loop:
        loop = make_loop(tmp_path / name, config, engine=engine)
        loop.curriculum = Curriculum([loop.task, replace(loop.task, name="second")], 0.0)
        return loop

    whole = loop_at("whole")
    asyncio.run(train(whole))

    with contextlib.suppress(RuntimeError):
        asyncio.run(train(loop_at("cut", dies_after(calls)(seed=0))))
    resumed = loop_at("cut")
    asyncio.run(train(resumed))
    assert untimed(resumed.run.metrics()) == untimed(whole.run.metrics())


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"judge_share": 1.5}, "judge_share"),
        ({"past_selves": -0.1}, "past_selves"),
        ({"hard_agents": 2}, "hard_agents"),
        ({"easy_agents": 2}, "easy_agents"),
        ({"promote_at": 2.5}, "promote_at"),
        ({"promote_at": -0.5}, "promote_at"),
        ({"extra_rounds": -1}, "extra_rounds"),
    ],
)
def test_a_setting_out_of_range_is_named(setting: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        RecipeConfig(**setting)


def test_easy_questions_have_fewer_agents_than_others() -> None:
    with pytest.raises(ConfigError, match="easy_agents must be below num_agents, which is 4, got 4"):
        with_recipe(easy_agents=4)


def test_a_configuration_with_remedies_survives_its_json() -> None:
    config = with_recipe(curriculum=("arithmetic", "x.jsonl"), judge="base")
    assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
