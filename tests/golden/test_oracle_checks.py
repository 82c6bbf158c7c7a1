"""Rewards by judges who check answers, against a second implementation, on debates made up at random."""

from __future__ import annotations

import random
from dataclasses import replace

import checked
import pytest

from moot.debate.checks import Check
from moot.debate.protocols import V2
from moot.debate.rewards import Grades, score
from moot.debate.scoring import Scoring
from moot.rl.advantages import ESTIMATORS, SeatMeans, advantages
from support.making import FAILED, debate


@pytest.mark.parametrize("seed", range(120))
def test_both_implementations_pay_the_same(seed: int) -> None:
    rng = random.Random(seed)
    agents, rounds, judges, asked = (rng.randint(low, high) for low, high in ((3, 6), (1, 3), (1, 3), (1, 5)))
    said = debate(V2, [[FAILED if rng.random() < 0.2 else "" for _ in range(agents)] for _ in range(rounds)])
    turns = [(turn.agent, turn.round, turn.failed) for turn in said.turns]
    readable = [place for place, (_, _, failed) in enumerate(turns) if not failed]
    shown = [place for place in readable if rng.random() < 0.9]
    ballot = rng.choice(["approval", "approved", "pairs", "weighted_majority"])
    over = rng.choice(["together", "mean", "least"]) if ballot.startswith("appro") else "together"
    rules = [""] if over == "together" else [f"rule {n}" for n in range(rng.randint(1, 3))]
    checks: list[tuple[tuple[int, ...], int, float, str]] = []
    for judge in range(judges):
        if ballot == "pairs":
            met = [(a, b) for a in shown for b in shown if a < b and turns[a][1] == turns[b][1]]
            met = [pair for pair in met if random.Random(f"{seed}/{pair}").random() < 0.6]
            checks += [(about, judge, round(rng.random(), 1), "") for a, b in met for about in ((a, b), (b, a))]
        else:
            met_rules = [(place, rule) for place in shown for rule in rules for _ in range(asked)]
            checks += [((place,), judge, round(rng.random(), 1), rule) for place, rule in met_rules]
    margin, count = rng.choice([0.0, 0.2, 0.5]), rng.randint(1, asked)
    kinds = [None if failed or rng.random() < 0.1 else rng.randrange(3) for _, _, failed in turns]
    j = rng.choice([0.0, 0.2, 0.5, 0.9, -0.4])
    settings = f"j={j}" if ballot == "weighted_majority" else f"vote_margin={margin}"
    settings += "" if over == "together" else f",rules={over}"
    scoring = Scoring(reward=f"{ballot}:{settings}" + ("" if ballot == "pairs" else f",checks={count}"))
    told = (Check(value, turns=about, judge=judge, rule=rule) for about, judge, value, rule in checks)
    heard = replace(said, checks=tuple(told))
    grades = Grades(tuple(map(str, kinds)), (False,) * len(kinds), tuple(kinds))
    scores = score(heard, scoring, grades)
    (taught,) = advantages([(heard, scores)], ESTIMATORS[scoring.estimator], SeatMeans())

    rows = [row[:3] for row in checks]
    own = checked.pair_scores(turns, rows) if ballot == "pairs" else checked.approval_scores(turns, rows, count)
    own = own if over == "together" else checked.rule_scores(turns, checks, count, over)
    if ballot == "approved":
        paid, wanted = checked.approved(turns, own, margin)
    elif ballot == "weighted_majority":
        paid, wanted = checked.weighted(turns, kinds, own, j)
    else:
        paid = checked.values(turns, own, margin)
        wanted = checked.advantages(turns, paid)
        paid = [-1.0 if failed else value or 0.0 for value, (_, _, failed) in zip(paid, turns, strict=True)]
    numbers = heard.turn_numbers()
    values, given = scores.streams["generator"].values, taught.streams["generator"]
    assert [values[turn.agent][n] for turn, n in zip(heard.turns, numbers, strict=True)] == pytest.approx(paid)
    assert [given[turn.agent][n] for turn, n in zip(heard.turns, numbers, strict=True)] == pytest.approx(wanted)
