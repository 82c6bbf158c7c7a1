"""Text to sections and comparisons. Never raises, and takes time linear in the text whatever the text.

The patterns use possessive quantifiers (`*+`), so that a failed match never goes back over what it has read.
Tags match in any ASCII case: Unicode case folding would let look-alikes such as a long s through.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate, islice
from typing import Literal, NamedTuple

from moot.debate.types import Line, Parsed, ParseFailure

BALLOT = "ballot"
"""The contract of a turn that only judges. A solution written all the same stands before the first section and is not
read."""
FIRST = ("solution", "evaluation", "comparison")


class Further(NamedTuple):
    """A section that a contract adds to the first three, anywhere among them. It is short."""

    form: str
    """What a message in tags shows between its tags."""
    agreed: str
    """What a script writes where the answers agree."""
    open: str
    """What it writes where they do not."""


FURTHER = {
    "consensus": Further("YES or NO", "YES", "NO"),
    "consensus_reason": Further(" the reason ", "The answers agree now.", "It is too early to tell."),
}
Contract = Literal["three_tag", "five_tag"]
CONTRACTS: dict[str, tuple[str, ...]] = {
    "three_tag": FIRST,
    "five_tag": (*FIRST, "consensus", "consensus_reason"),
    BALLOT: ("evaluation", "comparison"),
}
SECTIONS = (*FIRST, *FURTHER)

ANY_TAG = re.compile(rf"</?(?:{'|'.join(SECTIONS)})>", re.I | re.A)
THINK = re.compile(r"</?think>", re.I | re.A)
_THINK_END = re.compile(r"</think>", re.I | re.A)
_YES_OR_NO = re.compile(r"yes|no", re.I | re.A)
_SAYS_YES_OR_NO = re.compile(r"\b(?:yes|no)\b", re.I | re.A)


@cache
def _tags(contract: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?)({'|'.join(CONTRACTS[contract])})>", re.I | re.A)


def stop_marker(contract: str) -> str:
    return f"</{CONTRACTS[contract][-1]}>"


def parse(text: str, contract: str, closed: bool = True, any_consensus: bool = False) -> Parsed | ParseFailure:
    """`closed` says whether a missing last closing tag is forgiven: sampling stopped on it, or nobody can know. With
    `any_consensus` the first YES or NO in that section is read, and without one it is NO."""
    end = last_think_end(text)
    if end is not None and isinstance(after := _parse_from(text, end, contract, closed, any_consensus), Parsed):
        return after
    return _parse_from(text, 0, contract, closed, any_consensus)


def last_think_end(text: str) -> int | None:
    """Where the thinking is over; None where it never ended."""
    end = None
    for match in _THINK_END.finditer(text):
        end = match.end()
    return end


def _parse_from(raw: str, start: int, contract: str, closed: bool, any_consensus: bool) -> Parsed | ParseFailure:
    kept = _without_think_markers(raw, start)
    text = "".join(raw[a:b] for a, b in kept)
    starts = list(accumulate((b - a for a, b in kept), initial=0))

    def raw_index(i: int) -> int:
        piece = bisect_right(starts, i) - 1
        return kept[piece][0] + i - starts[piece]

    names = CONTRACTS[contract]
    expected = [(slash, name) for name in names for slash in ("", "/")]
    fields: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    opened, content = 0, 0
    position = 0
    for match in islice(_tags(contract).finditer(text), len(expected)):
        slash, name = match[1], match[2].lower()
        if (slash, name) != expected[position]:
            want = "<{}{}>".format(*expected[position])
            return ParseFailure(f"expected {want}, found <{slash}{name}>")
        if slash:
            fields[name] = text[content : match.start()].strip()
            spans[name] = (raw_index(opened), raw_index(match.end() - 1) + 1)
        else:
            opened, content = match.start(), match.end()
        position += 1
    if position < len(expected):
        want = "<{}{}>".format(*expected[position])
        if position == 0:
            return ParseFailure(f"no {want} in the text")
        if position < len(expected) - 1:
            return ParseFailure(f"the text ends before {want}")
        if not closed:
            return ParseFailure(f"sampling ended before {want}")
        fields[names[-1]] = text[content:].strip()
        spans[names[-1]] = (raw_index(opened), len(raw))

    if any_consensus and "consensus" in fields:
        said = _SAYS_YES_OR_NO.search(fields["consensus"])
        fields["consensus"] = said[0].upper() if said else "NO"
    if "consensus" in fields and not _YES_OR_NO.fullmatch(fields["consensus"]):
        return ParseFailure(f"consensus is {_short(fields['consensus'])}, not YES or NO")
    return Parsed(fields, spans, comparison_lines(fields["comparison"]))


def _without_think_markers(raw: str, start: int) -> list[tuple[int, int]]:
    kept = []
    for match in THINK.finditer(raw, start):
        kept.append((start, match.start()))
        start = match.end()
    return [*kept, (start, len(raw))]


def _short(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")


# Spacing and emphasis may stand around a name, never inside it.
_GAP = r"[\s*_`]*+"
_NAME = r"(?i:agent)\s*+([0-9]++)"
_COMPARISON = re.compile(rf"\s*+(?:[-*•]|[0-9]++[.)])?+{_GAP}{_NAME}{_GAP}([>=]){_GAP}{_NAME}")
_ANOTHER = re.compile(rf"[<>=]{_GAP}{_NAME}")
# A fence may name a language: one word.
_SILENT = re.compile(r"\s*+(?:(?i:n/a)\.?|`{3,}+\s*+[^\s`]*+|~{3,}+\s*+[^\s~]*+)?+\s*+")


def comparison_lines(content: str) -> tuple[Line, ...]:
    return tuple(_line(line) for line in content.split("\n"))


def _line(line: str) -> Line:
    if (match := _COMPARISON.match(line)) and not _ANOTHER.search(line, match.end()):
        return Line("comparison", agent_number(match[1]), agent_number(match[3]), ">" if match[2] == ">" else "=")
    return Line("silent" if _SILENT.fullmatch(line) else "other")


OUT_OF_RANGE = 10**9


def agent_number(digits: str) -> int:
    """Python refuses to read integers of thousands of digits; nobody seats a billion agents, so those are all alike."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= 9 else OUT_OF_RANGE
