"""One training pass on a CPU: the tensors that torch held at its peak, beside what a dry run counts for it.

    python bench/footprint.py --layers 6 --gradient-checkpointing      the width of Qwen3-8B: two minutes on two cores

What a pass keeps grows evenly with its layers and tokens, so a few layers of a model too large for this machine tell of all of them.
Weights are random, and not counted. Not tensors, and so not seen, are the workspaces that kernels take for themselves.
"""

from __future__ import annotations

import argparse
import time
import weakref
from typing import Any

import numpy as np
from gpu_measure import SHAPES, random_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

SEQUENCE = 2048


class Held(TorchDispatchMode):
    """Bytes of the tensors that operations made and somebody still has; each block of memory once."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self._blocks = {weight.untyped_storage()._cdata: 0 for weight in weights}
        self.now = self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, Tensor) and (block := tensor.untyped_storage())._cdata not in self._blocks:
                self._blocks[block._cdata] = block.nbytes()
                self.now += block.nbytes()
                weakref.finalize(block, self._gone, block._cdata)
        self.peak = max(self.peak, self.now)
        return made

    def _gone(self, block: int) -> None:
        self.now -= self._blocks.pop(block)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen3-8b", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048, help=f"of the pass, in sequences of at most {SEQUENCE}")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    args = parser.parse_args()

    from moot.engine.local import LocalEngine, shared
    from moot.engine.local.losses import find_loss
    from moot.engine.memory_estimate import GIB, Shape, pass_bytes
    from moot.engine.protocol import AdamParams, Datum

    SHAPES["few layers"] = {**SHAPES[args.shape], "num_hidden_layers": args.layers}
    shared.load_model = lambda name, device, dtype: random_model(name, device, dtype)
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

    made.forward_backward(datums(64), "ppo").result()
    made.optim_step(AdamParams(1e-5)).result()  # what the first calls make and keep is not the pass's
    network, given = made._network, datums(args.tokens)
    matrices = [linear.weight for layer in network.layers for linear in layer.linear.values()]
    heads = [network.head] if network._wide_head is None else [network.head, network._wide_head]
    held = Held([network.embed, *heads, *matrices, *made._trainer.parameters.values()])

    def work() -> float:
        with held:
            return made._trainer.run(given, find_loss("ppo", None), backward=True).metrics["micro_batches"]

    begin = time.perf_counter()
    passes = made._worker.submit(work).result()
    seconds = time.perf_counter() - begin
    counted = args.tokens * pass_bytes(Shape.of(made._wrapped.config), 16, 2, args.gradient_checkpointing)
    how = "activations recomputed" if args.gradient_checkpointing else "activations kept"
    print(f"{args.shape}, {args.layers} layers, {args.tokens:,} tokens in {passes:.0f} pass, {how}, {seconds:.0f} s")
    print(f"counted {counted / GIB:.3f} GiB, held {held.peak / GIB:.3f} GiB, ratio {held.peak / counted:.2f}")
    made.shut()


if __name__ == "__main__":
    main()
