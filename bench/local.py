"""The local engine beside stock transformers and TRL, on the lengths of recorded debates.

    python bench/local.py sampling [--sequences 12 48] [--shorten 0.25]
    python bench/local.py training --trl-python /path/to/venv/bin/python [--quick]

The lengths are those of real debates of three rounds (debate_lengths.json): of each agent's turns, the prompt tokens that were new and
the tokens sampled. Token ids are random, and nothing stops early: a row ends at its recorded length. Stock `generate` cannot end a row
but by its end-of-text token, so it pads prompts to the longest and goes on to the longest turn, as it would in use. `--shorten` cuts the
sampled turns (prompts stay), for a quicker look.

Every contender runs in its own process, so that peak memory is its own. TRL is not a dependency of moot: give a Python that has it.
Peak memory is the process's peak resident size once the model is loaded, model included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def recorded(args: argparse.Namespace, count: int) -> list[list[tuple[int, int]]]:
    """For each sequence and round: new prompt tokens, sampled tokens."""
    found = json.loads(Path(__file__).with_name("debate_lengths.json").read_text())[args.lengths]
    return [
        [(prompt, max(2, int(turn * args.shorten))) for prompt, turn in found[i % len(found)]] for i in range(count)
    ]


def reset_peak() -> None:
    """Loading a model takes more than running it."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_peak() -> float:
    """Resident MiB."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


# -- sampling -------------------------------------------------------------------------------------------------------------------------


def time_decoding(engine: Any) -> list[float]:
    """Wall and processor seconds spent in decode steps, filled in as they run; the rest of a round is prefill."""
    spent = [0.0, 0.0]
    decode = engine._scheduler._decode

    def timed(batch: Any) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        decode(batch)
        spent[0] += time.perf_counter() - start
        spent[1] += time.process_time() - cpu

    engine._scheduler._decode = timed
    return spent


def sampling_ours(args: argparse.Namespace, count: int) -> dict[str, Any]:
    from moot.engine.local import LocalEngine
    from moot.engine.protocol import AdamParams, Datum, SamplingParams

    async def main() -> dict[str, Any]:
        engine = LocalEngine.create(args.model, dtype=args.dtype, device=args.device, max_cache_gib=args.cache_gib)
        if args.adapter:  # one step, so that sampling pays for the adapter as it does in training
            x, ones = np.arange(32, dtype=np.int32), np.ones(32, np.float32)
            await engine.forward_backward([Datum(x, x, ones * 0, ones, ones)], "cross_entropy")
            await engine.optim_step(AdamParams())
        spent = time_decoding(engine)
        reset_peak()
        sampler = await engine.snapshot()
        random = np.random.default_rng(0)
        lengths = recorded(args, count)
        prompts: list[list[int]] = [[] for _ in lengths]
        rounds = []
        for number in range(len(lengths[0])):
            for prompt, rows in zip(prompts, lengths, strict=True):
                prompt += random.integers(10, 40000, rows[number][0]).tolist()
            if number == len(lengths[0]) - 1:
                fresh = (
                    await engine.snapshot()
                )  # same weights, but nothing cached: what the round's prompts cost without reuse
                start = time.perf_counter()
                await asyncio.gather(
                    *(fresh.sample(p, SamplingParams(max_tokens=1, seed=i)) for i, p in enumerate(prompts))
                )
                cold = time.perf_counter() - start
                del fresh
            before, spent[:] = engine.statistics, [0.0, 0.0]
            start, cpu = time.perf_counter(), time.process_time()
            samples = await asyncio.gather(
                *(
                    sampler.sample(p, SamplingParams(max_tokens=rows[number][1], seed=i))
                    for i, (p, rows) in enumerate(zip(prompts, lengths, strict=True))
                )
            )
            seconds, cpu, after = time.perf_counter() - start, time.process_time() - cpu, engine.statistics
            steps = after["steps"] - before["steps"]
            rounds.append(
                {"seconds": seconds, "cpu": cpu, "prefill": seconds - spent[0], "step": spent[0] / steps, "steps": steps,
                 "prefilled": after["prefilled"] - before["prefilled"], "sampled": sum(len(s.tokens) for (s,) in samples)}
            )  # fmt: skip
            for prompt, (sample,) in zip(prompts, samples, strict=True):
                prompt += sample.tokens.tolist()
        peak = memory_peak()
        await engine.close()
        whole = sum(sum(p + (rows[r - 1][1] if r else 0) for r, (p, _) in enumerate(rows)) for rows in lengths)
        return {
            "rounds": rounds,
            "peak_mib": peak,
            "prefill_rate": whole / cold,
            "cold_prefill_s": cold,
            "cold_tokens": whole,
        }

    return asyncio.run(main())


def sampling_stock(args: argparse.Namespace, count: int) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM, LogitsProcessorList

    from moot.engine.local.models import pick_device, pick_dtype
    from moot.engine.local.smollm import NAME, find_smollm

    device = pick_device(args.device)
    path = find_smollm()[0] if args.model == NAME else args.model
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=pick_dtype(args.dtype, device, False)).to(device)
    reset_peak()
    random = np.random.default_rng(0)
    lengths = recorded(args, count)
    prompts: list[list[int]] = [[] for _ in lengths]
    rounds = []
    for number in range(len(lengths[0])):
        for prompt, rows in zip(prompts, lengths, strict=True):
            prompt += random.integers(10, 40000, rows[number][0]).tolist()
        width, longest = max(map(len, prompts)), max(rows[number][1] for rows in lengths)
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        start, cpu = time.perf_counter(), time.process_time()
        first: list[float] = []

        def note(_: Any, scores: Any, start: float = start, first: list[float] = first) -> Any:
            if not first:  # called once a step: the first time when the prompt is done
                first[:] = [time.perf_counter() - start]
            return scores

        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=longest, min_new_tokens=longest, do_sample=True, temperature=1.0, top_k=0,
                top_p=1.0, pad_token_id=0, logits_processor=LogitsProcessorList([note]),
            )[:, width:].tolist()  # fmt: skip
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        rounds.append(
            {"seconds": seconds, "cpu": cpu, "prefill": first[0], "step": (seconds - first[0]) / max(1, longest - 1), "steps": longest,
             "prefilled": int(mask.sum()), "sampled": sum(rows[number][1] for rows in lengths)}
        )  # fmt: skip
        for prompt, rows, tokens in zip(prompts, lengths, out, strict=True):
            prompt += tokens[: rows[number][1]]
    return {"rounds": rounds, "peak_mib": memory_peak()}


def total(rounds: list[dict[str, float]], name: str) -> float:
    return sum(item[name] for item in rounds)


def report_sampling(args: argparse.Namespace) -> None:
    for count in args.sequences:
        ours = contender(args, "sampling_ours", sys.executable, count)
        # Said at once: the other side takes several times as long.
        mine = total(ours["rounds"], "sampled") / total(ours["rounds"], "seconds")
        print(f"\nmoot sampled {count} sequences at {mine:.1f} tokens/s; generate is next", flush=True)
        shortened = f", turns shortened to {args.shorten:.0%}" if args.shorten != 1 else ""
        print(f"\n{count} sequences of recorded {args.lengths} debates, 3 rounds{shortened}")
        stock = None if args.no_stock else contender(args, "sampling_stock", sys.executable, count)
        for number, item in enumerate(ours["rounds"]):
            for name, side in (("moot    ", item), ("generate", stock["rounds"][number] if stock else None)):
                if side:
                    print(
                        f"  round {number + 1} {name}: {side['seconds']:6.1f} s, {side['sampled'] / side['seconds']:6.1f} tokens/s; "
                        f"{side['prefilled']} tokens prefilled in {side['prefill']:.1f} s, "
                        f"{side['steps']} steps of {side['step'] * 1e3:.0f} ms"
                    )
        print(
            f"  peak memory: moot {ours['peak_mib']:.0f} MiB"
            + (f", generate {stock['peak_mib']:.0f} MiB" if stock else "")
        )
        if stock:
            ratio = {name: total(stock["rounds"], name) / total(ours["rounds"], name) for name in ("seconds", "cpu")}
            print(
                f"  generate / moot: {ratio['seconds']:.1f}x the time over all rounds, {ratio['cpu']:.1f}x the processor time"
            )
        computed = (total(ours["rounds"], "prefilled") + total(ours["rounds"], "sampled")) / total(
            ours["rounds"], "seconds"
        )
        print(
            f"  ceiling: prefill runs at {ours['prefill_rate']:.0f} tokens/s, the rounds at {computed:.0f} prefilled and sampled tokens/s, "
            f"{computed / ours['prefill_rate']:.0%} of it"
        )
        last = ours["rounds"][-1]
        print(
            f"  round 3's prompts: {ours['cold_tokens']} tokens in {ours['cold_prefill_s']:.1f} s without reuse, "
            f"{last['prefilled']} in {last['prefill']:.1f} s with it"
        )


# -- training -------------------------------------------------------------------------------------------------------------------------


def debate_tokens(args: argparse.Namespace, count: int) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Tokens of whole debates, where they were sampled, and the length of the first prompt."""
    random = np.random.default_rng(1)
    out = []
    for rows in recorded(args, count):
        mask = [mark for prompt, turn in rows for mark in [0] * prompt + [1] * turn]
        out.append((random.integers(10, 40000, len(mask)).astype(np.int32), np.array(mask), rows[0][0]))
    return out


