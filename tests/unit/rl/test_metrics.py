"""Every number of an iteration, worked by hand on small debates. Where there was nothing to measure it is None, not 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moot.debate.rewards import Scores, Stream
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import Datum
from moot.rl.metrics import answer_metrics, optim_metrics, reward_metrics, rollout_metrics
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages, SampledTurn, carries_gradient
from support.datums import datum
from support.making import FAILED, Tabled, by_agent, by_step, debate, near, spoken, text, v1, v2


def sampled(prompt: int, tokens: int, extends: bool = False, cut: bool = False) -> SampledTurn:
    return SampledTurn(
        prompt=np.zeros(prompt, dtype=np.int32),
        extends=extends,
        tokens=np.zeros(tokens, dtype=np.int32),
        logprobs=np.zeros(tokens, dtype=np.float32),
        starts=np.zeros(tokens, dtype=np.int32),
        stop_reason="length" if cut else "stop",
    )


# What was played

TWO = debate(v2(), [["", FAILED], ["", ""]])
PLAYED = PlayedDebate(
    TWO,
    (sampled(10, 5), sampled(12, 4, cut=True), sampled(3, 6, extends=True), sampled(2, 1, extends=True)),
)
"""Two agents, two rounds. Agent 0: prompt 10, says 5, 3 new, says 6. Agent 1: prompt 12, says 4 (cut, unreadable), 2 new, says 1."""


def test_what_was_played() -> None:
    lost = [
        PlayedDebate(Debate(Question("q")), error=error)
        for error in ("EngineError: time-out", "ContextOverflow: 9 tokens and 9 more")
    ]
    found = rollout_metrics([PLAYED, *lost])
    assert found == {
        "env/all/total_episodes": 2.0,
        "env/all/total_turns": 4.0,
        "env/all/turns_per_episode": 2.0,
        # (5 + 4 + 6 + 1) / 4
        "env/all/ac_tokens_per_turn": 4.0,
        # The whole prompts: 10, 12, 10+5+3, 12+4+2.
        "env/all/ob_tokens_per_turn": (10 + 12 + 18 + 18) / 4,
        "tokens/sampled": 16.0,
        "tokens/read": 27.0,
        # Of the turns that can be read: (5 + 6 + 1) / 3.
        "tokens/solution": 4.0,
        "debates/played": 1.0,
        "debates/failed": 2.0,
        "debates/overflowed": 1.0,
        "parse_error": 0.25,
        "round": 1.5,
        "consensus_reached": 0.0,
        "turns/cut": 0.25,
    }


def test_a_prompt_that_does_not_extend_counts_whole() -> None:
    fresh = replace(PLAYED, sampled=(sampled(10, 5), sampled(12, 4), sampled(30, 6), sampled(40, 1)))
    assert rollout_metrics([fresh])["env/all/ob_tokens_per_turn"] == (10 + 12 + 30 + 40) / 4


def test_nothing_played_is_none_and_not_zero() -> None:
    found = rollout_metrics([PlayedDebate(Debate(Question("q")), error="lost")])
    counts = {
        "env/all/total_episodes",
        "env/all/total_turns",
        "tokens/sampled",
        "tokens/read",
        "debates/played",
        "debates/failed",
    }
    counts |= {"debates/overflowed"}
    assert {name for name, value in found.items() if value is not None} == counts
    assert (found["debates/failed"], found["env/all/total_turns"]) == (1.0, 0.0)


def test_consensus_is_reached_by_the_last_turn_of_the_round_in_which_all_say_yes() -> None:
    """Six turns; the sixth completes the agreement: 1/6."""
    row = [(agent, text(contract="five_tag", consensus="YES")) for agent in range(3)]
    no = [(agent, text(contract="five_tag", consensus="NO")) for agent in range(3)]
    agreed = PlayedDebate(spoken([no, row], v1(), 3), tuple(sampled(1, 1) for _ in range(6)))
    assert rollout_metrics([agreed])["consensus_reached"] == pytest.approx(1 / 6)


# Rewards


def taught(played: Tabled, scores: Scores, advantages: Advantages) -> PlayedDebate:
    return PlayedDebate(played, scoring=played.scoring, scores=scores, advantages=advantages)


def test_pairwise_rewards() -> None:
    """Debate 1: Agent 2 says 0 > 1 and names Agent 9: rewards 1, 0, 0. Debate 2: nobody votes, Agent 1 fails: returns 0, -1, 0."""
    one, two = debate(v1(), [["", "", "0 > 1; 0 > 9"]]), debate(v1(), [["", FAILED]], num_agents=3)
    scored = [by_agent(each) for each in (one, two)]
    pairs = zip((one, two), scored, strict=True)
    found = reward_metrics([taught(each, scores, Advantages.per_agent(values)) for each, (scores, values) in pairs])
    assert found == {
        # (1 + 0 + 0 + 0 - 1 + 0) / 6
        "env/all/reward/total": 0.0,
        "env/all/by_group/frac_mixed": 1.0,
        "debates/with_signal": 1.0,
        "debates/with_gradient": 1.0,
        "pairwise_reward": pytest.approx(1 / 6),
        "pairwise_reward_is_win_rate": 1.0,
        "pairwise_reward_is_win_minus_loss": 0.0,
        "pairwise_total_votes": 0.5,
        "pairwise_malformed": 0.5,
        "pairwise_any_votes": 0.5,
    }


def test_the_indicators_tell_the_rewards_apart() -> None:
    one = debate(v1(reward="win_minus_loss"), [["", "", "0 > 1"]])
    scores, values = by_agent(one)
    found = reward_metrics([taught(one, scores, Advantages.per_agent(values))])
    assert (found["pairwise_reward_is_win_rate"], found["pairwise_reward_is_win_minus_loss"]) == (0.0, 1.0)
    assert found["pairwise_reward"] == 0.0


def test_streams() -> None:
    """Debate 1: full votes: generator 1, 0, -1 and 0s, judges 1, 1, 1. Debate 2: all abstain in round 2: judges -0.5 three times."""
    one = debate(v2(), [["", "", ""], ["1 > 2", "0 > 2; 0 > 8", "0 > 1"]])
    two = debate(v2(), [["", "", ""], ["", "", ""]])
    scored = [by_step(each) for each in (one, two)]
    pairs = zip((one, two), scored, strict=True)
    found = reward_metrics([taught(each, scores, Advantages(streams)) for each, (scores, streams) in pairs])
    assert found == {
        # Totals: 1+1, 0+1, -1+1 and three times -1/2; mean 1.5/6.
        "env/all/reward/total": pytest.approx(0.25),
        "env/all/by_group/frac_mixed": 0.5,
        # The votes of the second debate say nothing, its penalties teach all the same.
        "debates/with_signal": 0.5,
        "debates/with_gradient": 1.0,
        "v2/total_votes": 3.0,
        "v2/missing_comparisons": 3.0,
        "v2/comparison_lines_invalid": 1.0,
        "reward/gen/mean": 0.0,
        # (3 - 1.5) / 12
        "reward/judge/mean": pytest.approx(0.125),
    }


def test_nothing_scored_is_none() -> None:
    assert reward_metrics([]) == {
        "env/all/reward/total": None,
        "env/all/by_group/frac_mixed": None,
        "debates/with_signal": None,
        "debates/with_gradient": None,
    }


def test_totals_that_are_equal_but_for_rounding_are_not_mixed() -> None:
    """Agent 0: 1 of 3 votes, then 2 of 3: -1/3 + 1/3 = 0, as Agent 1's two ties. In floating point the sum is not 0."""
    low, high = 2 * 1 / 3 - 1, 2 * 2 / 3 - 1
    assert low + high != 0
    table = ((low, high), (0.0, 0.0))
    scores = Scores({"generator": Stream(table, table, ((0.0, 0.0), (0.0, 0.0)))})
    near(list(scores.returns), [0, 0])
    found = reward_metrics([taught(debate(v2(), [["", ""], ["", ""]]), scores, Advantages({"generator": table}))])
    assert found["env/all/by_group/frac_mixed"] == 0.0


