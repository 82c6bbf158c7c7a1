"""A step's tokens as they stand on disk, read with care: a file may be damaged, or claim more than it holds."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_arrays(file: Path, names: Sequence[str], largest: int = 2**30, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Those arrays of a step's tokens; ValueError where the file is damaged, or claims more than `largest` bytes or than it holds."""
    import numpy as np

    try:
        with zipfile.ZipFile(file) as archive:
            if sum(member.file_size for member in archive.infolist()) > largest:
                raise ValueError(f"{file.name} would unpack to more than {largest:,} bytes")
            names = [*names, *(name for name in optional if f"{name}.npy" in archive.namelist())]
            for name in names:
                # An array's header says how large it is, and memory is taken before the file turns out to be shorter.
                with archive.open(f"{name}.npy") as member:
                    version = np.lib.format.read_magic(member)
                    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                    shape, _, kind = read(member)
                    if math.prod(shape) * kind.itemsize > archive.getinfo(f"{name}.npy").file_size:
                        raise ValueError(f"{name} in {file.name} claims {math.prod(shape):,} entries and has fewer")
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, TypeError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None
