"""An OpenAI-compatible server: where it is, which of its models is meant, and with which key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from moot.errors import ConfigError
from moot.util.addresses import check_address
from moot.util.secrets import keep_secret

_NAMED = re.compile(r"(.+?)@(https?://.+)", re.DOTALL)


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    """Up to and with the version, as a rule: http://localhost:8000/v1."""
    model: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        keep_secret(self.key)


def endpoint(base_url: str, model: str, key: str | None, setting: str = "base-url") -> Endpoint:
    """Checked before anything is asked: an address without a password in it, and a key that can be sent."""
    address = check_address(base_url, setting)
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ConfigError("the API key holds a space or a character that no key has; set it again")
    return Endpoint(address, model, key or None)


def own_endpoint(base_url: str | None, model: str | None) -> Endpoint:
    """The server of engine openai: where it is named, or where OPENAI_BASE_URL says, with the key in OPENAI_API_KEY."""
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        raise ConfigError("engine openai needs --base-url (or OPENAI_BASE_URL); for example http://localhost:8000/v1")
    if not model:
        raise ConfigError("engine openai needs --model, the name by which the server knows it")
    return endpoint(url, model, os.environ.get("OPENAI_API_KEY"))


def is_endpoint(name: str) -> bool:
    """Whether a player's name is that of a model at a server, `MODEL@URL`; a bare address lacks its model."""
    return _NAMED.fullmatch(name) is not None or name.startswith(("http://", "https://"))


def named_endpoint(name: str, key: str | None, setting: str) -> Endpoint:
    """From `MODEL@URL`."""
    match = _NAMED.fullmatch(name)
    if match is None:
        raise ConfigError(f"{setting} must be MODEL@URL, got {name!r}; for example qwen3@http://localhost:8000/v1")
    return endpoint(match[2], match[1], key, setting)
