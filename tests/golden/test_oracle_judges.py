"""How good judges are, and what those that learn are paid, against a second implementation, on made-up tables."""

from __future__ import annotations

import random
from typing import Any

import judged
import pytest

from moot.debate.checks import Pair
from moot.debate.types import Question
from moot.judges.learning import Solved, advantages, by_majority, rewards
from moot.judges.measures import Judged, measure


def tenths(rng: random.Random) -> str:
    return f"0.{rng.randint(0, 9)}"


def close(ours: Any, theirs: Any) -> None:
    """Both know nothing, or the same number."""
    if ours is None or theirs is None:
        assert ours is None and theirs is None
    else:
        assert ours.value == pytest.approx(float(theirs), abs=1e-9)


@pytest.mark.parametrize("seed", range(120))
def test_both_implementations_measure_the_same(seed: int) -> None:
    """Scores are tenths, so that many pairs are level; some answers were not judged."""
    rng = random.Random(seed)
    table = [
        [
            (rng.random() < 0.5, None if rng.random() < 0.1 else tenths(rng), rng.randint(1, 9))
            for _ in range(rng.randint(1, 6))
        ]
        for _ in range(rng.randint(1, 6))
    ]
    columns = [list(zip(*answers, strict=True)) for answers in table]
    questions = [
        Judged(correct, tuple(None if s is None else float(s) for s in scores), lengths, rng.random() < 0.5)
        for correct, scores, lengths in columns
    ]
    measures = measure(questions, "approval", seed)
    assert measures.questions == len(judged.mixed(table)) and measures.pairs == len(judged.pairs(table))
    close(measures.pair_accuracy, judged.precision(table, "1"))
    for coverage, ours in (("0.2", measures.precision_20), ("0.5", measures.precision_50)):
        close(ours, judged.precision(table, coverage))
    close(measures.j, judged.j(table))
    close(measures.length, judged.length(table))
    failing = [answers for answers, question in zip(table, questions, strict=True) if question.counting_fails]
    close(measures.counting_fails, judged.precision(failing, "1"))


@pytest.mark.parametrize("seed", range(60))
def test_both_implementations_count_orders_the_same(seed: int) -> None:
    rng = random.Random(seed)
    correct = (True, False, *(rng.random() < 0.5 for _ in range(3)))
    asked = [(i, j, tenths(rng), tenths(rng)) for i in range(5) for j in range(i + 1, 5) if rng.random() < 0.7]
    pairs = tuple(Pair(i, j, float(one), float(other)) for i, j, one, other in asked)
    measures = measure([Judged(correct, (0.5,) * 5, (1,) * 5, False, pairs=pairs)], "pairs", seed)
    rows = [(correct[i] if correct[i] != correct[j] else None, one, other) for i, j, one, other in asked]
    for ours, theirs in zip((measures.one_order, measures.order_flips), judged.orders(rows), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("seed", range(120))
def test_both_implementations_teach_a_judge_the_same(seed: int) -> None:
    """Ours is paid the probability of the right word: what a drawn word would be paid on average."""
    rng = random.Random(seed)
    kinds = [rng.choice([None, 0, 0, 0, 1, 2]) for _ in range(rng.randint(1, 8))]
    texts = tuple(f"answer {place}" for place in range(len(kinds)))
    answers = tuple(None if kind is None else str(kind) for kind in kinds)
    solved = Solved(Question("How many?"), texts, answers, tuple(kinds), (False,) * len(kinds))
    ours = {texts.index(exercise.answer): exercise.right for exercise in by_majority(solved, "solution", seed)}
    wanted = judged.labels(kinds)
    assert ours == wanted
    approve, yes = list(wanted.values()), [tenths(rng) for _ in wanted]
    pays = [judged.paid(own, said) for own, said in zip(approve, yes, strict=True)]
    given = rewards(approve, [float(said) for said in yes])
    assert given == pytest.approx([float(pay) for pay in pays])
    assert advantages(approve, given) == pytest.approx([float(value) for value in judged.advantages(approve, pays)])
