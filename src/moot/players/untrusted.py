"""A run or a file of settings may be somebody else's, whatever it is called, so what it names is data: code to run and
addresses to call are used only by the user's own word.

That is: where the user names the setting again on the command line, or trusts the run or the file as a whole, and is
shown what it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from moot.debate.scoring import Scoring
from moot.errors import ConfigError
from moot.players.chat.endpoint import is_endpoint
from moot.settings.part_names import is_own
from moot.settings.train import TrainConfig
from moot.util.safe_text import one_line

AGAIN = " --with "
"""Between several parts, as a command line names them."""
_GRADER = re.compile(r"(?:grader|equal)\s*=[^,]*:")


def scoring_names(scoring: Scoring) -> dict[str, str]:
    """The reward and the estimator where they are a user's own: setting and value."""
    theirs = {} if scoring.rule.our_own else {"reward": scoring.reward}  # ours may have settings behind a colon
    return theirs | ({"advantage": scoring.advantage} if ":" in scoring.advantage else {})


def played_names(config: TrainConfig) -> dict[str, str]:
    """What a command would run or call that plays debates and trains on none."""
    named = {"task": config.debate.task} if is_code(config.debate.task) else {}
    if code := [text for text in config.parts if is_code(text) and not is_own(text)]:
        named["with"] = AGAIN.join(code)  # their tasks
    return named | ({"base_url": config.model.base_url} if config.model.base_url else {})


def trained_names(config: TrainConfig) -> dict[str, str]:
    """What training would run or call."""
    return scoring_names(config.protocol.scoring) | checked_names(config)


def checked_names(config: TrainConfig) -> dict[str, str]:
    """What a check would run or call: what evaluations do, the judge, and the parts, of which one may bring a judge."""
    asked = {"judge": config.recipe.judge} if is_endpoint(config.recipe.judge) else {}
    if code := [text for text in config.parts if is_code(text)]:
        asked["with"] = AGAIN.join(code)
    return played_names(config) | asked


def is_code(task: str) -> bool:
    """Whether to load the task is to run somebody's Python."""
    return ".py" in task or _GRADER.search(task) is not None


def check_trusted(
    source: Path,
    foreign: Mapping[str, str],
    named: Container[str],
    trust: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Refuses what a run or file names (`foreign`) and the user has not `named`; with `trust`, says what will run."""
    unnamed = {setting: one_line(value, 120) for setting, value in foreign.items() if setting not in named}
    if not unnamed:
        return
    told = ", ".join(f"{setting} {value}" for setting, value in unnamed.items())
    if trust:
        note(f"{source} is trusted, so this is run or called: {told}")
        return
    options = " ".join(f"--{setting.replace('_', '-')} {value}" for setting, value in unnamed.items())
    raise ConfigError(
        f"{source} names code or an address ({told}), which is not used on its word alone; "
        f"if you trust it, name it again ({options}), or give --trust-run"
    )
