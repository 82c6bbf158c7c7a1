"""The list to go through before anyone burns a night: can the model do the task at all, keep the contract, and judge?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from moot.evaluate.report import Report, ReportRow
from moot.statistics import Interval, cautious_interval

Verdict = Literal["pass", "fail", "cannot tell"]


@dataclass(frozen=True)
class Requirement:
    name: str
    mode: str
    metric: str
    above: float
    """The share that must be exceeded."""
    remedy: str


CHECKS = (
    Requirement(
        "direct accuracy",
        "direct",
        "accuracy",
        0.05,
        "The model cannot do this task alone, so votes would compare noise with noise. Take an easier --task or a stronger --model, warm "
        "it up on worked solutions (--warm-questions 512 --warm-epochs 3), or mix in the truth (--reward-mix 0.3).",
    ),
    Requirement(
        "valid comparisons",
        "debate",
        "comparisons",
        0.80,
        "Turns that were to compare others gave no vote, so there is little to learn from. Teach the contract with a warm start "
        "(--warm-questions 64 or more), and raise --max-tokens where turns are cut.",
    ),
    Requirement(
        "one agent right",
        "debate",
        "pass@k",
        0.20,
        "In too few debates is there a right answer to prefer. Use more agents (--num-agents 5), an easier --task, or a warm start.",
    ),
    Requirement(
        "judge accuracy",
        "debate",
        "judge",
        0.50,
        "Votes between a right and a wrong answer are no better than a coin. Put weight on judging (--lambda-judge 1.5 --lambda-gen 0.5), "
        "use 5 agents with --judge-consensus leave_one_out, or mix in the truth (--reward-mix 0.3, or --correct-bonus 0.5).",
    ),
)
"""direct accuracy: 5 to 10% are asked for; the lower is the limit. one agent right: pass@N of the debates."""


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
            "remedy": None if self.verdict == "pass" else self.check.remedy,
            "questions_that_would_tell": self.enough,
            "note": self.note,
        }


def findings(report: Report) -> list[Finding]:
    """`report` must hold the modes direct and debate."""
    rows = {row.name: row for row in report.rows}
    return [_finding(check, rows[check.mode], report.settings["seed"]) for check in CHECKS]


def _finding(check: Requirement, row: ReportRow, seed: int) -> Finding:
    shares = list(row.by_question.get(check.metric, {}).values())
    top, bottom = [share[0] for share in shares], [share[1] for share in shares]
    measured = cautious_interval(top, bottom, seed=seed) if shares else None
    verdict = judge(measured, check.above)
    return Finding(check, measured, round(sum(bottom)), verdict, _enough(measured, check.above, row.questions, verdict), _note(check, row))


def judge(measured: Interval | None, above: float) -> Verdict:
    """Only an interval that lies on one side tells."""
    if measured is None:
        return "cannot tell"
    if measured.low > above:
        return "pass"
    return "fail" if measured.high < above else "cannot tell"


def _enough(measured: Interval | None, above: float, questions: int, verdict: Verdict) -> int | None:
    """An interval shrinks with the root of the number of questions. None where it already tells, or the value is at the limit."""
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
