"""Weights that stand still: what the policy is kept near to, and where labels come from."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import Capabilities, Datum, Sample
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.settings.train import TrainConfig
from moot.tasks.answer_classes import plurality_label
from moot.tasks.answers import exact
from moot.training.loop import train
from moot.training.parts import find_parts
from moot.training.parts.frozen_labels import FILE, Label
from moot.training.state import Setup, Stopped
from support.dying import dies_after
from unit.training.test_train import CONFIG, make_setup, untimed


def config(*parts: str, reward: str = "generator_judge", **changes: Any) -> TrainConfig:
    return replace(CONFIG, eval_every=0, protocol=CONFIG.protocol.with_choices(reward=reward), parts=parts, **changes)


def trained(path: Path, settings: TrainConfig, engine: ScriptedEngine | None = None) -> Setup:
    setup = make_setup(path, settings, engine)
    asyncio.run(train(setup))
    return setup


def rows(setup: Setup) -> list[dict[str, Any]]:
    return [row for row in setup.run.metrics() if row["phase"] == "self_play"]


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


def gaps(setup: Setup, key: str) -> list[float]:
    """What the mean gap to the reference says the reference's logprob is: entropy is minus the mean sampled logprob."""
    return [-row["optim/entropy"] - row[key] for row in rows(setup)]


def test_the_policy_is_kept_near_the_start_which_is_after_the_warm_start(tmp_path: Path) -> None:
    setup = trained(tmp_path / "start", config("kl_penalty:coef=0.1"), Stages(seed=0))
    assert gaps(setup, "optim/kl_policy_reference") == pytest.approx([-2.0] * 4, abs=1e-4)
    setup = trained(tmp_path / "base", config("kl_penalty:coef=0.1,weights=base"), Stages(seed=0))
    assert gaps(setup, "optim/kl_policy_base") == pytest.approx([-1.0] * 4, abs=1e-4)


def test_without_a_warm_start_the_start_is_the_base_model(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", config("kl_penalty:coef=0.1", warm_questions=0), Stages(seed=0))
    assert gaps(setup, "optim/kl_policy_base") == pytest.approx([-1.0] * 4, abs=1e-4)


def test_a_run_that_is_continued_finds_its_start_again(tmp_path: Path) -> None:
    class Dies(Stages):
        left = 60

        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("cut off")
            return await super().sample(*args, **kwargs)

    whole = trained(tmp_path / "whole", config("kl_penalty:coef=0.1"), Stages(seed=0))
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", config("kl_penalty:coef=0.1"), Dies(seed=0))
    again = trained(tmp_path / "cut", config("kl_penalty:coef=0.1"), Stages(seed=0))
    assert gaps(again, "optim/kl_policy_reference") == pytest.approx([-2.0] * 4, abs=1e-4)
    assert untimed(again.run.metrics()) == untimed(whole.run.metrics())


@pytest.mark.parametrize(
    ("text", "capabilities", "says"),
    [
        ("kl_penalty:coef=0.1,weights=ema", {}, "kl_penalty: weights may not be ema here"),
        ("frozen_labels:weights=ema", {}, "frozen_labels: weights may not be ema here"),
        ("kl_penalty:coef=0.1", {"frozen_samplers": False}, "kl_penalty: weights may not be start on this server"),
    ],
)
def test_an_engine_that_cannot_refuses_by_name(text: str, capabilities: dict[str, Any], says: str) -> None:
    settings = config(text, reward="majority")
    (part,) = find_parts(settings)
    with pytest.raises(ConfigError, match=says):
        part.check_engine(settings, Capabilities("m", 100, **capabilities))
    part.check_engine(settings, Capabilities("m", 100, averages=True))


def test_an_engine_keeps_one_average_so_two_parts_must_agree_about_it() -> None:
    both = ("kl_penalty:coef=0.1,weights=ema", "frozen_labels:weights=ema,ema_decay=0.9")
    with pytest.raises(ConfigError, match=r"ema_decay must be one number, got 0.9 and 0.99"):
        find_parts(config(*both, reward="majority"))


def test_the_record_shows_what_was_trained_with_the_penalty_too(tmp_path: Path) -> None:
    """What a token was taught is its advantage, plus c times the mean gap less its own, where its turn was trained on."""

    class Keeps(Stages):
        trained: list[Datum] = []  # noqa: RUF012 - of one engine

        def forward_backward(
            self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None
        ) -> Any:
            if loss != "cross_entropy":
                self.trained += datums
            return super().forward_backward(datums, loss, loss_config)

    engine = Keeps(seed=0)
    setup = trained(
        tmp_path / "run", config("kl_penalty:coef=0.5", optim=replace(CONFIG.optim, num_train_datapoints=3)), engine
    )
    (step,) = setup.run.steps()
    arrays = np.load(setup.run.path / "debates" / f"{step:06d}.npz")
    trained_on = np.concatenate([datum.advantages[datum.mask > 0] for datum in engine.trained])
    recorded = arrays["advantages"][~arrays["inserted"]]
    assert len(trained_on) and sorted(trained_on) == sorted(recorded)
    plain = trained(tmp_path / "plain", config(optim=replace(CONFIG.optim, num_train_datapoints=3)))
    assert set(np.load(plain.run.path / "debates" / f"{step:06d}.npz")["advantages"]) != set(recorded)


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
def test_the_label_is_the_plurality_and_its_share_is_of_all_samples(
    answers: list[str | None], expected: tuple[Any, float]
) -> None:
    assert plurality_label(answers, exact) == expected


@pytest.mark.parametrize(("share", "inside"), [(0.29, False), (0.3, True), (0.9, True), (0.91, False)])
def test_only_a_share_in_the_band_is_worth_a_debate(share: float, inside: bool) -> None:
    assert Label(0, 1, "7", share).within((0.3, 0.9)) is inside
    assert not Label(0, 1, None, share).within((0.0, 1.0))


def labels(setup: Setup) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (setup.run.path / FILE).read_text().splitlines()]


