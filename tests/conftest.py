"""Makes `support` and the oracle importable from every test, and hypothesis repeatable."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE / "oracle"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
