"""The kinds of things that can be exported from a run, and one export of some of them into a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.engine.kinds import kind_named
from moot.engine.published import is_hub_id, published_name
from moot.errors import ConfigError, EngineError
from moot.runs import Damaged, PlayedDebate, Run
from moot.runs.arrays import read_arrays
from moot.runs.record import to_record
from moot.runs.select import pick_debates, pick_steps
from moot.tokens.rendering import Rendering
from moot.tools.export import figures, pages, sets
from moot.tools.export.card import card
from moot.tools.export.places import check_free, new_file, new_folder
from moot.tools.export.weights import copy_adapter, find_adapter
from moot.util.safe_text import counted, one_line

ShowSteps = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""(what is written, how many steps) -> a context that gives a function to call for each step that is done."""


@dataclass(frozen=True)
class Options:
    checkpoint: int | str | None = None
    """Whose weights the adapter and the merged model have; the newest if not given."""
    base_model: str = ""
    """What the adapter and the card name as the base model, where its own name is not the one for others."""
    merged_dtype: str = "auto"
    steps: str | None = None
    """Only debates of these steps: 12, or 10-20."""
    pairs: str = "best_worst"
    """A key of `sets.PAIRS`."""
    only_right: bool = False
    debates: tuple[str, ...] = ()
    """Which debates the HTML file shows, as STEP/NUMBER."""


def needs_torch(*_: object, **__: object) -> Any:
    raise ConfigError("a merged model needs the local engine; export it with the command")


@dataclass
class Exporting:
    """Some runs on their way into a folder, and what came of it."""

    runs: list[Run]
    out: Path
    options: Options = field(default_factory=Options)
    note: Callable[[str], None] = lambda text: None
    busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    progress: ShowSteps = lambda kind, steps: nullcontext(lambda: None)
    merge: Callable[..., Any] = needs_torch
    """The local engine's; handed in, because here nothing knows torch."""
    written: list[tuple[Path, str]] = field(default_factory=list)
    """Each place with what stands there."""
    damaged: list[Damaged] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return self.runs[0]

    def place(self, kind: str) -> Path:
        return self.out / KINDS[kind].places[0]

    def check(self, kinds: Sequence[str], force: bool) -> None:
        """Refuses what cannot be, and, without `force`, to replace what an earlier export left."""
        if len(self.runs) > 1 and (single := next((kind for kind in kinds if kind != "figures"), None)):
            raise ConfigError(f"{single} takes one run, got {len(self.runs)}; only figures show several together")
        check_free((self.out / name for kind in kinds for name in KINDS[kind].places), force)

    def write(self, kinds: Sequence[str]) -> list[str]:
        """Writes what can be written; answers with why the rest cannot."""
        reasons: list[str] = []
        for kind in kinds:
            try:
                KINDS[kind].write(self)
            except ConfigError as error:
                reasons.append(str(error))
        return reasons


def _adapter(job: Exporting) -> None:
    adapter = find_adapter(job.run, job.options.checkpoint, job.note)
    with new_folder(job.place("adapter")) as folder:
        base = job.options.base_model or published_name(adapter.model)
        copy_adapter(adapter, folder, base)
        if not is_hub_id(base):
            job.note(f"the adapter names {base} as its base, which others cannot load; --base-model names another")
        _write_card(job, folder, adapter.step, "adapter")
    job.written.append((job.place("adapter"), f"the adapter of step {adapter.step}, for {one_line(base)}"))


def _merged(job: Exporting) -> None:
    adapter = find_adapter(job.run, job.options.checkpoint, job.note)
    model = job.run.config.get("model", {})

    def stops(tokenizer: Any) -> Sequence[int]:
        return Rendering(tokenizer, adapter.model, model.get("renderer", "auto"), bool(model.get("thinking"))).stop_ids

    with job.busy(f"merging into {one_line(adapter.model)}"), new_folder(job.place("merged")) as folder:
        try:
            given = {"dtype": job.options.merged_dtype, "probe": _probe(job.run), "stops": stops}
            made = job.merge(adapter.model, adapter.place, folder, **given)
        except (EngineError, ValueError) as error:
            raise ConfigError(f"model {adapter.model!r} cannot be merged: {error}") from error
        _write_card(job, folder, adapter.step, "merged")
    kept = f"logprobs within {made.difference:.2g} of the adapter's, which training moved by up to {made.update:.2g}"
    about = f"{one_line(adapter.model)} with the adapter of step {adapter.step} in it, {made.dtype}; {kept}"
    job.written.append((job.place("merged"), about))
    if made.difference > 0.1 * made.update and made.dtype != "float32":
        job.note(f"rounding to {made.dtype} swallows part of what was learned; --merged-dtype fp32 keeps it")


