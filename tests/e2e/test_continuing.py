"""Continuing, extending and configuring a run, as a user types it; and what is refused before any work."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
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
]
SMALL += ["--max-tokens", "2000", "--eval-every", "3"]


def train(where: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(where), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        status = main(["train", *map(str, arguments)])
    return subprocess.CompletedProcess(list(arguments), status, out.getvalue(), error.getvalue())


def steps(run: Path) -> list[tuple[int, str]]:
    return [(row["step"], row["phase"]) for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]


def config(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["config"]
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("finished")
    assert train(where, *SMALL, "--run", "run").returncode == 0
    return where


def copy(finished: Path, where: Path) -> Path:
    subprocess.run(["cp", "-r", str(finished / "run"), str(where / "run")], check=True)
    return where / "run"


def test_a_finished_run_says_so_and_how_to_make_it_longer(finished: Path) -> None:
    before = steps(finished / "run")
    done = train(finished, "--resume", "run")
    assert done.returncode == 0 and steps(finished / "run") == before
    assert (
        "This run is finished: 3 steps. Make it longer with: moot train --resume run --num-train-datapoints 8"
        in done.stdout
    )


def test_more_questions_make_a_finished_run_longer(finished: Path, tmp_path: Path) -> None:
    """One warm step, then two questions per step: 4 end at step 3, 8 at step 5. Every third iteration is evaluated: step 4."""
    run = copy(finished, tmp_path)
    done = train(tmp_path, "--resume", "run", "--num-train-datapoints", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Note: num_train_datapoints is 8 from here on; it was 4." in done.stdout
    assert [each for each in steps(run) if each[0] > 3] == [
        (4, "self_play"),
        (4, "eval"),
        (5, "self_play"),
        (5, "eval"),
    ]
    assert config(run)["optim"]["num_train_datapoints"] == 8
    assert "This run is finished: 5 steps." in train(tmp_path, "--resume", "run").stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--learning-rate", "0.001"],
            "--resume cannot change learning_rate 0.0002 -> 0.001 of run; leave it out, or start another run from its weights",
        ),
        (["--task", "gsm8k", "--seed", "4"], "--resume cannot change task arithmetic -> gsm8k, seed 0 -> 4 of run"),
        (["--reward", "truth"], "--resume cannot change reward generator_judge -> truth of run"),
        (
            ["--num-train-datapoints", "2"],
            "num_train_datapoints must be at least 4, got 2: that many were debated already",
        ),
        (["--preset", "math"], "--resume continues with the settings of the run; leave --preset out"),
        (["--run", "other"], "--resume run names the run already; leave --run out"),
    ],
)
def test_what_cannot_change_is_refused_by_name(finished: Path, options: list[str], says: str) -> None:
    before = (finished / "run/run.json").read_bytes()
    done = train(finished, "--resume", "run", *options)
    assert done.returncode == 2 and says in done.stderr, done.stdout + done.stderr
    assert (finished / "run/run.json").read_bytes() == before


def test_several_seeds_are_several_runs(tmp_path: Path) -> None:
    done = train(tmp_path, *SMALL, "--seeds", "0", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "demo-arithmetic-seed0",
        "demo-arithmetic-seed1",
    ]
    assert [config(tmp_path / f"runs/demo-arithmetic-seed{seed}")["seed"] for seed in (0, 1)] == [0, 1]


def test_runs_beside_each_other_have_options_of_their_own(tmp_path: Path) -> None:
    """As if each had been started alone; what is said before the first mark is said of all."""
    beside = ["--", "--run", "votes", "--", "--reward", "win_rate", "--run", "wins", "--seeds", "0", "1"]
    done = train(tmp_path, *SMALL, *beside)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {"votes": [], "wins-seed0": ["--reward", "win_rate"], "wins-seed1": ["--reward", "win_rate", "--seed", "1"]}
    for name, own in runs.items():
        assert train(tmp_path, *SMALL, *own, "--run", "alone/" + name).returncode == 0
        assert config(tmp_path / name) == config(tmp_path / "alone" / name)
        assert numbers(tmp_path / name) == numbers(tmp_path / "alone" / name)
    again = train(tmp_path, *SMALL, *beside)
    assert again.returncode == 0 and again.stdout.count("This run is finished") == 3


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        (
            ["--run", "a", "--", "--reward", "truth", "--", "--reward", "majority"],
            "two of the runs are in a; name a --run after each --",
        ),
        (
            ["--", "--run", "a", "--restart", "--", "--run", "b"],
            "--restart holds for all runs; say it before the first --",
        ),
        (["--", "--run", "a", "--", "--reward", "nope", "--run", "b"], "nope"),
    ],
)
def test_what_is_wrong_with_one_is_said_before_any_begins_and_names_it(
    tmp_path: Path, beside: list[str], says: str
) -> None:
    done = train(tmp_path, *SMALL, *beside)
    assert done.returncode == 2 and says in " ".join(done.stderr.split()), done.stderr
    assert not [*tmp_path.glob("*/metrics.jsonl")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_seeds_that_were_ended_together_continue_together(tmp_path: Path, number: signal.Signals) -> None:
    """The same command again; each then has the numbers of a run that nobody ended."""
    longer = [*SMALL, "--num-train-datapoints", "8", "--save-every", "1"]
    seeds = ["--seeds", "0", "1", "--run", tmp_path / "both"]
    both = [tmp_path / f"both-seed{seed}" for seed in (0, 1)]
    running = subprocess.Popen(
        command("train", *longer, *seeds),
        env=surroundings(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while running.poll() is None and not all((run / "metrics.jsonl").exists() for run in both):
        time.sleep(0.002)
    running.send_signal(number)
    said, _ = running.communicate(timeout=120)
    assert running.returncode in (-number, 130), said
    if number == signal.SIGINT:
        assert "Nothing that was finished is lost. Continue with the same command" in " ".join(said.split())
    done = train(tmp_path, *longer, *seeds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both-seed0  step" in done.stdout and "both-seed1  step" in done.stdout
    for seed, run in enumerate(both):
        assert train(tmp_path, *longer, "--seed", seed, "--run", f"alone{seed}").returncode == 0
        assert numbers(run) == numbers(tmp_path / f"alone{seed}")


def numbers(run: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def test_a_file_and_a_protocol_set_the_defaults_and_options_win(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("engine: scripted\nbatch_size: 3\nmax_tokens: 700\nlearning_rate: 1e-6\n")
    done = train(tmp_path, "--config", "mine.yaml", "--protocol", "v1", "--max-tokens", "900", "--dry-run")
    words = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    assert "sequential, five_tag, sections sampled, turns of at most 900 tokens" in words and "win_rate" in words
    assert "steps of 3 questions, learning rate 1e-06" in words


def test_evaluations_play_against_whom_the_run_names(finished: Path, tmp_path: Path) -> None:
    """The model before training."""
    modes = ["--eval-modes", "opponents"]
    done = train(tmp_path, *SMALL, "--run", "run", *modes)
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    against = sorted({name.split("/")[1] for name in row if "/against_" in name})
    assert against == ["against_base"]


# Refused before any work


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--learning-rate", "-1"], "learning_rate must be 0 or more, got -1.0"),
        (["--learning-rate", "nan"], "learning_rate must be a number, got nan"),
        (["--with", "kl_penalty:coef=-1"], "with kl_penalty:coef=-1: coef must be greater than 0, got '-1'"),
        (
            ["--kl-coef", "0.1"],
            "there is no option --kl-coef; it belongs to a part of training now: --with kl_penalty:coef=…",
        ),
        (["--judge-steps", "8"], "there is no option --judge-steps; use --with judge_training:steps=16"),
        (["--ballot", "approval"], "there is no option --ballot; use --reward approval:checks=4, or --reward pairs"),
        (["--with", "past_self"], "got 'past_self'; did you mean past_selves?"),
        (["--dry-run", "--task", "nope"], "task must be one of arithmetic, countdown, "),
        (["--dry-run", "--with", "curriculum:tasks=nope"], "task must be one of arithmetic, countdown, "),
        (
            ["--task", "prompts.txt"],
            "warm_questions must be 0 with task prompts, got 2: the warm start needs worked solutions",
        ),
        (["--run", "prompts.txt"], "--run must name a folder, and prompts.txt is a file"),
        (["--reward", "mine.py:fails"], "ZeroDivisionError: division by zero (mine.py:2)"),
        (["--reward", "mine.py:unready"], "(mine.py:5)"),
        (["--reward", "mine.py:short"], "mine.py:short must return"),
        (["--advantage", "mine.py:fails"], "advantage 'mine.py:fails' fails: "),
        (["--task", "mine.py:task"], "task 'mine.py:task' fails: KeyError: 0 (mine.py:13)"),
    ],
)
def test_what_would_fail_later_fails_now_in_one_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "prompts.txt").write_text("".join(f"Write about {i}.\n" for i in range(200)))
    (tmp_path / "mine.py").write_text(
        "def fails(debate, *_):\n    return [1 / 0]\n\n"
        "def unready(debate):\n    return [len(turn.parsed.fields) for turn in debate.turns][:4]\n\n"
        "def short(debate):\n    return [1.0]\n\n"
        "def task(seed, held_out):\n    from moot.tasks import Task\n    questions = {}\n"
        "    return Task('mine', lambda i: questions[i], [])\n"
    )
    done = train(tmp_path, *SMALL, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_another_run_begins_with_its_weights_and_without_the_presets_warm_start(finished: Path, tmp_path: Path) -> None:
    def begun(name: str, *arguments: object) -> Path:
        result = train(tmp_path, "--engine", "scripted", "--batch-size", "2", "--num-train-datapoints", "2",
                       "--eval-every", "0", "--from", finished / "run", "--run", name, *arguments)  # fmt: skip
        assert result.returncode == 0, result.stderr
        return tmp_path / name

    run = begun("second", "--learning-rate", "1e-6")
    assert steps(run) == [(1, "self_play")]
    assert json.loads((run / "run.json").read_text())["from"]["step"] == 3
    assert config(run)["start"] == str(finished / "run")
    asked = begun("third", "--warm-questions", "2", "--with", "warm_start:batch_size=2")
    assert steps(asked) == [(1, "warm"), (2, "self_play")]
    other = train(tmp_path, "--engine", "scripted", "--from", finished / "run", "--lora-rank", "4", "--run", "fourth")
    assert other.returncode == 2 and "lora_rank is 16 there and 4 here; add --lora-rank 16" in other.stderr
    assert not (tmp_path / "fourth").exists()


def test_a_file_may_say_where_a_run_begins(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"preset: demo\nengine: scripted\nfrom: {finished / 'run'}\nwarm_questions: 0\nbatch_size: 2\n"
        "num_train_datapoints: 2\neval_every: 0\n"
    )
    result = train(tmp_path, "--config", "run.yaml", "--run", "new")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "new" / "run.json").read_text())["from"]["name"] == str(finished / "run")
