"""Limits of settings. They stand at their fields, as in `batch_size: Annotated[int, Ge(1)]`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from annotated_types import Ge as Ge
from annotated_types import Le as Le

from moot.errors import ConfigError

ON_RESUME = "may change when a run continues"
"""Beside the limits of settings that say how far a run goes, how often it looks, and where it runs. All others would
make the steps before and after two different runs."""


def check_limits(settings: Any) -> None:
    """Refuses by name the first value outside the limits of its field, and a float that is no number."""
    hints = get_type_hints(type(settings), include_extras=True)
    for name in (field.name for field in fields(settings)):
        value = getattr(settings, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} must be a number, got {value}")
        limits = getattr(hints[name], "__metadata__", ()) if isinstance(value, int | float) else ()
        for limit in limits:  # what is no number is found where types are checked
            if isinstance(limit, Ge) and value < limit.ge:
                least = f"at least {limit.ge}" if limit.ge else "0 or more"
                raise ConfigError(f"{name} must be {least}, got {value}")
            if isinstance(limit, Le) and value > limit.le:
                raise ConfigError(f"{name} must be at most {limit.le}, got {value}")


def changeable(settings: Any) -> Iterator[str]:
    """Those settings, with those of its parts."""
    hints = get_type_hints(type(settings), include_extras=True)
    for name, value in ((field.name, getattr(settings, field.name)) for field in fields(settings)):
        if ON_RESUME in getattr(hints[name], "__metadata__", ()):
            yield name
        elif is_dataclass(value):
            yield from changeable(value)
