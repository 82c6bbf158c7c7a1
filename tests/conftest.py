"""Makes `support` and the oracle importable from every test and hypothesis repeatable, and ends a run with the status of its tests."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE / "oracle"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

_STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the process once every result is told. Threads of foreign libraries (an SDK's heartbeats, torch's workers) may abort while
    the interpreter is taken down, and a whole run that passed would count as failed."""
    if _STATUS in config.stash:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[_STATUS])
