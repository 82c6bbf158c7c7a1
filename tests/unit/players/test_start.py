"""Starting from weights that another run, or another trainer, has made."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli.main import _parse
from moot.engine.published import published_name, same_model
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.evaluate.compare_runs import groups
from moot.evaluate.unseen import unseen_questions
from moot.players.checkpoints import find_trained
from moot.players.start import ALL_LINEAR, find_start
from moot.runs import Run
from moot.settings.presets import PRESETS
from moot.settings.train import TrainConfig
from moot.tasks import load
from moot.training.commit import restore
from moot.training.loop import train
from unit.training.test_train import CONFIG, make_setup

COLD = replace(CONFIG, warm_questions=0)


def played(path: Path, config: TrainConfig) -> Run:
    setup = make_setup(path, config)
    asyncio.run(train(setup))
    return setup.run


def starting(start: object, config: TrainConfig = COLD, **model: Any) -> TrainConfig:
    return replace(config, start=str(start), model=replace(config.model, **model))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return played(tmp_path / "first-seed0", COLD).path


def test_a_run_begins_with_the_weights_it_names_and_a_record_of_its_own(tmp_path: Path, trained: Path) -> None:
    """The first run took 8 optimizer steps: 4 steps of 2."""
    engine = ScriptedEngine()
    setup = make_setup(tmp_path / "second", starting(f"{trained}@4"), engine)
    assert asyncio.run(restore(setup))[0] == 0
    assert engine.steps == 4
    assert [step for step, _ in setup.run.checkpoints()] == [0]
    assert setup.run.metrics() == []


def test_after_that_it_needs_the_other_no_more_and_keeps_its_start(tmp_path: Path, trained: Path) -> None:
    config = starting(trained)
    run = played(tmp_path / "second", config)
    trained.rename(tmp_path / "gone")
    engine = ScriptedEngine()
    assert asyncio.run(restore(make_setup(run.path, config, engine)))[0] == 4
    assert engine.steps == 8
    assert 0 in [step for step, _ in run.checkpoints()]
    asyncio.run(restore(make_setup(run.path, config, engine), 0))
    assert engine.steps == 4


def test_step_0_of_such_a_run_is_what_it_started_from(tmp_path: Path, trained: Path) -> None:
    run = played(tmp_path / "second", starting(trained))
    assert find_trained(f"{run.path}@0")[1] == str(run.path / "checkpoints" / "000000")
    assert find_trained(f"{trained}@0")[1] is None


def test_the_best_and_a_single_checkpoint_can_be_named(tmp_path: Path, trained: Path) -> None:
    assert find_start(starting(trained)).source == {
        "name": str(trained),
        "state": str(trained / "checkpoints" / "000004"),
        "run": str(trained),
        "step": 4,
    }
    assert find_start(starting(trained / "checkpoints" / "000002")).state.endswith("000002")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lora_rank": 4}, "lora_rank is 16 there and 4 here; add --lora-rank 16"),
        ({"model": "other"}, "its base model is smollm2-135m, and this run's is other"),
        ({"engine": "local"}, "of the scripted engine, and this run's engine is local"),
    ],
)
def test_weights_of_other_settings_are_refused_by_name(trained: Path, changes: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        find_start(starting(trained, **changes))


def test_what_is_not_there_is_refused(trained: Path) -> None:
    for start, complaint in [
        ("nowhere", "from 'nowhere' is neither a run, nor a checkpoint in one, nor an adapter's folder"),
        (f"{trained}@9", "no whole checkpoint of step 9"),
        (f"{trained}@0", "that is step 0, the model before training; leave --from out"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            find_start(starting(start))


def test_a_server_loads_only_its_own_states(tmp_path: Path) -> None:
    there = starting("", engine="tinker", base_url="http://a")
    run = Run.create(tmp_path / "remote", there.as_dict(), {})
    run.checkpoint_place(3)
    run.commit_checkpoint(3, {"metrics": {}, "engine_state": "tinker://x/3"}, keep=True)
    assert find_start(starting(run.path, engine="tinker", base_url="http://a")).state == "tinker://x/3"
    with pytest.raises(ConfigError, match="kept at http://a, and this run's server is http://b"):
        find_start(starting(run.path, engine="tinker", base_url="http://b"))
    with pytest.raises(ConfigError, match="of the tinker engine, and this run's engine is local"):
        find_start(starting(run.path, engine="local"))
    assert find_start(starting("tinker://y/1", engine="tinker")).state == "tinker://y/1"


ADAPTER = {
    "peft_type": "LORA",
    "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "r": 16,
    "lora_alpha": 32,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "bias": "none",
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, ""),
        ({"target_modules": "all-linear"}, ""),
        ({"target_modules": [f"model.layers.0.x.{name}" for name in sorted(ALL_LINEAR)]}, ""),
        ({"r": 8}, "lora_rank is 8 there and 16 here"),
        ({"target_modules": ["q_proj"]}, "its adapter is on q_proj alone"),
        ({"base_model_name_or_path": "a/b"}, "its base model is a/b, and this run's is smollm2-135m"),
        ({"use_rslora": True}, "has use_rslora True; only plain LoRA adapters"),
        ({"peft_type": "IA3"}, "has peft_type 'IA3'; only plain LoRA adapters"),
        ({"r": "many"}, "adapter_config.json cannot be read"),
    ],
)
def test_an_adapters_folder_is_taken_where_it_fits(tmp_path: Path, changes: Any, complaint: str) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER | changes))
    if not complaint:
        assert find_start(starting(tmp_path, engine="local")).state == str(tmp_path)
    else:
        with pytest.raises(ConfigError, match=complaint):
            find_start(starting(tmp_path, engine="local"))


def test_an_adapter_of_the_embedded_model_needs_no_download(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER))
    with pytest.raises(ConfigError, match="and this run's is other; use --model smollm2-135m "):
        find_start(starting(tmp_path, engine="local", model="other"))


def test_what_the_first_run_has_seen_is_not_asked_of_the_second(tmp_path: Path) -> None:
    """arithmetic holds out other questions than it trains on, so the first run's questions stand in for a task."""
    first = played(tmp_path / "first", COLD)
    task = load("arithmetic", COLD.seed, COLD.eval_questions)
    seen = replace(task, held_out=[task.train(number) for number in (0, 1, 40)])
    asked, notes = unseen_questions(seen, starting(first.path), 0, 3)
    assert asked == [task.train(40)]
    assert notes[0].startswith("2 of 3 questions are left out")
    elsewhere = unseen_questions(seen, starting(tmp_path / "adapter"), 0, 3)
    assert "what" not in notes[0] and "is not known" in elsewhere[1][0]


