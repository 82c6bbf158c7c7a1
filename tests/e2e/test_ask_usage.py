"""`moot ask`: wrong usage is told first, in one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.asking import here
from support.making import moot


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "there is no question; ask one"),
        (("  ",), "there is no question; ask one"),
        (("q", "--engine", "openai", "--model", "m"), "engine openai needs --base-url"),
        (("q", "--engine", "openai", "--base-url", "http://x"), "engine openai needs --model"),
        (
            ("q", "--engine", "openai", "--base-url", "x:1", "--model", "m"),
            "base-url must begin with http:// or https://, got 'x:1'",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://[::1", "--model", "m"),
            "base-url must begin with http:// or https://",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://x:99999", "--model", "m"),
            "base-url must begin with http:// or https://",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://me:secret@x/v1", "--model", "m"),
            "must not hold a name or a password",
        ),
        (("q", "--tokenizer", "x"), "tokenizer is for --engine tinker"),
        (("q", "--base-url", "http://x"), "base-url is for --engine openai"),
        (("q", "--seat", "1:m"), "seat must be NUMBER=MODEL@BASE-URL, got '1:m'"),
        (("q", "--seat", "3=m@http://x"), "seat 3 does not exist among 3 agents"),
        (("q", "--seat", "1=m"), "names no server"),
        (("q", "--seat", "1=m@http://x", "--seat", "1=n@http://x"), "seat 1 is given twice"),
        (("q", "--agents", "0"), "agents must be at least 1, got 0"),
        (("q", "--max-tokens", "0"), "max-tokens must be at least 1, got 0"),
        (("q", "--temperature", "-1"), "temperature must be 0 or more, got -1.0"),
        (("q", "--timeout", "0"), "timeout must be above 0 seconds"),
        (("q", "--price-in", "1"), "price-in and price-out go together"),
        (("q", "--engine", "scripted", "--checkpoint", "x"), "checkpoint needs --engine local or tinker"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = here(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_the_help_shows_how_to_begin() -> None:
    done = moot("ask", "--help")
    assert done.returncode == 0
    assert all(
        option in done.stdout
        for option in ("QUESTION", "--seat", "--base-url", "--checkpoint", "--price-in", "OPENAI_API_KEY")
    )
