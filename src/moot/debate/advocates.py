"""What two advocates and their judge are told. Each advocate argues for the side of the question that its seat is
given.

A judge without a seat then decides. The same judge's text serves three measurements: both argue (debate), one argues
and the other is
silent (consultancy), nobody argues (the judge alone).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moot.debate.sections import NOTHING
from moot.debate.types import Observation, Said, Turn

if TYPE_CHECKING:
    from moot.debate.state import Debate


def request(debate: Debate, agent: int, labels: Sequence[int], first: bool, blocks: Sequence[str], heard: bool) -> str:
    """What an advocate reads before its turn. What differs between seats stands last, as layout shared wants it."""
    say, sides, other = debate.prompts.say, debate.question.sides, 1 - agent
    places = {"agent": labels[agent], "other": labels[other], "position": sides[agent], "rival": sides[other]}
    parts = [say("advocates.question", question=debate.question.text)] if first else []
    parts += blocks
    parts += [say("advocates.seat", **places)] if first else []
    parts.append(say("advocates.reply" if heard else "advocates.argue", **places))
    return "\n\n".join(parts)


def for_judge(debate: Debate, labels: Sequence[int], block: Callable[[Turn], str]) -> str:
    """The question, both positions, and all that was said, round by round."""
    say, sides = debate.prompts.say, debate.question.sides
    seats = sorted(range(debate.num_agents), key=lambda agent: labels[agent])
    said = sorted((turn for turn in debate.turns if argues(turn)), key=lambda turn: (turn.round, labels[turn.agent]))
    # Where nobody argues there is nothing to miss; where one does, the reader must not look for the other's words.
    quiet = [agent for agent in seats if said and all(turn.agent != agent for turn in said)]
    text = say(
        "advocates.judge",
        question=debate.question.text,
        positions="\n".join(say("advocates.held", agent=labels[agent], position=sides[agent]) for agent in seats),
        answers="\n\n".join(
            [*map(block, said), *(f"[Agent {labels[agent]}]\n{say('advocates.silent')}" for agent in quiet)]
        ),
        names=", ".join(f"Agent {labels[agent]}" for agent in seats),
    )
    return text if said else text.replace("\n\n\n\n", "\n\n")


def choices(debate: Debate, labels: Sequence[int]) -> str:
    """The two lines that a judge may write, each with when to write it. There is none for a tie: one position is
    right."""
    first, second = sorted(range(debate.num_agents), key=lambda agent: labels[agent])
    return "\n\n".join(
        debate.prompts.say("advocates.choice", position=debate.question.sides[a], agent=labels[a], other=labels[b])
        for a, b in ((first, second), (second, first))
    )


def argues(turn: Turn) -> bool:
    """Whether it holds an argument, and not only the position."""
    return turn.fields is not None and turn.fields["solution"] != NOTHING


async def silent(_: Observation) -> Said:
    """A speaker for the seat whose position stands without an argument."""
    return Said(NOTHING)
