"""Kill -9 at random moments: at most the iteration in flight is lost, and the numbers come out as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import tiny_chat
from support.making import command, surroundings

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

KILLS = 20
OPTIONS = [
    "--deterministic",
    "--device",
    "cpu",
    "--num-agents",
    "3",
    "--max-rounds",
    "2",
    "--max-tokens",
    "24",
    "--batch-size",
    "2",
    "--num-train-datapoints",
    "24",
    "--warm-questions",
    "4",
    "--with",
    "warm_start:batch_size=1,learning_rate=5e-4",
    "--lora-rank",
    "2",
    "--eval-every",
    "4",
    "--eval-questions",
    "2",
    "--save-every",
    "5",
    "--advantage",
    "center_seat",
]


def start(model: Path, run: Path) -> subprocess.Popen[str]:
    arguments = command("train", "--model", model, "--run", run, *OPTIONS)
    return subprocess.Popen(arguments, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def metrics(run: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def test_a_run_killed_twenty_times_ends_with_the_metrics_of_one_that_was_not(tmp_path: Path) -> None:
    model = tiny_chat.save(tmp_path / "model")
    whole = start(model, tmp_path / "whole")
    began = time.monotonic()
    output, _ = whole.communicate(timeout=900)
    duration = time.monotonic() - began
    assert whole.returncode in (0, 1), (
        output
    )  # 1: a random model's debates carry no gradient, which is said and is no crash
    expected = metrics(tmp_path / "whole")
    assert len(expected) == 4 + 12 + 5

    chance, kills, number, where = random.Random(0), 0, 0, []
    while kills < KILLS:
        run = tmp_path / f"killed-{number}"
        number += 1
        while True:
            process = start(model, run)
            # From the first import to the last write: anywhere in a run's life.
            time.sleep(chance.uniform(0.3, 1.0) * duration * chance.choice([0.5, 1.0]))
            if process.poll() is not None:
                break
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            where.append(len(metrics(run)) if (run / "metrics.jsonl").exists() else 0)
        last, _ = start(model, run).communicate(timeout=900)
        assert metrics(run) == expected, (where, last[-2000:])
    print(f"{kills} kills, with this many rows written: {where}")
    assert len(set(where)) > 3, f"the kills came at too few different moments to mean much: {where}"


def test_ctrl_c_ends_cleanly_says_how_to_go_on_and_loses_nothing(tmp_path: Path) -> None:
    model = tiny_chat.save(tmp_path / "model")
    process = start(model, tmp_path / "run")
    while not (tmp_path / "run" / "metrics.jsonl").exists() or len(metrics(tmp_path / "run")) < 3:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output and "moot train --resume" in output
    before = metrics(tmp_path / "run")
    resumed = subprocess.run(
        command("train", "--resume", tmp_path / "run"), env=surroundings(), capture_output=True, text=True, timeout=900
    )
    assert resumed.returncode in (0, 1), resumed.stdout + resumed.stderr
    assert metrics(tmp_path / "run")[: len(before)] == before
    assert metrics(tmp_path / "run")[-1]["step"] == 16
