"""What `bench/gpu.py` measures of our engine, in a process of its own per model. Each number is told in a line as it is had.

python bench/gpu_measure.py OPTIONS    as JSON: the options of bench/gpu.py, and `model`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

QWEN2 = {"model_type": "qwen2", "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 32768}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {**QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                     "num_key_value_heads": 2},
    "qwen2.5-1.5b": {**QWEN2, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
                     "num_key_value_heads": 2},
    "qwen3-8b": {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768},
    "smollm2-135m-shape": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
                           "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192},
    "tiny": {"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096},
}  # fmt: skip
AGENTS, ROUNDS = 3, 3
ITERATION_AGENTS = 5
END = 64
"""Tokens of a prompt that are neither an answer nor what stands before the debate."""
CHECKS, CHECK_TOKENS, ANSWERS = 4, 64, 8
"""A judging round: checks of each answer, tokens of each check, and how many of the answers are to one question."""
VERDICT = range(3, 23)
"""What asks a judge for its verdict after it thought; then the probabilities of two words are looked up."""


def say(kind: str, **numbers: Any) -> None:
    print("RESULT " + json.dumps({"kind": kind, **numbers}), flush=True)


def make_engine(args: argparse.Namespace) -> Any:
    from moot.engine.local import LocalEngine, shared

    if args.model in SHAPES:  # the weights are made where they are used: a disk would take longer than all the rest
        shared.load_model = lambda name, device, dtype: random_model(name, device, dtype)
    return LocalEngine.create(
        args.model, device=args.device, max_batch=max(args.sequences), max_cache_gib=args.cache_gib
    )


def random_model(name: str, device: Any, dtype: Any) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from moot.engine.local.models import Loaded

    shape = dict(SHAPES[name])
    config = AutoConfig.for_model(shape.pop("model_type"), **shape)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return Loaded(name, model.to(device).eval().requires_grad_(False), None, int(config.max_position_embeddings), ())


class Watch:
    """Seconds the sampler's thread spent in steps, of these in launching them, and in waiting for the device."""

    def __init__(self, engine: Any) -> None:
        self.spent = {"step": 0.0, "launch": 0.0, "waiting": 0.0}
        self._scheduler = scheduler = engine._scheduler
        scheduler.step = self._timed("step", scheduler.step)
        batch = scheduler._batch

        def watched(weights: Any) -> Any:
            found = batch(weights)
            if not hasattr(found, "watched"):
                found.watched, found.launch = True, self._timed("launch", found.launch)
            return found

        scheduler._batch = watched
        if scheduler.decoder is not None:
            to_host = scheduler.decoder._to_host

            def waited(tensor: Any) -> Any:
                host, arrived = to_host(tensor)
                return host, self._timed("waiting", arrived)

            scheduler.decoder._to_host = waited

    def _timed(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            start = time.perf_counter()
            try:
                return action(*given)
            finally:
                self.spent[name] += time.perf_counter() - start

        return timed

    def reset(self) -> None:
        self.spent.update(step=0.0, launch=0.0, waiting=0.0)


async def ours(args: argparse.Namespace) -> None:
    import torch

    from moot.engine.local.trainer import LoraTrainer
    from moot.engine.memory_estimate import PASS_TOKENS
    from moot.engine.protocol import AdamParams, Datum, SamplingParams

    cuda = args.device != "cpu" and torch.cuda.is_available()
    start = time.perf_counter()
    engine = make_engine(args)
    say("loaded", seconds=time.perf_counter() - start, notes=list(engine.capabilities.notes), device=_device(cuda))
    vocabulary = engine._network.vocab_size
    random = np.random.default_rng(0)
    x, ones = np.arange(32, dtype=np.int32) % vocabulary, np.ones(32, np.float32)
    await engine.forward_backward([Datum(x, x, ones * 0, ones, ones)], "cross_entropy")
    await engine.optim_step(AdamParams(1e-5))
    watch = Watch(engine)

    async def sample(sampler: Any, count: int, tokens: int) -> float:
        prompts = random.integers(0, vocabulary, (count, args.prompt)).astype(np.int32)
        begin = time.perf_counter()
        await asyncio.gather(
            *(sampler.sample(p, SamplingParams(max_tokens=tokens, seed=i)) for i, p in enumerate(prompts))
        )
        return time.perf_counter() - begin

    for count in args.sequences:
        sampler = await engine.snapshot()
        await sample(sampler, count, 8)  # captures the steps, compiles the kernels
        prefill = await sample(sampler, count, 1)
        before = dict(engine.statistics)
        watch.reset()
        seconds = await sample(sampler, count, args.tokens)
        steps = engine.statistics["steps"] - before["steps"]
        say(
            "sampling", sequences=count, seconds=seconds, rate=count * args.tokens / seconds, prefill_rate=count * args.prompt / prefill,
            step_ms=(seconds - prefill) / steps * 1e3, steps=steps, **{f"{name}_s": spent for name, spent in watch.spent.items()},
        )  # fmt: skip
        try:
            say("profile", sequences=count, **await profile(engine, sampler, watch, sample, count, cuda))
        except Exception as error:  # the profiler is no part of what is measured
            say("profile failed", error=f"{type(error).__name__}: {error}")
    for questions in args.debates:
        for timed in (False, True):
            sampler = await engine.snapshot()
            seconds = 0.0
            prompts = [random.integers(0, vocabulary, args.prompt).tolist() for _ in range(questions * AGENTS)]
            for _ in range(ROUNDS if timed else 1):
                begin = time.perf_counter()
                calls = [
                    sampler.sample(p, SamplingParams(max_tokens=args.tokens, seed=i)) for i, p in enumerate(prompts)
                ]
                turns = [one.tokens.tolist() for (one,) in await asyncio.gather(*calls)]
                seconds += time.perf_counter() - begin
                prompts = [
                    prompt + turn + heard(random, args, vocabulary) for prompt, turn in zip(prompts, turns, strict=True)
                ]
        say("debate", questions=questions, seconds=seconds, rate=questions * AGENTS * ROUNDS * args.tokens / seconds)
    for answers in args.judged:
        for timed in (False, True):
            sampler, before = await engine.snapshot(), dict(engine.statistics)
            params = SamplingParams(max_tokens=CHECK_TOKENS if timed else 8, seed=0)
            begin = time.perf_counter()
            given = to_judge(args, vocabulary, answers)
            said = await asyncio.gather(*(sampler.sample(prompt, params, CHECKS) for prompt in given))
            seconds = time.perf_counter() - begin
            new = {f"{name}_tokens": engine.statistics[name] - before[name] for name in ("prefilled", "reused")}
            begin = time.perf_counter()
            thoughts = [
                [*prompt, *thought.tokens] for prompt, of_one in zip(given, said, strict=True) for thought in of_one
            ]
            await asyncio.gather(
                *(sampler.score_continuations([*thought, *VERDICT], ((1,), (2,))) for thought in thoughts)
            )
            verdicts = time.perf_counter() - begin
        say(
            "judging",
            answers=answers,
            seconds=seconds,
            rate=answers * CHECKS * CHECK_TOKENS / seconds,
            verdicts_s=verdicts,
            **new,
        )
    say("statistics", **engine.statistics)
    for count in args.datums:
        await training(args, engine, random, vocabulary, count, cuda)
    for questions in args.iterations:
        for layout in args.layouts:
            await iteration(args, engine, random, vocabulary, questions, layout)
    if args.datums:
        engine._trainer = LoraTrainer(engine._wrapped, engine._network, PASS_TOKENS[0], recompute=True)
        await training(args, engine, random, vocabulary, max(args.datums), cuda)
    await engine.close()


async def training(
    args: argparse.Namespace, engine: Any, random: np.random.Generator, vocabulary: int, count: int, cuda: bool
) -> None:
    import torch

    from moot.engine.protocol import AdamParams, Datum

    tokens = random.integers(0, vocabulary, (count, args.datum_tokens + 1)).astype(np.int32)
    ones = np.ones(args.datum_tokens, np.float32)
    datums = [Datum(row[:-1], row[1:], -8 * ones, ones, ones) for row in tokens]
    if cuda:
        torch.cuda.reset_peak_memory_stats()  # a cache that grew held its old pages for a moment
    out = await engine.forward_backward(datums, "ppo")
    begin = time.perf_counter()
    out = await engine.forward_backward(datums, "ppo")
    await engine.optim_step(AdamParams(1e-5))
    seconds = time.perf_counter() - begin
    rate = count * args.datum_tokens / seconds
    matrices = sum(
        p.numel() for layer in engine._network.layers for p in (linear.weight for linear in layer.linear.values())
    )
    flops = 4 * (
        matrices + engine._network.head.numel()
    )  # forward, and backward to the activations: the base has no gradient
    say(
        "recomputed training" if engine._trainer.recompute else "training", datums=count, tokens=args.datum_tokens, rate=rate,
        tflops=rate * flops / 1e12, micro_batches=out.metrics["micro_batches"], out_of_memory=out.metrics["out_of_memory"],
        peak_gib=torch.cuda.max_memory_allocated() / (1 << 30) if cuda else 0.0,
        predicted_gib=predicted(engine, min(engine._trainer.token_budget, count * args.datum_tokens)) / (1 << 30),
    )  # fmt: skip


async def iteration(
    args: argparse.Namespace, engine: Any, random: np.random.Generator, vocabulary: int, questions: int, layout: str
) -> None:
    from moot.engine.protocol import AdamParams, Datum, SamplingParams

    def fresh(count: int) -> list[int]:
        drawn: list[int] = random.integers(0, vocabulary, count).tolist()
        return drawn

    agents, sampler = ITERATION_AGENTS, await engine.snapshot()
    before, datums = dict(engine.statistics), []
    openings = [fresh(args.prompt) for _ in range(questions)]
    prompts = [openings[i // agents] + fresh(END) for i in range(questions * agents)]
    sampled = [np.zeros(len(prompt), np.float32) for prompt in prompts]
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        calls = [sampler.sample(p, SamplingParams(max_tokens=args.tokens, seed=i)) for i, p in enumerate(prompts)]
        turns = [one.tokens.tolist() for (one,) in await asyncio.gather(*calls)]
        whole = [prompt + turn for prompt, turn in zip(prompts, turns, strict=True)]
        sampled = [np.append(mask, np.ones(len(turn), np.float32)) for mask, turn in zip(sampled, turns, strict=True)]
        if layout == "shared":
            datums += list(zip(whole, sampled, strict=True))
            openings = [[*opening, *chain(*turns[i * agents : (i + 1) * agents])] for i, opening in enumerate(openings)]
            prompts = [openings[i // agents] + fresh(END) for i in range(questions * agents)]
            sampled = [np.zeros(len(prompt), np.float32) for prompt in prompts]
        else:
            datums = list(zip(whole, sampled, strict=True))
            prompts = [said + heard(random, args, vocabulary, agents) for said in whole]
            sampled = [
                np.append(mask, np.zeros(len(p) - len(mask), np.float32))
                for mask, p in zip(sampled, prompts, strict=True)
            ]
    between = time.perf_counter()
    made = [
        Datum(np.array(x[:-1], np.int32), np.array(x[1:], np.int32), -8 * mask[1:], mask[1:], mask[1:])
        for x, mask in datums
    ]
    out = await engine.forward_backward(made, "importance_sampling")
    await engine.optim_step(AdamParams(1e-5))
    end = time.perf_counter()
    say(
        "iteration", layout=layout, questions=questions, seconds=end - begin, sampling_s=between - begin, training_s=end - between,
        prefilled=engine.statistics["prefilled"] - before["prefilled"], tokens=out.metrics["tokens"],
        computed_tokens=out.metrics["computed_tokens"],
    )  # fmt: skip


def predicted(engine: Any, tokens: int) -> int:
    """Bytes, as a dry run counts them: weights, adapter and Adam, the cache that there is, and a pass of so many tokens."""
    from moot.engine.memory_estimate import Shape, adapter_bytes, pass_bytes, weights_bytes

    shape, rank, size = (
        Shape.of(engine._wrapped.config),
        engine._wrapped.peft_config["default"].r,
        engine._network.dtype.itemsize,
    )
    cache: int = engine._store._all.nbytes
    return (
        weights_bytes(shape, size)
        + adapter_bytes(shape, rank)
        + cache
        + tokens * pass_bytes(shape, rank, size, engine._trainer.recompute)
    )


def heard(random: np.random.Generator, args: argparse.Namespace, vocabulary: int, agents: int = AGENTS) -> list[int]:
    """What the others said, and what stands around it."""
    found: list[int] = random.integers(0, vocabulary, (agents - 1) * args.tokens + END).tolist()
    return found


def to_judge(args: argparse.Namespace, vocabulary: int, answers: int) -> list[list[int]]:
    """The prompts of a judging round: a question, one of its answers, and what a judge is told. The same for everybody."""
    random = np.random.default_rng(answers)
    questions = [random.integers(0, vocabulary, args.prompt).tolist() for _ in range(-(-answers // ANSWERS))]
    ends = random.integers(0, vocabulary, (answers, args.tokens + END)).tolist()
    return [questions[number // ANSWERS] + end for number, end in enumerate(ends)]


def _device(cuda: bool) -> str:
    import torch

    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}" if cuda else f"CPU, torch {torch.__version__}"


async def profile(engine: Any, sampler: Any, watch: Watch, sample: Any, count: int, cuda: bool) -> dict[str, Any]:
    """About 20 steps in the middle of a decode: per step, in milliseconds."""
    import torch
    from torch.profiler import ProfilerActivity

    made: list[Any] = []
    marks: list[tuple[float, int]] = []

    def begin() -> None:
        if cuda:
            made.append(torch.profiler.profile(activities=[ProfilerActivity.CUDA]))
            made[0].__enter__()
            torch.cuda.synchronize()
        watch.reset()
        marks.append((time.perf_counter(), engine.statistics["steps"]))

    def end() -> dict[str, float]:
        marks.append((time.perf_counter(), engine.statistics["steps"]))
        spent = dict(watch.spent)
        if made:
            made[0].__exit__(None, None, None)
        return spent

    steps = engine.statistics["steps"]
    running = asyncio.create_task(sample(sampler, count, 64))
    while engine.statistics["steps"] < steps + 16 and not running.done():
        await asyncio.wait({running}, timeout=0.005)
    await engine._worker.submit(begin)
    while engine.statistics["steps"] < marks[0][1] + 20 and not running.done():
        await asyncio.wait({running}, timeout=0.005)
    spent = await engine._worker.submit(end)
    await running
    taken = max(1, marks[1][1] - marks[0][1])
    wall = marks[1][0] - marks[0][0]
    per_step = {name: value / taken * 1e3 for name, value in spent.items()}
    numbers: dict[str, Any] = {
        "step": wall / taken * 1e3, "launch": per_step["launch"], "waiting": per_step["waiting"],
        "host": per_step["step"] - per_step["launch"] - per_step["waiting"],
    }  # fmt: skip
    if made:
        kernels = [event for event in made[0].events() if event.device_type == torch.autograd.DeviceType.CUDA]
        numbers["kernels"] = busy([(event.time_range.start, event.time_range.end) for event in kernels]) / taken / 1e3
        numbers["kernels_per_step"] = len(kernels) / taken
        totals: dict[str, float] = {}
        for event in kernels:
            totals[event.name] = (
                totals.get(event.name, 0.0) + (event.time_range.end - event.time_range.start) / taken / 1e3
            )
        numbers["longest"] = {
            name[:70]: round(value, 4) for name, value in sorted(totals.items(), key=lambda item: -item[1])[:12]
        }
    return numbers


def busy(spans: list[tuple[float, float]]) -> float:
    """The time covered by any of them."""
    total, reached = 0.0, float("-inf")
    for low, high in sorted(spans):
        total += max(0.0, high - max(low, reached))
        reached = max(reached, high)
    return total


if __name__ == "__main__":
    asyncio.run(ours(argparse.Namespace(**json.loads(sys.argv[1]))))