def test_signal_and_gradient() -> None:
    """Everyone agrees with the consensus: a signal, and nothing to learn from it but for the generators."""
    ties = debate(v2(enable_format_penalty=False), [["", "", ""], ["1 = 2", "0 = 2", "0 = 1"]])
    scores, streams = by_step(ties)
    assert not scores.has_signal
    assert not carries_gradient(Advantages(streams))
    scores, streams = by_step(debate(v2(), [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]]))
    assert scores.has_signal
    assert carries_gradient(Advantages(streams))
    scores, values = by_agent(debate(v1(), [["", "", "0 = 1"]]))
    assert scores.has_signal
    assert carries_gradient(Advantages.per_agent(values))
    assert not carries_gradient(Advantages.per_agent((0.0, 0.0)))


# Answers


def test_answers() -> None:
    """Debate 1 (truth 7): last parsed answers 7, 7 (its second turn failed), none. Debate 2 (truth 7): 8, 8, 7.

    format 5/6; correct 3/6; pass 1, 1; avg 2/3, 1/3; cons: 7 is right, 8 is wrong. The third debate has no truth and takes no part.
    """
    one = debate(v2(), [["", "", ""], ["", FAILED, ""]], answers=[["8", "7", "7"], ["7", "9", None]], truth="7")
    two = debate(v2(), [["", "", ""]], answers=[["8", "8", "7"]], truth="7")
    open_question = debate(v2(), [["", "", ""]], answers=[["1", "2", "3"]])
    batch = [one, two, open_question]
    assert answer_metrics(batch, [grade(each) for each in batch], "sums") == {
        "train_sums/format": pytest.approx(5 / 6),
        "train_sums/correct": 0.5,
        "train_sums/pass@k": 1.0,
        "train_sums/avg@k": 0.5,
        "train_sums/cons@k": 0.5,
    }


