"""Known answers mixed into a reward that comes from votes."""

from __future__ import annotations

from dataclasses import replace

from moot.debate.reward import REWARDS
from moot.debate.rewards.making import agent_scores, last_parsed, need_right
from moot.debate.scores import EVERY, Grades, Scores, Stream, answer_stream
from moot.debate.scoring import Scoring, listed
from moot.debate.state import Debate
from moot.debate.types import ConfigError


def mix_truth(scores: Scores, debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """`(1 - mix) * peer + mix * correct`, plus `bonus` where correct, on the reward's own scale."""
    if not scoring.reward_mix and not scoring.correct_bonus:
        return scores
    correct = need_right(debate, grades, "reward_mix and correct_bonus").correct
    name = answer_stream(scores.streams)
    stream = scores.streams[name]
    if scores.per == "agent":
        pairs = zip(scores.rewards, last_parsed(debate), strict=True)
        rewards = [reward if i is None else _mixed(reward, correct[i], stream.lowest, scoring) for reward, i in pairs]
        mixed = agent_scores(debate, rewards, lowest=stream.lowest).streams[name]
    elif EVERY in scores.stream_of:
        votes = listed(reward.name for reward in REWARDS.values() if reward.from_votes)
        raise ConfigError(f"reward_mix needs {votes}, got reward {scoring.reward!r}")
    else:
        mixed = _mixed_by_turn(stream, debate, scoring, correct)
    return replace(scores, streams={**scores.streams, name: mixed})


def _mixed_by_turn(stream: Stream, debate: Debate, scoring: Scoring, correct: tuple[bool, ...]) -> Stream:
    values, to_center = [], []
    for turns, old_values, old_to_center in zip(debate.turns_by_agent(), stream.values, stream.to_center, strict=True):
        row, row_to_center = list(old_values), list(old_to_center)
        for turn, i in enumerate(turns):
            if not debate.turns[i].answers:
                continue
            row[turn] = _mixed(row[turn], correct[i], stream.lowest, scoring)
            if scoring.reward_mix or correct[i] or row_to_center[turn] is not None:
                row_to_center[turn] = row[turn]
        values.append(tuple(row))
        to_center.append(tuple(row_to_center))
    return replace(stream, values=tuple(values), to_center=tuple(to_center))


def _mixed(peer: float, correct: bool, low: float, scoring: Scoring) -> float:
    mix = scoring.reward_mix
    return (1 - mix) * peer + mix * (1.0 if correct else low) + (scoring.correct_bonus if correct else 0.0)
