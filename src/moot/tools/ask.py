"""Questions debated now: who said what, what came of it, and what it cost. The part of `moot ask` and `moot label` that
needs no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from moot.debate.outcome import Outcome
from moot.debate.parsing import BALLOT
from moot.debate.play import Speak
from moot.debate.rewards import Grades, held_answers, last_parsed
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Observation, Said, Turn
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from moot.players.chat.listening import Casting, Listener
from moot.rl.rollout import rollout
from moot.runs.record import turns_to_json
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.asked import IN_BOX


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
    held: tuple[str | None, ...]
    """Each agent's last answer."""
    kinds: tuple[int | None, ...]
    """Which of them are the same."""
    solutions: tuple[str | None, ...]
    """The whole solution that each of them is from."""
    right: tuple[bool, ...]
    """Which of them are right; none where that is not known."""
    scores: tuple[float | None, ...] = ()
    """Of each by a judge, where one was asked."""

    @property
    def ranked(self) -> list[int]:
        """For each different answer the agent who stands for it, the label first: by the mean score where a judge
        scored, then by how many hold it, then by the lowest number."""
        agents = [agent for agent, kind in enumerate(self.kinds) if kind is not None]
        firsts = {self.kinds[agent]: agent for agent in reversed(agents)}.values()
        return sorted(firsts, key=lambda agent: (-_known(self.score(agent)), -self.holding(agent), agent))

    def holding(self, agent: int) -> int:
        """How many hold the agent's answer."""
        return 0 if self.kinds[agent] is None else self.kinds.count(self.kinds[agent])

    def score(self, agent: int) -> float | None:
        """The judge's mean score of the agent's answer, over all who hold it."""
        scores = [score for kind, score in zip(self.kinds, self.scores, strict=False) if kind == self.kinds[agent]]
        given = [score for score in scores if score is not None]
        return sum(given) / len(given) if given else None

    @property
    def chosen(self) -> int | None:
        """The agent whose answer is everybody's; the winner by votes where no answers can be compared."""
        return self.ranked[0] if self.ranked else self.outcome.winner

    @property
    def answer(self) -> str | None:
        return None if self.chosen is None else self.held[self.chosen]

    @property
    def agreeing(self) -> int:
        """How many hold `answer`."""
        return 0 if self.chosen is None else self.holding(self.chosen)

    @property
    def solution(self) -> str | None:
        """The solution that stands for the answer: of those who hold it, the one with the highest score."""
        if self.chosen is None:
            return None
        holders = [
            agent for agent, kind in enumerate(self.kinds) if kind is not None and kind == self.kinds[self.chosen]
        ]
        scores = self.scores or (None,) * len(self.held)
        return self.solutions[max(holders or [self.chosen], key=lambda agent: _known(scores[agent]))]

    @property
    def winner_agrees(self) -> bool | None:
        """Whether the winner by votes holds `answer`; None where nobody won, or answers cannot be compared."""
        if self.outcome.winner is None or not self.ranked:
            return None
        return self.kinds[self.outcome.winner] == self.kinds[self.ranked[0]]

    @property
    def winner_answer(self) -> str | None:
        """What the winner by votes holds. Peers' votes are measured by nobody here, so it does not decide."""
        return None if self.outcome.winner is None else self.held[self.outcome.winner]

    @property
    def level(self) -> tuple[int, ...]:
        """All who have the highest mean reward, the winner among them; empty where nobody voted."""
        return self.outcome.leaders if self.outcome.voted else ()


def _known(score: float | None) -> float:
    """Of an answer that nobody scored, or nobody surely: it stands between those that are approved and the others."""
    return 0.5 if score is None else score


def group_answer(played: PlayedDebate, grades: Grades | None = None) -> GroupAnswer:
    """Answers are found and compared `IN_BOX` where no `grades` are given."""
    debate = played.debate
    grades = grades or grade(debate, IN_BOX.equal, IN_BOX.extract)
    outcome = played.scored(played.scoring, grades).outcome
    assert outcome is not None  # it was just scored
    last = last_parsed(debate)
    return GroupAnswer(
        outcome=outcome,
        held=tuple(None if i is None else grades.answers[i] for i in last),
        kinds=tuple(held_answers(debate, grades)),
        solutions=tuple(None if i is None else debate.turns[i].solution for i in last),
        right=tuple(i is not None and grades.correct[i] for i in last),
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

    def as_json(self, group: GroupAnswer | None = None) -> dict[str, Any]:
        """For one that is over `group` is what came of it."""
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
        if group is not None:
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
                **({"scores": list(group.scores)} if group.scores else {}),
            }
        return record


# Asking


class _UnderWay(Listener):
    """One question in debate, and what has been said so far."""

    def __init__(
        self, number: int, debate: Debate, scoring: Scoring, cast: Casting, listener: Listener,
        prices: Sequence[Prices | None],
    ) -> None:  # fmt: skip
        self._number, self._debate, self._scoring, self._listener = number, debate, scoring, listener
        self._prices = prices or [None] * debate.num_agents
        self._speakers = [cast(debate.question.id, agent, self) for agent in range(debate.num_agents)]
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
                number + 1, self._debates[number], self._scoring, self._cast, self._listener, self._prices
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