def test_a_plurality_that_is_tied_goes_to_the_lowest_numbered_agent() -> None:
    """7 by Agents 0 and 2, 8 by Agents 1 and 3: Agent 0 decides. Then the other way round."""
    for answers, right in ((["7", "8", "7", "8"], 1.0), (["8", "7", "8", "7"], 0.0)):
        played = debate(v2(), [[""] * 4], answers=[answers], truth="7")
        assert answer_metrics([played], [grade(played)], "sums", "test")["test_sums/cons@k"] == right


def test_nobody_answers() -> None:
    played = debate(v2(), [["", ""]], answers=[[None, None]], truth="7")
    assert set(answer_metrics([played], [grade(played)], "sums").values()) == {0.0}


def test_answers_without_truth_are_none() -> None:
    played = debate(v2(), [["", ""]], answers=[["7", "7"]])
    assert set(answer_metrics([played], [grade(played)], "sums").values()) == {None}


# The trainer beside the sampler


def test_sampler_and_trainer() -> None:
    """Action tokens: sampler -1, -2, -3; trainer -1.5, -2, -2. Gaps 0.5, 0, -1: mean -1/6, half the mean square 1.25/6, entropy 2."""
    found = optim_metrics(
        [datum([0, 1, 1], logprobs=[0, -1, -2]), datum([1, 0], logprobs=[-3, 0])],
        [np.array([-9, -1.5, -2], dtype=np.float32), np.array([-2, -9], dtype=np.float32)],
    )
    near(
        [found["optim/kl_sample_train_v1"], found["optim/kl_sample_train_v2"], found["optim/entropy"]],
        [-1 / 6, 1.25 / 6, 2],
    )


@pytest.mark.parametrize("datums", [[], [datum([0, 0])]])
def test_no_action_tokens_is_none(datums: list[Datum]) -> None:
    found = optim_metrics(datums, [np.zeros(2, dtype=np.float32)] * len(datums))
    assert found == {"optim/kl_sample_train_v1": None, "optim/kl_sample_train_v2": None, "optim/entropy": None}
