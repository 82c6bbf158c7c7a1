"""JSON that somebody else wrote: whatever is wrong with it is one kind of error, and says where in the text."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from moot.errors import ConfigError


def read_json(text: str | bytes, strict: bool = False) -> Any:
    """ConfigError where it is none. `strict` refuses NaN and Infinity, which Python reads and JSON has not."""
    try:
        return json.loads(text, parse_constant=_no_number if strict else None)
    except json.JSONDecodeError as error:
        # Of a single line only the column is told: whoever read it knows which line of a file it is.
        line = f"line {error.lineno}, " if "\n" in error.doc.rstrip("\n") else ""
        raise ConfigError(f"not JSON: {error.msg.removesuffix(' at')} at {line}column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, a number without end, brackets without end
        raise ConfigError(f"not JSON: {error}") from None


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
