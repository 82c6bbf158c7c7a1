"""A played debate as JSON, and back; its tokens are beside it, in arrays.py. docs/formats.md says it for other tools.

Whether a turn counts is what the record says, because only it knows where a turn was cut off. A record that cannot be
read is a value, like everything else that went wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from moot.debate.checks import Check
from moot.debate.outcome import AgentVote, leaders_by, mean_rewards, winner_among
from moot.debate.parsing import comparison_lines
from moot.debate.protocols import V2, Protocol
from moot.debate.rewards import Grades, Scores, Stream
from moot.debate.rules import Rules
from moot.debate.scores import AGENT, EVERY, SECTIONS, Per, Rows
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Question, Said, Turn, Vote
from moot.debate.votes import outside_votes
from moot.errors import ConfigError
from moot.runs.prompt_of_turn import seen_to_json
from moot.runs.validate import check_shape
from moot.tasks.answer_classes import Grader
from moot.tasks.answers import exact
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages, SampledTurn, turn_in_text
from moot.util.json_text import read_json

FORMAT = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Damaged:
    """A line of a run that cannot be read."""

    step: int
    line: int
    reason: str


# Writing


def to_record(played: PlayedDebate, with_seen: bool = False) -> dict[str, Any]:
    """With `with_seen`, each turn has the whole conversation before it, which follows from the rest and is long."""
    debate = played.debate
    record: dict[str, Any] = {
        "question": {name: getattr(debate.question, name) for name in ("id", "text", "answer", "instruction")},
        "num_agents": debate.num_agents,
        "max_rounds": debate.max_rounds,
        "protocol": dict(_choices(debate.rules, played.scoring)),
    }
    if debate.question.label is not None:
        record["question"]["label"] = debate.question.label
    if debate.question.sides:
        record["question"]["sides"] = list(debate.question.sides)
    if played.grades is not None and played.grades.checked:
        record["question"]["checked"] = True
    if debate.stop_when_settled or debate.extra_rounds:
        record |= {"stop_when_settled": debate.stop_when_settled, "extra_rounds": debate.extra_rounds}
    if played.error is not None:
        return {**record, "error": played.error, "turns": []}
    record["turns"] = turns_to_json(played)
    for i, told in enumerate(record["turns"] if with_seen else ()):
        told["seen"] = seen_to_json(played, i)
    if debate.checks is not None:
        record["checks"] = checks_to_json(debate.checks)
    if debate.jury:
        record["jury_counts"] = played.scoring.judges_count
        record["jury"] = [{"text": turn.text, **_sections(turn), "votes": []} for turn in debate.jury]
        for vote in outside_votes(debate, played.scoring):
            about = {"left_turn": vote.left, "right_turn": vote.right, "verdict": vote.verdict}
            record["jury"][vote.author - debate.num_agents]["votes"].append(about)
    if played.scores is not None and played.outcome is not None:
        record["winner"], record["signal"] = played.outcome.winner, played.scores.has_signal
        record["votes"] = [_vote_to_json(vote) for vote in played.outcome.votes]
    return {**record, **{name: values for name, values in numbers_to_json(played).items() if values is not None}}


def numbers_to_json(played: PlayedDebate) -> dict[str, Any]:
    """Its rewards, returns and advantages: a number per agent, or by stream a row for each; None for none."""
    scores, taught = played.scores, played.advantages
    numbers: dict[str, Any] = dict.fromkeys(("rewards", "returns", "advantages"))
    if scores is not None:
        numbers["rewards"] = _told(scores.per, {name: stream.values for name, stream in scores.streams.items()})
        numbers["returns"] = scores.returns if scores.per == "agent" else None
    if taught is not None:
        numbers["advantages"] = _told(taught.per, taught.streams)
    return numbers


def _told(per: Per, streams: Mapping[str, Rows]) -> Any:
    """A number for each agent, or by stream a row for each."""
    return tuple(row[0] for row in streams[AGENT]) if per == "agent" else streams


def _rows(numbers: Any) -> dict[str, Rows]:
    """What `_told` wrote."""
    streams = numbers if isinstance(numbers, Mapping) else {AGENT: [(number,) for number in numbers]}
    return {name: tuple(map(tuple, rows)) for name, rows in streams.items()}


def turns_to_json(played: PlayedDebate, sections: bool = True) -> list[dict[str, Any]]:
    """Its turns in speaking order. Without `sections`, which follow from the text, only why there are none."""
    grades, sampled = played.grades, played.sampled
    return [
        {
            **said_to_json(turn),
            **(_sections(turn) if sections or turn.failed else {}),
            **({"ballot": True} if turn.ballot else {}),
            **({"answer": grades.answers[i], "correct": grades.correct[i], "same": grades.same[i]} if grades else {}),
            **({"stop": sampled[i].stop_reason} if sampled else {}),
        }
        for i, turn in enumerate(played.debate.turns)
    ]


def checks_to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [
        {
            "turns": list(check.turns),
            "judge": check.judge,
            "value": check.value,
            "by": check.by,
            "tokens": check.tokens,
            "thinking": check.thinking,
            **({"rule": check.rule} if check.rule else {}),
        }
        for check in checks
    ]


def said_to_json(turn: Turn) -> dict[str, Any]:
    return {"round": turn.round, "agent": turn.agent, "text": turn.text}


def _sections(turn: Turn) -> dict[str, Any]:
    return {"fields": dict(turn.parsed.fields)} if isinstance(turn.parsed, Parsed) else {"failure": turn.parsed.reason}


@lru_cache(maxsize=64)
def _choices(rules: Rules, scoring: Scoring) -> dict[str, Any]:
    return Protocol(rules, scoring).as_dict()


def _vote_to_json(vote: AgentVote) -> dict[str, Any]:
    """By the turn that cast it, or by which outside judge did; about two responses, or about two agents."""
    caster: dict[str, Any] = {"turn": vote.turn} if vote.judge is None else {"turn": None, "judge": vote.judge}
    if vote.left_turn is None:
        return {**caster, "left": vote.left, "right": vote.right, "verdict": vote.verdict}
    return {**caster, "left_turn": vote.left_turn, "right_turn": vote.right_turn, "verdict": vote.verdict}


def to_transcript(debate: Debate) -> dict[str, Any]:
    """What `moot score` reads: what was said, and nothing that follows from it."""
    turns = [{**said_to_json(turn), **({"ballot": True} if turn.ballot else {})} for turn in debate.turns]
    answer = {} if debate.question.answer is None else {"answer": debate.question.answer}
    sides = {"sides": list(debate.question.sides)} if debate.question.sides else {}
    return {"question": debate.question.text, "num_agents": debate.num_agents, "turns": turns, **answer, **sides}


# Reading


def read_line(line: bytes, step: int, place: int, equal: Grader = exact) -> PlayedDebate | Damaged:
    """The debate of a line of a run's file; `place` counts from 0, and is the debate's number: what a record claims
    cannot hide another."""

    def debate(record: Any) -> PlayedDebate:
        played = replace(from_record(record, equal), step=step, number=place)
        _ = played.outcome  # rewards that cannot be added up are damage too
        return played

    return _read(line, step, place, debate)


def read_summary(line: bytes, step: int, place: int) -> Summary | Damaged:
    return _read(line, step, place, summary)


def read_words(line: bytes, longest: int) -> str:
    """All that can be searched for in a line; of a turn so many characters, of a damaged line nothing."""
    found = _read(line, 0, 0, lambda record: words(record, longest))
    return found if isinstance(found, str) else ""


def _read(line: bytes, step: int, place: int, make: Callable[[Any], T]) -> T | Damaged:
    try:
        return make(read_json(line))
    except ConfigError as error:
        return Damaged(step, place + 1, str(error))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        return Damaged(step, place + 1, f"not a debate: {type(error).__name__} {error}")


def from_record(record: Mapping[str, Any], equal: Grader = exact) -> PlayedDebate:
    """Raises ConfigError, KeyError, TypeError or the like where it is no record. Tokens are in `turn_tokens`."""
    check_shape(record)
    asked = record["question"]
    text, id, instruction = str(asked["text"]), str(asked["id"]), str(asked.get("instruction", ""))
    question = Question(text, asked["answer"], id, instruction, asked.get("label"), tuple(asked.get("sides", ())))
    protocol = _protocol_of(record)
    empty = Debate(question, int(record["num_agents"]), int(record["max_rounds"]), protocol.rules)
    said = with_jury(with_turns(empty, record["turns"]), record.get("jury", ()))
    return PlayedDebate(
        replace(said, checks=checks_of(record)),
        _stops(record["turns"]),
        error=record.get("error"),
        scoring=protocol.scoring,
        grades=grades_of(record, equal),
        scores=scores_of(record, protocol.scoring),
        advantages=_advantages(record, protocol.scoring),
    )


def _protocol_of(record: Mapping[str, Any]) -> Protocol:
    return _protocol(json.dumps(record["protocol"]))


@lru_cache(maxsize=64)
def _protocol(choices: str) -> Protocol:
    """A run has one, and checking it takes longer than scoring a debate."""
    return V2.with_choices(json.loads(choices))


def with_turns(empty: Debate, turns: Sequence[Mapping[str, Any]]) -> Debate:
    """`empty` filled with what was said, read as the debate itself read it."""
    read = []
    for told in turns:
        agent = told["agent"]
        if type(agent) is not int or not 0 <= agent < empty.num_agents:
            raise ConfigError(f"agent must lie in 0 to {empty.num_agents - 1}, got {agent!r:.40}")
        read.append(_turn(empty, told, agent))
    return replace(empty, turns=tuple(read))


def with_jury(debate: Debate, jury: Sequence[Mapping[str, Any]]) -> Debate:
    """With what judges without a seat said about it."""
    judges = ({**told, "round": debate.jury_round, "ballot": True} for told in jury)
    return replace(debate, jury=tuple(_turn(debate, told, debate.num_agents + j) for j, told in enumerate(judges)))


def _turn(debate: Debate, told: Mapping[str, Any], agent: int) -> Turn:
    round, text, ballot = int(told["round"]), str(told["text"]), bool(told.get("ballot"))
    if "failure" in told:
        return Turn(round, agent, text, ParseFailure(str(told["failure"])), ballot)
    read = debate.read(round, agent, Said(text), ballot)
    if "fields" not in told:
        return read
    fields = dict(told["fields"])
    if missing := {"comparison", *(() if ballot else ("solution",))} - fields.keys():
        raise ConfigError(f"fields must have {min(missing)}, got {', '.join(fields) or 'none'}")
    if isinstance(read.parsed, Parsed) and read.parsed.fields == fields:
        return read
    # Read by other rules than today's: what counted then still counts.
    return replace(read, parsed=debate.about_seats(Parsed(fields, {}, comparison_lines(fields["comparison"])), agent))


def checks_of(record: Mapping[str, Any]) -> tuple[Check, ...] | None:
    """What judges made of its answers; None where nobody was asked."""
    if (given := record.get("checks")) is None:
        return None
    return tuple(
        Check(
            told["value"],
            told["thinking"],
            told["tokens"],
            told["by"],
            tuple(told["turns"]),
            told["judge"],
            told.get("rule", ""),
        )
        for told in given
    )


def _stops(turns: Sequence[Mapping[str, Any]]) -> tuple[SampledTurn, ...]:
    """How each turn ended, where the record says it of all of them."""
    told = all("stop" in turn for turn in turns)
    return tuple(turn_in_text(stop_reason=turn["stop"]) for turn in turns) if told else ()


def grades_of(record: Mapping[str, Any], equal: Grader = exact) -> Grades | None:
    """What the grader said then."""
    turns, asked = record["turns"], record.get("question", {})
    if not all("correct" in turn for turn in turns):
        return None
    label, answers = asked.get("label"), tuple(turn["answer"] for turn in turns)
    labelled = None if label is None else tuple(answer is not None and equal(answer, label) for answer in answers)
    correct = tuple(bool(turn["correct"]) for turn in turns)
    same = tuple(turn["same"] for turn in turns)
    return Grades(answers, correct, same, labelled=labelled, checked=bool(asked.get("checked")))


def scores_of(record: Mapping[str, Any], scoring: Scoring) -> Scores | None:
    """From the record alone: the reward of that day may be a user's file that is gone. What an estimator worked on is
    not in a record; here it is the rewards themselves, or nothing where the record says that there was no signal."""
    if "rewards" not in record:
        return None
    taken: Counter[int] = Counter()
    judging: set[tuple[int, int]] = set()
    for turn in record["turns"]:
        if turn.get("ballot") and "failure" not in turn:
            judging.add((turn["agent"], taken[turn["agent"]]))
        taken[turn["agent"]] += 1
    rewards, signal = _rows(record["rewards"]), bool(record.get("signal"))
    returns = _rows(record["returns"]) if "returns" in record else rewards
    streams = {}
    for name, values in rewards.items():
        paid = returns[name]
        nothing, no_part = tuple((0.0,) * len(row) for row in paid), tuple((None,) * len(row) for row in paid)
        streams[name] = Stream(values, paid, nothing) if signal or name == AGENT else Stream(values, no_part, paid)
    return Scores(streams, _stream_of(rewards, scoring), _per(rewards), _votes_of(record), ballots=frozenset(judging))


def _per(streams: Container[str]) -> Per:
    return "agent" if AGENT in streams else "turn"


def _stream_of(streams: Mapping[str, Rows], scoring: Scoring) -> Mapping[str, str]:
    """As the reward says. A user's that is not read here says nothing: its one stream pays for every token."""
    if set(scoring.stream_of.values()) & streams.keys():
        return scoring.stream_of
    return {EVERY: next(iter(streams))} if len(streams) == 1 else SECTIONS


