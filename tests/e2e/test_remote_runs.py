"""`moot train --engine tinker` as a user types it, against a real server on this machine (SkyRL, CPU, a tiny model over bytes)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import tiny_chat
from support.fault_proxy import FaultProxy, end_all_tasks
from support.making import command, surroundings
from support.skyrl_server import KEY, Running, Unavailable, running

pytest.importorskip("tinker")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DEBATES, BATCH = 8, 2
SMALL = [
    "--engine", "tinker", "--lora-rank", 4, "--batch-size", BATCH, "--num-train-datapoints", DEBATES, "--warm-questions", 1,
    "--with", "warm_start:batch_size=1,learning_rate=5e-4", "--eval-every", 0, "--max-tokens", 24, "--learning-rate", 1e-3, "--personas", "--run", "run",
]  # fmt: skip
ENVIRONMENT = {"TINKER_API_KEY": KEY, "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    where = tmp_path_factory.mktemp("skyrl")
    # Fixed shapes: every new one would be compiled.
    shapes = {"sample_max_num_sequences": 3 * BATCH, "train_micro_batch_size": 1}
    try:
        with running(tiny_chat.save(where / "model"), where, **shapes) as started:
            yield started
    except Unavailable as reason:
        pytest.skip(f"DID NOT RUN against SkyRL: {reason}")


def start(where: Path, server: Running, url: str | None = None, *more: object) -> subprocess.Popen[str]:
    arguments = ["train", *SMALL, "--base-url", url or server.url, "--model", server.model, *more]
    return subprocess.Popen(
        command(*arguments),
        cwd=where,
        env=surroundings(ENVIRONMENT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, said
    return said


def rows(where: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (where / "run/metrics.jsonl").read_text().splitlines()]


def check_every_debate_is_there_once(where: Path) -> None:
    """In the records, in the index of their tokens, and in what was trained: as many tokens as debates with a gradient have."""
    told = [row for row in rows(where) if row["phase"] == "self_play"]
    assert [row["step"] for row in told] == [2, 3, 4, 5]
    questions = []
    for row in told:
        debates = [
            json.loads(line) for line in (where / f"run/debates/{row['step']:06d}.jsonl").read_text().splitlines()
        ]
        assert [debate["number"] for debate in debates] == list(range(BATCH))
        assert row["debates/played"] + row["debates/failed"] == BATCH
        assert sum("error" in debate for debate in debates) == row["debates/failed"]
        questions += [debate["question"]["text"] for debate in debates]
        with np.load(where / f"run/debates/{row['step']:06d}.npz") as arrays:
            moved = {int(d) for d, a, b in zip(arrays["debate"], arrays["offsets"], arrays["offsets"][1:], strict=False)
                     if arrays["advantages"][a:b].any()}  # fmt: skip
            tokens = sum(
                int((~arrays["inserted"][a:b]).sum())
                for d, a, b in zip(arrays["debate"], arrays["offsets"], arrays["offsets"][1:], strict=False)
                if int(d) in moved
            )
        assert row["optim/trained_tokens"] == tokens
    assert len(set(questions)) == DEBATES


def test_a_whole_run_of_four_iterations_and_again_for_nothing(server: Running, tmp_path: Path) -> None:
    said = finished(start(tmp_path, server))
    words = " ".join(said.split())
    assert "the server averages losses (mean) where the Tinker API sums them" in words
    assert "every seat samples at temperature 1" in words
    check_every_debate_is_there_once(tmp_path)
    for row in rows(tmp_path):
        if row["phase"] == "self_play":
            assert row["optim/kl_sample_train_v2"] < 1e-6  # sampler and trainer are one model
            assert row["optim/grad_norm"] > 0
            assert row["debates/failed"] == 0
    states = [json.loads(path.read_text())["body"] for path in (tmp_path / "run/checkpoints").glob("*/state.json")]
    assert all(json.loads(body)["engine_state"].startswith("tinker://") for body in states)
    before = (tmp_path / "run/metrics.jsonl").read_text()
    finished(start(tmp_path, server))
    assert (tmp_path / "run/metrics.jsonl").read_text() == before


def test_with_a_fault_on_every_fifth_call_the_run_ends_with_every_debate_accounted_for(
    server: Running, tmp_path: Path
) -> None:
    proxy, loop = FaultProxy(server.port, share=0.2, seed=3), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        finished(start(tmp_path, server, f"http://127.0.0.1:{port}"))
    finally:
        asyncio.run_coroutine_threadsafe(end_all_tasks(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
    assert all(proxy.seen[fault] > 0 for fault in proxy.faults), proxy.seen
    check_every_debate_is_there_once(tmp_path)


def test_a_server_killed_in_the_middle_and_started_again_does_not_end_the_run(server: Running, tmp_path: Path) -> None:
    process = start(tmp_path, server)
    deadline = time.monotonic() + 600
    while not (tmp_path / "run/metrics.jsonl").exists() or len(rows(tmp_path)) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    server.stop(hard=True)
    server.start()
    finished(process)
    check_every_debate_is_there_once(tmp_path)


def test_a_server_that_stays_away_stops_the_run_and_a_later_one_goes_on_from_its_saved_state(
    server: Running, tmp_path: Path
) -> None:
    process = start(tmp_path, server)
    deadline = time.monotonic() + 600
    while not (tmp_path / "run/metrics.jsonl").exists() or len(rows(tmp_path)) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    process.terminate()  # as an operator would, who sees that the server is gone
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "Nothing that was finished is lost" in said
    server.stop(hard=True)
    server.start()
    resumed = subprocess.run(
        command("train", "--resume", "run", "--base-url", server.url),
        cwd=tmp_path,
        env=surroundings(ENVIRONMENT),
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    check_every_debate_is_there_once(tmp_path)


@pytest.mark.parametrize("sections", ["sampled", "given", "asked"])
def test_each_way_to_speak_trains_on_a_real_server(server: Running, tmp_path: Path, sections: str) -> None:
    """One step. What is inserted into a turn is observed: it has no logprob and no advantage, and is not counted as trained."""
    few = (
        "--sections",
        sections,
        "--num-train-datapoints",
        BATCH,
        "--warm-questions",
        0,
        "--evaluation-tokens",
        8,
    )
    finished(start(tmp_path, server, None, *few))
    (row,) = [row for row in rows(tmp_path) if row["phase"] == "self_play"]
    assert row["debates/played"] == BATCH and row["debates/failed"] == 0 and row["optim/kl_sample_train_v2"] < 1e-6
    debates = [json.loads(line) for line in (tmp_path / "run/debates/000001.jsonl").read_text().splitlines()]
    assert {debate["protocol"].get("sections", "sampled") for debate in debates} == {sections}
    with np.load(tmp_path / "run/debates/000001.npz") as arrays:
        inserted = arrays["inserted"]
        assert bool(inserted.any()) == (sections != "sampled")
        assert not arrays["logprobs"][inserted].any() and not arrays["advantages"][inserted].any()
        assert row["tokens/sampled"] == float((~inserted).sum())
    if sections != "sampled":
        assert all(turn["text"].startswith("<solution>") for debate in debates for turn in debate["turns"])
