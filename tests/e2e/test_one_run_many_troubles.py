"""One real run: a second process, ten kills, a full disk, and then given to somebody else. Nothing is lost, nothing is executed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STEPS = 60
OPTIONS = [
    "--engine", "scripted", "--deterministic", "--num-agents", "3", "--max-rounds", "2", "--max-tokens", "2000", "--warm-questions", "0",
    "--batch-size", "8", "--num-train-datapoints", str(8 * STEPS), "--eval-every", "0", "--save-every", "20",
]  # fmt: skip


def start(run: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "moot", "train", "--run", str(run), *OPTIONS, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moot(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "moot", *arguments], capture_output=True, text=True, timeout=300)


def rows(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    whole = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [{name: value for name, value in json.loads(line).items() if not name.startswith("time/")} for line in whole]


def wait_for(run: Path, steps: int, process: subprocess.Popen[str]) -> None:
    while len(rows(run)) < steps and process.poll() is None:
        time.sleep(0.01)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_run_through_all_of_it_is_the_run_of_a_quiet_day(disk: Path, tmp_path: Path) -> None:
    quiet = start(tmp_path / "quiet")
    assert quiet.communicate(timeout=300) and quiet.returncode == 0
    expected = rows(tmp_path / "quiet")
    assert len(expected) == STEPS

    run, seen = disk / "run", []
    for kill in range(10):
        process = start(run)
        wait_for(run, 4 * (kill + 1), process)
        if kill == 5:
            second = start(run)
            _, complaint = second.communicate(timeout=300)
            assert (
                second.returncode == 2
                and f"in use by process {process.pid} on " in complaint
                and complaint.count("\n") == 1
            )
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        seen = rows(run)
        assert seen == expected[: len(seen)]

    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
                file.flush()
        except OSError:
            pass
    full = start(run)
    _, complaint = full.communicate(timeout=300)
    assert full.returncode == 1 and "the disk is full" in complaint and "Traceback" not in complaint
    assert rows(run)[: len(seen)] == seen
    filler.unlink()

    last = start(run)
    output = last.communicate(timeout=300)
    assert last.returncode == 0, output
    assert rows(run) == expected
    for step in range(1, STEPS + 1):
        name = f"debates/{step:06d}.jsonl"
        assert (run / name).read_bytes() == (tmp_path / "quiet" / name).read_bytes()
    assert not (run / "aside").exists()

    given = tmp_path / "given"
    shutil.copytree(run, given)
    mark = tmp_path / "executed"
    (tmp_path / "theirs.py").write_text(f"open({str(mark)!r}, 'w')\ndef theirs(*_): return [0.0, 0.0, 0.0]\n")
    header = json.loads((given / "run.json").read_text())
    header["config"]["protocol"]["reward"] = f"{tmp_path / 'theirs.py'}:theirs"
    header["config"]["debate"]["task"] = f"{tmp_path / 'theirs.py'}:theirs"
    (given / "run.json").write_text(json.dumps(header))
    commands = (["rescore"], ["eval", "--questions", "2"], ["check", "--questions", "2"], ["train", "--resume"])
    for name, *options in commands:
        refused = moot(
            name,
            *(options if options == ["--resume"] else []),
            str(given),
            *(options if options != ["--resume"] else []),
        )
        assert refused.returncode == 2 and "names code or an address" in refused.stderr, refused.stderr
    assert moot("export", str(given), "--supervised", "--transcripts", "--html").returncode == 0
    assert not mark.exists()
