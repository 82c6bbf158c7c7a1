"""Files of debates on the page: what `moot demo` and `moot ask` write is shown as a small run, and followed as it grows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from moot.cli.main import main
from moot.debate.prompt_texts import DEFAULT
from moot.errors import ConfigError
from moot.page.about import about
from moot.page.debate import seen_in, shown
from moot.page.filters import Where
from moot.page.index import Index
from moot.page.runs import Runs
from moot.page.transcripts import BYTES_PER_SEAT, FREE_SEATS, Notes, Transcripts, read_debates


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    assert main(["demo", "--debates", "3", "--out", str(place / "demo.jsonl")]) == 0
    assert main(["demo", "--debates", "2", "--protocol", "v1", "--out", str(place / "old.jsonl")]) == 0
    (place / "questions.jsonl").write_text('{"question": "What is 3 + 4?", "answer": "7"}\n')
    options = [
        "--engine",
        "scripted",
        "--max-tokens",
        "2000",
        "--closing-ballot",
        "--k",
        "3",
        "--rounds",
        "2",
        "--grader",
        "number",
    ]
    assert main(["label", str(place / "questions.jsonl"), *options, "--out", str(place / "ask.jsonl")]) == 0
    (place / "notes.jsonl").write_text('{"question": "no debate"}\n[]\nnot JSON\n')
    return place


def test_each_file_with_debates_is_a_run_of_one_step(place: Path, tmp_path: Path) -> None:
    runs = Runs([place, tmp_path], Transcripts([place], tmp_path).refresh).all()
    assert sorted(runs) == ["ask.jsonl", "demo.jsonl", "old.jsonl"]
    assert [runs[name].summary()["transcripts"] for name in sorted(runs)] == [1, 3, 2]
    assert runs["ask.jsonl"].summary()["task"] == f"{place.name}/ask.jsonl"


def test_a_file_is_shown_where_it_lies_and_has_no_settings_to_compare(place: Path, tmp_path: Path) -> None:
    run = Runs([tmp_path], Transcripts([place / "ask.jsonl"], tmp_path).refresh).all()["ask.jsonl"]
    told = about(run)
    assert told["path"] == run.summary()["path"] == str(place / "ask.jsonl") and told["settings"] == []


def test_what_was_asked_is_read_under_its_own_rules_and_graded(place: Path, tmp_path: Path) -> None:
    Transcripts([place / "ask.jsonl"], tmp_path).refresh()
    said = json.loads((place / "ask.jsonl").read_text())["debate"]
    found = shown(tmp_path / "ask.jsonl", 1, 0)
    assert found is not None and found["question"] == {"id": "1", "text": "What is 3 + 4?", "answer": "7"}
    assert (found["winner"], len(found["votes"])) == (said["winner"], len(said["votes"]))
    assert [turn["ballot"] for turn in found["turns"]] == [False] * 6 + [True] * 3
    # The script may cut a turn short; an agent then holds what it said before.
    held = [[turn["answer"] for turn in found["turns"][seat:6:3] if turn.get("failure") is None] for seat in range(3)]
    assert [answers[-1] if answers else None for answers in held] == said["answers"]
    messages = seen_in(tmp_path / "ask.jsonl", 1, 0, 3, DEFAULT)
    assert messages is not None and "What is 3 + 4?" in messages[0]["content"]


def test_the_list_of_labels_has_the_numbers_of_the_file(place: Path, tmp_path: Path) -> None:
    """Where a judge chose another answer than most agents give, the file's word is what is shown."""
    row = json.loads((place / "ask.jsonl").read_text())
    lost = {**row, "debate": {**row["debate"], "error": "gone", "number": 9, "turns": []}, "answer": None, "share": 0.0}
    judged = {**row, "answer": "12", "share": 0.25, "confidence": 0.75, "trusted": True}
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (lost, row, judged)))
    runs = Runs([tmp_path / "made"], Transcripts([tmp_path / "labels.jsonl"], tmp_path / "made").refresh).all()
    assert runs["labels.jsonl"].summary()["labels"] is True
    index = Index(runs["labels.jsonl"].path, tmp_path / "cache")
    index.fill()
    rows = index.page(Where(), None, -1)
    told = [(each["answer"], each["agreement"], each["confidence"], bool(each["trusted"])) for each in rows]
    own = (row["answer"], row["share"], row["confidence"], row["trusted"])
    assert told == [own, ("12", 0.25, 0.75, True), (None, 0.0, row["confidence"], row["trusted"])]
    assert [each["name"] for each in rows] == [str(row["debate"]["number"])] * 2 + ["9"]


