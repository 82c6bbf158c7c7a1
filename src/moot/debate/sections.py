"""A turn that is spoken in parts, one per section, and the text it comes to.

    sampled   the model writes the contract's tags itself: one part, and nothing here applies
    given     the tags are inserted, and each section is sampled up to its closing tag
    asked     no tags; each section is its own short exchange in the conversation

Whatever the way, the turn's text holds the same sections in the contract's order, so parsing, votes, credit and the
page see no
difference. A section ends at the first tag of the contract that its author writes: nobody breaks out of a section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from moot.debate.parsing import ANY_TAG, BALLOT, CONTRACTS, FURTHER, THINK
from moot.debate.types import Said, Turn

Sections = Literal["sampled", "given", "asked"]

NOTHING = "N/A"
CUT = "the solution was cut at its token limit"
"""What stands in a section that there was no reason to fill."""


def plan(contract: str, others: int, judge_first: bool) -> tuple[str, ...]:
    """The sections to speak, in order, for somebody with so many others to judge. The rest of the contract is N/A.

    The order is the contract's. With `judge_first`, all that it has up to the solution comes after the judging.
    """
    judging = ("evaluation", "comparison")[: min(2, others)]
    if contract == BALLOT:
        return judging or ("evaluation",)
    spoken = tuple(name for name in CONTRACTS[contract] if name in ("solution", *judging, *FURTHER))
    if not (judge_first and judging):
        return spoken
    solved, judged = spoken.index("solution") + 1, spoken.index(judging[-1]) + 1
    return spoken[solved:judged] + spoken[:solved] + spoken[judged:]


def is_filled(turn: Turn) -> bool:
    """Whether a solution stands there, and not only the word for none."""
    return turn.fields is not None and turn.fields["solution"] != NOTHING


@dataclass(frozen=True)
class Piece:
    """Where the content of one section stands: in its reply, and in the turn's text."""

    lead: int
    """Characters of the reply before the content."""
    length: int
    start: int
    """Of the content in the turn's text."""

    def place(self, character: int) -> int:
        """The character of the turn's text that a character of the reply became. What was cut away stands at the end of
        the section."""
        return self.start + min(max(character - self.lead, 0), self.length)


def content_of(reply: str) -> tuple[int, str]:
    """What a reply says in its section, and how many characters stand before that."""
    # Thinking is no part of a section. Where it has no end there is nothing else.
    begin = 0
    for marker in THINK.finditer(reply):
        if marker[0].startswith("</"):
            begin = marker.end()
    said = reply[begin:]
    stripped = said.lstrip()
    # What is left out may join two halves to a tag or to another marker: the section ends there too.
    plain = THINK.sub("", stripped)
    ends = [found.start() for found in (ANY_TAG.search(plain), THINK.search(plain)) if found]
    return begin + len(said) - len(stripped), plain[: min(ends, default=len(plain))].rstrip()


def asked_text(contract: str, replies: Mapping[str, str]) -> tuple[str, dict[str, Piece]]:
    """The text of a turn whose sections were asked for one by one, in the contract's order; and where each reply
    went."""
    text, pieces = "", {}
    for name in CONTRACTS[contract]:
        lead, content = content_of(replies[name]) if name in replies else (0, NOTHING)
        text += f"{'' if not text else chr(10)}<{name}>"
        if name in replies:
            pieces[name] = Piece(lead, len(content), len(text))
        text += f"{content}</{name}>"
    return text, pieces


# Tags that are given


def stop_tags(contract: str) -> tuple[str, ...]:
    """At any tag of the contract a section is over."""
    return tuple(f"<{slash}{name}>" for name in CONTRACTS[contract] for slash in ("/", ""))


def kept_length(section: str, reply: str) -> int:
    """How much of a reply stays in the turn: all of it, up to and with the section's own closing tag, or up to any
    other tag."""
    tag, hidden = ANY_TAG.search(reply), _hidden_tag(reply)
    if tag is None or (hidden is not None and hidden < tag.start()):
        return len(reply) if hidden is None else hidden
    return tag.end() if tag[0].lower() == f"</{section}>" else tag.start()


