"""Debates as training sets, one JSON object per line, in the layouts that TRL reads.

    supervised     {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}], "debate": "12/3"}
    preferences    {"prompt": [{"role": "user", ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...],
                   "debate": "12/3"}

The prompt is the question alone, as one would ask it: the debate is how the answer was found, not part of it. Who won
is what the run's own reward said. A debate that says nothing is left out and counted under its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import IO, Any, TypeVar

from moot.debate.checks import EQUAL, is_vote, pairs_of
from moot.debate.rewards import last_parsed, scores_by_turn
from moot.debate.votes import by_pair, clear_consensus
from moot.runs import Damaged, PlayedDebate
from moot.runs.prompt_of_turn import seen_to_json
from moot.tasks.programs import last_program

T = TypeVar("T")
Row = dict[str, Any]
_LONE = re.compile("[\ud800-\udfff]")


class LeftOut(Exception):
    """A debate has nothing for a set. The message is the reason it is counted under."""


@dataclass
class Written:
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    damaged: list[Damaged] = field(default_factory=list)


def write(given: Iterable[T | Damaged], make: Callable[[T], Iterable[Row]], file: IO[bytes]) -> Written:
    """The rows that `make` gives for each debate, or label."""
    written = Written()
    for one in given:
        if isinstance(one, Damaged):
            written.left_out["damaged line"] += 1
            written.damaged += [one] if len(written.damaged) < 10 else []
            continue
        try:
            for row in make(one):
                # Half a character, which a model can sample, has no place in a file that others read as UTF-8.
                file.write(_LONE.sub("\ufffd", json.dumps(row, ensure_ascii=False)).encode() + b"\n")
                written.rows += 1
        except LeftOut as reason:
            written.left_out[str(reason)] += 1
    return written


def supervised(played: PlayedDebate, only_right: bool = False) -> Iterator[Row]:
    """The winner's last answer."""
    turn = winning_turn(played, only_right)
    # What an advocate says answers what it was told to argue for, not the question.
    position = played.debate.position(played.debate.turns[turn].agent)
    prompt = _asked(played) if position is None else seen_to_json(played, turn)
    yield {"prompt": prompt, "completion": _said(played, turn), "debate": played.name}


def best_and_worst(played: PlayedDebate, only_right: bool = False) -> Iterator[Row]:
    """One pair per debate: the winner's last answer, and that of the agent with the lowest reward."""
    chosen = winning_turn(played, only_right)
    outcome = played.outcome
    assert outcome is not None
    last, means = last_parsed(played.debate), outcome.means
    best = max(mean for mean in means if mean is not None)
    readable = [(mean, turn) for mean, turn in zip(means, last, strict=True) if mean is not None and turn is not None]
    below = [(mean, turn) for mean, turn in readable if mean < best]
    if not below:
        raise LeftOut("no readable answer below the winner's")
    yield _pair(played, chosen, min(below, key=lambda pair: pair[0])[1])


def voted_pairs(played: PlayedDebate, only_right: bool = False) -> Iterator[Row]:
    """Every two answers between which the judges clearly preferred one."""
    _check_played(played)
    written, same = 0, False
    for chosen, rejected in _by_checks(played) if played.scoring.rule.checked else _by_votes(played):
        if not _solution(played, chosen) or (only_right and not _is_right(played, chosen)):
            continue
        try:
            row = _pair(played, chosen, rejected)
        except LeftOut:
            same = True
            continue
        written += 1
        yield row
    if not written:
        raise LeftOut("chosen and rejected are the same" if same else "no pair with a clear preference")


def _by_votes(played: PlayedDebate) -> Iterator[tuple[int, int]]:
    for pair, cast in by_pair(played.ballots.votes).items():
        if (chosen := clear_consensus(cast)) is not None:
            (rejected,) = pair - {chosen}
            yield chosen, rejected


def _by_checks(played: PlayedDebate) -> Iterator[tuple[int, int]]:
    """Of pairs: those that were asked about, where the score is a vote for one of the two. Of approval: two answers of
    a round of which one is surely approved and the other surely not."""
    debate, rule = played.debate, played.scoring.rule
    margin = getattr(rule.settings, "vote_margin", 0.0)

    def sure(score: float) -> bool:
        return abs(score - 0.5) > EQUAL and is_vote(score, margin)

    if rule.ballot == "pairs":
        for pair in pairs_of(debate.checks or ()):
            if sure(pair.score):
                yield (pair.one, pair.other) if pair.score > 0.5 else (pair.other, pair.one)
        return
    scores = {turn: own[0] for turn, own in scores_by_turn(debate, played.scoring).items() if sure(own[0])}
    for chosen, rejected in permutations(scores, 2):
        if debate.turns[chosen].round == debate.turns[rejected].round and scores[chosen] > 0.5 > scores[rejected]:
            yield chosen, rejected


PAIRS: dict[str, Callable[[PlayedDebate, bool], Iterator[Row]]] = {"best_worst": best_and_worst, "votes": voted_pairs}


def winning_turn(played: PlayedDebate, only_right: bool = False) -> int:
    """The last readable turn of whoever won."""
    _check_played(played)
    outcome = played.outcome
    assert outcome is not None
    if outcome.winner is None:
        silent = played.scoring.rule.from_votes and not outcome.voted
        raise LeftOut("nobody won: no vote was cast" if silent else "nobody won: several are level")
    turn = last_parsed(played.debate)[outcome.winner]
    if turn is None:
        raise LeftOut("the winner gave no readable answer")
    if not _solution(played, turn):
        raise LeftOut("the winner's answer is empty")
    if only_right and not _is_right(played, turn):
        raise LeftOut("the winner's answer is not known to be right")
    return turn


def _check_played(played: PlayedDebate) -> None:
    if played.error is not None:
        raise LeftOut("the engine lost the debate")
    if played.scores is None:
        raise LeftOut("the debate was never scored")


def _is_right(played: PlayedDebate, turn: int) -> bool:
    return played.answer_known and played.correct(turn)


def _essence(solution: str) -> str:
    """What is compared: words; of programs also how lines are indented, which changes what they do."""
    if last_program(solution) is None:
        return " ".join(solution.split())
    return "\n".join(line.rstrip() for line in solution.strip().splitlines() if line.strip())


def _pair(played: PlayedDebate, chosen: int, rejected: int) -> Row:
    if played.debate.argued:
        raise LeftOut("advocates argue for different sides, so their arguments are no answers to one prompt")
    if _essence(_solution(played, chosen)) == _essence(_solution(played, rejected)):
        raise LeftOut("chosen and rejected are the same")
    both = {"chosen": _said(played, chosen), "rejected": _said(played, rejected)}
    return {"prompt": _asked(played), **both, "debate": played.name}


def _solution(played: PlayedDebate, turn: int) -> str:
    return played.debate.turns[turn].solution


def _asked(played: PlayedDebate) -> list[dict[str, str]]:
    return [{"role": "user", "content": played.debate.question.plain}]


def _said(played: PlayedDebate, turn: int) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": _solution(played, turn)}]
