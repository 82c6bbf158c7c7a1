"""A user's own Python: `path.py:function`, for rewards, estimators and tasks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError


def load(reference: str, what: str) -> Callable[..., Any]:
    """The function, or a ConfigError that says which part of the reference is wrong."""
    file, _, name = reference.rpartition(":")
    path = Path(file).expanduser()
    if not file or not name:
        raise ConfigError(f"{what} must be a known name or path.py:function, got {reference!r}")
    if not path.is_file():
        raise ConfigError(f"{what} {reference!r}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"moot_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what} {reference!r}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{what} {reference!r}: {path} fails when it is loaded: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{what} {reference!r}: {path} has no function {name!r}")
    return function  # type: ignore[no-any-return]