def test_every_debate_is_about_a_question_in_the_band_and_measured_by_its_label(tmp_path: Path) -> None:
    settings = config("frozen_labels:weights=base,band=0.2-0.6", reward="majority")
    setup = trained(tmp_path / "run", settings)
    asked = labels(setup)
    assert len({(row["level"], row["number"]) for row in asked}) == len(asked)
    inside = {row["answer"] for row in asked if row["answer"] is not None and 0.2 <= row["share"] <= 0.6}
    records = [record for step in setup.run.steps() for record in setup.run.records(step)]
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
    settings = config("frozen_labels:weights=base,band=0-1", reward="majority")
    setup = trained(tmp_path / "run", settings)
    debated = sum(row["tokens/sampled"] for row in rows(setup))
    assert rows(setup)[-1]["tokens/spent"] == debated + sum(row["tokens"] for row in labels(setup)) > debated


def test_a_run_cut_off_between_labels_and_debates_continues_to_the_same(tmp_path: Path) -> None:
    settings = config("frozen_labels:band=0.2-0.6", "lr_schedule:shape=linear", reward="majority")

    whole = trained(tmp_path / "whole", settings)
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", settings, dies_after(70)(seed=0))
    again = trained(tmp_path / "cut", settings)
    ids = [
        [record["question"] for step in setup.run.steps() for record in setup.run.records(step)]
        for setup in (whole, again)
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("calls", [22, 30, 60, 95])
def test_a_killed_run_counts_the_tokens_of_its_labels_as_an_undisturbed_one_does(tmp_path: Path, calls: int) -> None:
    """Budgets and schedules go by tokens, so both must stand at the same number after every step, and end at the same step."""
    optim, recipe = (
        replace(CONFIG.optim, num_train_datapoints=60),
        replace(CONFIG.recipe, max_sampled_tokens=40_000),
    )
    settings = config(
        "frozen_labels:band=0.2-0.6", "lr_schedule:shape=linear", reward="majority", optim=optim, recipe=recipe
    )
    whole = trained(tmp_path / "whole", settings)
    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", settings, dies_after(calls)(seed=0))
    again = trained(tmp_path / "cut", settings)
    assert 2 < len(rows(whole)) < 20 and untimed(rows(again)) == untimed(rows(whole))


def test_a_band_that_holds_nothing_stops_the_run_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="widen band"):
        trained(tmp_path / "run", config("frozen_labels:weights=base,band=0.999-0.9991,samples=7", reward="majority"))


def test_labels_from_elsewhere_are_for_the_majority() -> None:
    with pytest.raises(ConfigError, match="frozen_labels needs the reward majority, got generator_judge"):
        find_parts(config("frozen_labels"))
