"""Wins against the start, with answers and verdicts that are scripted, so that every number is known by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli.progress import told_wins
from moot.debate.checks import Check
from moot.engine.protocol import SamplingParams
from moot.errors import ConfigError, EngineError
from moot.evaluate import AnswerStore, EvalConfig, Report, evaluate
from moot.evaluate.table import cells
from moot.evaluate.wins import Contest, count_wins
from moot.judges.asking import Asked
from moot.rl.rollout import Player
from moot.training.loop import train
from unit.evaluate.test_evaluate import RENDERING, TASK, Scripted, value
from unit.training.test_train import CONFIG as TRAINING
from unit.training.test_train import make_setup

CONFIG = EvalConfig(modes=("wins",), max_tokens=4000, policy="after", rival="before", judge="wise")
NEW, OLD = "the new one", "the old one"


def writer(says: str) -> Player:
    return Player(Scripted(lambda question, *_: f"{says} of {question}"), RENDERING)  # type: ignore[arg-type]


class Reader:
    """A judge whose probability of A depends on the question and on what stands first."""

    def __init__(self, values: dict[int, tuple[float, float]], fails: bool = False) -> None:
        """By question: P(A) where the new answer stands first, and where it stands second."""
        self._values, self._fails = values, fails
        self.asked: list[Asked] = []

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        await asyncio.sleep(0)
        self.asked.append(asked)
        if self._fails:
            raise EngineError("the judge is away")
        number = int(asked.answers[0].rsplit(" ", 1)[1])
        return Check(self._values[number][0 if asked.answers[0].startswith(NEW) else 1], "thought", 5)

    def speaker(self, *_: Any) -> Any:
        raise NotImplementedError


VALUES = {0: (0.9, 0.2), 1: (0.8, 0.7), 2: (0.1, 0.6), 3: (0.6, 0.6)}
"""Scores of the new answer: 0.85, 0.55, 0.25, 0.5. Both 1 and 3 prefer the first whichever it is; 2 prefers the old
one in both orders."""


def compared(judge: Reader, config: EvalConfig = CONFIG, new: str = NEW, old: str = OLD, **options: Any) -> Report:
    contest = Contest(writer(old), judge)
    return asyncio.run(evaluate(writer(new), TASK, config, contest=contest, **options))


def test_each_pair_is_judged_in_both_orders_and_the_mean_decides() -> None:
    """Wins: 1, 1, 0, ½. Flips: questions 1 and 3."""
    judge = Reader(VALUES)
    (row,) = compared(judge).rows
    assert len(judge.asked) == 8 and len({asked.answers for asked in judge.asked}) == 8
    assert all(asked.ballot == "pairs" for asked in judge.asked)
    assert value(row, "accuracy") == 2.5 / 4
    assert value(row, "score") == pytest.approx((0.85 + 0.55 + 0.25 + 0.5) / 4)
    assert value(row, "flips") == 0.5
    assert row.difference is None and row.questions == 4


def test_winning_all_of_few_questions_is_not_sure() -> None:
    (row,) = compared(Reader(dict.fromkeys(range(4), (1.0, 0.0)))).rows
    number = row.metrics["accuracy"]
    assert number is not None and number["value"] == 1.0 and 0.4 < number["low"] < 0.6


def test_the_same_words_are_level_and_nothing_loses_without_a_question() -> None:
    judge = Reader({})
    assert value(compared(judge, new=OLD).rows[0], "accuracy") == 0.5
    record = {"text": "", "stop": "stop", "tokens": 1}
    assert (
        count_wins(record, record, ({"tokens": 0, "value": 0.0}, {"tokens": 0, "value": 1.0})).shares["wins"][0] == 0.0
    )
    assert judge.asked == []


def test_an_empty_answer_loses() -> None:
    judge = Reader({})
    contest = Contest(Player(Scripted(lambda *_: " "), RENDERING), judge)  # type: ignore[arg-type]
    report = asyncio.run(evaluate(writer(NEW), TASK, CONFIG, contest=contest))
    assert value(report.rows[0], "accuracy") == 1.0 and judge.asked == []


def test_what_was_answered_and_judged_is_not_asked_again(tmp_path: Path) -> None:
    first = compared(Reader(VALUES), answers=AnswerStore(tmp_path / "answers.jsonl"))
    judge, other = Reader(VALUES), Reader(VALUES)
    again = compared(judge, answers=AnswerStore(tmp_path / "answers.jsonl"))
    assert judge.asked == [] and again.rows == first.rows
    compared(other, replace(CONFIG, judge="another"), answers=AnswerStore(tmp_path / "answers.jsonl"))
    assert len(other.asked) == 8


def test_what_the_judge_fails_at_is_left_out_and_tried_again(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "answers.jsonl")
    assert compared(Reader(VALUES, fails=True), answers=store).rows[0].questions == 0
    assert compared(Reader(VALUES), answers=store).rows[0].questions == 4


def test_the_table_has_the_interval_and_the_flips() -> None:
    header, (row,) = cells(compared(Reader(VALUES)))
    shown = dict(zip(header, row, strict=True))
    assert shown["accuracy"].startswith("62.5 [") and shown["order flips"] == "50.0"


def test_without_a_start_the_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="name a run, at a step after 0"):
        asyncio.run(evaluate(writer(NEW), TASK, CONFIG))


# In training


def last_row(tmp_path: Path, known: bool, **changes: Any) -> dict[str, Any]:
    config = replace(TRAINING, warm_questions=0, **changes)
    setup = make_setup(tmp_path / "run", config)
    if not known:
        questions = [replace(question, answer=None) for question in setup.task.held_out]
        setup = replace(setup, task=replace(setup.task, held_out=questions, check=None))
    asyncio.run(train(setup))
    rows = [row for row in setup.run.metrics() if row["phase"] == "eval"]
    assert all("test_arithmetic/wins/accuracy" not in row for row in rows if row["step"] == 0)
    return rows[-1]


def test_a_run_without_known_answers_ends_with_wins_and_one_with_them_does_not(tmp_path: Path) -> None:
    row = last_row(tmp_path / "open", known=False)
    assert row["test/wins_questions"] == TRAINING.eval_questions
    assert 0 <= row["test_arithmetic/wins/accuracy_low"] <= row["test_arithmetic/wins/accuracy"] <= 1
    told = told_wins(row, TRAINING)
    assert told and "of 3 questions, judged by the untrained model in both orders" in told
    assert told_wins(last_row(tmp_path / "known", known=True), TRAINING) is None


def test_they_can_be_asked_for_and_left_out(tmp_path: Path) -> None:
    asked = last_row(tmp_path / "asked", known=True, eval_modes=("wins",))
    assert "test_arithmetic/wins/accuracy" in asked
    assert "test_arithmetic/wins/accuracy" not in last_row(tmp_path / "none", known=False, eval_modes=("direct",))
