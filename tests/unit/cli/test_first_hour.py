"""What a new user tries in the first hour: it is refused at once, in one line that names the fix, or it does what was said."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from moot.cli.evaluate import Eval
from moot.cli.main import main
from moot.records import Run
from moot.rl.config import TrainConfig
from moot.rl.presets import PRESETS

NOBODY = "nobody@http://127.0.0.1:1/v1"
SHORT = ("train", "--engine", "scripted", "--warm-questions", "0", "--num-train-datapoints", "2", "--batch-size", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit status, and what stands on standard error: one line."""
    status = main(list(words))
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return status, error


# What was tried is what is trained


def test_a_model_is_evaluated_as_it_would_be_trained_and_a_run_as_it_was() -> None:
    config = TrainConfig()
    assert config.protocol.rules.sections == "sampled", "what a run of old has"
    ways = {
        "asked": [(Eval(), False), (Eval(protocol="v2"), False), (Eval(sections="asked"), True)],
        "sampled": [(Eval(), True), (Eval(protocol="v1"), False), (Eval(sections="sampled"), False)],
    }
    for way, asked in ways.items():
        assert [options._settings(config, trained).protocol.rules.sections for options, trained in asked] == [way] * 3
    assert PRESETS["easy"].protocol.rules.sections == "asked"


@pytest.mark.parametrize("command", [("train", "--dry-run"), ("train",), ("eval",)])
def test_an_adapter_or_a_run_is_no_model(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    status, error = said(capsys, *command, "--model", "adapter")
    assert status == 2 and "model adapter is the folder of an adapter, not of a model" in error and "moot export RUN --merged" in error
    Run.create(Path("mine"), PRESETS["demo"].as_dict(), {})
    status, error = said(capsys, *command, "--model", "mine")
    assert status == 2 and "moot export mine --merged, then --model mine/export/merged" in error
    assert not Path("runs").exists() and not Path("evals").exists()


def test_a_judge_that_nobody_answers_for_is_found_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("an engine was made")

    monkeypatch.setattr("moot.players.create_engine", never)
    status, error = said(capsys, *SHORT, "--judge", NOBODY, "--voters", "judges")
    assert status == 2 and f"judge or opponent {NOBODY} cannot be reached" in error and not Path("runs").exists()
    advocates = ("eval", "--engine", "scripted", "--protocol", "advocates", "--modes", "judge", "--task", "arithmetic")
    status, error = said(capsys, *advocates, "--judge", NOBODY)
    assert status == 2 and "cannot be reached" in error and not Path("evals").exists()


def test_a_logger_that_is_not_installed_is_found_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "wandb" else there(name, *_))
    for dry in ((), ("--dry-run",)):
        status, error = said(capsys, *SHORT, "--log", "wandb", *dry)
        assert status == 2 and "pip install 'moot[wandb]'" in error and not Path("runs").exists()


def test_check_does_not_give_the_agents_figure_for_the_judges(capsys: pytest.CaptureFixture[str]) -> None:
    check = ("check", "--engine", "scripted", "--questions", "4", "--judge", NOBODY, "--voters", "judges", "--json")
    main(list(check))
    out, error = capsys.readouterr()
    assert "judge accuracy" not in [each["check"] for each in json.loads(out)["checks"]]
    assert f"does not ask the judge {NOBODY}" in " ".join(error.split()) and "moot judge" in error
