"""Files in a run that are none, or more than they say: each is refused by name, and the runs beside it stay."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.paging import record, write_run
from support.requesting import ask

pytest.importorskip("starlette")

from moot.page.runs import Runs, Watched
from moot.page.server import make_app

ASKED = (
    "runs",
    "metrics?run=bad",
    "curves?run=bad&key=x",
    "config?run=bad",
    "trust?run=bad",
    "evals?run=bad",
    "debates?run=bad",
    "debate?run=bad&debate=1.0",
    "seen?run=bad&debate=1.0&turn=0",
    "rescore?run=bad",
)
FILES = ("metrics.jsonl", "run.json", "debates/000001.jsonl", "debates/000001.npz", "evals/a/report.json")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    row = {"step": 1, "phase": "self_play", "x": 1.0}
    write_run(tmp_path / "runs" / "good", {1: [record()]}, [row])
    run = write_run(tmp_path / "runs" / "bad", {1: [record()]}, [row])
    (run / "evals" / "a").mkdir(parents=True)
    (run / "evals" / "a" / "report.json").write_text('{"rows": []}')
    return run


def looked_at(bad: Path) -> dict[str, Any]:
    """What each question gets; never an error of our own, and never an end of the other run."""
    page = make_app(Runs([bad.parent]), bad.parent.parent / "cache")
    answers = {path: ask(page, f"/api/{path}") for path in ASKED}
    assert [path for path, answer in answers.items() if answer.status >= 500] == []
    rows = {row["name"]: row for row in answers["runs"].json["runs"]}
    assert rows["good"]["rows"] == 1 and rows["good"]["trouble"] is None
    return answers


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["link to itself", "pipe", "device", "folder", "gone"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_never_waited_for_and_hides_no_other_run(bad: Path, name: str, kind: str) -> None:
    (bad / name).unlink()
    if kind == "link to itself":
        (bad / name).symlink_to(Path(name).name)
    elif kind == "pipe":
        os.mkfifo(bad / name)
    elif kind == "device":
        (bad / name).symlink_to("/dev/zero")
    elif kind == "folder":
        (bad / name).mkdir()
    looked_at(bad)


@pytest.mark.timeout(60)
def test_a_pipe_inside_a_run_to_which_a_link_leads_is_refused_too(bad: Path) -> None:
    os.mkfifo(bad / "pipe")
    for name in FILES[:1] + FILES[2:]:
        (bad / name).unlink()
        (bad / name).symlink_to(bad / "pipe")
    looked_at(bad)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_mostly_hole_costs_little_memory(bad: Path, name: str) -> None:
    with (bad / name).open("ab") as file:
        file.truncate(3 * 2**30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    looked_at(bad)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # kilobytes; it was 6 GB


def test_rows_before_and_behind_a_hole_are_read_once(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.page.runs.AT_ONCE", 1000)
    metrics = bad / "metrics.jsonl"
    with metrics.open("ab") as file:
        file.write(bytes(100_000) + b"\n")
        for step in range(2, 200):
            file.write(json.dumps({"step": step, "phase": "self_play", "x": float(step)}).encode() + b"\n")
    run = Watched("bad", bad)
    steps = [float(step) for step in range(1, 200)]
    for _ in range(2):
        assert run.ask(lambda m: (m.rows, m.series["train"]["x"])) == (199, (steps, steps))


@pytest.mark.parametrize("depth", [101, 300, 900, 100_000])
def test_settings_that_are_nested_deep_get_a_line_of_their_own(bad: Path, depth: int) -> None:
    header = json.loads((bad / "run.json").read_text())
    text = json.dumps({**header, "config": {"debate": "HERE"}}).replace('"HERE"', "[" * depth + "]" * depth)
    (bad / "run.json").write_text(text)
    answers = looked_at(bad)
    assert answers["config?run=bad"].status == 400 and answers["config?run=bad"].json["error"]
    assert next(row for row in answers["runs"].json["runs"] if row["name"] == "bad")["trouble"]


@pytest.mark.parametrize(
    "name", ["debate", "turn", "offsets", "temperature", "starts", "tokens", "logprobs", "advantages"]
)
@pytest.mark.parametrize("kind", ["text", "two dimensions", "no dimension", "complex", "one more", "huge"])
def test_arrays_of_another_shape_leave_the_debate_readable(bad: Path, name: str, kind: str) -> None:
    file = bad / "debates" / "000001.npz"
    with np.load(file) as found:
        arrays = dict(found)
    array = arrays[name]
    arrays[name] = {
        "text": np.array([str(value) for value in array]),
        "two dimensions": array.reshape(-1, 1),
        "no dimension": np.array(1),
        "complex": array.astype(complex),
        "one more": np.concatenate([array, array[:1]]),
        "huge": array.astype(float) * 1e300,
    }[kind]
    np.savez(file, **arrays)
    shown = looked_at(bad)["debate?run=bad&debate=1.0"]
    assert shown.status == 200 and len(shown.json["turns"]) == 3
    if kind in ("text", "two dimensions", "no dimension", "complex"):
        assert f"{name} in 000001.npz" in shown.json["tokens_error"]
