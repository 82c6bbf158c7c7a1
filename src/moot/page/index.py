"""Where each debate of a run is and what came of it, so that a page of 100,000 is a query and not a load.

The index is the page's own: it lies in the user's cache folder, never in the run, and is made again when anything about
it is off.
It is filled from the newest step back, first what the filters need, then the words; both can be asked meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from moot.page.filters import CHOICES, Where, clean
from moot.page.order import ORDERS, ordered, select
from moot.page.runs import LARGEST, UNREADABLE, Outside, inside
from moot.runs.record import Damaged, read_summary, read_words
from moot.runs.run import step_file, step_files
from moot.util.disk import opened
from moot.util.files import lines_in

Part = Literal["debates", "held_out"]
"""The folder of a run: what it trained on, or what its evaluations played."""
VERSION = 5
LONGEST = 50_000
"""Characters of a turn that can be searched."""
LONGEST_LINE = 2**26
"""Bytes of a debate's line that are read; a longer one is none."""

_TABLES = (
    "create table if not exists steps (step integer primary key, stamp text, words integer default 0)",
    """create table if not exists debates (
        id integer primary key autoincrement, step integer, number integer, question text, agents integer,
        winner integer, signal integer, failures integer, correct real, winner_correct integer,
        disagreement integer, error text, name text, answer text, agreement real, reward real,
        confidence real, trusted integer,
        offset integer, length integer,
        unique (step, number))""",
)
# Without the text itself, which the run has. What a step said before it was played again stays behind under an id that
# is gone.
_WORDS = "create virtual table if not exists words using fts5 (said, content='', columnsize=0)"
COLUMNS = (
    *("step", "number", "question", "agents", "winner", "signal", "failures", "correct", "winner_correct"),
    *("disagreement", "error", "name", "answer", "agreement", "reward", "confidence", "trusted"),
)
_COLUMNS = ", ".join(COLUMNS)


@dataclass(frozen=True)
class Progress:
    """How many steps the run has, and how many of them are in the index."""

    steps: int = 0
    filed: int = 0
    words: int = 0
    changes: int = 0
    """Steps put in or taken out since this page began: a step that is played again changes no count."""


