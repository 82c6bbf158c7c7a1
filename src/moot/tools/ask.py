"""One question, debated now: who said what, what came of it, and what it cost. The part of `moot ask` that needs no
terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from moot.debate.outcome import Outcome
from moot.debate.parsing import BALLOT
from moot.debate.play import Speak
from moot.debate.protocols import preset
from moot.debate.rewards import held_answers, last_parsed
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Observation, Parsed, Question, Said, Turn
from moot.engine.protocol import SamplingParams
from moot.errors import ConfigError, EngineError
from moot.players.chat.listening import Casting, Listener
from moot.rl.rollout import rollout
from moot.runs.record import turns_to_json
from moot.tasks.answers import final_number, grade
from moot.tokens.played import PlayedDebate
from moot.util.files import append_lines, json_lines, write_lines
from moot.util.json_text import read_json

BRIEF_BOX = "Put the final answer, as short as possible, in \\boxed{}."


@dataclass(frozen=True)
class Prices:
    """Dollars, or whatever they are counted in, per million tokens."""

    read: float
    written: float


# What came of a debate


@dataclass(frozen=True)
class GroupAnswer:
    outcome: Outcome
    """Votes, rewards and winner."""
    answer: str | None
    """What most agents hold in the end; ties go to what the winner by votes holds, then to the lowest number."""
    solution: str | None
    """The whole solution that answer is from; the winner's where no answers can be compared."""
    held: tuple[str | None, ...]
    """Each agent's last answer."""
    agreeing: int
    """How many hold `answer`."""
    winner_agrees: bool | None
    """Whether the winner by votes holds `answer`; None where nobody won, or answers cannot be compared."""
    correct: bool | None
    """None where the right answer is not known."""

    @property
    def winner_answer(self) -> str | None:
        """What the winner by votes holds. Peers' votes are measured by nobody here, so it does not decide."""
        return None if self.outcome.winner is None else self.held[self.outcome.winner]

    @property
    def level(self) -> tuple[int, ...]:
        """All who have the highest mean reward, the winner among them; empty where nobody voted."""
        return self.outcome.leaders if self.outcome.voted else ()


def group_answer(played: PlayedDebate) -> GroupAnswer:
    debate = played.debate
    # Without a box, the last number is an answer only where a number is expected: in prose it is any number.
    gradable = debate.question.answer is not None
    grades = grade(debate, otherwise=final_number if gradable else lambda solution: None)
    outcome = played.scored(played.scoring, grades).outcome
    assert outcome is not None  # it was just scored
    last = last_parsed(debate)
    held = tuple(None if i is None else grades.answers[i] for i in last)
    kinds = held_answers(debate, grades)
    given, winner = [kind for kind in kinds if kind is not None], outcome.winner
    agreeing = max(map(given.count, given), default=0)
    holders = [agent for agent, kind in enumerate(kinds) if kind is not None and given.count(kind) == agreeing]
    chosen = winner if winner in holders or not holders else holders[0]
    turn = None if chosen is None else last[chosen]
    parsed = None if turn is None else debate.turns[turn].parsed
    return GroupAnswer(
        outcome=outcome,
        answer=None if chosen is None else held[chosen],
        solution=parsed.fields["solution"] if isinstance(parsed, Parsed) else None,
        held=held,
        agreeing=agreeing,
        winner_agrees=None if winner is None or chosen is None or not holders else kinds[winner] == kinds[chosen],
        correct=(turn is not None and grades.correct[turn]) if gradable else None,
    )


Ending = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True)
class AskedDebate:
    """A question's debate, or as much of one as there is, and what it cost."""

    played: PlayedDebate
    """Whole turns only, those of an unfinished round too. Its number is the question's."""
    ended: Ending
    spent: tuple[tuple[int | None, int | None], ...]
    """Tokens read and written, in the order of the turns."""
    retries: int
    """How often a turn was asked for anew. What was thrown away is in no count of tokens."""
    seconds: float
    cost: float | None
    """None where a price or a count is not known."""

    @property
    def debate(self) -> Debate:
        return self.played.debate

    def tokens(self) -> tuple[int, int, int]:
        """Read, written, and for how many turns nobody said."""
        read = sum(r for r, _ in self.spent if r is not None)
        written = sum(w for _, w in self.spent if w is not None)
        return read, written, sum(r is None or w is None for r, w in self.spent)

    def as_json(self) -> dict[str, Any]:
        debate = self.debate
        read, written, silent = self.tokens()
        record: dict[str, Any] = {
            "number": self.played.number,
            "question": debate.question.text,
            "known_answer": debate.question.answer,
            "ended": self.ended,
            "error": self.played.error,
            "num_agents": debate.num_agents,
            "max_rounds": debate.max_rounds,
            "turns": turns_to_json(replace(self.played, sampled=()), sections=False),
            "tokens": {"read": read, "written": written, "turns_without_count": silent},
            "asked_again": self.retries,
            "cost": self.cost,
            "seconds": round(self.seconds, 3),
        }
        if self.ended == "done":
            group = group_answer(self.played)
            votes = [
                {name: getattr(vote, name) for name in ("round", "author", "left", "verdict", "right")}
                for vote in group.outcome.votes
            ]
            record |= {
                "answer": group.answer,
                "agreement": group.agreeing / debate.num_agents,
                "solution": group.solution,
                "winner": group.outcome.winner,
                "winner_answer": group.winner_answer,
                "level_with": [agent for agent in group.level if agent != group.outcome.winner],
                "consensus": debate.agreed,
                "aborted": debate.aborted,
                "answers": list(group.held),
                "votes": votes,
                "rewards": list(group.outcome.means),
                "correct": group.correct,
            }
        return record


