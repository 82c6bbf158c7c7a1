"""Transcripts from anywhere to rewards and advantages: the reading half of `moot score`.

A bad line is a value, not an exception: the others are still scored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from moot.debate.protocols import Protocol
from moot.debate.rewards import REWARDS, Grades, Reward
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import ParseFailure, Question, Said, Turn
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, Estimator, with_advantages
from moot.rl.lookup import check_fits
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.asked import asked_debate, asked_grading, asked_record
from moot.util.json_text import read_json

MOST_AGENTS = 10_000
"""Every agent is a row of what is printed; a line that asks for more than memory must not take the others with it."""
KEYS = {"question", "num_agents", "turns"}
OPTIONAL_KEYS = {"protocol", "answer", "id", "jury", "sides"}


@dataclass(frozen=True)
class BadLine:
    line: int
    reason: str


def as_json(scored: PlayedDebate) -> dict[str, Any]:
    """The object that `moot score --json` prints for a line."""
    scores, advantages = scored.scores, scored.advantages
    assert scores is not None and advantages is not None, "score the debate first"
    failed, votes = failures(scored.debate), len(scores.votes)
    if scores.per == "agent":
        counts = {"line": scored.number, "valid": votes, "malformed": scores.lines_invalid, "failures": failed}
        return counts | {"rewards": scores.rewards, "returns": scores.returns, "advantages": advantages.values}
    return {
        "line": scored.number,
        "votes": votes,
        "lines_invalid": scores.lines_invalid,
        "missing_comparisons": scores.missing_comparisons,
        "failures": failed,
        **{name: stream.values for name, stream in scores.streams.items()},
        **{f"{name}_advantages": values for name, values in advantages.streams.items()},
    }


def failures(debate: Debate) -> list[tuple[int, int, str]]:
    """Round, agent and reason of each turn that could not be read."""
    failed = ((turn, turn.parsed) for turn in debate.turns)
    return [(turn.round, turn.agent, read.reason) for turn, read in failed if isinstance(read, ParseFailure)]


def read_debate(text: str, base: Protocol) -> tuple[Debate, Scoring]:
    """One line of a transcript file: the debate, and how its votes count. Raises ConfigError with what is wrong."""
    given = read_json(text, strict=True)
    if not isinstance(given, dict):
        raise ConfigError(f"a debate must be an object, got {_kind(given)}")
    if (record := asked_record(given)) is not None:
        try:
            return asked_debate(record)
        except ConfigError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"a debate as moot label writes it, but damaged: {type(error).__name__}") from None
    if missing := KEYS - given.keys():
        raise ConfigError(f"missing key {', '.join(sorted(missing))}")
    if unknown := given.keys() - KEYS - OPTIONAL_KEYS:
        known = ", ".join(sorted(KEYS | OPTIONAL_KEYS))
        raise ConfigError(f"unknown key {', '.join(sorted(unknown))}; known are {known}")
    question = _typed(given["question"], str, "question")
    num_agents = _at_least(given["num_agents"], 1, "num_agents")
    if num_agents > MOST_AGENTS:
        raise ConfigError(f"num_agents must be at most {MOST_AGENTS}, got {num_agents}")
    choices = _typed(given.get("protocol", {}), dict, "protocol")
    if ":" in str(choices.get("reward", "")) or ":" in str(choices.get("advantage", "")):
        raise ConfigError("a transcript may not name a Python file to run; pass it with --reward")
    protocol = base.with_choices(choices)
    answer = given.get("answer")
    if answer is not None or "answer" in given:
        if isinstance(answer, bool) or not isinstance(answer, str | int | float) or answer in (math.inf, -math.inf):
            raise ConfigError(f"answer must be a string or a number, got {_kind(answer)}")
        answer = str(answer)
    # Shuffled labels follow from the question, so where it has an id that must be known too.
    id = _typed(given.get("id", ""), str, "id")
    sides = tuple(_typed(side, str, "sides") for side in _typed(given.get("sides", []), list, "sides"))
    debate = Debate(Question(question, answer, id, sides=sides), num_agents, 1, protocol.rules)
    turns = _turns(_typed(given["turns"], list, "turns"), debate)
    debate = replace(debate, turns=turns, max_rounds=max((t.round for t in turns), default=1))
    return debate.heard(_jury(_typed(given.get("jury", []), list, "jury"))), protocol.scoring


def _jury(given: list[Any]) -> list[Said]:
    for j, judge in enumerate(given):
        if not isinstance(judge, dict) or judge.keys() != {"text"}:
            raise ConfigError(f"jury[{j}] must be an object with text")
    return [Said(_typed(judge["text"], str, f"jury[{j}].text")) for j, judge in enumerate(given)]


def _turns(given: list[Any], debate: Debate) -> tuple[Turn, ...]:
    num_agents, rules = debate.num_agents, debate.rules
    turns: list[Turn] = []
    ended = voting = False
    spoken: set[tuple[int, int]] = set()
    last = 1
    for i, turn in enumerate(given):
        where = f"turns[{i}]"
        if not isinstance(turn, dict) or turn.keys() - {"ballot"} != {"round", "agent", "text"}:
            raise ConfigError(f"{where} must be an object with round, agent and text")
        round = _at_least(turn["round"], 1, f"{where}.round")
        agent = _at_least(turn["agent"], 0, f"{where}.agent")
        text = _typed(turn["text"], str, f"{where}.text")
        ballot = _typed(turn.get("ballot", False), bool, f"{where}.ballot")
        if ballot and not rules.closing_ballot:
            way_out = "set that to true, or leave ballot out"
            raise ConfigError(f"{where}.ballot needs the protocol's closing_ballot; {way_out}")
        if voting and not ballot:
            raise ConfigError(f"{where} answers after a ballot; ballots come last")
        voting = ballot
        if agent >= num_agents:
            raise ConfigError(f"{where}.agent must be below num_agents {num_agents}, got {agent}")
        if round < last:
            raise ConfigError(f"{where}.round must not decrease, got {round} after {last}")
        if (round, agent) in spoken:
            raise ConfigError(f"{where}: agent {agent} speaks twice in round {round}")
        spoken.add((round, agent))
        last = round
        if ended:
            continue
        turns.append(debate.read(round, agent, Said(text), ballot))
        ended = rules.on_parse_failure == "abort" and turns[-1].failed
    return tuple(turns)


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{name} must be {_KINDS[kind]}, got {_kind(value)}")
    return value


def _at_least(value: Any, low: int, name: str) -> int:
    if _typed(value, int, name) < low:
        raise ConfigError(f"{name} must be at least {low}, got {value}")
    return int(value)


_KINDS = {str: "a string", int: "an integer", dict: "an object", list: "a list", bool: "true or false"}


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a number")


def _graded(text: str, debate: Debate) -> Grades:
    """Answers compared as they were when they were asked for, where the line says so."""
    record = asked_record(read_json(text)) if '"known_answer"' in text else None
    if record is None:
        return grade(debate)
    graded = asked_grading(record["settings"])
    return grade(debate, graded.equal, graded.extract)


def score(
    lines: Iterable[str],
    base: Protocol,
    reward: str | None = None,
    rewards: dict[str, Reward] | None = None,
    estimators: dict[str, Estimator] | None = None,
) -> Iterator[PlayedDebate | BadLine]:
    """Every line that can be read, scored; its number is the line. `reward` wins over a line's own protocol."""
    rewards, estimators = rewards or REWARDS, estimators or ESTIMATORS
    results: dict[int, PlayedDebate | BadLine] = {}
    # A batch, for the estimators that look past one debate, is what shares a reward and an estimator.
    batches: dict[tuple[str, str], list[PlayedDebate]] = defaultdict(list)
    room = MOST_AGENTS
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            debate, scoring = read_debate(text, base)
            if (room := room + len(text) - debate.num_agents) < 0:
                room += debate.num_agents
                why = "num_agents of all lines adds up to more than the file is long"
                raise ConfigError(f"{why}; score this one by itself")
            if reward:
                scoring = replace(scoring, reward=reward)
            if scoring.reward not in rewards:
                raise ConfigError(f"reward must be one of {', '.join(rewards)}, got {scoring.reward!r}")
            if scoring.estimator not in estimators:
                known = ", ".join(estimators)
                raise ConfigError(f"advantage must be one of {known} or auto, got {scoring.advantage!r}")
            rule = rewards[scoring.reward]
            graded = rule.grades != "none" or scoring.reward_mix or scoring.correct_bonus
            scored = PlayedDebate(debate, number=number).scored(
                scoring, _graded(text, debate) if graded else None, rule
            )
            if scored.scores is not None:
                check_fits(scoring, scored.scores.per)
        except ConfigError as error:
            results[number] = BadLine(number, str(error))
            continue
        batches[scoring.reward, scoring.estimator].append(scored)

    for (_, name), batch in batches.items():
        results |= {one.number: one for one in with_advantages(batch, estimators[name]) if one.number is not None}
    for number in sorted(results):
        yield results[number]
