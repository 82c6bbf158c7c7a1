"""Sequences of several adapters on one base model: sampled together, and adapter by adapter, in one run.

    python bench/several.py                                                  SmolLM2, on a CPU
    python bench/several.py --model FOLDER --device cuda --adapters 3 --sequences 64 --tokens 256
    python bench/several.py --busy                                           beside a thread of this process that computes in Python

Both ways take turns for `--rounds`. Tokens per second of the clock and per second of processor time, the ratio of both, the steps that the
sampler made, and the largest difference of logprobs. `--busy`: as other runs' parsing and grading are, which wait for the same interpreter lock;
with `--switch` seconds (`sys.setswitchinterval`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from typing import Any

import numpy as np
import torch

from moot.engine.local import LocalEngine
from moot.engine.local.adapter import lora_parameters
from moot.engine.protocol import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--adapters", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=8, help="of each adapter")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--switch", type=float, default=sys.getswitchinterval())
    args = parser.parse_args()
    sys.setswitchinterval(args.switch)
    if args.busy:
        threading.Thread(target=compute, daemon=True).start()
    print(json.dumps(asyncio.run(compare(args)), indent=1))


def compute() -> None:
    while True:
        sum(number * number for number in range(1000))


async def compare(args: argparse.Namespace) -> dict[str, Any]:
    engine = LocalEngine.create(args.model, device=args.device, dtype=args.dtype)
    samplers = []
    for seed in range(args.adapters):
        generator = torch.Generator().manual_seed(seed)
        for parameter in lora_parameters(engine._wrapped).values():
            parameter.data = 0.01 * torch.randn(parameter.shape, generator=generator).to(parameter.device)
        samplers.append(await engine.snapshot())
    rng = np.random.default_rng(0)
    prompts = [rng.integers(10, 1000, args.prompt).tolist() for _ in range(args.sequences)]

    async def sample(number: int, seed: int) -> list[Any]:
        params = [SamplingParams(args.tokens, seed=seed * 1000 + place) for place in range(len(prompts))]
        calls = [samplers[number].sample(prompt, each) for prompt, each in zip(prompts, params, strict=True)]
        return [found[0] for found in await asyncio.gather(*calls)]

    ways: dict[str, list[dict[str, float]]] = {"together": [], "one by one": []}
    largest, numbers = 0.0, range(args.adapters)
    for round_ in range(-1, args.rounds):
        results = {}
        for way in list(ways)[:: 1 if round_ % 2 else -1]:
            clock, processor, steps = time.perf_counter(), time.process_time(), engine.statistics["steps"]
            if way == "together":
                found = await asyncio.gather(*(sample(number, round_) for number in numbers))
            else:
                found = [await sample(number, round_) for number in numbers]
            seconds, spent = time.perf_counter() - clock, time.process_time() - processor
            results[way] = [sample for per_adapter in found for sample in per_adapter]
            tokens = sum(len(sample.tokens) for sample in results[way])
            if round_ >= 0:  # the round before the first warms up
                took = engine.statistics["steps"] - steps
                ways[way].append(
                    {"per second": tokens / seconds, "per processor second": tokens / spent, "steps": took}
                )
        for ours, theirs in zip(results["together"], results["one by one"], strict=True):
            alike = min(len(ours.tokens), len(theirs.tokens))
            parted = np.flatnonzero(ours.tokens[:alike] != theirs.tokens[:alike])  # rounding may tip a draw
            upto = int(parted[0]) if len(parted) else alike
            if upto:
                largest = max(largest, float(np.abs(ours.logprobs[:upto] - theirs.logprobs[:upto]).max()))
    await engine.close()
    middle = {
        way: {name: statistics.median(row[name] for row in rows) for name in rows[0]} for way, rows in ways.items()
    }
    ratio = {name: middle["together"][name] / middle["one by one"][name] for name in middle["together"]}
    return {
        **middle,
        "ratio": ratio,
        "largest difference of logprobs": largest,
        "switch interval": sys.getswitchinterval(),
    }


if __name__ == "__main__":
    main()