# Asking


class _UnderWay(Listener):
    """One question in debate, and what has been said so far."""

    def __init__(
        self, debate: Debate, scoring: Scoring, cast: Casting, listener: Listener, prices: Sequence[Prices | None]
    ) -> None:
        self._debate, self._scoring, self._listener = debate, scoring, listener
        self._prices = prices or [None] * debate.num_agents
        self._number = int(debate.question.id or 1)
        self._speakers = [cast(self._number, agent, self) for agent in range(debate.num_agents)]
        self._parts: dict[tuple[int, int], list[Said]] = {}
        self._turns: dict[tuple[int, int], Turn] = {}
        self._spent: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        self._retries, self._since = 0, time.monotonic()
        self._error: str | None = None

    def heard(self, agent: int, piece: str) -> None:
        self._listener.heard(agent, piece)

    def retried(self, agent: int, why: str, wait_s: float) -> None:
        self._retries += 1
        self._listener.retried(agent, why, wait_s)

    async def speak(self, observation: Observation) -> Said:
        """A turn, or one part of it where sections are spoken one by one."""
        agent, round = observation.agent, observation.round
        place = (round, agent)
        if not observation.part:
            self._parts[place], self._spent[place] = [], (0, 0)
            self._listener.began(agent, round)
        try:
            said = await self._speakers[agent](observation)
        except EngineError as error:
            self._error = self._error or str(error)
            raise
        self._parts[place].append(said)
        self._spent[place] = _added(self._spent[place], self._speakers[agent].spent)
        if observation.last_part:
            whole = self._debate.joined(observation, self._parts.pop(place))
            self._turns[place] = self._debate.read(round, agent, whole, ballot=observation.contract == BALLOT)
            self._listener.said(self._turns[place])
        return said

    def ended(self, how: Ending, whole: Debate | None = None) -> AskedDebate:
        """Half a turn is no turn; a whole one counts even where others of its round are missing."""
        debate = whole or replace(self._debate, turns=tuple(self._turns[place] for place in sorted(self._turns)))
        spent = tuple(self._spent[turn.round, turn.agent] for turn in debate.turns)
        costs = [_cost(tokens, self._prices[turn.agent]) for tokens, turn in zip(spent, debate.turns, strict=True)]
        cost = None if None in costs or not costs else sum(cost for cost in costs if cost is not None)
        error = self._error if how == "failed" else None
        played = PlayedDebate(debate, error=error, scoring=self._scoring, number=self._number)
        return AskedDebate(played, how, spent, self._retries, time.monotonic() - self._since, cost)


class Asking:
    """Questions that are debated now. Whatever ends it, what was said in full is here."""

    def __init__(
        self,
        debates: Sequence[Debate],
        scoring: Scoring,
        cast: Casting,
        listener: Listener = Listener(),
        prices: Sequence[Prices | None] = (),
        give_up_after: int = 0,
    ) -> None:
        """After `give_up_after` failures in a row the rest is left for later: the server is gone, not the questions
        hard."""
        self._debates, self._scoring, self._cast, self._listener, self._prices = (
            debates,
            scoring,
            cast,
            listener,
            prices,
        )
        self._give_up_after, self._failed_in_a_row = give_up_after, 0
        self._under_way: dict[int, _UnderWay] = {}

    async def run(self, finished: Callable[[AskedDebate], None], concurrency: int = 1) -> None:
        """Each debate goes to `finished` as it ends, done or failed."""

        def over(number: int, played: PlayedDebate) -> None:
            if (under_way := self._under_way.pop(number, None)) is None:
                return  # left for later
            failed = played.error is not None
            self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
            finished(under_way.ended("failed") if failed else under_way.ended("done", played.debate))

        # How long a turn may be, and at which temperature, each speaker knows itself.
        await rollout(
            self._debates, None, None, SamplingParams(1), seats=self._seat, concurrency=concurrency, finished=over
        )

    def unfinished(self) -> list[AskedDebate]:
        """What was under way when it was interrupted."""
        return [under_way.ended("interrupted") for under_way in self._under_way.values()]

    def _seat(self, number: int, seat: int) -> Speak:
        if 0 < self._give_up_after <= self._failed_in_a_row and number not in self._under_way:
            return _gone
        if number not in self._under_way:
            self._under_way[number] = _UnderWay(
                self._debates[number], self._scoring, self._cast, self._listener, self._prices
            )
        return self._under_way[number].speak


