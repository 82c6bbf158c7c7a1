"""Engines under contract: those of `factories.py`. Tests skip what an engine's capabilities exclude."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import ENGINES, KNOWN

from support.one_thread import one_thread as one_thread
from support.skyrl_server import Running, Unavailable, running

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>"
"""64 tokens, one character each, so that a stop string spans several tokens and a test can be read."""


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped queries and a tokenizer. Its weights are large enough for a peaked distribution."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(ALPHABET), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=1024, initializer_range=0.3, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({char: index for index, char in enumerate(ALPHABET)}, unk_token="a")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    words.decoder = tokenizers.decoders.Fuse()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(path)
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        settings = getattr(item, "callspec", None)
        engine = None if settings is None else settings.params.get("make_engine")
        if engine == "remote":
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(1800))
        reason = KNOWN.get(engine, {}).get(getattr(item, "originalname", item.name))
        if reason and settings.params.get("options") != {"temperature": 1.0}:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def skyrl(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real server on this machine. Where there can be none, the tests that want it are skipped with the reason."""
    try:
        with running(tiny_model, tmp_path_factory.mktemp("skyrl")) as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"DID NOT RUN against SkyRL: {reason}")


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[Callable[..., Any]]:
    """A factory; every engine it made is closed after the test."""
    made = []

    def make(**options: Any) -> Any:
        if request.param == "remote":
            options["skyrl"] = request.getfixturevalue("skyrl")
        made.append(ENGINES[request.param](tiny_model, **options))
        if request.node.get_closest_marker("weights") and not made[-1].capabilities.learns:
            pytest.skip("a script has no weights to ask or to move")
        return made[-1]

    yield make
    for engine in made:
        asyncio.run(engine.close())


@pytest.fixture
def engine(make_engine: Callable[..., Any]) -> Any:
    return make_engine()
