"""Requests under every kind of trouble: errors anywhere in a step, cancellations, closes, callers who ask again. Each one is answered.

MOOT_STRESS_SECONDS=600 runs it for ten minutes.
"""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from moot.engine.local import LocalEngine
from moot.engine.local.batch import Request
from moot.engine.local.engine import LocalSampler
from moot.engine.local.pages import PageStore, page_size
from moot.engine.local.sampling import StopCheck
from moot.engine.local.scheduler import Scheduler
from moot.engine.local.several import Weights
from moot.engine.local.worker import Worker
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from support.stressing import PATIENCE_S, answered, quick_switches, seeds, tell

CALLERS, TURNS = 16, 8
STEPS = (
    "step",
    "_leave_cancelled",
    "_choose",
    "_prefill",
    "_decode",
    "_make_room",
    "_read",
    "_accept",
    "_preempt",
    "_retire",
)
PAGES = ("start", "grow", "drop", "retire", "find")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    import transformers

    from unit.engine.local.conftest import SHAPE

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model")
    config = transformers.AutoConfig.for_model("llama", **{**SHAPE, "num_hidden_layers": 1})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
    made = LocalEngine.create(str(path), device="cpu", dtype="fp32", max_cache_gib=0.02, lora_rank=2)
    yield made
    made.shut()