async def _gone(observation: Observation) -> Said:
    raise EngineError("left for later")


def _added(a: tuple[int | None, int | None], b: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """None where either is: half a count is no count."""
    read, written = (None if x is None or y is None else x + y for x, y in zip(a, b, strict=True))
    return read, written


def _cost(spent: tuple[int | None, int | None], prices: Prices | None) -> float | None:
    read, written = spent
    if prices is None or read is None or written is None:
        return None
    return (read * prices.read + written * prices.written) / 1e6


# Questions from a file, answers to a file


def asked_rules(settings: Mapping[str, Any]) -> Rules:
    """The rules by which a question is debated, by the settings that stand beside its answer; what a file leaves out
    came later."""
    rules, temperature = preset(settings["protocol"]).rules, settings.get("temperature")
    return replace(
        rules,
        closing_ballot=bool(settings.get("closing_ballot")),
        sections=settings.get("sections", "sampled"),
        personas=rules.personas and settings.get("personas", True),
        temperature=1.0 if temperature is None else temperature,
    )


def read_questions(raw: bytes, name: str, instruction: str = BRIEF_BOX) -> list[Question]:
    """One question per line, or JSON lines with `question` (or `problem`) and, if known, `answer`. Blank lines are
    skipped but numbered."""
    try:
        lines = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8: {error.reason} at byte {error.start}; save it as UTF-8") from None
    filled = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ConfigError(f"{name} holds no questions; write one per line")
    if not filled[0][1].startswith("{"):
        return [Question(line, id=str(number), instruction=instruction) for number, line in filled]
    return [_question(line, number, name, instruction) for number, line in filled]


def _question(line: str, number: int, name: str, instruction: str) -> Question:
    try:
        given = read_json(line)
    except ConfigError as error:
        raise ConfigError(
            f"{name}, line {number}: {error}, and the first line is; write every line as an object"
        ) from None
    text = (given.get("question") or given.get("problem")) if isinstance(given, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{name}, line {number}: needs a text under question")
    answer = given.get("answer")
    if answer is not None and (isinstance(answer, bool) or not isinstance(answer, str | int | float)):
        raise ConfigError(f"{name}, line {number}: answer must be a string or a number, got {type(answer).__name__}")
    right = None if answer is None else str(answer).rpartition("####")[2].strip() or None
    return Question(text, right, id=str(number), instruction=instruction)


class AnswerFile:
    """A file with one object per question, whose debates that ended early are played again the next time."""

    def __init__(self, path: Path, questions: Sequence[Question], settings: Mapping[str, Any]) -> None:
        self.path = path
        wanted = {(int(question.id), question.text) for question in questions}
        self.done: dict[int, dict[str, Any]] = {}
        for record in _records(path):
            if record["settings"] != settings:
                name = next(
                    key
                    for key in {**record["settings"], **settings}
                    if record["settings"].get(key) != settings.get(key)
                )
                raise ConfigError(
                    f"{path} was begun with {name} {record['settings'].get(name)!r}, not {settings.get(name)!r}; name "
                    "another --out"
                )
            if (record["number"], record["question"]) not in wanted:
                raise ConfigError(
                    f"{path} answers a question that line {record['number']} of the file does not ask; name another "
                    "--out"
                )
            if record["ended"] == "done":
                self.done[record["number"]] = record
        self._begun = False

    def add(self, record: Mapping[str, Any]) -> None:
        if not self._begun:
            # Debates that ended early go, now that there is something in their place, and so does a line that a kill
            # cut short.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_lines(self.path, self.done.values())
            self._begun = True
        append_lines(self.path, [record])


def _records(path: Path) -> list[dict[str, Any]]:
    """Every whole line; one that a kill cut short is left out. A file of another kind is not ours to write over."""
    records: list[dict[str, Any]] = []
    for number, record, ended in json_lines(path):
        if isinstance(record, dict) and {"number", "question", "ended", "settings"} <= record.keys():
            records.append(record)
        elif ended or not records:
            where = f", line {number}" if ended else ""
            raise ConfigError(f"{path}{where}: not written by moot ask; name another --out")
    return records
