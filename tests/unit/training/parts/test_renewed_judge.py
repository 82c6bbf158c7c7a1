"""A frozen copy of the policy that judges, and is renewed only where votes on held-out debates are right no less often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.rollout import Player
from moot.training import evaluations
from moot.training.loop import train as train_loop
from moot.training.parts import find_parts
from moot.training.parts.renewed_judge import RenewedJudge, is_no_worse
from unit.training.test_train import CONFIG, make_setup

ACCURACIES = {2: 0.5, 4: 0.6, 6: 0.55, 8: 0.6, 10: None}
"""Of the votes on held-out debates, by step. The judge is the copy of step 2, 4, 4 (0.55 is less than 0.6), 8 (level), 8 (not measured)."""
JUDGES = {2: 2, 4: 4, 6: 4, 8: 8, 10: 8}
RENEWING = replace(
    CONFIG,
    optim=replace(CONFIG.optim, num_train_datapoints=24),
    parts=("renewed_judge",),
    save_every=0,
)
"""Two warm steps and eight iterations, evaluated every two."""


class Copies(ScriptedEngine):
    """Samplers say of which step they are."""

    def snapshot(self, path: str | None = None) -> Awaitable[ScriptedEngine]:
        async def copy() -> ScriptedEngine:
            taken = ScriptedEngine(seed=0)
            taken.steps = self.steps
            return taken

        return copy()


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    own = evaluations.evaluate_in_training
    monkeypatch.setattr(evaluations, "evaluate_in_training", lambda *a, **o: _with_accuracy(own(*a, **o), a[0]))


async def _with_accuracy(work: Any, sampler: Any) -> Any:
    return {**await work, "trust/judge_accuracy": ACCURACIES.get(_step(sampler.steps))}


def _step(optimizer_steps: int) -> int:
    """Every step has one optimizer step."""
    return optimizer_steps


def train(path: Path, questions: int = 24) -> Any:
    config = replace(RENEWING, optim=replace(RENEWING.optim, num_train_datapoints=questions))
    setup = make_setup(path, config, engine=Copies(seed=0))
    asyncio.run(train_loop(setup))
    return setup


def judge_of(setup: Any) -> int:
    (part,) = setup.parts
    assert isinstance(part, RenewedJudge) and isinstance(part.judge(), Player)
    return _step(part.judge().sampler.steps)


def test_level_is_no_worse_and_what_was_not_measured_is_not_known_to_be() -> None:
    assert [is_no_worse(*pair) for pair in ((0.6, 0.6), (0.59, 0.6), (0.6, None), (None, 0.6), (None, None))] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_the_judge_is_renewed_only_where_its_held_out_accuracy_does_not_fall(tmp_path: Path) -> None:
    setup = train(tmp_path / "run")
    rows = setup.run.metrics()
    assert {
        row["step"]: row["recipe/judge_step"] for row in rows if row["phase"] == "eval" and row["step"] >= 2
    } == JUDGES
    played = {
        row["step"]: (row["recipe/judge_step"], row["trust/judge_held_out"])
        for row in rows
        if row["phase"] == "self_play"
    }
    assert played == {
        3: (2, 0.5),
        4: (2, 0.5),
        5: (4, 0.6),
        6: (4, 0.6),
        7: (4, 0.6),
        8: (4, 0.6),
        9: (8, 0.6),
        10: (8, 0.6),
    }
    playing = [row for row in rows if row["phase"] == "self_play"]
    costs = accumulate(row["tokens/sampled"] + row["tokens/jury"] for row in playing)
    assert [row["tokens/spent"] for row in playing] == list(costs), "a budget of tokens counts what judges say"
    assert judge_of(setup) == 8 and all(row["jury/ballots"] > 0 for row in rows if row["phase"] == "self_play")


def test_a_run_that_is_continued_has_the_judge_it_had(tmp_path: Path) -> None:
    """Cut off after step 7: the judge is the copy of step 4, whose checkpoint is older than the newest two and still there."""
    short = train(tmp_path / "run", questions=15)
    assert judge_of(short) == 4 and 4 in dict(short.run.checkpoints())
    setup = make_setup(
        tmp_path / "run",
        replace(RENEWING, optim=replace(RENEWING.optim, num_train_datapoints=15)),
        engine=Copies(seed=0),
    )
    asyncio.run(train_loop(setup))
    assert judge_of(setup) == 4 and _step(setup.engine.steps) == 7, "and the policy is where it was"
    assert judge_of(train(tmp_path / "run")) == 8


def test_renewing_needs_evaluations_and_samplers_that_keep_their_weights() -> None:
    with pytest.raises(ConfigError, match="renewed_judge needs evaluations"):
        find_parts(replace(RENEWING, eval_every=0))
    (part,) = find_parts(RENEWING)
    with pytest.raises(ConfigError, match="renewed_judge needs max_rounds of at least 2, got 1"):
        find_parts(replace(RENEWING, debate=replace(RENEWING.debate, max_rounds=1)))
    with pytest.raises(ConfigError, match="renewed_judge must be left out on this server"):
        part.check_engine(RENEWING, replace(ScriptedEngine().capabilities, frozen_samplers=False))
    with pytest.raises(ConfigError, match="is a part; use --with renewed_judge"):
        replace(RENEWING.recipe, judge="renewed")
    with pytest.raises(ConfigError, match=r"judge may not be start: without a warm start that is base.*renewed_judge"):
        replace(RENEWING.recipe, judge="start")
