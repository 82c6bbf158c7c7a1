"""The settings a run was started with, read from its folder: damage and other versions are told in one line."""

from __future__ import annotations

from collections.abc import Mapping

from moot.debate.protocols import V2
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import check_types
from moot.errors import ConfigError
from moot.runs import Run
from moot.settings.train import TrainConfig


def config_of(run: Run) -> TrainConfig:
    """ConfigError where run.json lacks its protocol, has a setting of another version, or a value that is none."""
    given, file = run.config, run.path / "run.json"
    whole = TrainConfig().as_dict()
    for section in ("", "model", "debate", "optim", "recipe"):
        part, names = (given.get(section, {}), whole[section]) if section else (given, whole)
        if not isinstance(part, Mapping):
            raise ConfigError(f"{file} is damaged: {section} must hold settings, got {part!r:.80}")
        if unknown := [name for name in part if name not in names]:
            raise ConfigError(
                f"{file} has the setting {unknown[0]!r:.60}, which this moot does not know; it was made by moot "
                f"{run.made_by}: use that one"
            )
    if not isinstance(given.get("protocol"), Mapping):
        raise ConfigError(f"{file} is damaged: it has no protocol; put back the run.json that moot wrote")
    try:
        config = TrainConfig.from_dict(given)
        for part in (config, config.model, config.debate, config.optim, config.recipe):
            check_types(part)
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
        return V2.with_choices(given["protocol"]).scoring
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"{run.path / 'run.json'} is damaged: {type(error).__name__}: {error}") from None
