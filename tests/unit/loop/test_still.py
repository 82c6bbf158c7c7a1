"""Weights that stand still: what the policy is kept near to, and where labels come from."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.debate.types import ConfigError
from moot.engine.protocol import Capabilities, Sample
from moot.engine.scripted import ScriptedEngine
from moot.loop.state import Loop, Stopped
from moot.loop.still import named_runs
from moot.loop.train import train
from moot.rl.config import RecipeConfig, TrainConfig
from moot.rl.frozen_labels import FILE, Label, plurality_label
from moot.tasks.answers import exact
from support.dying import dies_after
from unit.loop.test_train import CONFIG, make_loop, untimed


def config(**changes: Any) -> TrainConfig:
    """Of the optimizer, the recipe, or the whole."""
    optim = {name: changes.pop(name) for name in ("kl_coef", "reference", "ema_decay") if name in changes}
    recipe = {name: changes.pop(name) for name in ("labels_from", "label_band", "label_samples") if name in changes}
    protocol = CONFIG.protocol.with_choices(reward=changes.pop("reward", "generator_judge"))
    return replace(CONFIG, eval_every=0, protocol=protocol, optim=replace(CONFIG.optim, **optim), recipe=RecipeConfig(**recipe), **changes)


def trained(path: Path, settings: TrainConfig, engine: ScriptedEngine | None = None) -> Loop:
    loop = make_loop(path, settings, engine)
    asyncio.run(train(loop))
    return loop


def rows(loop: Loop) -> list[dict[str, Any]]:
    return [row for row in loop.run.metrics() if row["phase"] == "self_play"]


class Frozen:
    """A sampler of its own whose logprobs are all the same number."""

    def __init__(self, engine: ScriptedEngine, logprob: float) -> None:
        self.engine, self.logprob = engine, logprob

    async def sample(self, *args: Any, **kwargs: Any) -> list[Sample]:
        return await self.engine.sample(*args, **kwargs)

    async def compute_logprobs(self, tokens: Any, temperature: float = 1.0, start: int = 0) -> np.ndarray:
        return np.full(len(tokens), self.logprob, dtype=np.float32)


class Stages(ScriptedEngine):
    """The base model says -1 to every token, a snapshot -2 while there were two optimizer steps or fewer, and -4 after more."""

    def base(self) -> Any:
        return self._done(-1.0)

    def snapshot(self, path: str | None = None) -> Any:
        return self._done(-2.0 if self.steps <= 2 else -4.0)

    async def _done(self, logprob: float) -> Frozen:
        return Frozen(self, logprob)


def gaps(loop: Loop, key: str) -> list[float]:
    """What the mean gap to the reference says the reference's logprob is: entropy is minus the mean sampled logprob."""
    return [-row["optim/entropy"] - row[key] for row in rows(loop)]


def test_the_policy_is_kept_near_the_start_which_is_after_the_warm_start(tmp_path: Path) -> None:
    loop = trained(tmp_path / "start", config(kl_coef=0.1), Stages(seed=0))
    assert gaps(loop, "optim/kl_policy_reference") == pytest.approx([-2.0] * 4, abs=1e-4)
    loop = trained(tmp_path / "base", config(kl_coef=0.1, reference="base"), Stages(seed=0))
    assert gaps(loop, "optim/kl_policy_base") == pytest.approx([-1.0] * 4, abs=1e-4)


def test_without_a_warm_start_the_start_is_the_base_model(tmp_path: Path) -> None:
    loop = trained(tmp_path / "run", config(kl_coef=0.1, warm=replace(CONFIG.warm, warm_questions=0)), Stages(seed=0))
    assert gaps(loop, "optim/kl_policy_base") == pytest.approx([-1.0] * 4, abs=1e-4)


def test_a_run_that_is_continued_finds_its_start_again(tmp_path: Path) -> None:
    class Dies(Stages):
        left = 60

        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("cut off")
            return await super().sample(*args, **kwargs)

    whole = trained(tmp_path / "whole", config(kl_coef=0.1), Stages(seed=0))
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", config(kl_coef=0.1), Dies(seed=0))
    again = trained(tmp_path / "cut", config(kl_coef=0.1), Stages(seed=0))
    assert gaps(again, "optim/kl_policy_reference") == pytest.approx([-2.0] * 4, abs=1e-4)
    assert untimed(again.run.metrics()) == untimed(whole.run.metrics())


