"""A run on disk: what is written can be read, what was torn is noticed, and coming back loses nothing that was committed."""

import json
from pathlib import Path

import numpy as np
import pytest

from moot.debate.types import ConfigError
from moot.records import Run


def new_run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"seed": 1}, {"moot": "test"})


def checkpoint(run: Run, step: int, keep: bool = False) -> None:
    (run.checkpoint_place(step) / "weights").write_text(str(step))
    run.commit_checkpoint(step, {"metrics": {"step": step, "phase": "self_play"}}, keep)


def test_a_folder_without_run_json_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run: it has no run\.json"):
        Run.open(tmp_path)


def test_a_run_of_another_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (run.path / "run.json").write_text(json.dumps({"format": 99, "config": {}}))
    with pytest.raises(ConfigError, match="format 99, and this moot reads format 1"):
        Run.open(run.path)


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.append_metrics({"step": 1, "phase": "self_play", "x": 1.5})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "phase": "se')
    assert run.metrics() == [{"step": 1, "phase": "self_play", "x": 1.5}]


def test_rewinding_drops_later_rows_and_puts_back_the_one_a_kill_swallowed(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step in (1, 2, 4):
        run.append_metrics({"step": step, "phase": "self_play"})
    run.rewind(3, {"step": 3, "phase": "self_play", "x": 7})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    run.rewind(3, {"step": 3, "phase": "self_play", "x": 7})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_two_rolling_checkpoints_stay_and_kept_ones_stay_for_good(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step in range(1, 7):
        checkpoint(run, step, keep=step == 2)
    assert [step for step, _ in run.checkpoints()] == [6, 5, 2]


def test_a_checkpoint_that_was_never_finished_does_not_count(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    checkpoint(run, 1)
    (run.checkpoint_place(2) / "weights").write_text("half")
    assert [step for step, _ in run.checkpoints()] == [1]


def test_a_changed_state_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    checkpoint(run, 1)
    checkpoint(run, 2)
    file = run.path / "checkpoints" / "000002" / "state.json"
    sealed = json.loads(file.read_text())
    sealed["body"] = sealed["body"].replace('"step": 2', '"step": 3')
    file.write_text(json.dumps(sealed))
    found = [(step, state is None) for step, _, state in run.load_checkpoints()]
    assert found == [(2, True), (1, False)]


def test_nothing_half_written_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        run.write_debates(1, [])
    assert sorted(file.name for file in (run.path / "debates").iterdir()) == ["000001.jsonl"]
