"""How an optional part of training is spelled: `name`, `name:setting=value,…`, or a user's own,
`file.py:Class:setting=value,…`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"([^:=,]+\.py:\w+|[^:]+)(?::(.*))?", re.S)
OFF = "off"
"""Instead of settings: without the part, where a preset has it."""
NOW_PARTS = {
    "curriculum": "curriculum:tasks=TASK+TASK", "promote_at": "curriculum:tasks=TASK+TASK,promote_at=…",
    "judge_share": "judge_share:share=…", "judge_schedule": "judge_share:schedule=…",
    "stop_when_settled": "rounds_as_needed:stop_when_settled=yes", "extra_rounds": "rounds_as_needed:extra_rounds=…",
    "hard_agents": "hard_agents:agents=…", "easy_agents": "easy_agents:agents=…", "past_selves": "past_selves:share=…",
    "distill_every": "distill:every=…", "labels_from": "frozen_labels:weights=…",
    "label_samples": "frozen_labels:samples=…",
    "label_band": "frozen_labels:band=LOW-HIGH", "kl_coef": "kl_penalty:coef=…", "kl_beta": "kl_penalty:coef=…",
    "reference": "kl_penalty:coef=…,weights=…",
    "ema_decay": "kl_penalty:coef=…,weights=ema,ema_decay=…", "target_kl": "adaptive_rate:target_kl=…",
    "min_signal": "min_signal:debates=…", "truth_schedule": "truth_schedule:schedule=…",
}  # fmt: skip
"""Settings that people may still type, and the part that each belongs to."""


def split_part(text: str) -> tuple[str, str]:
    """Its name, and its settings as they are written."""
    spelled = _PART.fullmatch(text)
    return (spelled[1], spelled[2] or "") if spelled else (text, "")


def is_own(text: str) -> bool:
    """Whether it is a user's own class; a part of ours may have the name of a user's task in its settings."""
    return ".py:" in split_part(text)[0]


def last_of_each(texts: Iterable[str]) -> tuple[str, ...]:
    """Of parts by one name the last, so that a command line changes what its preset names; none of those that are
    turned `off`."""
    last: dict[str, str] = {}
    for text in texts:
        name, settings = split_part(text)
        last[name] = settings if settings == OFF else text
    return tuple(text for text in last.values() if text != OFF)


def part_instead(setting: str) -> str:
    """What to write for a setting that belongs to a part now, as the end of a sentence; empty for others."""
    name = setting.removeprefix("--").replace("-", "_")
    return f"; it belongs to a part of training now: --with {NOW_PARTS[name]}" if name in NOW_PARTS else ""
