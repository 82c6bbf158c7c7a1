"""The name under which others can load a model: a hub id, where there is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

SMOLLM, SMOLLM_HUB_ID = "smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/")
"""A folder in which the hub's own client keeps a download."""
_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def published_name(model: str) -> str:
    """The hub id of the embedded model, of a hub id itself, or of a folder whose config says where it came from; any
    other name as it is."""
    if model == SMOLLM:
        return SMOLLM_HUB_ID
    folder = Path(model).expanduser()
    if cached := _CACHED.search(str(folder)):
        return f"{cached[1]}/{cached[2]}"
    if not folder.is_dir():
        return model
    if folder.name == SMOLLM and (folder / "source.json").is_file():
        return SMOLLM_HUB_ID
    try:
        said = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("_name_or_path", "")
    except (OSError, ValueError, AttributeError):
        return model
    return said if isinstance(said, str) and is_hub_id(said) else model


def is_hub_id(name: str) -> bool:
    """Whether a name could be one, and is not a folder here."""
    return _ID.fullmatch(name) is not None and not Path(name).exists()


def same_model(one: str, other: str) -> bool:
    """Whether two names are of one model, as far as names tell."""
    return one == other or published_name(one) == published_name(other) or Path(one).resolve() == Path(other).resolve()
