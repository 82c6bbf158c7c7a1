"""A configuration from a file: YAML, or a run's own run.json.

A file may be a whole run: `preset`, `seeds` and `run` stand beside the settings. Settings may stand in their sections
(`optim: {learning_rate: 1e-5}`) or by themselves (`learning_rate: 1e-5`): each name is used once.
What the file leaves out stays as it is in the preset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from moot.debate.prompt_texts import Prompts, load_prompts
from moot.debate.typed_fields import check_type, near
from moot.errors import ConfigError
from moot.settings.part_names import part_instead
from moot.settings.train import TrainConfig
from moot.util.disk import read_file

_FIELDS = {"with": "parts", "from": "start"}
"""Names of settings that Python cannot have."""


@dataclass(frozen=True)
class RunFile:
    """What a file says of a run."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    seeds: tuple[int, ...] = ()
    run: Path | None = None
    """Its folder."""


def read_run_file(path: Path) -> RunFile:
    settings = dict(_read(path))
    preset, seeds, run = settings.pop("preset", ""), settings.pop("seeds", []), settings.pop("run", None)
    if not isinstance(preset, str):
        raise ConfigError(f"{path}: preset must be a name, as in preset: majority; got {preset!r}")
    if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"{path}: seeds must be a list of whole numbers, as in seeds: [0, 1, 2]; got {seeds!r}")
    if not isinstance(run, str | None):
        raise ConfigError(f"{path}: run must be a folder, as in run: runs/mine; got {run!r}")
    if seeds and "seed" in settings:
        raise ConfigError(f"{path}: seeds names the seed of each run; leave seed out")
    return RunFile(settings, preset, tuple(seeds), None if run is None else Path(run))


def with_settings(base: TrainConfig, content: Mapping[str, Any], where: str = "") -> TrainConfig:
    """`base` with these settings, each by its name alone or in its section. `where` begins what is said about a wrong
    one."""
    if "prompts" in content:
        base = replace(base, prompts=_prompts(content["prompts"], where))
        content = {name: value for name, value in content.items() if name != "prompts"}
    content = {_FIELDS.get(name, name): value for name, value in content.items()}
    if isinstance(content.get("parts"), str):
        content["parts"] = [content["parts"]]
    whole = base.as_dict()
    parts = (base, base.model, base.debate, base.optim, base.recipe)
    hints = {name: hint for part in parts for name, hint in get_type_hints(type(part)).items()}
    sections = {name: part for name, part in whole.items() if isinstance(part, Mapping) and name != "prompts"}
    places = dict.fromkeys(whole.keys() - sections.keys(), whole)
    places |= {name: section for section in sections.values() for name in section}
    for name, value in _settings(content, whole):
        if name not in places:
            typed = name in ("log", "resume")
            hint = f"; name it on the command line, --{name}" if typed else part_instead(name) or near(name, places)
            raise ConfigError(f"{where}there is no setting {name!r}{hint}")
        # Choices of the protocol are checked where they are read.
        places[name][name] = _typed(f"{where}{name}", value, hints[name]) if name in hints else value
    return TrainConfig.from_dict(whole)


def _prompts(value: Any, where: str) -> Prompts:
    """A file's name, or all texts as a run.json has them."""
    if isinstance(value, str):
        return load_prompts(value)
    try:
        return Prompts.from_dict(value)
    except (KeyError, TypeError):
        raise ConfigError(f"{where}prompts must be the name of a file, got {value!r:.60}") from None


def _read(path: Path) -> Mapping[str, Any]:
    import yaml

    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        written = read_file(path).decode()
        content = json.loads(written) if kind == "JSON" else yaml.safe_load(written)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as {kind}: {' '.join(str(error).split())}") from None
    if isinstance(content, Mapping) and isinstance(content.get("config"), Mapping):
        content = content["config"]  # a run.json
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path} must hold settings with their values, as in: learning_rate: 1e-5")
    return content


def _settings(content: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and isinstance(whole.get(name), Mapping):
            yield from value.items()
        else:
            yield str(name), value


def _typed(name: str, value: Any, hint: Any) -> Any:
    """The value as the setting has it. YAML reads 1e-5 as a word, and lists where tuples are meant."""
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        value = tuple(map(str, value))
    if hint is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError):
            value = float(value)
    check_type(name, value, hint)
    return value
