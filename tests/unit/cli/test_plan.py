"""What a dry run says about memory: of the machine it runs on, as far as that can be known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moot.cli import plan
from moot.cli.console import Terminal
from moot.engine.memory_estimate import GIB, Place
from moot.errors import ConfigError
from moot.players.create import local_place
from moot.settings.presets import PRESETS
from moot.settings.train import TrainConfig


def small(**choices: object) -> TrainConfig:
    return replace(PRESETS["demo"], model=replace(PRESETS["demo"].model, model="smollm2-135m", **choices))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("here", "device", "where"),
    [
        (Place("cuda", 2, 100 * GIB), "auto", "memory on this GPU"),
        (Place("cpu", 2, 100 * GIB), "auto", "memory on a GPU"),
        (Place("cpu", 2, 100 * GIB), "cpu", "memory on this CPU"),
        (None, "auto", "memory on a GPU"),
    ],
)
def test_memory_is_told_for_this_machine_or_for_a_gpu_it_lacks(
    monkeypatch: pytest.MonkeyPatch, here: Place | None, device: str, where: str
) -> None:
    monkeypatch.setattr(plan, "local_place", lambda _: here)
    told, text = plan.memory_row(small(device=device))
    assert told == where
    assert ("GiB of 100.0 that are free:" in text) == ("this" in where)
    assert ("passes shrink to 2,048 tokens" in text) == (where == "memory on a GPU")
    assert ("come on top" in text) == (where == "memory on this CPU")


def test_what_a_judge_samples_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """32 questions × 8 answers × 8 checks × 256 tokens a step; of `votes` 16 × 8 × 2 checks × 2 rules × 160, and
    before self-play 20 steps of 64 answers and twice 64 held-out ones, 2 checks of 160 tokens each."""
    majority = PRESETS["majority"]
    checked = replace(majority, protocol=majority.protocol.with_choices(reward="approval:checks=8"))
    planned = plan.judge_plan(checked)
    assert (planned.per_step, planned.first) == (32 * 8 * 8 * 256, 0)
    assert planned.rows == (("judge", "base, 2,048 checks of at most 256 tokens per step: 524,288 in all"),)
    planned = plan.judge_plan(PRESETS["votes"])
    assert (planned.per_step, planned.first) == (16 * 8 * 2 * 2 * 160, (20 * 64 + 2 * 64) * 2 * 160)
    assert planned.rows[1][1].startswith("20 steps of 64 answers × 2 checks before self-play, at most 450,560 tokens")
    paired = replace(majority, protocol=majority.protocol.with_choices(reward="pairs:opponents=3"))
    assert plan.judge_plan(paired).per_step == 32 * 8 * 3 * 256
    assert plan.judge_plan(majority) == plan.JudgePlan()
    filtered = replace(majority, parts=("judge_training:steps=0,every=2,exercises=8,held_out=8", "judge_filter"))
    # Each other step 8 exercises and a fourth of the time 8 held-out ones, 4 checks each; and 32 pluralities 4 times.
    assert plan.judge_plan(filtered).per_step == (32 * 4 + (8 + 2) * 4 // 2) * 256
    plan.show_plan(replace(checked, model=majority.model), Path("run"), Terminal())
    said = " ".join(capsys.readouterr().out.split())
    assert f"of the sampled at most {524288 * 32:,} by the judge" in said


def test_a_model_nobody_has_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "memory_gib", lambda *_: None)
    where, text = plan.memory_row(small())
    assert where == "memory" and text.startswith("unknown: ") and "--model FOLDER" in text


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "local_place", lambda _: Place("cuda", 2, GIB // 5))
    assert "GiB, more than the 0.2 that are free:" in plan.memory_row(small())[1]


def test_a_device_that_is_not_here_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert local_place(small(device="cuda").model) is None
    with pytest.raises(ConfigError, match="deterministic sampling runs in fp32, got dtype='bf16'"):
        local_place(small(device="cpu", deterministic=True, dtype="bf16").model)
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or a number of it like cuda:1, got 'banana'"):
        local_place(small(device="banana").model)
    found = local_place(small(dtype="fp32").model)
    assert found is not None and (found.device, found.size) == ("cpu", 4) and found.free is not None and found.free > 0
