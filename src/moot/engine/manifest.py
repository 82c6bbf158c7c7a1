"""What a checkpoint on disk says about itself: manifest.json, with every file's SHA-256. Needs no torch, so an export
can check it too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moot.errors import EngineError
from moot.util.disk import read_file

MANIFEST = "manifest.json"


class DamagedCheckpoint(EngineError):
    """A checkpoint whose files do not match its manifest. Load an older one."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(place: Path) -> dict[str, Any]:
    """What was saved there; `files` has the checksums."""
    try:
        manifest = json.loads(read_file(place / MANIFEST))
        return {**manifest, "files": dict(manifest.get("files", {}))}
    except FileNotFoundError:
        raise DamagedCheckpoint(f"{place}: {MANIFEST} is missing") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{place}: its manifest cannot be read ({type(error).__name__}: {error})") from error


def read_adapter_config(place: Path) -> dict[str, Any]:
    """Model, rank, alpha and targets of an adapter, as peft's adapter_config.json has them; DamagedCheckpoint where it
    has what is not trained here."""
    file = place / "adapter_config.json"
    try:
        config = json.loads(read_file(file))
        foreign = [name for name in NOT_TRAINED if config.get(name) not in (None, False, {}, [], "none")]
        if config.get("peft_type") != "LORA" or foreign:
            name = next(iter(foreign), "peft_type")
            raise DamagedCheckpoint(
                f"{file} has {name} {config.get(name)!r:.60}; only plain LoRA adapters can be loaded"
            )
        targets = config["target_modules"]
        return {
            "model": str(config.get("base_model_name_or_path")),
            "lora_rank": int(config["r"]),
            "lora_alpha": int(config["lora_alpha"]),
            "lora_targets": targets if isinstance(targets, str) else ",".join(sorted(map(str, targets))),
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{file} cannot be read ({type(error).__name__}: {error})") from error


NOT_TRAINED = (
    "bias", "use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform",
    "fan_in_fan_out", "trainable_token_indices", "target_parameters", "layer_replication",
)  # fmt: skip
"""What peft offers for an adapter and the local engine does not run."""


def check_files(place: Path, files: Mapping[str, str]) -> None:
    """DamagedCheckpoint where one of them is missing, or another than was saved."""
    for name, expected in files.items():
        if not (place / name).is_file():
            raise DamagedCheckpoint(f"{place}: {name} is missing")
        if sha256(place / name) != expected:
            raise DamagedCheckpoint(f"{place}: {name} does not match its checksum")
