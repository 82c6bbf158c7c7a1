"""Debates back from a run's folder, one at a time: what was said, as it counted then.

A run may be large, damaged, or still being written. A line that cannot be read is a value, like everything else that went wrong;
the others are still there.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from moot.debate.labels import with_agents
from moot.debate.outcome import Outcome, leaders_by, mean_rewards, winner_among
from moot.debate.parsing import comparison_lines
from moot.debate.protocol import V2, Protocol
from moot.debate.rewards import AgentScores, Grades, Scores, StepScores, Stream
from moot.debate.scoring import Scoring, as_named_now
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
    scoring: Scoring
    """How its votes were counted then."""
    grades: Grades | None
    """None where nobody graded the answers."""
    scores: Scores | None
    """None where it was never scored. What an estimator works on is not in a record: here it is the rewards themselves."""

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

    def outcome(self) -> Outcome | None:
        """By the rewards as they were saved, whatever winner an older record names. None where it was never scored."""
        return None if self.scores is None else Outcome.of(self.debate, self.scores, self.scoring)


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
        debate, scoring = debate_of(record)
        return Saved(step, int(record["number"]), record, debate, scoring, grades_of(record, equal), scores_of(record))
    except ConfigError as error:
        return Damaged(step, number, str(error))
    except (ValueError, RecursionError) as error:
        return Damaged(step, number, f"not JSON: {error}")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Damaged(step, number, f"not a debate: {type(error).__name__} {error}")


def debate_of(record: Mapping[str, Any]) -> tuple[Debate, Scoring]:
    """The debate of a record, and how its votes were counted.

    Whether a turn counts is what the record says: only it knows where a turn was cut off.
    """
    asked = record["question"]
    question = Question(str(asked["text"]), asked["answer"], str(asked["id"]), str(asked.get("instruction", "")))
    protocol = _protocol_of(record)
    agents = int(record["num_agents"])
    empty = Debate(question, agents, int(record["max_rounds"]), protocol.rules)
    played = replace(empty, turns=tuple(_turn(empty, turn) for turn in record["turns"]))
    judges = ({**told, "round": played.jury_round, "agent": agents + j, "ballot": True} for j, told in enumerate(record.get("jury", ())))
    scoring = protocol.scoring if record.get("jury_counts", True) else replace(protocol.scoring, judge_counts=False)
    return replace(played, jury=tuple(_turn(played, told, outside=True) for told in judges)), scoring


def scores_of(record: Mapping[str, Any]) -> Scores | None:
    """From the record alone: the reward of that day may be a user's file that is gone."""
    if "rewards" not in record:
        return None
    rewards = record["rewards"]
    if not isinstance(rewards, Mapping):
        return AgentScores(tuple(rewards), tuple(record.get("returns", rewards)), len(record.get("votes", ())))
    taken: Counter[int] = Counter()
    judging: set[tuple[int, int]] = set()
    for turn in record["turns"]:
        if turn.get("ballot") and "failure" not in turn:
            judging.add((turn["agent"], taken[turn["agent"]]))
        taken[turn["agent"]] += 1
    return StepScores({name: _stream(rows, bool(record.get("signal"))) for name, rows in rewards.items()}, ballots=frozenset(judging))


def standing(record: Mapping[str, Any]) -> tuple[tuple[int, ...], int | None]:
    """The leaders and the winner by a record's own rewards and votes, without reading what was said."""
    if (scores := scores_of(record)) is None:
        return (), None
    leaders = leaders_by(mean_rewards(scores))
    return leaders, winner_among(leaders, bool(record.get("votes")), _protocol_of(record).scoring)


def _stream(rows: Sequence[Sequence[float]], signal: bool) -> Stream:
    values = tuple(map(tuple, rows))
    return Stream(
        values, tuple(tuple(value if signal else None for value in row) for row in values), tuple((0.0,) * len(r) for r in values)
    )


def _protocol_of(record: Mapping[str, Any]) -> Protocol:
    # Rewards by turn are tables: where there is one number per agent, truth and majority were by the last answer.
    by_agent = isinstance(record.get("rewards"), list)
    return _protocol(json.dumps(as_named_now(record["protocol"]) if by_agent else record["protocol"]))


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
    return replace(read, parsed=with_agents(parsed, debate.labels(agent)) if debate.rules.shuffle_labels else parsed)


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
