"""Checkpoints: whole or refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from moot.engine.local import DamagedCheckpoint
from moot.engine.protocol import AdamParams, Datum
from moot.errors import EngineError


def step(engine: Any) -> None:
    x, ones = np.arange(20, dtype=np.int32), np.ones(20, np.float32)
    engine.forward_backward([Datum(x, x, ones * 0, ones, ones)], "cross_entropy").result()
    engine.optim_step(AdamParams(learning_rate=0.01)).result()


@pytest.fixture
def saved(make_engine: Callable[..., Any], tmp_path: Path) -> tuple[Any, Path]:
    engine = make_engine()
    step(engine)
    return engine, Path(engine.save_state(str(tmp_path / "a" / "state")).result())


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json"])
def test_one_changed_byte_is_noticed(saved: tuple[Any, Path], name: str) -> None:
    engine, path = saved
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=name):
        engine.load_state(str(path)).result()


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.safetensors", "manifest.json"])
def test_a_missing_or_cut_file_is_noticed(saved: tuple[Any, Path], name: str) -> None:
    engine, path = saved
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedCheckpoint):
        engine.load_state(str(path)).result()
    (path / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=name):
        engine.load_state(str(path)).result()


def test_a_checkpoint_of_another_shape_is_refused_by_what_differs(
    saved: tuple[Any, Path], make_engine: Callable[..., Any]
) -> None:
    with pytest.raises(ValueError, match="lora_rank"):
        make_engine(lora_rank=2).load_state(str(saved[1])).result()


def test_a_kill_while_saving_leaves_the_old_state(saved: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, path = saved
    before = {item.name: item.read_bytes() for item in path.iterdir()}
    step(engine)

    def killed(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("moot.util.disk.sync", killed)
        with pytest.raises(EngineError, match="disk full"):
            engine.save_state(str(path)).result()
    assert {item.name: item.read_bytes() for item in path.iterdir()} == before
    assert [item.name for item in path.parent.iterdir()] == ["state"]
    engine.save_state(str(path)).result()
    engine.load_state(str(path)).result()
    assert [item.name for item in path.parent.iterdir()] == ["state"]


def test_nothing_there_is_the_callers_mistake(make_engine: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        make_engine().load_state(str(tmp_path / "nowhere")).result()


def test_a_snapshot_with_a_path_is_an_adapter_that_peft_can_read(
    make_engine: Callable[..., Any], tmp_path: Path
) -> None:
    engine = make_engine()
    step(engine)
    engine.snapshot(str(tmp_path / "adapter")).result()
    assert LoraConfig.from_pretrained(str(tmp_path / "adapter")).r == 4
    names = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in names
    assert "optimizer.safetensors" not in json.loads((tmp_path / "adapter" / "manifest.json").read_text())["files"]
    engine.load_state(str(tmp_path / "adapter")).result()


def test_an_adapter_that_peft_wrote_is_loaded_and_one_that_lacks_a_matrix_is_not(
    saved: tuple[Any, Path], make_engine: Callable[..., Any], tmp_path: Path
) -> None:
    folder, other = tmp_path / "peft", make_engine()
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_bytes((saved[1] / name).read_bytes())
    other.load_state(str(folder), optimizer=False).result()
    again = Path(other.save_state(str(tmp_path / "again")).result())
    weights = load_file(folder / "adapter_model.safetensors")
    for name, value in load_file(again / "adapter_model.safetensors").items():
        np.testing.assert_array_equal(value.numpy(), weights[name].numpy())
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 3 * config["lora_alpha"]}))
    other.load_state(str(folder), optimizer=False).result()
    scaled = load_file(Path(other.save_state(str(tmp_path / "scaled")).result()) / "adapter_model.safetensors")
    for name, value in scaled.items():
        np.testing.assert_allclose(value.numpy(), weights[name].numpy() * (3 if "lora_B" in name else 1), rtol=1e-6)
    with pytest.raises(ValueError, match="lora_rank=4, this engine runs lora_rank=2"):
        make_engine(lora_rank=2).load_state(str(folder)).result()
    first = min(weights)
    save_file({name: value for name, value in weights.items() if name != first}, folder / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=f"differ in 1 tensors, first {re.escape(first)}"):
        other.load_state(str(folder)).result()
    save_file({**weights, first: weights[first][:1]}, folder / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"has shape \[1, "):
        other.load_state(str(folder)).result()


def test_weights_without_their_optimizer_start_adam_anew(
    saved: tuple[Any, Path], make_engine: Callable[..., Any]
) -> None:
    """The first step of a fresh Adam has the length of the rate in every direction, whatever came before it."""
    engine, path = saved
    weights = load_file(path / "adapter_model.safetensors")
    engine.load_state(str(path), optimizer=False).result()
    again = Path(engine.save_state(str(path.parent / "again")).result())
    assert load_file(again / "optimizer.safetensors") == {}
    for name, value in load_file(again / "adapter_model.safetensors").items():
        np.testing.assert_array_equal(value.numpy(), weights[name].numpy())
    engine.load_state(str(path)).result()
    kept = Path(engine.save_state(str(path.parent / "kept")).result())
    assert all(
        float(value) == 1.0
        for name, value in load_file(kept / "optimizer.safetensors").items()
        if name.endswith("/step")
    )


def shift(engine: Any, prompt: list[int]) -> np.ndarray:
    return np.asarray(asyncio.run((engine.snapshot().result()).compute_logprobs(prompt))[1:])


def average(engine: Any, prompt: list[int]) -> np.ndarray:
    return np.asarray(asyncio.run((engine.averaged().result()).compute_logprobs(prompt))[1:])


def test_the_average_follows_the_weights_slowly_and_leaves_them_alone(make_engine: Callable[..., Any]) -> None:
    """It starts with the weights it is first told of. At decay 0.5 it then stands half way: 0.5 * a + 0.5 * b, parameter by parameter."""
    engine, prompt = make_engine(), list(range(12))
    np.testing.assert_array_equal(
        average(engine, prompt), shift(engine, prompt)
    )  # nothing told yet: the weights of now
    step(engine)
    engine.average(0.5).result()
    before = {name: value.detach().clone() for name, value in engine._trainer.parameters.items()}
    step(engine)
    now = shift(engine, prompt)
    engine.average(0.5).result()
    for name, value in engine._trainer.parameters.items():
        np.testing.assert_allclose(
            engine._trainer.average[name].numpy(), (0.5 * before[name] + 0.5 * value.detach()).numpy(), atol=1e-7
        )
    assert np.abs(average(engine, prompt) - now).max() > 0
    np.testing.assert_array_equal(shift(engine, prompt), now)
    with pytest.raises(ValueError, match="decay must be from 0 to below 1, got 1"):
        engine.average(1.0)


def test_the_average_is_saved_and_loaded_with_the_state(make_engine: Callable[..., Any], tmp_path: Path) -> None:
    engine, prompt = make_engine(), list(range(12))
    step(engine)
    engine.average(0.9).result()
    step(engine)
    engine.average(0.9).result()
    path = engine.save_state(str(tmp_path / "state")).result()
    other = make_engine()
    other.load_state(path).result()
    np.testing.assert_allclose(average(other, prompt), average(engine, prompt), atol=1e-6)
    bare = engine.save_state(str(tmp_path / "bare"))
    bare.result()
    assert (tmp_path / "bare" / "average.safetensors").is_file()
