"""Can the vote be trusted? The panel asks the known answers, which training itself never sees unless truth is mixed
in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, repeat

from moot.debate.rewards import held_answers, last_parsed, plurality
from moot.debate.types import Vote
from moot.debate.vote_filter import counting, flips, own_answers
from moot.debate.votes import by_pair, clear_consensus, in_both_orders
from moot.rl.judge_trust import PAIR_ACCURACY, judge_metrics, judged
from moot.rl.metrics import Metrics, mean
from moot.tokens.played import PlayedDebate

Share = tuple[float, float]
"""What was counted in a debate, and what could have been. A number of the panel is the one over the other, each summed
over debates."""
LESS_HALF = ("trust/position_bias", "trust/length_bias")
"""Shares of which one half is taken away: 0 is fair."""
MEANS = (
    *("trust/vote_truth_agreement", "trust/answer_diversity", "trust/plurality_share"),
    *("trust/mean_accuracy", "trust/judges_per_pair"),
)
"""What is not a share of votes or debates, so that Wilson's interval does not apply."""

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
    counted = [counts(played) for played in debates]
    outside = OUTSIDE if any(played.debate.jury and not played.debate.rules.needs_judge for played in debates) else ()
    peers = {key: _ratio(key, [played[key] for played in counted]) for key in (*PEERS, *outside)}
    return {**peers, **judge_metrics(debates)}


def _ratio(key: str, shares: Sequence[Share]) -> float | None:
    top, bottom = sum(top for top, _ in shares), sum(bottom for _, bottom in shares)
    return top / bottom - 0.5 * (key in LESS_HALF) if bottom else None


def counts(played: PlayedDebate) -> dict[str, Share]:
    """One debate's share in every number of the panel."""
    right, mixed = judge_accuracy([played])
    level = _level(played)
    labels = [(_label(played, vote, vote.left), _label(played, vote, vote.right)) for vote in level]
    lengths = [(_length(played, vote.left), _length(played, vote.right)) for vote in level]
    gap, won, checked = _agreement(played), played.winner_is_right(), judged(played)
    pairs = by_pair(played.peer_votes()).values()
    return {
        "trust/judge_accuracy": (right, mixed),
        PAIR_ACCURACY: (checked.wins, checked.pairs),
        "trust/vote_truth_agreement": (0.0, 0.0) if gap is None else (gap, 1.0),
        "trust/winner_correct": (0.0, 0.0) if won is None else (won, 1.0),
        "trust/mean_accuracy": (_accuracy(played), 1.0) if played.answer_known else (0.0, 0.0),
        "trust/position_bias": _share(left < right for left, right in labels),
        "trust/length_bias": _share(left > right for left, right in lengths if left != right),
        "trust/vote_cycles": _share(_triples(played)),
        "trust/answer_diversity": (diversity(played), 1.0),
        # Advocates differ because their positions do: how far they agree tells nothing.
        "trust/plurality_share": (0.0, 0.0)
        if played.grades is None or played.debate.question.sides
        else (plurality_share(played), 1.0),
        "trust/self_preference": _share(_own_preferred(played)),
        "trust/order_flips": _share(_flipped(played)),
        "trust/judges_per_pair": (float(sum(map(len, pairs))), float(len(pairs))),
        "trust/duplicate_votes": (played.ballots.repeated, played.ballots.cast),
        **_outside(played),
    }


def _outside(played: PlayedDebate) -> dict[str, Share]:
    """What judges without a seat make of the same answers, where their votes are not what is measured."""
    measured = played.peer_votes()
    beside = [vote for vote in played.ballots.outside if vote not in measured]
    pairs = by_pair(measured)
    settled = [(vote, clear_consensus(pairs.get(vote.pair, ()))) for vote in beside]
    return {
        "trust/outside_agreement": _share(
            vote.left == better for vote, better in settled if vote.verdict == ">" and better is not None
        ),
        "trust/outside_accuracy": _share(_prefer_right(played, beside)),
    }


