"""The local engine: the Tinker API's verbs, in this process, on torch, transformers and peft.

Public names:

    LocalEngine        the Trainer; `LocalEngine.create(model, **settings)` loads a model and makes one
    LocalSettings      what those settings are
    LocalSampler       what `snapshot()` gives: frozen weights that sample
    DamagedCheckpoint  a checkpoint whose files do not match its manifest
    UnsupportedModel   an architecture this engine would run wrongly, and so does not run

How it is built, from the bottom:

    smollm.py      the small model that needs no hub; models.py: from a name to a model this engine can run
    network.py     one forward pass for sampler and trainer alike, so that their logprobs agree
    layer_ops.py   what a layer does between its products; fused.py: the same in one Triton kernel each
    adapter.py     peft's LoRA parameters as the network runs them; merge.py: folded into the base model
    attention.py   packed (training, prefill) and paged (decoding) attention
    pages.py       the key-value cache: fixed pages, prefix reuse; what no request waits for is forgotten first
    paged.py       attention over these pages on a GPU, one Triton kernel each for prompts and for decoding
    sampling.py    logits -> a token and its logprob; stop conditions; sampling_triton.py: as two Triton kernels
    batch.py       requests, and the rows that decode together
    graphs.py      a whole decode step captured as a CUDA graph, sampling included
    gpu_batch.py       a batch on a GPU: its tokens stay there, and are looked at one step late
    scheduler.py   continuous batching over all concurrent `sample` calls
    scoring.py     logprobs of given tokens, known when their prompt is prefilled
    prefix_packing.py   datums that begin alike, so that a pass computes their beginning once
    losses.py      the Tinker API's losses, summed over tokens
    trainer.py     packed micro-batches, gradient accumulation, Adam
    checkpoint.py  adapter, optimizer and a manifest of checksums on disk
    memory.py      out of memory by any name: smaller pieces, and the same work again
    worker.py      the one thread that touches torch; threads.py: how many compute with it on a CPU that others use too
    shared.py      what the trainers of one base model share: its weights, the cache, the scheduler
    engine.py      the verbs of one trainer, and its samplers

Left out: full fine-tuning, mixture-of-experts, several devices.
"""

from moot.engine.local.engine import LocalEngine, LocalSampler
from moot.engine.local.models import UnsupportedModel
from moot.engine.local.shared import LocalSettings
from moot.engine.manifest import DamagedCheckpoint

__all__ = ["DamagedCheckpoint", "LocalEngine", "LocalSampler", "LocalSettings", "UnsupportedModel"]
