"""LongWriter: prompts for long texts. Open-ended: there is no right answer, only what the others think of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from moot.debate.types import ConfigError
from moot.tasks.graders import GRADERS
from moot.tasks.rows import Raw, Row, convert, fetch, field, read
from moot.tasks.sets import SetSettings, fixed_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = "THUDM/LongWriter-6k"


def row(raw: Raw, where: str) -> Row:
    """The training set holds conversations, of which the first message is the prompt; the benchmark holds prompts."""
    if "messages" not in raw:
        return Row(field(raw, where, "prompt"))
    asked = [message for message in raw["messages"] if message.get("role") == "user"]
    if not asked:
        raise ConfigError(f"{where}: no message has the role user")
    return Row(field(asked[0], where, "content"))


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    chosen = spec.fill(SetSettings)
    files = {"train": chosen.train, **({"test": chosen.test} if chosen.test else {})}
    named = {name: file for name, file in files.items() if file} or files
    splits = {name: partial(_split, file) for name, file in named.items()}
    return fixed_set(spec.label, GRADERS["text"], splits, chosen.held_out, seed, held_out, open_ended=True)


def _split(file: str) -> list[Row]:
    return convert(read(Path(file)) if file else fetch("longwriter", HUB, "train", files="train=FILE.jsonl"), row)
