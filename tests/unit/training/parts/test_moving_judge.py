"""The policy of now judges, also in a run that goes on."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.rollout import Player
from moot.training.loop import train
from moot.training.parts import find_parts
from moot.training.parts.moving_judge import MovingJudge
from support.dying import dies_after
from unit.training.test_train import CONFIG, make_setup, untimed

QUIET = replace(CONFIG, eval_every=0, warm_questions=0, parts=("moving_judge",))


class Snaps(ScriptedEngine):
    """Each of its samplers is another object, so that one can be told from the next."""

    async def snapshot(self, path: str | None = None) -> Any:
        self.newest = replace(self)
        return self.newest


def test_after_each_step_the_newest_weights_judge(tmp_path: Path) -> None:
    setup = make_setup(tmp_path / "run", QUIET, engine=Snaps(seed=0))
    asyncio.run(train(setup))
    (part,) = setup.parts
    assert isinstance(part, MovingJudge) and isinstance(part.guest, Player)
    assert part.guest.sampler is setup.engine.newest and not part.guest.learns  # type: ignore[attr-defined]
    assert all(len(each["jury"]) == 1 for each in setup.run.records(1))


def test_a_cut_run_goes_on_with_the_same_judge(tmp_path: Path) -> None:
    whole = make_setup(tmp_path / "whole", QUIET)
    asyncio.run(train(whole))
    with contextlib.suppress(RuntimeError):
        asyncio.run(train(make_setup(tmp_path / "cut", QUIET, engine=dies_after(60)(seed=0))))
    resumed = make_setup(tmp_path / "cut", QUIET)
    asyncio.run(train(resumed))
    assert untimed(resumed.run.metrics()) == untimed(whole.run.metrics())


def test_a_second_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="moving_judge is the judge itself, got base too"):
        find_parts(replace(QUIET, recipe=replace(QUIET.recipe, judge="base")))
    with pytest.raises(ConfigError, match="got moving_judge too"):
        find_parts(replace(QUIET, parts=("judge_training", "moving_judge")))