def training_ours(args: argparse.Namespace, count: int) -> dict[str, Any]:
    from moot.engine.local import LocalEngine
    from moot.engine.protocol import Datum

    engine = LocalEngine.create(
        args.model, dtype=args.dtype, device=args.device, token_budget=args.token_budget, gradient_checkpointing=args.recompute,
        max_cache_gib=0.25,
    )  # fmt: skip
    reset_peak()
    datums = []
    for tokens, mask, _ in debate_tokens(args, count):
        weight = mask[1:].astype(np.float32)
        datums.append(Datum(tokens[:-1], tokens[1:], -10 * weight, weight, weight))
    engine.forward_backward(datums[:1], "ppo").result()
    start, cpu = time.perf_counter(), time.process_time()
    out = engine.forward_backward(datums, "ppo").result()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    asyncio.run(engine.close())
    return {
        "seconds": seconds,
        "cpu": cpu,
        "peak_mib": memory_peak(),
        "tokens": out.metrics["tokens"],
        "padding": out.metrics["padding"],
    }


def training_trl(args: argparse.Namespace, count: int) -> dict[str, Any]:
    """GRPOTrainer's own loss and backward, at each batch size it is given; the fastest counts."""
    import tempfile

    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from moot.engine.local.models import pick_device, pick_dtype
    from moot.engine.local.smollm import NAME, find_smollm

    device = pick_device(args.device)
    dtype = pick_dtype(args.dtype, device, False)
    path = find_smollm()[0] if args.model == NAME else args.model
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=device.type == "cpu", bf16=args.trl_autocast, report_to=[], beta=0.0, loss_type="dr_grpo",
        per_device_train_batch_size=2, num_generations=2, gradient_checkpointing=args.recompute, max_completion_length=4096,
    )  # fmt: skip
    trainer: Any = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(path, dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(path),
        args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 8}),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    if args.trl_adapter_bf16:
        for parameter in trainer.model.parameters():
            parameter.data = parameter.data.to(dtype)
    trainer.current_gradient_accumulation_steps = 1
    model = trainer.model.train()
    reset_peak()
    data = sorted(debate_tokens(args, count), key=lambda item: len(item[0]))  # length-sorted, which spares it padding

    def run(items: list[Any]) -> int:
        first = max(item[2] for item in items)
        rest = max(len(item[0]) - item[2] for item in items)

        def left(rows: list[np.ndarray]) -> torch.Tensor:
            return torch.tensor(np.stack([np.pad(row, (first - len(row), 0)) for row in rows]), device=device).long()

        def right(rows: list[np.ndarray]) -> torch.Tensor:
            return torch.tensor(np.stack([np.pad(row, (0, rest - len(row))) for row in rows]), device=device).long()

        ones = [np.ones(len(item[0]), np.int64) for item in items]
        inputs = {
            "prompt_ids": left([item[0][: item[2]] for item in items]),
            "prompt_mask": left([one[: item[2]] for one, item in zip(ones, items, strict=True)]),
            "completion_ids": right([item[0][item[2] :] for item in items]),
            "completion_mask": right([one[item[2] :] for one, item in zip(ones, items, strict=True)]),
            "tool_mask": right([item[1][item[2] :] for item in items]),
            "advantages": torch.ones(len(items), device=device),
            "num_items_in_batch": torch.tensor(1.0, device=device),
        }
        trainer.compute_loss(model, inputs).backward()
        return len(items) * (first + rest)

    best: dict[str, Any] = {"seconds": float("inf")}
    tokens = sum(len(item[0]) for item in data)
    for size in args.trl_batch:
        run(data[:size])
        start, cpu = time.perf_counter(), time.process_time()
        padded = sum(run(data[at : at + size]) for at in range(0, count, size))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "cpu": cpu, "batch": size, "padding": 1 - tokens / padded, "tokens": tokens}
    return {**best, "peak_mib": memory_peak()}


