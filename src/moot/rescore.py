"""What the votes of a run would have taught under another reward, ballot or estimator, from its saved debates alone.

`rescore` is for a table or a page: plain numbers, and the debates whose winner changes. `compare` gives every debate, one at a time.
Both go through a run step by step, as training did, so that an estimator which looks at a batch or remembers seats sees what it would
have seen. Choices that change what was said cannot be changed afterwards, and are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from moot.debate.choices import names_of
from moot.debate.outcome import Outcome, answer_stream
from moot.debate.rewards import AgentScores, Reward, Scores, ballots, score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import ConfigError
from moot.records import Run
from moot.rl.advantages import Advantages, AgentAdvantages, Estimator, SeatMeans, StepAdvantages, advantages
from moot.rl.choices import find_estimator, find_reward
from moot.rl.config import TrainConfig, scoring_in
from moot.rl.metrics import carries_gradient, has_signal, totals
from moot.rl.recipe import scheduled
from moot.rl.trust import Judged, judge_accuracy
from moot.saved import Damaged, Saved, saved_debates
from moot.totals import Side, Sum, Totals, winner_is_right

SCORING = tuple(name for name in names_of(Scoring) if name != "evaluation_credit")
"""What may be changed: the choices that say how votes count."""
SPOKEN = {
    "evaluation_credit": "it decides which tokens learned, and no reward or advantage depends on it",
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
    "sections": "it decides whether agents wrote the tags of a turn themselves",
    "judge_first": "it decides in which order agents were asked to judge and to solve",
    "temperature": "it decides how agents sampled",
    "num_agents": "it decides how many spoke",
    "max_rounds": "it decides how often they spoke",
    "stop_when_settled": "it decides when a debate ended",
    "extra_rounds": "it decides when a debate ended",
}
"""Why the other choices cannot be changed afterwards."""


# What comes out


@dataclass(frozen=True)
class Change:
    """A debate whose winner is another; None where it has no winner."""

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
class Recount:
    """A scoring that has been checked, with the functions it names."""

    scoring: Scoring
    """With the truth mixed in as it is before any schedule."""
    reward: Reward
    estimator: Estimator
    judge_counts: bool | None
    """Whether votes of judges without a seat count; None as they did in each debate."""


def check(run: Run, choices: Mapping[str, Any]) -> Recount:
    """The run's own scoring with some choices changed. Refuses what cannot be changed after the debates were played."""
    for name in choices:
        if name in SPOKEN:
            raise ConfigError(f"{name} cannot be changed afterwards: {SPOKEN[name]}; train or evaluate again with it")
        if name not in SCORING:
            raise ConfigError(f"rescore has no choice {name!r}; it has {', '.join(SCORING)}")
    scoring = replace(_own_scoring(run), **choices)
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    return Recount(scoring, reward, estimator, choices.get("judge_counts"))


def _own_scoring(run: Run) -> Scoring:
    """As the configuration says; a run that was not trained may have none, but each of its debates has."""
    if "protocol" in run.config:
        return scoring_in(run.config)
    first = next((each for each in saved_debates(run) if isinstance(each, Saved)), None)
    return first.scoring if first else Scoring()


def _scheduled(run: Run, recount: Recount) -> Callable[[int], Scoring]:
    """From a step to how its votes count. A run that lets truth fade wrote down how much of it each step had."""
    config, own, wanted = run.config, _own_scoring(run), recount.scoring
    schedule = config.get("recipe", {}).get("truth_schedule", "constant")
    if schedule == "constant":
        return lambda _: wanted
    rows = {row["step"]: row for row in run.metrics() if row.get("phase") == "self_play"}
    settings = TrainConfig.from_dict(config)

    def faded(name: str, step: int) -> float:
        value = getattr(wanted, name)
        if value == getattr(own, name) and f"recipe/{name}" in rows.get(step, {}):
            return float(rows[step][f"recipe/{name}"])
        return scheduled(value, schedule, min(1.0, (step - settings.warm_steps - 1) / max(1, settings.iterations)))

    return lambda step: replace(wanted, reward_mix=faded("reward_mix", step), correct_bonus=faded("correct_bonus", step))


