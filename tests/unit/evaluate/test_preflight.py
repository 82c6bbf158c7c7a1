"""The list before training: what is measured against what, and when it tells."""

from __future__ import annotations

import pytest

from moot.evaluate.counting import QuestionCounts
from moot.evaluate.preflight import CHECKS, findings, judge
from moot.evaluate.report import Report, make_row
from moot.statistics import Interval


def report(direct: list[int], votes: list[tuple[int, int]], passed: list[int], judged: list[tuple[int, int]], cut: float = 0.0) -> Report:
    alone = {str(i): QuestionCounts({"avg@k": (float(right), 1.0)}) for i, right in enumerate(direct)}
    debated = {
        str(i): QuestionCounts(
            {"avg@k": (0.0, 1.0), "pass@k": (float(p), 1.0), "comparisons": v, "judge": j, "valid_turns": (3.0, 4.0), "cut": (cut, 1.0)}
        )
        for i, (v, p, j) in enumerate(zip(votes, passed, judged, strict=True))
    }
    rows = [make_row("direct", 1, "avg@k", alone, 0, None, 0), make_row("debate", 3, "avg@k", debated, 0, None, 0)]
    return Report({"seed": 0, "num_agents": 3}, rows, {})


def test_the_limits_are_those_of_the_list() -> None:
    assert {check.name: check.above for check in CHECKS} == {
        "direct accuracy": 0.05,
        "valid comparisons": 0.80,
        "one agent right": 0.20,
        "judge accuracy": 0.50,
    }


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.06, 0.2, "pass"), (0.01, 0.04, "fail"), (0.04, 0.2, "cannot tell"), (0.05, 0.2, "cannot tell")]
)
def test_only_an_interval_on_one_side_tells(low: float, high: float, verdict: str) -> None:
    assert judge(Interval((low + high) / 2, low, high), 0.05) == verdict
    assert judge(None, 0.05) == "cannot tell"


def test_a_good_model_passes_and_a_hopeless_one_fails() -> None:
    good = findings(report([1] * 30 + [0] * 10, [(3, 3)] * 40, [1] * 35 + [0] * 5, [(2, 2)] * 30 + [(0, 2)] * 10))
    assert [each.verdict for each in good] == ["pass"] * 4
    assert [each.counted for each in good] == [40, 120, 40, 80]
    bad = findings(report([0] * 200, [(0, 3)] * 200, [0] * 200, [(0, 1)] * 200))
    assert [each.verdict for each in bad] == ["fail"] * 4
    assert all(each.as_dict()["remedy"] for each in bad)


def test_four_questions_tell_nothing_and_say_how_many_would() -> None:
    """One of 4 right: Wilson gives 5% to 70%. 25% is 20 points above the limit; the interval must shrink to that."""
    first = findings(report([1, 0, 0, 0], [(2, 3)] * 4, [1, 0, 0, 0], [(0, 0)] * 4))
    direct, comparisons, _, judges = first
    assert direct.verdict == comparisons.verdict == "cannot tell"
    assert comparisons.enough is not None and comparisons.enough > 4
    assert (judges.measured, judges.verdict, judges.enough) == (None, "cannot tell", None)
    assert judges.note == "no vote was between a right and a wrong answer"


def test_no_votes_come_with_what_lies_behind_them() -> None:
    found = findings(report([1] * 4, [(0, 3)] * 4, [1] * 4, [(0, 0)] * 4, cut=0.5))
    assert found[1].note == "25% of all turns cannot be read, 50% are cut at max_tokens"
