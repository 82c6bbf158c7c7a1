"""An end for runs that nobody watches: an alarm stops the run, and says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moot.players.checkpoints import ALARMED
from moot.rl.alarms import ALARMS
from moot.rl.best import told_best
from moot.training.part import Part
from moot.training.state import History, Setup, Stopped


class StopOnAlarm(Part):
    """An alarm stops the run, whose result is then its best checkpoint. Measured: docs/experiment.md."""

    def state(self) -> dict[str, Any]:
        """Tells whoever opens the run that its best checkpoint is the result."""
        return {ALARMED: "best"}

    def ended(self, setup: Setup, history: History, row: Mapping[str, Any]) -> None:
        ringing = [name for name, value in row.items() if name.startswith("alarm/") and value]
        if not ringing:
            return
        told = " ".join(f"{name} rings: {ALARMS[name].means} {ALARMS[name].remedy}" for name in ringing)
        best = told_best(setup.run.metrics(), history.best)
        result = f"its best checkpoint, {best}; moot eval, export and ask take that for {setup.run.path}."
        none = "No evaluation names a best step, so its result is its last."
        raise Stopped(told + (f" The run's result is {result}" if best else f" {none}"))
