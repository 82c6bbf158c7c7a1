"""A warm start taken over from another run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.errors import ConfigError
from moot.evaluate.compare_runs import groups
from moot.runs import Run
from moot.settings.train import TrainConfig
from moot.training.loop import train
from moot.training.warm_from import warm_start_of
from unit.training.test_train import CONFIG, make_setup, untimed


def played(path: Path, config: TrainConfig) -> list[dict[str, Any]]:
    setup = make_setup(path, config)
    asyncio.run(train(setup))
    return untimed(setup.run.metrics())


def taking(run: Path, config: TrainConfig = CONFIG) -> TrainConfig:
    return replace(config, warm=replace(config.warm, warm_from=str(run)))


def ruled(config: TrainConfig, **changes: Any) -> TrainConfig:
    return replace(config, protocol=config.protocol.with_choices(changes))


@pytest.fixture
def warmed(tmp_path: Path) -> Path:
    played(tmp_path / "warm-seed0", replace(CONFIG, optim=replace(CONFIG.optim, num_train_datapoints=0), eval_every=0))
    return tmp_path / "warm-seed0"


def test_a_run_with_it_goes_on_as_if_it_had_made_it(tmp_path: Path, warmed: Path) -> None:
    whole, taken = played(tmp_path / "whole", CONFIG), played(tmp_path / "taken", taking(warmed))
    assert taken == [row for row in whole if row["step"] > 0]  # only the evaluation of the untrained model is not there
    assert played(tmp_path / "taken", taking(warmed)) == taken  # going on does not take it over again


def test_what_it_took_is_its_own(tmp_path: Path, warmed: Path) -> None:
    played(tmp_path / "taken", taking(warmed))
    assert CONFIG.warm_steps in [step for step, _ in Run.open(tmp_path / "taken").checkpoints()]


def test_seeds_with_warm_starts_of_their_own_are_one_group(tmp_path: Path) -> None:
    runs = [
        Run.create(tmp_path / f"peers-seed{i}", replace(taking(tmp_path / f"warm-seed{i}"), seed=i).as_dict(), {})
        for i in range(3)
    ]
    other = Run.create(tmp_path / "truth-seed0", taking(tmp_path / "other-seed0").as_dict(), {})
    assert [group.label for group in groups([*runs, other])] == ["peers", "truth"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: replace(c, seed=1), r"seed is 1 here and 0 in .*warm-seed0"),
        (lambda c: replace(c, model=replace(c.model, lora_rank=4)), "lora_rank is 4 here and 16"),
        (lambda c: replace(c, model=replace(c.model, engine="local")), "engine is 'local' here and 'scripted'"),
        (lambda c: replace(c, warm=replace(c.warm, warm_questions=6)), "warm_questions is 6 here and 4"),
        (
            lambda c: replace(c, warm=replace(c.warm, warm_learning_rate=1.0)),
            "warm_learning_rate is 1.0 here and 0.0001",
        ),
        (lambda c: replace(c, debate=replace(c.debate, num_agents=5)), "num_agents is 5 here and 4"),
        *(
            (lambda c, name=name, value=value: ruled(c, **{name: value}), f"{name} is {value!r} here")
            for name, value in {
                "personas": False,
                "layout": "rebuilt",
                "schedule": "sequential",
                "closing_ballot": True,
            }.items()
        ),
        (lambda c: replace(c, model=replace(c.model, thinking=True)), "thinking is True here and False"),
        (lambda c: replace(c, debate=replace(c.debate, task="gsm8k")), "task is 'gsm8k' here and 'arithmetic'"),
        (
            lambda c: replace(c, warm=replace(c.warm, warm_questions=0)),
            "--warm-questions 4 --warm-epochs 1 --warm-batch-size 2",
        ),
        (lambda c: replace(c, warm=replace(c.warm, warm_from="nowhere")), "nowhere is not a run"),
    ],
)
def test_a_warm_start_of_other_settings_is_refused(warmed: Path, change: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        warm_start_of(change(taking(warmed)))


def test_a_damaged_one_is_refused_before_anything_of_the_run_is_forgotten(tmp_path: Path, warmed: Path) -> None:
    before = played(tmp_path / "taken", taking(warmed))
    for place in [*(tmp_path / "taken" / "checkpoints").iterdir(), warmed / "checkpoints" / "000002"]:
        (place / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="checkpoint of step 2 is missing or damaged"):
        played(tmp_path / "taken", taking(warmed))
    assert untimed(Run.open(tmp_path / "taken").metrics()) == before


def test_an_unfinished_one_is_refused(warmed: Path) -> None:
    run = Run.open(warmed)
    run.rewind(1, None)
    with pytest.raises(ConfigError, match="has not finished its warm start \\(1 of 2 steps\\)"):
        warm_start_of(taking(warmed))
