"""Text to sections: what is accepted, what is not and why, where sections stand, and that no text is too much."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from moot.debate.parsing import CONTRACTS, comparison_lines, parse, stop_marker
from moot.debate.types import Parsed, ParseFailure
from support.counted_work import grows_linearly

GOOD = "<solution>S</solution><evaluation>E</evaluation><comparison>C</comparison>"
FIVE = GOOD + "<consensus>YES</consensus><consensus_reason>R</consensus_reason>"


def fields(text: str, contract: str = "three_tag", closed: bool = True) -> dict[str, str] | None:
    parsed = parse(text, contract, closed)
    return dict(parsed.fields) if isinstance(parsed, Parsed) else None


def reason(text: str, contract: str = "three_tag", closed: bool = True) -> str:
    parsed = parse(text, contract, closed)
    assert isinstance(parsed, ParseFailure), f"{text!r} was read as {parsed}"
    return parsed.reason


SEC = {"solution": "S", "evaluation": "E", "comparison": "C"}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "Sure, here it is: " + GOOD,
        GOOD + " and that is that",
        # What follows the last section is not read, not even tags.
        GOOD + GOOD,
        GOOD + "</solution><comparison>",
        # Text between sections is ignored.
        GOOD.replace("><", ">\n between \n<"),
        GOOD.replace("S", " \n S\t").replace("C", "\u3000C\r\n"),
        GOOD.upper(),
        "<SoLuTiOn>S</sOLUTION><evaluation>E</evaluation><Comparison>C</COMPARISON>",
        # A fence around the response is outside every section.
        f"```xml\n{GOOD}\n```",
        # Tags of other names, attributes, spaces and slashes are plain text before the first tag.
        "<b> <solution x='1'> < solution> <solution/> </ solution> <solutions> " + GOOD,
        "\ufeff" + GOOD,
    ],
)
def test_accepted(text: str) -> None:
    assert fields(text) == SEC


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no <solution>"),
        ("I do not know.", "no <solution>"),
        ("<" * 100, "no <solution>"),
        (GOOD.replace("<solution>", ""), "expected <solution>, found </solution>"),
        (GOOD.replace("</solution>", ""), "expected </solution>, found <evaluation>"),
        (GOOD.replace("<evaluation>E</evaluation>", ""), "expected <evaluation>, found <comparison>"),
        (GOOD.replace("S", "S<solution>"), "expected </solution>, found <solution>"),
        (GOOD.replace("E", "E<comparison>x</comparison>"), "expected </evaluation>, found <comparison>"),
        (GOOD.replace("<comparison>C</comparison>", ""), "ends before <comparison>"),
        (GOOD.replace("</evaluation><comparison>C</comparison>", ""), "ends before </evaluation>"),
        ("<evaluation>E</evaluation>" + GOOD, "expected <solution>, found <evaluation>"),
        ("I start with <solution>. " + GOOD, "expected </solution>, found <solution>"),
        (GOOD.replace("<solution>", "<solution id='1'>"), "found </solution>"),
        # Letters that only look alike: a long s.
        (GOOD.replace("solution", "ſolution"), "found <evaluation>"),
        (GOOD.replace("<", "&lt;"), "no <solution>"),
    ],
)
def test_refused_with_the_reason(text: str, why: str) -> None:
    assert why in reason(text)


def test_an_empty_section_is_content() -> None:
    assert fields("<solution></solution><evaluation> </evaluation><comparison></comparison>") == dict.fromkeys(SEC, "")


def test_a_fence_inside_a_section_is_content() -> None:
    assert (fields(GOOD.replace("S", "```\ncode\n```")) or {})["solution"] == "```\ncode\n```"


# Only the last closing tag may be missing


def test_the_last_closing_tag_may_be_missing_where_sampling_stopped_on_it() -> None:
    cut = GOOD.removesuffix("</comparison>")
    assert fields(cut, closed=True) == SEC
    assert "sampling ended before </comparison>" in reason(cut, closed=False)
    cut = FIVE.removesuffix("</consensus_reason>")
    assert (fields(cut, "five_tag", closed=True) or {})["consensus_reason"] == "R"
    assert "sampling ended before </consensus_reason>" in reason(cut, "five_tag", closed=False)


def test_a_cut_tag_is_content_where_that_is_forgiven() -> None:
    """Half a closing tag is not one: it stays in the section."""
    assert (fields(GOOD.removesuffix("arison>")) or {})["comparison"] == "C</comp"


def test_whether_sampling_stopped_does_not_matter_to_a_closed_response() -> None:
    assert fields(GOOD, closed=False) == fields(GOOD, closed=True) == SEC


def test_the_stop_marker_is_the_last_closing_tag() -> None:
    assert (stop_marker("three_tag"), stop_marker("five_tag")) == ("</comparison>", "</consensus_reason>")


# Five tags


@pytest.mark.parametrize("word", ["YES", "NO", "yes", "No", " yEs \n", "<think>YES</think>"])
def test_consensus_is_yes_or_no_in_any_case(word: str) -> None:
    assert fields(FIVE.replace("YES", word), "five_tag") is not None


@pytest.mark.parametrize("word", ["", "MAYBE", "YES.", "**YES**", "YES NO", "Y E S", "yeſ", "ja", "x" * 10_000])
def test_anything_else_is_not(word: str) -> None:
    why = reason(FIVE.replace("YES", word), "five_tag")
    assert "not YES or NO" in why
    assert len(why) < 100


def test_three_tags_do_not_make_five() -> None:
    assert "ends before <consensus>" in reason(GOOD, "five_tag")


def test_the_tags_of_the_longer_contract_are_plain_text_in_the_shorter() -> None:
    assert fields(FIVE.replace("S", "<consensus>NO</consensus>")) == {**SEC, "solution": "<consensus>NO</consensus>"}


# Thinking


@pytest.mark.parametrize(
    "text",
    [
        f"<think>hm</think>{GOOD}",
        f"<THINK>hm</Think>{GOOD}",
        f"<think></think>\n\n{GOOD}",
        # A draft inside the thinking: only what follows the last marker counts.
        f"<think>{GOOD.replace('S', 'draft')}</think>{GOOD}",
        f"{GOOD.replace('S', 'draft')}</think>{GOOD}",
        f"<think>a</think>{GOOD.replace('S', 'draft')}</think>{GOOD}",
        "<think>first <solution> then <comparison></think>" + GOOD,
        # Never closed, or everything inside, or a marker after the end: the whole is read.
        f"<think>{GOOD}",
        f"<think>{GOOD}</think>",
        f"{GOOD} </think>",
        f"{GOOD}</think> and <solution>",
        # Markers inside a section vanish; what is between them stays.
        GOOD.replace("S", "<think>S</think>"),
        GOOD.replace("C", "<think>C"),
        GOOD.replace("E", "</think>E"),
        # A marker inside a tag vanishes first.
        GOOD.replace("<solution>", "<solu<think>tion>"),
    ],
)
def test_thinking_is_dropped_and_what_it_says_is_kept(text: str) -> None:
    assert fields(text) == SEC


def test_a_bad_tail_after_thinking_falls_back_to_the_whole() -> None:
    """A good answer, then `</think>`, then one with a bad consensus: the tail fails, the whole begins with the good one."""
    assert (fields(FIVE + "</think>" + FIVE.replace("YES", "MAYBE").replace("S", "T"), "five_tag") or {})[
        "solution"
    ] == "S"


def test_other_tags_that_begin_with_think_are_no_markers() -> None:
    assert (fields(GOOD.replace("S", "<thinking>S</thinking>")) or {})["solution"] == "<thinking>S</thinking>"


def test_a_missing_last_tag_is_judged_on_the_tail_too() -> None:
    cut = GOOD.removesuffix("</comparison>")
    assert fields(f"<think>x</think>{cut}") == SEC
    assert "sampling ended" in reason(f"<think>x</think>{cut}", closed=False)


# Spans


def test_spans_by_hand() -> None:
    parsed = parse("ab<think>" + GOOD + "x", "three_tag")
    assert isinstance(parsed, Parsed)
    # Nine characters stand before; <solution>S</solution> has 22, <evaluation>E</evaluation> 26, <comparison>C</comparison> 26.
    assert dict(parsed.spans) == {"solution": (9, 31), "evaluation": (31, 57), "comparison": (57, 83)}


def test_a_span_without_its_closing_tag_goes_to_the_end_of_the_text() -> None:
    parsed = parse(GOOD.removesuffix("</comparison>") + "  ", "three_tag")
    assert isinstance(parsed, Parsed)
    assert parsed.spans["comparison"] == (48, 63)


PIECES = [
    *(f"<{slash}{name}>" for name in CONTRACTS["five_tag"] for slash in ("", "/")),
    "<think>", "</think>", "<THINK>", "</Think>", "<SOLUTION>", "</Comparison>", "<", ">", "</", "/", "YES", "no", " ", "\n", "x",
    "Agent 0 > Agent 1", "\n", "=", "Agent", "12", "*", "```", "N/A", "é", "\U0001f642", "\ud800", "\x00", "İ", "ſ",
]  # fmt: skip
soup = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


@st.composite
def responses(draw: st.DrawFn, contracts: tuple[str, ...] = tuple(sorted(CONTRACTS))) -> tuple[str, str]:
    """Mostly good responses, bent a little: otherwise hardly anything would parse."""
    contract = draw(st.sampled_from(contracts))
    filler = st.lists(
        st.sampled_from([piece for piece in PIECES if "<" not in piece or "hink" in piece.lower()]), max_size=6
    ).map("".join)
    text = draw(filler)
    for name in CONTRACTS[contract]:
        content = draw(st.sampled_from(["YES", " no "])) if name == "consensus" else draw(filler)
        text += f"<{name}>{content}</{name}>{draw(filler)}"
    match draw(st.integers(0, 5)):
        case 0:
            text = text[: draw(st.integers(0, len(text)))]
        case 1:
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
        case 2:
            text = text.swapcase() if len(text.swapcase()) == len(text) else text
    return contract, text


def check(text: str, contract: str, closed: bool) -> None:
    """Against the specification's words: spans are in order and apart, begin and end with their tags, and hold their field."""
    parsed = parse(text, contract, closed)
    if isinstance(parsed, ParseFailure):
        assert parsed.reason
        return
    names = CONTRACTS[contract]
    assert tuple(parsed.fields) == tuple(parsed.spans) == names
    end = 0
    for name in names:
        a, b = parsed.spans[name]
        assert end <= a < b <= len(text)
        end = b
        inside = re.sub("(?i)</?think>", "", text[a:b], flags=re.ASCII)
        assert text[a] == "<"
        assert inside[: len(name) + 2].lower() == f"<{name}>"
        closes = inside[-len(name) - 3 :].lower() == f"</{name}>"
        assert closes or (closed and name == names[-1] and b == len(text))
        content = inside[len(name) + 2 : -len(name) - 3 if closes else None]
        assert parsed.fields[name] == content.strip()
    assert parsed.lines == comparison_lines(parsed.fields["comparison"])


