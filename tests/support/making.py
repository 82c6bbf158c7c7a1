"""Debates in shorthand, so that a test can show a whole one as a small table.

A round is a list with one entry an agent, in the order of their numbers:

    "1 > 2; 0 = 1"   a parsed turn whose comparison has these two lines
    ""               a parsed turn whose comparison is N/A
    FAILED           a turn that cannot be read

Answers, where a test needs them, are a table of the same shape: the text of each solution. "7" stands for `\\boxed{7}`, None for
a solution without an answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moot.debate.parsing import CONTRACTS, parse
from moot.debate.protocols import V1, V2, Protocol
from moot.debate.rewards import Scores, score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Question, Turn
from moot.rl.advantages import ESTIMATORS, SeatMeans, advantages
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate

FAILED = "this cannot be read"


def lines(shorthand: str) -> str:
    """`1 > 2; 0 = 1` as the lines of a comparison."""
    return re.sub(r"\d+", lambda number: f"Agent {number[0]}", shorthand).replace("; ", "\n") or "N/A"


def text(
    comparison: str = "N/A",
    solution: str = "Some solution.",
    contract: str = "three_tag",
    consensus: str = "NO",
    evaluation: str = "Fine.",
) -> str:
    """One response in the given contract."""
    content = {
        "solution": solution,
        "evaluation": evaluation,
        "comparison": comparison,
        "consensus": consensus,
        "consensus_reason": "So.",
    }
    return "\n".join(f"<{name}>{content[name]}</{name}>" for name in CONTRACTS[contract])


def solution(answer: str | None) -> str:
    if answer is None:
        return "I do not know."
    return answer if "\\" in answer else f"\\boxed{{{answer}}}"


@dataclass(frozen=True)
class Tabled(Debate):
    """A debate that knows how a test wants its votes counted, so that the two stand in one line."""

    scoring: Scoring = V2.scoring


def debate(
    protocol: Protocol,
    rounds: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str | None]] | None = None,
    truth: str | None = None,
    num_agents: int | None = None,
) -> Tabled:
    """The finished debate in which this was said. With `abort` the table may stop in the middle of a round."""
    turns = []
    for r, row in enumerate(rounds):
        for agent, said in enumerate(row):
            told = solution(answers[r][agent]) if answers else "Some solution."
            raw = said if said == FAILED else text(lines(said), told, protocol.rules.contract)
            turns.append(Turn(r + 1, agent, raw, parse(raw, protocol.rules.contract)))
    question, agents = Question("What is 3 + 4?", truth), num_agents or len(rounds[0])
    return Tabled(question, agents, len(rounds), protocol.rules, tuple(turns), scoring=protocol.scoring)


def reward(played: Tabled, mix: float = 0.0, bonus: float = 0.0) -> Scores:
    return score(played, replace(played.scoring, reward_mix=mix, correct_bonus=bonus), grade(played))


def by_agent(played: Tabled, mix: float = 0.0, bonus: float = 0.0) -> tuple[Scores, tuple[float, ...]]:
    """The scores of one debate and its advantages, for rewards by agent."""
    scores = reward(played, mix, bonus)
    (found,) = advantages([(played, scores)], ESTIMATORS[played.scoring.estimator], SeatMeans())
    assert scores.per == "agent"
    assert found.per == "agent"
    return scores, found.values


def by_step(played: Tabled, mix: float = 0.0, bonus: float = 0.0) -> tuple[Scores, dict[str, Any]]:
    """The scores of one debate and its advantages by stream, for rewards by step."""
    scores = reward(played, mix, bonus)
    (found,) = advantages([(played, scores)], ESTIMATORS[played.scoring.estimator], SeatMeans())
    assert scores.per == "turn"
    assert found.per == "turn"
    return scores, found.streams


def values(scores: Scores, stream: str) -> tuple[tuple[float, ...], ...]:
    return scores.streams[stream].values


def near(found: Any, expected: Any) -> None:
    """Nested numbers, equal within 1e-12; the message shows both whole tables."""
    assert _same(found, expected), f"\nfound    {found}\nexpected {expected}"


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(_same(f, e) for f, e in zip(found, expected, strict=True))
    if expected is None or found is None:
        return found is None and expected is None
    return abs(found - expected) < 1e-12


def v1(**choices: Any) -> Protocol:
    return V1.with_choices(choices)


def v2(**choices: Any) -> Protocol:
    return V2.with_choices(choices)


def spoken(rounds: Iterable[Iterable[tuple[int, str]]], protocol: Protocol, num_agents: int) -> Tabled:
    """As `debate`, from (agent, raw text) pairs, for tests that care about the text itself."""
    turns = tuple(
        Turn(number, agent, raw, parse(raw, protocol.rules.contract))
        for number, row in enumerate(rounds, 1)
        for agent, raw in row
    )
    last = max((turn.round for turn in turns), default=1)
    return Tabled(Question("What is 3 + 4?"), num_agents, last, protocol.rules, turns, scoring=protocol.scoring)


def moot(
    *arguments: object, given: str | bytes = "", cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own, as a user's shell would start it."""
    raw = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        command(*arguments), input=raw, capture_output=True, cwd=cwd, env=surroundings(environment), timeout=120
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).parent / "moot"), *map(str, arguments)]


def surroundings(environment: dict[str, str] | None = None) -> dict[str, str]:
    """Without what a test machine may have set and a user has not: unbuffered output would hide what happens at the last flush."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "COLUMNS")
    }
    return {**kept, **(environment or {})}


def judged(played: Tabled) -> PlayedDebate:
    """Graded, and scored by its own protocol."""
    return PlayedDebate(played, scoring=played.scoring, scores=reward(played), grades=grade(played))
