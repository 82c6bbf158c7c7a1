"""What the votes of a run would have taught under another reward, ballot or estimator, from its saved debates alone.

`rescore` is for a table or a page: plain numbers, and the debates whose winner changes. `compare` gives every debate, one at a time.
Both go through a run step by step, as training did, so that an estimator which looks at a batch or remembers seats sees what it would
have seen. Choices that change what was said cannot be changed afterwards, and are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from moot.debate.protocol import Protocol
from moot.debate.rewards import AgentScores, Reward, Scores, ballots, mix_truth
from moot.debate.state import Debate
from moot.debate.types import ConfigError
from moot.records import Run
from moot.rl.advantages import Advantages, AgentAdvantages, Estimator, SeatMeans, StepAdvantages, advantages
from moot.rl.choices import find_estimator, find_reward
from moot.rl.config import TrainConfig
from moot.rl.metrics import carries_gradient, has_signal, totals
from moot.rl.recipe import scheduled
from moot.rl.trust import Judged, judge_accuracy
from moot.saved import Damaged, Saved, answer_stream, leaders, mean_rewards, saved_debates
from moot.totals import Side, Sum, Totals, winner_is_right

SCORING = (
    "reward", "one_ballot_per_pair", "judge_consensus", "enable_format_penalty", "lambda_gen", "lambda_judge", "advantage", "literal",
)  # fmt: skip
"""The choices of a protocol that only say how votes count."""
BESIDES = ("reward_mix", "correct_bonus", "judge_counts")
"""What else only says how votes count."""
SPOKEN = {
    "schedule": "it decides what agents had read when they spoke",
    "contract": "it decides which sections agents were asked to write",
    "visible": "it decides what agents saw of each other",
    "layout": "it decides how the debate stood before the model",
    "history_rounds": "it decides how many rounds agents saw",
    "max_chars_per_field": "it decides how much of each section agents saw",
    "on_parse_failure": "it decides whether the debate went on after a turn that could not be read",
    "personas": "it decides the characters and temperatures that agents spoke with",
    "shuffle_labels": "it decides the numbers by which agents knew each other",
    "closing_ballot": "it decides whether agents were asked to judge the last answers",
    "num_agents": "it decides how many spoke",
    "max_rounds": "it decides how often they spoke",
    "stop_when_settled": "it decides when a debate ended",
    "extra_rounds": "it decides when a debate ended",
}
"""Why the other choices cannot be changed afterwards."""


# What comes out


@dataclass(frozen=True)
class Change:
    """A debate whose winner is another. The winner is the lowest-numbered leader, None where all are level."""

    step: int
    number: int
    question: str
    before: int | None
    after: int | None
    leaders_before: tuple[int, ...]
    leaders_after: tuple[int, ...]
    correct_before: bool | None
    """Whether the old winner's last answer is right; None where nobody knows, or nobody won."""
    correct_after: bool | None


@dataclass(frozen=True)
class Rescored:
    run: str
    choices: dict[str, tuple[Any, Any]]
    """What differs from how the run was trained: the old and the new value."""
    before: Totals
    """As the run saved it."""
    after: Totals
    changed: int
    changes: tuple[Change, ...]
    """The first ones, up to the limit asked for."""
    largest_difference: float | None
    """Between an advantage as saved and as it would be; None where the two are not of one shape."""
    failed: int
    """Debates that the engine lost: never scored."""
    damaged: tuple[Damaged, ...]
    """The first lines that cannot be read, up to ten."""
    damaged_lines: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Compared:
    """One debate as it was scored and as it would have been."""

    saved: Saved
    before: Side
    after: Side


# What may be asked for


@dataclass(frozen=True)
class Rules:
    """Choices that have been checked, with the functions they name."""

    protocol: Protocol
    reward: Reward
    estimator: Estimator
    truth: Mapping[str, float]
    """`reward_mix` and `correct_bonus`, as they are before any schedule."""
    judge_counts: bool | None
    """Whether votes of judges without a seat count; None as they did."""


