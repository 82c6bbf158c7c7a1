"""`moot ask --file`: many questions, and a file of answers that the same command continues. Wrong usage is told first."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.test_ask_cli import QUESTION, TAGS, Dying, ask
from moot.cli import main
from support.asking import Answer, ChatServer, here, saying, scripted
from support.making import command, moot, surroundings
from support.making import text as turn_text

# Questions from a file


def test_a_file_of_questions_is_answered_and_asked_only_once(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("What is 3 + 4?\n\nWhat is 1 + 6?\n")
    with ChatServer() as server:
        done = ask(server, "--file", "q.txt", question=None, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "2 answered: runs/ask-q.jsonl" in done.stdout
        rows = [json.loads(line) for line in (tmp_path / "runs/ask-q.jsonl").read_text().splitlines()]
        assert {row["number"]: row["question"] for row in rows} == {1: "What is 3 + 4?", 3: "What is 1 + 6?"}
        assert len(server.requests) == 12
        again = ask(server, "--file", "q.txt", "--json", question=None, cwd=tmp_path)
        assert again.returncode == 0 and len(server.requests) == 12
        assert sorted(json.loads(line)["number"] for line in again.stdout.splitlines()) == [1, 3]


def test_a_file_goes_on_where_a_dead_server_left_it(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(
        "".join(json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) + "\n" for n in range(6))
    )
    options = ("--file", "q.jsonl", "--out", "a.jsonl", "--concurrency", 1, "--retries", 0)
    server = Dying(2 * 6 + 4)
    server.__enter__()
    first = ask(server, *options, question=None, cwd=tmp_path)
    assert first.returncode == 1
    assert "2 answered" in first.stdout and "The same command again asks only these" in first.stderr
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["ended"] for row in rows] == ["done"] * 2 + ["failed"] * 3  # then nobody is there, and the rest waits
    assert len(rows[2]["turns"]) in (
        3,
        4,
    )  # round 1, and the turn that was answered if it came before the failure beside it

    def seven(number: int, body: dict[str, Any]) -> Answer:
        return saying(turn_text("N/A", "\\boxed{6}"))

    with ChatServer(seven) as alive:
        environment = {"OPENAI_BASE_URL": alive.url}
        other = here("--engine", "openai", "--model", "m", *options, cwd=tmp_path, environment=environment)
        assert other.returncode == 2 and "was begun with base_url" in other.stderr
        (tmp_path / "a.jsonl").write_text(
            (tmp_path / "a.jsonl").read_text().replace(server.url, alive.url) + '{"number": 6, "torn'
        )
        second = ask(alive, *options, question=None, cwd=tmp_path)
        assert second.returncode == 0, second.stderr
        assert len(alive.requests) == 4 * 6
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5, 6] and {row["ended"] for row in rows} == {"done"}
    assert [row["correct"] for row in rows[2:]] == [False, False, False, True]


def test_ctrl_c_in_a_file_loses_no_answer(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(f"What is {n} + 1?" for n in range(5)))

    def answer(number: int, body: dict[str, Any]) -> Answer:
        if number >= 8:
            time.sleep(30)
        return saying(scripted(body))

    with ChatServer(answer) as server:
        given = command(
            "ask", "--engine", "openai", "--base-url", server.url, "--model", "m", *TAGS, "--file", tmp_path / "q.txt",
            "--out", tmp_path / "a.jsonl", "--concurrency", 1,
        )  # fmt: skip
        process = subprocess.Popen(given, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(server.requests) < 9:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "1 answered, 4 not" in output
    assert "The same command continues" in errors
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(row["ended"], len(row["turns"])) for row in rows] == [("done", 6), ("interrupted", 2)]


def test_a_reader_that_goes_away_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(f"What is {n} + 1?" for n in range(40)))
    with ChatServer(lambda number, body: saying(turn_text("N/A", "x" * 20_000))) as server:
        given = command(
            "ask",
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "m",
            *TAGS,
            "--file",
            "q.txt",
            "--json",
            "--rounds",
            1,
        )
        line = f"{shlex.join(given)} | head -c 100"
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=surroundings(), capture_output=True, text=True, timeout=60
        )
    assert "Traceback" not in done.stderr and len(done.stdout) == 100


def test_a_full_disk_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("moot.util.disk.os.fsync", full)
    assert main(["ask", QUESTION, "--engine", "scripted", "--out", str(tmp_path / "a.jsonl")]) == 1
    assert "the disk is full" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_file_that_is_not_ours_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    done = here(QUESTION, "--engine", "scripted", "--out", tmp_path / "notes.txt")
    assert done.returncode == 2 and "not written by moot ask; name another --out" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "ask one question, or give --file"),
        (("q", "--file", "x"), "ask one question, or give --file"),
        (("  ",), "ask one question, or give --file"),
        (("q", "--engine", "openai", "--model", "m"), "engine openai needs --base-url"),
        (("q", "--engine", "openai", "--base-url", "http://x"), "engine openai needs --model"),
        (
            ("q", "--engine", "openai", "--base-url", "x:1", "--model", "m"),
            "base-url must begin with http:// or https://, got 'x:1'",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://[::1", "--model", "m"),
            "base-url must begin with http:// or https://",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://x:99999", "--model", "m"),
            "base-url must begin with http:// or https://",
        ),
        (
            ("q", "--engine", "openai", "--base-url", "http://me:secret@x/v1", "--model", "m"),
            "must not hold a name or a password",
        ),
        (("q", "--tokenizer", "x"), "tokenizer is for --engine tinker"),
        (("q", "--base-url", "http://x"), "base-url is for --engine openai"),
        (("q", "--seat", "1:m"), "seat must be NUMBER=MODEL@BASE-URL, got '1:m'"),
        (("q", "--seat", "3=m@http://x"), "seat 3 does not exist among 3 agents"),
        (("q", "--seat", "1=m"), "names no server"),
        (("q", "--seat", "1=m@http://x", "--seat", "1=n@http://x"), "seat 1 is given twice"),
        (("q", "--agents", "0"), "agents must be at least 1, got 0"),
        (("q", "--max-tokens", "0"), "max-tokens must be at least 1, got 0"),
        (("q", "--temperature", "-1"), "temperature must be 0 or more, got -1.0"),
        (("q", "--timeout", "0"), "timeout must be above 0 seconds"),
        (("q", "--price-in", "1"), "price-in and price-out go together"),
        (("q", "--engine", "scripted", "--checkpoint", "x"), "checkpoint needs --engine local or tinker"),
        (("--file", "missing.txt"), "missing.txt: no such file"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = here(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "holds no questions"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"question": "a"}\nplain\n', "line 2: not JSON"),
        (b'{"q": "a"}\n', "line 1: needs a text under question"),
        (b'{"question": "a", "answer": [1]}\n', "line 1: answer must be a string or a number"),
    ],
)
def test_a_bad_file_is_found_before_anything_is_asked(raw: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(raw)
    done = here("--file", tmp_path / "q", "--engine", "scripted")
    assert done.returncode == 2 and says in done.stderr


def test_the_help_shows_how_to_begin() -> None:
    done = moot("ask", "--help")
    assert done.returncode == 0
    assert all(
        option in done.stdout
        for option in ("QUESTION", "--seat", "--base-url", "--checkpoint", "--price-in", "OPENAI_API_KEY")
    )
