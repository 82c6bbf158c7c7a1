"""What one GPU gives: sampling, prefill and training rates, where a decode step's time goes; beside it peft and, if installed, vLLM.

    python bench/gpu.py                                     shapes of Qwen2.5 0.5B and 1.5B and of Qwen3 8B, with random weights
    python bench/gpu.py --models qwen2.5-0.5b FOLDER ...    shapes by name, or folders of real models
    python bench/gpu.py --models tiny --device cpu          a look at whether it runs, on any machine

Prompts are random tokens, and nothing stops early. The adapter is that of one training step, so that sampling pays for it. Each model has
a process and a time limit of its own: what was measured before the limit is kept. Numbers go to a JSON file and, as a table, to the
terminal.

`--iterations 64`, the default for the 8B shape, times one step of training by debate with 64 questions, 5 agents and 3 rounds, sampled and
trained: with growing prompts, and with layout shared, whose transcripts are prefilled and trained once. vLLM samples the growing prompts,
and peft trains them as plain sequences; of these it is timed on a part, and the rest is counted at the same rate.

`--judged 192` times a judging round: of each answer four short checks, whose prompts share the question and the answer. Ours and vLLM, with its
prefix cache, are given the same prompts, and neither has seen them before.

Recomputed training is with gradient checkpointing, in passes of 16,384 tokens: slower, in a sixth of the memory.

Of a decode step, `kernels` is how long the GPU worked, `launch` how long the host took to start it, `host` what the host did besides, and
`waiting` how long it waited for the GPU. A GPU is busy where `kernels` is nearly `step`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gpu_measure import AGENTS, CHECKS, ROUNDS, SHAPES


def child(args: argparse.Namespace, what: str, model: str, limit: float) -> tuple[list[dict[str, Any]], str]:
    """What it said before it ended or was ended, and what went wrong."""
    program = ["gpu_measure.py"] if what == "ours" else ["gpu_peers.py", what]
    command = [
        sys.executable,
        str(Path(__file__).with_name(program[0])),
        *program[1:],
        json.dumps({**vars(args), "model": model}),
    ]
    with tempfile.TemporaryFile("w+") as errors:
        # A session of its own: vLLM starts processes, and one that outlives it would hold the memory that the next needs.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        timer = threading.Timer(limit, end_all, [process])
        begin = time.perf_counter()  # before the timer, whose limit would otherwise seem not to be reached
        timer.start()
        results = []
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("RESULT "):
                    results.append(json.loads(line[7:]))
                    print(f"  {model}: {brief(results[-1])}", flush=True)
            code = process.wait()
        finally:
            timer.cancel()
            end_all(process)
        errors.seek(0)
        said = errors.read()[-1500:]
    if code == 0:
        return results, ""
    return (
        results,
        f"ended after {limit:.0f} s" if time.perf_counter() - begin >= limit else f"exit status {code}: {said}",
    )


def end_all(process: subprocess.Popen[str]) -> None:
    """It, and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def brief(result: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in result.items()
    )


