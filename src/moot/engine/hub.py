"""Whether the model hub can be asked. Its own client tries for half a minute, and writes two lines for each try."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit


def hub_answers() -> bool:
    """Whether the hub can be reached within two seconds."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    if any(name in os.environ for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # a proxy may reach what we cannot
    place = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((place.hostname or "", place.port or 443), timeout=2.0).close()
    except OSError:
        return False
    return True