@pytest.mark.parametrize(
    ("changes", "capabilities", "says"),
    [
        ({"kl_coef": 0.1, "reference": "ema"}, {}, "reference may not be ema here"),
        ({"labels_from": "ema", "reward": "majority"}, {}, "labels_from may not be ema here"),
        ({"kl_coef": 0.1}, {"frozen_samplers": False}, "reference may not be start on this server"),
    ],
)
def test_an_engine_that_cannot_refuses_by_name(changes: dict[str, Any], capabilities: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**changes).check(Capabilities("m", 100, **capabilities))
    config().check(Capabilities("m", 100, **capabilities))


def test_a_reference_that_is_a_run_is_loaded_beside_the_policy_only_where_it_is_used() -> None:
    assert named_runs(config(reference="runs/a@3")) == {}
    assert named_runs(config(kl_coef=0.1, reference="runs/a@3")) == {"reference": "runs/a@3"}
    assert named_runs(config(reward="majority", labels_from="runs/b")) == {"labels_from": "runs/b"}
    assert named_runs(config(reward="majority", labels_from="start", kl_coef=0.1)) == {}


# Labels


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["7", "8", "7.0", None], ("7", 0.5)),
        # Level: the first that was said.
        (["8", "7", "7", "8"], ("8", 0.5)),
        ([None, None, None, "9"], ("9", 0.25)),
        ([None, None], (None, 0.0)),
    ],
)
def test_the_label_is_the_plurality_and_its_share_is_of_all_samples(answers: list[str | None], expected: tuple[Any, float]) -> None:
    assert plurality_label(answers, exact) == expected


@pytest.mark.parametrize(("share", "inside"), [(0.29, False), (0.3, True), (0.9, True), (0.91, False)])
def test_only_a_share_in_the_band_is_worth_a_debate(share: float, inside: bool) -> None:
    assert Label(0, 1, "7", share).within((0.3, 0.9)) is inside
    assert not Label(0, 1, None, share).within((0.0, 1.0))


def labels(loop: Loop) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (loop.run.path / FILE).read_text().splitlines()]


def test_every_debate_is_about_a_question_in_the_band_and_measured_by_its_label(tmp_path: Path) -> None:
    settings = config(reward="majority", labels_from="base", label_band=(0.2, 0.6))
    loop = trained(tmp_path / "run", settings)
    asked = labels(loop)
    assert len({(row["level"], row["number"]) for row in asked}) == len(asked)
    inside = {row["answer"] for row in asked if row["answer"] is not None and 0.2 <= row["share"] <= 0.6}
    records = [record for step in loop.run.steps() for record in loop.run.records(step)]
    assert 8 < len(records) <= 12 < len(asked)  # others came in the place of those outside
    for record in records:
        label = record["question"]["label"]
        assert label in inside
        taken = dict.fromkeys(range(4), 0)
        for turn in record["turns"]:
            step, taken[turn["agent"]] = taken[turn["agent"]], taken[turn["agent"]] + 1
            expected = -1 if "failure" in turn else float(turn["answer"] is not None and exact(turn["answer"], label))
            assert record["rewards"]["generator"][turn["agent"]][step] == expected


def test_asking_for_labels_is_paid_for_and_done_once(tmp_path: Path) -> None:
    settings = config(reward="majority", labels_from="base", label_band=(0.0, 1.0))
    loop = trained(tmp_path / "run", settings)
    debated = sum(row["tokens/sampled"] for row in rows(loop))
    assert loop.sampled == debated + sum(row["tokens"] for row in labels(loop)) > debated


def test_a_run_cut_off_between_labels_and_debates_continues_to_the_same(tmp_path: Path) -> None:
    settings = config(reward="majority", labels_from="start", label_band=(0.2, 0.6))

    whole = trained(tmp_path / "whole", settings)
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", settings, dies_after(70)(seed=0))
    again = trained(tmp_path / "cut", settings)
    ids = [[record["question"] for step in loop.run.steps() for record in loop.run.records(step)] for loop in (whole, again)]
    assert ids[0] == ids[1]


def test_a_band_that_holds_nothing_stops_the_run_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="widen label_band"):
        trained(tmp_path / "run", config(reward="majority", labels_from="base", label_band=(0.999, 0.9991), label_samples=7))


def test_labels_from_elsewhere_are_for_the_majority() -> None:
    with pytest.raises(ConfigError, match="labels_from needs the reward majority, got generator_judge"):
        config(labels_from="base")
