"""Two rewards by hand: the second round as the teacher, and a toss."""

from __future__ import annotations

from dataclasses import replace

from moot.debate.protocols import V2
from moot.debate.rewards import Grades, score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Question, Turn
from moot.errors import ConfigError


def debate_of(*rounds: tuple[int | None, ...], question: str = "?") -> tuple[Debate, Grades]:
    """By round and agent, which answer is held; None for a turn that failed."""
    turns, same = [], []
    for number, row in enumerate(rounds, 1):
        for agent, kind in enumerate(row):
            parsed = ParseFailure("no_tag") if kind is None else Parsed({"solution": "x"}, {})
            turns.append(Turn(number, agent, "", parsed))
            same.append(kind)
    answers = tuple(None if kind is None else str(kind) for kind in same)
    debate = Debate(Question(question), len(rounds[0]), len(rounds), V2.rules, tuple(turns))
    return debate, Grades(answers, (False,) * len(same), tuple(same))


def paid(reward: str, debate: Debate, grades: Grades) -> tuple[tuple[float | None, ...], ...]:
    return score(debate, Scoring(reward=reward), grades).streams["generator"].to_center


def test_first_answers_are_paid_by_what_most_hold_after_reading() -> None:
    """Before: 0, 0, 1, 2; most would say 0. After reading: 1, 0, 1, and agent 3 failed and still holds 2. So 1 is right."""
    whole = debate_of((0, 0, 1, 2), (1, 0, 1, None))
    assert paid("majority_after_reading", *whole) == ((0, None), (0, None), (1, None), (0, -1))
    assert paid("majority", *whole)[0] == (1, 1)
    once = debate_of((0, 0, 1, None))
    assert paid("majority_after_reading", *once) == paid("majority", *once) == ((1,), (1,), (0,), (-1,))


def test_a_toss_looks_at_nothing_but_the_place_of_an_answer() -> None:
    same, other = debate_of((0, 0, 1, None)), debate_of((3, 4, 5, None))
    assert paid("random", *same) == paid("random", *other)
    assert paid("random:share=1", *same)[3] == (0,), "nothing was said, and nothing is lost"
    nothing = Grades((None,) * 4, (False,) * 4, (None,) * 4)
    assert paid("random:share=1", same[0], nothing)[:3] == ((0,),) * 3, "where there is no answer there is no vote"
    assert paid("random:share=1", *same)[:3] == ((1,),) * 3 and paid("random:share=0", *same)[:3] == ((0,),) * 3
    tosses = [value for i in range(400) for (value,) in paid("random", *debate_of((0, 0, 1), question=f"{i}?"))]
    assert 0.46 < sum(tosses) / len(tosses) < 0.54  # type: ignore[arg-type]


def test_truth_pays_a_failed_turn_what_is_asked_for() -> None:
    debate, grades = debate_of((0, 1, None))
    debate, grades = replace(debate, question=Question("?", answer="0")), replace(grades, correct=(True, False, False))
    assert paid("truth", debate, grades) == ((1,), (0,), (-1,))
    assert paid("truth:failed=0", debate, grades) == ((1,), (0,), (0,))


def test_a_share_beyond_one_is_refused() -> None:
    try:
        Scoring(reward="random:share=2")
    except ConfigError as error:
        assert "share must be between 0 and 1, got 2" in str(error)
    else:
        raise AssertionError("it was taken")
