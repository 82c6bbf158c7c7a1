"""Signals without labels, and the best checkpoint: which it is, that it stays, and that a run can end there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.players.checkpoints import best_step, find_trained, result_step, split_name, step_named
from moot.players.find import Players
from moot.rl.alarms import Alarms
from moot.rl.best import better_step, held_out_score, nothing_right, ranking, told_best
from moot.rl.plurality_history import Visits, plurality_answer
from moot.rl.trust import panel, plurality_share
from moot.runs import Run
from moot.tasks import load
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.export.weights import find_adapter
from moot.training import evaluations
from moot.training.loop import train
from moot.training.state import Stopped
from support.making import FAILED, debate, v2
from unit.training.test_train import CONFIG, make_setup


def answered(*answers: str | None, name: str = "q") -> PlayedDebate:
    """One round in which each agent gives its answer; None is a turn that cannot be read."""
    made = debate(v2(), [["" if answer else FAILED for answer in answers]], [answers])
    made = replace(made, question=Question("How many?", None, id=name))
    return PlayedDebate(made, grades=grade(made))


# Signals


def test_the_share_of_the_plurality_counts_agents_without_an_answer() -> None:
    assert plurality_share(answered("7", "7", "7", "8")) == 3 / 4
    assert plurality_share(answered("7", "8", None, None)) == 1 / 4
    assert plurality_share(answered(None, None, None)) == 0
    assert panel([answered("7", "7", "7", "8"), answered("7", "8", "9", "6")])["trust/plurality_share"] == 1 / 2
    assert plurality_answer(answered("8", "7", "7.0")) == "7" and plurality_answer(answered(None, None, None)) is None


def test_a_flip_is_another_plurality_than_at_the_last_visit(tmp_path: Path) -> None:
    """a: 7 -> 7.0, the same number. b: 7 -> 8. c: new. d: an answer, then none. One of two questions flipped."""
    run, task = Run.create(tmp_path / "run", {}, {}), load("arithmetic", 0, 1)
    visits = Visits.until(run, 0)

    def visit(step: int, phase: str = "self_play", **answers: tuple[str | None, ...]) -> float | None:
        played = [(task, answered(*given, name=name)) for name, given in answers.items()]
        return asyncio.run(visits.update(step, phase, played))["trust/plurality_flips"]

    assert visit(1, a=("7", "7", "8"), b=("7", "7", "8"), d=("1", "1", "1")) is None
    assert visit(2, a=("7.0", "7", "8"), b=("8", "7", "8"), c=("1", "2", "2"), d=(None, None, None)) == 1 / 2
    assert visit(2, "eval", b=("7", "7", "7")) is None, "evaluations are visits of their own"
    visits = Visits.until(run, 1)
    assert visit(2, b=("7", "7", "8")) == 0, "a run that continues after step 1 has forgotten step 2"
    visits = Visits.until(run, 2)
    assert visit(3, d=("1", "1", "1"), b=("8", "8", "8")) == 1 / 2, "the line that was written last counts"


def test_a_run_remembers_the_newest_questions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.rl.plurality_history.MOST", 2)
    run, task = Run.create(tmp_path / "run", {}, {}), load("arithmetic", 0, 1)
    visits = Visits.until(run, 0)
    for step, name in enumerate(("a", "b", "a", "c"), 1):
        asyncio.run(visits.update(step, "self_play", [(task, answered("7", "7", "8", name=name))]))
    assert (
        list(visits.last["self_play"])
        == list(Visits.until(run, 4).last["self_play"])
        == ["arithmetic/a", "arithmetic/c"]
    )


# Which is the best


def row(step: int, correct: float | None, share: float = 0.5) -> dict[str, Any]:
    return {"step": step, "phase": "eval", "test_sums/correct": correct, "trust/plurality_share": share}


def test_accuracy_ranks_unless_there_are_no_answers() -> None:
    assert held_out_score(row(1, 0.4, 0.9), "accuracy") == ("accuracy", 0.4)
    assert held_out_score(row(1, None, 0.9), "accuracy or agreement") == ("agreement", 0.9)
    rows = [row(0, 0.3), row(2, 0.4), row(4, 0.4), row(6, 0.2)]
    best = None
    for number, each in enumerate(rows):
        best = better_step(rows[:number], best, each, "accuracy")
    assert best == 2, "of those that are level the earlier one"
    assert told_best(rows, 2) == "step 2 (held-out accuracy 40%)" and told_best(rows, None) == ""


def test_a_best_of_nothing_right_is_not_recommended() -> None:
    assert nothing_right([row(0, 0.0), row(2, 0.0)], 0)
    assert not nothing_right([row(0, 0.0), row(2, 0.1)], 2) and not nothing_right([row(0, None, 0.5)], 0)
    assert not nothing_right([], None)


def test_agreement_between_poems_names_no_best_and_the_last_step_is_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert held_out_score(row(1, None, 0.9), "accuracy") is None
    assert better_step([], None, row(0, None, 0.9), "accuracy") is None
    assert better_step([row(0, None, 0.9)], 0, row(2, None, 0.5), "accuracy") is None, "what an older moot named best"
    by_votes, by_majority = CONFIG, replace(CONFIG, protocol=CONFIG.protocol.with_choices({"reward": "majority"}))
    sums = load("arithmetic", 0, 1)
    assert [ranking(config, sums) for config in (by_votes, by_majority)] == ["accuracy", "accuracy or agreement"]
    poems = tmp_path / "poems.jsonl"
    poems.write_text("".join(f'{{"question": "A poem about {what}."}}\n' for what in ("rain", "snow", "fog", "ice")))
    ranked = {task: ranking(by_majority, load(task, 0, 1)) for task in (str(poems), f"{poems}:grader=number")}
    assert list(ranked.values()) == ["accuracy", "accuracy or agreement"], "a number in a poem is no answer"
    run = Run.create(tmp_path / "run", CONFIG.as_dict(), {})
    run.append_metrics({**row(0, None), "test/best_step": None})
    assert step_named(run, "best") is None and "the last step is the result" in caplog.text


# It stays, and it is found


LONG = replace(
    CONFIG,
    optim=replace(CONFIG.optim, num_train_datapoints=24),
    save_every=0,
)
"""Two warm steps, eight iterations, evaluations at 0, 2, 4, 6, 8 and 10."""


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out accuracies, one evaluation after another, in place of what the scripted engine would get."""
    measured, given = evaluations.evaluate_in_training, iter([0.9, 0.3, 0.6, 0.5, 0.2, 0.1, 0.1])

    async def evaluate(*arguments: Any, **options: Any) -> Any:
        return {**await measured(*arguments, **options), "test_arithmetic/correct": next(given)}

    monkeypatch.setattr(evaluations, "evaluate_in_training", evaluate)


