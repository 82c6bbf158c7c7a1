"""LongWriter: prompts for long texts. Open-ended: there is no right answer, only what the others think of it."""

from __future__ import annotations

from moot.errors import ConfigError
from moot.tasks.rows import Hub, Raw, Row, field
from moot.tasks.sets import SetSettings, published_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = {"train": Hub("THUDM/LongWriter-6k", "train")}


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
    return published_set(spec, spec.fill(SetSettings), HUB, row, "text", seed, held_out, open_ended=True)
