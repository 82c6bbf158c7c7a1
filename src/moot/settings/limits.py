"""Limits of settings. They stand at their fields, as in `batch_size: Annotated[int, Ge(1)]`."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_type_hints

from annotated_types import Ge as Ge
from annotated_types import Le as Le

from moot.errors import ConfigError


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