def test_the_best_checkpoint_outlives_the_rolling_ones_and_has_a_name(tmp_path: Path, judged: None) -> None:
    setup = make_setup(tmp_path / "run", LONG)
    asyncio.run(train(setup))
    run = setup.run
    assert [each.get("test/best_step") for each in run.metrics() if each["phase"] == "eval"] == [None, 2, 4, 4, 4, 4]
    assert sorted(step for step, _ in run.checkpoints()) == [2, 4, 8, 9, 10], (
        "the start, the best, two rolling ones, the end"
    )
    assert (best_step(run), step_named(run, "best"), step_named(run, None), step_named(run, "9")) == (4, 4, None, 9)
    assert split_name(f"{run.path}@best") == (run.path, "best") and split_name(run.path) == (run.path, None)
    assert Path(find_trained(f"{run.path}@best")[1] or "").name == "000004"
    players = Players(LONG, run)
    assert asyncio.run(players.load("best")) == 4 and asyncio.run(players.load(None)) == 10
    with pytest.raises(ConfigError, match="scripted engine, which has no weights"):
        find_adapter(run, "best")
    with pytest.raises(ConfigError, match=r"@worst: a checkpoint is a step's number, or best"):
        step_named(run, "worst")


def test_a_run_that_is_continued_still_knows_its_best(tmp_path: Path, judged: None) -> None:
    short = replace(LONG, optim=replace(LONG.optim, num_train_datapoints=15))
    asyncio.run(train(make_setup(tmp_path / "run", short)))
    setup = make_setup(tmp_path / "run", LONG)
    asyncio.run(train(setup))
    assert best_step(setup.run) == 4 and 4 in dict(setup.run.checkpoints())


def test_an_alarm_ends_the_run_at_its_best_checkpoint(
    tmp_path: Path, judged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(LONG, parts=("stop_on_alarm",))
    setup = make_setup(tmp_path / "run", config)
    update, rings = Alarms.update, iter([0.0, 0.0, 0.0, 0.0, 1.0])
    monkeypatch.setattr(
        Alarms, "update", lambda alarms, played: {**update(alarms, played), "alarm/random_noise": next(rings)}
    )
    with pytest.raises(Stopped, match=r"result is its best checkpoint, step 4 \(held-out accuracy 60%\)"):
        asyncio.run(train(setup))
    assert [step for step, _ in setup.run.checkpoints()][:1] == [7] and result_step(setup.run) == 4
    assert Path(find_trained(str(setup.run.path))[1] or "").name == "000004", "a run without a step is its result"
    assert asyncio.run(Players(config, setup.run).load(None)) == 4
    monkeypatch.setattr("moot.players.checkpoints.loop_state", lambda place: {"parts": {}})
    assert result_step(setup.run) is None, "without the part it goes on, and then its newest step is meant"


def test_a_run_that_only_fell_has_the_model_it_started_from_for_its_best(tmp_path: Path) -> None:
    config = replace(LONG, warm_questions=0)
    run = Run.create(tmp_path / "run", config.as_dict(), {})
    with pytest.raises(ConfigError, match="has no best checkpoint: nothing was evaluated in training"):
        step_named(run, "best")
    run.append_metrics({**row(0, 0.4), "test/best_step": 0})
    assert find_trained(f"{run.path}@best")[1] is None and asyncio.run(Players(config, run).load("best")) == 0
    with pytest.raises(ConfigError, match="is the model before training, which has no adapter"):
        find_adapter(run, "best")
