"""An index that something damaged is made again, whatever the damage, by whoever looks next; and only its owner may read it."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from moot.page.filters import where
from moot.page.index import Index, cache_folder
from support.paging import record, turn, write_run
from support.requesting import ask

SEEDS = range(60)
PAGE = 4096
Whole = tuple[bytes, list[object]]
"""An index as it should be, and what it answers."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    steps = {
        step: [
            record(turn(0, f"word{step}"), turn(1), question=f"Question {step}.{i}, " + "said at length " * 40)
            for i in range(12)
        ]
        for step in range(1, 13)
    }
    return write_run(tmp_path_factory.mktemp("healing") / "run", steps, tokens=False)


def answers(index: Index) -> list[object]:
    """What a page asks of an index; a question about each column, and the words."""
    asked = [{}, {"q": "word7"}, {"q": "length"}, {"correct": "none"}, {"from": "3", "to": "5"}, {"same": "4.2"}]
    chosen = [where(each, lambda _: []) for each in asked]
    rows = [(index.page(each, None, 500), index.counts(each)) for each in chosen]
    return [rows, index.before(chosen[0], (4, 4)), index.place(5, 3)]


def damage(file: Path, seed: int) -> None:
    chance, content = random.Random(seed), bytearray(file.read_bytes())
    pages = len(content) // PAGE
    kind = ("zeroed", "swapped", "random", "truncated", "bits")[seed % 5]
    if kind == "truncated":
        del content[chance.randrange(1, len(content)) :]
    for _ in range(chance.choice((1, 1, 3))):
        one, other = (slice(n * PAGE, (n + 1) * PAGE) for n in (chance.randrange(pages), chance.randrange(pages)))
        if kind == "zeroed":
            content[one] = bytes(PAGE)
        elif kind == "swapped":
            content[one], content[other] = content[other], content[one]
        elif kind == "random":
            content[one] = chance.randbytes(PAGE)
        elif kind == "bits":
            for _ in range(20):
                content[one.start + chance.randrange(100)] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    index = Index(run, tmp_path_factory.mktemp("whole"))
    index.fill()
    return index.file.read_bytes(), answers(index)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_index_is_made_again_when_a_page_is_opened(
    run: Path, whole: Whole, seed: int, tmp_path: Path
) -> None:
    index = Index(run, tmp_path)
    index.file.write_bytes(whole[0])
    damage(index.file, seed)
    index.fill()
    assert index.trouble is None and answers(index) == whole[1]


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_one_that_is_damaged_under_an_open_page_is_made_again_by_the_next_look(
    run: Path, whole: Whole, seed: int, tmp_path: Path
) -> None:
    index = Index(run, tmp_path)
    index.fill()
    damage(index.file, seed)
    with contextlib.suppress(sqlite3.DatabaseError):
        answers(index)
    index.fill()
    assert index.trouble is None and answers(index) == whole[1]


def test_the_page_answers_again_after_the_first_refusal(run: Path, whole: Whole, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from moot.page.runs import Runs
    from moot.page.server import make_app

    page = make_app(Runs([run]), tmp_path)

    def counted() -> None:
        until = time.monotonic() + 60
        while (ask(page, "/api/debates?run=run").json.get("counts") or {}).get("debates") != 12 * 12:
            assert time.monotonic() < until
            time.sleep(0.05)

    counted()
    (file,) = tmp_path.glob("*.sqlite")
    file.write_bytes(whole[0][:PAGE] + bytes(len(whole[0]) - PAGE))
    counted()


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE]
)
def test_a_disk_in_trouble_takes_no_index_away(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    index = Index(run, tmp_path)
    index.fill(until=lambda: True)
    before = index.file.read_bytes()

    def refuse(*_: object) -> None:
        refusal = sqlite3.OperationalError("no")
        refusal.sqlite_errorcode = code
        raise refusal

    monkeypatch.setattr(index, "_file", refuse)
    index.fill()
    assert index.trouble is not None and index.file.read_bytes() == before


def test_only_its_owner_may_read_an_index_also_where_others_could_before(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "moot" / "view"
    folder.mkdir(parents=True, mode=0o755)
    index = Index(run, cache_folder(tmp_path / "scratch"))
    index.file.touch(0o644)
    index.fill()
    assert index.file.parent == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert cache_folder(tmp_path / "scratch") == tmp_path / "scratch"
