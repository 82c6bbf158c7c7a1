"""Text that may be shown on a terminal. Models write escape codes, bidirectional tricks and bells."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def plain(text: str) -> str:
    """The text with everything that could move the cursor or reorder the line shown as its code point."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str, width: int = 80) -> str:
    """A single line of at most `width` characters."""
    flat = " ".join(plain(text[: 4 * width]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def counted(number: int, thing: str) -> str:
    """`1 question`, `2 questions`."""
    return f"{number} {thing}{'s' * (number != 1)}"
