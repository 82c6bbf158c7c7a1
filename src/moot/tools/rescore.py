"""What the votes of a run would have taught under another reward, ballot or estimator, from its saved debates alone.

`rescore` is for a table or a page: plain numbers, and the debates whose winner changes. `compare` gives every debate,
one at a time.
Both go through a run step by step, as training did, so that an estimator which looks at a batch or remembers seats sees
what it would
have seen. Choices that change what was said cannot be changed afterwards, and are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from moot.debate.protocols import V2
from moot.debate.rewards import Reward
from moot.debate.rules import Rules
from moot.debate.scores import answer_stream
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import names_of
from moot.errors import ConfigError
from moot.players.untrusted import check_trusted, scoring_names
from moot.rl.advantages import Estimator, SeatMeans, with_advantages
from moot.rl.judge_trust import judged
from moot.rl.lookup import find_estimator, find_reward
from moot.rl.trust import judge_accuracy
from moot.runs import Damaged, PlayedDebate, Run
from moot.settings.saved import config_of, scoring_of
from moot.tokens.turn import Advantages, carries_gradient
from moot.training.parts import find_parts
from moot.util.intervals import Correlation, RunningMean

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
    "on_parse_failure": "it decides whether the debate continued after a turn that could not be read",
    "personas": "it decides the characters and temperatures that agents spoke with",
    "both_orders": "it decides how often judges without a seat were asked",
    "shuffle_labels": "it decides the numbers by which agents knew each other",
    "closing_ballot": "it decides whether agents were asked to judge the last answers",
    "sections": "it decides whether agents wrote the tags of a turn themselves",
    "temperature": "it decides how agents sampled",
    "positions": "it decides what agents were told to argue for",
    "num_agents": "it decides how many spoke",
    "max_rounds": "it decides how often they spoke",
    "stop_when_settled": "it decides when a debate ended",
    "extra_rounds": "it decides when a debate ended",
}
"""Why the other choices cannot be changed afterwards."""


# What comes out


@dataclass(frozen=True)
class Totals:
    """One way to reward the same debates."""

    reward: str
    advantage: str
    debates: int
    reward_mean: float | None
    """Over agents, of all an agent got in a debate."""
    with_signal: float | None
    """Share of debates in which the votes say anything."""
    with_gradient: float | None
    """Share of debates in which some token has an advantage."""
    advantage_size: float | None
    """Mean over turns, ballots apart, of the advantage's absolute value."""
    correlation: float | None
    """Between a turn's advantage and whether its answer is right (point-biserial), where that is known."""
    advantage_right: float | None
    """Mean advantage of the turns with a right answer."""
    advantage_wrong: float | None
    winner_correct: float | None
    """Share of debates with a winner whose winner's last answer is right."""
    winners: int
    """Debates in which somebody won."""
    judge_accuracy: float | None
    """Of votes between a right and a wrong answer, the share for the right one; where judges check answers, of pairs of
    such answers, those in which it has the higher score."""


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


# What may be asked for


@dataclass(frozen=True)
class Recount:
    """A scoring that has been checked, with the functions it names."""

    scoring: Scoring
    """With the truth mixed in as it is before any schedule."""
    reward: Reward
    estimator: Estimator


def check(
    run: Run, choices: Mapping[str, Any], trust: bool = False, note: Callable[[str], None] = lambda text: None
) -> Recount:
    """The run's own scoring with some choices changed. Refuses what cannot be changed after the debates were played.

    A reward or an estimator of the run's own is code, so it is run only where `choices` name it, or with `trust`.
    """
    for name in choices:
        if name in SPOKEN:
            raise ConfigError(f"{name} cannot be changed afterwards: {SPOKEN[name]}; train or evaluate again with it")
        if name not in SCORING:
            raise ConfigError(f"rescore has no choice {name!r}; it has {', '.join(SCORING)}")
    own = own_scoring(run)
    scoring = replace(own, **choices)
    check_asked(own.rule, scoring.rule)
    _own_rules(run).check_scoring(scoring)
    check_trusted(run.path, scoring_names(scoring), choices, trust, note)
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    return Recount(scoring, reward, estimator)


