"""A user's own Python: `path.py:function` for rewards, estimators and tasks, `path.py:Class` for parts of training."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from moot.errors import ConfigError

Kind = TypeVar("Kind")

_LOADING: set[Path] = set()
"""Files whose code is running because they were named."""


class NamesItself(ConfigError):
    """A script names itself, and would load itself for ever."""


def is_users(reference: str) -> bool:
    """Whether it is written as `path.py:function`; the names of our own have no colon after `.py`."""
    return ".py:" in reference


@contextlib.contextmanager
def trying(reference: str, what: str) -> Iterator[None]:
    """Around a call of a user's function: what fails in it is told with file, line and message, without our stack."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        place = _line(error, Path(reference.rpartition(":")[0]).expanduser())
        raise ConfigError(f"{what} {reference!r} fails: {type(error).__name__}: {error}{place}") from error


def _line(error: Exception, file: Path) -> str:
    """` (mine.py:12)`: the last line of the user's file that the error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f" ({file}:{lines[-1]})" if lines else ""


def load(reference: str, what: str) -> Callable[..., Any]:
    """The function, or a ConfigError that says which part of the reference is wrong."""
    function = _attribute(reference, what, "function")
    if not callable(function):
        file, _, name = reference.rpartition(":")
        raise ConfigError(f"{what} {reference!r}: {file} has no function {name!r}")

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        with trying(reference, what):
            return function(*arguments, **named)

    return guarded


def load_class(reference: str, what: str, base: type[Kind]) -> type[Kind]:
    """The class, which must be made of `base`."""
    kind = _attribute(reference, what, "Class")
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise ConfigError(f"{what} {reference!r} must be a class made of {base.__module__}.{base.__name__}")
    return kind


def _attribute(reference: str, what: str, form: str) -> Any:
    file, _, name = reference.rpartition(":")
    path = Path(file).expanduser()
    if not file or not name:
        raise ConfigError(f"{what} must be a known name or path.py:{form}, got {reference!r}")
    if not path.is_file():
        raise ConfigError(f"{what} {reference!r}: there is no file {path}")
    if path.resolve() in _LOADING:
        guard = 'put what starts it under if __name__ == "__main__":'
        raise NamesItself(f"{what} {reference!r}: {path} is loaded for its function and starts this again; {guard}")
    spec = importlib.util.spec_from_file_location(f"moot_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what} {reference!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    _LOADING.add(path.resolve())
    try:
        spec.loader.exec_module(module)
    except NamesItself:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}{_line(error, path)}"
        raise ConfigError(f"{what} {reference!r}: {path} fails when it is loaded: {why}") from error
    finally:
        _LOADING.discard(path.resolve())
    return getattr(module, name, None)