def kept(section: str, reply: str) -> str:
    """What stays in the turn of a reply whose tag was given."""
    length = kept_length(section, reply)
    rest = reply[length:]
    # The last token of a closing tag may hold the beginning of what would follow. Between two sections that is read by
    # nobody.
    return (
        reply if is_closed(section, reply) and not ANY_TAG.search(rest) and not THINK.search(rest) else reply[:length]
    )


def _hidden_tag(reply: str) -> int | None:
    """Where a tag begins that has a marker of thinking inside. A parser reads it without the marker, as a tag."""
    places: list[int] = []
    last = 0
    for marker in THINK.finditer(reply):
        places += range(last, marker.start())
        last = marker.end()
    if not last:
        return None
    places += range(last, len(reply))
    for tag in ANY_TAG.finditer("".join(reply[i] for i in places)):
        if places[tag.end() - 1] - places[tag.start()] >= len(tag[0]):
            return places[tag.start()]
    return None


def is_closed(section: str, reply: str) -> bool:
    """Whether a reply ends its section itself."""
    tag, hidden = ANY_TAG.search(reply), _hidden_tag(reply)
    return tag is not None and tag[0].lower() == f"</{section}>" and (hidden is None or tag.start() < hidden)


def opening(contract: str, spoken: Sequence[str], replies: Sequence[str]) -> str:
    """What is inserted before the next part: the end of the section before it, sections with nothing to say, and the
    next tag."""
    return _closed(spoken, replies) + _filled(contract, spoken, len(replies)) + f"<{spoken[len(replies)]}>\n"


def closing(contract: str, spoken: Sequence[str], replies: Sequence[str]) -> str:
    """What is inserted after the last part."""
    return (_closed(spoken, replies) + _filled(contract, spoken, len(replies))).rstrip()


def _closed(spoken: Sequence[str], replies: Sequence[str]) -> str:
    if not replies:
        return ""
    last, section = replies[-1], spoken[len(replies) - 1]
    line = "" if last.endswith("\n") else "\n"
    return line if is_closed(section, last) else f"{line}</{section}>\n"


def _filled(contract: str, spoken: Sequence[str], done: int) -> str:
    """Sections of the contract between the last one spoken and the next one."""
    names = CONTRACTS[contract]
    first = names.index(spoken[done - 1]) + 1 if done else 0
    last = names.index(spoken[done]) if done < len(spoken) else len(names)
    return "".join(f"<{name}>{NOTHING}</{name}>\n" for name in names[first:last])


def spoken_so_far(contract: str, spoken: Sequence[str], replies: Sequence[str]) -> str:
    """A turn with given tags up to where the next part begins."""
    return "".join(opening(contract, spoken, replies[:i]) + reply for i, reply in enumerate(replies)) + opening(
        contract, spoken, replies
    )


def given_text(contract: str, spoken: Sequence[str], replies: Sequence[str]) -> str:
    """The text of a turn whose tags were given: what was inserted and what was said, in order."""
    parts = [opening(contract, spoken, replies[:i]) + reply for i, reply in enumerate(replies)]
    return "".join(parts) + closing(contract, spoken, replies)


def joined(way: Sections, contract: str, spoken: Sequence[str], said: Sequence[Said]) -> Said:
    """The parts of a turn as one. An empty solution, or one that was cut at its limit, fails the turn; other sections
    may be short."""
    replies = {section: reply.text for section, reply in zip(spoken, said, strict=True)}
    if way == "given":
        text = given_text(contract, spoken, [kept(section, reply) for section, reply in replies.items()])
    else:
        text, _ = asked_text(contract, replies)
    failure = ""
    if "solution" in spoken:
        solution = said[spoken.index("solution")]
        if solution.cut:
            failure = CUT
        elif not content_of(solution.text)[1]:
            failure = "the solution is empty"
    return Said(text, closed=True, failure=failure)
