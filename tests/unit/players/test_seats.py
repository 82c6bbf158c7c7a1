"""Who sits where in `moot ask`, and who judges without a seat."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from moot.cli.main import main
from moot.debate.protocols import V2
from moot.engine.scripted import ScriptedEngine
from moot.players import seats
from moot.players.chat.chat import Patience
from moot.players.seats import CommonModel, SpeakingSettings, take_seats
from moot.rl.rollout import Player
from moot.settings.train import ModelConfig, TrainConfig
from moot.tokens.rendering import Rendering


def test_the_judge_base_is_the_model_before_training_whatever_checkpoint_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained, untrained = ScriptedEngine(steps=3), ScriptedEngine()

    class Engine(ScriptedEngine):
        async def base(self) -> ScriptedEngine:
            return untrained

    async def loaded(*_: object) -> object:
        config = TrainConfig(model=ModelConfig(engine="scripted"))
        return seats._LoadedModel(Engine(), trained, Rendering(trained.tokenizer), config, "scripted m RUN")

    monkeypatch.setattr(seats, "_load", loaded)

    async def judge() -> tuple[object, str]:
        async with AsyncExitStack() as stack:
            common, speaking = CommonModel("scripted", None, None, None, "RUN"), SpeakingSettings(V2.rules, 9, 0, {})
            return await (await take_seats(common, {}, 3, speaking, Patience(), stack)).judge("base")

    guest, identity = asyncio.run(judge())
    assert isinstance(guest, Player) and guest.sampler is untrained and not guest.learns
    assert "RUN" not in identity


def test_a_script_is_heard_whole_and_does_not_begin_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "--engine", "scripted", "--seed", "3", "--rounds", "1", "--json", "What is 3 + 4?"]) == 0
    texts = [turn["text"] for turn in json.loads(capsys.readouterr().out)["turns"]]
    assert {text.count("Adding the parts") for text in texts if "Adding" in text} == {1}
