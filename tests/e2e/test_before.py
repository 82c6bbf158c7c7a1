"""What older versions left on a disk opens, continues, rescores, exports and is shown: tests/fixtures/before, written by commit b061b1b."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from support.requesting import ask

BEFORE = Path(__file__).parents[1] / "fixtures" / "before"
RUNS = ("v2", "v1", "truth", "mix", "shuffled", "interrupted")
NEWER = ("winner",)
"""A debate without a clear leader had a winner then; every other number is held to what it was."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that may be written to; the runs name their questions by a path from here."""
    shutil.copytree(BEFORE, tmp_path / "before")
    monkeypatch.chdir(tmp_path / "before")
    return tmp_path / "before"


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def debates(run: Path) -> list[dict[str, Any]]:
    return [record for file in sorted((run / "debates").glob("*.jsonl")) for record in rows(file)]


def same(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether everything the old record says still holds."""
    return all(new.get(name) == value for name, value in old.items() if name not in NEWER)


@pytest.mark.parametrize("name", RUNS)
def test_every_debate_scores_to_the_advantages_that_were_saved(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lost = sum("error" in record for record in debates(here / name))
    assert (found["largest_difference"], found["after"]["debates"], found["failed"]) == (0, 6 - lost, lost)
    assert lost == (1 if name == "shuffled" else 0)
    assert main(["rescore", name]) == 0
    assert "Every advantage is as it was saved." in capsys.readouterr().out


def test_another_reward_can_be_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in RUNS:
        assert main(["rescore", name, "--reward", "majority", "--advantage", "center_group", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["after"]["reward"] == "majority"


def test_a_killed_run_continues_to_what_the_whole_run_was(here: Path) -> None:
    assert [row["step"] for row in rows(here / "interrupted" / "metrics.jsonl")] == [0, 1]
    assert main(["train", "--resume", "interrupted"]) == 0
    for i, (new, old) in enumerate(zip(debates(here / "interrupted"), debates(BEFORE / "v2"), strict=True)):
        if i < 3:
            assert same(new, old)
        else:  # said after it was continued: the same questions, in the texts of today
            names = ("number", "num_agents", "max_rounds", "protocol")
            assert {name: new.get(name) for name in names} == {name: old.get(name) for name in names}
            assert [new["question"][name] for name in ("id", "text", "answer")] == [
                old["question"][name] for name in ("id", "text", "answer")
            ]
    for new, old in zip(rows(here / "interrupted" / "metrics.jsonl"), rows(BEFORE / "v2" / "metrics.jsonl"), strict=True):
        assert old.keys() <= new.keys()
        kept = {key: value for key, value in old.items() if not key.startswith("time/") and "winner" not in key}
        if old["phase"] == "eval" or old["step"] > 1:  # played since then, in the texts of today
            kept = {key: kept[key] for key in ("step", "phase", "debates/played")}
        assert {key: new[key] for key in kept} == kept
    assert main(["rescore", "interrupted"]) == 0


@pytest.mark.parametrize("name", [name for name in RUNS if name != "interrupted"])
def test_a_finished_run_stays_as_it_is(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", name]) == 0
    assert debates(here / name) == debates(BEFORE / name)
    assert rows(here / name / "metrics.jsonl") == rows(BEFORE / name / "metrics.jsonl")


def test_a_run_without_its_index_or_with_a_damaged_one_opens_all_the_same(here: Path) -> None:
    (here / "v1" / "index.sqlite").unlink()
    (here / "mix" / "index.sqlite").write_bytes(b"nonsense")
    for name in ("v1", "mix"):
        assert main(["rescore", name]) == 0
        assert main(["train", "--resume", name]) == 0
    (here / "interrupted" / "index.sqlite").write_bytes(b"nonsense")
    assert main(["train", "--resume", "interrupted"]) == 0


def clear_leader(record: dict[str, Any]) -> bool:
    """Whether one agent's mean reward is above all the others', by the numbers in the record."""
    steps: list[list[int]] = [[] for _ in range(record["num_agents"])]
    for i, turn in enumerate(record["turns"]):
        steps[turn["agent"]].append(i)
    rewards = record["rewards"]
    if isinstance(rewards, dict):
        ballots = {i for i, turn in enumerate(record["turns"]) if turn.get("ballot") and "failure" not in turn}
        of = [
            [value for i, value in zip(own, row, strict=True) if i not in ballots]
            for own, row in zip(steps, rewards["generator"], strict=True)
        ]
        rewards = [sum(row) / len(row) for row in of]
    return rewards.count(max(rewards)) == 1


def test_an_export_holds_what_the_old_one_held(here: Path) -> None:
    assert main(["export", "v2", "--supervised", "--preferences", "--html", "--out", "out"]) == 0
    clear = {
        f"{step}/{record['number']}" for step in (1, 2) for record in rows(BEFORE / f"v2/debates/{step:06d}.jsonl") if clear_leader(record)
    }
    assert len(clear) == 6
    for name in ("supervised.jsonl", "preferences.jsonl"):
        new, old = ({row["debate"]: row for row in rows(folder / name)} for folder in (here / "out", BEFORE / "v2" / "export"))
        assert clear & old.keys()
        for debate in clear & old.keys():
            assert new[debate] == old[debate]
        assert new.keys() <= old.keys()
    page = (here / "out" / "debates.html").read_text()
    for record in debates(BEFORE / "v2"):
        assert record["question"]["text"] in page


def test_every_run_exports(here: Path) -> None:
    for name in RUNS:
        assert main(["export", name, "--supervised", "--preferences", "--html", "--out", f"out-{name}"]) == 0
    assert "the server went away" in (here / "out-shuffled" / "debates.html").read_text()


def test_an_evaluation_continues_without_asking_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was sampled under older texts is kept and counted no more; what is sampled now is found again, also where a kill cut a line."""
    modes = ["direct", "vote", "debate", "debate+vote", "opponents"]
    command = ["eval", "v2", "--modes", *modes, "--k", "3", "--questions", "3", "--name", "small"]
    names = ("accuracy", "format", "correct", "pass@k", "avg@k", "cons@k", "cut")
    store = here / "v2" / "evals" / "small" / "answers.jsonl"
    before = store.read_bytes()
    assert main([*command, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["rows"]
    old_rows = json.loads((BEFORE / "v2" / "evals" / "small" / "report.json").read_text())["rows"]
    assert [(row["name"], row["k"], row["questions"]) for row in expected] == [
        (row["name"], row["k"], row["questions"]) for row in old_rows
    ]
    whole = store.read_bytes()
    assert whole.startswith(before) and len(whole) > len(before)
    for kept in (whole, whole[: len(whole) // 2]):
        store.write_bytes(kept)
        assert main([*command, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["rows"]
        assert [row["name"] for row in found] == [row["name"] for row in expected]
        for new, old in zip(found, expected, strict=True):
            assert (new["k"], new["questions"], new["failed"], new["tokens"]) == (old["k"], old["questions"], old["failed"], old["tokens"])
            assert {name: new["metrics"][name] for name in names} == {name: old["metrics"][name] for name in names}
        assert store.read_bytes().startswith(kept) and (kept != whole or store.read_bytes() == whole)


@pytest.mark.parametrize(
    ("file", "options"),
    [("ask.jsonl", ["--closing-ballot"]), ("ask-v1.jsonl", ["--protocol", "v1", "--price-in", "1.5", "--price-out", "6"])],
)
def test_questions_that_were_answered_are_not_asked_again(file: str, options: list[str], here: Path) -> None:
    command = ["ask", "--file", "questions.jsonl", "--out", file, "--engine", "scripted", "--seed", "1", *options]
    assert main(command) == 0
    assert (here / file).read_bytes() == (BEFORE / file).read_bytes()
    lines = (BEFORE / file).read_text().splitlines(keepends=True)
    (here / file).write_text("".join(lines[:4]))
    assert main(command) == 0
    found = sorted(rows(here / file), key=lambda row: row["number"])
    kept = {json.loads(line)["number"] for line in lines[:4]}
    for new, old in zip(found, sorted(rows(BEFORE / file), key=lambda row: row["number"]), strict=True):
        said = ("ended", "turns") if old["number"] in kept else ()  # the others are asked in the texts of today
        for name in ("question", "known_answer", "num_agents", "max_rounds", *said):
            assert new[name] == old[name]


def test_transcripts_score_as_they_did(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "transcripts.jsonl", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == rows(BEFORE / "scored.jsonl") and len(found) == 9


def test_the_page_shows_every_run_and_every_debate(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from moot.page.runs import Runs
    from moot.page.server import make_app

    app = make_app(Runs([here]), tmp_path / "cache")
    assert {run["name"] for run in ask(app, "/api/runs").json["runs"]} == set(RUNS)
    for name in RUNS:
        listed = ask(app, f"/api/debates?run={name}&limit=10").json["rows"]
        assert sorted((row["step"], row["number"]) for row in listed) == [(step, number) for step in (1, 2) for number in range(3)]
        for row in listed:
            old = rows(BEFORE / name / "debates" / f"{row['step']:06d}.jsonl")[row["number"]]
            shown = ask(app, f"/api/debate?run={name}&debate={row['step']}.{row['number']}")
            assert shown.status == 200
            assert old["question"]["text"] in shown.body.decode()
            assert row["error"] == old.get("error")
        assert ask(app, f"/api/rescore?run={name}").status == 200
    assert ask(app, "/api/evals?run=v2").status == 200
