"""Train language models by debate: copies of one model argue, vote on each other, and the votes are the reward.

What a program needs is here, by name (docs/api.md). Each name is imported when it is first used, so that `import moot`
takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from moot.api import Speaker, config, datums, play, play_async, score, train, train_together
    from moot.debate.protocols import V1, V2, Protocol
    from moot.debate.reward import Reward
    from moot.debate.state import Debate
    from moot.debate.types import Observation, Question, Said, Turn
    from moot.errors import ConfigError
    from moot.runs import PlayedDebate, Run
    from moot.settings.presets import PRESETS
    from moot.settings.train import TrainConfig
    from moot.training.part import Part

_HOMES = {
    "moot.api": ("Speaker", "config", "datums", "play", "play_async", "score", "train", "train_together"),
    "moot.debate.protocols": ("V1", "V2", "Protocol"),
    "moot.debate.reward": ("Reward",),
    "moot.debate.state": ("Debate",),
    "moot.errors": ("ConfigError",),
    "moot.debate.types": ("Observation", "Question", "Said", "Turn"),
    "moot.runs": ("PlayedDebate", "Run"),
    "moot.settings.train": ("TrainConfig",),
    "moot.settings.presets": ("PRESETS",),
    "moot.training.part": ("Part",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PRESETS",
    "V1",
    "V2",
    "ConfigError",
    "Debate",
    "Observation",
    "Part",
    "PlayedDebate",
    "Protocol",
    "Question",
    "Reward",
    "Run",
    "Said",
    "Speaker",
    "TrainConfig",
    "Turn",
    "config",
    "datums",
    "play",
    "play_async",
    "score",
    "train",
    "train_together",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'moot' has no attribute {name!r}; it offers {', '.join(__all__)}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
