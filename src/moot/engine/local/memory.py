"""Out of memory, under every name it comes by; and the way from the host's memory to the device's.

torch has an exception of its own for it. The libraries below torch do not: cuDNN and cuBLAS take their workspaces
themselves, and where several runs share a GPU it is theirs that fail first.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from moot.engine.protocol import in_words
from moot.errors import EngineError

T = TypeVar("T")

SIGNS = (
    "out of memory",  # CUDA's own, and triton's when it loads a kernel
    "can't allocate memory",  # torch on a CPU
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # cuBLAS makes its handle late, and says only this when there is no room for it
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "mha_graph.execute",  # cuDNN's attention, without the room for its workspace
)
"""What is said by a RuntimeError that means it. Triton's "out of resource" does not: that is a kernel too large for the
chip."""
PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds to wait before the smallest piece is tried again: on a shared GPU what is missing is held by another, who may
give it back."""
SHARED_PAUSES = (10.0,) * 12
"""And after these, where others do hold memory. They give it back at the end of a step, or at their own end."""
_THREAD = threading.local()
OTHERS = 4 << 30
"""Bytes in use that are not ours, from which on there are others; a process of ours takes half a GiB beside what torch
counts."""


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def free_failed(error: BaseException) -> None:
    """What the failed work still held: the frames it died in keep their tensors as long as the error lives."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def give_up_when(ended: Callable[[], bool]) -> None:
    """Of this thread: no pause and no further part of a pass once it says so. Who closes an engine must not wait
    minutes."""
    _THREAD.ended = ended


def leaving() -> Callable[[], None]:
    """Raises once this thread's engine is closed, in whatever thread it is called: a GPU's backward pass has its
    own."""
    ended: Callable[[], bool] = getattr(_THREAD, "ended", bool)

    def check() -> None:
        if ended():
            raise EngineError("the local engine was closed in the middle of a pass")

    return check


def pause(attempt: int) -> bool:
    """Wait for others to give memory back; False when that was tried often enough."""
    pauses = (*PAUSES, *SHARED_PAUSES) if shared() else PAUSES
    if attempt >= len(pauses) or getattr(_THREAD, "ended", bool)():
        return False
    if torch.cuda.is_available():
        time.sleep(pauses[attempt])
    return True


def shared() -> bool:
    """Whether others hold much of the GPU's memory."""
    if not torch.cuda.is_available():
        return False
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved() > OTHERS


def release_if_tight() -> None:
    """Leave no large unused blocks with torch where the GPU is nearly full: others cannot use them."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        if free < total // 8:
            torch.cuda.empty_cache()


def retry_on_oom(work: Callable[[], T], what: str = "", make_room: Callable[[], bool] = bool) -> T:
    """The work, tried again where it ran out of memory: for what has no smaller pieces. `make_room` is asked first.
    `what` is said where nothing helps."""
    for attempt in itertools.count():
        try:
            return work()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            free_failed(error)
            if not make_room() and not pause(attempt):
                raise EngineError(f"out of memory: {what}{in_words(error)}") from error
    raise AssertionError("unreachable")


def upload(array: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """To the device without waiting for what it still has to do: a plain copy waits for all of it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(device) if device.type != "cuda" else tensor.pin_memory().to(device, non_blocking=True)
