"""A part in one file may bring a judge: nothing else has to be told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import moot
from moot.cli.main import main
from moot.debate.protocols import PRESETS as PROTOCOLS
from moot.errors import ConfigError
from moot.runs import PlayedDebate
from moot.settings.presets import find_preset
from moot.settings.train import TrainConfig
from moot.training.parts import find_parts

PART = '''
from moot.training.part import Part


class Strict(Part):
    """The policy of the beginning judges, and is asked for approval where anybody asks."""

    guest = None

    async def begin(self, setup, step, sampler):
        self.guest = self.guest or setup.guest(sampler)

    def judge(self):
        return self.guest

    def asks(self):
        return {"ballot": "approval", "checks": 2, "show": "answer"}


class Other(Strict):
    """One more."""


class Truthful(Part):
    """Needs a reward with truth in it."""

    needs = ("truth",)


class Agreed(Part):
    """Says which answer is right."""

    sets_labels = True
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PART)
    return "mine.py:Strict"


def small(*parts: str, reward: str = "generator_judge") -> TrainConfig:
    demo = find_preset("demo")
    return replace(
        demo,
        model=replace(demo.model, engine="scripted"),
        optim=replace(demo.optim, batch_size=2, num_train_datapoints=2),
        protocol=demo.protocol.with_choices(reward=reward),
        warm_questions=0,
        eval_every=0,
        parts=parts,
    )


def test_its_judge_is_heard_in_training(mine: str, tmp_path: Path) -> None:
    run = moot.train(small(mine), tmp_path / "run")
    debates = [played for played in run.debates() if isinstance(played, PlayedDebate)]
    assert [len(played.debate.jury) for played in debates] == [1, 1]
    assert "trust/outside_accuracy" in run.metrics()[-1]


def test_moot_check_asks_it_as_it_says(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--engine", "scripted", "--questions", "2", "--with", mine, "--json"])
    checks = {found["check"] for found in json.loads(capsys.readouterr().out)["checks"]}
    assert "judge base, approval ×2, answer" in checks


def test_the_code_of_a_part_that_a_run_names_waits_for_a_word(
    mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moot.train(small(mine), tmp_path / "run")
    assert main(["check", str(tmp_path / "run"), "--questions", "2"]) == 2
    assert "mine.py:Strict" in capsys.readouterr().err


def test_a_part_that_needs_a_judge_takes_it(mine: str) -> None:
    find_parts(small("judge_filter", mine, reward="majority"))
    find_parts(small("judge_filter", mine, reward="majority"), users=False)  # nobody knows what is not loaded


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (small("mine.py:Strict", "mine.py:Other"), "mine.py:Strict brings the judge itself, got mine.py:Other too"),
        (small("mine.py:Strict", "moving_judge"), "mine.py:Strict brings the judge itself, got moving_judge too"),
        (small("program_votes", "mine.py:Agreed", reward="majority"), "got mine.py:Agreed too; leave one of them out"),
        (
            replace(small().under(PROTOCOLS["advocates"]), parts=("mine.py:Truthful",)),
            "mine.py:Truthful must be left out with positions assigned: no reward of advocates has truth in it",
        ),
    ],
)
@pytest.mark.usefixtures("mine")
def test_what_it_cannot_stand_beside_is_named(config: TrainConfig, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_parts(config)
