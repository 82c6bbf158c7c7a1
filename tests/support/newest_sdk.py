"""What the newest SDK is tested with, in an environment of its own: a whole small training over protobuf, and a server without it.

Prints one JSON object; `test_newest_sdk.py` compares it with what the pinned SDK does over JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tinker

from moot.engine.protocol import AdamParams, SamplingParams
from moot.engine.remote import RemoteEngine
from moot.errors import EngineError
from support.datums import random_datum
from support.simulated_server import Manners, Server, serving


class Tokens:
    all_special_ids = ()

    def __len__(self) -> int:
        return 64

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(0x2600 + i) for i in ids)


async def train(engine: Any) -> dict[str, Any]:
    for step, (loss, config) in enumerate(
        (("importance_sampling", None), ("ppo", {"clip_low_threshold": 0.9}), ("cispo", None), ("cross_entropy", None))
    ):
        passed = engine.forward_backward([random_datum(step, 9), random_datum(step + 50, 17)], loss, config)
        await engine.optim_step(AdamParams(learning_rate=0.05))
        loss_value = (await passed).loss
    path = await engine.save_state("somewhere")
    sampler = await engine.snapshot()
    (sample,) = await sampler.sample([3, 1, 4], SamplingParams(max_tokens=6, seed=1))
    known = await sampler.compute_logprobs([3, 1, 4, 1, 5])
    await engine.load_state(path)
    return {
        "loss": loss_value,
        "logprobs": (await engine.forward([random_datum(99, 20)])).logprobs[0].tolist(),
        "tokens": sample.tokens.tolist(),
        "sampled": sample.logprobs.tolist(),
        "known": known[1:].tolist(),
    }


def run(manners: Manners) -> dict[str, Any]:
    with serving(Server(manners)) as (url, _):
        engine = RemoteEngine.create("table", base_url=url, api_key="tml-test", tokenizer=Tokens(), startup_s=60)
        try:
            return {"sdk": tinker.__version__, "reduction": engine.findings.reduction, **asyncio.run(train(engine))}
        finally:
            asyncio.run(engine.close())


def refused(startup_s: float) -> dict[str, Any]:
    started = time.monotonic()
    with serving(Server(Manners(protobuf=False))) as (url, _):
        try:
            RemoteEngine.create("table", base_url=url, api_key="tml-test", tokenizer=Tokens(), startup_s=startup_s)
        except EngineError as error:
            return {"message": str(error), "seconds": time.monotonic() - started}
    return {"message": "", "seconds": time.monotonic() - started}


def refused_by(url: str, model: str) -> dict[str, Any]:
    """By a real server that has never heard of protobuf."""
    started = time.monotonic()
    try:
        RemoteEngine.create(model, base_url=url, api_key="tml-test", startup_s=20.0)
    except EngineError as error:
        return {"message": str(error), "seconds": time.monotonic() - started}
    return {"message": "", "seconds": time.monotonic() - started}


if __name__ == "__main__" and len(sys.argv) > 1:
    print(json.dumps(refused_by(*sys.argv[1:])))
elif __name__ == "__main__":
    print(
        json.dumps({"trained": run(Manners(protobuf=True, numbered=True, reduction="mean")), "refused": refused(5.0)})
    )
