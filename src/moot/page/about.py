"""Where a run comes from: its command, version, machine and time, and what its settings change of a preset."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from moot.page.runs import Watched
from moot.settings.presets import PRESETS

TOLD = ("moot", "commit", "command", "host", "started", "python")
"""Of `made_by`, in the order in which it is shown; older runs have less of it."""
LONGEST = 20_000
"""Characters of a setting that are sent."""


def about(run: Watched) -> dict[str, Any]:
    header = run.header()
    made = header.get("made_by")
    told = {name: str(made[name])[:LONGEST] for name in TOLD if name in made} if isinstance(made, dict) else {}
    config = header.get("config")
    settings = dict(_flat(config if isinstance(config, dict) else {}))
    preset = _preset(told.get("command", ""), settings)
    usual = _usual(preset)
    return {
        "made_by": told,
        "path": str(run.path),
        "seconds": run.ask(lambda metrics: metrics.spent("time")),
        "tokens": run.ask(lambda metrics: metrics.spent("tokens")),
        "preset": preset,
        "settings": [
            {"name": name, "value": value[:LONGEST], "usual": usual.get(name, "")[:LONGEST]}
            for name, value in settings.items()
        ],
    }


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every setting by its path, as text."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, value if isinstance(value, str) else json.dumps(value)


@lru_cache(maxsize=16)
def _usual(preset: str) -> Mapping[str, str]:
    return dict(_flat(json.loads(json.dumps(PRESETS[preset].as_dict()))))


def _preset(command: str, settings: Mapping[str, str]) -> str:
    """The one that the command names; of a run that says none, the nearest."""
    try:
        words = shlex.split(command.replace("--preset=", "--preset "))
    except ValueError:
        words = []
    for word, following in pairwise(words):
        if word == "--preset" and following in PRESETS:
            return following
    differing = {name: sum(settings.get(key) != value for key, value in _usual(name).items()) for name in PRESETS}
    return min(differing, key=lambda name: differing[name])
