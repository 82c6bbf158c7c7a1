"""A run's folder. Training, evaluation and the page meet only here; docs/formats.md says it for other tools.

    run.json                     format version, configuration, what made it
    metrics.jsonl                one object per step (and evaluation), in order
    debates/000012.jsonl         every debate of step 12: text, fields, votes, rewards
    debates/000012.npz           its tokens, logprobs and advantages: one array each, cut by `offsets`
    checkpoints/000012/          the engine's state, and state.json: the loop's own, with the step's metrics

A step is committed by its checkpoint. Files are written beside their place and moved there, so a kill leaves either all of
one or none; what a killed step left behind is overwritten when it is played again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError
from moot.records.codec import FORMAT, Damaged, read_line, to_record, token_arrays
from moot.records.files import append_line, beside, json_lines, sync_folder, write_atomically
from moot.records.played import PlayedDebate
from moot.tasks.answers import exact
from moot.tasks.comparing import Grader


class Run:
    """One run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not Run.exists(self.path):
            raise ConfigError(f"{path} is not a run: it has no run.json")
        version = self.header.get("format")
        if version != FORMAT:
            raise ConfigError(f"{path} is a run of format {version}, and this moot reads format {FORMAT}; use the moot that made it")

    # Opening

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], made_by: Mapping[str, Any]) -> Run:
        (path / "debates").mkdir(parents=True, exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
        write_atomically(path / "run.json", json.dumps({"format": FORMAT, "config": config, "made_by": made_by}, indent=1).encode())
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        return cls(path)

    @staticmethod
    def exists(path: Path) -> bool:
        return (path / "run.json").is_file()

    @property
    def header(self) -> dict[str, Any]:
        try:
            header = json.loads((self.path / "run.json").read_text())
        except ValueError as error:
            raise ConfigError(f"{self.path / 'run.json'} is damaged: {error}") from None
        return header if isinstance(header, dict) else {}

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.header["config"])

    # Metrics

    def metrics(self) -> list[dict[str, Any]]:
        """Every complete line; a last line cut short by a kill is left out."""
        return [row for _, row, _ in json_lines(self.path / "metrics.jsonl") if row is not None]

    def frame(self) -> Any:
        """The metrics as a pandas DataFrame, a row for each of theirs."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise ConfigError("frame needs pandas, which is not installed; run: pip install pandas, or take metrics()") from None
        return pandas.DataFrame(self.metrics())

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        append_line(self.path / "metrics.jsonl", row)

    def rewind(self, step: int, last: Mapping[str, Any] | None) -> None:
        """Forgets what was written after checkpoint `step`, and puts back its metrics if a kill came before they were written."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        if last is not None and last not in kept and not any(row["step"] == step and row["phase"] == last["phase"] for row in kept):
            kept.append(dict(last))
        write_atomically(self.path / "metrics.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in kept))
        for file in (self.path / "debates").iterdir():
            if file.name.split(".")[0].isdigit() and int(file.name.split(".")[0]) > step:
                file.unlink()
        (self.path / "index.sqlite").unlink(missing_ok=True)  # older versions kept one; nobody reads it, and now it would be wrong

    # Debates

    def write_debates(self, step: int, played: Sequence[PlayedDebate]) -> None:
        import numpy as np  # here, because what reads only text waits for nothing

        lines = [json.dumps({"number": i, **to_record(each)}).encode() + b"\n" for i, each in enumerate(played)]
        write_atomically(self._debates(step), b"".join(lines))
        with beside(self._debates(step).with_suffix(".npz")) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **token_arrays(played))

    def debates(self, steps: Iterable[int] | None = None, equal: Grader = exact) -> Iterator[PlayedDebate | Damaged]:
        """In the order in which they were trained on, one at a time. A run may be large, damaged, or still being written."""
        for step in self.steps() if steps is None else steps:
            # A run that continues from an older checkpoint removes the steps after it, also under a reader.
            with contextlib.suppress(FileNotFoundError), self._debates(step).open("rb") as file:
                for place, line in enumerate(file):
                    yield read_line(line, step, place, equal)

    def records(self, step: int) -> Iterator[dict[str, Any]]:
        """The debates of a step as they stand on disk."""
        with self._debates(step).open("rb") as file:
            yield from map(json.loads, file)

    def _debates(self, step: int) -> Path:
        return self.path / "debates" / f"{step:06d}.jsonl"

    def steps(self) -> list[int]:
        return sorted(int(file.stem) for file in (self.path / "debates").glob("*.jsonl") if file.stem.isdigit())

    # Checkpoints

    def checkpoint_place(self, step: int) -> Path:
        """Where an engine writes the state of `step`; `commit_checkpoint` moves it to its name."""
        place = self.path / "checkpoints" / f"{step:06d}.tmp"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def commit_checkpoint(self, step: int, state: Mapping[str, Any], keep: bool) -> Path:
        """Rolling checkpoints go away once two newer ones stand; kept ones stay."""
        temporary = self.path / "checkpoints" / f"{step:06d}.tmp"
        body = json.dumps({**state, "step": step, "keep": keep})
        seal = hashlib.sha256(body.encode()).hexdigest()
        write_atomically(temporary / "state.json", json.dumps({"sha256": seal, "body": body}).encode())
        final = temporary.with_suffix("")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        sync_folder(final.parent)
        rolling = [(n, place) for n, place in self.checkpoints() if not (_state(place) or {}).get("keep")]
        for _, place in rolling[2:]:
            shutil.rmtree(place, ignore_errors=True)
        return final

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Newest first."""
        places = (self.path / "checkpoints").glob("[0-9]*")
        return sorted(((int(place.name), place) for place in places if place.name.isdigit()), reverse=True)

    def load_checkpoints(self) -> Iterator[tuple[int, Path, dict[str, Any] | None]]:
        """Newest first, with the loop's state; None where that is damaged."""
        for step, place in self.checkpoints():
            yield step, place, _state(place)


def engine_state(place: Path, state: Mapping[str, Any]) -> str:
    """What to give to an engine's `load_state`: the checkpoint's folder, or the name under which a server keeps it."""
    return str(state.get("engine_state") or place)


def _state(place: Path) -> dict[str, Any] | None:
    try:
        sealed = json.loads((place / "state.json").read_text())
        body = sealed["body"]
        if hashlib.sha256(body.encode()).hexdigest() != sealed["sha256"]:
            return None
        state = json.loads(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return state if isinstance(state, dict) else None
