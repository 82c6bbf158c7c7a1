"""What a command prints is safe to read and to cut off, and it loads only what it needs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.test_cli import line
from support.making import command, moot, surroundings, text

# Pipes


@pytest.mark.parametrize("options", [["--json"], []])
@pytest.mark.parametrize("count", [1, 400])
def test_a_reader_that_goes_away_is_not_an_error_message(options: list[str], count: int) -> None:
    """One line stays in the buffer until the end, 400 do not: both meet a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        given = (line() + "\n").encode() * count
        done = subprocess.run(
            command("score", "-", *options),
            input=given,
            stdout=write,
            stderr=subprocess.PIPE,
            env=surroundings(),
            timeout=120,
        )
    finally:
        os.close(write)
    assert done.stderr == b""


@pytest.mark.parametrize("arguments", [["--help"], ["score", "--help"]])
def test_help_into_a_closed_pipe(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            command(*arguments), stdout=write, stderr=subprocess.PIPE, env=surroundings(), timeout=120
        )
    finally:
        os.close(write)
    assert done.stderr == b""


def test_head(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text((line() + "\n") * 2000)
    done = subprocess.run(
        f"{shlex.join(command('score', path, '--json'))} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        env=surroundings(),
        timeout=120,
    )
    assert json.loads(done.stdout)["line"] == 1
    assert done.stderr == ""


# Hostile text

ESCAPES = "\x1b[2J\x1b]0;owned\x07 \x9b31m \x08\x08 \u202egnp\u202c"
RAW = [char.encode() for char in "\x1b\x07\x9b\x08\u202e"]


def hostile_lines() -> str:
    said = text(ESCAPES, ESCAPES, "five_tag", ESCAPES)
    turn = {"round": 1, "agent": 0, "text": said}
    base = {"question": ESCAPES, "num_agents": 3, "turns": [turn]}
    bad: list[Any] = [
        base,
        {**base, "protocol": {"contract": "three_tag"}},
        {**base, ESCAPES: 1},
        {**base, "protocol": {ESCAPES: 1}},
        {**base, "protocol": {"schedule": ESCAPES}},
        {**base, "protocol": {"reward": ESCAPES}},
        {**base, "protocol": {"visible": [ESCAPES]}},
        {**base, "answer": {ESCAPES: 1}},
    ]
    return "\n".join(json.dumps(each, ensure_ascii=number % 2 == 0) for number, each in enumerate(bad)) + "\n" + ESCAPES


@pytest.mark.parametrize("options", [[], ["--json"], ["--protocol", "v1"], ["--protocol", "v1", "--json"]])
def test_escape_codes_never_reach_the_terminal(options: list[str]) -> None:
    done = moot("score", "-", *options, given=hostile_lines())
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    written = (done.stdout + done.stderr).encode()
    assert [raw for raw in RAW if raw in written] == []
    assert b"u001b" in written, "it is shown, not dropped"


def test_escape_codes_on_the_command_line_do_not_either() -> None:
    for arguments in (
        ["score", f"{ESCAPES}.jsonl"],
        [ESCAPES],
        ["score", "-", "--reward", ESCAPES],
        ["score", "-", "--protocol", ESCAPES],
    ):
        done = moot(*arguments)
        assert done.returncode == 2
        assert [raw for raw in RAW if raw in (done.stdout + done.stderr).encode()] == []


def test_hostile_debates_are_shown_safely(tmp_path: Path) -> None:
    """In twenty debates of six the script says every hostile thing it knows, escape codes among them."""
    done = moot("demo", "--style", "hostile", "--debates", 20, "--agents", 6, cwd=tmp_path)
    assert done.returncode == 0
    assert "\\u001b" in (tmp_path / "runs" / "demo.jsonl").read_text()
    shown = moot("score", tmp_path / "runs" / "demo.jsonl")
    assert [raw for raw in RAW if raw in (done.stdout + shown.stdout + done.stderr + shown.stderr).encode()] == []


def test_markup_in_a_question_is_text() -> None:
    done = moot("score", "-", given=line(question="[red]What[/red] is [link=x]3[/link]?"))
    assert "Line 1: [red]What[/red] is [link=x]3[/link]?" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_cannot_spell_it_gets_the_rest(encoding: str) -> None:
    done = moot(
        "score", "-", given=line(question="数学 🙂?"), environment={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    assert "Agent 0 won" in done.stdout


def test_a_file_name_with_odd_bytes_is_reported() -> None:
    done = subprocess.run(
        [*map(os.fsencode, command("score")), b"\xff\xfe.jsonl"], capture_output=True, env=surroundings(), timeout=120
    )
    assert done.returncode == 2
    assert b"no such file" in done.stderr
    assert b"Traceback" not in done.stderr


# Imports


def imported(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=surroundings(), timeout=120, check=True
    )
    return set(done.stdout.split())


HEAVY = {"torch", "transformers", "tokenizers", "renderers", "tinker", "httpx", "datasets", "huggingface_hub"}


def test_importing_moot_costs_nothing() -> None:
    found = imported("import moot")
    assert "moot" in found
    assert not found & (HEAVY | {"numpy", "rich", "tyro"})


def test_the_heart_needs_nothing_but_the_standard_library() -> None:
    found = imported("import moot.debate.play, moot.debate.rewards, moot.tools.transcripts, moot.rl.advantages")
    assert not found & (HEAVY | {"numpy", "rich", "tyro"})


def test_scoring_waits_for_no_model_library() -> None:
    assert not imported("import moot.cli.score") & (HEAVY | {"numpy"})
