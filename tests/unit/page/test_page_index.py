"""The page's own index: filters, search, and a run that changes under it."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moot.page.csv_table import as_csv
from moot.page.filters import Refused, where
from moot.page.index import Index, line_at, tidy
from moot.page.order import order_of
from support.paging import failed, record, turn, write_run, write_step

RIGHT = record(turn(0, "7", True), turn(1, "7", True), turn(2, "7", True), question="Which is right?")
MISLED = record(turn(0, "8"), turn(1, "7", True), turn(2, "8"), question="Who is misled?")
WRONG = record(turn(0, "8"), turn(1, "9"), failed(2), question="Who failed?", signal=False)
UNKNOWN = record(turn(0, None), turn(1, None), turn(2, None), question="An essay on Łódź?", answer=None)
LOST = {**record(question="Was it lost?"), "turns": [], "error": "server gone"}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    run = write_run(tmp_path / "run", {1: [RIGHT, MISLED], 2: [WRONG, UNKNOWN], 10: [LOST]})
    found = Index(run, tmp_path / "cache")
    found.fill()
    return found


def none(_: str) -> list[int]:
    return []


def places(index: Index, ringing: Callable[[str], list[int]] = none, **asked: str) -> list[str]:
    rows = index.page(where(asked, ringing), None, 100)
    return [f"{row['step']}.{row['number']}" for row in rows]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({}, ["10.0", "2.0", "2.1", "1.0", "1.1"]),
        ({"correct": "all"}, ["1.0"]),
        ({"correct": "mixed"}, ["1.1"]),
        ({"correct": "misled"}, ["1.1"]),
        ({"winner": "wrong"}, ["2.0", "1.1"]),
        ({"same": "1.1"}, ["1.1"]),
        ({"same": "9.9"}, []),
        ({"correct": "none"}, ["2.0"]),
        ({"correct": "unknown"}, ["10.0", "2.1"]),
        ({"failed": "yes"}, ["2.0"]),
        ({"failed": "no", "from": "2"}, ["10.0", "2.1"]),
        ({"disagree": "yes"}, ["2.0", "1.1"]),
        ({"signal": "no"}, ["2.0"]),
        ({"error": "yes"}, ["10.0"]),
        ({"from": "2", "to": "2"}, ["2.0", "2.1"]),
        ({"alarm": "any"}, ["1.0", "1.1"]),
        ({"q": "misled"}, ["1.1"]),
        ({"q": "MISL"}, ["1.1"]),
        ({"q": "who"}, ["2.0", "1.1"]),
        ({"q": "who failed?"}, ["2.0"]),
        ({"q": "it is 9."}, ["2.0"]),
        ({"q": "lodz"}, []),
        ({"q": "Łódź"}, ["2.1"]),
        ({"q": "gone"}, ["10.0"]),
        ({"q": "mumble", "disagree": "yes"}, ["2.0"]),
        ({"q": '"'}, []),
        ({"q": "' OR 1=1 --"}, []),
        ({"q": "NOT who"}, []),
        ({"q": "a* AND (b"}, []),
        ({"q": "\ud800 \x00"}, []),
    ],
)
def test_each_filter_leaves_what_it_says(index: Index, asked: dict[str, str], left: list[str]) -> None:
    assert places(index, lambda _: [1, 7], **asked) == left


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"correct": "maybe"}, "correct must be one of all, mixed, none, misled, unknown, got 'maybe'"),
        ({"from": "-1"}, "from must be a whole number, got '-1'"),
        ({"to": "9" * 30}, "to must be a whole number"),
        ({"from": "٣"}, "from must be a whole number"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_by_name(asked: dict[str, str], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        where(asked, none)


def test_an_answer_stands_although_a_later_turn_failed(tmp_path: Path) -> None:
    debate = record(
        turn(0, "7", True),
        turn(1, "7", True),
        turn(2, "7", True),
        failed(0, round=2),
        turn(1, "7", True, 2),
        turn(2, "7", True, 2),
    )
    index = Index(write_run(tmp_path / "run", {1: [debate]}), tmp_path / "cache")
    index.fill()
    assert places(index, correct="all", failed="yes", disagree="no") == ["1.0"]


def test_counts_say_what_each_filter_would_leave(index: Index) -> None:
    assert index.counts(where({}, none)) == {
        "debates": 5,
        "failed": 1,
        "disagree": 2,
        "right": 1,
        "mixed": 1,
        "wrong": 1,
        "misled": 1,
        "winner_wrong": 2,
        "no_signal": 1,
        "error": 1,
    }
    assert index.counts(where({"q": "nobody"}, none))["debates"] == 0


@pytest.mark.parametrize(
    ("order", "walk"),
    [
        ("", "10.0 2.0 2.1 1.0 1.1"),
        ("oldest", "1.0 1.1 2.0 2.1 10.0"),
        # All agree in 1.0, two of three in 1.1, one of three in 2.0; nobody gives an answer in 2.1, nor in 10.0.
        ("agreement", "1.0 1.1 2.0 10.0 2.1"),
        ("-agreement", "2.0 1.1 1.0 10.0 2.1"),
        ("-correct", "2.0 1.1 1.0 10.0 2.1"),
    ],
)
def test_pages_and_neighbours_walk_the_same_way(index: Index, order: str, walk: str) -> None:
    everything = where({}, none)
    walked: list[tuple[int, int]] = []
    while page := index.page(everything, walked[-1] if walked else None, 1, order):
        walked.append((page[0]["step"], page[0]["number"]))
    assert " ".join(f"{step}.{number}" for step, number in walked) == walk
    assert [index.before(everything, here, order) for here in walked] == [None, *walked[:-1]]
    assert [tuple(row.values())[:2] for row in index.page(everything, None, -1, order)] == walked


def test_a_list_tells_the_answer_of_most_with_its_own_agreement_and_the_mean_reward(tmp_path: Path) -> None:
    """The winner says 9 alone: two of three hold 8, and the agreement is theirs. Of a tie the winner's is the answer."""
    most = record(turn(0, "9"), turn(1, "8"), turn(2, "8"))
    tie = record(turn(0, "8"), turn(1, "9"), failed(2), winner=1)
    same = record(turn(0, "1/2", same=1), turn(1, "0.5", same=1), turn(2, "3", same=2), winner=2)
    index = Index(write_run(tmp_path / "run", {1: [most, tie, same]}), tmp_path / "cache")
    index.fill()
    rows = index.page(where({}, none), None, 10)
    assert [(row["answer"], row["agreement"]) for row in rows] == [("8", 2 / 3), ("9", 1 / 3), ("1/2", 2 / 3)]
    assert rows[0]["reward"] == pytest.approx(1 / 3)  # the winner has 1, the two others nothing
    assert [row["name"] for row in rows] == ["q"] * 3