def report_training(args: argparse.Namespace) -> None:
    count = 4 if args.quick else 12
    ours = contender(args, "training_ours", sys.executable, count)
    print(f"\nforward and backward, {count} debates of {ours['tokens'] / count:.0f} tokens")
    print(f"  moot {speed(ours)}")
    if args.trl_python:
        trl = contender(args, "training_trl", args.trl_python, count)
        print(
            f"  TRL  {speed(trl)} (batch {trl['batch']}) | {trl['seconds'] / ours['seconds']:.2f}x the time, "
            f"{trl['cpu'] / ours['cpu']:.2f}x the processor time, {trl['peak_mib'] / ours['peak_mib']:.2f}x the memory"
        )


def speed(result: dict[str, Any]) -> str:
    rate = result["tokens"] / result["seconds"]
    return f"{result['seconds']:.1f} s, {rate:.0f} tokens/s, padding {result['padding']:.0%}, peak {result['peak_mib']:.0f} MiB"


def contender(args: argparse.Namespace, name: str, python: str, count: int) -> dict[str, Any]:
    # TRL's Python need not have moot installed; this copy will do for finding the model.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    if args.threads:
        environment["OMP_NUM_THREADS"] = str(args.threads)
    command = [
        python,
        __file__,
        args.what,
        "--child",
        name,
        "--child-options",
        json.dumps({**vars(args), "count": count}),
    ]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{name} failed:\n{result.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(lines[0][7:])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sampling", "training", "all"])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--sequences", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--lengths", choices=["gsm8k", "arithmetic"], default="gsm8k")
    parser.add_argument("--shorten", type=float, default=1.0, help="share of each turn that is really sampled")
    parser.add_argument(
        "--quick", action="store_true", help="12 sequences, a tenth of each turn; 4 debates to train on"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: torch's choice")
    parser.add_argument("--cache-gib", type=float, default=6.0)
    parser.add_argument("--adapter", type=int, default=1, help="0: sample from the base model")
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--token-budget", type=int, default=None)
    parser.add_argument("--recompute", action="store_true", help="gradient checkpointing, for both")
    parser.add_argument("--trl-python", default=None)
    parser.add_argument("--trl-batch", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trl-autocast", action="store_true", help="bf16=True in its configuration")
    parser.add_argument("--trl-adapter-bf16", type=int, default=1, help="0: keep its adapter in float32")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--child-options", default="{}", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        options = json.loads(args.child_options)
        print("RESULT " + json.dumps(globals()[args.child](argparse.Namespace(**options), options["count"])))
        return
    if args.quick:
        args.sequences, args.shorten = [12], min(args.shorten, 0.1) if args.what != "training" else args.shorten
    print(
        f"{args.model}, dtype {args.dtype}, {args.threads or 'default'} threads, load average {os.getloadavg()[0]:.1f}"
    )
    if args.what in ("sampling", "all"):
        report_sampling(args)
    if args.what in ("training", "all"):
        report_training(args)


if __name__ == "__main__":
    main()
