"""Where a run comes from: its command, version, machine and time, and what its settings change of a preset."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from moot.page.runs import Watched, shown_path
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
    config = config if isinstance(config, dict) else {}
    command = told.get("command", "")
    settings = {} if config.get("transcripts") else dict(_flat(config))  # a file was told nothing
    preset = _preset(command, settings)
    usual = _usual(preset)
    if _own_texts_are_ruled_out(command):
        usual = {**usual, **{name: text for name, text in settings.items() if name.startswith("prompts.")}}
    return {
        "made_by": told,
        "path": shown_path(run.path, config),
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


def _own_texts_are_ruled_out(command: str) -> bool:
    """Whether a run's prompts are what moot had then: where today's are others, nobody changed them."""
    return command.startswith("moot train ") and "--prompts" not in command and "--config" not in command


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