def test_an_order_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(Refused, match=r"sort must be one of oldest, agreement, .* got 'size'"):
        order_of({"sort": "size"})


def test_a_table_for_spreadsheets_holds_no_formula() -> None:
    rows = [{"a": "=1+1", "b": -2.5}, {"a": "-7", "b": None}]
    assert as_csv(["a", "b"], rows).split() == ["a,b", "'=1+1,-2.5", "-7,"]


def test_a_step_that_is_played_again_gone_or_new_is_seen(index: Index) -> None:
    write_step(index.run, 2, [record(question="Said anew?")])
    write_step(index.run, 11, [record(question="Brand new?")])
    (index.run / "debates" / "000010.jsonl").unlink()
    before = index.progress.changes
    index.fill()
    assert places(index) == ["11.0", "2.0", "1.0", "1.1"]
    assert places(index, q="anew") == ["2.0"] and places(index, q="new") == ["11.0"]
    assert places(index, q="essay") == [] and places(index, q="lost") == []
    assert (index.progress.steps, index.progress.filed, index.progress.words) == (3, 3, 3)
    assert index.progress.changes == before + 3  # one gone, two put in


def test_it_can_be_stopped_and_goes_on_with_the_newest_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {step: [record(question=f"Number {step}?")] for step in (1, 2, 3)})
    index = Index(run, tmp_path / "cache")
    index.fill(until=lambda: True)
    assert places(index) == ["3.0"] and (index.progress.steps, index.progress.filed, index.progress.words) == (3, 1, 0)
    again = Index(run, tmp_path / "cache")
    again.fill()
    assert places(again) == ["3.0", "2.0", "1.0"] and places(again, q="number 2") == ["2.0"]


