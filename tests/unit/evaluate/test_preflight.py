"""The list before training: what is measured against what, and when it tells."""

from __future__ import annotations

import pytest

from moot.evaluate.counting import QuestionCounts
from moot.evaluate.preflight import CHECKS, SAYS, contract_findings, findings, judge
from moot.evaluate.report import Report, make_row
from moot.util.intervals import Interval


def report(
    direct: list[int], votes: list[tuple[int, int]], passed: list[int], judged: list[tuple[int, int]], cut: float = 0.0
) -> Report:
    alone = {str(i): QuestionCounts({"avg@k": (float(right), 1.0)}) for i, right in enumerate(direct)}
    debated = {
        str(i): QuestionCounts(
            {
                "avg@k": (0.0, 1.0),
                "pass@k": (float(p), 1.0),
                "comparisons": v,
                "judge": j,
                "valid_turns": (3.0, 4.0),
                "cut": (cut, 1.0),
            }
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
    ("low", "high", "verdict"),
    [(0.06, 0.2, "pass"), (0.01, 0.04, "fail"), (0.04, 0.2, "cannot tell"), (0.05, 0.2, "cannot tell")],
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


# What the contract costs


def costs(
    first: list[float],
    last: list[float],
    direct: list[float],
    plurality: list[float],
    tokens: tuple[int, int] = (100, 900),
) -> Report:
    """Three agents and two rounds: six turns per debate."""
    alone = {str(i): QuestionCounts({"avg@k": (right, 1.0)}, tokens[0]) for i, right in enumerate(direct)}
    debated = {
        str(i): QuestionCounts(
            {
                "avg@k": (after, 1.0),
                "round_1": (before, 1.0),
                "round_1_plurality": (most, 1.0),
                "valid_turns": (6.0, 6.0),
            },
            tokens[1],
        )
        for i, (before, after, most) in enumerate(zip(first, last, plurality, strict=True))
    }
    rows = [make_row("direct", 1, "avg@k", alone, 0, None, 0), make_row("debate", 3, "avg@k", debated, 0, None, 0)]
    return Report({"seed": 0, "num_agents": 3}, rows, {})


def test_what_the_contract_costs_by_hand() -> None:
    """40 questions. Alone all are right; in round 1 two of three agents, in round 2 one of three; the most frequent answer always."""
    two, one = [2 / 3] * 40, [1 / 3] * 40
    told = {each.check.name: each for each in contract_findings(costs(two, one, [1.0] * 40, [1.0] * 40))}
    values = {name: None if each.measured is None else round(each.measured.value, 4) for name, each in told.items()}
    assert values == {
        "accuracy in round 1": 0.6667,
        "accuracy in the last round": 0.3333,
        "cost of the contract: round 1 minus direct": -0.3333,
        "last round minus round 1": -0.3333,
        "valid turns": 1.0,
        "majority minus mean, round 1": 0.3333,
        # 900 tokens in 6 turns are 150 per turn; a plain answer has 100.
        "tokens of a turn, of a plain answer's": 1.5,
    }
    assert [SAYS[each.verdict] for each in told.values()] == ["go", "go", "no-go", "no-go", "go", "go", "go"]
    assert all("--" in each.check.remedy for each in told.values())


def test_a_free_contract_is_go_and_a_hasty_one_is_not() -> None:
    """All level: the bootstrap has no width, and 0 of 100 by Wilson reaches to 3.7 points; 0 of 40 to 8.8, which tells nothing."""
    level = [1.0, 0.0] * 50
    few = contract_findings(costs(level[:40], level[:40], level[:40], level[:40]))
    assert [SAYS[each.verdict] for each in few][2:4] == ["caution", "caution"]
    free = {each.check.metric: each for each in contract_findings(costs(level, level, level, level))}
    assert [SAYS[each.verdict] for each in contract_findings(costs(level, level, level, level))][2:4] == ["go", "go"], (
        "exactly level"
    )
    assert SAYS[free["round_1_plurality"].verdict] == "caution", (
        "a majority that is worth nothing more is at the limit itself"
    )
    hasty = contract_findings(costs(level, level, level, level, tokens=(200, 480)))[-1]
    assert (hasty.measured is not None and hasty.measured.value) == 0.4 and SAYS[hasty.verdict] == "no-go"
    assert hasty.note == "80 tokens per turn, 200 per plain answer"
    uncounted = contract_findings(costs(level, level, level, level, tokens=(0, 0)))[-1]
    assert uncounted.measured is None and SAYS[uncounted.verdict] == "caution"


def test_with_one_round_there_is_no_second_to_compare() -> None:
    alone = {str(i): QuestionCounts({"avg@k": (1.0, 1.0)}, 10) for i in range(4)}
    debated = {
        str(i): QuestionCounts({"avg@k": (0.5, 1.0), "cons@k": (1.0, 1.0), "valid_turns": (3.0, 3.0)}, 30)
        for i in range(4)
    }
    rows = [make_row("direct", 1, "avg@k", alone, 0, None, 0), make_row("debate", 3, "avg@k", debated, 0, None, 0)]
    told = contract_findings(Report({"seed": 0, "num_agents": 3}, rows, {}))
    assert [(each.check.name, each.measured and each.measured.value) for each in told] == [
        ("accuracy in round 1", 0.5),
        ("accuracy in the last round", 0.5),
        ("cost of the contract: round 1 minus direct", -0.5),
        ("valid turns", 1.0),
        ("majority minus mean, round 1", 0.5),
        ("tokens of a turn, of a plain answer's", 1.0),
    ]
