"""How much work a call does, counted and not timed: the lines of Python it runs, the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object]) -> int:
    """Lines of Python that `call` runs, in every function it reaches. What a regular expression does inside counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def grows_linearly(call: Callable[[int], object], size: int = 1000) -> bool:
    """Four times the size takes at most four times the lines, and a few more to begin with; a quadratic loop takes sixteen times."""
    return lines_run(lambda: call(4 * size)) <= 4 * lines_run(lambda: call(size)) + 100
