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


def test_a_hub_that_cannot_be_reached_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "create_connection", no_network)
    assert not hub_answers()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert hub_answers()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub_answers()