def check(run: Run, choices: Mapping[str, Any]) -> Rules:
    """The run's own rules with some choices changed. Refuses what cannot be changed after the debates were played."""
    for name in choices:
        if name in SPOKEN:
            raise ConfigError(f"{name} cannot be changed afterwards: {SPOKEN[name]}; train or evaluate again with it")
        if name not in SCORING and name not in BESIDES:
            raise ConfigError(f"rescore has no choice {name!r}; it has {', '.join((*SCORING, *BESIDES))}")
    protocol = _played_by(run).with_choices({name: value for name, value in choices.items() if name in SCORING})
    mix, bonus = (choices.get(name, own) for name, own in _own_truth(run).items())
    counts = choices.get("judge_counts")
    if counts is not None and not isinstance(counts, bool):
        raise ConfigError(f"judge_counts must be true or false, got {counts!r}")
    for name, value in (("reward_mix", mix), ("correct_bonus", bonus)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{name} must be a number, got {value!r}")
    if not 0 <= mix <= 1:
        raise ConfigError(f"reward_mix must be between 0 and 1, got {mix}; 0.3 mixes in a little truth")
    return Rules(
        protocol,
        find_reward(protocol.reward),
        find_estimator(protocol.advantage, protocol.reward),
        {"reward_mix": float(mix), "correct_bonus": float(bonus)},
        counts,
    )


def _played_by(run: Run) -> Protocol:
    """As the configuration says; a run that was not trained may have none, but each of its debates has."""
    if "protocol" in run.config:
        return Protocol().with_choices(run.config["protocol"])
    first = next((each for each in saved_debates(run) if isinstance(each, Saved)), None)
    return first.debate.protocol if first else Protocol()


def _own_truth(run: Run) -> dict[str, float]:
    debate = run.config.get("debate", {})
    return {name: debate.get(name, 0.0) for name in ("reward_mix", "correct_bonus")}


def _scheduled_truth(run: Run, rules: Rules) -> Callable[[int], tuple[float, float]]:
    """From a step to its mix and bonus. A run that lets truth fade wrote down how much each step had."""
    config, own, wanted = run.config, _own_truth(run), rules.truth
    schedule = config.get("recipe", {}).get("truth_schedule", "constant")
    if schedule == "constant":
        return lambda _: (wanted["reward_mix"], wanted["correct_bonus"])
    rows = {row["step"]: row for row in run.metrics() if row.get("phase") == "self_play"}
    settings = TrainConfig.from_dict(config)

    def faded(name: str, step: int) -> float:
        if wanted[name] == own[name] and f"recipe/{name}" in rows.get(step, {}):
            return float(rows[step][f"recipe/{name}"])
        return scheduled(wanted[name], schedule, min(1.0, (step - settings.warm_steps - 1) / max(1, settings.iterations)))

    return lambda step: (faded("reward_mix", step), faded("correct_bonus", step))


# One debate after the other


def compare(run: Run, rules: Rules, steps: Sequence[int] | None = None) -> Iterator[Compared | Saved | Damaged]:
    """Every debate before and after; a bare `Saved` is one that the engine lost. Holds one step at a time.

    With `steps`, an estimator that remembers seats starts with the first of them.
    """
    seats, truth = SeatMeans(), _scheduled_truth(run, rules)
    for step, batch in groupby(saved_debates(run, steps), key=lambda each: each.step):
        played: list[Saved] = []
        for each in batch:
            if isinstance(each, Damaged) or each.error is not None:
                yield each
            else:
                played.append(each)
        if played:
            yield from _step(played, rules, truth(step), seats)


def _step(played: list[Saved], rules: Rules, truth: tuple[float, float], seats: SeatMeans) -> Iterator[Compared]:
    debates = [_counted(each.debate, rules) for each in played]
    scores = [
        mix_truth(rules.reward(debate, each.grades), debate, each.grades, *truth) for debate, each in zip(debates, played, strict=True)
    ]
    values = advantages(zip(debates, scores, strict=True), rules.estimator, seats)
    for each, debate, score, value in zip(played, debates, scores, values, strict=True):
        yield Compared(each, _before(each), _after(each, debate, score, value))


def _counted(debate: Debate, rules: Rules) -> Debate:
    heard = debate.jury_counts if rules.judge_counts is None else rules.judge_counts
    return replace(debate, protocol=_counted_by(debate.protocol, rules.protocol), jury_counts=heard)


@lru_cache(maxsize=64)
def _counted_by(played: Protocol, rules: Protocol) -> Protocol:
    """What was said by one protocol, counted by another."""
    return replace(played, **{name: getattr(rules, name) for name in SCORING})


def _before(each: Saved) -> Side:
    """From the record alone: the reward a run was trained on may be a user's file that is gone."""
    rewards, given = each.record.get("rewards", []), each.record.get("advantages", [])
    by_step = isinstance(rewards, Mapping)
    found = [sum(sum(rows[agent]) for rows in rewards.values()) for agent in range(each.debate.num_agents)] if by_step else rewards
    known = StepAdvantages(dict(given)) if isinstance(given, Mapping) else AgentAdvantages(tuple(given))
    return Side(
        rewards=rewards,
        advantages=given,
        totals=tuple(found if by_step else each.record.get("returns", rewards)),
        turns=_by_turn(each.debate, known) if given else (),
        signal=bool(each.record.get("signal")),
        gradient=carries_gradient(known),
        leaders=leaders(each.means()),
        **_votes(each, each.debate),
    )


def _after(each: Saved, debate: Debate, scores: Scores, value: Advantages) -> Side:
    rewards = scores.rewards if isinstance(scores, AgentScores) else {name: stream.values for name, stream in scores.streams.items()}
    return Side(
        rewards=rewards,
        advantages=value.values if isinstance(value, AgentAdvantages) else value.streams,
        totals=tuple(totals(scores)),
        turns=_by_turn(debate, value),
        signal=has_signal(scores),
        gradient=carries_gradient(value),
        leaders=leaders(mean_rewards(rewards, debate)),
        **_votes(each, debate),
    )


def _by_turn(debate: Debate, value: Advantages) -> tuple[float, ...]:
    """What the tokens of each turn's solution get."""
    found = [0.0] * len(debate.turns)
    stream = None if isinstance(value, AgentAdvantages) else answer_stream(value.streams)
    for agent, own in enumerate(debate.steps()):
        for step, i in enumerate(own):
            found[i] = value.values[agent] if isinstance(value, AgentAdvantages) else stream[agent][step]  # type: ignore[index]
    return tuple(found)


def _votes(each: Saved, debate: Debate) -> dict[str, int]:
    if not each.known or each.grades is None:
        return {"right_votes": 0, "telling_votes": 0}
    right, telling = judge_accuracy([Judged(debate, _NO_SCORES, each.grades, ballots(debate))])
    return {"right_votes": right, "telling_votes": telling}


_NO_SCORES = AgentScores((), ())


# The whole run


def rescore(
    run: Run,
    choices: Mapping[str, Any],
    steps: Sequence[int] | None = None,
    most_changes: int = 1000,
    seen: Callable[[int], None] | None = None,
) -> Rescored:
    """What `choices` would have made of the run. `seen` hears of every step that is done with, for a progress bar."""
    rules = check(run, choices)
    old, new = Sum(), Sum()
    changes: list[Change] = []
    damaged: list[Damaged] = []
    failed = broken = changed = 0
    largest: float | None = 0.0
    step = None
    for each in compare(run, rules, steps):
        at = each.saved.step if isinstance(each, Compared) else each.step
        if seen and at != step:
            seen(at)
        step = at
        if isinstance(each, Damaged):
            broken += 1
            damaged += [each] if len(damaged) < 10 else []
            continue
        if isinstance(each, Saved):
            failed += 1
            continue
        old.add(each.saved, each.before)
        new.add(each.saved, each.after)
        largest = _larger(largest, each)
        if each.before.winner != each.after.winner:
            changed += 1
            changes += [_change(each)] if len(changes) < most_changes else []
    return Rescored(
        run=str(run.path),
        choices=_differences(run, rules),
        before=old.totals(_played_by(run)),
        after=new.totals(rules.protocol),
        changed=changed,
        changes=tuple(changes),
        largest_difference=largest if new.debates else None,
        failed=failed,
        damaged=tuple(damaged),
        damaged_lines=broken,
    )


def _differences(run: Run, rules: Rules) -> dict[str, tuple[Any, Any]]:
    own = _played_by(run)
    both = {name: (getattr(own, name), getattr(rules.protocol, name)) for name in SCORING}
    both |= {name: (old, rules.truth[name]) for name, old in _own_truth(run).items()}
    heard = run.config.get("recipe", {}).get("judge_counts", True)
    both["judge_counts"] = (heard, heard if rules.judge_counts is None else rules.judge_counts)
    return {name: (old, new) for name, (old, new) in both.items() if old != new}


def _larger(largest: float | None, each: Compared) -> float | None:
    old, new = _flat(each.before.advantages), _flat(each.after.advantages)
    if largest is None or old.keys() != new.keys():
        return None
    return max(largest, max((abs(old[place] - new[place]) for place in old), default=0.0))


def _flat(values: Any, place: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], float]:
    if isinstance(values, int | float):
        return {place: float(values)}
    inner = values.items() if isinstance(values, Mapping) else enumerate(values)
    return {key: value for name, part in inner for key, value in _flat(part, (*place, name)).items()}


def _change(each: Compared) -> Change:
    saved = each.saved
    return Change(
        step=saved.step,
        number=saved.number,
        question=saved.debate.question.text,
        before=each.before.winner,
        after=each.after.winner,
        leaders_before=each.before.leaders,
        leaders_after=each.after.leaders,
        correct_before=winner_is_right(saved, each.before.winner),
        correct_after=winner_is_right(saved, each.after.winner),
    )
