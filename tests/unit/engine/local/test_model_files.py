"""Model folders that are torn, hostile, or put together from two: one line that names the folder and the file."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from moot.engine.local.merge import merge
from moot.engine.local.model_files import read_tokenizer
from moot.engine.local.models import load_model
from moot.errors import ConfigError, EngineError
from moot.players.create import create_engine
from moot.settings.model import ModelConfig
from support import tiny_chat


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.save(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be spoiled."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


class Program:
    """A pickle that makes a file when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        return os.system, (f"touch {self.target}",)


def tear(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-500])


def lose_one(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.0.mlp.down_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Program(folder / "ran"), protocol=2))


def change(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def more_tokens(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<another>", "<model>"])
    tokenizer.save_pretrained(folder)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn weights": (tear, "model.safetensors of .* cannot be read: SafetensorError"),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors of .* cannot be read"),
    "a weight too few": (lose_one, "1 missing, first of them model.layers.0.mlp.down_proj.weight"),
    "a pickle": (pickled, "pytorch_model.bin of .* it is torn, or holds more than tensors; use safetensors"),
    "a smaller vocabulary": (lambda f: change(f, vocab_size=9), r"shape \[258, 32\], and config.json makes it \[9,"),
    "a larger vocabulary": (lambda f: change(f, vocab_size=900), r"shape \[258, 32\], and config.json makes it \[900,"),
    "text for a number": (lambda f: change(f, hidden_size="x"), "config.json of .* cannot be read: .*hidden_size"),
    "no heads": (lambda f: change(f, num_attention_heads=0), "config.json of .* cannot be read: ZeroDivisionError"),
    "a cut tokenizer": (lambda f: (f / "tokenizer.json").write_text('{"a": 1'), "tokenizer.json of .* JSONDecodeError"),
    "another file": (lambda f: (f / "tokenizer.json").write_text('{"a": 1}'), "tokenizer.json of .* read: KeyError"),
    "a list": (lambda f: (f / "tokenizer_config.json").write_text("[]"), "tokenizer_config.json of .* read: Attrib"),
    "tokens of another model": (more_tokens, "tokenizer.json of .* weights know 258 tokens, and 2 of .*'<another>'"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_folder_that_cannot_be_loaded_is_told_in_one_line(folder: Path, what: str) -> None:
    spoil, told = SPOILED[what]
    spoil(folder)
    with pytest.raises(ConfigError, match=told) as caught:
        create_engine(ModelConfig(str(folder)))
    assert re.match(f"model '{folder}' cannot be loaded: ", str(caught.value)) and "\n" not in str(caught.value)
    assert not (folder / "ran").exists()


def test_merging_reads_models_with_the_same_care(folder: Path, tmp_path: Path) -> None:
    tear(folder)
    with pytest.raises(EngineError, match=r"model\.safetensors of .* cannot be read"):
        merge(str(folder), tmp_path / "adapter", tmp_path / "merged")


def test_the_attention_is_ours_whatever_the_folder_says(folder: Path) -> None:
    change(folder, _attn_implementation="evil/kernel")
    loaded = load_model(str(folder), torch.device("cpu"), torch.float32)
    assert loaded.model.config._attn_implementation == "sdpa"


def test_a_token_for_padding_alone_may_have_no_weights(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "<padding>"})
    tokenizer.save_pretrained(folder)
    assert read_tokenizer(str(folder), 258).pad_token == "<padding>"