def check_asked(own: Reward, wanted: Reward) -> None:
    """Refuses a reward of checks that the judges of a run were not asked for."""
    if not wanted.checked:
        return
    if own.ballot != wanted.ballot:
        raise ConfigError(
            f"reward {wanted.name} needs judges' checks ({wanted.ballot}), and the judges of this run were not asked "
            f"for them: its reward is {own.name}; train or evaluate again with --reward {wanted.name}"
        )
    if own.each_rule != wanted.each_rule:
        raise ConfigError(
            f"rules of reward {wanted.name} cannot be changed afterwards: it decides what judges were asked; "
            f"write rules={'mean or rules=least' if own.each_rule else own.rules}"
        )
    fixed = {**own.asks, "rules": None, "checks": None}
    same = ("checks", "rules")
    if changed := [name for name, value in wanted.asks.items() if name not in same and fixed[name] != value]:
        raise ConfigError(
            f"{changed[0]} of reward {wanted.name} cannot be changed afterwards: it decides what judges were asked; "
            f"write {changed[0]}={fixed[changed[0]]}, as the run has it"
        )
    if wanted.asks.get("checks", 0) > own.asks.get("checks", 0):
        raise ConfigError(
            f"checks of reward {wanted.name} must be at most {own.asks['checks']}: the judges of this run checked each "
            "answer so often"
        )


def own_scoring(run: Run) -> Scoring:
    """As the configuration says; a run that was not trained may have none, but each of its debates has."""
    if (own := scoring_of(run)) is not None:
        return own
    first = _first_debate(run)
    return first.scoring if first else Scoring()


def _first_debate(run: Run) -> PlayedDebate | None:
    return next((saved for saved in run.debates() if isinstance(saved, PlayedDebate)), None)


def _own_rules(run: Run) -> Rules:
    if isinstance(own := run.config.get("protocol"), Mapping):
        return V2.with_choices(own).rules
    first = _first_debate(run)
    return first.debate.rules if first else Rules()


FADING = ("reward_mix", "correct_bonus")
"""The truth in a reward, which a run may let fade."""


def _scheduled(run: Run, recount: Recount) -> Callable[[int], Scoring]:
    """From a step to how its votes count. A run that lets truth fade wrote down how much of it each step had."""
    own, wanted = own_scoring(run), recount.scoring
    if not run.config.get("parts"):
        return lambda _: wanted
    rows = {row["step"]: row for row in run.metrics() if row.get("phase") == "self_play"}
    settings = config_of(run)
    parts = find_parts(settings, users=False)

    def at(step: int) -> Scoring:
        scoring, row = wanted, rows.get(step, {})
        for part in parts:
            scoring = part.scoring(scoring, min(1.0, settings.share_before(step)))
        unchanged = [name for name in FADING if getattr(wanted, name) == getattr(own, name)]
        told: dict[str, Any] = {name: row[f"recipe/{name}"] or 0.0 for name in unchanged if f"recipe/{name}" in row}
        return replace(scoring, **told)

    return at


# One debate after the other


Recounted = tuple[PlayedDebate, PlayedDebate]
"""One debate as the run scored it, and as it would have been scored."""


def compare(
    run: Run, recount: Recount, steps: Sequence[int] | None = None, seen: Callable[[int], None] = lambda step: None
) -> Iterator[Recounted | PlayedDebate | Damaged]:
    """Every debate before and after; one alone is a debate that the engine lost. Holds one step at a time, and `seen`
    hears of each.

    With `steps`, an estimator that remembers seats starts with the first of them.
    """
    seats, scoring_at = SeatMeans(), _scheduled(run, recount)
    for step, batch in groupby(run.debates(steps), key=lambda saved: saved.step):
        played: list[PlayedDebate] = []
        for saved in batch:
            if isinstance(saved, Damaged) or saved.error is not None:
                yield saved
            else:
                played.append(saved)
        assert step is not None  # it is saved in a run
        if played:
            yield from zip(played, _recounted(played, recount, scoring_at(step), seats), strict=True)
        seen(step)


def _recounted(
    played: Sequence[PlayedDebate], recount: Recount, scoring: Scoring, seats: SeatMeans
) -> list[PlayedDebate]:
    scored = [debate.scored(scoring, debate.grades, recount.reward) for debate in played]
    return with_advantages(scored, recount.estimator, seats)


# The whole run


