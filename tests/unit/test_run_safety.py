"""A run's folder that is not as moot left it: nothing that was committed is deleted, and one process writes at a time."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.debate.types import ConfigError
from moot.records import Run
from moot.records.lock import locked
from moot.rl.config import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.training.setup import train_async

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=1, num_train_datapoints=4),
    eval_every=0,
    save_every=2,
)


def files(path: Path) -> dict[str, bytes]:
    """By name, all but the lock, which every process writes its name into."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file() and file.name != "lock"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return moot.train(CONFIG, tmp_path / "run")


def longer(steps: int) -> TrainConfig:
    return replace(CONFIG, optim=replace(CONFIG.optim, num_train_datapoints=steps))


def rewrite(run: Run, config: TrainConfig) -> None:
    (run.path / "run.json").write_text(json.dumps({**run.header, "config": config.as_dict()}))


# A run without a usable checkpoint


@pytest.mark.parametrize("damage", ["removed", "damaged"])
def test_a_run_without_a_usable_checkpoint_is_left_as_it_is_and_one_line_says_what_to_do(run: Run, damage: str) -> None:
    if damage == "removed":
        for _, place in run.checkpoints():
            shutil.rmtree(place)
    else:
        for _, place in run.checkpoints():
            (place / "state.json").write_text("{}")
    before = files(run.path)
    with pytest.raises(ConfigError, match=r"metrics of 4 steps, debates of 4 and .*--checkpoint STEP.*--run DIR.*--restart"):
        moot.train(CONFIG, run.path)
    assert files(run.path) == before


def test_a_restart_moves_the_old_run_aside_where_it_can_still_be_read(run: Run) -> None:
    rows, before = run.metrics(), files(run.path)
    again = moot.train(longer(2), run.path, restart=True)
    assert [row["step"] for row in again.metrics()] == [1, 2]
    assert Run.open(run.path / "aside" / "001").metrics() == rows
    assert files(run.path / "aside" / "001") == before


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(run: Run, tmp_path: Path) -> None:
    killed = Run.create(tmp_path / "killed", CONFIG.as_dict(), {})
    killed.append_metrics({"step": 0, "phase": "eval"})
    shutil.copy(run.path / "debates" / "000001.jsonl", killed.path / "debates" / "000001.jsonl")
    moot.train(CONFIG, killed.path)
    assert [row["step"] for row in killed.metrics()] == [0, 1, 2, 3, 4]
    assert not (killed.path / "aside").exists()


def test_going_back_to_an_older_checkpoint_moves_the_later_steps_aside(run: Run) -> None:
    (run.path / "checkpoints" / "000004" / "state.json").write_text("half")
    later = (run.path / "debates" / "000004.jsonl").read_bytes()
    moot.train(CONFIG, run.path)
    aside = run.path / "aside" / "001"
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
    assert [json.loads(line)["step"] for line in (aside / "metrics.jsonl").read_text().splitlines()] == [4]
    assert (aside / "debates" / "000004.jsonl").read_bytes() == later
    assert (aside / "checkpoints" / "000004" / "state.json").read_text() == "half"


def test_a_damaged_line_of_the_metrics_is_kept_aside_when_the_run_continues(run: Run) -> None:
    file = run.path / "metrics.jsonl"
    file.write_bytes(b"123\n{}\n" + file.read_bytes())
    rewrite(run, longer(5))
    moot.train(longer(5), run.path)
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert (run.path / "aside" / "001" / "metrics.jsonl").read_bytes() == b"123\n{}\n"


# Damaged checkpoints with higher numbers


def test_a_damaged_checkpoint_with_a_higher_number_does_not_make_new_ones_be_deleted(run: Run) -> None:
    for name in ("000998", "000999"):
        (run.path / "checkpoints" / name).mkdir()
    rewrite(run, longer(7))
    moot.train(longer(7), run.path)
    assert [number for number, _ in run.checkpoints()] == [7, 6, 5, 4, 3, 2]  # 2, 4, 6 and the last are kept; 5 and 3 are the newest others
    assert sorted(file.name for file in (run.path / "aside" / "001" / "checkpoints").iterdir()) == ["000998", "000999"]


def test_a_folder_that_turns_up_during_training_is_renamed_and_the_newest_two_that_can_be_read_stay(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {}, {})
    for step in range(1, 5):
        (run.path / "checkpoints" / f"{900 + step:06d}").mkdir()
        run.checkpoint_place(step)
        run.commit_checkpoint(step, {}, keep=False)
    assert [number for number, _ in run.checkpoints()] == [4, 3]
    assert sorted(file.name for file in (run.path / "checkpoints").iterdir() if file.suffix) == [
        f"{900 + step:06d}.damaged" for step in range(1, 5)
    ]


# One process per run


HOLD = """
import sys, time
from pathlib import Path
from moot.records.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_who_holds_the_run_since_when(run: Run) -> None:
    process = hold(run.path)
    try:
        before = files(run.path)
        since = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        with pytest.raises(ConfigError, match=rf"in use by process {process.pid} on \S+ {since}"):
            moot.train(CONFIG, run.path)
        assert files(run.path) == before
        assert len(Run.open(run.path).metrics()) == 4  # readers take no notice
    finally:
        process.kill()
        process.communicate()
    moot.train(CONFIG, run.path)  # the lock went with its process


def test_the_lock_is_let_go_when_training_ends_whether_well_or_badly(run: Run) -> None:
    with locked(run.path):
        pass
    for _, place in run.checkpoints():
        shutil.rmtree(place)
    with pytest.raises(ConfigError, match="no checkpoint"):
        moot.train(CONFIG, run.path)
    with locked(run.path):
        told = json.loads((run.path / "lock").read_text())
    assert told["pid"] == os.getpid()


def test_one_process_cannot_train_the_same_run_twice_at_once(tmp_path: Path) -> None:
    async def both() -> list[Any]:
        work = [train_async(CONFIG, tmp_path / "run") for _ in range(2)]
        return await asyncio.gather(*work, return_exceptions=True)

    done = asyncio.run(both())
    assert sorted(type(each).__name__ for each in done) == ["ConfigError", "Run"]
    assert [row["step"] for row in Run.open(tmp_path / "run").metrics()] == [1, 2, 3, 4]
