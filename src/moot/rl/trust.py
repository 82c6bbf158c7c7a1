"""Can the vote be trusted? The panel asks the known answers, which training itself never sees unless truth is mixed
in."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, repeat
from typing import Any

from moot.debate.rewards import held_answers, last_parsed, plurality
from moot.debate.typed_fields import check_types
from moot.debate.types import Parsed, Vote
from moot.debate.vote_filter import flips, own_answers
from moot.debate.votes import by_pair, clear_consensus, in_both_orders
from moot.rl.judge_trust import PAIR_ACCURACY, JudgeWatch, judge_metrics, judged
from moot.rl.metrics import Metrics, mean, solution_lengths
from moot.rl.trust_help import ALARMS
from moot.tokens.played import PlayedDebate
from moot.util.intervals import wilson

Share = tuple[float, float]
"""What was counted in a debate, and what could have been. A number of the panel is the one over the other, each summed
over debates."""
LESS_HALF = ("trust/position_bias", "trust/length_bias")
"""Shares of which one half is taken away: 0 is fair."""

OUTSIDE = ("trust/outside_agreement", "trust/outside_accuracy")
PEERS = (
    *("trust/judge_accuracy", "trust/vote_truth_agreement", "trust/winner_correct", "trust/mean_accuracy"),
    *(
        "trust/position_bias",
        "trust/length_bias",
        "trust/vote_cycles",
        "trust/answer_diversity",
        "trust/plurality_share",
    ),
    *("trust/self_preference", "trust/order_flips", "trust/judges_per_pair", "trust/duplicate_votes"),
)


def panel(debates: Sequence[PlayedDebate]) -> Metrics:
    counted = [counts(each) for each in debates]
    outside = OUTSIDE if any(each.debate.jury and each.debate.rules.peers_vote for each in debates) else ()
    peers = {key: _ratio(key, [each[key] for each in counted]) for key in (*PEERS, *outside)}
    return {**peers, **judge_metrics(debates)}


def _ratio(key: str, shares: Sequence[Share]) -> float | None:
    top, bottom = sum(top for top, _ in shares), sum(bottom for _, bottom in shares)
    return top / bottom - 0.5 * (key in LESS_HALF) if bottom else None


def counts(each: PlayedDebate) -> dict[str, Share]:
    """One debate's share in every number of the panel."""
    right, mixed = judge_accuracy([each])
    level = _level(each)
    lengths = [(_length(each, vote.left), _length(each, vote.right)) for vote in level]
    gap, won, checked = _agreement(each), each.winner_is_right(), judged(each)
    pairs = by_pair(each.peer_votes()).values()
    return {
        "trust/judge_accuracy": (right, mixed),
        PAIR_ACCURACY: (checked.wins, checked.pairs),
        "trust/vote_truth_agreement": (0.0, 0.0) if gap is None else (gap, 1.0),
        "trust/winner_correct": (0.0, 0.0) if won is None else (won, 1.0),
        "trust/mean_accuracy": (_accuracy(each), 1.0) if each.answer_known else (0.0, 0.0),
        "trust/position_bias": _share(_label(each, vote, vote.left) < _label(each, vote, vote.right) for vote in level),
        "trust/length_bias": _share(left > right for left, right in lengths if left != right),
        "trust/vote_cycles": _share(_triples(each)),
        "trust/answer_diversity": (diversity(each), 1.0),
        # Advocates differ because their positions do: how far they agree tells nothing.
        "trust/plurality_share": (0.0, 0.0)
        if each.grades is None or each.debate.question.sides
        else (plurality_share(each), 1.0),
        "trust/self_preference": _share(_own_preferred(each)),
        "trust/order_flips": _share(_flipped(each)),
        "trust/judges_per_pair": (float(sum(map(len, pairs))), float(len(pairs))),
        "trust/duplicate_votes": (each.ballots.repeated, each.ballots.cast),
        **_outside(each),
    }


def _outside(each: PlayedDebate) -> dict[str, Share]:
    """What judges without a seat make of the same answers."""
    agreed: list[bool] = []
    right: list[bool] = []
    pairs = by_pair(each.peer_votes())
    for vote in each.ballots.outside:
        if vote.verdict != ">":
            continue
        if (better := clear_consensus(pairs.get(vote.pair, ()))) is not None:
            agreed.append(vote.left == better)
        if each.answer_known and each.correct(vote.left) != each.correct(vote.right):
            right.append(each.correct(vote.left))
    return {"trust/outside_agreement": _share(agreed), "trust/outside_accuracy": _share(right)}


def _level(each: PlayedDebate) -> list[Vote]:
    """Decided votes in which being right favours nobody: both responses are right, or both wrong. Between advocates all
    of them, because
    each seat has the right side equally often."""
    if not each.debate.rules.own_answers:
        return each.decided_votes()
    return (
        [vote for vote in each.decided_votes() if each.correct(vote.left) == each.correct(vote.right)]
        if each.answer_known
        else []
    )


