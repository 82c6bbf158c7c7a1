"""What a run would cost, asked without a hub: only this machine is looked at, and nothing is waited for."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from moot.engine.hub import hub_answers
from moot.rl import cost
from moot.settings.presets import PRESETS


def no_network(*_: object, **__: object) -> None:
    raise OSError("no route to host")


@pytest.mark.parametrize(("answers", "local_only"), [(False, True), (True, False)])
def test_a_dry_run_asks_the_hub_only_if_it_answers(
    monkeypatch: pytest.MonkeyPatch, answers: bool, local_only: bool
) -> None:
    import transformers

    asked: list[Any] = []

    def from_pretrained(name: str, **options: Any) -> None:
        asked.append((name, options))
        raise OSError("not here")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    monkeypatch.setattr(cost, "hub_answers", lambda: answers)
    config = PRESETS["demo"]
    assert cost.memory_gib(replace(config, model=replace(config.model, model="nobody/nothing"))) is None
    assert asked == [("nobody/nothing", {"local_files_only": local_only})]


def test_forecasts_cost_their_questions_and_their_numbers() -> None:
    """Preset demo has 4 questions per step and 4 agents: 16 agents, each asked once or twice."""
    config = PRESETS["demo"]
    texts = {
        "both.forecast_win": "w" * 400,
        "both.forecast_right": "r" * 200,
    }  # 100 and 50 tokens, at 4 characters per token
    config = replace(config, prompts=config.prompts.with_texts(texts, "the test"))
    tokens = {
        kind: cost.expected_tokens(replace(config, protocol=config.protocol.with_choices(forecast=kind)))
        for kind in ("none", "win", "right", "both")
    }
    more = {kind: {name: each[name] - tokens["none"][name] for name in each} for kind, each in tokens.items()}
    assert more["win"] == {"sampled": 16 * 4, "read": 16 * 100, "trained on": 16 * 104, "longest": 104}
    assert more["right"] == {"sampled": 16 * 4, "read": 16 * 50, "trained on": 16 * 54, "longest": 54}
    assert more["both"] == {"sampled": 16 * 8, "read": 16 * 150, "trained on": 16 * 158, "longest": 158}


def test_a_hub_that_cannot_be_reached_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "create_connection", no_network)
    assert not hub_answers()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert hub_answers()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub_answers()
