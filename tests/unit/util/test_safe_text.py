"""Model text on a terminal: nothing in it may move the cursor, reorder a line, or ring."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.util.safe_text import one_line, plain


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\rxyz", "abc\\u000dxyz"),
        ("a\x08b\x7fc", "a\\u0008b\\u007fc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("half \ud800", "half \\ud800"),
        ("line\u2028break", "line\\u2028break"),
    ],
)
def test_what_could_do_harm_is_spelled_out(hostile: str, shown: str) -> None:
    assert plain(hostile) == shown


@pytest.mark.parametrize(
    "text", ["plain", "naïve – “quoted” 中文 🙂 ∑", "two\nlines\tand a tab", "<b>[red]not markup[/red]"]
)
def test_harmless_text_is_left_alone(text: str) -> None:
    assert plain(text) == text


BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_no_control_character_and_no_bidirectional_one_is_left_in_all_of_unicode() -> None:
    everything = "".join(map(chr, range(0x110000)))
    left = {char for char in plain(everything) if char not in "\n\t"}
    assert [hex(ord(char)) for char in left if unicodedata.category(char) in ("Cc", "Cs")] == []
    assert [hex(ord(char)) for char in left if unicodedata.bidirectional(char) in BIDIRECTIONAL] == []


@pytest.mark.parametrize("mark", ["\u200e", "\u200f", "\u061c"])
def test_the_invisible_marks_that_reorder_text_are_spelled_out(mark: str) -> None:
    """Left-to-right, right-to-left and Arabic letter mark."""
    assert mark not in plain(f"a{mark}b")


@given(st.text(), st.integers(2, 100))
def test_one_line_is_one_line_of_the_width(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width
    assert "\n" not in line
    assert line == plain(line)


def test_a_long_line_says_that_it_was_cut() -> None:
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("  a \n\n b ", 10) == "a b"