def test_seeds_that_start_from_runs_of_their_own_are_one_group(tmp_path: Path) -> None:
    runs = [
        Run.create(tmp_path / f"peers-seed{i}", replace(starting(tmp_path / f"warm-seed{i}"), seed=i).as_dict(), {})
        for i in range(3)
    ]
    other = Run.create(tmp_path / "truth-seed0", starting(tmp_path / "other-seed0").as_dict(), {})
    assert [group.label for group in groups([*runs, other])] == ["peers", "truth"]


def test_a_model_has_a_name_for_others(tmp_path: Path) -> None:
    hub = "HuggingFaceTB/SmolLM2-135M-Instruct"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"_name_or_path": "org/name"}')
    cached = "/home/a/.cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B/snapshots/abc"
    named = ["smollm2-135m", str(tmp_path / "mine"), cached, "org/other", "runs/merged"]
    assert [published_name(name) for name in named] == [
        hub,
        "org/name",
        "Qwen/Qwen2.5-0.5B",
        "org/other",
        "runs/merged",
    ]
    assert same_model("smollm2-135m", hub) and not same_model("org/other", hub)


def test_the_model_is_that_of_what_it_starts_from_unless_one_is_named(tmp_path: Path) -> None:
    """The preset majority is for Qwen, and the adapter is SmolLM2's, under its name at the hub."""
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", "r": 16}
    adapter |= {"lora_alpha": 32, "target_modules": "all-linear"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    named = ["--preset", "majority", "--from", str(tmp_path)]
    usual = PRESETS["majority"].model.model
    assert usual != "smollm2-135m"

    def model(*more: str) -> str:
        return str(_parse("train", [*named, *more]).config.model.model)

    assert model() == "smollm2-135m"
    assert model("--model", "other") == "other"
    (tmp_path / "file.yaml").write_text(f"model: {usual}\n")
    assert model("--config", str(tmp_path / "file.yaml")) == usual
    (tmp_path / "file.yaml").write_text("learning_rate: 1.0e-5\n")
    assert model("--config", str(tmp_path / "file.yaml")) == "smollm2-135m"
    assert _parse("train", ["--preset", "majority", "--from", str(tmp_path / "no")]).config.model.model == usual