class Index:
    def __init__(self, run: Path, folder: Path, part: Part = "debates") -> None:
        self.run, self.part = run, part
        place = str(run.resolve()) + ("" if part == "debates" else f"/{part}")
        self.file = folder / f"{hashlib.sha256(place.encode(errors='surrogateescape')).hexdigest()[:24]}.sqlite"
        self._writing = threading.Lock()
        self._folder_stamp: tuple[int, ...] | None = None
        self.progress = Progress()
        self.searchable = True
        """False where this Python's SQLite has no full-text search: then only questions are searched."""
        self.trouble: str | None = None
        """Why the index could not be brought up to date."""
        self._checked = False
        """Whether this page has looked at all of it: damage need not show where one happens to read."""
        self._off = False
        """Whether somebody who asked met damage."""

    # Filling

    def fill(self, until: Callable[[], bool] = lambda: False) -> None:
        """Brings the index up to date; stops early, with all that is done kept, once `until` says so."""
        with self._writing:
            stamp = _folder_stamp(self.run, self.part)
            full = self._checked and self.progress.words == self.progress.steps
            if full and stamp is not None and stamp == self._folder_stamp:
                return
            try:
                try:
                    if self._off:
                        self._remove()
                    whole = self._fill(until)
                except sqlite3.Error as error:
                    if not _damaged(error):
                        raise
                    self._remove()
                    whole = self._fill(until)
                self.trouble = None
            except (sqlite3.Error, OSError) as error:
                # A full disk, most likely. What is there can still be read; the next look tries again.
                self.trouble, whole = f"{self.file} cannot be written: {error}", False
            # Where the folder changed meanwhile, the next call looks again.
            self._folder_stamp = stamp if whole else None

    def _fill(self, until: Callable[[], bool]) -> bool:
        """Whether it came to the end."""
        with contextlib.closing(self._open()) as connection:
            files = stamps(self.run, self.part)
            filed_as = dict(connection.execute("select step, stamp from steps"))
            gone = filed_as.keys() - files.keys()
            with _transaction(connection):
                for step in gone:
                    _forget(connection, step)
            changes = self.progress.changes + len(gone)
            missing = sorted((step for step in files if filed_as.get(step) != files[step]), reverse=True)
            words = {step for (step,) in connection.execute("select step from steps where words")} & files.keys() - set(
                missing
            )
            filed, searchable = len(files) - len(missing), len(words)
            self.progress = Progress(len(files), filed, searchable, changes)
            for batch in _timed(missing):
                with _transaction(connection):
                    for step in batch:
                        self._file(connection, step, files[step])
                filed, changes = filed + len(batch), changes + len(batch)
                self.progress = Progress(len(files), filed, searchable, changes)
                if until():
                    return False
            for batch in _timed(sorted(files.keys() - words, reverse=True)):
                with _transaction(connection):
                    for step in batch:
                        self._read_words(connection, step)
                searchable += len(batch)
                self.progress = Progress(len(files), filed, searchable, changes)
                if until():
                    return False
            if not self._checked:
                self._check(connection)
        return True

    def _check(self, connection: sqlite3.Connection) -> None:
        """Last, because a large index takes a second, and what it has can be asked meanwhile."""
        (said,) = connection.execute("pragma integrity_check(1)").fetchone()
        if said != "ok":
            raise sqlite3.DatabaseError(said)
        self._checked = True

    def _file(self, connection: sqlite3.Connection, step: int, stamp: str) -> None:
        if connection.execute("select 1 from steps where step = ? and stamp = ?", (step, stamp)).fetchone():
            return  # another page was quicker
        _forget(connection, step)
        rows = [
            (*_row(step, place, line), offset, len(line))
            for place, (offset, line) in enumerate(lines(self.run, step, self.part))
        ]
        connection.executemany(
            f"insert or replace into debates ({_COLUMNS}, offset, length) values (?, ?{', ?' * len(COLUMNS)})", rows
        )
        connection.execute("insert into steps (step, stamp) values (?, ?)", (step, stamp))

    def _read_words(self, connection: sqlite3.Connection, step: int) -> None:
        if connection.execute("select 1 from steps where step = ? and words", (step,)).fetchone():
            return
        if self.searchable:
            ids = dict(connection.execute("select number, id from debates where step = ?", (step,)))
            said = (
                (ids.get(place), clean(read_words(line, LONGEST)))
                for place, (_, line) in enumerate(lines(self.run, step, self.part))
            )
            connection.executemany(
                "insert into words (rowid, said) values (?, ?)", (row for row in said if row[0] is not None)
            )
        connection.execute("update steps set words = 1 where step = ?", (step,))

    def _open(self) -> sqlite3.Connection:
        """For writing. Another page over the same run may be writing too: each step is put in whole, whoever comes
        first."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # All that was said stands in it, so only its owner may read it; SQLite gives the files beside it the same mode.
        # Only a new file is opened here: to close one that SQLite has open takes its locks away.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self.file.chmod(0o600)
        connection = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        try:
            _to_wal(connection)
            connection.execute("pragma synchronous = off")  # losing it costs seconds, not data
            (version,) = connection.execute("pragma user_version").fetchone()
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError("an index of another version")
            if version == 0:
                with _transaction(connection):
                    for table in _TABLES:
                        connection.execute(table)
                    with contextlib.suppress(sqlite3.OperationalError):
                        connection.execute(_WORDS)
                    connection.execute(f"pragma user_version = {VERSION}")
            connection.execute("select count(*) from steps, debates where false")
            self.searchable = bool(connection.execute("select 1 from sqlite_master where name = 'words'").fetchone())
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.file}{suffix}").unlink(missing_ok=True)
        self._checked = self._off = False

    # Asking

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self.file.exists():
            yield None
            return
        connection = sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            connection.row_factory = sqlite3.Row
            yield connection
        except sqlite3.Error as error:
            if _damaged(error):
                # The next look makes it again; where the question may be wrong, it first goes through all of it.
                self._checked, self._off = False, _code(error) in (None, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            raise
        finally:
            connection.close()

    def page(self, where: Where, after: tuple[int, int] | None, limit: int, order: str = "") -> list[dict[str, Any]]:
        """The next debates behind `after`, in one of `ORDERS`; a negative limit is none."""
        with self._reading() as connection:
            if connection is None:
                return []
            query, values = ordered(connection, _COLUMNS, where, ORDERS[order], after)
            return [dict(row) for row in connection.execute(f"{query} limit ?", (*values, limit))]

    def before(self, where: Where, here: tuple[int, int], order: str = "") -> tuple[int, int] | None:
        """The debate just before `here` in the same order."""
        with self._reading() as connection:
            if connection is None:
                return None
            backwards = tuple((what, not falls) for what, falls in ORDERS[order])
            query, values = ordered(connection, "step, number", where, backwards, here)
            row = connection.execute(f"{query} limit 1", values).fetchone()
            return None if row is None else (row[0], row[1])

    def place(self, step: int, number: int) -> Place | None:
        """Where that debate's line stands, as the step's file was when it was indexed."""
        with self._reading() as connection:
            if connection is None:
                return None
            query = "select stamp, offset, length from debates join steps using (step) where step = ? and number = ?"
            row = connection.execute(query, (step, number)).fetchone()
            return None if row is None else Place(*row)

    def counts(self, where: Where) -> dict[str, int]:
        """How many there are, and how many of those each single filter would leave."""
        right, winner = CHOICES["correct"], CHOICES["winner"]
        wanted = {
            "debates": "1",
            "failed": CHOICES["failed"]["yes"],
            "disagree": CHOICES["disagree"]["yes"],
            "right": right["all"],
            "mixed": right["mixed"],
            "wrong": right["none"],
            "misled": right["misled"],
            "winner_wrong": winner["wrong"],
            "no_signal": CHOICES["signal"]["no"],
            "error": CHOICES["error"]["yes"],
        }
        with self._reading() as connection:
            if connection is None:
                return dict.fromkeys(wanted, 0)
            sums = ", ".join(f"coalesce(sum({what}), 0)" for what in wanted.values())
            return dict(
                zip(wanted, connection.execute(select(sums, where.clauses), where.values).fetchone(), strict=True)
            )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Begun as a writer, so that what is read in it is still so when it is written."""
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite has gone back by itself where the disk is full
            connection.execute("rollback")
        raise
    connection.execute("commit")


