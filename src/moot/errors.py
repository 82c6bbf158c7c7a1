"""The error model: three kinds of trouble, kept apart.

The model misbehaves: a value on the turn (`ParseFailure`), counted and scored as the protocol says; nothing is raised.
The world misbehaves: an `EngineError`, retried, then the debate is recorded as failed and left out of training.
We misbehave (a setting, a file, an option): a `ConfigError` at once, which names the field, the value and the fix.
"""

from __future__ import annotations

from moot.util.secrets import redact


class ConfigError(ValueError):
    """A wrong setting, file or option. The message names the field, the value and the fix."""


class EngineError(Exception):
    """Trouble of the world: a time-out, a server error, a lost connection. The debate that meets it is left out of
    training."""

    def __init__(self, message: object = "") -> None:
        super().__init__(redact(str(message)))  # a server may repeat the key it was given


class ContextOverflow(EngineError):
    """A prompt and its answer that do not fit the model's context."""
