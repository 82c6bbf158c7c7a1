"""What `moot label` says: what it will cost, what confidence was worth, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from moot.cli.speakers import Speakers
from moot.debate.sections import plan
from moot.debate.state import Debate
from moot.evaluate.table import rich_table
from moot.tools.judged import ballot_named
from moot.tools.label import Calibration, Kept, Label
from moot.util.intervals import wilson
from moot.util.safe_text import counted, one_line

PER_TOKEN = 4
"""Characters of a token, more or less."""
_VERDICT = 2
"""Requests of a check: the judge thinks, and then says a word."""


def requests_of(debate: Debate) -> int:
    """How many requests one debate takes at most."""
    rules, agents = debate.rules, debate.num_agents
    if rules.sections == "sampled":
        return agents * (debate.max_rounds + rules.closing_ballot)
    first, later = (len(plan(rules.contract, others, judge_first=True)) for others in (0, agents - 1))
    ballot = later - 1 if rules.closing_ballot else 0
    return agents * (first + (debate.max_rounds - 1) * later + ballot)


def forecast_lines(debates: Sequence[Debate], speakers: Speakers) -> list[str]:
    """What the whole file will cost, before anything is asked."""
    requests = requests_of(debates[0]) * len(debates)
    read = sum(len(debate.question.plain) // PER_TOKEN + 1 for debate in debates) * requests_of(debates[0])
    written = requests * speakers.max_tokens
    answers = counted(debates[0].num_agents, "answer")
    about = "about" if debates[0].max_rounds == 1 else "more than"
    lines = [f"{counted(len(debates), 'question')}, {answers} each: {requests:,} requests"]
    lines[0] += f", {about} {read:,} tokens read, at most {written:,} written"
    if speakers.price_in is not None and speakers.price_out is not None:
        cost = [tokens * price / 1e6 for tokens, price in ((read, speakers.price_in), (written, speakers.price_out))]
        lines[0] += f", cost at most about {sum(cost):.4g}"
    lines[0] += "."
    if speakers.judge is not None:
        asks = ballot_named(speakers.ballot).asks
        checks = asks.get("checks") or 2 * asks["opponents"]  # both orders of a pair
        scored = len(debates) * debates[0].num_agents * checks * _VERDICT
        asked = f"The judge {speakers.judge} is asked up to {scored:,} times; the same words are judged once."
        lines.append(f"{asked} What it costs comes on top.")
    return lines


def kept_line(used: int, kept: int) -> str:
    """Of the `kept` replies that are here from before, `used` are what would be asked for now."""
    others = f" Of other settings or questions, kept and not used: {kept - used:,}." if used < kept else ""
    return f"Replies here from before, not asked for again: {used:,}.{others}"


def cut_line(cut: int, answers: int, max_tokens: int) -> str:
    """What is said on the way, where most answers are cut: before all of them are paid for."""
    more = f"--max-tokens {1 << ((4 * max_tokens).bit_length() - 1)}"
    told = f"{cut / answers:.0%} of the answers so far were cut at --max-tokens {max_tokens} and count as none"
    return f"{told}; stop with Ctrl-C and give them more, as in {more} (they are then asked anew)."


def replaced_line(out: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What is about to be replaced, where it was made with other settings. Where a server stands is none."""
    both = {name: (before.get(name), now.get(name)) for name in {**before, **now} if name != "base_url"}
    changed = [f"{name} {_told(old)}, now {_told(new)}" for name, (old, new) in both.items() if old != new]
    if not changed:
        return None
    made = f"{out} holds labels that were made with other settings ({'; '.join(changed)})"
    return f"{made}. They will be replaced; to keep them, name another file with --out."


def _told(value: Any) -> str:
    return "none" if value in (None, "", []) else one_line(str(value), 60)


def reliability_table(calibration: Calibration) -> Table:
    """By tenths of confidence, how many of the known labels are right."""
    rows = [
        [
            f"{tenth.confidence:.2f}",
            str(tenth.of),
            f"{tenth.share:.0%} [{tenth.interval[0]:.0%}, {tenth.interval[1]:.0%}]",
        ]
        for tenth in calibration.bins
    ]
    return rich_table(["confidence", "known", "right [95%]"], rows)


def summary_lines(
    labels: Mapping[str, Label], calibration: Calibration, threshold: float | None, judged: bool, graded: bool
) -> list[tuple[str, str]]:
    given = labels.values()
    trusted, silent = sum(label.trusted(threshold) for label in given), sum(label.answer is None for label in given)
    at = "" if threshold is None else f" (confidence at least {threshold:.3g})"
    lines = [(f"{len(labels)} labelled: {trusted} trusted{at}, {len(labels) - trusted - silent} not", "bold")]
    if silent:
        why = "the answers stand in no box; --grader number, choice or text finds them elsewhere"
        lines[0] = (f"{lines[0][0]}, {silent} without an answer", "bold")
        lines += [] if graded else [(f"{counted(silent, 'question')} without an answer: {why}.", "yellow")]
    if not calibration.known:
        name = "the judge's score" if judged else "the share of the answers"
        lines.append((f"No answer is known, so nobody has measured what {name} is worth. --known FILE does.", "yellow"))
    elif calibration.asked is not None and calibration.kept is None:
        lines.append((_out_of_reach(calibration), "red"))
    elif calibration.kept is not None:
        lines += _reached(calibration, calibration.kept)
    return lines


def _share(kept: Kept) -> str:
    low, high = wilson(kept.right, kept.rows)
    return f"{kept.right} of {kept.rows} known ones are right, {(kept.precision or 0):.1%} [{low:.1%}, {high:.1%}]"


def _reached(calibration: Calibration, kept: Kept) -> list[tuple[str, str]]:
    if not kept.rows:
        return [(f"None of the {calibration.known} known labels has this confidence: nothing is measured.", "yellow")]
    lines = [(f"Of those that are trusted, {_share(kept)}.", "")]
    if calibration.asked is not None:
        low = wilson(kept.right, kept.rows)[0]
        if low < calibration.asked:
            lines.append(
                (f"It may be less than {100 * calibration.asked:g}%: more known answers make it surer.", "yellow")
            )
    return lines


def _out_of_reach(calibration: Calibration) -> str:
    asked, best = f"{100 * (calibration.asked or 0):g}%", calibration.best
    if best is None:
        return f"Precision {asked} cannot be measured: no known row has an answer. No label is trusted."
    least = math.ceil((calibration.asked or 0.0) / (1 - (calibration.asked or 0.0)))
    few = f" (it takes {least} known rows that are all right to tell)" if best.rows < least else ""
    return (
        f"Precision {asked} is not reached{few}: at best, from confidence {best.threshold:.3g} up, {_share(best)}. No "
        "label is trusted. Ask for less, give more --known answers, more answers per question, or a --judge."
    )
