"""A step's tokens as arrays in one file, and back. A file may be damaged, or claim more than it holds."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moot.runs.record import FORMAT
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import SampledTurn
from moot.util.disk import opened


def read_arrays(file: Path, names: Sequence[str], largest: int = 2**30) -> dict[str, Any]:
    """Those arrays of a step's tokens; ValueError where the file is damaged or larger than `largest` bytes."""
    import numpy as np

    try:
        with opened(file) as content, zipfile.ZipFile(content) as archive:
            if sum(member.file_size for member in archive.infolist()) > largest:
                raise ValueError(f"{file.name} would unpack to more than {largest:,} bytes")
            for name in names:
                # An array's header says how large it is, and memory is taken before the file turns out to be shorter.
                with archive.open(f"{name}.npy") as member:
                    form = np.lib.format
                    first = form.read_magic(member) == (1, 0)
                    read = form.read_array_header_1_0 if first else form.read_array_header_2_0
                    shape, _, kind = read(member)
                    if math.prod(shape) * kind.itemsize > archive.getinfo(f"{name}.npy").file_size:
                        raise ValueError(f"{name} in {file.name} claims {math.prod(shape):,} entries and has fewer")
        with opened(file) as content, np.load(content, allow_pickle=False) as arrays:
            return _fitting({name: arrays[name] for name in names}, file.name)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, TypeError, RuntimeError, SyntaxError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None


def _fitting(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """As they are, where they are rows of numbers that belong together; ValueError where not."""
    import numpy as np

    for key, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in ("f" if key in _REAL else "biu"):
            raise ValueError(f"{key} in {name} cannot be read: it must be a row of numbers")
        if key.endswith("offsets") and (len(array) == 0 or array[0] != 0 or bool(np.any(np.diff(array) < 0))):
            raise ValueError(f"{key} in {name} cannot be read: it must rise from 0")
    turns = {len(array) - key.endswith("offsets") for key, array in arrays.items() if key in _BY_TURN}
    tokens = {len(array) for key, array in arrays.items() if key in _BY_TOKEN}
    kinds = [kind for kind in ("", "prompt_") if f"{kind}offsets" in arrays]
    ends = [(arrays[f"{kind}offsets"], arrays[f"{kind}tokens"]) for kind in kinds]
    if len(turns) > 1 or len(tokens) > 1 or any(offsets[-1] != len(cut) for offsets, cut in ends):
        raise ValueError(f"{name} cannot be read: its arrays must be equally long")
    return arrays


def token_arrays(played: Sequence[PlayedDebate]) -> dict[str, Any]:
    """All turns of a step end to end, debate by debate. Turn k of the file has
    `prompt_tokens[prompt_offsets[k]:prompt_offsets[k+1]]`, and so on."""
    import numpy as np  # here, because what reads only text waits for nothing

    turns: list[SampledTurn] = []
    credits: list[Any] = []
    where: list[tuple[int, int]] = []
    for number, one in enumerate(played):
        values = [*one.token_credits()]
        turns += one.sampled
        where += [(number, i) for i in range(len(one.sampled))]
        credits += values + [np.zeros(len(turn.tokens), dtype=np.float32) for turn in one.sampled[len(values) :]]

    def joined(arrays: list[Any], kind: type) -> Any:
        return np.concatenate(arrays).astype(kind) if arrays else np.zeros(0, dtype=kind)

    return {
        "format": np.array(FORMAT),
        "debate": np.array([n for n, _ in where], dtype=np.int32),
        "turn": np.array([i for _, i in where], dtype=np.int32),
        "extends": np.array([turn.extends for turn in turns], dtype=bool),
        "temperature": np.array([turn.temperature for turn in turns], dtype=np.float32),
        "prompt_offsets": np.cumsum([0, *(len(turn.prompt) for turn in turns)], dtype=np.int64),
        "prompt_tokens": joined([turn.prompt for turn in turns], np.int32),
        "offsets": np.cumsum([0, *(len(turn.tokens) for turn in turns)], dtype=np.int64),
        "tokens": joined([turn.tokens for turn in turns], np.int32),
        "logprobs": joined([turn.logprobs for turn in turns], np.float32),
        "advantages": joined(credits, np.float32),
        "starts": joined([turn.starts for turn in turns], np.int32),
        "inserted": joined([~turn.sampled for turn in turns], bool),
    }


_REAL = ("temperature", "logprobs", "advantages")
_BY_TURN = ("debate", "turn", "extends", "temperature", "prompt_offsets", "offsets")
_BY_TOKEN = ("tokens", "logprobs", "advantages", "starts", "inserted")
SHOWN = ("debate", "turn", "offsets", "temperature", "starts", "tokens", "logprobs", "advantages", "inserted")
"""The arrays that `turn_tokens` needs; `inserted` where there is one."""


def turn_tokens(arrays: Mapping[str, Any], number: int) -> dict[int, dict[str, Any]]:
    """The tokens of one debate, by turn: their ids, logprobs and advantages, and the character each starts in."""
    import numpy as np

    offsets = arrays["offsets"]
    by_turn: dict[int, dict[str, Any]] = {}
    for k in np.flatnonzero(arrays["debate"] == number).tolist():
        cut = slice(int(offsets[k]), int(offsets[k + 1]))
        by_turn[int(arrays["turn"][k])] = {
            "temperature": float(arrays["temperature"][k]),
            "starts": arrays["starts"][cut],
            "ids": arrays["tokens"][cut],
            "logprobs": arrays["logprobs"][cut],
            "advantages": arrays["advantages"][cut],
            "inserted": arrays["inserted"][cut],
        }
    return by_turn