@settings(max_examples=400)
@given(soup, st.sampled_from(sorted(CONTRACTS)), st.booleans())
def test_no_text_raises(text: str, contract: str, closed: bool) -> None:
    check(text, contract, closed)


@settings(max_examples=400)
@given(responses(), st.booleans())
def test_spans_and_fields_of_near_good_responses(response: tuple[str, str], closed: bool) -> None:
    contract, text = response
    check(text, contract, closed)


@settings(max_examples=400)
@given(responses(contracts=("five_tag", "three_tag")))
def test_the_oracle_reads_the_same_fields(response: tuple[str, str]) -> None:
    contract, text = response
    expected, _ = oracle.parse(text, contract)
    assert fields(text, contract) == expected


# Work linear in the length. At two million characters a quadratic step would take hours, and the suite's time limit ends it.

LONG = 2_000_000


def filled(piece: str, length: int) -> str:
    return piece * (length // len(piece))


def in_comparison(line: str) -> str:
    return f"<solution>S</solution><evaluation>E</evaluation><comparison>{line}</comparison>"


MONSTERS: dict[str, Callable[[int], str]] = {
    "opening brackets": lambda n: filled("<", n),
    "half tags": lambda n: filled("</solution", n),
    "opening tags": lambda n: filled("<solution>", n),
    "think markers": lambda n: filled("</think>", n) + GOOD,
    "think markers in a section": lambda n: GOOD.replace("S", filled("<think>x", n)),
    "whole responses": lambda n: filled(GOOD, n),
    "an open solution": lambda n: "<solution>" + filled("< /", n),
    "white space": lambda n: GOOD.replace("S", filled(" ", n)),
    "one line of emphasis": lambda n: in_comparison(filled("*", n)),
    "emphasis before a bad name": lambda n: in_comparison("Agent 0 > " + filled("*_`", n) + "x"),
    "one line of operators": lambda n: in_comparison("Agent 0 > Agent 1 " + filled("= ", n)),
    "operators and names": lambda n: in_comparison("Agent 0 > Agent 1 " + filled("=agent ", n)),
    "operators and emphasis": lambda n: in_comparison("Agent 0 > Agent 1 =" + filled("**", n)),
    "digits": lambda n: in_comparison(filled("1", n)),
    "a long number": lambda n: in_comparison(f"Agent {filled('9', n)} > Agent 1"),
    "list markers": lambda n: in_comparison(filled("1.", n)),
    "backticks": lambda n: in_comparison(filled("`", n)),
    "a fence and white space": lambda n: in_comparison("```" + filled(" ", n) + "x y"),
    "N/A and white space": lambda n: in_comparison("N/A" + filled("\t", n) + "x"),
    "names": lambda n: in_comparison(filled("Agent 0 ", n)),
    "lines": lambda n: in_comparison(filled("Agent 0 > Agent 1\n", n)),
    "empty lines": lambda n: in_comparison("x" + filled("\n       ", n) + "x"),
}


@pytest.mark.parametrize("name", MONSTERS)
def test_work_is_linear(name: str) -> None:
    text = MONSTERS[name](LONG)
    assert len(text) > 0.9 * LONG
    parse(text, "three_tag")
    parse(text, "five_tag", closed=False)
    assert grows_linearly(lambda size: parse(MONSTERS[name](size), "three_tag"))
    assert grows_linearly(lambda size: parse(MONSTERS[name](size), "five_tag", closed=False))


def test_ten_megabytes_of_brackets() -> None:
    assert "no <solution>" in reason("<" * 10_000_000)