# One debate after the other


def compare(run: Run, recount: Recount, steps: Sequence[int] | None = None) -> Iterator[Compared | Saved | Damaged]:
    """Every debate before and after; a bare `Saved` is one that the engine lost. Holds one step at a time.

    With `steps`, an estimator that remembers seats starts with the first of them.
    """
    seats, scoring_at = SeatMeans(), _scheduled(run, recount)
    for step, batch in groupby(saved_debates(run, steps), key=lambda each: each.step):
        played: list[Saved] = []
        for each in batch:
            if isinstance(each, Damaged) or each.error is not None:
                yield each
            else:
                played.append(each)
        if played:
            yield from _step(played, recount, scoring_at(step), seats)


def _step(played: list[Saved], recount: Recount, scoring: Scoring, seats: SeatMeans) -> Iterator[Compared]:
    counted = {counts: replace(scoring, judge_counts=counts) for counts in (False, True)}
    by = [counted[each.scoring.judge_counts if recount.judge_counts is None else recount.judge_counts] for each in played]
    scores = [score(each.debate, own, each.grades, recount.reward) for each, own in zip(played, by, strict=True)]
    values = advantages(((each.debate, found) for each, found in zip(played, scores, strict=True)), recount.estimator, seats)
    for each, own, found, value in zip(played, by, scores, values, strict=True):
        yield Compared(each, _before(each), _after(each, own, found, value))


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
        **_outcome(each.outcome()),
        **_votes(each, each.scoring),
    )


def _after(each: Saved, scoring: Scoring, scores: Scores, value: Advantages) -> Side:
    rewards = scores.rewards if isinstance(scores, AgentScores) else {name: stream.values for name, stream in scores.streams.items()}
    return Side(
        rewards=rewards,
        advantages=value.values if isinstance(value, AgentAdvantages) else value.streams,
        totals=tuple(totals(scores)),
        turns=_by_turn(each.debate, value),
        signal=has_signal(scores),
        gradient=carries_gradient(value),
        **_outcome(Outcome.of(each.debate, scores, scoring)),
        **_votes(each, scoring),
    )


def _by_turn(debate: Debate, value: Advantages) -> tuple[float, ...]:
    """What the tokens of each turn's solution get."""
    found = [0.0] * len(debate.turns)
    stream = None if isinstance(value, AgentAdvantages) else value.streams[answer_stream(value.streams)]
    for agent, own in enumerate(debate.steps()):
        for step, i in enumerate(own):
            found[i] = value.values[agent] if isinstance(value, AgentAdvantages) else stream[agent][step]  # type: ignore[index]
    return tuple(found)


def _outcome(outcome: Outcome | None) -> dict[str, Any]:
    return {"winner": None, "leaders": ()} if outcome is None else {"winner": outcome.winner, "leaders": outcome.leaders}


def _votes(each: Saved, scoring: Scoring) -> dict[str, Any]:
    if not each.known or each.grades is None:
        return {"right_votes": 0, "telling_votes": 0}
    right, telling = judge_accuracy([Judged(each.debate, _NO_SCORES, each.grades, ballots(each.debate, scoring), None)])
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
    recount = check(run, choices)
    old, new = Sum(), Sum()
    changes: list[Change] = []
    damaged: list[Damaged] = []
    failed = broken = changed = 0
    largest: float | None = 0.0
    step = None
    for each in compare(run, recount, steps):
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
        choices=_differences(run, recount),
        before=old.totals(_own_scoring(run)),
        after=new.totals(recount.scoring),
        changed=changed,
        changes=tuple(changes),
        largest_difference=largest if new.debates else None,
        failed=failed,
        damaged=tuple(damaged),
        damaged_lines=broken,
    )


def _differences(run: Run, recount: Recount) -> dict[str, tuple[Any, Any]]:
    own = _own_scoring(run)
    both = {name: (getattr(own, name), getattr(recount.scoring, name)) for name in SCORING}
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
