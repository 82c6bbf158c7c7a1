"""From the probabilities of words to the value of one check. What becomes of it stands in `debate/checks.py`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from moot.debate.checks import Ballot
from moot.debate.parsing import THINK, last_think_end

WORDS: Mapping[Ballot, tuple[str, str]] = {"approval": ("Yes", "No"), "pairs": ("A", "B")}
"""What a ballot is answered with. A check's value is the probability of the first word among the two."""
UNREADABLE = 0.5
MOST_UNREAD = 0.2
"""A larger share of verdicts that cannot be read is told: each is a vote for nobody."""


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
    one, other = (sum(math.exp(logprob - highest) for logprob in logprobs) for logprobs in (first, second))
    return one / (one + other)


def share_in_top(top: Mapping[str, float], words: tuple[str, str]) -> float | None:
    """The same from a server's list of the likeliest first tokens; None where neither word stands in it."""
    said = [(token.strip().casefold(), logprob) for token, logprob in top.items()]
    of_word = [[logprob for token, logprob in said if token == word.casefold()] for word in words]
    return share_of_first(*of_word) if any(of_word) else None


def word_said(reply: str, words: tuple[str, str]) -> float:
    """1 for the first word, 0 for the second, ½ where neither can be read: for where there are no probabilities. What
    is thought before is not said, and who says both words says neither."""
    reply = reply[last_think_end(reply) or 0 :]
    bare = reply.strip(" \t\r\n.,:;!?*_`\"'()").casefold()
    if bare in (spelled := [word.casefold() for word in words]):
        return 1.0 - spelled.index(bare)
    # In a sentence a letter counts as a capital alone: "a" is an article.
    found = re.findall(rf"\b(?:{words[0]}|{words[1]})\b", reply, 0 if len(words[0]) == 1 else re.I)
    said = {word.casefold() for word in found}
    return 1.0 - spelled.index(said.pop()) if len(said) == 1 and not THINK.search(reply) else UNREADABLE


def many_unread(share: float | None, judge: str = "") -> str:
    """What to say where so many of a judge's verdicts cannot be read; empty where they are few."""
    if share is None or share <= MOST_UNREAD:
        return ""
    return (
        f"{share:.0%} of the verdicts{' of ' * bool(judge)}{judge} say neither word, or both, and count as ½; give "
        "more --evaluation-tokens, turn the model's thinking off at its server, or name a judge that gives "
        "log-probabilities"
    )
