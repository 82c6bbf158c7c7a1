"""Rewards: from votes and answers to scores.

    votes.py             win_rate, win_minus_loss: per agent, over the whole debate
    generator_judge.py   per turn: answers and judging apart
    answers.py           truth and majority, per turn; truth_last and majority_last, per agent
    checked.py           approval, approved and pairs, per turn: by judges who check answers
    weighted.py          weighted_majority, per turn: answers and a judge of known worth vote together
    own.py               a user's function as a reward
    making.py            what they are made with

No ground truth is found here: graders live in tasks/, and hand in `Grades` where answers are known.
"""

from __future__ import annotations

from dataclasses import replace

from moot.debate.reward import REWARDS as REWARDS
from moot.debate.reward import Reward as Reward
from moot.debate.reward import register as register
from moot.debate.reward import remember as remember

from moot.debate.rewards.votes import win_minus_loss as win_minus_loss  # isort: skip
from moot.debate.rewards.votes import win_rate as win_rate  # isort: skip
from moot.debate.rewards.generator_judge import generator_judge as generator_judge  # isort: skip
from moot.debate.rewards.answers import majority as majority  # isort: skip
from moot.debate.rewards.answers import truth as truth  # isort: skip
from moot.debate.rewards.checked import by_approval as by_approval  # isort: skip
from moot.debate.rewards.checked import by_scores as by_scores  # isort: skip
from moot.debate.rewards.checked import scores_by_turn as scores_by_turn  # isort: skip
from moot.debate.rewards.weighted import weighted_majority as weighted_majority  # isort: skip
from moot.debate.rewards.making import FAILED as FAILED
from moot.debate.rewards.making import agent_scores as agent_scores
from moot.debate.rewards.making import held_answers as held_answers
from moot.debate.rewards.making import last_parsed as last_parsed
from moot.debate.rewards.making import need_right, paid_stream
from moot.debate.rewards.making import plurality as plurality
from moot.debate.rewards.making import turn_scores as turn_scores
from moot.debate.rewards.own import as_reward as as_reward
from moot.debate.scores import EVERY, answer_stream
from moot.debate.scores import Grades as Grades
from moot.debate.scores import Scores as Scores
from moot.debate.scores import Stream as Stream
from moot.debate.scoring import Scoring, listed
from moot.debate.state import Debate
from moot.debate.votes import ballots as ballots
from moot.debate.votes import comparisons as comparisons
from moot.errors import ConfigError


def score(debate: Debate, scoring: Scoring, grades: Grades | None = None, reward: Reward | None = None) -> Scores:
    """What a debate comes to: the reward that `scoring` names (or `reward`, where that is a user's own), with truth
    mixed in."""
    return mix_truth((reward or scoring.rule).pay(debate, scoring, grades), debate, scoring, grades)


def mix_truth(scores: Scores, debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """`(1 - mix) * peer + mix * correct`, plus `bonus` where correct, on the reward's own scale."""
    mix, bonus = scoring.reward_mix, scoring.correct_bonus
    if not mix and not bonus:
        return scores
    correct = need_right(debate, grades, "reward_mix and correct_bonus").correct
    name = answer_stream(scores.streams)
    stream = scores.streams[name]

    def mixed(peer: float, i: int) -> float:
        return (1 - mix) * peer + mix * (1.0 if correct[i] else stream.lowest) + (bonus if correct[i] else 0.0)

    def mixed_turn(peer: float | None, i: int) -> float | None:
        """A turn without a vote has a signal where truth is mixed in, or where it is right and gets a bonus."""
        takes_part = debate.turns[i].answers and (mix or correct[i] or peer is not None)
        return mixed(peer or 0.0, i) if takes_part else peer

    if scores.per == "agent":
        rewards = [
            peer if i is None else mixed(peer, i) for peer, i in zip(scores.rewards, last_parsed(debate), strict=True)
        ]
        paid = agent_scores(debate, rewards, lowest=stream.lowest).streams[name]
    elif EVERY in scores.stream_of:
        votes = listed(reward.name for reward in REWARDS.values() if reward.from_votes)
        raise ConfigError(f"reward_mix needs {votes}, got reward {scoring.reward!r}")
    else:
        rows = zip(stream.to_center, debate.turns_by_agent(), strict=True)
        to_center = tuple(tuple(mixed_turn(peer, i) for peer, i in zip(*row, strict=True)) for row in rows)
        paid = paid_stream(to_center, stream.added, stream.weight, stream.lowest)
    return replace(scores, streams={**scores.streams, name: paid})
