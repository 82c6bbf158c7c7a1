"""`recipes/experiment.py` from end to end, on the scripted engine: the plumbing, not the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moot.runs import Run

ROOT = Path(__file__).resolve().parents[2]


def experiment(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    common = [
        "--plan",
        "sums",
        "--engine",
        "scripted",
        "--questions",
        "4",
        "--warm-questions",
        "16",
        "--seeds",
        "0",
        "--jobs",
        "2",
        "--out",
        str(out),
    ]
    command = [sys.executable, str(ROOT / "recipes" / "experiment.py"), *common, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=out.parent)


@pytest.mark.slow
def test_arms_start_from_one_warm_start_and_are_compared_with_it(tmp_path: Path) -> None:
    out = tmp_path / "experiment"
    done = experiment(out, "--tokens", "20000", "--arms", "peers", "truth")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "training together: peers-seed0, truth-seed0\n" in done.stdout, "in one process"
    assert "peers-seed0: training" not in done.stdout
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
    assert [g["label"] for g in json.loads((out / "tables" / "arms" / "compare.json").read_text())["groups"]] == [
        "peers"
    ]


@pytest.mark.slow
def test_the_look_at_the_learning_rate_says_when_it_looked(tmp_path: Path) -> None:
    warm = (
        "train --engine scripted --max-rounds 1 --warm-questions 4 --num-train-datapoints 0 --eval-every 0 --run warm"
    )
    subprocess.run([sys.executable, "-m", "moot", *warm.split()], check=True, cwd=tmp_path, capture_output=True)
    asked = ["warm", "--rates", "1e-3", "1e-5", "--questions", "2", "--held-out", "2", "--steps", "1", "2"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "recipes" / "step_size.py"), *asked], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    looks = [line.split("  ")[0] for line in done.stdout.splitlines() if "right answers" in line]
    assert looks == ["before", "1 steps of 0.001", "2 steps of 0.001", "1 steps of 1e-05", "2 steps of 1e-05"]


def rows_of(count: int, plus: int) -> str:
    sums = [(f"What is {i} + {plus}?", i + plus) for i in range(count)]
    return "".join(json.dumps({"question": question, "answer": f"#### {answer}"}) + "\n" for question, answer in sums)


@pytest.mark.slow
def test_an_interrupted_arm_continues_and_its_end_is_paired_with_the_model_it_started_from(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(rows_of(60, 3))
    (tmp_path / "test.jsonl").write_text(rows_of(8, 500))
    out = tmp_path / "gsm8k"
    small = "--engine scripted --tokens 120000 --batch-size 4 --eval-questions 2 --questions 4 --seeds 0 --jobs 2"
    command = [
        sys.executable,
        str(ROOT / "recipes" / "experiment.py"),
        "--plan",
        "gsm8k",
        *small.split(),
        "--out",
        str(out),
    ]
    command += ["--task", f"gsm8k:train={tmp_path / 'train.jsonl'},test={tmp_path / 'test.jsonl'}"]
    frozen = [*command, "--arms", "frozen"]
    with subprocess.Popen(frozen, stdout=subprocess.DEVNULL, start_new_session=True) as begun:
        checkpoints = out / "frozen-seed0" / "checkpoints"
        while begun.poll() is None and not any(
            int(kept.name) >= 2 for kept in checkpoints.glob("[0-9]" * 6)
        ):  # the newest two are kept
            time.sleep(0.01)
        os.killpg(begun.pid, signal.SIGTERM)
    assert not (out / "frozen-seed0" / "evals").exists(), "it was stopped on its way"
    done = subprocess.run([*command, "--arms", "frozen", "judges"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [row["step"] for row in Run.open(out / "frozen-seed0").metrics() if row["phase"] == "self_play"]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > 2
    for run in ("frozen-seed0", "judges-seed0"):
        assert {file.parent.name for file in (out / run / "evals").glob("*/report.json")} == {"start", "final"}
    table = (out / "tables" / "result.md").read_text().splitlines()
    assert [line.split(" | ")[:2] for line in table[2:]] == [["| frozen", "1"], ["| judges", "1"]]


@pytest.mark.slow
def test_votes_of_a_judge_that_learned_go_from_the_plan_to_its_tables(tmp_path: Path) -> None:
    """The plan's arms with fewer steps; what is measured besides has a table of its own."""
    out = tmp_path / "countdown"
    small = [
        "--plan",
        "countdown",
        "--engine",
        "scripted",
        "--questions",
        "4",
        "--tokens",
        "30000",
        "--batch-size",
        "8",
        "--seeds",
        "0",
        "--out",
    ]
    judge = "judge_training:reward=planted,steps=2,exercises=4,checks=1,held_out=4"
    reward = "approved:checks=1,vote_margin=0,show=answer"
    command = [sys.executable, str(ROOT / "recipes" / "experiment.py"), *small, str(out)]
    changed = ["--arms", "planted", "--with", judge, "--reward", reward]
    done = subprocess.run([*command, *changed], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    tables = {file.name: file.read_text().splitlines() for file in (out / "tables").glob("*.md")}
    assert {*tables} == {"result.md", "result-greedy.md", "result-four.md", "thirds.md"}
    assert all(lines[2].startswith("| planted |") for lines in tables.values())
    assert (out / "tables" / "self-play" / "curves.png").exists()
    rows = [row for row in Run.open(out / "planted-seed0").metrics() if row["phase"] == "self_play"]
    assert {row["judge/steps"] for row in rows} == {2.0} and rows[-1]["tokens/spent"] >= 30000
