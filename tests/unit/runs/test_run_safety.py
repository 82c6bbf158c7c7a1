"""A run's folder that is not as moot left it: nothing that was committed is deleted, and one process writes at a time."""

import asyncio
import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.cli import main
from moot.errors import ConfigError
from moot.page.index import lines
from moot.runs import Damaged, Run
from moot.runs import run as run_module
from moot.runs.lock import HELD, locked
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
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
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


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
    with pytest.raises(
        ConfigError, match=r"metrics of 4 steps, debates of 4 and .*--checkpoint STEP.*--run DIR.*--restart"
    ):
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
    assert [number for number, _ in run.checkpoints()] == [
        7,
        6,
        5,
        4,
        3,
        2,
    ]  # 2, 4, 6 and the last are kept; 5 and 3 are the newest others
    assert sorted(file.name for file in (run.path / "aside" / "001" / "checkpoints").iterdir()) == ["000998", "000999"]


def test_a_folder_that_turns_up_during_training_is_renamed_and_the_newest_two_that_can_be_read_stay(
    tmp_path: Path,
) -> None:
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
from moot.runs.lock import locked
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


def test_a_deleted_lock_admits_nobody(run: Run) -> None:
    process = hold(run.path)
    try:
        (run.path / "lock").unlink()
        with pytest.raises(ConfigError, match="is in use by"):
            moot.train(CONFIG, run.path)
    finally:
        process.kill()
        process.communicate()


def test_a_run_that_was_moved_away_while_it_trains_is_not_written_to_any_more(run: Run) -> None:
    with locked(run.path) as lock:
        run.lock = lock
        run.checkpoint_place(5)
        run.commit_checkpoint(5, {}, keep=False)
        run.path.rename(run.path.with_name("elsewhere"))
        shutil.copytree(run.path.with_name("elsewhere"), run.path)
        run.checkpoint_place(6)
        with pytest.raises(ConfigError, match="was removed or replaced while this process wrote to the run"):
            run.commit_checkpoint(6, {}, keep=False)
    assert run.checkpoints()[0][0] == 5


# Where the file system has no locks


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)


def test_without_locks_a_second_process_is_refused_too_and_the_first_is_told(run: Run, no_locks: None) -> None:
    with locked(run.path) as first:
        assert "has no locks" in first.note and str(run.path / HELD) in first.note
        with pytest.raises(
            ConfigError, match=rf"in use by process {os.getpid()} on .*; where its machine is gone, remove .*{HELD}"
        ):
            locked(run.path)
        first.check()
        (run.path / HELD).unlink()
        (run.path / HELD).write_text("somebody else's")
        with pytest.raises(ConfigError, match=f"{HELD} was removed or replaced"):
            first.check()
    (run.path / HELD).unlink()
    locked(run.path).close()
    assert not (run.path / HELD).exists()


def test_without_locks_what_a_killed_process_left_keeps_nobody_out(run: Run, no_locks: None) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    (run.path / HELD).write_text(f"{int(dead.stdout)}\n{os.uname().nodename}\n")
    with locked(run.path) as lock:
        lock.check()


