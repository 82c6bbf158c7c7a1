"""Several runs at once, each as if it were alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.errors import ConfigError, EngineError
from moot.runs import Run
from moot.runs.lock import locked
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.training.state import Watcher
from moot.training.together import carry_out_together, prepare_together
from support import tiny_chat

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=2, num_train_datapoints=6),
    warm_questions=2,
    eval_every=2,
    eval_questions=2,
    save_every=1,
)


def plan(where: Path, config: TrainConfig = CONFIG, seeds: int = 3) -> list[tuple[TrainConfig, Path]]:
    return [(replace(config, seed=seed), where / str(seed)) for seed in range(seeds)]


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in found]


def kept(run: Path) -> dict[str, bytes]:
    """What the run holds besides times: debates, their tokens, evaluations, weights."""
    wanted = [*run.glob("debates/*"), *run.glob("checkpoints/*/*.safetensors")]
    assert wanted
    return {
        str(path.relative_to(run)): b"".join(array.tobytes() for array in np.load(path).values())
        if path.suffix == ".npz"
        else path.read_bytes()
        for path in wanted
    }


def same(together: Path, alone: Path) -> None:
    assert rows(together) == rows(alone)
    assert kept(together) == kept(alone)


def test_three_seeds_at_once_are_three_runs_one_after_the_other(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def watch(run: Run, row: dict[str, Any]) -> None:
        seen[run.path.name] = seen.get(run.path.name, 0) + 1

    runs = moot.train_together(plan(tmp_path / "together"), watch)
    assert [run.path.name for run in runs] == ["0", "1", "2"]
    for config, path in plan(tmp_path / "alone"):
        moot.train(config, path)
        same(tmp_path / "together" / path.name, path)
        assert seen[path.name] == len(rows(path))
    assert rows(runs[0].path) != rows(runs[1].path)


@pytest.fixture
def torch_alone() -> Iterator[None]:
    """In one thread: a second one would only wait for the first."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("torch_alone")
def test_to_the_bit_with_a_model_that_learns(tmp_path: Path) -> None:
    """Adapters, Adam's states and tokens of two runs on one base model."""
    model = ModelConfig(str(tiny_chat.save(tmp_path / "model")), device="cpu", deterministic=True, lora_rank=2)
    debate = replace(CONFIG.debate, max_tokens=8)
    optim = OptimConfig(batch_size=1, num_train_datapoints=2)
    config = replace(CONFIG, model=model, debate=debate, optim=optim, warm_questions=0, eval_every=0)
    moot.train_together(plan(tmp_path / "together", config, 2))
    own, path = plan(tmp_path / "alone", config, 2)[1]  # the second: its engine is the first one's sibling
    moot.train(own, path)
    same(tmp_path / "together" / "1", path)


class Failing(Watcher):
    def row(self, row: dict[str, Any]) -> None:
        if row["phase"] == "self_play":
            raise EngineError("planted")


def test_one_that_fails_harms_no_other_and_continues_by_itself(tmp_path: Path) -> None:
    setups = prepare_together(plan(tmp_path))
    errors = asyncio.run(carry_out_together(setups, watchers=[Watcher(), Failing(), Watcher()]))
    assert [str(error) for error in errors] == ["None", "planted", "None"]
    assert len(rows(tmp_path / "1")) < len(rows(tmp_path / "0"))
    again = moot.train_together(plan(tmp_path))
    assert len({len(rows(run.path)) for run in again}) == 1
    moot.train(plan(tmp_path)[1][0], tmp_path / "alone")
    same(tmp_path / "1", tmp_path / "alone")


def test_those_that_ended_early_are_named_in_the_end(tmp_path: Path) -> None:
    def watch(run: Run, row: dict[str, Any]) -> None:
        if run.path.name == "2" and row["step"] == 2:
            raise EngineError("planted")

    with pytest.raises(ExceptionGroup, match="1 of 3 runs ended early") as caught:
        moot.train_together(plan(tmp_path), watch)
    (error,) = caught.value.exceptions
    assert "planted" in str(error) and error.__notes__ == [f"This ended the run {tmp_path / '2'}."]


def test_what_is_wrong_with_one_is_said_before_any_begins(tmp_path: Path) -> None:
    wrong = replace(CONFIG, debate=replace(CONFIG.debate, task="nope"))
    with pytest.raises(ConfigError, match="nope"):
        moot.train_together([(CONFIG, tmp_path / "a"), (wrong, tmp_path / "b")])
    assert not (tmp_path / "a" / "metrics.jsonl").exists()
    locked(tmp_path / "a").close()
    with pytest.raises(ConfigError, match="is in use by"):
        moot.train_together([(CONFIG, tmp_path / "a"), (CONFIG, tmp_path / "a")])
    locked(tmp_path / "a").close()


def test_cancelled_all_end_and_all_continue(tmp_path: Path) -> None:
    setups = prepare_together(plan(tmp_path))

    async def main() -> None:
        watchers = [Watcher() for _ in setups]
        work = asyncio.create_task(carry_out_together(setups, watchers=watchers))

        class Stopping(Watcher):
            def row(self, row: dict[str, Any]) -> None:
                if row["step"] == 2:
                    work.cancel()

        watchers[0] = Stopping()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    for _, path in plan(tmp_path):
        locked(path).close()
    for setup in setups:
        with pytest.raises(EngineError, match="closed"):
            asyncio.run(setup.engine.forward([]))  # type: ignore[arg-type]
    moot.train_together(plan(tmp_path))
    for config, path in plan(tmp_path / "alone"):
        moot.train(config, path)
        same(tmp_path / path.name, path)
