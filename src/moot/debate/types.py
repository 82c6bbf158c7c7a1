"""The words a debate is told in. Plain frozen data; nothing here knows how it came about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Question:
    text: str
    answer: str | None = None
    """The ground truth, where there is one. Never shown to an agent."""
    id: str = ""
    instruction: str = ""
    """How to write the final answer (`\\boxed{}`, a letter, ...); stands under the question."""
    label: str | None = None
    """What the reward `majority` takes for the answer, where it is not the agents' own plurality. Never shown to an
    agent."""
    sides: tuple[str, ...] = ()
    """The positions to argue for, by seat, where the question comes with two of them. `answer` is the right one, if
    known."""

    @property
    def plain(self) -> str:
        """As one would ask it outside a debate."""
        return "\n\n".join(filter(None, (self.text, self.instruction)))


Verdict = Literal[">", "="]
"""`>` means left is better; the contract has no `<`."""


@dataclass(frozen=True)
class Line:
    """One line of a comparison section."""

    kind: Literal["comparison", "silent", "other"]
    """`silent` lines say nothing and are meant to: blank, a Markdown fence, N/A."""
    left: int = -1
    right: int = -1
    verdict: Verdict = "="


@dataclass(frozen=True)
class Parsed:
    fields: Mapping[str, str]
    spans: Mapping[str, tuple[int, int]]
    """Where each section stands in the raw text: from its opening tag up to and with its closing tag."""
    lines: tuple[Line, ...] = ()
    """The comparison section, line by line, about agents by their seats, whatever the author calls them."""


@dataclass(frozen=True)
class ParseFailure:
    reason: str


@dataclass(frozen=True)
class Turn:
    round: int
    agent: int
    text: str
    parsed: Parsed | ParseFailure
    ballot: bool = False
    """It only judges: the closing ballot, or an outside judge's. It holds no solution and replaces none."""

    @property
    def failed(self) -> bool:
        return isinstance(self.parsed, ParseFailure)

    @property
    def fields(self) -> Mapping[str, str] | None:
        """The sections by name (`solution`, `evaluation`, `comparison`, ...), stripped of their tags; None if the turn
        failed."""
        return self.parsed.fields if isinstance(self.parsed, Parsed) else None

    @property
    def solution(self) -> str:
        """Empty where the turn failed, and on a ballot."""
        return (self.fields or {}).get("solution", "")

    @property
    def answers(self) -> bool:
        """Whether it holds a solution."""
        return not self.ballot and isinstance(self.parsed, Parsed)


@dataclass(frozen=True)
class Vote:
    """A comparison that counts. Agents in `win_rate` and `win_minus_loss`, responses (turn indices) in
    `generator_judge`."""

    author: int
    left: int
    right: int
    verdict: Verdict
    turn: int = -1
    """Index of the turn that cast it; -1 for an outside judge's, whose author is no agent."""

    @property
    def pair(self) -> frozenset[int]:
        return frozenset((self.left, self.right))


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True)
class Observation:
    """What one agent is given before it speaks."""

    agent: int
    round: int
    eligible: tuple[int, ...]
    """The agents it may judge."""
    temperature: float
    newest: Message
    """The last message of the conversation."""
    extends: bool
    """The conversation is the one before it, the agent's own last turn, and `newest`."""
    own_turns: tuple[int, ...]
    """Which turns of the debate the assistant messages of the conversation are."""
    conversation: Callable[[], tuple[Message, ...]]
    """The whole conversation. A function, because a speaker that keeps its own never needs it."""
    contract: str = "three_tag"
    """The sections asked for: the protocol's, or those of a ballot."""
    labels: Sequence[int] = ()
    """The number by which each agent is called here: entry i is agent i's, which is i unless labels are shuffled."""
    section: str = ""
    """The one section asked for, where a turn is spoken in parts; empty for a whole turn in tags."""
    part: int = 0
    """Which part of the turn this is, from 0."""
    last_part: bool = True
    opening: str = ""
    """What stands in the reply already, before the part: an opening tag, with what closes the section before it."""
    closing: Callable[[str], str] = lambda reply: ""
    """What is written after the last part, whose reply is given."""
    turnwise: Callable[[], tuple[Message, ...]] | None = None
    """The conversation with each own turn as one message, where that differs: for a speaker that keeps the tokens of
    its turns."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The whole conversation as chat clients take it: a list of `{"role": ..., "content": ...}`."""
        return [{"role": message.role, "content": message.content} for message in self.conversation()]


@dataclass(frozen=True)
class Said:
    text: str
    closed: bool = True
    """Whether the last closing tag may be missing because sampling stopped on it. False for an answer cut at its token
    limit."""
    cut: bool = False
    """Whether it was cut at its token limit. Only a turn in parts asks: there, no tag can tell."""
    failure: str = ""
    """Why the turn fails whatever its text, if it does."""
