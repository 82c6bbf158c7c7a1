"""The list to go through before anyone burns a night: can the model do the task at all, keep the contract, and judge?
And what does the
contract cost it: a debate that begins below the plain question trains a model that was made worse first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from moot.evaluate.report import Report, ReportRow
from moot.rl.trust import Share
from moot.util.intervals import Interval, cautious_interval, paired_interval, wilson

Verdict = Literal["pass", "fail", "cannot tell"]
SAYS: dict[Verdict, str] = {"pass": "go", "cannot tell": "caution", "fail": "no-go"}


@dataclass(frozen=True)
class Requirement:
    name: str
    mode: str
    metric: str
    above: float
    """The share that must be exceeded."""
    remedy: str
    minus: tuple[str, str] | None = None
    """Mode and metric of what is subtracted, question by question, where a difference is asked for."""


CHECKS = (
    Requirement(
        "direct accuracy",
        "direct",
        "accuracy",
        0.05,
        "The model cannot do this task alone, so votes would compare noise with noise. Take an easier --task or a "
        "stronger --model, warm "
        "it up on worked solutions (--warm-questions 1024), or mix in the truth (--reward-mix 0.3).",
    ),
    Requirement(
        "valid comparisons",
        "debate",
        "comparisons",
        0.80,
        "Turns that were to compare others gave no vote, so there is little to learn from. Teach the contract with a "
        "warm start (--warm-questions 64 or more), and raise --max-tokens where turns are cut.",
    ),
    Requirement(
        "one agent right",
        "debate",
        "pass@k",
        0.20,
        "In too few debates is there a right answer to prefer. Use more agents (--num-agents 5), an easier --task, or "
        "a warm start.",
    ),
    Requirement(
        "judge accuracy",
        "debate",
        "judge",
        0.50,
        "Votes between a right and a wrong answer are no better than a coin. Put weight on judging (--lambda-judge 1.5 "
        "--lambda-gen 0.5), use 5 agents with --judge-consensus leave_one_out, or mix in the truth (--reward-mix 0.3, "
        "or --correct-bonus 0.5).",
    ),
)
"""direct accuracy: 5 to 10% are asked for; the lower is the limit. one agent right: pass@N of the debates."""

_HARD = (
    "The questions are too hard inside a debate. Take an easier --task, a stronger --model, or mix in the truth "
    "(--reward-mix 0.3)."
)
_KEEP = (
    "Ask for each section by itself (--sections asked --no-personas), raise --max-tokens where answers are cut, write "
    "your own texts (moot prompts > FILE, then --prompts FILE), or teach the form in the model's own words "
    "(--warm-questions 64 --with warm_start:solutions=own)."
)
CONTRACT = (
    Requirement("accuracy in round 1", "debate", "round_1", 0.05, _HARD),
    Requirement("accuracy in the last round", "debate", "accuracy", 0.05, _HARD),
    Requirement(
        "cost of the contract: round 1 minus direct",
        "debate",
        "round_1",
        -0.05,
        f"The debate takes ability away before it begins. {_KEEP}",
        ("direct", "accuracy"),
    ),
    Requirement(
        "last round minus round 1",
        "debate",
        "accuracy",
        -0.05,
        "Reading the others makes answers worse. Train on one round (--max-rounds 1 --reward majority), or, where "
        "sections are asked, solve before judging (--sections given).",
        ("debate", "round_1"),
    ),
    Requirement("valid turns", "debate", "valid_turns", 0.85, f"Too many turns cannot be read. {_KEEP}"),
    Requirement(
        "majority minus mean, round 1",
        "debate",
        "round_1_plurality",
        0.0,
        "The most frequent answer is no better than one answer, so --reward majority has nothing to teach. Use more "
        "agents (--num-agents 8), a higher --temperature where all agree, or easier questions (--task).",
        ("debate", "round_1"),
    ),
)
"""What the contract costs, and what a majority or a second round is worth in it. Five points are let pass."""
LENGTH = Requirement(
    "tokens of a turn, of a plain answer's",
    "debate",
    "tokens",
    0.5,
    f"Turns are hasty: less than half as long as a plain answer, so the reasoning is gone. {_KEEP}",
)


@dataclass(frozen=True)
class Finding:
    check: Requirement
    measured: Interval | None
    """None where nothing could be counted."""
    counted: int
    """How many things the share is of."""
    verdict: Verdict
    enough: int | None
    """About how many questions would tell, where these cannot."""
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured.as_dict()
        return {
            "check": self.check.name,
            "measured": measured,
            "counted": self.counted,
            "above": self.check.above,
            "verdict": self.verdict,
            "says": SAYS[self.verdict],
            "remedy": None if self.verdict == "pass" else self.check.remedy,
            "questions_that_would_tell": self.enough,
            "note": self.note,
        }


def findings(report: Report) -> list[Finding]:
    """`report` must hold the modes direct and debate."""
    rows = {row.name: row for row in report.rows}
    return [_finding(check, rows, report.settings["seed"]) for check in CHECKS]


def contract_findings(report: Report) -> list[Finding]:
    """What the contract costs, from the same answers and debates."""
    rows = {row.name: row for row in report.rows}
    asked = [
        check
        for check in CONTRACT
        if not (check.name.startswith("last round") and "round_1" not in rows["debate"].by_question)
    ]
    return [_finding(check, rows, report.settings["seed"]) for check in asked] + [_length(rows)]


def _shares(rows: dict[str, ReportRow], mode: str, metric: str) -> dict[str, Share]:
    """Of a debate with one round, that round is all there is."""
    measured = rows[mode].by_question
    one_round = {"round_1": "accuracy", "round_1_plurality": "cons@k"}
    return measured.get(metric) or measured.get(one_round.get(metric, ""), {})


def _finding(check: Requirement, rows: dict[str, ReportRow], seed: int) -> Finding:
    ours = _shares(rows, check.mode, check.metric)
    if check.minus is None:
        top, bottom = [share[0] for share in ours.values()], [share[1] for share in ours.values()]
        measured = cautious_interval(top, bottom, seed=seed) if ours else None
        return told_finding(
            check, measured, round(sum(bottom)), rows[check.mode].questions, _note(check, rows[check.mode])
        )
    theirs = _shares(rows, *check.minus)
    common = [question for question in ours if question in theirs]
    columns = [tuple(zip(*(side[question] for question in common), strict=True)) or ((), ()) for side in (ours, theirs)]
    measured = (
        paired_interval((columns[0][0], columns[0][1]), (columns[1][0], columns[1][1]), seed=seed) if common else None
    )
    if measured is not None and measured.low == measured.high:
        # No question differs from another, so a bootstrap has no width. What was never seen may still be so often
        # there.
        unseen = wilson(0, len(common))[1]
        measured = Interval(measured.value, measured.low - unseen, measured.high + unseen)
    return told_finding(check, measured, len(common), len(common))


def _length(rows: dict[str, ReportRow]) -> Finding:
    """How much of a plain answer's length a turn has. Null where a server counts no tokens."""
    turns = sum(bottom for _, bottom in rows["debate"].by_question.get("valid_turns", {}).values())
    written, plain = rows["debate"].tokens * rows["debate"].questions, rows["direct"].tokens
    ratio = written / turns / plain if turns and plain and written else None
    measured = None if ratio is None else Interval(ratio, ratio, ratio)
    note = "" if ratio is None else f"{written / turns:.0f} tokens per turn, {plain:.0f} per plain answer"
    return Finding(LENGTH, measured, round(turns), judge(measured, LENGTH.above), None, note)


