"""The settings a run was started with, read from its folder: damage and other versions are told in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from moot.debate.scoring import Scoring
from moot.debate.types import ConfigError
from moot.records import Run
from moot.rl.config import BESIDE_PROTOCOL, TrainConfig, scoring_in


def config_of(run: Run) -> TrainConfig:
    """ConfigError where run.json lacks its protocol, has a setting of another version, or a value that is none."""
    given, file = run.config, run.path / "run.json"
    for section, names in _known().items():
        part = given if section == "" else given.get(section, {})
        if not isinstance(part, Mapping):
            raise ConfigError(f"{file} is damaged: {section} must hold settings, got {part!r:.80}")
        if unknown := [name for name in part if name not in names]:
            raise ConfigError(
                f"{file} has the setting {unknown[0]!r:.60}, which this moot does not know; it was made by moot {run.made_by}: use that one"
            )
    if not isinstance(given.get("protocol"), Mapping):
        raise ConfigError(f"{file} is damaged: it has no protocol; put back the run.json that moot wrote")
    try:
        config = TrainConfig.from_dict(given)
        check_kinds(config, TrainConfig())
    except ConfigError as error:
        raise ConfigError(f"{file}: {error} (made by moot {run.made_by})") from None
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"{file} is damaged: {type(error).__name__}: {error}") from None
    return config


def scoring_of(run: Run) -> Scoring | None:
    """How its votes count, whatever else is missing; None where it was not trained and does not say."""
    given = run.config
    if "protocol" not in given:
        return None
    try:
        scoring = scoring_in(given)
        check_kinds(scoring, Scoring())
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"{run.path / 'run.json'} is damaged: {type(error).__name__}: {error}") from None
    return scoring


def _known() -> dict[str, set[str]]:
    """The names of each section; those of protocol and prompts are checked where they are read."""
    config = TrainConfig()
    parts = {f.name: getattr(config, f.name) for f in fields(config)}
    known = {
        name: {f.name for f in fields(part)} for name, part in parts.items() if is_dataclass(part) and name not in ("protocol", "prompts")
    }
    for name, section in BESIDE_PROTOCOL.items():
        known[section].add(name)
    return {"": set(parts), **known}


def check_kinds(config: Any, default: Any) -> None:
    """Each setting is of the kind that its default is."""
    for f in fields(default):
        value, usual = getattr(config, f.name), getattr(default, f.name)
        if f.name == "prompts":
            continue
        if is_dataclass(usual):
            check_kinds(value, usual)
            continue
        wrong = not _alike(value, usual)
        if isinstance(usual, tuple) and not wrong:
            wrong = not all(_alike(each, usual[0] if usual else "") for each in value)
        if usual is not None and wrong:
            raise ConfigError(f"{f.name} must be like {usual!r}, got {value!r:.80}")


def _alike(value: Any, usual: Any) -> bool:
    """A whole number does where a number is asked for; true and false are neither."""
    kinds = (int, float) if isinstance(usual, float) else (type(usual),)
    return isinstance(value, kinds) and isinstance(value, bool) == isinstance(usual, bool)
