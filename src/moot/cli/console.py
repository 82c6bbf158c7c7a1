"""Where every command prints, and its progress bars.

Bars are drawn on a terminal alone, and lines are never folded in a file: a log has one line for each thing that
happened.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text


class Terminal(Console):
    """Where a command prints. A reader that went away (`| head`) ends the command in peace, which `main` sees to."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, stderr=stderr)

    def say(self, text: str, style: str = "") -> None:
        self.print(Text(text, style=style), soft_wrap=not self.is_terminal)

    def note(self, text: str) -> None:
        self.say(f"Note: {text}", "yellow")

    def busy(self, text: str) -> contextlib.AbstractContextManager[object]:
        """What is being waited for: a sign that moves on a terminal, a line in a log."""
        if self.is_terminal:
            return self.status(text)
        self.say(text)
        return contextlib.nullcontext()

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, "the reader went away") from None


class TimeLeft(ProgressColumn):
    """The time left by the mean since the bar began. rich's own forgets what is older than half a minute, and a step
    may take longer."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        return Text(_left(task) or "-:--:--", style="progress.remaining")


def _left(task: Task) -> str:
    """Empty before anything is done, or less than is under way at once."""
    done = task.completed - task.fields["before"]
    if not task.total or not task.elapsed or done <= 0 or done < task.fields["first"]:
        return ""
    return clock(max(0.0, task.total - task.completed) * task.elapsed / done)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Bars:
    """A bar for each kind of work, with what is left and, where tokens are counted, how many are made per second."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeLeft())
        about = TextColumn("{task.fields[about]}")
        self._bars = Progress(*columns, about, console=console, transient=transient, disable=not console.is_terminal)
        self._kinds: dict[str, TaskID] = {}
        self._tokens, self._since = 0, time.perf_counter()

    def __enter__(self) -> Bars:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._bars.start()
        self.measure_anew()

    def stop(self) -> None:
        self._bars.stop()

    def plan(self, kind: str, total: int | None, done: float = 0, about: str = "", first: int = 0) -> None:
        """Shows the bar of `kind`, from the beginning if it was there before. No time left is told before `first` more
        are done: of many under way at once, the first ones to end are no measure of how long each takes."""
        fields: dict[str, Any] = {"about": about, "before": done, "first": first}
        if kind not in self._kinds:
            self._kinds[kind] = self._bars.add_task(kind, total=total, **fields)
        # rich counts in whole numbers by its types alone.
        self._bars.reset(self._kinds[kind], total=total, visible=True, **fields)
        self._bars.update(self._kinds[kind], completed=done)

    def hide(self, kind: str) -> None:
        if kind in self._kinds:
            self._bars.update(self._kinds[kind], visible=False)

    def reach(self, kind: str, done: float, about: str | None = None, total: int | None = None) -> None:
        self._bars.update(self._kinds[kind], completed=done, total=total)
        if about is not None:
            self._bars.update(self._kinds[kind], about=about)

    def left(self, kind: str) -> str:
        """For a log, where no bar is drawn: `, about 0:05:00 left`; empty where nothing is done yet, or all is."""
        task = next(task for task in self._bars.tasks if task.id == self._kinds[kind])
        return f", about {left} left" if (left := _left(task)) and not task.finished else ""

    def so_far(self) -> str:
        """For a log: `65 of 400 verdicts, about 0:03:20 left`; empty where nothing is under way."""
        return "; ".join(
            f"{task.completed:.0f} of {task.total:.0f} {task.description}{self.left(task.description)}"
            for task in self._bars.tasks
            if task.total and task.visible and task.completed < task.total
        )

    def advance(self, kind: str, tokens: int = 0) -> None:
        self._tokens += tokens
        if not self._tokens:
            self._bars.update(self._kinds[kind], advance=1)
            return
        speed = self._tokens / max(1e-9, time.perf_counter() - self._since)
        self._bars.update(self._kinds[kind], advance=1, about=f"{speed:,.0f} tokens/s")

    def measure_anew(self) -> None:
        """Speed is counted from here on."""
        self._tokens, self._since = 0, time.perf_counter()


QUIET_S, MOST_QUIET_S = 10.0, 30.0
"""Seconds after which a log gets a sign of life: the first, and those that follow, at most."""


class Beat:
    """A sign of life where no bar is drawn and nothing else is said; soon more rarely, so that a log stays a log.
    `tell` has nothing to say where it answers with no text."""

    def __init__(self, console: Terminal, tell: Callable[[], str]) -> None:
        self._console, self._tell = console, tell
        self._told, self._over = time.monotonic(), threading.Event()

    def start(self) -> None:
        if not self._console.is_terminal:
            threading.Thread(target=self.run, daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def heard(self) -> None:
        """Something else was said."""
        self._told = time.monotonic()

    def run(self) -> None:
        quiet = QUIET_S
        while not self._over.wait(max(0.01, self._told + quiet - time.monotonic())):
            now = time.monotonic()
            if now - self._told >= quiet and (text := self._tell()):
                self._console.say(text)
                self._told, quiet = now, min(2 * quiet, MOST_QUIET_S)


@contextlib.contextmanager
def bar(kind: str, total: int) -> Iterator[Callable[[], None]]:
    """One bar on standard error, gone when the work is done, so that standard output stays clean. Gives the function
    that moves it."""
    with Bars(Terminal(stderr=True), transient=True) as bars:
        bars.plan(kind, total)
        yield lambda: bars.advance(kind)
