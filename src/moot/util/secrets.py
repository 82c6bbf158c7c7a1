"""Secrets: keys that must not be shown.

A server may repeat the key it was given, in an error or in the middle of an answer. Whatever was given as a key is
therefore struck out of every message and record that a server has a part in. The list is one for the whole process: a
message may pass through many hands.
"""

from __future__ import annotations

STRUCK_OUT = "[key]"
SHORTEST = 8
"""A shorter one (`none`, `EMPTY`) is no secret, and would be struck out of ordinary words."""

_keys: set[str] = set()


def keep_secret(key: str | None) -> None:
    if key and len(key) >= SHORTEST:
        _keys.add(key)


def redact(text: str) -> str:
    for key in sorted(_keys, key=len, reverse=True):
        text = text.replace(key, STRUCK_OUT)
    return text


def held_back(text: str, key: str | None) -> int:
    """How many characters at a text's end may begin the key: not to be shown before more has come."""
    if key is None or key not in _keys:
        return 0
    return next((n for n in range(min(len(key) - 1, len(text)), 0, -1) if text.endswith(key[:n])), 0)