def _level(played: PlayedDebate) -> list[Vote]:
    """Decided votes in which being right favours nobody: both responses are right, or both wrong. Between advocates all
    of them, because
    each seat has the right side equally often."""
    if played.debate.argued:
        return played.decided_votes()
    return (
        [vote for vote in played.decided_votes() if played.correct(vote.left) == played.correct(vote.right)]
        if played.answer_known
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
    for played, author in zip(debates, authors, strict=False):
        own = [vote for vote in played.peer_votes() if author in (None, vote.author)]
        hits = list(_prefer_right(played, own))
        mixed += len(hits)
        right += sum(hits)
    return right, mixed


def _prefer_right(played: PlayedDebate, votes: Iterable[Vote]) -> Iterator[bool]:
    """For each `>` vote between a right and a wrong response, whether it prefers the right one."""
    for vote in votes if played.answer_known else ():
        if vote.verdict == ">" and played.correct(vote.left) != played.correct(vote.right):
            yield played.correct(vote.left)


def counted_accuracy(debates: Iterable[PlayedDebate]) -> tuple[float, float]:
    """The same of the votes that make the reward, whoever casts them: a run may follow the votes of judges without a
    seat alone. A level pair of checked answers is half a right one."""
    shares: list[Share] = []
    for played in debates:
        if played.scoring.rule.checked:
            shares.append((judged(played).wins, judged(played).pairs))
        else:
            shares.append(_share(_prefer_right(played, counting(played.ballots.votes, played.scoring))))
    return sum(right for right, _ in shares), sum(mixed for _, mixed in shares)


def diversity(played: PlayedDebate) -> float:
    """Distinct answers of the last round that had any over agents; all missing ones together count as one."""
    last = max((turn.round for turn in played.debate.turns if not turn.ballot), default=0)
    held: list[int | None] = [None] * played.debate.num_agents
    for i, turn in enumerate(played.debate.turns):
        if turn.round == last:
            held[turn.agent] = None if played.grades is None else played.grades.same[i]
    return len(set(held)) / played.debate.num_agents


def plurality_share(played: PlayedDebate) -> float:
    """Of all agents, those whose last answer is the plurality's; an agent without an answer is one of them too. Needs
    no label."""
    held = held_answers(played.debate, played.grades)
    most = plurality(held)
    return 0.0 if most is None else held.count(most) / len(held)


def _own_preferred(played: PlayedDebate) -> Iterator[bool]:
    """For each `>` vote between a response with the judge's own answer and one with another, whether it prefers its
    own."""
    if played.grades is None:
        return
    same, own = played.grades.same, own_answers(played.debate, played.grades.same)
    for vote in played.decided_votes():
        if vote.turn < 0:
            continue  # the judge of advocates holds no answer
        held, left, right = own[vote.turn], same[vote.left], same[vote.right]
        if held is not None and left is not None and right is not None and left != right and held in (left, right):
            yield left == held


def _flipped(played: PlayedDebate) -> Iterator[bool]:
    if played.debate.rules.both_orders:
        for first, second in in_both_orders(played.debate):
            yield from flips(first, second)


def _label(played: PlayedDebate, vote: Vote, turn: int) -> int:
    """The number the voter knew the response's author by: a liking for low numbers is for the numbers one is shown."""
    return played.debate.labels(vote.author)[played.debate.turns[turn].agent]


def _length(played: PlayedDebate, turn: int) -> int:
    return len(played.debate.turns[turn].solution)


def _vote_shares(played: PlayedDebate) -> dict[int, float]:
    """The generator reward of each response, whatever reward the run trains on."""
    won: dict[int, list[float]] = defaultdict(list)
    for vote in played.decided_votes():
        won[vote.left].append(1.0)
        won[vote.right].append(-1.0)
    return {turn: sum(marks) / len(marks) for turn, marks in won.items()}


def _agreement(played: PlayedDebate) -> float | None:
    if not played.answer_known:
        return None
    shares = _vote_shares(played)
    right = mean(share for turn, share in shares.items() if played.correct(turn))
    wrong = mean(share for turn, share in shares.items() if not played.correct(turn))
    return None if right is None or wrong is None else right - wrong


def _accuracy(played: PlayedDebate) -> float:
    last = last_parsed(played.debate)
    return sum(played.correct(turn) for turn in last) / len(last)


def _triples(played: PlayedDebate) -> Iterator[bool]:
    """For each three responses with a clear consensus on all their pairs, whether it runs in a circle."""
    preferred = {pair: clear_consensus(votes) for pair, votes in by_pair(played.peer_votes()).items()}
    better = {pair: turn for pair, turn in preferred.items() if turn is not None}
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in map(tuple, better):
        neighbours[a].add(b)
        neighbours[b].add(a)
    for a in sorted(neighbours):
        for b, c in combinations(sorted(n for n in neighbours[a] if n > a), 2):
            if c in neighbours[b]:
                yield len({better[frozenset(pair)] for pair in ((a, b), (b, c), (a, c))}) == 3
