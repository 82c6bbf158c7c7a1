"""The optional parts, one by one: what each does, that it is off unless named, and that a killed run goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from moot.debate.protocols import V2
from moot.debate.rewards import Grades
from moot.debate.state import Debate
from moot.debate.types import Parsed, Question, Turn
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.metrics import answer_metrics
from moot.rl.rollout import Player
from moot.rl.schedules import scheduled
from moot.settings.train import ModelConfig, RecipeConfig, TrainConfig
from moot.tasks import load
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.training.commit import restore
from moot.training.loop import answers_by_task, train
from moot.training.part import Part
from moot.training.parts import about, find_part, find_parts, names
from moot.training.parts.curriculum import Curriculum
from moot.training.parts.easy_agents import EasyAgents, found_easy
from moot.training.parts.hard_agents import still_open
from moot.training.parts.past_selves import PastSelves, past_steps, seats_of_past_selves
from moot.training.state import BatchQuestion, Lesson, Progress, Setup, Stopped
from support.damaging import COUNTED_PARTS
from support.dying import dies_after
from unit.training.test_train import CONFIG, Silent, make_setup, untimed

QUIET = replace(CONFIG, eval_every=0)
Kind = TypeVar("Kind", bound=Part)


STAGES = "curriculum:tasks=arithmetic+arithmetic"
"""Two stages, the second of which `make_setup` calls by another name."""


def having(*parts: str, config: TrainConfig = QUIET) -> TrainConfig:
    return replace(config, parts=parts)


def with_recipe(config: TrainConfig = QUIET, **settings: Any) -> TrainConfig:
    return replace(config, recipe=RecipeConfig(**settings))


def part_of(setup: Setup, kind: type[Kind]) -> Kind:
    return next(part for part in setup.parts if isinstance(part, kind))


def played(path: Path, config: TrainConfig, **options: Any) -> Setup:
    setup = make_setup(path, config, **options)
    asyncio.run(train(setup))
    return setup


def self_play_rows(setup: Setup) -> list[dict[str, Any]]:
    return [row for row in setup.run.metrics() if row["phase"] == "self_play"]


@pytest.mark.parametrize(
    ("schedule", "values"), [("constant", [2, 2, 2]), ("linear", [2, 1, 0]), ("cosine", [2, 1, 0])]
)
def test_a_schedule_starts_at_the_value_and_ends_at_nothing(schedule: Any, values: list[float]) -> None:
    assert [scheduled(2.0, schedule, done) for done in (0.0, 0.5, 1.0)] == pytest.approx(values)


def test_truth_is_mixed_in_less_and_less(tmp_path: Path) -> None:
    config = having("truth_schedule", config=replace(QUIET, protocol=QUIET.protocol.with_choices(reward_mix=0.8)))
    rows = self_play_rows(played(tmp_path / "run", config))
    assert [row["recipe/reward_mix"] for row in rows] == pytest.approx([0.8, 0.6, 0.4, 0.2])


# Curriculum


def stages_of(count: int, promote_at: float) -> Curriculum:
    return Curriculum(Curriculum.Settings(("arithmetic",) * count, promote_at))


def test_a_curriculum_moves_on_when_three_iterations_average_the_mark_and_never_back() -> None:
    stages = stages_of(2, 0.6)
    assert [stages.update(0, accuracy) for accuracy in (0.9, 0.2, 0.5)] == [False, False, False]  # mean 0.53
    assert stages.update(0, 0.9) is False  # the last three: 0.2, 0.5, 0.9
    assert stages.update(0, 0.4) is True  # 0.5, 0.9, 0.4 average 0.6
    assert stages.level() == 1
    assert [stages.update(1, 1.0) for _ in range(5)] == [False] * 5  # there is no next
    stages.update(1, 0.0)
    assert stages.level() == 1


def test_a_batch_sampled_before_the_move_does_not_count_for_the_new_task() -> None:
    stages = stages_of(3, 0.6)
    for _ in range(3):
        stages.update(0, 1.0)
    assert stages.level() == 1
    assert stages.update(0, 1.0) is False and stages.recent == []


def test_a_run_with_a_curriculum_trains_on_its_stages_and_says_so(tmp_path: Path) -> None:
    setup = played(tmp_path / "run", having(f"{STAGES},promote_at=0"))
    rows = self_play_rows(setup)
    assert [row["recipe/curriculum_level"] for row in rows] == [0, 0, 0, 1]
    assert ["train_second/correct" in row for row in rows] == [False, False, False, True]
    assert isinstance(setup.watcher, Silent) and setup.watcher.notes == ["the curriculum moves on to second"]


def test_a_curriculum_in_sequence_moves_on_after_its_steps_whatever_the_accuracy(tmp_path: Path) -> None:
    stages = stages_of(2, 2)
    assert [stages.update(0, accuracy) for accuracy in (0.0, None)] == [False, True]
    setup = played(tmp_path / "run", having(f"{STAGES},promote_at=2"))
    assert [row["recipe/curriculum_level"] for row in self_play_rows(setup)] == [0, 0, 1, 1]


def ended(answers: tuple[int, ...], right: int | None = None, question: Question = Question("?", "7")) -> PlayedDebate:
    """A debate of one round in which agent i ends with the answer `answers[i]`; equal numbers are equal answers."""
    turns = tuple(Turn(1, agent, "", Parsed({"solution": "x"}, {})) for agent in range(len(answers)))
    grades = Grades(tuple(map(str, answers)), tuple(each == right for each in answers), answers)
    return PlayedDebate(Debate(question, len(answers), 1, V2.rules, turns), grades=grades)


def test_answers_count_for_their_own_task_and_its_promotion(tmp_path: Path) -> None:
    """A question of the first task is debated again after the second has begun: three of three are right there, none in the second."""
    setup = make_setup(tmp_path / "run", having("curriculum:tasks=arithmetic+arithmetic+arithmetic,promote_at=0.6"))
    part = part_of(setup, Curriculum)
    part.restore({"level": 1, "recent": [], "steps": 0})

    def learned(asked: list[BatchQuestion], taught: list[PlayedDebate]) -> None:
        asyncio.run(part.learned(setup, Progress(), Lesson(3, asked, taught, 0.0, {})))

    setup = replace(setup, tasks=[*setup.tasks, setup.tasks[1]])
    for _ in range(3):
        asked = [BatchQuestion(0, 1, 3), BatchQuestion(1, 2, 3)]
        taught = [ended((0, 0, 0), right=0), ended((0, 1, 2))]
        metrics = answers_by_task(setup, asked, taught)
        learned(asked, taught)
    assert (metrics["train_arithmetic/correct"], metrics["train_second/correct"]) == (1.0, 0.0)
    assert part.level() == 1 and part.recent == [0.0] * 3
    for _ in range(2):  # the last three average 2/3
        learned([BatchQuestion(1, 2, 3)], [ended((0, 0, 0), right=0)])
    assert part.level() == 2


def test_a_batch_of_two_tasks_has_the_metrics_of_both(tmp_path: Path) -> None:
    setup = played(tmp_path / "run", having(f"{STAGES},promote_at=2", "hard_agents:agents=6"))
    row = self_play_rows(setup)[
        2
    ]  # its batch has questions of the second task, and those of the first that stayed open
    assert row["recipe/debated_again"] > 0 and row["recipe/curriculum_level"] == 1
    for name, agents in (("arithmetic", 6), ("second", 4)):
        own = [
            each
            for each in setup.run.debates([row["step"]])
            if isinstance(each, PlayedDebate) and each.debate.num_agents == agents
        ]
        grades = [grade(each.debate, setup.task.equal, setup.task.extract) for each in own]
        assert answer_metrics([each.debate for each in own], grades, name).items() <= row.items()


# More agents for what stays open


def test_only_questions_that_ended_in_disagreement_are_asked_again_and_only_once() -> None:
    def debate(agents: int) -> Debate:
        turns = [Turn(1, a, "", Parsed({"solution": "x"}, {})) for a in range(agents)]
        return Debate(Question("?"), agents, 1, V2.rules, tuple(turns))

    asked = [BatchQuestion(0, 7, 3), BatchQuestion(0, 8, 3), BatchQuestion(0, 9, 5)]
    grades = [
        Grades(("1",) * n, (False,) * n, same) for n, same in ((3, (0, 0, 0)), (3, (0, 1, 0)), (5, (0, 1, 0, 0, 0)))
    ]
    debates = [PlayedDebate(debate(n), grades=each) for n, each in zip((3, 3, 5), grades, strict=True)]
    assert still_open(asked, debates, 5) == [BatchQuestion(0, 8, 5)]


def test_an_open_question_comes_back_with_more_agents_in_the_next_iteration(tmp_path: Path) -> None:
    setup = played(tmp_path / "run", having("hard_agents:agents=6"))
    rows = self_play_rows(setup)
    assert rows[0]["recipe/debated_again"] == 0 and rows[1]["recipe/debated_again"] > 0
    first, second = ([*setup.run.records(step)] for step in (3, 4))
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
    debate = replace(QUIET.debate, evaluation_tokens=1)
    config = replace(having("hard_agents:agents=6"), protocol=protocol, debate=debate, warm_questions=0)
    engine = Counts(seed=0)
    played(tmp_path / "run", config, engine=engine)
    assert engine.most == 12 * 15


@pytest.mark.parametrize("calls", [40, 70, 100, 130])
def test_what_is_to_be_debated_again_survives_a_kill(tmp_path: Path, calls: int) -> None:
    config = replace(
        having("hard_agents:agents=6"),
        model=ModelConfig(engine="scripted"),
    )

    def again(setup: Setup) -> dict[int, list[str]]:
        return {
            step: [each["question"]["text"] for each in setup.run.records(step) if each["num_agents"] == 6]
            for step in setup.run.steps()
        }

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
    config = replace(having("easy_agents:agents=3"), warm_questions=0)
    config = replace(config, optim=replace(config.optim, num_train_datapoints=24))

    def loop_of(name: str) -> Setup:
        task = load(str(file))
        return replace(make_setup(tmp_path / name, config), task=task, tasks=[task])

    setup = loop_of("run")
    asyncio.run(train(setup))
    easy: set[str] = set()
    for row in self_play_rows(setup):
        debates = [each for each in setup.run.debates([row["step"]]) if isinstance(each, PlayedDebate)]
        ids = [each.debate.question.id for each in debates]
        assert [each.debate.num_agents for each in debates] == [3 if each in easy else 4 for each in ids]
        assert row["recipe/fewer_agents"] == sum(each in easy for each in ids)
        graded = [replace(each, grades=grade(each.debate, setup.task.equal, setup.task.extract)) for each in debates]
        easy = found_easy(easy, ids, graded)
    assert sum(row["recipe/fewer_agents"] for row in self_play_rows(setup)) > 0
    resumed = loop_of("run")
    asyncio.run(restore(resumed))
    assert part_of(resumed, EasyAgents).easy == part_of(setup, EasyAgents).easy == {f"0/{each}" for each in easy}


def test_questions_that_are_made_anew_are_not_remembered(tmp_path: Path) -> None:
    assert part_of(played(tmp_path / "run", having("easy_agents:agents=3")), EasyAgents).easy == set()


# Past selves


def test_past_selves_stay_few_and_stand_for_the_whole_run(tmp_path: Path) -> None:
    config = replace(
        having("past_selves:share=1"), save_every=1, optim=replace(QUIET.optim, batch_size=1, num_train_datapoints=10)
    )
    setup = played(tmp_path / "run", config)
    assert list(part_of(setup, PastSelves).players) == [3, 5, 7, 9, 11]  # of steps 3 to 12, more than eight
    resumed = played(tmp_path / "run", config)
    assert list(part_of(resumed, PastSelves).players) == [3, 5, 7, 9, 11]
    long = replace(config, optim=replace(config.optim, num_train_datapoints=1000))
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
    with_past = played(tmp_path / "run", having("past_selves:share=1"))
    rows = self_play_rows(with_past)
    counts = [np.load(with_past.run.path / "debates" / f"{row['step']:06d}.npz")["tokens"].size for row in rows]
    trained = [row["optim/trained_tokens"] for row in rows]
    # Checkpoints are kept from the second iteration on, so the third and fourth have a guest in every debate.
    assert len(part_of(with_past, PastSelves).players) == 2
    assert [tokens < count for tokens, count in zip(trained, counts, strict=True)][2:] == [True, True]


# Distillation


def test_every_second_iteration_takes_a_step_on_what_the_winners_said(tmp_path: Path) -> None:
    setup = played(tmp_path / "run", having("distill:every=2"))
    rows = self_play_rows(setup)
    assert ["distill/examples" in row for row in rows] == [False, True, False, True]
    assert all(row["distill/examples"] >= 1 and row["distill/trained_tokens"] > 0 for row in rows[1::2])
    steps = setup.engine.steps
    assert steps == played(tmp_path / "plain", QUIET).engine.steps + 2


# Budget and alarms


def test_self_play_ends_when_its_tokens_are_spent_and_is_still_evaluated(tmp_path: Path) -> None:
    whole = self_play_rows(played(tmp_path / "whole", CONFIG))
    limit = int(whole[0]["tokens/sampled"]) + 1
    setup = played(tmp_path / "short", with_recipe(CONFIG, max_sampled_tokens=limit))
    rows = setup.run.metrics()
    assert [(row["step"], row["phase"]) for row in rows][-2:] == [(4, "self_play"), (4, "eval")]
    assert len(self_play_rows(setup)) == 2
    before = len(rows)
    assert len(played(tmp_path / "short", with_recipe(CONFIG, max_sampled_tokens=limit)).run.metrics()) == before


def test_an_alarm_stops_the_run_only_when_asked_and_says_what_to_do(tmp_path: Path) -> None:
    config = replace(
        QUIET,
        optim=replace(QUIET.optim, batch_size=24, num_train_datapoints=48),
        warm_questions=0,
    )
    engine = ScriptedEngine(style="hostile", seed=0)
    assert self_play_rows(played(tmp_path / "on", config, engine=engine))[-1]["alarm/format_collapse"] == 1
    with pytest.raises(Stopped, match=r"format_collapse rings: .* lower `--learning-rate`"):
        played(
            tmp_path / "off",
            replace(config, parts=(*config.parts, "stop_on_alarm")),
            engine=ScriptedEngine(style="hostile", seed=0),
        )


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
            ids = [
                np.array([*self.tokenizer.encode(each), self.tokenizer.eos_token_id], dtype=np.int32) for each in said
            ]
            return [Sample(each, np.zeros(len(each), dtype=np.float32), "stop") for each in ids]

    config = replace(QUIET, parts=("warm_start:wrong=sampled",))
    setup = played(tmp_path / "run", config, engine=Blurts(seed=0))
    kept = json.loads((setup.run.path / "warm_wrong.json").read_text())
    assert kept == {
        str(number): ["It is \\boxed{-999}."] for number in range(16)
    }  # no tags, no repeats, nothing without an answer


# All of it at once, cut off


@pytest.mark.parametrize("calls", [10, 45, 80, 120])
def test_a_run_with_every_part_goes_on_after_a_cut_as_if_nothing_had_happened(tmp_path: Path, calls: int) -> None:
    parts = (
        "truth_schedule:schedule=cosine", "hard_agents:agents=5", "past_selves:share=0.7", "distill:every=2", f"{STAGES},promote_at=0",
        "easy_agents:agents=3", "adaptive_rate", "kl_penalty:coef=0.1", "min_signal:debates=2", "rounds_as_needed:extra_rounds=1",
        "renewed_judge",
    )  # fmt: skip
    config = replace(CONFIG, protocol=CONFIG.protocol.with_choices(reward_mix=0.5), parts=parts)
    config = replace(config, recipe=RecipeConfig(max_sampled_tokens=200_000))

    def setup_at(name: str, engine: ScriptedEngine | None = None) -> Setup:
        return make_setup(tmp_path / name, config, engine=engine)

    whole = setup_at("whole")
    asyncio.run(train(whole))

    with contextlib.suppress(RuntimeError):
        asyncio.run(train(setup_at("cut", dies_after(calls)(seed=0))))
    resumed = setup_at("cut")
    asyncio.run(train(resumed))
    assert untimed(resumed.run.metrics()) == untimed(whole.run.metrics())


# How they are written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("past_selves:share=1.5", r"with past_selves:share=1.5: share must be less than or equal to 1, got '1.5'"),
        ("past_selves:share=-0.1", "share must be greater than or equal to 0"),
        ("past_selves:share=lots", "share must be a valid number, .*got 'lots'"),
        ("past_selves:shares=0.3", "there is no setting 'shares'; there are share, each written once"),
        ("past_selves:share=0.3,share=0.4", "share is given twice"),
        ("past_selves:0.3", "there is no setting '0.3'"),
        (
            "past_self",
            r"with must name one of adaptive_rate, .*warm_start, or file.py:Class, got 'past_self'; did you mean past_selves",
        ),
        ("hard_agents:agents=2", "agents must be greater than or equal to 3"),
        ("easy_agents:agents=2", "agents must be greater than or equal to 3"),
        ("easy_agents:agents=4", "agents must be below num_agents, which is 4, got 4"),
        (f"{STAGES},promote_at=2.5", "promote_at must be an accuracy from 0 to 1, or a whole number of steps, got 2.5"),
        (f"{STAGES},promote_at=-0.5", "promote_at must be an accuracy"),
        ("curriculum", "tasks must be given"),
        ("rounds_as_needed:extra_rounds=-1", "extra_rounds must be greater than or equal to 0"),
        ("rounds_as_needed", "does nothing by itself"),
        ("kl_penalty", "coef must be given"),
        ("kl_penalty:coef=inf", "coef must be a finite number"),
        ("frozen_labels:band=0.9-0.3", "band must be two shares from 0 to 1, the lower first"),
        ("truth_schedule:schedule=square", "schedule must be 'constant', 'linear' or 'cosine'"),
        ("distill:every=0", "every must be greater than or equal to 1"),
    ],
)
def test_what_is_wrong_with_a_part_is_said_with_its_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        find_parts(having(text))


def test_a_task_keeps_its_commas_and_colons_in_a_curriculum() -> None:
    part = find_part("curriculum:tasks=gsm8k+math:algebra,level=1-3+aime24:past,promote_at=0.5")
    own = find_part("curriculum:tasks=theirs.py:task+gsm8k,promote_at=2")
    assert own.settings.tasks == ("theirs.py:task", "gsm8k") and own.settings.promote_at == 2
    assert part.settings.tasks == ("gsm8k", "math:algebra,level=1-3", "aime24:past") and part.settings.promote_at == 0.5


def test_the_last_of_one_name_counts_and_off_leaves_it_out() -> None:
    texts = (
        "past_selves:share=0.1",
        "distill",
        "mine.py:Part:a=1",
        "past_selves:share=0.4",
        "distill:off",
        "mine.py:Part:a=2",
    )
    assert having(*texts).parts == ("past_selves:share=0.4", "mine.py:Part:a=2")


def test_every_part_says_in_its_first_line_what_was_measured() -> None:
    assert list(about()) == names() and len(names()) > 10
    for name, line in about().items():
        assert line.endswith((" Untried.", ", one seed.", " Measured: docs/experiment.md.")) and len(line) <= 120, name
        assert part_defaults(name) is not None


def part_defaults(name: str) -> Part:
    needed = {"curriculum": ":tasks=arithmetic", "kl_penalty": ":coef=0.1", "min_signal": ":debates=1"}
    return find_part(name + needed.get(name, ""))


@pytest.mark.parametrize("setting", COUNTED_PARTS)
def test_counts_of_a_part_have_an_end(setting: str) -> None:
    """A run may come from somebody else, and what it asks for at once stands in memory."""
    name = setting.partition(":")[2]
    assert getattr(find_part(f"{setting}=1000").settings, name) == 1000
    with pytest.raises(
        ConfigError, match=f"with {setting}=1001: {name} must be less than or equal to 1000, got '1001'"
    ):
        find_part(f"{setting}=1001")


OWN = """
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from moot import Part


