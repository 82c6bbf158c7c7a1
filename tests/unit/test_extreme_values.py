"""Values that no honest file holds, and what they are met with: one clear line, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.cli import main
from moot.debate.prompt_texts import load_prompts
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.evaluate.figures import Panel
from moot.players.chat.reading import _count
from moot.runs.record import with_turns
from moot.tasks.near_misses import slip


def test_settings_nested_deep_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = "[" * 5000 + "]" * 5000
    for name, text in {"a.yaml": deep, "a.json": f'{{"seed": {deep}}}'}.items():
        (tmp_path / name).write_text(text)
        assert main(["train", "--config", str(tmp_path / name), "--dry-run"]) == 2
        said = capsys.readouterr().err
        assert "cannot be read as" in said and said.count("\n") == 1
    (tmp_path / "a.toml").write_text(f"a = {deep}")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_prompts(str(tmp_path / "a.toml"))


def test_a_known_answer_of_thousands_of_digits_has_a_near_miss() -> None:
    right = "9" * 5000
    wrong = slip(right, 0)
    assert wrong != right and len(wrong) == 5000
    assert slip("41", 0) != "41" and slip("99", 0) == str(99 + int(slip("10", 0)) - 10)


def test_a_metric_too_large_to_draw_is_not_drawn() -> None:
    panel = Panel("accuracy", "", "eval", "x")
    assert [
        panel.value({"step": 1, "phase": "eval", "x": value}) for value in (10**400, float("nan"), float("inf"), 0.5)
    ] == [
        None,
        None,
        None,
        0.5,
    ]


def test_an_agent_that_is_no_number_is_named() -> None:
    for agent in ([0], "0", True, 3):
        with pytest.raises(ConfigError, match="agent must lie in 0 to 2, got"):
            with_turns(Debate(Question("?"), 3, 1), [{"round": 1, "agent": agent, "text": ""}])


def test_a_servers_count_of_impossible_size_is_no_count() -> None:
    assert [_count(value) for value in (10**400, -1, True, "7", 7)] == [None, None, None, None, 7]
