"""What the votes of a run would have taught under another reward, for the page: `moot rescore` on a bounded number of
steps.

A reward may be a user's own file, and a run may come from somebody else. So only rewards and estimators that moot
brings are counted by here; for one's own there is the command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from moot.debate.reward import reward_named
from moot.debate.rewards import REWARDS
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import as_json
from moot.errors import ConfigError
from moot.page.filters import Refused, whole
from moot.page.runs import inside
from moot.rl.advantages import ESTIMATORS
from moot.runs.run import Run, step_file
from moot.tools.rescore import SCORING, rescore

STEPS = 100
"""The newest of those asked for: enough to see a difference, and seconds."""
CHANGES = 100
_YES_NO = ("yes", "no")
_KINDS = {name: kind for name, kind in get_type_hints(Scoring).items() if name in SCORING}
_LISTED = {
    name: _YES_NO if kind is bool else get_args(kind) for name, kind in _KINDS.items() if kind is bool or get_args(kind)
}
NUMBERS = [name for name, kind in _KINDS.items() if kind is float]
OF_CHECKS = ("checks", "vote_margin", "j")
"""Settings of rewards by judges who check answers that can be chosen again."""


def offered() -> dict[str, tuple[str, ...]]:
    """What may be chosen from a list."""
    return {
        "reward": tuple(name for name, reward in REWARDS.items() if reward.our_own),
        "advantage": (*ESTIMATORS, "auto"),
        **_LISTED,
    }


def rescored(path: Path, asked: Mapping[str, str]) -> dict[str, Any]:
    choices = _choices(asked)
    try:
        for name in ("run.json", "metrics.jsonl"):
            inside(path, name)
        run = Run.open(path)
        trained = run.config.get("protocol", {})
        if not isinstance(trained, dict):
            raise ConfigError("its run.json has no protocol")
        _must_be_ours(trained, choices)
        choices |= _of_checks(choices.get("reward"), str(trained.get("reward")), asked)
        first, last = (
            whole(name, asked[name]) if asked.get(name) else other for name, other in (("from", 0), ("to", 10**15))
        )
        steps = [step for step in run.steps() if first <= step <= last]
        chosen = steps[-STEPS:]
        for step in chosen:
            inside(path, "debates", step_file(step))
        outcome = rescore(run, choices, chosen, CHANGES).as_json() if chosen else None
    except (ConfigError, KeyError, TypeError, AttributeError, ValueError, ArithmeticError, OSError) as error:
        raise Refused(f"this run cannot be counted again: {error}") from None
    own = {name: trained.get(name) for name in offered()}
    return {
        "found": outcome,
        "steps": [chosen[0], chosen[-1]] if chosen else [],
        "of": len(steps),
        "choices": offered(),
        "numbers": ["reward_mix", *(OF_CHECKS if reward_named(str(trained.get("reward"))).checked else ())],
        "trained": own,
    }


def _choices(asked: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, allowed in offered().items():
        if value := asked.get(name):
            if value not in allowed:
                raise Refused(f"{name} must be one of {', '.join(allowed)}, got {value[:40]!r}")
            given[name] = value == "yes" if allowed is _YES_NO else value
    for name in NUMBERS:
        if text := asked.get(name):
            try:
                given[name] = float(text)
            except ValueError:
                given[name] = math.nan
            if not math.isfinite(given[name]):
                raise Refused(f"{name} must be a number, got {text[:40]!r}")
    return given


def _of_checks(chosen: str | None, trained: str, asked: Mapping[str, str]) -> dict[str, str]:
    """A reward by checks with what the judges of the run were asked, and with the settings that are asked for."""
    given = {name: asked[name][:40] for name in OF_CHECKS if asked.get(name)}
    rule, own = reward_named(chosen or trained), reward_named(trained)
    if not rule.checked or not (chosen or given):
        return {}
    kept = as_json(own.settings) if chosen in (None, own.name.partition(":")[0]) else own.asks
    named = {name: value for name, value in {**kept, **given}.items() if name in as_json(rule.settings)}
    settings = ",".join(f"{name}={value}" for name, value in named.items())
    return {"reward": f"{rule.name.partition(':')[0]}:{settings}" if settings else rule.name}


def _must_be_ours(trained: Mapping[str, Any], choices: Mapping[str, Any]) -> None:
    for name in ("reward", "advantage"):
        used = choices.get(name, trained.get(name))
        # The settings of a reward stand behind its name.
        plain = str(used).partition(":")[0] if name == "reward" else used
        if used is not None and plain not in offered()[name]:
            raise Refused(
                f"{name} {str(used)[:80]!r} is a file of its own, which the page does not run; choose another, or use "
                "moot rescore"
            )