def _write_card(job: Exporting, folder: Path, step: int, kind: str) -> None:
    """Weights without a card are better than none: a damaged run.json costs the card alone."""
    try:
        (folder / "README.md").write_text(card(job.run, step, kind, job.options.base_model), encoding="utf-8")
    except ConfigError as error:
        job.note(f"there is no model card: {error}")


def _probe(run: Run, most: int = 512) -> list[int]:
    """The first conversation of the newest step: text as the model met it."""
    for step in reversed(run.steps()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            names = ("prompt_tokens", "prompt_offsets", "tokens", "offsets")
            arrays = read_arrays(run.debates_file(step, ".npz"), names)
            prompt = arrays["prompt_tokens"][: arrays["prompt_offsets"][1]]
            return [*map(int, prompt), *map(int, arrays["tokens"][: arrays["offsets"][1]])][-most:]
    return []


Work = Callable[[Exporting], None]


def _sets(kind: str, make: Callable[[Options], Callable[[PlayedDebate], Any]], rows: str = "rows") -> Work:
    def work(job: Exporting) -> None:
        steps = pick_steps(job.run, job.options.steps)
        with job.progress(kind, len(steps)) as advance, new_file(job.place(kind)) as file:
            result = sets.write(_counted(job.run, steps, advance), make(job.options), file)
            if not result.rows:
                reasons = "; ".join(f"{count} {reason}" for reason, count in result.left_out.items())
                raise ConfigError(f"{kind}: no debate of {job.run.path} has anything for it ({reasons})")
        job.damaged += [line for line in result.damaged if line not in job.damaged]
        left = ", ".join(f"{count} ({reason})" for reason, count in result.left_out.most_common())
        job.written.append((job.place(kind), f"{result.rows} {rows}" + (f"; left out {left}" if left else "")))

    return work


def _counted(run: Run, steps: Sequence[int], seen: Callable[[], None]) -> Iterator[PlayedDebate | Damaged]:
    for step in steps:
        yield from run.debates([step])
        seen()


def _transcript(played: PlayedDebate) -> list[dict[str, Any]]:
    return [{"step": played.step, "number": played.number, **to_record(played, with_seen=True)}]


def _html(job: Exporting) -> None:
    chosen = pick_debates(job.run, job.options.debates, pick_steps(job.run, job.options.steps), job.damaged)
    name = job.run.path.resolve().name
    model = job.run.config.get("model")
    model = model if isinstance(model, dict) else {}
    who = kind_named(model.get("engine")).scripted.lower() or model.get("model", "a model")
    with new_file(job.place("html")) as file:
        about = f"{counted(len(chosen), 'debate')} from a run of moot with {who}."
        file.writelines(part.encode() for part in pages.page(chosen, f"Debates of {name}", about))
    job.written.append((job.place("html"), f"{counted(len(chosen), 'debate')} to read"))


def _figures(job: Exporting) -> None:
    named: dict[str, Run] = {}
    for run in job.runs:
        names = (run.path.resolve().name, str(run.path), f"{run.path} ({len(named) + 1})")
        named[next(name for name in names if name not in named)] = run
    with job.busy("drawing"):
        files = figures.draw_runs(named, job.out / "figures")
    about = f"{len(files) // 2} pictures as PNG and SVG, of {counted(len(job.runs), 'run')}"
    job.written.append((job.out / "figures", about))


@dataclass(frozen=True)
class Kind:
    """What can be exported: its files or folder, the first of which it is written to, and how it is made."""

    places: Sequence[str]
    write: Work
    large: bool = False
    """Made only where it is asked for by name."""


KINDS = {
    "adapter": Kind(["adapter"], _adapter),
    "merged": Kind(["merged"], _merged, large=True),
    "supervised": Kind(
        ["supervised.jsonl"],
        _sets("supervised", lambda asked: lambda played: sets.supervised(played, asked.only_right)),
    ),
    "preferences": Kind(
        ["preferences.jsonl"],
        _sets("preferences", lambda asked: lambda played: sets.PAIRS[asked.pairs](played, asked.only_right)),
    ),
    "transcripts": Kind(
        ["transcripts.jsonl"],
        _sets("transcripts", lambda asked: _transcript, "debates with what each agent saw"),
        large=True,
    ),
    "html": Kind(["debates.html"], _html),
    "figures": Kind([f"figures/{name}" for name in figures.file_names()], _figures),
}
