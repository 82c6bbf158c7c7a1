"""A configuration from a file, in YAML or as a run left it; and numbers that no configuration may hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import ConfigError
from moot.settings.file import read_run_file, with_settings
from moot.settings.presets import PRESETS
from moot.settings.train import TrainConfig

BASE = PRESETS["demo"]
MINE = """
learning_rate: 1e-5
optim:
  batch_size: 4
reward: win_rate
advantage: center_group
eval_modes: [direct]
seed: 3
"""


def read(tmp_path: Path, text: str, name: str = "mine.yaml") -> TrainConfig:
    (tmp_path / name).write_text(text)
    return with_settings(BASE, read_run_file(tmp_path / name).settings)


def test_settings_may_stand_in_their_sections_or_alone_and_the_rest_stays(tmp_path: Path) -> None:
    config = read(tmp_path, MINE)
    assert (config.optim.learning_rate, config.optim.batch_size, config.seed, config.eval_modes) == (
        1e-5,
        4,
        3,
        ("direct",),
    )
    assert config.as_dict()["protocol"]["reward"] == "win_rate"
    assert config.warm_questions == BASE.warm_questions and config.debate == BASE.debate


def test_a_runs_own_file_gives_its_configuration_back(tmp_path: Path) -> None:
    other = replace(BASE, seed=5, optim=replace(BASE.optim, learning_rate=0.25))
    assert read(tmp_path, json.dumps({"format": 1, "config": other.as_dict()}), "run.json") == other


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("learning_rat: 1", "there is no setting 'learning_rat'; did you mean learning_rate?"),
        ("batch_size: many", "batch_size must be a whole number, got 'many'"),
        ("batch_size: 2.5", "batch_size must be a whole number, got 2.5"),
        ("deterministic: 3", "deterministic must be true or false, got 3"),
        ("learning_rate: fast", "learning_rate must be a number, got 'fast'"),
        ("eval_modes: direct", "eval_modes must be a list, got 'direct'"),
        ("engine: steam", "engine must be local or tinker or scripted or openai, got 'steam'"),
        ("learning_rate: -1", "learning_rate must be 0 or more, got -1.0"),
        ("[1, 2]", "must hold settings with their values"),
        ("a: [", "cannot be read as YAML"),
        ("preset: 3", "mine.yaml: preset must be a name, as in preset: majority; got 3"),
        ("seeds: 0", "mine.yaml: seeds must be a list of whole numbers, as in seeds: [0, 1, 2]; got 0"),
        ("seeds: [a]", "mine.yaml: seeds must be a list of whole numbers"),
        ("run: [x]", "mine.yaml: run must be a folder, as in run: runs/mine; got ['x']"),
        ("seeds: [0]\nseed: 1", "mine.yaml: seeds names the seed of each run; leave seed out"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("section", "name", "value", "says"),
    [
        ("optim", "learning_rate", -1.0, "learning_rate must be 0 or more, got -1.0"),
        ("optim", "learning_rate", float("nan"), "learning_rate must be a number, got nan"),
        ("optim", "learning_rate", -1.0, "learning_rate must be 0 or more"),
        ("model", "cache_gib", -1.0, "cache_gib must be 0 or more"),
    ],
)
def test_a_rate_a_clip_or_a_coefficient_that_makes_no_sense_is_refused(
    section: str, name: str, value: float, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(BASE, **{section: replace(getattr(BASE, section), **{name: value})})


def test_choices_of_the_protocol_that_are_off_can_be_named(tmp_path: Path) -> None:
    rules = read(tmp_path, "shuffle_labels: true\nclosing_ballot: true\nreward: win_rate\n").protocol.rules
    assert rules.shuffle_labels and rules.closing_ballot


@pytest.mark.parametrize(
    "text",
    [
        "with: [past_selves:share=0.3]",
        "with: past_selves:share=0.3",
        "parts: [distill, distill:off, past_selves:share=0.3]",
    ],
)
def test_parts_of_training_stand_under_with(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text + "\n").parts == ("past_selves:share=0.3",)


def test_a_setting_that_belongs_to_a_part_is_answered_with_how_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"there is no setting 'kl_coef'; it belongs to a part of training now: --with kl_penalty",
    ):
        read(tmp_path, "kl_coef: 0.1\n")
