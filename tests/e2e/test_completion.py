"""What a shell completes, asked of a real bash."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from support.making import moot


@cache
def for_bash() -> str:
    return moot("completion").stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("moot ev", {"eval"}),
        ("moot train --learning", {"--learning-rate"}),
        ("moot train --no-pers", {"--no-personas"}),
        ("moot rescore --lit", {"--literal"}),
    ],
)
def test_commands_and_options_are_completed(words: str, completed: set[str]) -> None:
    typed = words.split()
    asked = f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _moot; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{for_bash()}\n{asked}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == completed


def test_zsh_gets_the_same_behind_its_own_first_line() -> None:
    assert moot("completion", "zsh").stdout == "autoload -U +X bashcompinit && bashcompinit\n" + for_bash()
