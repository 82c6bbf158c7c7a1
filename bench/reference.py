"""What a KL penalty costs a step: the reference's logprobs of the step's tokens, one sequence at a time and all at once.

    python bench/reference.py [--groups 4] [--answers 3] [--prompt 300] [--own 120] [--rounds 3]
    python bench/reference.py --model qwen3-8b --groups 8 --answers 8 --prompt 512 --own 256 --cache-gib 20 --tolerance 0.02    a shape, on a GPU

The sequences are a step's: the answers of a group share their prompt. "one at a time": each computed whole by a forward pass of its own, as a
server does. "together": `compute_logprobs` of all, by a sampler that has seen none of them. "training": the forward and backward pass over the
same sequences, for scale. The ways take turns in one process. On a CPU processor seconds are what is compared: beside others' work the clock tells nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from gpu_measure import SHAPES, random_model

from moot.engine.local import LocalEngine, shared
from moot.engine.protocol import Datum


def step(args: argparse.Namespace, vocabulary: int) -> list[Datum]:
    random = np.random.default_rng(args.seed)
    datums = []
    for _ in range(args.groups):
        prompt = random.integers(0, vocabulary, args.prompt)
        for _ in range(args.answers):
            tokens = np.append(prompt, random.integers(0, vocabulary, args.own)).astype(np.int32)
            mask = np.zeros(len(tokens) - 1, np.float32)
            mask[args.prompt - 1 :] = 1
            datums.append(Datum(tokens[:-1], tokens[1:], 0 * mask, mask, mask))
    return datums


async def measure(args: argparse.Namespace) -> None:
    if args.model in SHAPES:
        shared.load_model = random_model
    engine = LocalEngine.create(args.model, device=args.device, max_cache_gib=args.cache_gib)
    datums = step(args, min(40_000, engine._network.vocab_size))
    wholes = [np.append(datum.tokens, datum.targets[-1]) for datum in datums]
    found: dict[str, np.ndarray[Any, Any]] = {}

    async def one_at_a_time() -> None:
        passes = [(await engine.forward([datum])).logprobs[0] for datum in datums]
        found["one at a time"] = np.array([own[args.prompt - 1 :].sum() for own in passes])

    async def together() -> None:
        base = await engine.base()
        scores = await asyncio.gather(*(base.compute_logprobs(whole, 1.0, args.prompt) for whole in wholes))
        found["together"] = np.array([own[args.prompt :].sum() for own in scores])

    async def training() -> None:
        await engine.forward_backward(datums, "importance_sampling")

    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "one at a time": one_at_a_time, "together": together, "training": training,
    }  # fmt: skip
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(args.rounds + 1):
        for name, way in ways.items():
            clock, processor = time.perf_counter(), time.process_time()
            await way()
            if number:  # the first round warms up
                spent[name].append((time.perf_counter() - clock, time.process_time() - processor))
    np.testing.assert_allclose(found["one at a time"], found["together"], rtol=args.tolerance)
    middle = {name: [statistics.median(part) for part in zip(*times, strict=True)] for name, times in spent.items()}
    print(f"{len(datums)} sequences of {args.prompt} and {args.own} tokens, {args.answers} share a beginning")
    which = 1 if engine._network.device.type == "cpu" else 0
    for name, times in middle.items():
        share = times[which] / middle["training"][which]
        print(f"{name:<14} {times[0]:7.2f} s, {times[1]:7.2f} CPU seconds: {share:.2f} of training")
    ratio = middle["one at a time"][which] / middle["together"][which]
    print(f"together is {ratio:.2f} times as fast as one at a time")
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="smollm2-135m", help=f"or a folder, or with random weights {', '.join(SHAPES)}"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=300)
    parser.add_argument("--own", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache-gib", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative; of bfloat16 more is to be expected")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
