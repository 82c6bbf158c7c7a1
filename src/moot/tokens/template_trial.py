"""A trial of a chat template in a process of its own, before it is run in this one: it may loop, or double a string
for ever.

A template that waits for a certain word before it does so is not caught.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from moot.errors import ConfigError

_WORKER = Path(__file__).parent / "template_worker.py"
_SECONDS, _WALL_SECONDS = 5, 300
"""Of processor time once the libraries are there, and by the clock, on a busy machine."""


def try_template(tokenizer: Any, model: str, values: dict[str, Any]) -> None:
    """Raises ConfigError where the template takes too much of anything. Only transformers' tokenizers have one."""
    if not type(tokenizer).__module__.startswith("transformers."):
        return
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise ConfigError(f"{model} has no chat template of use: {error}; name its format with renderer") from None
    job = {
        "template": template,
        "values": {**tokenizer.special_tokens_map, **values},
        "conversations": _conversations(),
        "seconds": _SECONDS,
    }
    if problem := _tried(json.dumps(job, default=str)):
        told = f"the chat template of {model} {problem}"
        raise ConfigError(f"{told}; use another model, or name its format with renderer")


@lru_cache(maxsize=64)
def _tried(job: str) -> str:
    """What is wrong; empty where nothing is."""
    command = [sys.executable, "-P", str(_WORKER)]  # -P: its own folder must not stand before the libraries
    try:
        done = subprocess.run(command, input=job, capture_output=True, text=True, timeout=_WALL_SECONDS)
    except subprocess.TimeoutExpired:
        return "takes too long"
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode)
        return "takes too long" if ended in (signal.SIGXCPU, signal.SIGKILL) else f"ends its process ({ended.name})"
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _conversations() -> list[list[dict[str, str]]]:
    """Of several lengths, with long messages too."""
    opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
    turn = [{"role": "assistant", "content": "4"}, {"role": "user", "content": "And three?"}]
    long = [{**message, "content": 400 * message["content"]} for message in turn]
    return [opening, *([*opening, *turn * turns] for turns in (1, 2, 3)), [*opening, *long * 30]]
