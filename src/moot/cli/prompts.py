"""`moot prompts`: every text that agents read, as a file to edit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from moot.debate.prompt_texts import default_file, toml_of


@dataclass(frozen=True)
class ShowPrompts:
    """Print every text that agents and judges read, as a file for --prompts.

    moot prompts > my-prompts.toml writes it; edit the copy, leave out what stays as it is, and train with --prompts
    my-prompts.toml.
    """

    run_dir: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")] = None
    """Print the texts that this run was trained with instead of the defaults."""

    def run(self) -> int:
        if self.run_dir is None:
            print(default_file(), end="")
            return 0
        from moot.runs import Run
        from moot.settings.saved import config_of

        print(toml_of(config_of(Run.open(self.run_dir)).prompts), end="")
        return 0