def told_finding(
    check: Requirement, measured: Interval | None, counted: int, questions: int, note: str = ""
) -> Finding:
    """What was measured beside what is needed."""
    verdict = judge(measured, check.above)
    return Finding(check, measured, counted, verdict, _enough(measured, check.above, questions, verdict), note)


def judge(measured: Interval | None, above: float) -> Verdict:
    """Only an interval that lies on one side tells."""
    if measured is None:
        return "cannot tell"
    if measured.low > above:
        return "pass"
    return "fail" if measured.high < above else "cannot tell"


def _enough(measured: Interval | None, above: float, questions: int, verdict: Verdict) -> int | None:
    """An interval shrinks with the root of the number of questions. None where it already tells, or the value is at the
    limit."""
    if measured is None or verdict != "cannot tell" or abs(measured.value - above) < 0.005:
        return None
    towards = above - measured.low if measured.value > above else measured.high - above
    half = towards + abs(measured.value - above)
    return round(1.1 * questions * (half / abs(measured.value - above)) ** 2)


def _note(check: Requirement, row: ReportRow) -> str:
    """What lies behind a number."""
    if check.metric == "comparisons":
        parts = []
        if (valid := row.metrics.get("valid_turns")) is not None:
            parts.append(f"{1 - valid['value']:.0%} of all turns cannot be read")
        if (cut := row.metrics.get("cut")) is not None:
            parts.append(f"{cut['value']:.0%} are cut at max_tokens")
        return ", ".join(parts)
    if check.metric == "judge" and row.metrics.get("judge") is None:
        return "no vote was between a right and a wrong answer"
    return ""