def table(results: list[dict[str, Any]]) -> str:
    columns = f"{'sequences':>9} {'tokens/s':>9} {'vLLM':>9} {'step ms':>8} {'kernels':>8} {'launch':>7} {'host':>7} {'waiting':>8}"
    lines = [f"{'model':28} {columns} {'prefill/s':>10}"]
    for model in dict.fromkeys(item["model"] for item in results):
        mine = [item for item in results if item["model"] == model]
        for item in (one for one in mine if one["kind"] == "sampling"):
            found = {one["kind"]: one for one in mine if one.get("sequences") == item["sequences"]}
            split, peer = found.get("profile", {}), found.get("vllm", {})
            parts = [
                f"{split[name]:.2f}" if name in split else "-" for name in ("kernels", "launch", "host", "waiting")
            ]
            rate = f"{peer['rate']:.0f}" if peer else "-"
            lines.append(
                f"{Path(model).name[:28]:28} {item['sequences']:>9} {item['rate']:>9.0f} {rate:>9} {item['step_ms']:>8.2f} {parts[0]:>8} "
                f"{parts[1]:>7} {parts[2]:>7} {parts[3]:>8} {item['prefill_rate']:>10.0f}"
            )
    for item in (one for one in results if one["kind"] == "debate"):
        peers = [
            one
            for one in results
            if one["kind"] == "vllm debate" and all(one[name] == item[name] for name in ("model", "questions"))
        ]
        rate = f"{peers[0]['rate']:.0f}" if peers else "-"
        lines.append(
            f"{Path(item['model']).name[:28]:28} debate {item['questions']} questions x {AGENTS} agents x {ROUNDS} rounds: "
            f"{item['rate']:.0f} tokens/s, vLLM {rate}"
        )
    for item in (one for one in results if one["kind"] == "judging"):
        peers = [
            one
            for one in results
            if one["kind"] == "vllm judging" and all(one[name] == item[name] for name in ("model", "answers"))
        ]
        rate = f"{peers[0]['rate']:.0f}, {item['rate'] / peers[0]['rate']:.2f} times" if peers else "-"
        lines.append(
            f"{Path(item['model']).name[:28]:28} judging {item['answers']} answers x {CHECKS} checks: {item['rate']:.0f} tokens/s, vLLM {rate}"
        )
    for item in (one for one in results if one["kind"] in ("training", "recomputed training")):
        peers = [
            one
            for one in results
            if one["kind"] == "peft" and all(one[name] == item[name] for name in ("model", "datums"))
        ]
        rate = f"{peers[0]['rate']:.0f}" if peers else "-"
        lines.append(
            f"{Path(item['model']).name[:28]:28} {item['kind']} {item['datums']} x {item['tokens']}: {item['rate']:.0f} tokens/s, "
            f"peft {rate}, {item['tflops']:.0f} useful TFLOP/s, peak {item['peak_gib']:.1f} GiB "
            f"(predicted {item['predicted_gib']:.1f}), {item['micro_batches']:.0f} passes"
        )
    for item in (one for one in results if one["kind"] in ("iteration", "vllm iteration", "peft iteration")):
        how = item.get("layout", "vLLM, growing" if item["kind"] == "vllm iteration" else "peft, plain")
        took = "of sampling" if item["kind"] == "vllm iteration" else "of training"
        if "layout" in item:
            took = f"{item['sampling_s']:.1f} s sampling, {item['training_s']:.1f} s training"
        lines.append(
            f"{Path(item['model']).name[:28]:28} iteration of {item['questions']} questions, {how}: {item['seconds']:.1f} s: {took}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-8b"]
    parser.add_argument("--models", nargs="+", default=shapes, help=f"folders, or {', '.join(SHAPES)}")
    parser.add_argument(
        "--sequences", type=int, nargs="+", help="default: 48 192 512 for qwen3-8b, 64 256 512 for others"
    )
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens sampled of each")
    parser.add_argument(
        "--debates",
        type=int,
        nargs="*",
        default=[16, 64],
        help=f"questions debated by {AGENTS} agents in {ROUNDS} rounds",
    )
    parser.add_argument(
        "--judged",
        type=int,
        nargs="*",
        default=[192],
        help=f"answers of a judging round, each with {CHECKS} short checks",
    )
    parser.add_argument(
        "--iterations", type=int, nargs="*", help="questions of a step, sampled and trained; default: 64 for qwen3-8b"
    )
    parser.add_argument(
        "--layouts", nargs="+", default=["growing", "shared"], choices=["growing", "shared"], help="of our iterations"
    )
    parser.add_argument("--datums", type=int, nargs="*", default=[4, 16], help="sequences of a training step")
    parser.add_argument("--datum-tokens", type=int, default=2048)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache-gib", type=float, default=None)
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds for each model, and again for vLLM and for peft"
    )
    parser.add_argument("--out", default="gpu.json")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    peer = importlib.util.find_spec("vllm") is not None
    print(
        "vLLM runs beside it" if peer else "vLLM is not installed here, so there is nothing to compare with", flush=True
    )
    for model in args.models:
        large = model == "qwen3-8b"
        own = argparse.Namespace(**vars(args))
        own.sequences = args.sequences or ([48, 192, 512] if large else [64, 256, 512])
        own.iterations = ([64] if large else []) if args.iterations is None else args.iterations
        for what in ("ours", "vllm", "peft") if peer else ("ours", "peft"):
            if what == "peft" and not (own.datums or own.iterations):
                continue
            said, trouble = child(own, what, model, args.limit)
            results += [{"model": model, **item} for item in said]
            if trouble:
                print(f"  {model}: {what} did not finish: {trouble}", flush=True)
                results.append({"model": model, "kind": "trouble", "of": what, "told": trouble})
            Path(args.out).write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
