"""Play again, with other speakers and other metrics: direct, vote, debate, fixed opponents; with intervals, and
resumable."""

from moot.evaluate.modes import MODES, EvalConfig, Mode
from moot.evaluate.play import EvalWatcher, evaluate
from moot.evaluate.report import Report, ReportRow
from moot.evaluate.store import AnswerStore

__all__ = ["MODES", "AnswerStore", "EvalConfig", "EvalWatcher", "Mode", "Report", "ReportRow", "evaluate"]