class Planted:
    """Errors at a few of all calls, before them or after; never where a thread is being ended, which nobody could survive."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng, self._chance, self.count = rng, chance, 0

    def into(self, owner: Any, names: tuple[str, ...]) -> None:
        for name in names:
            setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def planted(*args: Any, **options: Any) -> Any:
            place = self._rng.random() / self._chance
            if place < 1:
                self.count += 1
            if place < 0.5:
                raise (torch.OutOfMemoryError, RuntimeError, ValueError)[int(place * 6)]("planted")
            result = call(*args, **options)
            if place < 1:
                raise RuntimeError("planted")
            return result

        return planted


def troubled(engine: LocalEngine, rng: random.Random) -> tuple[LocalEngine, Planted]:
    """The same network with a worker, a scheduler and a store of its own, in which things go wrong."""
    made, network = copy.copy(engine), engine._network
    parts = (len(network.layers), network.kv_heads, network.head_dim, network.dtype)
    store = PageStore(*parts, network.device, rng.randint(6, 24) * page_size(*parts))
    made._store, made._worker = store, Worker()
    made._scheduler = Scheduler(network, store, rng.randint(1, 8), deterministic=False)
    planted = Planted(rng, rng.choice([1e-9, 0.002, 0.01]))
    planted.into(made._scheduler, STEPS)
    planted.into(store, PAGES)
    made._worker.serve(made._scheduler)
    return made, planted


async def divide(made: LocalEngine, divisor: int) -> float:
    """A job in the order of training verbs, which may fail."""
    return await made._worker.submit(lambda: 1 / divisor)


async def caller(made: LocalEngine, sampler: LocalSampler, rng: random.Random, counts: Counter[str]) -> None:
    """Asks again at once when told of a failure, until it is told that the engine is closed."""
    for turn in range(TURNS):
        prompt = [rng.randrange(64) for _ in range(rng.choice([1, 3, 130]))]
        for _ in range(20):
            counts["requests"] += 1
            if rng.random() < 0.15:
                asking: asyncio.Task[Any] = asyncio.create_task(divide(made, rng.choice([0, 1, 1])))
            else:
                asking = asyncio.create_task(
                    sampler.sample(prompt, SamplingParams(rng.randint(1, 6)), rng.choice([1, 1, 3]))
                )
            leaves = rng.random() < 0.1
            try:
                if leaves:
                    await asyncio.sleep(rng.random() * 0.01)
                    asking.cancel()
                await answered(asking, f"turn {turn}")
                counts["answers"] += 1
                break
            except asyncio.CancelledError:
                assert leaves
                counts["cancelled"] += 1
                break
            except (EngineError, ZeroDivisionError) as error:
                counts["failures"] += 1
                if "is closed" in str(error):
                    return


async def play(engine: LocalEngine, seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    made, planted = troubled(engine, rng)
    samplers = [LocalSampler(made, Weights(key, ())) for key in range(2)]
    callers = [
        asyncio.create_task(caller(made, rng.choice(samplers), random.Random(f"{seed} {n}"), counts))
        for n in range(CALLERS)
    ]
    if rng.random() < 0.6:  # in the middle of it all, at any point
        await asyncio.sleep(rng.random() * 0.15)
    else:
        await answered(asyncio.gather(*callers), f"seed {seed}")
    await answered(made.close(), f"close of seed {seed}")
    await answered(asyncio.gather(*callers), f"seed {seed} after its close")
    with pytest.raises(EngineError, match="the local engine is closed"):
        await samplers[0].sample([1], SamplingParams(1))
    counts["planted errors"] += planted.count


def test_no_request_is_lost_whatever_goes_wrong(engine: LocalEngine) -> None:
    counts: Counter[str] = Counter()
    with quick_switches():
        for seed in seeds(24):
            asyncio.run(play(engine, seed, counts))
    tell("local", counts)
    assert counts["requests"] > 1000 and counts["answers"] > 200, counts
    assert min(counts["failures"], counts["cancelled"], counts["planted errors"]) > 10, counts


def request_of(answers: Callable[[Any], None]) -> Request:
    stop = StopCheck((), None)
    return Request(
        Weights(0, ()), np.array([1, 2, 3], np.int32), SamplingParams(2), stop, np.random.default_rng(0), answers
    )


def quiet_scheduler(engine: LocalEngine) -> Scheduler:
    network = engine._network
    parts = (len(network.layers), network.kv_heads, network.head_dim, network.dtype)
    return Scheduler(network, PageStore(*parts, network.device, 8 * page_size(*parts)), 4, deterministic=False)


def test_who_asks_again_when_told_of_a_failure_is_not_thrown_away_with_it(engine: LocalEngine) -> None:
    scheduler, heard, heard_again = quiet_scheduler(engine), list[Any](), list[Any]()

    def again(answer: Any) -> None:
        heard.append(answer)
        scheduler.add([request_of(heard_again.append)])

    scheduler.add([request_of(again)])
    scheduler.abandon("planted")
    assert [str(error) for error in heard] == ["planted"]
    while scheduler.has_work():
        scheduler.step()
    assert len(heard_again) == 1 and len(heard_again[0].tokens) == 2


@pytest.mark.parametrize("broken", ["_retire", "_discard"])
def test_a_store_that_fails_while_requests_end_keeps_no_answer_back(engine: LocalEngine, broken: str) -> None:
    """Several whose last token is read in one look: the first one's trouble must not hide the others."""
    scheduler, heard = quiet_scheduler(engine), list[Any]()

    def fails(*_: Any) -> None:
        raise ValueError("planted")

    setattr(scheduler, broken, fails)
    if broken == "_discard":
        scheduler._accept = fails  # type: ignore[method-assign]
    scheduler.add([request_of(heard.append) for _ in range(3)])
    for _ in range(10):
        try:
            scheduler.step()
        except ValueError:
            try:
                scheduler.abandon("planted too")
            except ValueError:
                break
    assert len(heard) == 3


def test_a_worker_that_breaks_tells_everyone_and_refuses_the_next(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    worker, scheduler, heard = Worker(), quiet_scheduler(engine), list[Any]()

    def breaks(*_: Any) -> None:
        raise SystemExit("planted")

    scheduler.step = breaks  # type: ignore[method-assign]
    begun = threading.Event()
    first = worker.submit(lambda: begun.wait(PATIENCE_S))
    later = [worker.submit(lambda: None) for _ in range(3)]
    scheduler.add([request_of(heard.append)])
    worker.serve(scheduler)
    begun.set()
    assert first.result(PATIENCE_S)
    for pending in later[1:]:
        with pytest.raises(EngineError, match="closed before this ran"):
            pending.result(PATIENCE_S)
    worker.close()
    assert [str(error) for error in heard] == ["the local engine broke: SystemExit: planted"]
    with pytest.raises(EngineError, match="the local engine broke"):
        worker.submit(lambda: None)
