"""Held-out questions that a run has trained on are left out, and it is said how many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.evaluate import unseen
from moot.evaluate.unseen import unseen_questions
from moot.runs import Run
from moot.settings.train import TrainConfig
from moot.tasks.task import Task

TEXTS = ["a", "b", "c", "d", "e", "f"]
CONFIG = TrainConfig()
CONFIG = replace(CONFIG, optim=replace(CONFIG.optim, batch_size=2, num_train_datapoints=6))


def task(texts: list[str]) -> Task:
    """Trains on its texts in order; holds out the same."""
    questions = [Question(text, "7") for text in texts]
    return Task(
        "letters",
        lambda number: questions[number % len(questions)],
        questions,
        equal=str.__eq__,
        extract=lambda text: text,
    )


@pytest.fixture(autouse=True)
def trained_on_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "load_task", lambda *_: task(TEXTS))


def texts(step: int, count: int = 6) -> tuple[list[str], list[str]]:
    questions, notes = unseen_questions(task(TEXTS), CONFIG, step, count)
    return [question.text for question in questions], notes


def test_what_was_trained_on_by_that_step_is_left_out() -> None:
    """Two steps of two questions: a to d."""
    assert texts(step=2) == (
        ["e", "f"],
        ["4 of 6 questions are left out because the run trained on them.", "the task has only 2 questions to ask."],
    )


def test_before_training_and_without_a_run_all_are_asked() -> None:
    assert texts(step=0) == (TEXTS, [])
    assert [question.text for question in unseen_questions(task(TEXTS), None, 3, 2)[0]] == ["a", "b"]


def test_a_warm_start_counts_as_training() -> None:
    warm = replace(CONFIG, warm_questions=2, parts=("warm_start:batch_size=1",))
    questions, _ = unseen_questions(task(TEXTS), warm, 1, 6)
    assert [question.text for question in questions] == ["c", "d", "e", "f"]


def test_questions_debated_for_a_signal_count_as_training_as_many_as_there_were() -> None:
    """One step of two questions: a and b; further ones are what the checkpoint says, whatever the settings would allow."""
    searching = replace(CONFIG, optim=replace(CONFIG.optim, num_train_datapoints=4), parts=("min_signal:debates=9",))
    asked = [unseen_questions(task(TEXTS), searching, 1, 6, saved)[0] for saved in ([], [[4, 1]], [[2, 1], [5, 1]])]
    assert ["".join(question.text for question in each) for each in asked] == ["cdef", "cdf", "de"]


@pytest.mark.parametrize("saved", [[[0, 10**12]], 10**12, [[1]], "x", [[0, -1]], [["a", 1]], [[0, 1e999]], 1.5, [None]])
def test_further_questions_that_no_run_has_are_not_listed(saved: object) -> None:
    with pytest.raises(ConfigError, match="a checkpoint's further questions are damaged"):
        unseen_questions(task(TEXTS), CONFIG, 1, 6, saved)


@pytest.mark.parametrize("name", ["batch_size", "num_train_datapoints", "warm_questions", "eval_questions"])
def test_numbers_of_questions_that_no_memory_holds_are_refused(name: str) -> None:
    of_optim = name in ("batch_size", "num_train_datapoints")
    with pytest.raises(ConfigError, match=f"{name} must be at most 1"):
        replace(CONFIG.optim, **{name: 10**12}) if of_optim else replace(CONFIG, **{name: 10**12})


def test_no_run_asks_for_more_held_out_questions_than_anybody_waits_for() -> None:
    assert replace(CONFIG, eval_questions=10_000).eval_questions == 10_000
    with pytest.raises(ConfigError, match="eval_questions must be at most 10000, got 1000000"):
        replace(CONFIG, eval_questions=1_000_000)


def test_a_run_that_says_it_started_from_itself_is_looked_at_once(tmp_path: Path) -> None:
    config = replace(CONFIG, model=replace(CONFIG.model, engine="scripted"), start=str(tmp_path / "run"))
    run = Run.create(tmp_path / "run", config.as_dict(), {})
    run.checkpoint_place(1)
    run.commit_checkpoint(1, {}, keep=True)
    questions, notes = unseen_questions(task(TEXTS), config, 1, 6)
    assert [question.text for question in questions] == ["c", "d", "e", "f"]
    assert any("which of these questions that has seen is not known" in note for note in notes)


def test_nothing_left_is_an_error_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="trained on all 6 held-out questions of task letters; name another task"):
        texts(step=3)
