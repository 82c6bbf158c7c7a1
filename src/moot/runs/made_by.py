"""Where a run comes from: the command, the code and the machine that began it. It stands in run.json, for people."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from moot import __version__
from moot.util.secrets import redact

_PACKAGE = Path(__file__).parents[1]


def made_by() -> dict[str, str]:
    """The run that begins now. A key in the command is struck out, as everywhere."""
    started_as = Path(sys.argv[0])
    name = "moot" if started_as.parts[-2:] == ("moot", "__main__.py") else started_as.name
    command = shlex.join(map(redact, [name, *sys.argv[1:]]))
    started = datetime.now(UTC).isoformat(timespec="seconds")
    made = {"moot": __version__, "command": command, "host": platform.node(), "started": started}
    return {**made, "python": platform.python_version(), **({"commit": commit} if (commit := _commit()) else {})}


def _commit() -> str:
    """The commit of a moot that runs from its repository; empty where it was installed. Another project's repository
    around it says nothing."""

    def git(*words: str) -> str:
        asked = ["git", "-C", str(_PACKAGE), *words]
        return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return ""
