"""The algorithm in one file does what the loop does: same debates, same rewards, same lessons."""

import asyncio
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.training.loop import train
from unit.training.test_train import make_setup

RECIPES = Path(__file__).parents[3] / "recipes"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_it_is_one_file_of_less_than_200_lines() -> None:
    assert len((RECIPES / "debate_loop.py").read_text().splitlines()) < 200


@pytest.mark.parametrize("reward", ["generator_judge", "win_rate", "majority"])
def test_its_numbers_are_those_of_the_training_loop(tmp_path: Path, reward: str) -> None:
    config = TrainConfig(
        model=ModelConfig(engine="scripted"),
        debate=DebateConfig(num_agents=4, max_rounds=2, max_tokens=3000),
        optim=OptimConfig(batch_size=3, num_train_datapoints=6),
        eval_every=0,
    )
    loop = make_setup(tmp_path / "run", replace(config, protocol=config.protocol.with_choices(reward=reward)))
    asyncio.run(train(loop))
    module = load("debate_loop")
    given = f"--engine scripted --agents 4 --batch 3 --iterations 2 --max-tokens 3000 --warm-questions 0 --reward {reward}".split()
    rows = asyncio.run(module.run(module.arguments(given)))
    expected = [row for row in loop.run.metrics() if row["phase"] == "self_play"]
    for row, other in zip(rows, expected, strict=True):
        assert {key: other[key] for key in row} == row
    assert any(row["debates/with_gradient"] for row in rows)


def test_its_warm_start_learns_what_the_loop_would(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("debate_loop")
    asyncio.run(module.run(module.arguments(["--engine", "scripted", "--iterations", "1", "--max-tokens", "3000"])))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"warm start {first:4d}" for first in range(0, 16, 2)),
        "iteration 1",
    ]


def test_two_agents_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load("debate_loop").arguments(["--agents", "2"])
    assert "at least 3, got 2" in capsys.readouterr().err
