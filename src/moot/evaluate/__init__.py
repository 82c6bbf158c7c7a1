"""Play again, with other speakers and other metrics: direct, vote, debate, fixed opponents; with intervals, and resumable."""

from moot.evaluate.modes import MODES, EvalConfig, Mode
from moot.evaluate.play import Opponent, Watcher, evaluate
from moot.evaluate.report import Report, Row
from moot.evaluate.store import Answers

__all__ = ["MODES", "Answers", "EvalConfig", "Mode", "Opponent", "Report", "Row", "Watcher", "evaluate"]