def test_what_was_asked_in_words_that_the_file_does_not_hold_is_not_made_up(place: Path, tmp_path: Path) -> None:
    record = json.loads((place / "ask.jsonl").read_text())
    record["debate"]["settings"]["prompts"] = "0123456789abcdef"
    (tmp_path / "own.jsonl").write_text(json.dumps(record) + "\n")
    run = Runs([tmp_path / "made"], Transcripts([tmp_path / "own.jsonl"], tmp_path / "made").refresh).all()["own.jsonl"]
    with pytest.raises(ConfigError, match="with texts of their own"):
        run.prompts()


def test_a_transcript_of_the_sequential_protocol_is_known_by_its_sections(place: Path) -> None:
    assert {each.debate.rules.schedule for each in read_debates(place / "old.jsonl")} == {"sequential"}


@pytest.mark.timeout(120)
def test_seats_that_nobody_takes_are_paid_for_up_to_a_limit_and_the_rest_is_told(place: Path, tmp_path: Path) -> None:
    """Two megabytes that took 71 s and 2.9 GB."""
    file = tmp_path / "a" / "wide.jsonl"
    file.parent.mkdir()
    said = "<solution>7</solution><evaluation>N/A</evaluation><comparison>Agent 1 > Agent 2</comparison>"
    debate = {"question": "q", "answer": "7", "num_agents": 999, "turns": [{"round": 1, "agent": 0, "text": said}]}
    file.write_text((json.dumps(debate) + "\n") * 2000 + json.dumps({**debate, "num_agents": 1000}) + "\n")
    transcripts = Transcripts([file], tmp_path / "made")
    summary = Runs([tmp_path / "made"], transcripts.refresh).all()["wide.jsonl"].summary()
    assert summary["transcripts"] == (FREE_SEATS + file.stat().st_size // BYTES_PER_SEAT) // 999 < 60
    left = 2001 - summary["transcripts"]
    told = f"{left} of its debates (the first in line {2002 - left}) are left out: they claim too many agents"
    assert summary["trouble"] == told


def test_a_line_that_claims_a_billion_agents_hides_no_other(place: Path, tmp_path: Path) -> None:
    record = (place / "ask.jsonl").read_text().strip()
    row = json.loads(record)
    wide = {**row, "debate": {**row["debate"], "num_agents": 10**9}}
    file = tmp_path / "wide.jsonl"
    file.write_text(json.dumps(wide) + "\n" + record + "\n")
    notes = Notes()
    assert [played.number for played in read_debates(file, notes)] == [2] and notes.left_out == [1]


@pytest.mark.timeout(60)
def test_a_pipe_among_files_of_debates_is_passed_by(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "demo.jsonl").write_text((place / "demo.jsonl").read_text())
    assert list(Runs([tmp_path / "made"], Transcripts([folder], tmp_path / "made").refresh).all()) == ["demo.jsonl"]


def test_a_file_that_grows_is_read_again(place: Path, tmp_path: Path) -> None:
    file, text = tmp_path / "a" / "grows.jsonl", (place / "demo.jsonl").read_text().splitlines(keepends=True)
    file.parent.mkdir()
    file.write_text(text[0])
    transcripts = Transcripts([file], tmp_path / "made")
    transcripts.refresh()
    assert shown(tmp_path / "made" / "grows.jsonl", 1, 1) is None
    file.write_text("".join(text))
    transcripts._rest = 0.0
    transcripts.refresh()
    assert shown(tmp_path / "made" / "grows.jsonl", 1, 2) is not None