def _votes_of(record: Mapping[str, Any]) -> tuple[Vote, ...]:
    """As they counted then."""
    votes, turns, agents = [], record["turns"], int(record["num_agents"])
    for told in record.get("votes") or ():
        turn, by_turn = told["turn"], "left_turn" in told
        left, right = (told[f"{side}_turn"] if by_turn else told[side] for side in ("left", "right"))
        most = len(turns) if by_turn else agents
        if not (0 <= left < most and 0 <= right < most and (turn is None or 0 <= turn < len(turns))):
            there = f"there are {len(turns)} turns of {agents} agents"
            raise ConfigError(f"a vote is about {left} and {right} by {turn}, and {there}")
        author = agents + int(told["judge"]) if turn is None else turns[turn]["agent"]
        votes.append(Vote(author, left, right, told["verdict"], -1 if turn is None else turn))
    return tuple(votes)


def _advantages(record: Mapping[str, Any], scoring: Scoring) -> Advantages | None:
    if (given := record.get("advantages")) is None:
        return None
    streams = _rows(given)
    return Advantages(streams, _stream_of(streams, scoring), _per(streams))


# What a list of debates shows


@dataclass(frozen=True)
class Summary:
    """What came of a debate by its record alone, without reading what was said: a page lists thousands."""

    question: str
    num_agents: int
    winner: int | None
    signal: bool | None
    failed_turns: int
    correct: float | None
    """Share of agents whose last answer is right; None where nobody knows."""
    winner_correct: bool | None
    disagreement: bool
    error: str | None
    name: str
    """What its own file calls the question: an id, or a number; empty where it says none."""
    answer: str | None
    """What most agents hold in the end; ties go to the winner's, then to the lowest number's."""
    agreement: float | None
    """The share of agents who hold `answer`."""
    reward: float | None
    """Mean over its agents."""
    confidence: float | None
    """In the answer, where its file says so."""
    trusted: bool | None


