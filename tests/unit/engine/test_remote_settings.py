"""Settings that a server cannot keep are refused before a run's folder is made, by name, with what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("tinker")

from test_remote import Bytes

from moot.engine.remote import probe
from moot.errors import ConfigError
from moot.players.find import make_engine
from moot.settings.train import ModelConfig, OptimConfig, TrainConfig
from support.simulated_server import Manners, Server, serving


def refusal(model: dict[str, Any], **parts: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make_engine(TrainConfig(model=ModelConfig(**{"engine": "tinker", "model": "table", **model}), **parts))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    monkeypatch.setattr(probe, "find_tokenizer", lambda *_: Bytes())


def test_without_a_key_or_an_address_there_is_nowhere_to_go() -> None:
    assert (
        refusal({})
        == "the hosted service needs a key; set TINKER_API_KEY, or name a server of your own with --base-url"
    )


def test_an_address_without_the_engine_for_it_is_a_mistake() -> None:
    said = refusal({"engine": "local", "base_url": "http://node:8000"})
    assert said == "base_url 'http://node:8000' is for a server, and the engine is local; add --engine tinker"


def test_what_no_server_can_promise() -> None:
    assert "deterministic needs the local engine" in refusal({"base_url": "http://x", "deterministic": True})


def test_what_this_server_cannot_do() -> None:
    with serving(Server(Manners(vocabulary=258, losses=("importance_sampling",)))) as (url, _):
        said = refusal({"base_url": url}, optim=OptimConfig(loss="ppo"))
        assert said == "loss ppo is not known to the server; it has importance_sampling"
        said = refusal({"base_url": url}, warm_questions=4)
        assert said.startswith("warm_questions must be 0 on this server, got 4")


def test_the_address_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server(Manners(vocabulary=258))) as (url, _):
        monkeypatch.setenv("TINKER_BASE_URL", url)
        engine, rendering = make_engine(TrainConfig(model=ModelConfig(engine="tinker", model="table")))
        try:
            assert engine.capabilities.model == "table" and rendering.stop_ids
        finally:
            asyncio.run(engine.close())
