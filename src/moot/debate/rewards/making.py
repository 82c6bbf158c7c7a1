"""What rewards are made with: numbers to scores, and who holds which answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from moot.debate.scores import AGENT, EVERY, Grades, Rows, Scores, Stream, answer_stream
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote
from moot.errors import ConfigError

FAILED = -1.0
T = TypeVar("T")


def agent_scores(
    debate: Debate, rewards: Sequence[float], votes: Sequence[Vote] = (), malformed: int = 0, lowest: float = 0.0
) -> Scores:
    """One reward per agent, for all its tokens; each failed turn costs 1 of its return."""
    failed = Counter(turn.agent for turn in debate.turns if turn.failed)
    paid = tuple((float(reward),) for reward in rewards)
    returns = tuple((reward + FAILED * failed[agent],) for agent, (reward,) in enumerate(paid))
    stream = Stream(paid, returns, ((0.0,),) * len(paid), lowest=lowest)
    return Scores({AGENT: stream}, {EVERY: AGENT}, "agent", tuple(votes), malformed)


def turn_scores(
    debate: Debate,
    scoring: Scoring,
    values: Sequence[float | None],
    votes: Sequence[Vote] = (),
    failed: float | None = None,
) -> Scores:
    """One reward for each turn, for the sections that the reward credits; None for a turn without a signal. A ballot
    holds no answer and takes no part. A failed turn gets -1, a penalty after centring, or `failed`, a reward like any
    other."""

    def reward(i: int) -> float | None:
        turn = debate.turns[i]
        return failed if turn.failed else None if turn.ballot else values[i]

    penalties = by_agent(debate, lambda i: FAILED if debate.turns[i].failed and failed is None else 0.0)
    stream = paid_stream(by_agent(debate, reward), penalties, lowest=scoring.rule.lowest)
    name = answer_stream(scoring.stream_of.values())
    return Scores({name: stream}, scoring.stream_of, votes=tuple(votes), ballots=ballots_read(debate))


def paid_stream(
    to_center: tuple[tuple[float | None, ...], ...], added: Rows, weight: float = 1.0, lowest: float = 0.0
) -> Stream:
    """A stream that reports what takes part in centring and what is added to it."""
    values = tuple(
        tuple((value or 0.0) + penalty for value, penalty in zip(row, penalties, strict=True))
        for row, penalties in zip(to_center, added, strict=True)
    )
    return Stream(values, to_center, added, weight, lowest)


def by_agent(debate: Debate, cell: Callable[[int], T]) -> tuple[tuple[T, ...], ...]:
    """A row for each agent: what `cell` says of each of its turns, by the turn's index."""
    return tuple(tuple(cell(i) for i in turns) for turns in debate.turns_by_agent())


def ballots_read(debate: Debate) -> frozenset[tuple[int, int]]:
    """Agent and turn of each ballot that could be read."""
    rows = by_agent(debate, lambda i: debate.turns[i].ballot and not debate.turns[i].failed)
    return frozenset((agent, turn) for agent, row in enumerate(rows) for turn, ballot in enumerate(row) if ballot)


def last_parsed(debate: Debate) -> list[int | None]:
    """For each agent, the turn that holds its answer."""
    answers = debate.answers()
    return [answers.get(agent) for agent in range(debate.num_agents)]


def held_answers(debate: Debate, grades: Grades | None) -> list[int | None]:
    """For each agent, the kind of answer it ended with: equal answers are one kind. None where it has none, or nobody
    compared them."""
    return [None if i is None or grades is None else grades.same[i] for i in last_parsed(debate)]


def plurality(held: Sequence[int | None]) -> int | None:
    """The answer most agents hold; ties go to the lowest-numbered agent holding one."""
    counts = Counter(answer for answer in held if answer is not None)
    return max(counts, key=lambda answer: counts[answer]) if counts else None


def need_right(debate: Debate, grades: Grades | None, what: str) -> Grades:
    """The grades of a question whose answer is known."""
    if grades is None or not grades.known(debate.question):
        raise ConfigError(
            f"{what} needs a question with a known answer, and this one has none; give it one, or use majority or votes"
        )
    return grades


def need_same(grades: Grades | None, scoring: Scoring) -> Grades:
    if grades is None:
        raise ConfigError(
            f"reward {scoring.reward} needs a task with a grader, which decides whether answers are equal; name one"
        )
    return grades