def summary(record: Mapping[str, Any]) -> Summary:
    """Raises as `from_record`."""
    check_shape(record)
    turns = list(record["turns"])
    last = {turn["agent"]: turn for turn in turns if "failure" not in turn and not turn.get("ballot")}
    answer_known = (record["question"]["answer"] is not None or bool(record["question"].get("checked"))) and bool(turns)
    agents, scoring, winner = int(record["num_agents"]), _protocol_of(record).scoring, None
    paid: list[float] = []
    if (scores := scores_of(record, scoring)) is not None:
        means = mean_rewards(scores)
        voted = bool(record.get("votes")) or (scoring.rule.checked and bool(record.get("signal")))
        winner = winner_among(leaders_by(means), voted, scoring)
        paid = [mean for mean in means if mean is not None]
    label = record.get("label") or {"answer": None, "agreement": None} | _most_held(last, agents, winner)
    return Summary(
        question=str(record["question"]["text"]),
        num_agents=agents,
        winner=winner,
        signal=bool(record["signal"]) if "signal" in record else None,
        failed_turns=sum("failure" in turn for turn in turns),
        correct=sum(bool(turn.get("correct")) for turn in last.values()) / agents if answer_known else None,
        winner_correct=bool(last.get(winner, {}).get("correct")) if answer_known and winner is not None else None,
        disagreement=len({str(turn.get("answer")) for turn in last.values()}) > 1,
        error=None if record.get("error") is None else str(record["error"]),
        name=str(record["question"].get("id", "")),
        answer=label["answer"],
        agreement=label["agreement"],
        reward=sum(paid) / len(paid) if paid else None,
        confidence=label.get("confidence"),
        trusted=label.get("trusted"),
    )


def _most_held(last: Mapping[int, Mapping[str, Any]], agents: int, winner: int | None) -> dict[str, Any]:
    """The answer that most agents end with, and the share of all who do."""
    kinds = {agent: turn["same"] for agent, turn in last.items() if turn.get("answer") is not None}
    counted = Counter(kinds.values())
    most = max(counted.values(), default=0)
    holders = [agent for agent in sorted(kinds) if counted[kinds[agent]] == most]
    if not holders:
        return {}
    answer = str(last[winner if winner in holders else holders[0]]["answer"])
    return {"answer": answer, "agreement": most / agents}


def words(record: Mapping[str, Any], longest: int) -> str:
    said = [turn["text"] for turn in (*record["turns"], *record.get("jury", ()))]
    said += [check["thinking"] for check in record.get("checks") or ()]
    cut = (text[:longest] for text in said)
    return "\n".join(map(str, [record["question"]["text"], *cut, record.get("error") or ""]))