def test_two_pages_may_fill_the_same_index_at_once(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {step: [record(question=f"Number {step}?")] for step in range(1, 41)}, tokens=False
    )
    pages = [Index(run, tmp_path / "cache") for _ in range(4)]
    threads = [threading.Thread(target=page.fill) for page in pages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [page.trouble for page in pages] == [None] * 4
    assert len(places(pages[0])) == 40 and len(set(places(pages[0]))) == 40
    assert places(pages[1], q="number 17") == ["17.0"] and len(places(pages[2], q="number")) == 40


class Busy(sqlite3.Connection):
    """Two pages that change the journal of a new index at once: SQLite sends one of them away without waiting."""

    refusals = 0

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in statement and Busy.refusals:
            Busy.refusals -= 1
            refusal = sqlite3.OperationalError("database is locked")
            refusal.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise refusal
        return super().execute(statement, *values)


def test_an_index_that_another_page_is_preparing_is_waited_for_and_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", {1: [record()]}, tokens=False)
    Index(run, tmp_path / "cache").fill()
    connect, deleted = sqlite3.connect, []
    monkeypatch.setattr("moot.page.index.sqlite3.connect", lambda *where, **how: connect(*where, factory=Busy, **how))
    monkeypatch.setattr("moot.page.index.Path.unlink", lambda path, **_: deleted.append(path))
    Busy.refusals = 3
    again = Index(run, tmp_path / "cache")
    again.fill()
    assert (again.trouble, places(again), Busy.refusals, deleted) == (None, ["1.0"], 0, [])


def test_what_was_long_unused_is_cleared_away(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    for file, days in ((old, 61), (new, 59)):
        file.write_text("")
        os.utime(file, (time.time() - days * 86400,) * 2)
    tidy(tmp_path)
    assert not old.exists() and new.exists()


def test_a_disk_that_is_full_is_told_and_tried_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    write_step(index.run, 11, [record(question="Brand new?")])

    def full(*_: object) -> None:
        refusal = sqlite3.OperationalError("database or disk is full")
        refusal.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise refusal

    with monkeypatch.context() as patched:
        patched.setattr(index, "_file", full)
        index.fill()
    assert index.trouble is not None and index.trouble.endswith("cannot be written: database or disk is full")
    assert len(places(index)) == 5
    index.fill()
    assert index.trouble is None and len(places(index)) == 6


def test_nothing_is_written_into_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [RIGHT]})

    def state() -> dict[str, Any]:
        return {str(file): (file.stat().st_mtime_ns, file.stat().st_ino) for file in [run, *run.rglob("*")]}

    before = state()
    Index(run, tmp_path / "cache").fill()
    assert state() == before


@pytest.mark.parametrize("damage", ["not a database", "another version", "half a table"])
def test_an_index_that_is_off_is_made_again(index: Index, damage: str) -> None:
    if damage == "not a database":
        index.file.write_bytes(b"rubbish" * 1000)
    else:
        with sqlite3.connect(index.file) as connection:
            connection.execute("pragma user_version = 99" if damage == "another version" else "drop table steps")
        connection.close()
    fresh = Index(index.run, index.file.parent)
    fresh.fill()
    assert len(places(fresh)) == 5 and places(fresh, q="misled") == ["1.1"]


def test_lines_that_are_no_records_are_listed_as_such(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [RIGHT]})
    odd = b'{"turns": \nnull\n{"question": {"text": "t", "answer": 1}, "turns": [{"agent": []}], "num_agents": 3}\n'
    odd += (
        b'{"question": {"text": "t", "answer": 1}, "turns": [], "num_agents": 1'
        + b"0" * 30
        + b"}\n"
        + b"[" * 100_000
        + b"\n"
    )
    (run / "debates" / "000002.jsonl").write_bytes(odd)
    (run / "debates" / "notes.jsonl").write_bytes(b"{}\n")
    index = Index(run, tmp_path / "cache")
    index.fill()
    assert places(index) == ["2.0", "2.1", "2.2", "2.3", "2.4", "1.0"]
    assert places(index, error="yes") == ["2.0", "2.1", "2.2", "2.3", "2.4"]
    assert index.trouble is None


def test_without_full_text_search_questions_are_searched(index: Index) -> None:
    rows = index.page(where({"q": "WHO misl"}, none, searchable=False), None, 10)
    assert [(row["step"], row["number"]) for row in rows] == [(1, 1)]


def test_an_index_that_is_not_there_yet_answers_with_nothing(tmp_path: Path) -> None:
    index = Index(write_run(tmp_path / "run", {1: [RIGHT]}), tmp_path / "cache")
    assert (
        places(index) == []
        and index.counts(where({}, none))["debates"] == 0
        and index.before(where({}, none), (1, 0)) is None
    )


def test_a_debates_line_is_read_at_its_place_and_found_again_where_the_file_is_another(index: Index) -> None:
    place = index.place(1, 1)
    assert place is not None and index.place(1, 2) is None
    file = index.run / "debates" / "000001.jsonl"
    first, second = file.read_bytes().splitlines()
    assert (place.offset, place.length) == (len(first) + 1, len(second))
    assert line_at(index.run, 1, 1, place) == second
    write_step(index.run, 1, [WRONG, RIGHT])
    assert json.loads(line_at(index.run, 1, 1, place) or b"")["question"]["text"] == "Which is right?"
    assert line_at(index.run, 1, 2, place) is None and line_at(index.run, 9, 0) is None


def test_what_evaluations_played_has_an_index_of_its_own(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [record(question="Trained?")]})
    (run / "held_out").mkdir()
    for step in (0, 3):
        line = json.dumps({**record(question="Held out?"), "number": 0})
        (run / "held_out" / f"{step:06d}.jsonl").write_text(line + "\n")
    trained, held_out = Index(run, tmp_path / "cache"), Index(run, tmp_path / "cache", "held_out")
    for index in (trained, held_out):
        index.fill()
    assert (places(trained), places(held_out)) == (["1.0"], ["3.0", "0.0"])
    assert places(held_out, same="0.0") == ["3.0", "0.0"]
