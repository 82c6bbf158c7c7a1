"""Rewards per agent, by the votes of the whole debate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moot.debate.reward import Pay, Reward, register
from moot.debate.rewards.making import agent_scores
from moot.debate.scores import Grades, Scores
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote
from moot.debate.vote_filter import counting
from moot.debate.votes import comparisons


def win_rate(votes: Sequence[Vote], num_agents: int) -> list[float]:
    """Share of peer votes each agent won; ties count half, no votes gives 0."""
    won, seen = [0.0] * num_agents, [0.0] * num_agents
    for vote in votes:
        seen[vote.left] += 1
        seen[vote.right] += 1
        won[vote.left] += 1.0 if vote.verdict == ">" else 0.5
        won[vote.right] += 0.0 if vote.verdict == ">" else 0.5
    return [w / n if n else 0.0 for w, n in zip(won, seen, strict=True)]


def win_minus_loss(votes: Sequence[Vote], num_agents: int) -> list[float]:
    """Votes won minus votes lost, as a share of all votes about the agent, ties included; no votes gives 0."""
    score, seen = [0.0] * num_agents, [0.0] * num_agents
    for vote in votes:
        seen[vote.left] += 1
        seen[vote.right] += 1
        if vote.verdict == ">":
            score[vote.left] += 1
            score[vote.right] -= 1
    return [s / n if n else 0.0 for s, n in zip(score, seen, strict=True)]


def _paying(rule: Callable[[Sequence[Vote], int], list[float]]) -> Pay:
    def pay(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
        cast, malformed = comparisons(debate, scoring)
        valid = counting(cast, scoring)
        return agent_scores(debate, rule(valid, debate.num_agents), valid, malformed, scoring.rule.lowest)

    return pay


register(Reward("win_rate", _paying(win_rate), per="agent", from_votes=True))
register(Reward("win_minus_loss", _paying(win_minus_loss), per="agent", from_votes=True, lowest=-1.0))
