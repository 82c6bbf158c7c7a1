"""The ledger with a server that fails, hangs and forgets, and callers who are cancelled, retry, or come beside `close`: none is lost.

MOOT_STRESS_SECONDS=600 runs it for ten minutes.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from moot.engine.remote import engine as remote
from moot.engine.remote import wire
from moot.engine.remote.engine import RemoteEngine, RemoteSampler
from moot.engine.remote.ledger import ReplayLog
from moot.errors import EngineError
from support.stressing import PATIENCE_S, answered, quick_switches, seeds, tell


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 0.0005)
    monkeypatch.setattr(wire, "LONGEST_PAUSE_S", 0.002)


class Server:
    """Training clients of a server that goes wrong by a seed. `sample` answers with futures, as the SDK does."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self.rng, self.chance, self.planted, self.models = rng, chance, 0, 0
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        self.connecting = threading.Event()

    def trouble(self) -> float:
        place = self.rng.random() / self.chance if self.chance else 1.0
        self.planted += place < 1
        return place

    async def connect(self, path: str | None) -> Any:
        self.connecting.set()
        await self.may_connect.wait()
        await self.answer()
        self.models += 1
        return SimpleNamespace(
            number=self.models,
            path="weights",
            create_sampling_client_async=self.sampling_client,
            save_weights_for_sampler=lambda name, ttl_seconds: self.saved(),
        )

    async def discard(self, client: Any) -> None:
        await self.answer()

    async def saved(self) -> Any:
        return SimpleNamespace(path="weights")

    async def sampling_client(self, path: str) -> Any:
        await self.answer()
        return self

    async def answer(self) -> int:
        place = self.trouble()
        await asyncio.sleep(self.rng.choice([0, 0, 0.001]))
        if place < 0.3:
            raise RuntimeError("the model is not loaded")
        if place < 0.6:
            raise ConnectionError(f"planted {self.rng.random()}")
        if place < 0.7:
            raise asyncio.CancelledError
        if place < 0.9:
            await asyncio.sleep(60)
        return 1

    def send(self, client: Any) -> Any:
        if self.trouble() < 0.1:
            raise ValueError("cannot be sent")
        return self.answer()

    def sample(self) -> Future[int]:
        future: Future[int] = Future()
        place = self.trouble()
        if place < 0.6:
            future.set_exception(RuntimeError("the sampler was not found"))
        elif place < 0.7:
            future.cancel()
        elif place > 0.9:
            future.set_result(1)
        return future


def engine_on(server: Server, timeout_s: float) -> RemoteEngine:
    """Without an SDK: the verbs' ledger, and samplers' way to ask and to be revived."""
    ledger = ReplayLog(server.connect, server.discard, timeout_s)
    made = RemoteEngine.__new__(RemoteEngine)
    made._ledger, made._version = ledger, 0
    made._link = SimpleNamespace(  # type: ignore[assignment]
        reviving=asyncio.Lock(), base_sampler=lambda: server.sampling_client(""), end=lambda: None
    )
    made.findings = SimpleNamespace(frozen_samplers=True)  # type: ignore[assignment]
    ledger.start(SimpleNamespace(create_sampling_client_async=server.sampling_client), "saved")
    return made


async def caller(made: RemoteEngine, server: Server, rng: random.Random, counts: Counter[str]) -> None:
    samplers = [RemoteSampler(made, server, version) for version in (0, None, 1)]
    for turn in range(12):
        counts["requests"] += 1
        kind, leaves = rng.choice(["train", "train", "save", "sample"]), rng.random() < 0.15

        async def ask(kind: str = kind) -> Any:
            if kind == "sample":
                return await rng.choice(samplers)._asked(lambda client: client.sample())
            saved_at: Callable[[Any], str] | None = (lambda _: "saved") if kind == "save" else None
            return await made._ledger.call(kind, server.send, lasting=kind == "train", saved_at=saved_at)

        asking = asyncio.create_task(ask())
        try:
            if leaves:
                await asyncio.sleep(rng.random() * 0.02)
                asking.cancel()
            await answered(asking, f"turn {turn}, {kind}")
            counts["answers"] += 1
        except asyncio.CancelledError:
            assert leaves
            counts["cancelled"] += 1
        except EngineError as error:
            counts["failures"] += 1
            if "is closed" in str(error):
                return


async def play(seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    server = Server(random.Random(seed + 1), rng.choice([0, 0.02, 0.2]))
    made = engine_on(server, timeout_s=0.1)
    callers = [asyncio.create_task(caller(made, server, random.Random(f"{seed} {n}"), counts)) for n in range(8)]
    if rng.random() < 0.5:
        await asyncio.sleep(rng.random() * 0.1)
    else:
        await answered(asyncio.gather(*callers), f"seed {seed}")
    await answered(made.close(), f"close of seed {seed}")
    await answered(asyncio.gather(*callers), f"seed {seed} after its close")
    with pytest.raises(EngineError, match=r"the remote engine is closed|could not be brought back"):
        made._ledger.call("train", server.send, lasting=True)
    counts["planted errors"] += server.planted
    counts["replays"] += made._ledger.replays


def test_no_call_and_no_turn_is_lost_whatever_goes_wrong() -> None:
    counts: Counter[str] = Counter()
    with quick_switches():
        for seed in seeds(24):
            asyncio.run(play(seed, counts))
    tell("remote", counts)
    assert counts["requests"] > 1000 and counts["answers"] > 300, counts
    assert min(counts[name] for name in ("failures", "cancelled", "planted errors", "replays")) > 10, counts


def test_a_revival_whose_asker_is_cancelled_is_finished_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "pause", lambda attempt: 0.0)

    async def play() -> int:
        server = Server(random.Random(0), 0)
        made = engine_on(server, timeout_s=PATIENCE_S)
        forgets: Future[int] = Future()
        forgets.set_exception(RuntimeError("the sampler was not found"))
        server.may_connect.clear()
        asking = asyncio.create_task(RemoteSampler(made, server, 0)._asked(lambda client: forgets))
        await answered(asyncio.to_thread(server.connecting.wait, PATIENCE_S), "the recovery")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        made._ledger.run(_set(server.may_connect)).result(PATIENCE_S)
        one: int = await answered(
            made._ledger.call("train", server.send, lasting=True), "a call after a cancelled revival"
        )
        await made.close()
        return one

    assert asyncio.run(play()) == 1


async def _set(event: asyncio.Event) -> None:
    event.set()


@pytest.mark.parametrize("broken", ["_connect", "_submit"])
def test_a_recovery_that_breaks_is_told_to_everyone(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is cancelled by others, again and again; and a fault of our own in the replay."""

    def breaks(_: Any) -> Any:
        if broken == "_connect":
            raise asyncio.CancelledError
        raise ValueError("planted")

    async def play() -> str:
        server = Server(random.Random(0), 0)
        made = engine_on(server, timeout_s=PATIENCE_S)
        begun = made._ledger.call("train", lambda client: asyncio.sleep(60), lasting=True)
        made._ledger.run(asyncio.sleep(0)).result(PATIENCE_S)  # until the call has its place
        monkeypatch.setattr(made._ledger, broken, breaks)
        made._ledger.run(made._ledger.renew("gone", made._ledger.generation))
        with pytest.raises(EngineError) as told:
            await answered(begun, "a call while the recovery breaks")
        await made.close()
        return str(told.value)

    assert "the server could not be brought back" in asyncio.run(play())
