"""What transformers reads from a model's folder, or from the hub. The files are somebody else's: whatever is wrong with
one is told in a line that names it, and what a model must have is not made up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from moot.engine.hub import hub_answers
from moot.engine.protocol import in_words
from moot.errors import EngineError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def local_copy(name: str) -> str:
    """The name, where the hub can be asked; otherwise the folder in which an earlier download lies."""
    if hub_answers():
        return name
    try:
        return str(snapshot_download(name, local_files_only=True))
    except Exception:  # it has a class for each way in which a model is not there
        raise EngineError(
            "it is not on this machine, and the model hub cannot be reached; --model FOLDER names a model that is"
        ) from None


def read_config(path: str) -> Any:
    with _reading(path, "config.json"):
        config = AutoConfig.from_pretrained(path)
        # A kernel that the file names would be fetched and run, whatever is asked for when the model is made.
        config._attn_implementation = "sdpa"
    return config


def read_weights(path: str, config: Any, dtype: torch.dtype | str) -> Any:
    said = logging.get_verbosity()
    logging.set_verbosity_error()  # it makes up what is missing, and writes a table about it
    try:
        with _reading(path, "weights"):
            model, report = AutoModelForCausalLM.from_pretrained(
                path, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
            )
    finally:
        logging.set_verbosity(said)
    for name, stored, wanted in sorted(report["mismatched_keys"]):
        shapes = f"has shape {list(stored)}, and config.json makes it {list(wanted)}"
        raise EngineError(f"weights of {path!r}: {name} {shapes}")
    if missing := sorted(report["missing_keys"]):
        raise EngineError(f"weights of {path!r}: {len(missing)} missing, first of them {missing[0]}")
    return model


def read_tokenizer(path: str, vocabulary: int) -> Any:
    """None where a folder has none."""
    if Path(path).is_dir() and not any((Path(path) / name).exists() for name in TOKENIZER_FILES):
        return None
    with _reading(path, "tokenizer.json"):
        tokenizer = AutoTokenizer.from_pretrained(path)
        beyond = sorted(token for token, number in tokenizer.get_vocab().items() if number >= vocabulary)
    if beyond and beyond != [tokenizer.pad_token]:  # some add one for padding, which is never sampled
        raise EngineError(
            f"tokenizer.json of {path!r} is of another model: the weights know {vocabulary} tokens, and {len(beyond)} "
            f"of its tokens have larger numbers, such as {beyond[0]!r}"
        )
    return tokenizer


@contextlib.contextmanager
def _reading(path: str, file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"could not load {path!r}: {error}") from error
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # each library has exceptions of its own for a file it does not understand
        file = _broken(Path(path)) or file
        # What torch says of a pickle is how to let it run.
        said = "it is torn, or holds more than tensors; use safetensors" if file.endswith(".bin") else in_words(error)
        raise EngineError(f"{file} of {path!r} cannot be read: {said}") from error


def _broken(folder: Path) -> str:
    """The file of a folder that is not what its name says; empty where each is."""
    for name in ("config.json", *TOKENIZER_FILES[:2]):
        try:
            if (folder / name).exists() and not isinstance(json.loads((folder / name).read_bytes()), dict):
                return name
        except (ValueError, RecursionError):
            return name
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError:
            return file.name
    pickles = sorted(folder.glob("*.bin"))
    return pickles[0].name if pickles and not (folder / "model.safetensors").exists() else ""
