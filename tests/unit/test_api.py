"""What `import moot` offers: the names, and that each does what docs/api.md says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import moot
from moot import Observation, Question, Said
from support.making import FAILED, debate, text, v1, v2


def test_every_name_is_there_and_told_to_type_checkers() -> None:
    told = Path(moot.__file__).read_text().split("if TYPE_CHECKING:")[1].split("_HOMES")[0]
    for name in moot.__all__:
        assert getattr(moot, name) is not None and re.search(rf"\b{name}\b", told)
    assert set(moot._HOME) == set(moot.__all__) <= set(dir(moot))
    with pytest.raises(AttributeError, match="has no attribute 'debates'; it offers PRESETS, V1, V2"):
        _ = moot.debates


def test_importing_it_imports_nothing_of_weight() -> None:
    program = "import sys, typing, importlib, __future__; before = set(sys.modules); import moot; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if not name.startswith("importlib")] == ["moot"]


# Playing


def answers(observation: Observation) -> str:
    """Agent i answers i in round 1, and prefers the lower number of the others in round 2."""
    others = observation.eligible
    return text(f"Agent {others[0]} > Agent {others[1]}" if len(others) > 1 else "N/A", f"\\boxed{{{observation.agent}}}")


def test_a_plain_function_speaks_for_every_seat() -> None:
    played = moot.play("What is 3 + 4?", answers)
    assert played.done and [(turn.round, turn.agent) for turn in played.turns] == [(r, a) for r in (1, 2) for a in range(3)]
    assert [turn.fields and turn.fields["comparison"] for turn in played.turns[3:]] == [
        "Agent 1 > Agent 2",
        "Agent 0 > Agent 2",
        "Agent 0 > Agent 1",
    ]


def test_coroutines_speak_at_once_and_plain_functions_in_turn() -> None:
    order: list[str] = []

    def plain(observation: Observation) -> Said:
        order.append(f"{observation.agent} begins")
        order.append(f"{observation.agent} ends")
        return Said(answers(observation))

    async def waiting(observation: Observation) -> str:
        order.append(f"{observation.agent} begins")
        await asyncio.sleep(0)
        order.append(f"{observation.agent} ends")
        return answers(observation)

    moot.play("?", plain, max_rounds=1)
    assert order == ["0 begins", "0 ends", "1 begins", "1 ends", "2 begins", "2 ends"]
    order.clear()
    moot.play("?", waiting, max_rounds=1)
    assert order == ["0 begins", "1 begins", "2 begins", "0 ends", "1 ends", "2 ends"]


def test_a_speaker_per_seat_and_judges_without_one() -> None:
    def mumbles(observation: Observation) -> str:
        return "mumble"

    def judge(observation: Observation) -> str:
        assert observation.agent == 3 and observation.messages[-1]["role"] == "user"
        return "<evaluation>Fine.</evaluation><comparison>Agent 2 > Agent 0</comparison>"

    played = moot.play(Question("What is 3 + 4?", "7"), [answers, mumbles, answers], judges=[judge])
    assert [turn.failed for turn in played.turns] == [False, True, False] * 2
    assert [turn.fields for turn in played.jury] == [{"evaluation": "Fine.", "comparison": "Agent 2 > Agent 0"}]


def test_it_works_where_a_loop_is_running_as_in_a_notebook() -> None:
    async def cell() -> int:
        return len(moot.play("?", answers).turns)

    assert asyncio.run(cell()) == 6


def test_mistakes_of_a_speaker_are_loud() -> None:
    with pytest.raises(moot.ConfigError, match="one function or one per seat, got 2 for 3 agents"):
        moot.play("?", [answers, answers])
    with pytest.raises(TypeError, match="a speaker must return a string or Said, and 'nothing' returned None"):

        def nothing(observation: Observation) -> None: ...

        moot.play("?", nothing)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        moot.play("?", lambda observation: str(1 / 0))


# Training

SMALL = replace(
    moot.PRESETS["demo"],
    model=replace(moot.PRESETS["demo"].model, engine="scripted"),
    warm=replace(moot.PRESETS["demo"].warm, warm_questions=0),
    optim=replace(moot.PRESETS["demo"].optim, batch_size=2, num_train_datapoints=4),
    debate=replace(moot.PRESETS["demo"].debate, max_tokens=1500),
    eval_questions=2,
)


def test_training_from_a_configuration_gives_a_run_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = []
    run = moot.train(SMALL, tmp_path / "run", watch=rows.append)
    assert [(row["step"], row["phase"]) for row in rows] == [(0, "eval"), (1, "self_play"), (2, "self_play"), (2, "eval")]
    assert run.metrics() == rows and run.steps() == [1, 2]
    assert capfd.readouterr() == ("", "")


def test_a_run_is_continued_and_other_settings_are_refused(tmp_path: Path) -> None:
    class Enough(Exception): ...

    def once(row: dict[str, Any]) -> None:
        if row["step"] == 1:
            raise Enough

    with pytest.raises(Enough):
        moot.train(SMALL, tmp_path / "run", watch=once)
    with pytest.raises(moot.ConfigError, match=r"was started with other settings \(seed 0 -> 1\); name another folder"):
        moot.train(replace(SMALL, seed=1), tmp_path / "run")
    run, whole = moot.train(SMALL, str(tmp_path / "run")), moot.train(SMALL, tmp_path / "whole")
    texts = [[(tmp_path / name / "debates" / f"00000{step}.jsonl").read_bytes() for step in (1, 2)] for name in ("run", "whole")]
    assert run.steps() == whole.steps() == [1, 2] and texts[0] == texts[1]


# Looking


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(name == "style" for name, _ in attributes)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_notebook_shows_a_debate_and_nothing_it_says_is_markup() -> None:
    evil = '<script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J\u202e'
    played = moot.play(Question(evil, evil), lambda seen: text("N/A", evil) if seen.agent else f"mumble {evil}", max_rounds=1)
    page = Tags()
    page.feed(played._repr_html_())
    assert page.tags <= {"div", "p", "b", "table", "tr", "th", "td", "small", "br", "i"}
    assert page.words.count("<script>alert(1)</script>") == 2 + 3
    assert "\\u001b[2J\\u202e" in page.words and "\x1b" not in page.words
    assert "Agent 2" in page.words and "Round 1" in page.words and "failed: no <solution> in the text" in page.words


def test_ballots_judges_and_an_empty_debate_are_shown_too() -> None:
    played = debate(v2(closing_ballot=True), [["", FAILED, ""], ["1 > 2", "", ""]])
    assert "Round 2" in played._repr_html_()
    assert "Nobody has spoken." in moot.Debate(Question("?"), rules=v1().rules)._repr_html_()
