"""The alarms, one for each way in which votes stop teaching: what each is called and means, and when it rings.

An alarm is an entry of ALARMS and a line of `Alarms.update`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from moot.debate.rewards import last_parsed
from moot.debate.typed_fields import check_types
from moot.debate.votes import by_pair, clear_consensus
from moot.rl.judge_trust import JudgeWatch
from moot.rl.metrics import Metrics, solution_lengths
from moot.rl.trust import counted_accuracy, diversity, plurality_share
from moot.rl.trust_help import Meaning
from moot.tokens.played import PlayedDebate
from moot.util.intervals import wilson


@dataclass(frozen=True)
class Alarm(Meaning):
    name: str
    """As the page calls it."""
    rings: str
    """When it rings, in words."""


ALARMS: dict[str, Alarm] = {
    "alarm/degenerate_consensus": Alarm(
        name="Everyone says the same",
        rings="In the last 5 steps all agents gave one answer in over 80% of debates, or most steps had no debate "
        "with a signal.",
        means="nearly all debates end with every agent giving one answer, or carry no signal, so there is nothing "
        "left to learn from.",
        remedy="Use harder questions (`--task`), five agents (`--num-agents 5`), fewer rounds (`--max-rounds 2`), or "
        "mix in truth (`--reward-mix 0.3`).",
    ),
    "alarm/random_noise": Alarm(
        name="Votes look like coin tosses",
        rings="The judges' accuracy cannot be told from 50% (or, where no answers are known, judges hardly ever "
        "agree).",
        means="votes between right and wrong answers look like coin tosses, so training follows noise.",
        remedy="Use easier questions (`--task`) or a curriculum (`--with curriculum`), a warm start "
        "(`--warm-questions 100` and `--with warm_start:wrong=sampled`), an outside judge asked twice (`--judge NAME "
        "--both-orders`), or `--reward-mix 0.3`.",
    ),
    "alarm/format_collapse": Alarm(
        name="Turns lose their form",
        rings="Over 40% of turns cannot be read, or only half as many turns cast a vote as at their best.",
        means="over 40% of the turns cannot be read, as those that are cut at their limit of tokens, or agents who "
        "cast votes stopped.",
        remedy="Where `turns/cut` is high, allow more `--max-tokens`. Otherwise use a lower `--learning-rate`, keep "
        "`--enable-format-penalty` on, start with `--warm-questions 100`, or use `--with distill`.",
    ),
    "alarm/judge_decay": Alarm(
        name="The judge decays",
        rings="The judge's interval over the last 5 steps lies below that of the first 5; without answers, it "
        "approves over 90% or under 10%.",
        means="the judge tells right answers from wrong ones less well than in the first steps, or approves nearly "
        "all of them or none: the policy has found what it lets pass.",
        remedy="Use the best checkpoint (`RUN@best`), a stronger judge (`--judge NAME`), or pay for sure approval "
        "alone (`--reward approved`).",
    ),
    "alarm/length_collapse": Alarm(
        name="Solutions shrink",
        rings="Solutions have less than half of the tokens of the first 5 steps, and accuracy (or, without answers, "
        "agreement) has not risen.",
        means="solutions have less than half of the tokens they began with, and the answers are no better: the "
        "reasoning is being trained away.",
        remedy="Use the best checkpoint (`RUN@best`), a lower `--learning-rate`, or keep near the start (`--with "
        "kl_penalty:coef=0.001`); `--sections asked` begins longer.",
    ),
}

WINDOW, ENOUGH = 5, 20


@dataclass(frozen=True)
class _Iteration:
    debates: int
    uniform: int
    signals: int
    known: int
    right: float
    mixed: float
    contested: int
    settled: int
    could_vote: int
    did_vote: int
    turns: int
    failed_turns: int
    solutions: int
    solution_tokens: int
    agents: int
    right_answers: int
    unlabelled: int
    """Agents of debates without a known answer."""
    agreeing: int
    """Those of them that give the answer of weights that stand still (frozen_labels), or without one the debate's
    plurality."""


@dataclass
class Alarms:
    """Watches the last five steps; silent until they hold twenty debates."""

    best_vote_rate: float = 0.0
    window: deque[_Iteration] = field(default_factory=lambda: deque(maxlen=WINDOW))
    first: list[_Iteration] = field(default_factory=list)
    """The first five steps: how long solutions were, and how good."""
    judges: JudgeWatch = field(default_factory=JudgeWatch)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        kept = {
            name: [asdict(step) for step in steps] for name, steps in (("window", self.window), ("first", self.first))
        }
        return {"best_vote_rate": self.best_vote_rate, **kept, "judges": self.judges.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Alarms:
        window, first = ([_Iteration(**step) for step in state[name]] for name in ("window", "first"))
        for counts in (*window, *first):
            check_types(counts)
            if not all(0 <= count < 1 << 40 for count in vars(counts).values()):
                raise ValueError(f"these are no counts: {counts!r:.80}")
        judges = JudgeWatch.from_state(state["judges"])
        return cls(float(state["best_vote_rate"]), deque(window, maxlen=WINDOW), first, judges)

    def update(self, debates: Sequence[PlayedDebate]) -> Metrics:
        """1 for an alarm that rings, 0 for one that does not, None while too little was seen of what it watches."""
        decay = self.judges.update(debates)
        self.window.append(_summary(debates))
        if len(self.first) < WINDOW:
            self.first.append(self.window[-1])
        window = list(self.window)
        total = _sums(window)
        if total["debates"] < ENOUGH:
            return dict.fromkeys(ALARMS)
        vote_rate = total["did_vote"] / total["could_vote"] if total["could_vote"] else 0.0
        silent = sum(step.signals == 0 for step in window)
        low, high = wilson(total["right"], total["mixed"])
        if total["known"]:
            noise = float(low <= 0.5 <= high) if total["mixed"] else None
        else:
            noise = float(total["settled"] < 0.6 * total["contested"]) if total["contested"] else None
        collapse = vote_rate <= self.best_vote_rate / 2 and self.best_vote_rate > 0
        self.best_vote_rate = max(self.best_vote_rate, vote_rate)
        return {
            "alarm/degenerate_consensus": float(total["uniform"] > 0.8 * total["debates"] or silent > len(window) / 2),
            "alarm/random_noise": noise,
            "alarm/format_collapse": float(collapse or total["failed_turns"] > 0.4 * total["turns"]),
            "alarm/length_collapse": _shrunk(_sums(self.first), total),
            "alarm/judge_decay": decay,
        }


def _sums(steps: Sequence[_Iteration]) -> dict[str, float]:
    return {name: sum(getattr(step, name) for step in steps) for name in _Iteration.__dataclass_fields__}


def _shrunk(first: Mapping[str, float], now: Mapping[str, float]) -> float | None:
    """Whether solutions have less than half of the tokens they began with, and answers are no better for it."""
    if not (first["solutions"] and now["solutions"]):
        return None
    good, of = ("right_answers", "agents") if first["agents"] and now["agents"] else ("agreeing", "unlabelled")
    risen = now[good] * first[of] > first[good] * now[of]
    shorter = 2 * now["solution_tokens"] * first["solutions"] < first["solution_tokens"] * now["solutions"]
    return float(shorter and not risen)


def _summary(debates: Sequence[PlayedDebate]) -> _Iteration:
    right, mixed = counted_accuracy(debates)
    pairs = (votes for played in debates for votes in by_pair(played.peer_votes()).values())
    contested = [votes for votes in pairs if len({vote.author for vote in votes}) >= 2]
    lengths = solution_lengths(debates)
    with_answer = [played for played in debates if played.answer_known]
    without = [played for played in debates if not played.answer_known]
    return _Iteration(
        debates=len(debates),
        # Where nobody knows the answer there may be none to compare: an essay is not an agreement.
        uniform=sum(round(diversity(played) * played.debate.num_agents) == 1 for played in with_answer),
        signals=sum(played.scores is not None and played.scores.has_signal for played in debates),
        known=len(with_answer),
        right=right,
        mixed=mixed,
        contested=len(contested),
        settled=sum(clear_consensus(votes) is not None for votes in contested),
        could_vote=sum(played.ballots.could_vote for played in debates),
        did_vote=sum(played.ballots.did_vote for played in debates),
        turns=sum(len(played.debate.turns) for played in debates),
        failed_turns=sum(turn.failed for played in debates for turn in played.debate.turns),
        solutions=len(lengths),
        solution_tokens=sum(lengths),
        agents=sum(played.debate.num_agents for played in with_answer),
        right_answers=sum(played.correct(turn) for played in with_answer for turn in last_parsed(played.debate)),
        unlabelled=sum(played.debate.num_agents for played in without),
        agreeing=sum(map(_agreeing, without)),
    )


def _agreeing(played: PlayedDebate) -> int:
    """How many agents give the answer that weights standing still gave, or without one the debate's plurality."""
    labelled = None if played.grades is None else played.grades.labelled
    if labelled is None:
        return round(plurality_share(played) * played.debate.num_agents)
    return sum(turn is not None and labelled[turn] for turn in last_parsed(played.debate))
