"""What a training run shows while it runs, and what it says at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from moot.cli.loggers import Logger
from moot.records import Run
from moot.rl.config import TrainConfig
from moot.rl.rollout import Rollout

PHASES = {"warm": "warm start", "self_play": "self-play", "eval": "evaluating"}


class Progress:
    """A bar for the run, one for the debates in play, and a line an iteration."""

    def __init__(self, console: Console, loggers: list[Logger], config: TrainConfig) -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, TextColumn("{task.fields[about]}"), console=console)
        self._console, self._loggers, self._config = console, loggers, config
        self._run = self._bars.add_task("run", total=None, about="")
        self._debates = self._bars.add_task("debates", total=None, about="", visible=False)
        self._tokens, self._since = 0, time.perf_counter()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def began(self, step: int, total: int, phase: str) -> None:
        self._bars.update(self._run, total=total, completed=max(0, step - 1) if phase != "eval" else step, about=PHASES[phase])
        self._tokens, self._since = 0, time.perf_counter()
        count = self._config.eval_questions if phase == "eval" else self._config.optim.batch_size
        self._bars.reset(self._debates, total=count, visible=phase != "warm", about="")

    def debate_finished(self, rollout: Rollout) -> None:
        self._tokens += sum(len(turn.tokens) for turn in rollout.sampled)
        speed = self._tokens / max(1e-9, time.perf_counter() - self._since)
        self._bars.update(self._debates, advance=1, about=f"{speed:,.0f} tokens/s")

    def row(self, row: dict[str, Any]) -> None:
        self._bars.update(self._run, completed=row["step"])
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "step"}
        for logger in self._loggers:
            logger.row(row["step"], numbers)
        self._console.print(Text(line(row, self._config.debate.task)))

    def note(self, text: str) -> None:
        self._console.print(Text(f"Note: {text}", style="yellow"))


def line(row: dict[str, Any], task: str) -> str:
    """One iteration in one line."""
    where = f"step {row['step']:>4}  {PHASES[row['phase']]:<10}"
    match row["phase"]:
        case "warm":
            return f"{where}  loss {row['warm/loss_per_token']:.3f} a token, {row['optim/trained_tokens']:,.0f} tokens"
        case "eval":
            parts = [f"right {_share(_find(row, 'test_', '/correct'))}", f"valid turns {_share(row['test/valid_turns'])}"]
            parts += [f"turns with a vote {_share(row['test/turns_with_vote'])}", f"judges right {_share(row['trust/judge_accuracy'])}"]
        case _:
            parts = [
                f"reward {row['env/all/reward/total']:+.2f}",
                f"signal {_share(row['debates/with_gradient'])}",
                f"unreadable {_share(row['parse_error'])}",
                f"right {_share(_find(row, 'train_', '/correct'))}",
                f"kl {_number(row['optim/kl_sample_train_v2'])}",
            ]
            ringing = [name.removeprefix("alarm/") for name, value in row.items() if name.startswith("alarm/") and value]
            parts += [f"ALARM {', '.join(ringing)}"] if ringing else []
    return f"{where}  {', '.join(parts)}"


def _find(row: dict[str, Any], start: str, end: str) -> float | None:
    return next((value for name, value in row.items() if name.startswith(start) and name.endswith(end)), None)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def summary(run: Run, config: TrainConfig, console: Console) -> int:
    """What improved, what did not, and where to look. Fails if no debate carried a gradient."""
    rows = run.metrics()
    played = [row for row in rows if row["phase"] == "self_play"]
    debates = sum(row["debates/played"] for row in played)
    taught = sum(row["debates/played"] * (row["debates/with_gradient"] or 0.0) for row in played)
    console.print(Text(f"\n{taught:.0f} of {debates:.0f} debates carried a gradient, in {len(played)} iterations.", style="bold"))
    evals = [row for row in rows if row["phase"] == "eval"]
    if len(evals) >= 2:
        moments = {"before": evals[0], "after": evals[-1]}
        if evals[0]["step"] < config.warm_steps and (between := next((row for row in evals if row["step"] == config.warm_steps), None)):
            moments = {"before": evals[0], "after the warm start": between, "after self-play": evals[-1]}
        for name, pick in (
            ("valid turns", lambda row: row["test/valid_turns"]),
            ("turns with a vote", lambda row: row["test/turns_with_vote"]),
            ("right answers, held out", lambda row: _find(row, "test_", "/correct")),
            ("judges right", lambda row: row["trust/judge_accuracy"]),
        ):
            console.print(Text(f"  {name:<24}" + ", ".join(f"{_share(pick(row))} {when}" for when, row in moments.items())))
        first, last = list(moments.values())[-2:]
        old, new = _find(first, "test_", "/correct") or 0.0, _find(last, "test_", "/correct") or 0.0
        verdict = "rose" if new > old else "fell" if new < old else "did not move"
        count = int(last["debates/played"])
        console.print(Text(f"Held-out accuracy {verdict} in self-play; with {count} questions that is a hint, not a result."))
    where = f"Metrics: {run.path / 'metrics.jsonl'}\nDebates: {run.path / 'debates'}\nLook at them: {_command()} view {run.path}"
    console.print(Text(where, style="green"))
    if played and not taught:
        console.print(Text("No debate carried a gradient: nothing was learned from votes. Try a longer warm start.", style="red"))
        return 1
    return 0


def _command() -> str:
    """How the reader can call moot: by name, or where it stands if the shell does not find it."""
    beside = Path(sys.executable).with_name("moot")
    return "moot" if shutil.which("moot") or not beside.exists() else os.path.relpath(beside)
