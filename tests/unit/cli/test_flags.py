"""One spelling of an option across commands, and both ways of a switch."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from moot.cli.main import _parse
from moot.cli.registry import ProtocolName
from moot.cli.rescore import respelled
from moot.cli.train import demo_elsewhere, started_elsewhere
from moot.debate.protocols import PRESETS
from moot.runs import Run


def test_every_preset_of_the_rules_can_be_named() -> None:
    assert get_args(ProtocolName) == tuple(PRESETS)


@pytest.mark.parametrize(("flag", "expected"), [("--personas", True), ("--no-personas", False)])
def test_a_switch_can_be_turned_on_and_off(flag: str, expected: bool) -> None:
    assert _parse("train", ["--engine", "scripted", flag]).config.protocol.rules.personas is expected


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("train", ["--num-agents", "5"]), ("eval", ["--num-agents", "5"]), ("demo", ["--num-agents", "5"]), ("demo", ["--agents", "5"]),
     ("ask", ["x", "--num-agents", "5"]), ("ask", ["x", "--agents", "5"])],
)  # fmt: skip
def test_agents_are_counted_by_the_same_option_everywhere(command: str, arguments: list[str]) -> None:
    options = _parse(command, arguments)
    found = (
        options.config.debate.num_agents
        if command == "train"
        else getattr(options, "num_agents", None) or options.agents
    )
    assert found == 5


@pytest.mark.parametrize(
    ("typed", "choices"),
    [
        (["--no-literal"], {"literal": False}),
        (["--literal"], {"literal": True}),
        (["--literal", "no"], {"literal": False}),
        (["--no-one-ballot-per-pair", "--steps", "3"], {"one_ballot_per_pair": False}),
        (["--one-ballot-per-pair", "--reward", "win_rate"], {"one_ballot_per_pair": True, "reward": "win_rate"}),
        ([], {}),
    ],
)
def test_rescore_has_switches_like_the_others_and_leaves_the_rest_as_trained(
    typed: list[str], choices: dict[str, object]
) -> None:
    assert _parse("rescore", ["run", *typed]).choices() == choices
    assert "--steps" not in typed or "--steps" in respelled(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--model", "Qwen/Qwen3-8B"], True),
        (["--task", "gsm8k"], True),
        (["--task", "gsm8k", "--max-tokens", "400"], False),
        (["--task", "gsm8k", "--reward", "truth"], False),
        (["--preset", "easy"], False),
        (["--task", "arithmetic:operands=3"], False),
        (["--task", "gsm8k", "--engine", "scripted"], False),
    ],
)
def test_the_demos_short_answers_are_pointed_out_to_other_models_and_tasks(typed: list[str], said: bool) -> None:
    train = _parse("train", typed)
    note = demo_elsewhere(train.preset, train.config)
    assert (note is not None) is said
    assert (
        not note
        or "at most 64 tokens, 20 questions. For other models and tasks start from --preset majority, easy, math or hard."
        in note
    )


def test_a_start_that_was_trained_on_something_else_is_pointed_out(tmp_path: Path) -> None:
    """`--from` takes weights alone: the questions and the reward are this run's."""
    there = _parse("train", ["--task", "countdown", "--reward", "truth"]).config
    Run.create(tmp_path / "there", there.as_dict(), {})
    start = f"{tmp_path / 'there'}@best"
    note = started_elsewhere(_parse("train", ["--from", start]).config)
    assert note is not None
    assert "was trained on countdown with reward truth, and this run trains on arithmetic with generator_judge" in note
    assert note.endswith(f"--config {tmp_path / 'there'}/run.json keeps its settings.")
    assert (
        started_elsewhere(_parse("train", ["--from", start, "--task", "countdown", "--reward", "truth"]).config) is None
    )
    assert started_elsewhere(_parse("train", []).config) is None
