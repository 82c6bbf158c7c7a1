"""`moot eval` and `moot check` of a model behind a chat server, as a user types them: no weights, no tokens, the same tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from support.asking import Answer, ChatServer, saying, scripted


def answer(number: int, body: dict[str, Any]) -> Answer:
    """A plain question gets a plain answer of 10 tokens, a debate's request a turn of the script's."""
    return saying("It is \\boxed{7}.") if len(body["messages"]) == 1 else saying(scripted(body))


def here(where: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.chdir(where)
    return main([str(argument) for argument in arguments])


def test_a_chat_server_is_evaluated_in_every_mode_with_its_own_count_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-one-server")
    modes = ("--modes", "direct", "vote", "debate", "opponents", "--k", 3)
    with ChatServer(answer) as server:
        given = (
            "eval",
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "m",
            "--questions",
            2,
            *modes,
            "--json",
        )
        assert here(tmp_path, monkeypatch, *given) == 0, capsys.readouterr()
        asked = len(server.requests)
        # Two questions: 3 plain answers each (the first is direct's), a debate of 3 + 3 * 3 requests, and one per seat against itself.
        assert asked == 2 * (3 + 12 + 3 * 12)
        assert set(server.keys) == {"Bearer a-key-for-one-server"}
        report = json.loads(capsys.readouterr().out)
        assert here(tmp_path, monkeypatch, *given) == 0 and len(server.requests) == asked  # kept, and not asked again
    rows = {row["name"]: row for row in report["rows"]}
    assert {"direct", "vote@3", "debate", "against base"} <= rows.keys()
    assert report["settings"]["policy"] == f"m@{server.url}"
    kept = [json.loads(line) for line in (tmp_path / "evals/m-arithmetic/answers.jsonl").read_text().splitlines()]
    assert {row["tokens"] for row in kept if "text" in row} == {10} and {
        row["tokens"] for row in kept if "turns" in row
    } == {120}


def test_one_model_argues_and_another_at_the_same_server_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two questions. Debate: 2 seats in 2 rounds; consultancy: each seat alone in 2 rounds. Each of the 4 debates has a judge who writes
    twice, once what it thinks and once its verdict: always for the first."""

    def speaks(number: int, body: dict[str, Any]) -> Answer:
        return saying("Agent 0 > Agent 1" if "Now decide which" in body["messages"][-1]["content"] else "Because.")

    with ChatServer(speaks) as server:
        given = (
            "eval",
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "strong",
            "--judge",
            "weak",
            "--questions",
            2,
        )
        modes = ("--protocol", "advocates", "--modes", "debate", "consultancy", "judge", "--json")
        assert here(tmp_path, monkeypatch, *given, *modes) == 0, capsys.readouterr()
        asked = [body["model"] for body in server.requests]
    assert (asked.count("strong"), asked.count("weak")) == (2 * (4 + 4), 2 * 4 * 2)
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["judge"] == f"weak@{server.url}"
    # Each seat has the right side of one question, so whoever always says Agent 0 is right in half.
    assert [row["metrics"]["accuracy"]["value"] for row in report["rows"]] == [0.5, 0.5, 0.5]


def test_a_chat_server_is_checked_before_anybody_thinks_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer(answer) as server:
        given = ("check", "--engine", "openai", "--base-url", server.url, "--model", "m", "--questions", 3)
        status = here(tmp_path, monkeypatch, *given)
    shown = capsys.readouterr()
    assert status in (0, 1) and shown.err == "" and "3 questions" in shown.out
    # A question alone, one turn of round 1 per agent, and three sections each in round 2.
    assert len(server.requests) == 3 * (1 + 4 + 4 * 3)


def test_a_chat_server_cannot_be_trained_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        here(
            tmp_path, monkeypatch, "train", "--engine", "openai", "--base-url", "http://localhost:1/v1", "--model", "m"
        )
        == 2
    )
    assert "engine openai cannot be trained" in capsys.readouterr().err
    assert here(tmp_path, monkeypatch, "eval", "--engine", "openai", "--model", "m") == 2
    assert "engine openai needs --base-url" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_dead_server_loses_the_answers_and_says_which_command_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(number: int, body: dict[str, Any]) -> Answer:
        return 401, {}, [b'{"error": "no"}']

    with ChatServer(broken) as server:
        given = (
            "eval",
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "m",
            "--questions",
            2,
            "--modes",
            "direct",
        )
        assert here(tmp_path, monkeypatch, *given) == 1
    shown = capsys.readouterr()
    assert "set OPENAI_API_KEY to a key it takes" in " ".join((shown.out + shown.err).split())


def test_a_chat_server_answers_and_judges_and_another_model_there_judges_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def speaks(number: int, body: dict[str, Any]) -> Answer:
        asked = body["messages"][-1]["content"]
        if "Yes or No" in asked:
            return saying("Yes" if body["model"] == "kind" or "\\boxed{7}" in body["messages"][0]["content"] else "No.")
        return saying(f"It is \\boxed{{{7 + number % 2}}}.")

    rows = [{"question": f"What is 7 plus {i} minus {i}?", "answer": "7"} for i in range(40)]
    (tmp_path / "sevens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ChatServer(speaks) as server:
        given = (
            "judge",
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "fair",
            "--judges",
            "base",
            "kind",
            "--json",
        )
        assert here(tmp_path, monkeypatch, *given, "--task", "sevens.jsonl", "--questions", 4, "--checks", 2) == 0, (
            capsys.readouterr()
        )
        verdicts = [body for body in server.requests if "Yes or No" in body["messages"][-1]["content"]]
    assert {body["top_logprobs"] for body in verdicts} == {20}
    report = json.loads(capsys.readouterr().out)
    assert [(row["judge"], row["pair_accuracy"]["value"], row["j"]["value"]) for row in report["rows"]] == [
        ("base", 1, 1),
        ("kind", 0.5, 0),
    ]
    assert report["rows"][0]["cost"]["value"] == 2 * 2 * 10
