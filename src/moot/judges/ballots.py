"""Ballots of judges without a seat: from probabilities of words to scores of answers, and to rewards. No model.

approval   one answer, checked several times: Yes or No. Its score is the mean of P(Yes) / (P(Yes) + P(No))
pairs      two answers, in both orders: A or B. The first one's score against the second is ½ · (p_AB + 1 − p_BA)
lines      all answers at once: comparisons in writing, as agents write them (lines.py); no probabilities
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Ballot = Literal["approval", "pairs", "lines"]
Show = Literal["solution", "answer"]
"""What a judge is shown of an answer: the whole solution, or the final answer alone."""
WORDS: Mapping[str, tuple[str, str]] = {"approval": ("Yes", "No"), "pairs": ("A", "B")}
"""What a ballot is answered with. A check's value is the probability of the first word among the two."""
Classes = Sequence[int | None]
"""Which answers are the same, by number. Those without an answer are the same among themselves."""
EQUAL = 1e-9
"""Numbers that differ by less are the same: which one is larger would be a matter of rounding."""
UNREADABLE = 0.5
FAILED = -1.0
"""The reward of a turn that failed; no judge is shown it."""


# From words to the value of one check


def spellings(word: str, encode: Callable[[str], Sequence[int]]) -> list[tuple[int, ...]]:
    """A word's tokens, with and without a leading space, in either case: those of one token, or all where none is."""
    written = [space + spelled for spelled in dict.fromkeys((word.capitalize(), word.lower())) for space in ("", " ")]
    encoded = dict.fromkeys(tuple(int(token) for token in encode(text)) for text in written)
    return [tokens for tokens in encoded if len(tokens) == 1] or [tokens for tokens in encoded if tokens]


def share_of_first(first: Sequence[float], second: Sequence[float]) -> float:
    """P(first) / (P(first) + P(second)), from the logprobs of each word's spellings; ½ where neither can be said."""
    highest = max((*first, *second), default=-math.inf)
    if highest == -math.inf:
        return UNREADABLE
    # Relative to the highest: the probability of every spelling may be too small for a float.
    one, other = (sum(math.exp(logprob - highest) for logprob in each) for each in (first, second))
    return one / (one + other)


def share_in_top(top: Mapping[str, float], words: tuple[str, str]) -> float | None:
    """The same from a server's list of the likeliest first tokens; None where neither word stands in it."""
    said = [(token.strip().casefold(), logprob) for token, logprob in top.items()]
    of_word = [[logprob for token, logprob in said if token == word.casefold()] for word in words]
    return share_of_first(*of_word) if any(of_word) else None


def word_said(reply: str, words: tuple[str, str]) -> float:
    """1 for the first word, 0 for the second, ½ where neither can be read: for where there are no probabilities."""
    bare = reply.strip(" \t\r\n.,:;!?*_`\"'()").casefold()
    if bare in (spelled := [word.casefold() for word in words]):
        return 1.0 - spelled.index(bare)
    # In a sentence a letter counts as a capital alone: "a" is an article.
    said = re.search(rf"\b(?:{words[0]}|{words[1]})\b", reply, 0 if len(words[0]) == 1 else re.I)
    return UNREADABLE if said is None else 1.0 - spelled.index(said[0].casefold())


# From checks to scores


def approval(checks: Sequence[float]) -> float | None:
    """The score of one answer; None where it was not checked."""
    return sum(checks) / len(checks) if checks else None


@dataclass(frozen=True)
class Pair:
    """Two answers of one question by their numbers, and what the judge said of them in each order."""

    one: int
    other: int
    one_first: float
    """The probability of A where `one` stands first: p_AB."""
    other_first: float
    """The probability of A where `other` stands first: p_BA."""

    @property
    def score(self) -> float:
        """Of `one` against `other`. In this order of adding, equal probabilities make exactly ½."""
        return 0.5 + (self.one_first - self.other_first) / 2

    @property
    def flips(self) -> bool:
        """Whether the preferred answer changes with the order. To prefer none is a verdict of its own."""
        return _side(self.one_first) != -_side(self.other_first)

    def score_of(self, answer: int) -> float:
        return self.score if answer == self.one else 1.0 - self.score


def _side(value: float) -> int:
    return (value > 0.5) - (value < 0.5)


def drawn_pairs(classes: Classes, shown: Sequence[bool], opponents: int, seed: object) -> list[tuple[int, int]]:
    """Who meets whom, the lower number first: each answer that is shown draws up to `opponents` with another answer.

    A pair is asked once, whoever drew it, and counts for both.
    """
    pairs: set[tuple[int, int]] = set()
    for i in (number for number, is_shown in enumerate(shown) if is_shown):
        others = [j for j, is_shown in enumerate(shown) if is_shown and classes[j] != classes[i]]
        drawn = random.Random(f"{seed}/{i}").sample(others, min(opponents, len(others)))
        pairs |= {(min(i, j), max(i, j)) for j in drawn}
    return sorted(pairs)


def scores_in_pairs(pairs: Sequence[Pair], answer: int) -> list[float]:
    return [pair.score_of(answer) for pair in pairs if answer in (pair.one, pair.other)]


# From scores to rewards


def is_vote(score: float, vote_margin: float = 0.0) -> bool:
    """Whether a score is sure enough to count."""
    return abs(2 * score - 1) >= vote_margin - EQUAL


def generator_reward(scores: Sequence[float], vote_margin: float = 0.0, failed: bool = False) -> float | None:
    """The mean of 2s − 1 over those of an answer's scores that are votes; None without one, -1 for a failed turn."""
    if failed:
        return FAILED
    votes = [2 * score - 1 for score in scores if is_vote(score, vote_margin)]
    return sum(votes) / len(votes) if votes else None
