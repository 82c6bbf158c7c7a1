"""`moot train` as a user types it, on the scripted engine; the real model's turn comes in the slow tier."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from support.making import command, surroundings

SMALL = [
    "--engine",
    "scripted",
    "--batch-size",
    "2",
    "--num-train-datapoints",
    "4",
    "--warm-questions",
    "2",
    "--eval-questions",
    "2",
    "--max-tokens",
    "2000",
]


def train(where: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("train", *arguments), cwd=where, env=surroundings(), capture_output=True, text=True, timeout=120
    )


def test_a_run_says_what_improved_and_where_to_look(tmp_path: Path) -> None:
    done = train(tmp_path, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert re.search(r"\b[1-4] of 4 debates carried a gradient, in 2 steps\.", words)
    assert "valid turns" in words and "right answers, held out" in words
    assert "Metrics: runs/demo-arithmetic-seed0/metrics.jsonl" in words
    assert [path.name for path in (tmp_path / "runs/demo-arithmetic-seed0/debates").glob("*.npz")]


def test_the_same_command_again_goes_on_and_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    first = train(tmp_path, *SMALL)
    rows = (tmp_path / "runs/demo-arithmetic-seed0/metrics.jsonl").read_text()
    again = train(tmp_path, *SMALL)
    assert again.returncode == 0, first.stdout + again.stdout + again.stderr
    assert (tmp_path / "runs/demo-arithmetic-seed0/metrics.jsonl").read_text() == rows
    other = train(tmp_path, *SMALL, "--learning-rate", "0.5")
    assert other.returncode == 2
    assert "was started with other settings (learning_rate 0.0002 -> 0.5)" in other.stderr


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    done = train(tmp_path, "--preset", "hard", "--engine", "scripted", "--dry-run")
    words = " ".join(done.stdout.split())
    assert "5 agents, 3 rounds" in words and "64 steps of 16 questions" in words and "1536 labelled questions" in words
    assert "Nothing was started" in words
    assert list(tmp_path.iterdir()) == []
    # 16 questions, 5 agents, 3 turns of 300 tokens and two judgements: 96,320 tokens per step, so that the third passes 200,000.
    budget = train(tmp_path, "--preset", "hard", "--engine", "scripted", "--max-sampled-tokens", "200000", "--dry-run")
    assert "about 3 steps of 16 questions" in " ".join(budget.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--preset", "nope"],
            "preset must be one of demo, majority, votes, truth, math, easy, hard, v1, aime, advocates, got 'nope'",
        ),
        (["--num-agents", "2"], "num_agents must be at least 3 to train, got 2: with fewer nobody can vote"),
        (["--reward-mix", "2"], "reward_mix must be between 0 and 1, got 2.0"),
        (["--task", "nope"], "task must be one of arithmetic, countdown, "),
        (["--task", "nope.jsonl"], "task 'nope.jsonl': there is no such file"),
        (["--resume", "nowhere"], "nowhere is not a run: it has no run.json"),
        (["--log", "papyrus"], "log must name tensorboard, wandb, trackio, mlflow, got 'papyrus'"),
        (["--advantage", "center_round", "--reward", "win_rate"], "advantage center_round needs rewards per turn"),
        (["--reward", "nope.py:f"], "reward 'nope.py:f': there is no file nope.py"),
        (["--flavour", "mint"], "--flavour"),
    ],
)
def test_a_wrong_value_gets_one_line_that_names_it(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = train(tmp_path, *SMALL, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert complaint in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = train(tmp_path, "--model", str(tmp_path / "no-such-model"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no-such-model" in done.stderr and "Traceback" not in done.stderr


def test_curves_go_to_tensorboard_when_asked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert train(tmp_path, *SMALL, "--log", "tensorboard").returncode == 0
    run = tmp_path / "runs/demo-arithmetic-seed0"
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = [row["env/all/reward/total"] for row in rows if row["phase"] == "self_play"]
    assert [event.value for event in events.Scalars("env/all/reward/total")] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--max-rounds", "1"], "max_rounds must be at least 2 with the reward generator_judge, got 1"),
        (
            ["--task", "open.jsonl", "--reward", "truth", "--warm-questions", "0"],
            "the reward truth needs known answers",
        ),
    ],
)
def test_a_reward_that_nothing_could_pay_is_refused_before_there_is_a_folder(
    tmp_path: Path, typed: list[str], said: str
) -> None:
    (tmp_path / "open.jsonl").write_text("".join(f'{{"question": "What is {i} + 1?"}}\n' for i in range(6)))
    done = train(tmp_path, *typed)
    assert (done.returncode, (tmp_path / "runs").exists()) == (2, False), done.stdout + done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    "typed", [["--closing-ballot"], ["--reward", "majority"], ["--judge", "base", "--voters", "judges"]]
)
def test_one_round_is_enough_where_somebody_votes_or_nobody_needs_to(tmp_path: Path, typed: list[str]) -> None:
    done = train(tmp_path, *SMALL, "--max-rounds", "1", *typed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_whole_run_from_one_file_with_a_run_per_seed(tmp_path: Path) -> None:
    settings = "engine: scripted\nbatch_size: 2\nnum_train_datapoints: 2\neval_every: 0\ntask: arithmetic\n"
    (tmp_path / "mine.yaml").write_text(f"preset: majority\nseeds: [3, 4]\nrun: runs/mine\n{settings}")
    done = train(tmp_path, "mine.yaml", "--steps", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads((tmp_path / f"runs/mine-seed{seed}/run.json").read_text())["config"] for seed in (3, 4)]
    assert [run["seed"] for run in runs] == [3, 4]
    assert [(run["protocol"]["reward"], run["optim"]["num_train_datapoints"]) for run in runs] == [("majority", 8)] * 2
