"""The majority is paid only where a judge approves it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.rollout import Player
from moot.tokens.played import PlayedDebate
from moot.training.loop import train
from moot.training.parts import find_parts
from moot.training.state import Setup
from unit.training.test_train import CONFIG, make_setup

QUIET = replace(CONFIG, eval_every=0, warm_questions=0)
MAJORITY = replace(QUIET, protocol=QUIET.protocol.with_choices(reward="majority"))
FILTERED = replace(MAJORITY, recipe=replace(QUIET.recipe, judge="base"), parts=("judge_filter:checks=2",))


class Says(ScriptedEngine):
    """Gives the first word, Yes, this chance."""

    chance = 0.9

    async def score_continuations(self, prompt: Any, candidates: Any, temperature: float = 1.0) -> list[float]:
        import numpy as np

        yes = [bytes(each).strip().lower().startswith(b"y") for each in candidates]
        return [float(np.log(self.chance if is_yes else 1 - self.chance)) for is_yes in yes]


def trained(path: Path, chance: float, config: Any = FILTERED) -> Setup:
    judge = Says(seed=1)
    judge.chance = chance
    setup = make_setup(path, config)
    setup = replace(setup, judge=Player(judge, setup.rendering, learns=False))
    asyncio.run(train(setup))
    return setup


def rewards(setup: Setup) -> list[set[float]]:
    debates = [each for each in setup.run.debates() if isinstance(each, PlayedDebate)]
    return [{value for row in each.scores.streams["generator"].values for value in row} for each in debates]


def test_where_the_judge_approves_the_majority_is_paid_as_ever_and_otherwise_nobody_is(tmp_path: Path) -> None:
    plain = rewards(trained(tmp_path / "plain", 0.9, MAJORITY))
    sure, doubting = trained(tmp_path / "sure", 0.9), trained(tmp_path / "doubting", 0.1)
    assert rewards(sure) == plain and any(1.0 in values for values in plain)
    assert all(values <= {0.0, -1.0} for values in rewards(doubting))
    rows = [row for row in doubting.run.metrics() if row["phase"] == "self_play"]
    assert [row["judge/majority_approved"] for row in rows] == [0.0] * len(rows)
    assert [row["judge/majority_approved_right"] for row in rows] == [None] * len(rows)
    approved = [row["judge/majority_approved"] for row in sure.run.metrics() if row["phase"] == "self_play"]
    assert all(share > 0.5 for share in approved), "where nobody has an answer there is nothing to approve"


def test_its_tokens_are_counted_and_it_writes_no_ballots(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", 0.9)
    rows = [row for row in setup.run.metrics() if row["phase"] == "self_play"]
    assert rows[-1]["tokens/spent"] > sum(row["tokens/sampled"] for row in rows)
    assert all(not each.get("jury") for each in setup.run.records(1))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (replace(FILTERED, protocol=QUIET.protocol), "judge_filter needs the reward majority, got generator_judge"),
        (
            replace(FILTERED, protocol=QUIET.protocol.with_choices(reward="weighted_majority")),
            "judge_filter needs the reward majority, got weighted_majority",
        ),
        (replace(FILTERED, recipe=QUIET.recipe), "judge_filter needs a judge without a seat: name one with --judge"),
    ],
)
def test_what_it_needs_is_named(config: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_parts(config)


def test_a_judge_that_another_part_brings_will_do() -> None:
    find_parts(replace(FILTERED, recipe=QUIET.recipe, parts=("judge_training", "judge_filter")))
