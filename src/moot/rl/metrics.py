"""The numbers of a step, under the names the field knows. Each is a plain mean unless its line says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from moot.debate.outcome import rewards_by_agent
from moot.debate.rewards import REWARDS, Grades, held_answers, last_parsed, plurality
from moot.debate.state import Debate
from moot.engine.protocol import Datum, Floats
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import carries_gradient, tokens_by_section

Metrics = dict[str, float | None]
"""None where a number's denominator is 0: nothing was measured, which is not the same as 0."""


def mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _differ(row: Sequence[float]) -> bool:
    """Sums of thirds that should be equal differ in the last digit."""
    return max(row) - min(row) > 1e-9


def rollout_metrics(rollouts: Sequence[PlayedDebate]) -> Metrics:
    """How much was played and how well the contract was kept. Debates that the engine lost are only counted."""
    played = [played for played in rollouts if played.error is None]
    debates = [one.debate for one in played]
    turns = [turn for debate in debates for turn in debate.turns]
    episodes = sum(debate.num_agents for debate in debates)
    sampled, read = token_counts(played)
    metrics: Metrics = {
        "env/all/total_episodes": float(episodes),
        "env/all/total_turns": float(len(turns)),
        "env/all/turns_per_episode": len(turns) / episodes if episodes else None,
        "env/all/ac_tokens_per_turn": sampled / len(turns) if turns else None,
        # The whole prompt of a turn, as the model sees it, not only what was new in it.
        "env/all/ob_tokens_per_turn": _prompt_tokens(played) / len(turns) if turns else None,
        "tokens/sampled": float(sampled),
        "tokens/read": float(read),
        "tokens/solution": mean(map(float, solution_lengths(played))),
        "debates/played": float(len(played)),
        "debates/failed": float(len(rollouts) - len(played)),
        # Of those, the ones whose next turn did not fit the model's context.
        "debates/overflowed": float(sum((played.error or "").startswith("ContextOverflow") for played in rollouts)),
        "parse_error": mean(float(turn.failed) for turn in turns),
        "round": mean(float(turn.round) for turn in turns),
        "consensus_reached": mean(value for debate in debates for value in _settled(debate)),
        "turns/cut": mean(float(turn.stop_reason == "length") for one in played for turn in one.sampled),
    }
    if any(debate.jury for debate in debates):
        ballots = [turn for debate in debates for turn in debate.jury]
        metrics |= {
            "jury/ballots": float(len(ballots)),
            "jury/parse_error": mean(float(turn.failed) for turn in ballots),
        }
    if any(debate.jury or debate.checks is not None for debate in debates):
        metrics["tokens/jury"] = float(sum(one.jury_tokens for one in played))
    if any(debate.checks is not None for debate in debates):
        checks = [check for debate in debates for check in debate.checks or ()]
        metrics |= {
            "jury/checks": float(len(checks)),
            "jury/by_word": mean(float(check.by == "word") for check in checks),
            "jury/unread": mean(float(check.unread) for check in checks),
        }
    return metrics


def token_counts(debates: Sequence[PlayedDebate]) -> tuple[int, int]:
    """Sampled tokens, and tokens that were read for the first time."""
    turns = [turn for played in debates for turn in played.sampled]
    sampled = sum(turn.count for turn in turns)
    return sampled, sum(len(turn.prompt) + len(turn.tokens) for turn in turns) - sampled


def solution_lengths(debates: Sequence[PlayedDebate]) -> list[int]:
    """Sampled tokens of each solution that could be read. Turns whose tokens nobody knows are left out."""
    lengths = []
    for played in debates:
        for turn, sampled in zip(played.debate.turns, played.sampled, strict=False):
            if turn.answers and len(sampled.tokens):
                own = tokens_by_section(turn.parsed, sampled.starts)["solution"]
                lengths.append(int((own & sampled.sampled).sum()))
    return lengths


def _prompt_tokens(rollouts: Sequence[PlayedDebate]) -> int:
    total = 0
    for played in rollouts:
        for own in played.debate.turns_by_agent():
            context = 0
            for turn in (played.sampled[i] for i in own):
                context = (context if turn.extends else 0) + len(turn.prompt)
                total += context + len(turn.tokens) - turn.count
                context += len(turn.tokens)
    return total


