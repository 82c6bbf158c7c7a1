"""Addresses of servers: what may stand in one."""

from __future__ import annotations

from urllib.parse import urlsplit

from moot.errors import ConfigError


def check_address(url: str, setting: str) -> str:
    """The address without its last slash. ConfigError where it is none, or holds a name or a password: addresses are
    shown and recorded."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        private = "@" in (parts.netloc if whole else url)
    except ValueError:
        whole, private = False, "@" in url
    if private:
        shown = f"{setting} must not hold a name or a password, which would be shown"
        raise ConfigError(f"{shown}; put the key into the environment")
    if not whole:
        example = "for example http://localhost:8000/v1"
        raise ConfigError(f"{setting} must begin with http:// or https://, got {url!r}; {example}")
    return url.rstrip("/")
