"""`recipes/experiment.py` from end to end, on the scripted engine: the plumbing, not the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def experiment(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    common = ["--engine", "scripted", "--questions", "4", "--warm-questions", "16", "--seeds", "0", "--jobs", "2", "--out", str(out)]
    command = [sys.executable, str(ROOT / "recipes" / "experiment.py"), *common, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=out.parent)


@pytest.mark.slow
def test_arms_start_from_one_warm_start_and_are_compared_with_it(tmp_path: Path) -> None:
    out = tmp_path / "experiment"
    done = experiment(out, "--tokens", "20000", "--arms", "peers", "truth")
    assert done.returncode == 0, done.stdout + done.stderr
    for name, groups in (("warm-start", ["warm"]), ("self-play", ["peers", "truth"]), ("arms", ["peers", "truth"])):
        told = json.loads((out / "tables" / name / "compare.json").read_text())
        assert [group["label"] for group in told["groups"]] == groups
        assert (out / "tables" / name / "curves.png").exists()
    rows = json.loads((out / "tables" / "self-play" / "compare.json").read_text())["evaluations"]
    assert {row["group"] for row in rows} == {"peers, warm", "peers, final", "truth, warm", "truth, final"}
    again = experiment(out, "--tokens", "20000", "--arms", "peers", "truth")
    assert again.returncode == 0 and "training" not in again.stdout, "what is finished is left alone"
    other = experiment(out, "--tokens", "30000", "--arms", "peers")
    assert other.returncode == 1 and "tokens 20000 -> 30000" in other.stderr


@pytest.mark.slow
def test_what_failed_is_named_and_the_rest_is_still_told(tmp_path: Path) -> None:
    out = tmp_path / "experiment"
    (out / "truth-seed0").mkdir(parents=True)
    (out / "truth-seed0" / "run.json").write_text("{")
    done = experiment(out, "--tokens", "20000", "--arms", "peers", "truth")
    assert done.returncode == 1 and "NOT DONE: truth-seed0" in done.stdout
    assert [g["label"] for g in json.loads((out / "tables" / "arms" / "compare.json").read_text())["groups"]] == ["peers"]


@pytest.mark.slow
def test_the_look_at_the_learning_rate_says_when_it_looked(tmp_path: Path) -> None:
    warm = "train --engine scripted --max-rounds 1 --warm-questions 4 --num-train-datapoints 0 --eval-every 0 --run warm"
    subprocess.run([sys.executable, "-m", "moot", *warm.split()], check=True, cwd=tmp_path, capture_output=True)
    asked = ["warm", "--rates", "1e-3", "1e-5", "--questions", "2", "--held-out", "2", "--steps", "1", "2"]
    done = subprocess.run([sys.executable, str(ROOT / "recipes" / "step_size.py"), *asked], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    looks = [line.split("  ")[0] for line in done.stdout.splitlines() if "right answers" in line]
    assert looks == ["before", "1 steps of 0.001", "2 steps of 0.001", "1 steps of 1e-05", "2 steps of 1e-05"]
