"""Which checkpoint of a run is meant, and which can be used."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from moot.cli import main
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.players.checkpoints import checkpoints, find_trained, load_checkpoint, load_newest, newest_whole
from moot.runs import Run
from moot.settings.model import ModelConfig
from moot.settings.train import TrainConfig


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Steps 1 to 3, all kept; the engine had taken as many steps."""
    made = Run.create(tmp_path / "run", TrainConfig(model=ModelConfig(engine="scripted", lora_rank=7)).as_dict(), {})

    async def train() -> None:
        for step in (1, 2, 3):
            await ScriptedEngine(steps=step).save_state(str(made.checkpoint_place(step)))
            made.commit_checkpoint(step, {}, keep=True)

    asyncio.run(train())
    return made


def damage(run: Run, step: int, name: str = "state.json") -> None:
    (run.path / "checkpoints" / f"{step:06d}" / name).write_text("{")


def test_the_newest_whole_one_is_meant_unless_a_step_is_named(run: Run) -> None:
    assert [each.step for each in checkpoints(run)] == [3, 2, 1]
    damage(run, 3)
    assert [each.state is None for each in checkpoints(run)] == [True, False, False]
    newest, first, third = newest_whole(run), newest_whole(run, 1), newest_whole(run, 3)
    assert newest is not None and newest.step == 2 and first is not None and first.step == 1 and third is None
    assert newest.engine_state == str(run.path / "checkpoints" / "000002")
    assert newest.seal.startswith("000002 ") and newest.seal != first.seal


def test_what_cannot_be_used_is_passed_over_and_named(run: Run) -> None:
    damage(run, 3)
    damage(run, 2, "scripted.json")
    notes: list[str] = []
    engine = ScriptedEngine()
    loaded = asyncio.run(load_newest(engine, run, notes.append))
    assert loaded is not None and loaded.step == 1 and engine.steps == 1
    assert len(notes) == 2
    assert (
        "000003 cannot be used (its state.json is damaged); trying the one before it" in notes[0]
        and "000002 cannot be used (" in notes[1]
    )


def test_a_step_that_is_named_is_that_step_or_an_error(run: Run) -> None:
    def load(step: int | None) -> int:
        return asyncio.run(load_checkpoint(ScriptedEngine(), run, step, lambda text: None)).step

    assert (load(None), load(2)) == (3, 2)
    damage(run, 2)
    with pytest.raises(ConfigError, match=r"000002 cannot be used: its state\.json is damaged"):
        load(2)
    with pytest.raises(
        ConfigError, match="has no checkpoint of step 9; it has 3, 2, 1; step 0 is the model before training"
    ):
        load(9)
    for step in (1, 3):
        damage(run, step)
    with pytest.raises(ConfigError, match="has no checkpoint that is whole; it has 3, 2, 1"):
        load(None)
    assert asyncio.run(load_newest(ScriptedEngine(), run, lambda text: None)) is None


def test_a_run_a_checkpoint_in_it_a_bare_adapter_and_a_servers_name_all_say_what_to_load(
    run: Run, tmp_path: Path
) -> None:
    settings, state = find_trained(str(run.path))
    assert settings["lora_rank"] == 7 and Path(state).name == "000003"
    assert Path(find_trained(str(run.path / "checkpoints" / "000001"))[1]).name == "000001"
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "manifest.json").write_text(
        json.dumps({"model": "m", "lora_rank": 4, "lora_alpha": 8, "lora_targets": ["q_proj", "v_proj"]})
    )
    assert find_trained(str(bare)) == (
        {"model": "m", "lora_rank": 4},
        str(bare),
    )
    assert find_trained("tinker://run/weights/1") == ({}, "tinker://run/weights/1")
    with pytest.raises(ConfigError, match="is neither a run, nor a checkpoint in one"):
        find_trained(str(tmp_path / "nowhere"))


# Numbers of somebody else's run


def edited(run: Run, section: str, name: str, value: object) -> None:
    header = run.header
    header["config"][section][name] = value
    (run.path / "run.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("lora_rank", 10_000_000, "lora_rank must be at most 1024, got 10000000"),
        ("lora_rank", "many", "run.json"),
        ("lora_rank", 8, "lora_rank is 8 in .*run.json and 7 in .*000003; put back the run.json"),
        ("device", 3, "device must be text, got 3"),
        ("surprise", 1, "has the setting 'surprise', which this moot does not know"),
    ],
)
def test_a_runs_numbers_are_looked_at_before_memory_is_taken(
    run: Run,
    name: str,
    value: object,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`moot ask --checkpoint`, `moot eval`, `moot train --resume`: one line each, and no engine is made."""
    (run.path / "checkpoints" / "000003" / "manifest.json").write_text(json.dumps({"lora_rank": 7}))
    edited(run, "model", name, value)

    def made(*_: object, **__: object) -> None:
        raise AssertionError("an engine is made")

    monkeypatch.setattr("moot.players.find.make_engine", made)
    for command in (
        ["ask", "--checkpoint", str(run.path), "Why?"],
        ["eval", str(run.path)],
        ["train", "--resume", str(run.path)],
    ):
        assert main(command) == 2, command
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and re.search(complaint, said), said


def test_a_bare_checkpoint_of_other_types_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"model": 3, "lora_rank": "x", "lora_alpha": 1, "lora_targets": "q_proj", "files": {}})
    )
    assert main(["ask", "--checkpoint", str(tmp_path), "Why?"]) == 2
    said = capsys.readouterr().err
    assert "model must be text, got 3" in said and said.count("\n") == 1


def test_the_prompts_of_a_run_with_an_unknown_setting_are_refused_in_one_line(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompts", str(run.path)]) == 0
    edited(run, "optim", "surprise", 1)
    capsys.readouterr()
    assert main(["prompts", str(run.path)]) == 2
    assert "has the setting 'surprise'" in capsys.readouterr().err
