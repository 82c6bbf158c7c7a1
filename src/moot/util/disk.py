"""Files on disk: a kill tears nothing, no link leads a write elsewhere, and nothing is read without end.

Whatever is written goes beside its place, under a name that nobody else has, and is moved there once it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from moot.errors import ConfigError

LARGEST = 2**29
"""Bytes of a file that is read at once: a sparse file of any size costs nothing to send."""
_ODD = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device"}
_ODD[stat.S_IFBLK] = _ODD[stat.S_IFCHR]


# Reading


def opened(path: Path, largest: float = LARGEST) -> BinaryIO:
    """A file to read. ConfigError where it is a pipe or the like, or has more than `largest` bytes."""
    _refuse_odd(path, path.stat())  # before it is opened, because to open a device may do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        _refuse_odd(path, status)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if status.st_size > largest:
            raise ConfigError(f"{path} has {status.st_size:,} bytes, and at most {largest:,} are read; is it damaged?")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """All of a file; ConfigError as `opened`."""
    with opened(path, largest) as file:
        return file.read(largest)


def _refuse_odd(path: Path, status: os.stat_result) -> None:
    if kind := _ODD.get(stat.S_IFMT(status.st_mode)):
        raise ConfigError(
            f"{path} is {kind}, and a plain file or folder is wanted there; put back what moot wrote, or name another"
        )


def refuse_links(folder: Path, parts: Collection[str]) -> None:
    """ConfigError that names the first link, pipe, socket or device among these parts of a folder, and in them.

    Somebody else may have made it, and what is written there would change a file elsewhere."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in parts or not parts:
                _refuse_odd(Path(entry.path), entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False):
                    refuse_links(Path(entry.path), ())


# Writing


def _unique(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex[:12]}.{suffix}")


@contextlib.contextmanager
def beside(target: Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the target's place once it is whole."""
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    made = _unique(target, "tmp")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)


def write_atomically(target: Path, content: bytes) -> None:
    with beside(target) as file:
        file.write(content)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it takes the target's place once it is whole, and what was there before goes only then."""
    made, old = _unique(target, "tmp"), _unique(target, "old")
    try:
        made.mkdir()
        yield made
        for item in (*made.iterdir(), made):
            sync(item)
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        try:
            made.rename(target)
        except OSError:
            with contextlib.suppress(OSError):
                old.rename(target)
            raise
        sync(target.parent)
    finally:
        for left in (made, *([old] if os.path.lexists(target) else [])):  # never the only one there is
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """A file or a folder, so that a power cut does not take away what was written or moved there."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_to_append(path: Path) -> BinaryIO:
    """A file to add lines to, each whole and at once. A last line that was cut short is ended first."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            _refuse_odd(path, path.lstat())
        raise
    file = os.fdopen(handle, "ab", buffering=0)
    try:
        _refuse_odd(path, status := os.fstat(handle))
        if status.st_size and os.pread(handle, 1, status.st_size - 1) != b"\n":
            file.write(b"\n")
    except BaseException:
        file.close()
        raise
    return file