class Slower(Part):
    @dataclass(frozen=True)
    class Settings:
        by: Annotated[float, Field(gt=0)] = 2.0

    def __init__(self, settings=None):
        super().__init__(settings)
        self.steps = 0

    def rate(self, rate, iteration, done):
        return rate / self.settings.by**self.steps

    async def learned(self, setup, progress, lesson):
        self.steps += 1
        return {"mine/steps": float(self.steps)}

    def state(self):
        return {"steps": self.steps}

    def restore(self, state):
        self.steps = state["steps"]
"""


def test_a_part_of_ones_own_has_settings_metrics_and_state_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    text = f"{tmp_path / 'mine.py'}:Slower"
    config = having(f"{text}:by=4", config=replace(QUIET, optim=replace(QUIET.optim, learning_rate=1.0)))
    with contextlib.suppress(RuntimeError):
        played(tmp_path / "run", config, engine=dies_after(60)(seed=0))
    rows = self_play_rows(played(tmp_path / "run", config))
    assert [row["optim/lr"] for row in rows] == [1.0, 1 / 4, 1 / 16, 1 / 64]
    assert [row["mine/steps"] for row in rows] == [1, 2, 3, 4]
    for wrong, complaint in (
        (f"{text}:by=0", "by must be greater than 0"),
        (f"{text}r", "must be a class made of moot.training.part.Part"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            find_part(wrong)


def test_a_configuration_with_parts_survives_its_json() -> None:
    config = replace(having("curriculum:tasks=arithmetic+x.jsonl"), recipe=RecipeConfig(judge="base"))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