def _share(hits: Iterable[bool]) -> Share:
    listed = list(hits)
    return float(sum(listed)), float(len(listed))


def judge_accuracy(debates: Iterable[PlayedDebate], authors: Iterable[int | None] = repeat(None)) -> tuple[int, int]:
    """Of `>` votes between a right and a wrong response: how many prefer the right one, and how many there are; only
    those of one author
    per debate where `authors` names them."""
    right = mixed = 0
    for each, author in zip(debates, authors, strict=False):
        if each.answer_known:
            for vote in each.decided_votes():
                if each.correct(vote.left) != each.correct(vote.right) and author in (None, vote.author):
                    mixed += 1
                    right += each.correct(vote.left)
    return right, mixed


def counted_accuracy(debates: Iterable[PlayedDebate]) -> tuple[int, int]:
    """The same of the votes that make the reward, whoever casts them: a run may follow the votes of judges without a
    seat alone."""
    shares: list[Share] = []
    for each in debates:
        if each.scoring.rule.checked:
            shares.append((judged(each).wins, judged(each).pairs))
            continue
        if each.scoring.agents_count or not each.debate.rules.peers_vote:
            shares.append(judge_accuracy([each]))
        if (
            each.scoring.judges_count and each.debate.rules.peers_vote
        ):  # those of advocates stand among the votes already
            shares.append(_outside(each)["trust/outside_accuracy"])
    return int(sum(right for right, _ in shares)), int(sum(mixed for _, mixed in shares))


def diversity(each: PlayedDebate) -> float:
    """Distinct answers of the last round that had any over agents; all missing ones together count as one."""
    last = max((turn.round for turn in each.debate.turns if not turn.ballot), default=0)
    held: list[int | None] = [None] * each.debate.num_agents
    for i, turn in enumerate(each.debate.turns):
        if turn.round == last:
            held[turn.agent] = None if each.grades is None else each.grades.same[i]
    return len(set(held)) / each.debate.num_agents


def plurality_share(each: PlayedDebate) -> float:
    """Of all agents, those whose last answer is the plurality's; an agent without an answer is one of them too. Needs
    no label."""
    held = held_answers(each.debate, each.grades)
    most = plurality(held)
    return 0.0 if most is None else held.count(most) / len(held)


def _own_preferred(each: PlayedDebate) -> Iterator[bool]:
    """For each `>` vote between a response with the judge's own answer and one with another, whether it prefers its
    own."""
    if each.grades is None:
        return
    same, own = each.grades.same, own_answers(each.debate, each.grades.same)
    for vote in each.decided_votes():
        if vote.turn < 0:
            continue  # the judge of advocates holds no answer
        held, left, right = own[vote.turn], same[vote.left], same[vote.right]
        if held is not None and left is not None and right is not None and left != right and held in (left, right):
            yield left == held


def _flipped(each: PlayedDebate) -> Iterator[bool]:
    if each.debate.rules.both_orders:
        for first, second in in_both_orders(each.debate):
            yield from flips(first, second)


def _label(each: PlayedDebate, vote: Vote, turn: int) -> int:
    """The number the voter knew the response's author by: a liking for low numbers is for the numbers one is shown."""
    return each.debate.labels(vote.author)[each.debate.turns[turn].agent]


def _length(each: PlayedDebate, turn: int) -> int:
    parsed = each.debate.turns[turn].parsed
    return len(parsed.fields["solution"]) if isinstance(parsed, Parsed) else 0


def _vote_shares(each: PlayedDebate) -> dict[int, float]:
    """The generator reward of each debates response, whatever reward the run trains on."""
    won: dict[int, list[float]] = defaultdict(list)
    for vote in each.decided_votes():
        won[vote.left].append(1.0)
        won[vote.right].append(-1.0)
    return {turn: sum(marks) / len(marks) for turn, marks in won.items()}


def _agreement(each: PlayedDebate) -> float | None:
    if not each.answer_known:
        return None
    shares = _vote_shares(each)
    right = mean(share for turn, share in shares.items() if each.correct(turn))
    wrong = mean(share for turn, share in shares.items() if not each.correct(turn))
    return None if right is None or wrong is None else right - wrong


def _accuracy(each: PlayedDebate) -> float:
    last = last_parsed(each.debate)
    return sum(each.correct(turn) for turn in last) / len(last)


def _triples(each: PlayedDebate) -> Iterator[bool]:
    """For each three responses with a clear consensus on all their pairs, whether it runs in a circle."""
    better = {
        pair: turn for pair, votes in by_pair(each.peer_votes()).items() if (turn := clear_consensus(votes)) is not None
    }
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in map(tuple, better):
        neighbours[a].add(b)
        neighbours[b].add(a)
    for a in sorted(neighbours):
        for b, c in combinations(sorted(n for n in neighbours[a] if n > a), 2):
            if c in neighbours[b]:
                yield len({better[frozenset(pair)] for pair in ((a, b), (b, c), (a, c))}) == 3


# Alarms

WINDOW, ENOUGH = 5, 20