def _settled(debate: Debate) -> list[float]:
    """For each turn, whether the whole group had said YES by then: only the last turn can complete that."""
    return [0.0] * (len(debate.turns) - 1) + [float(debate.agreed)] if debate.turns else []


def reward_metrics(debates: Sequence[PlayedDebate]) -> Metrics:
    """What scored debates under one reward came to, and what they teach."""
    scores = [played.scores for played in debates if played.scores is not None]
    returns = [paid.returns for paid in scores]
    metrics: Metrics = {
        "env/all/reward/total": mean(value for row in returns for value in row),
        "env/all/by_group/frac_mixed": mean(float(_differ(row)) for row in returns),
        "debates/with_signal": mean(float(paid.has_signal) for paid in scores),
        "debates/with_gradient": mean(
            float(carries_gradient(played.advantages)) for played in debates if played.advantages is not None
        ),
    }
    if scores and scores[0].per == "agent":
        reward = debates[0].scoring.reward
        pairwise = [rule.name for rule in REWARDS.values() if rule.from_votes and rule.per == "agent"]
        metrics |= {
            "pairwise_reward": mean(value for paid in scores for value in paid.rewards),
            **{f"pairwise_reward_is_{name}": float(reward == name) for name in pairwise},
            "pairwise_total_votes": mean(float(len(paid.votes)) for paid in scores),
            "pairwise_malformed": mean(float(paid.lines_invalid) for paid in scores),
            "pairwise_any_votes": mean(float(bool(paid.votes)) for paid in scores),
        }
    elif scores:
        metrics |= {
            "v2/total_votes": float(sum(len(paid.votes) for paid in scores)),
            "v2/missing_comparisons": float(sum(paid.missing_comparisons for paid in scores)),
            "v2/comparison_lines_invalid": float(sum(paid.lines_invalid for paid in scores)),
        }
        for stream, key in (("generator", "gen"), ("judge", "judge")):
            rows = [row for paid in scores if stream in paid.streams for row in rewards_by_agent(paid, stream)]
            if rows:
                metrics[f"reward/{key}/mean"] = mean(value for row in rows for value in row)
    return metrics


def answer_metrics(debates: Sequence[Debate], grades: Sequence[Grades], dataset: str, phase: str = "train") -> Metrics:
    """How good the final answers are. Only debates whose right answer is known take part, and none of advocates, who
    give no answer of their own."""
    with_answer = [(d, g) for d, g in zip(debates, grades, strict=True) if g.known(d.question) and not d.argued]
    rows = []
    for d, g in with_answer:
        last = last_parsed(d)
        rows.append([(False, False) if i is None else (g.answers[i] is not None, g.correct[i]) for i in last])
    prefix = f"{phase}_{dataset}/"
    return {
        prefix + "format": mean(float(has) for row in rows for has, _ in row),
        prefix + "correct": mean(float(right) for row in rows for _, right in row),
        prefix + "pass@k": mean(float(any(right for _, right in row)) for row in rows),
        prefix + "avg@k": mean(sum(right for _, right in row) / len(row) for row in rows),
        prefix + "cons@k": mean(float(_plurality_correct(d, g)) for d, g in with_answer),
    }


def _plurality_correct(debate: Debate, grades: Grades) -> bool:
    most = plurality(held_answers(debate, grades))
    last = [i for i in last_parsed(debate) if i is not None]
    return most is not None and any(grades.correct[i] for i in last if grades.same[i] == most)


def optim_metrics(datums: Sequence[Datum], trainer_logprobs: Sequence[Floats]) -> Metrics:
    """How far the trainer's model is from the sampler's, over action tokens. Near 0 on-policy."""
    acted = [datum.mask > 0 for datum in datums]
    if not any(mask.any() for mask in acted):
        return {"optim/kl_sample_train_v1": None, "optim/kl_sample_train_v2": None, "optim/entropy": None}

    def pick(arrays: Sequence[Floats]) -> Floats:
        return np.concatenate([array[mask] for array, mask in zip(arrays, acted, strict=True)])

    sampler = pick([datum.logprobs for datum in datums]).astype(np.float64)
    gap = sampler - pick(trainer_logprobs).astype(np.float64)
    return {
        "optim/kl_sample_train_v1": float(gap.mean()),
        "optim/kl_sample_train_v2": float(0.5 * (gap**2).mean()),
        "optim/entropy": float(-sampler.mean()),
    }
