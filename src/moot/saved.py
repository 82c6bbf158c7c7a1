"""Debates back from a run's folder, one at a time: what was said, as it counted then.

A run may be large, damaged, or still being written. A line that cannot be read is a value, like everything else that went wrong;
the others are still there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from moot.debate.labels import with_agents
from moot.debate.parsing import comparison_lines
from moot.debate.protocol import V2, Protocol
from moot.debate.rewards import Grades
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Parsed, ParseFailure, Question, Said, Turn
from moot.records import Run
from moot.tasks.answers import exact
from moot.tasks.comparing import Grader


@dataclass(frozen=True)
class Damaged:
    """A line of a run that cannot be read."""

    step: int
    line: int
    reason: str


@dataclass(frozen=True)
class Saved:
    """One debate of a run: the record as it stands on disk, and the debate it tells of."""

    step: int
    number: int
    record: Mapping[str, Any]
    debate: Debate
    grades: Grades | None
    """None where nobody graded the answers."""

    @property
    def name(self) -> str:
        """How a debate is called on a command line: its step and its number in it."""
        return f"{self.step}/{self.number}"

    @property
    def error(self) -> str | None:
        """Why the engine lost this debate, if it did."""
        return self.record.get("error")

    @property
    def known(self) -> bool:
        """Whether the right answer is known."""
        return self.debate.question.answer is not None and self.grades is not None

    def means(self) -> list[float | None]:
        """Each agent's mean reward as it was saved: the number by which the winner was found."""
        return mean_rewards(self.record.get("rewards", []), self.debate)


def answer_stream(streams: Mapping[str, Any]) -> Any:
    """Of rewards or advantages by step, those that answers get."""
    return streams["generator"] if "generator" in streams else next(iter(streams.values()))


def mean_rewards(rewards: Any, debate: Debate) -> list[float | None]:
    """Of rewards in the shape of a record: by agent, or by stream, agent and step. None for an agent without any.

    A ballot that could be read is left out of the generator's: nothing was generated in it.
    """
    if not isinstance(rewards, Mapping):
        return list(rewards)
    judging = {i for i, turn in enumerate(debate.turns) if turn.ballot and not turn.failed} if "generator" in rewards else set()
    means: list[float | None] = []
    for own, row in zip(debate.steps(), answer_stream(rewards), strict=True):
        kept = [value for i, value in zip(own, row, strict=True) if i not in judging]
        means.append(sum(kept) / len(kept) if kept else None)
    return means


def leaders(means: Sequence[float | None]) -> tuple[int, ...]:
    """The agents with the highest mean reward; nobody where all who spoke are level, because then the votes prefer nobody."""
    spoke = [mean for mean in means if mean is not None]
    if not spoke or min(spoke) == max(spoke):
        return ()
    return tuple(agent for agent, mean in enumerate(means) if mean == max(spoke))


def saved_debates(run: Run, steps: Sequence[int] | None = None, equal: Grader = exact) -> Iterator[Saved | Damaged]:
    """In the order in which they were trained on. Holds one debate at a time."""
    for step in run.steps() if steps is None else steps:
        # A run that goes on from an older checkpoint takes away the steps after it, also under a reader.
        with contextlib.suppress(FileNotFoundError), (run.path / "debates" / f"{step:06d}.jsonl").open("rb") as file:
            for number, line in enumerate(file, 1):
                yield _read(line, step, number, equal)


def _read(line: bytes, step: int, number: int, equal: Grader) -> Saved | Damaged:
    try:
        record = json.loads(line)
        debate = debate_of(record)
        return Saved(step, int(record["number"]), record, debate, grades_of(record, equal))
    except ConfigError as error:
        return Damaged(step, number, str(error))
    except (ValueError, RecursionError) as error:
        return Damaged(step, number, f"not JSON: {error}")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Damaged(step, number, f"not a debate: {type(error).__name__} {error}")


def debate_of(record: Mapping[str, Any]) -> Debate:
    """The debate of a record. Whether a turn counts is what the record says: only it knows where a turn was cut off."""
    asked = record["question"]
    question = Question(str(asked["text"]), asked["answer"], str(asked["id"]), str(asked.get("instruction", "")))
    protocol = _protocol(json.dumps(record["protocol"]))
    agents = int(record["num_agents"])
    empty = Debate(question, agents, int(record["max_rounds"]), protocol, jury_counts=bool(record.get("jury_counts", True)))
    played = replace(empty, turns=tuple(_turn(empty, turn) for turn in record["turns"]))
    judges = ({**told, "round": played.jury_round, "agent": agents + j, "ballot": True} for j, told in enumerate(record.get("jury", ())))
    return replace(played, jury=tuple(_turn(played, told, outside=True) for told in judges))


@lru_cache(maxsize=64)
def _protocol(choices: str) -> Protocol:
    """A run has one, and checking it takes longer than scoring a debate."""
    return V2.with_choices(json.loads(choices))


def _turn(debate: Debate, told: Mapping[str, Any], outside: bool = False) -> Turn:
    round, agent, text, ballot = int(told["round"]), int(told["agent"]), str(told["text"]), bool(told.get("ballot"))
    if not outside and not 0 <= agent < debate.num_agents:
        raise ConfigError(f"agent must lie in 0 to {debate.num_agents - 1}, got {agent}")
    if "failure" in told:
        return Turn(round, agent, text, ParseFailure(str(told["failure"])), ballot)
    fields = dict(told["fields"])
    read = debate.read(round, agent, Said(text), ballot)
    if isinstance(read.parsed, Parsed) and read.parsed.fields == fields:
        return read
    # Read by other rules than today's: what counted then still counts.
    parsed = Parsed(fields, {}, comparison_lines(fields["comparison"]))
    return replace(read, parsed=with_agents(parsed, debate.labels(agent)) if debate.protocol.shuffle_labels else parsed)


def grades_of(record: Mapping[str, Any], equal: Grader = exact) -> Grades | None:
    """What the grader found then. Equal answers are found anew, where right ones are equal whatever they look like."""
    turns = record["turns"]
    if not all("correct" in turn for turn in turns):
        return None
    same: list[int | None] = []
    kinds: list[tuple[str, bool]] = []
    for turn in turns:
        answer, right = turn["answer"], bool(turn["correct"])
        if answer is None:
            same.append(None)
            continue
        alike = (i for i, (known, known_right) in enumerate(kinds) if right == known_right and (right or equal(answer, known)))
        kind = next(alike, len(kinds))
        if kind == len(kinds):
            kinds.append((answer, right))
        same.append(kind)
    return Grades(tuple(turn["answer"] for turn in turns), tuple(bool(turn["correct"]) for turn in turns), tuple(same))
