"""What a debate came to: who was preferred to whom, and who won.

One agent alone with the highest mean reward wins. Where the reward is made of votes (`win_rate`, `win_minus_loss`,
`generator_judge`, with truth mixed in or not), at least one vote that counts must have been cast: otherwise nobody but
the format decided. Where judges check answers, some scores must differ.
A reward of
another kind (`truth`, `majority`, a user's own) needs no vote. A debate that is level at the top, or has no vote, has
no winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moot.debate.scores import Scores, answer_stream
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Verdict, Vote
from moot.debate.votes import ballots, comparisons, outside_votes

LEVEL = 1e-9
"""Means that differ by no more are equal: sums of thirds differ in the last digit."""


@dataclass(frozen=True)
class AgentVote:
    """A vote as a reader wants it: who cast it where, and which two agents it is about."""

    author: int
    """An agent; the j-th judge without a seat is number `num_agents + j`."""
    left: int
    """The agent that is preferred, or set level."""
    right: int
    verdict: Verdict
    turn: int | None
    """Index of the turn that cast it; None for an outside judge's."""
    round: int | None
    """The round it was cast in; None for an outside judge's."""
    judge: int | None = None
    """Which outside judge cast it; None for an agent's."""
    left_turn: int | None = None
    """The response that is preferred, where votes are about responses (`generator_judge`); None where they are about
    agents."""
    right_turn: int | None = None
    counts: bool = True
    """False for a judge who only looks on."""


@dataclass(frozen=True)
class Outcome:
    means: tuple[float | None, ...]
    """Each agent's mean reward; None for one that has none."""
    leaders: tuple[int, ...]
    """The agents with the highest mean; all of them where they are level, nobody where nobody has one."""
    winner: int | None
    """The one leader, if the debate has a winner."""
    votes: tuple[AgentVote, ...]
    """Those that count, in the order in which they were cast; outside judges' come last."""
    voted: bool
    """Whether any vote carries it, or the scores of judges' checks."""

    @classmethod
    def of(cls, debate: Debate, scores: Scores, scoring: Scoring) -> Outcome:
        votes = votes_of(debate, scores, scoring)
        means = mean_rewards(scores)
        leaders = leaders_by(means)
        voted = bool(votes) or (scoring.rule.checked and scores.has_signal)
        return cls(means, leaders, winner_among(leaders, voted, scoring), votes, voted)

    @property
    def won(self) -> tuple[int, ...]:
        """How many votes preferred each agent."""
        return tuple(
            sum(vote.verdict == ">" and vote.left == agent for vote in self.votes) for agent in range(len(self.means))
        )

    @property
    def lost(self) -> tuple[int, ...]:
        return tuple(
            sum(vote.verdict == ">" and vote.right == agent for vote in self.votes) for agent in range(len(self.means))
        )


def leaders_by(means: Sequence[float | None]) -> tuple[int, ...]:
    best = max((mean for mean in means if mean is not None), default=0.0)
    return tuple(agent for agent, mean in enumerate(means) if mean is not None and mean >= best - LEVEL)


def winner_among(leaders: Sequence[int], voted: bool, scoring: Scoring) -> int | None:
    return leaders[0] if len(leaders) == 1 and (voted or not scoring.rule.from_votes) else None


def rewards_by_agent(scores: Scores, stream: str) -> list[list[float]]:
    """A stream's values, agent by agent; for the generator without ballots, in which nothing is generated."""
    left_out = scores.ballots if stream == "generator" else frozenset()
    return [
        [v for turn, v in enumerate(row) if (a, turn) not in left_out]
        for a, row in enumerate(scores.streams[stream].values)
    ]


def mean_rewards(scores: Scores) -> tuple[float | None, ...]:
    """The mean of each agent's rewards for answers; None for an agent without any."""
    return tuple(
        sum(row) / len(row) if row else None for row in rewards_by_agent(scores, answer_stream(scores.streams))
    )


def votes_of(debate: Debate, scores: Scores, scoring: Scoring) -> tuple[AgentVote, ...]:
    """The votes that count, as the scores have them: about agents, or about responses. A reward that is not made of
    votes does not say which count, so all that were cast do; one that is made of them may have dropped every one."""
    silent = not scores.votes and not scoring.rule.from_votes
    if scores.per == "agent":
        return tuple(
            _about_agents(debate, vote) for vote in (comparisons(debate, scoring)[0] if silent else scores.votes)
        )
    cast = ballots(debate, scoring).votes if silent and "judge" not in scores.streams else scores.votes
    return tuple(_about_responses(debate, vote) for vote in cast)


def onlookers_votes(debate: Debate, scoring: Scoring) -> tuple[AgentVote, ...]:
    """Those of outside judges who only look on."""
    if scoring.judges_count:
        return ()
    return tuple(_about_responses(debate, vote, counts=False) for vote in outside_votes(debate, scoring))


def _about_agents(debate: Debate, vote: Vote) -> AgentVote:
    return AgentVote(vote.author, vote.left, vote.right, vote.verdict, *_cast(debate, vote))


def _about_responses(debate: Debate, vote: Vote, counts: bool = True) -> AgentVote:
    left, right = debate.turns[vote.left].agent, debate.turns[vote.right].agent
    return AgentVote(vote.author, left, right, vote.verdict, *_cast(debate, vote), vote.left, vote.right, counts)


def _cast(debate: Debate, vote: Vote) -> tuple[int | None, int | None, int | None]:
    """The turn and the round it was cast in, or the outside judge who cast it."""
    if vote.turn < 0:
        return None, None, vote.author - debate.num_agents
    return vote.turn, debate.turns[vote.turn].round, None
