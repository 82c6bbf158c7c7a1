"""`moot ask` against a real server with a real model: `transformers serve` and SmolLM2, started here, killed here."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.asking import Answer, ChatServer, forwarding
from support.making import command, surroundings

pytest.importorskip("torch")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow


class Serve:
    """`transformers serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        from moot.engine.local.smollm import find_smollm

        self.model = str(find_smollm()[0])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._log = folder / "serve.log"
        given = [
            str(Path(sys.executable).parent / "transformers"),
            "serve",
            self.model,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        environment = surroundings({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
        self.process = subprocess.Popen(
            [*given, "--device", "cpu"], stdout=self._log.open("w"), stderr=subprocess.STDOUT, env=environment
        )
        until = time.monotonic() + 300
        while not self._ready():
            assert self.process.poll() is None and time.monotonic() < until, self._log.read_text()[-4000:]
            time.sleep(0.5)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    running = Serve(tmp_path_factory.mktemp("serve"))
    yield running
    running.kill()


def asking(model: str, url: str, *more: object) -> list[str]:
    tags = () if "--sections" in more else ("--sections", "sampled")
    return command("ask", "What is 17 + 25?", "--engine", "openai", "--base-url", url, "--model", model, *tags, *more)


def ask(model: str, url: str, *more: object) -> subprocess.CompletedProcess[str]:
    """A small model on a busy machine may write a word a second."""
    return subprocess.run(asking(model, url, *more), env=surroundings(), capture_output=True, text=True, timeout=1200)


def test_a_real_model_debates_and_its_server_counts_the_tokens(serve: Serve) -> None:
    done = ask(serve.model, serve.url, "--max-tokens", 24, "--json", "--price-in", 1, "--price-out", 2)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ended"] == "done" and found["asked_again"] == 0
    assert [(turn["round"], turn["agent"]) for turn in found["turns"]] == [(r, a) for r in (1, 2) for a in range(3)]
    assert all(turn["text"].strip() for turn in found["turns"])
    tokens = found["tokens"]
    assert tokens["turns_without_count"] == 0 and tokens["read"] > 6 * 200 and 6 <= tokens["written"] <= 6 * 24
    assert abs(found["cost"] - (tokens["read"] + 2 * tokens["written"]) / 1e6) < 1e-12


def test_a_real_model_is_asked_section_by_section_and_one_that_cannot_continue_an_answer_is_refused_by_name(
    serve: Serve,
) -> None:
    """Each of three answers the plain question in round 1; in round 2 it is asked to evaluate, to compare and to solve again."""
    done = ask(serve.model, serve.url, "--sections", "asked", "--max-tokens", 8, "--rounds", 2, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ended"] == "done" and len(found["turns"]) == 6
    assert all(turn["text"].startswith("<solution>") for turn in found["turns"])
    assert 12 <= found["tokens"]["written"] <= 12 * 8
    given = ask(serve.model, serve.url, "--sections", "given", "--max-tokens", 8, "--rounds", 1)
    assert given.returncode == 1
    assert (
        "cannot continue an answer that is begun, which sections given needs; use sections asked or sampled"
        in given.stderr
    )


def test_a_rate_limit_before_a_real_server_is_waited_out(serve: Serve) -> None:
    forward = forwarding(serve.url)

    def answer(number: int, body: dict[str, Any]) -> Answer:
        return (
            (429, {"Retry-After": "1"}, [b'{"error": {"message": "too fast"}}']) if number % 2 == 0 else forward(body)
        )

    with ChatServer(answer) as proxy:
        done = ask(serve.model, proxy.url, "--max-tokens", 8, "--rounds", 1, "--retries", 9)
    assert done.returncode == 0, done.stderr
    assert "answered 429, too many requests (too fast); asking again in" in done.stdout
    assert [f"Round 1 · Agent {agent}" in done.stdout for agent in range(3)] == [True] * 3


def test_a_server_killed_in_the_middle_of_a_debate_leaves_what_was_said_and_a_clear_end(tmp_path: Path) -> None:
    serve = Serve(tmp_path)
    try:
        given = asking(serve.model, serve.url, "--max-tokens", 16, "--rounds", 9, "--retries", 1)
        # Unbuffered, so that the moment of the kill can be chosen by what is shown.
        environment = surroundings({"PYTHONUNBUFFERED": "1"})
        process = subprocess.Popen(given, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if "Round 2 · Agent" in line:
                break
        serve.kill()
        output, errors = process.communicate(timeout=120)
        shown += output
    finally:
        serve.kill()
    assert process.returncode == 1, shown + errors
    assert [f"Round 1 · Agent {agent}" in shown for agent in range(3)] == [True] * 3
    assert "Answer:" not in shown
    assert errors.startswith("moot: the debate broke off in round ") and f"{serve.url} cannot be reached" in errors
    assert "See that the server runs and answers, then ask again" in errors and errors.count("\n") == 1
    assert shown.count(" · Agent ") >= 4


def test_it_stops_where_it_is_told_to(serve: Serve) -> None:
    """What this server does with a stop string, which decides whether a missing closing tag may be forgiven."""
    import asyncio

    from moot.debate.types import Message
    from moot.players.chat.chat import Chat, ChatRequest
    from moot.players.chat.endpoint import Endpoint

    async def ask(stop: str, most: int) -> Any:
        chat = Chat(Endpoint(serve.url, serve.model))
        reply = await chat.reply(ChatRequest((Message("user", "Count from 1 to 9: 1, 2, 3,"),), most, 0.0, stop))
        await chat.close()
        return reply

    long = asyncio.run(ask("</comparison>", 24))
    assert long.finish == "length" and long.completion_tokens == 24
    word = long.text.split()[3]
    short = asyncio.run(ask(word, 24))
    assert short.finish == "stop" and short.completion_tokens < 24
    assert long.text.startswith(short.text) and word in short.text  # it keeps the string that others leave out
