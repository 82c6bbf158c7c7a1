"""One training pass on a CPU: the memory it took, beside what a dry run counts for it.

    python bench/footprint.py --layers 2 --tokens 16384 --gradient-checkpointing      the width of Qwen3-8B: 7 minutes on two cores

What a pass keeps grows evenly with its layers, so a few layers of a model too large for this machine tell of all of them. Weights are
random. Memory is what the process had at its peak in the pass, minus what it had before; Linux tells both. A tenth or two of a GiB, for the
logits at hand, is not counted: it matters for small passes alone.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

import numpy as np
from gpu_measure import SHAPES, random_model

SEQUENCE = 2048


def resident(name: str) -> int:
    """Bytes: `VmRSS` as it is, `VmHWM` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen3-8b", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16384, help=f"of the pass, in sequences of at most {SEQUENCE}")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    args = parser.parse_args()

    from moot.engine.footprint import GIB, Shape, pass_bytes
    from moot.engine.local import LocalEngine, engine
    from moot.engine.protocol import AdamParams, Datum

    SHAPES["few layers"] = {**SHAPES[args.shape], "num_hidden_layers": args.layers}
    engine.load_model = lambda name, device, dtype: random_model(name, device, dtype)
    made = LocalEngine.create(
        "few layers", device="cpu", dtype="bf16", max_cache_gib=0.1, token_budget=args.tokens,
        gradient_checkpointing=args.gradient_checkpointing,
    )  # fmt: skip
    rng = np.random.default_rng(0)

    def datums(tokens: int) -> list[Datum]:
        lengths = [SEQUENCE] * (tokens // SEQUENCE) + [tokens % SEQUENCE] * (tokens % SEQUENCE > 0)
        drawn = [rng.integers(0, made._network.vocab_size, length + 1).astype(np.int32) for length in lengths]
        ones = [np.ones(length, np.float32) for length in lengths]
        return [Datum(row[:-1], row[1:], -8 * one, one, one) for row, one in zip(drawn, ones, strict=True)]

    made.forward_backward(datums(64), "ppo").result()  # libraries take their own memory with the first call
    made.optim_step(AdamParams(1e-5)).result()
    given = datums(args.tokens)
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    begin = time.perf_counter()
    passes = made.forward_backward(given, "ppo").result().metrics["micro_batches"]
    seconds = time.perf_counter() - begin
    taken = (resident("VmHWM") - before) / GIB
    counted = args.tokens * pass_bytes(Shape.of(made._wrapped.config), 16, 2, args.gradient_checkpointing) / GIB
    how = "activations recomputed" if args.gradient_checkpointing else "activations kept"
    print(f"{args.shape}, {args.layers} layers, {args.tokens:,} tokens in {passes:.0f} pass, {how}, {seconds:.0f} s")
    print(f"counted {counted:.3f} GiB, taken {taken:.3f} GiB, ratio {taken / counted:.2f}")
    made.shut()


if __name__ == "__main__":
    main()