def _to_wal(connection: sqlite3.Connection, seconds: float = 30) -> None:
    """SQLite waits for another writer everywhere but here."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _damaged(error: sqlite3.Error) -> bool:
    """Not in use, not a disk that is full, gone or forbidden: what else goes wrong is the index itself."""
    return isinstance(error, sqlite3.DatabaseError) and _code(error) not in _OF_THE_WORLD


_OF_THE_WORLD = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT),
)


def _code(error: sqlite3.Error) -> int | None:
    """The kind of error, without its details; None where Python made it."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _forget(connection: sqlite3.Connection, step: int) -> None:
    connection.execute("delete from debates where step = ?", (step,))
    connection.execute("delete from steps where step = ?", (step,))


def _timed(steps: Sequence[int], seconds: float = 0.2) -> Iterator[list[int]]:
    """Batches that grow or shrink to about this long: each is a transaction, and progress is seen after each."""
    size, i = 1, 0
    while i < len(steps):
        batch, started = list(steps[i : i + size]), time.perf_counter()
        yield batch
        i += len(batch)
        size = max(1, min(2 * size, int(size * seconds / max(1e-3, time.perf_counter() - started))))


def _folder_stamp(run: Path, part: Part) -> tuple[int, ...] | None:
    """Files are moved into their place, which changes the folder's own time."""
    try:
        status = inside(run, part).stat()
    except (OSError, Outside):
        return None
    return status.st_ino, status.st_mtime_ns


def cache_folder(scratch: Path) -> Path:
    """In the user's cache, closed to everybody else; `scratch` where that cannot be had."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moot" / "view"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # refused where it is somebody else's
        return folder if os.access(folder, os.W_OK) else scratch
    except OSError:
        return scratch


def tidy(folder: Path, days: float = 60) -> None:
    """Indexes nobody has added to for long: the runs may be gone, and making one again takes seconds."""
    for file in folder.glob("*.sqlite*"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > days * 86400:
                file.unlink()


# What is filed


@dataclass(frozen=True)
class Place:
    """Where a debate's line stands in its step's file."""

    stamp: str
    """Of the file: another one has its lines elsewhere."""
    offset: int
    length: int


def line_at(run: Path, step: int, number: int, place: Place | None = None, part: Part = "debates") -> bytes | None:
    """The line of a debate: at its place, where that is known and still so, or by counting lines. None where there is
    none."""
    if place is not None:
        with contextlib.suppress(*UNREADABLE), opened(inside(run, part, step_file(step)), LARGEST) as file:
            if _stamp(os.fstat(file.fileno())) == place.stamp:
                file.seek(place.offset)
                return file.read(place.length)
    return next((line for i, (_, line) in enumerate(lines(run, step, part)) if i == number), None)


def lines(run: Path, step: int, part: Part = "debates") -> Iterator[tuple[int, bytes]]:
    """The debates of a step in the order of its file, each with the place where its line begins."""
    with contextlib.suppress(*UNREADABLE), opened(inside(run, part, step_file(step)), LARGEST) as file:
        yield from lines_in(file, LONGEST_LINE)


def stamps(run: Path, part: Part = "debates") -> dict[int, str]:
    """The run's steps, each with what changes when its file is written anew."""
    stamped = {}
    with contextlib.suppress(OSError, Outside):
        for step, entry in step_files(inside(run, part)):
            with contextlib.suppress(OSError):
                if (status := entry.stat()).st_size <= LARGEST:
                    stamped[step] = _stamp(status)
    return stamped


def _stamp(status: os.stat_result) -> str:
    """Changes when a file is written anew."""
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _row(step: int, place: int, line: bytes) -> tuple[Any, ...]:
    debate = read_summary(line, step, place)
    if isinstance(debate, Damaged):
        row = dict.fromkeys(COLUMNS) | {
            "step": step,
            "number": place,
            "question": "",
            "failures": 0,
            "disagreement": False,
        }
        return tuple((row | {"error": "this record cannot be read", "name": ""}).values())
    return (
        step,
        place,
        clean(debate.question)[:2000],
        debate.num_agents,
        debate.winner,
        debate.signal,
        debate.failed_turns,
        debate.correct,
        debate.winner_correct,
        debate.disagreement,
        None if debate.error is None else clean(debate.error)[:2000],
        clean(debate.name)[:200],
        None if debate.answer is None else clean(debate.answer)[:200],
        debate.agreement,
        debate.reward,
        debate.confidence,
        debate.trusted,
    )
