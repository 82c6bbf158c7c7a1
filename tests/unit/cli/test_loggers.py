"""Other tools' loggers: named with settings, the same run when a run continues, and a few debates as a table."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moot.cli import main
from moot.cli.loggers import COLUMNS, DEBATES, Loggers, check_names, held_out_turns, log_in
from moot.errors import ConfigError
from moot.training.loop import train
from unit.training.test_train import CONFIG, make_setup


class FakeWandb:
    """What `wandb.init` is told, and what its runs log."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.finished = 0

    class Error(Exception):
        """As its own is called."""

    def init(self, **given: Any) -> Any:
        self.begun.append(given)
        return SimpleNamespace(log=self.logged.append, finish=self.finish, define_metric=lambda *_, **__: None)

    def finish(self) -> None:
        self.finished += 1

    def Table(self, columns: list[str], data: list[Any], **_: Any) -> Any:
        return SimpleNamespace(columns=columns, data=data)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, fake)
    return fake


def test_project_and_run_can_be_named_and_are_kept(tmp_path: Path, wandb: FakeWandb) -> None:
    Loggers(["wandb:project=mine,run=abc"], tmp_path, {"seed": 1}).close()
    Loggers(["wandb"], tmp_path).close()
    assert [(init["project"], init["id"], init["resume"]) for init in wandb.begun] == [("mine", "abc", "allow")] * 2
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"wandb": {"project": "mine", "run": "abc"}}
    assert wandb.finished == 2


@pytest.mark.parametrize(
    "kept", ["[1]", '{"wandb": 3}', '{"wandb": {"other": "x"}}', '{"wandb": {"run": 5}}', "{", "[" * 9000]
)
def test_what_tells_it_apart_is_refused_where_it_is_damaged(tmp_path: Path, wandb: FakeWandb, kept: str) -> None:
    (tmp_path / "loggers.json").write_text(kept)
    with pytest.raises(ConfigError, match=r"loggers\.json is damaged; put back what moot wrote"):
        Loggers(["wandb"], tmp_path)
    (tmp_path / "loggers.json").unlink()
    os.mkfifo(tmp_path / "loggers.json")  # nobody waits for it
    with pytest.raises(ConfigError, match=r"loggers\.json is"):
        Loggers(["wandb"], tmp_path)


def test_a_continued_run_is_the_same_run_and_another_run_another(tmp_path: Path, wandb: FakeWandb) -> None:
    for place in ("one", "one", "two"):
        (tmp_path / place).mkdir(exist_ok=True)
        Loggers(["wandb", "trackio"], tmp_path / place)
    first, second, third = (init["id"] for init in wandb.begun if "id" in init)
    assert first == second != third
    assert [init["name"] for init in wandb.begun if "id" not in init] == ["one", "one", "two"]
    with pytest.raises(ConfigError, match="this run is 'moot' there, the project it began with; leave project out"):
        Loggers(["wandb:project=other"], tmp_path / "one")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("wandbs", "log must name tensorboard, wandb, trackio, mlflow, got 'wandbs'"),
        ("wandb:projekt=x", "'projekt' means nothing here; as in wandb:project=mine,run=abc"),
        ("wandb:mine", "'mine' means nothing here"),
        ("tensorboard:project=x", "'project' means nothing here; it has no settings"),
    ],
)
def test_what_is_misspelt_is_refused(given: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_names([given])


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"run: pip install 'moot\[mlflow\]'"):
        check_names(["mlflow:project=mine"])


def test_without_a_key_wandb_says_what_to_do(tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise FakeWandb.Error("No API key configured.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ConfigError, match=r"log wandb: No API key configured; run wandb login.*WANDB_MODE=offline"):
        Loggers(["wandb"], tmp_path)


def test_without_a_key_nothing_is_loaded_and_no_folder_made_and_the_fix_stands_there_once(
    wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its own words name `wandb login`. Offline, and in a dry run, no key is asked for."""

    def refuse() -> None:
        raise FakeWandb.Error("No API key configured. Use `wandb login` to log in.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: name)
    monkeypatch.setattr(wandb, "login", refuse, raising=False)
    given = ["train", "--engine", "scripted", "--log", "wandb", "--run", "run"]
    assert main(given) == 2
    told = "log wandb: No API key configured. Use `wandb login` to log in; or set WANDB_MODE=offline"
    assert capsys.readouterr().err == f"moot: {told}\n" and not (tmp_path / "run").exists()
    assert main([*given, "--dry-run"]) == 0
    with monkeypatch.context() as offline:
        offline.setenv("WANDB_MODE", "offline")
        log_in(["wandb:project=mine"])
    with pytest.raises(ConfigError, match="No API key"):
        log_in(["trackio", "wandb:project=mine"])


def test_an_evaluation_brings_a_few_debates_as_a_table(tmp_path: Path, wandb: FakeWandb) -> None:
    setup = make_setup(tmp_path / "run", replace(CONFIG, eval_questions=6))
    asyncio.run(train(setup))
    loggers = Loggers(["wandb"], setup.run.path)
    rows = setup.run.metrics()
    for row in rows:
        loggers.row(row)
    tables = [row["debates"] for row in wandb.logged if "debates" in row]
    assert len(tables) == sum(row["phase"] == "eval" for row in rows)
    last = tables[-1]
    assert tuple(last.columns) == COLUMNS
    numbers = {turn[COLUMNS.index("number")] for turn in last.data}
    assert numbers == set(range(DEBATES))
    assert len(last.data) == DEBATES * 4 * 2  # agents, rounds
    assert {turn[COLUMNS.index("right")] for turn in last.data} <= {"true", "false"}
    assert list(held_out_turns(setup.run.path, 999)) == []