@dataclass(frozen=True)
class _Iteration:
    debates: int
    uniform: int
    signals: int
    known: int
    right: int
    mixed: int
    contested: int
    settled: int
    could_vote: int
    did_vote: int
    turns: int
    failed_turns: int
    # Older checkpoints have none of these.
    solutions: int = 0
    solution_tokens: int = 0
    agents: int = 0
    right_answers: int = 0
    unlabelled: int = 0
    """Agents of debates without a known answer."""
    agreeing: int = 0
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
            name: [asdict(each) for each in steps] for name, steps in (("window", self.window), ("first", self.first))
        }
        return {"best_vote_rate": self.best_vote_rate, **kept, "judges": self.judges.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Alarms:
        window, first = ([_Iteration(**each) for each in state.get(name, ())] for name in ("window", "first"))
        for counts in (*window, *first):
            check_types(counts)
        judges = JudgeWatch.from_state(state["judges"])
        return cls(float(state["best_vote_rate"]), deque(window, maxlen=WINDOW), first, judges)

    def update(self, debates: Sequence[PlayedDebate]) -> Metrics:
        """1 for an alarm that rings, 0 for one that does not, None while too little was seen."""
        decay = self.judges.update(debates)
        self.window.append(_summary(debates))
        if len(self.first) < WINDOW:
            self.first.append(self.window[-1])
        window = list(self.window)
        total = _sums(window)
        if total["debates"] < ENOUGH:
            return dict.fromkeys(ALARMS)
        vote_rate = total["did_vote"] / total["could_vote"] if total["could_vote"] else 0.0
        silent = sum(each.signals == 0 for each in window)
        low, high = wilson(total["right"], total["mixed"])
        if total["known"]:
            noise = total["mixed"] > 0 and low <= 0.5 <= high
        else:
            noise = total["contested"] > 0 and total["settled"] < 0.6 * total["contested"]
        collapse = vote_rate <= self.best_vote_rate / 2 and self.best_vote_rate > 0
        self.best_vote_rate = max(self.best_vote_rate, vote_rate)
        return {
            "alarm/degenerate_consensus": float(total["uniform"] > 0.8 * total["debates"] or silent > len(window) / 2),
            "alarm/random_noise": float(noise),
            "alarm/format_collapse": float(collapse or total["failed_turns"] > 0.4 * total["turns"]),
            "alarm/length_collapse": float(_shrunk(_sums(self.first), total)),
            "alarm/judge_decay": decay,
        }


def _sums(steps: Sequence[_Iteration]) -> dict[str, int]:
    return {name: sum(getattr(each, name) for each in steps) for name in _Iteration.__dataclass_fields__}


def _shrunk(first: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Solutions have less than half of the tokens they began with, and answers are no better for it."""
    if not (first["solutions"] and now["solutions"]):
        return False
    good, of = ("right_answers", "agents") if first["agents"] and now["agents"] else ("agreeing", "unlabelled")
    risen = now[good] * first[of] > first[good] * now[of]
    return 2 * now["solution_tokens"] * first["solutions"] < first["solution_tokens"] * now["solutions"] and not risen


def _summary(debates: Sequence[PlayedDebate]) -> _Iteration:
    right, mixed = counted_accuracy(debates)
    contested = [
        votes
        for each in debates
        for votes in by_pair(each.peer_votes()).values()
        if len({vote.author for vote in votes}) >= 2
    ]
    lengths = solution_lengths(debates)
    with_answer = [each for each in debates if each.answer_known]
    without = [each for each in debates if not each.answer_known]
    return _Iteration(
        debates=len(debates),
        # Where nobody knows the answer there may be none to compare: an essay is not an agreement.
        uniform=sum(each.answer_known and round(diversity(each) * each.debate.num_agents) == 1 for each in debates),
        signals=sum(each.scores is not None and each.scores.has_signal for each in debates),
        known=sum(each.answer_known for each in debates),
        right=right,
        mixed=mixed,
        contested=len(contested),
        settled=sum(clear_consensus(votes) is not None for votes in contested),
        could_vote=sum(each.ballots.could_vote for each in debates),
        did_vote=sum(each.ballots.did_vote for each in debates),
        turns=sum(len(each.debate.turns) for each in debates),
        failed_turns=sum(turn.failed for each in debates for turn in each.debate.turns),
        solutions=len(lengths),
        solution_tokens=sum(lengths),
        agents=sum(each.debate.num_agents for each in with_answer),
        right_answers=sum(each.correct(turn) for each in with_answer for turn in last_parsed(each.debate)),
        unlabelled=sum(each.debate.num_agents for each in without),
        agreeing=sum(map(_agreeing, without)),
    )


def _agreeing(each: PlayedDebate) -> int:
    """How many agents give the answer that weights standing still gave, or without one the debate's plurality."""
    labelled = None if each.grades is None else each.grades.labelled
    if labelled is None:
        return round(plurality_share(each) * each.debate.num_agents)
    return sum(turn is not None and labelled[turn] for turn in last_parsed(each.debate))
