"""The local engine: the Tinker API's verbs, in this process, on torch, transformers and peft.

Public names:

    LocalEngine        the Trainer; `LocalEngine.create(model=...)` loads a model and makes one
    LocalSampler       what `snapshot()` gives: frozen weights that sample
    DamagedCheckpoint  a checkpoint whose files do not match its manifest
    UnsupportedModel   an architecture this engine would run wrongly, and so does not run

How it is built, from the bottom:

    network.py     one forward pass for sampler and trainer alike, so that their logprobs agree
    attention.py   packed (training, prefill) and paged (decoding) attention
    pages.py       the key-value cache: fixed pages, prefix reuse, least-recently-used eviction
    picking.py     logits -> a token and its logprob; stop conditions
    batch.py       requests, and the rows that decode together
    scheduler.py   continuous batching over all concurrent `sample` calls
    graphs.py      on a GPU: decode steps captured whole, on the kernels of paged.py (attention) and choosing.py (picking)
    lanes.py       on a GPU: a batch whose tokens stay on the device, looked at one step late
    trainer.py     packed micro-batches, losses, gradient accumulation, Adam
    memory.py      out of memory by any name: smaller pieces, and the same work again
    worker.py      the one thread that touches torch
    engine.py      the verbs

Left out: full fine-tuning, mixture-of-experts, several devices.
"""

from moot.engine.local.checkpoint import DamagedCheckpoint
from moot.engine.local.engine import LocalEngine, LocalSampler
from moot.engine.local.models import UnsupportedModel

__all__ = ["DamagedCheckpoint", "LocalEngine", "LocalSampler", "UnsupportedModel"]