def rescore(
    run: Run,
    choices: Mapping[str, Any],
    steps: Sequence[int] | None = None,
    most_changes: int = 1000,
    seen: Callable[[int], None] = lambda step: None,
    trust: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Rescored:
    """What `choices` would have made of the run. `seen` hears of every step that is done with, for a progress bar."""
    recount = check(run, choices, trust, note)
    old, new = Sum(), Sum()
    changes: list[Change] = []
    damaged: list[Damaged] = []
    failed = broken = changed = 0
    largest: float | None = 0.0
    for recounted in compare(run, recount, steps, seen):
        if isinstance(recounted, Damaged):
            broken += 1
            damaged += [recounted] if len(damaged) < 10 else []
            continue
        if isinstance(recounted, PlayedDebate):
            failed += 1
            continue
        before, after = recounted
        old.add(before)
        new.add(after)
        largest = _larger(largest, before, after)
        if before.winner != after.winner:
            changed += 1
            changes += [_change(before, after)] if len(changes) < most_changes else []
    return Rescored(
        run=str(run.path),
        choices=_differences(run, recount),
        before=old.totals(own_scoring(run)),
        after=new.totals(recount.scoring),
        changed=changed,
        changes=tuple(changes),
        largest_difference=largest if new.debates else None,
        failed=failed,
        damaged=tuple(damaged),
        damaged_lines=broken,
    )


def _differences(run: Run, recount: Recount) -> dict[str, tuple[Any, Any]]:
    own = own_scoring(run)
    both = {name: (getattr(own, name), getattr(recount.scoring, name)) for name in SCORING}
    return {name: (old, new) for name, (old, new) in both.items() if old != new}


def _larger(largest: float | None, before: PlayedDebate, after: PlayedDebate) -> float | None:
    old, new = _flat(before.advantages), _flat(after.advantages)
    if largest is None or old.keys() != new.keys():
        return None
    return max(largest, max((abs(old[place] - new[place]) for place in old), default=0.0))


def _flat(advantages: Advantages | None) -> dict[tuple[Any, ...], float]:
    """By stream, agent and turn."""
    streams = {} if advantages is None else advantages.streams
    by_agent = [((name, agent), row) for name, rows in streams.items() for agent, row in enumerate(rows)]
    return {(*place, turn): value for place, row in by_agent for turn, value in enumerate(row)}


def _change(before: PlayedDebate, after: PlayedDebate) -> Change:
    assert before.step is not None and before.number is not None
    return Change(
        step=before.step,
        number=before.number,
        question=before.debate.question.text,
        before=before.winner,
        after=after.winner,
        leaders_before=() if before.outcome is None else before.outcome.leaders,
        leaders_after=() if after.outcome is None else after.outcome.leaders,
        correct_before=before.winner_is_right(),
        correct_after=after.winner_is_right(),
    )


# Adding up: no more memory for a hundred thousand debates than for one


MEANS = (
    "reward_mean", "with_signal", "with_gradient", "advantage_size", "advantage_right", "advantage_wrong",
    "winner_correct",
)  # fmt: skip


@dataclass
class Sum:
    means: dict[str, RunningMean] = field(default_factory=lambda: {name: RunningMean() for name in MEANS})
    """By the names of `Totals`."""
    correlation: Correlation = field(default_factory=Correlation)
    debates: int = 0
    winners: int = 0
    right_votes: float = 0.0
    telling_votes: float = 0.0

    def add(self, played: PlayedDebate) -> None:
        means, scores, advantages = self.means, played.scores, played.advantages
        self.debates += 1
        for total in () if scores is None else scores.returns:
            means["reward_mean"].add(total)
        means["with_signal"].add(scores is not None and scores.has_signal)
        means["with_gradient"].add(advantages is not None and carries_gradient(advantages))
        checked = judged(played)
        by_checks = played.scoring.rule.checked
        right, telling = (checked.wins, checked.pairs) if by_checks else judge_accuracy([played])
        self.right_votes += right
        self.telling_votes += telling
        self.winners += played.winner is not None
        if (correct := played.winner_is_right()) is not None:
            means["winner_correct"].add(correct)
        for i, value in enumerate(_by_turn(played)):
            turn = played.debate.turns[i]
            if not turn.ballot:
                means["advantage_size"].add(abs(value))
            # A turn that cannot be read is wrong and punished under every reward: it would only hide how votes treat
            # answers.
            if played.answer_known and turn.answers:
                self.correlation.add(value, float(played.correct(i)))
                means["advantage_right" if played.correct(i) else "advantage_wrong"].add(value)

    def totals(self, scoring: Scoring) -> Totals:
        return Totals(
            reward=scoring.reward,
            advantage=scoring.estimator,
            debates=self.debates,
            correlation=self.correlation.value,
            winners=self.winners,
            judge_accuracy=self.right_votes / self.telling_votes if self.telling_votes else None,
            **{name: running.mean for name, running in self.means.items()},
        )


def _by_turn(played: PlayedDebate) -> list[float]:
    """What the tokens of each turn's solution get. A ballot has none, and what stands for it is the agent's or 0."""
    if played.advantages is None:
        return []
    stream = answer_stream(played.advantages.streams)
    numbered = zip(played.debate.turns, played.debate.turn_numbers(), strict=True)
    return [played.advantages.at(stream, turn.agent, number) for turn, number in numbered]