def test_where_the_folder_cannot_be_locked_its_file_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system, which locks only what is open for writing."""
    flock = fcntl.flock

    def of_files(handle: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", of_files)
    with locked(run.path) as lock:
        assert not lock.note
        with pytest.raises(ConfigError, match="is in use by"):
            locked(run.path)
        (run.path / "lock").unlink()
        with pytest.raises(ConfigError, match="lock was removed or replaced"):
            lock.check()


# What somebody else put there


@pytest.mark.parametrize(
    "part",
    [
        "lock",
        "metrics.jsonl",
        "visits.jsonl",
        "labels.jsonl",
        "debates",
        "checkpoints",
        "held_out",
        "evals",
        "aside",
        "lock.held",
        "judge",
        "export",
        "tensorboard",
        "loggers.json",
    ],
)
def test_a_part_that_is_a_link_is_refused_by_name_and_nothing_outside_changes(
    run: Run, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = run.path.parent / "outside"
    (outside / "000009").mkdir(parents=True)
    (outside / "000009.jsonl").write_text("notes")
    place = run.path / part
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(outside if "." not in part and part != "lock" else outside / "000009.jsonl")
    before = files(run.path.parent)
    for command in (
        ["train", "--resume", str(run.path), "--num-train-datapoints", "6"],
        ["eval", str(run.path), "--questions", "1"],
        *([["export", str(run.path), "--html", "--force"]] if part == "export" else []),
    ):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert (
            said
            == f"moot: {place} is a link, and a plain file or folder is wanted there; put back what moot wrote, or name another\n"
        )
        assert files(run.path.parent) == before


@pytest.mark.parametrize(
    "part", ["metrics.jsonl", "checkpoints/000004/state.json", "debates/000004.jsonl", "visits.jsonl"]
)
def test_a_pipe_in_a_run_is_refused_by_name_and_not_waited_for(
    run: Run, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.path / part).unlink()
    os.mkfifo(run.path / part)
    assert main(["train", "--resume", str(run.path), "--num-train-datapoints", "6"]) == 2
    assert f"{part} is a pipe" in capsys.readouterr().err


# Kept, or set aside


@pytest.mark.parametrize("end", [b"\r", b" ", b""])
def test_metrics_whose_line_ends_were_lost_are_set_aside_and_a_note_says_so(
    run: Run, end: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b"\n", end))
    before = file.read_bytes()
    assert main(["train", "--resume", str(run.path), "--num-train-datapoints", "6"]) == 0
    assert (run.path / "aside" / "001" / "metrics.jsonl").read_bytes() == before + b"\n"
    said = " ".join("".join(capsys.readouterr()).split())
    assert "a line of metrics.jsonl is damaged, and stands now in" in said
    assert "metrics.jsonl lacks 3 of the 4 committed steps" in said  # the last is in its checkpoint
    assert [row["step"] for row in run.metrics()] == [4, 5, 6]


def test_a_row_that_a_kill_cut_short_is_set_aside(run: Run) -> None:
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "phase": "self')
    moot.train(longer(4), run.path)
    assert (run.path / "aside" / "001" / "metrics.jsonl").read_bytes() == b'{"step": 5, "phase": "self\n'
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]


def test_what_a_kill_left_half_written_goes_when_the_run_continues(run: Run) -> None:
    for place in (run.path / ".metrics.jsonl.0123456789ab.tmp", run.path / "debates" / ".000005.npz.0123456789ab.tmp"):
        place.write_text("half")
    moot.train(longer(4), run.path)
    assert not list(run.path.rglob("*.tmp"))


def test_a_blank_line_moves_no_debate_to_another_number_neither_here_nor_on_the_page(tmp_path: Path) -> None:
    config = replace(CONFIG, optim=OptimConfig(batch_size=3, num_train_datapoints=3))
    run = moot.train(config, tmp_path / "run")
    file = run.debates_file(1)
    asked = [played.debate.question for played in run.debates() if not isinstance(played, Damaged)]
    file.write_bytes(b"\n" + file.read_bytes().replace(b"\n", b"\n\n", 1))
    again = list(run.debates())
    assert [(played.number, played.debate.question) for played in again if not isinstance(played, Damaged)] == list(
        enumerate(asked)
    )
    assert [json.loads(line)["question"]["text"] for _, line in lines(run.path, 1)] == [
        question.text for question in asked
    ]
    assert len(list(run.records(1))) == 3


def test_a_commit_reads_no_checkpoint_that_it_has_read_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = Run.create(tmp_path / "run", {}, {}), list[str]()
    loop_state = run_module.loop_state
    monkeypatch.setattr(run_module, "loop_state", lambda place: read.append(place.name) or loop_state(place))
    for step in range(1, 21):
        run.checkpoint_place(step)
        run.commit_checkpoint(step, {}, keep=True)
    assert read == [f"{step:06d}" for step in range(1, 21)]
    (run.path / "checkpoints" / "000003" / "state.json").write_text("half")
    run.checkpoint_place(21)
    run.commit_checkpoint(21, {}, keep=True)
    assert (run.path / "checkpoints" / "000003.damaged").exists() and len(run.checkpoints()) == 20
