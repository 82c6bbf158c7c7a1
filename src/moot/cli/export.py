"""`moot export`: what can be exported from a run, and at the end where it lies."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moot.cli.console import Terminal, bar
from moot.cli.ending import complain, disk_is_full
from moot.cli.rescore import pick_steps
from moot.debate.types import ConfigError
from moot.export import figures, pages, sets
from moot.export.places import check_free, new_file, new_folder
from moot.export.weights import copy_adapter, find_adapter
from moot.records import Damaged, PlayedDebate, Run
from moot.records.arrays import read_arrays
from moot.records.codec import to_record
from moot.terminal import one_line

KINDS = ("adapter", "merged", "supervised", "preferences", "transcripts", "html", "figures")
LEFT_OUT = ("merged", "transcripts")
"""Large, so made only where they are asked for."""


@dataclass(frozen=True)
class Export:
    """Take away what a run has made. Name what you want; without a choice, all but the merged model and the transcripts.

    Everything lands in one folder, and nothing there is overwritten without --force. Several runs can be named for figures, which
    then show them together.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")]
    """The runs' folders."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: RUN/export)")] = None
    """Where to write."""
    adapter: bool = False
    """adapter/: the trained adapter, as peft reads it."""
    merged: bool = False
    """merged/: base model and adapter as one plain checkpoint, with its tokenizer."""
    supervised: bool = False
    """supervised.jsonl: questions with the winning answers, as TRL's SFTTrainer reads them."""
    preferences: bool = False
    """preferences.jsonl: questions with a chosen and a rejected answer, as TRL's DPOTrainer reads them."""
    transcripts: bool = False
    """transcripts.jsonl: every debate with all that each agent saw before it spoke: system text, observations, its own turns."""
    html: bool = False
    """debates.html: debates to read, one file without scripts."""
    figures: bool = False
    """figures/: the main curves as PNG and SVG."""
    checkpoint: Annotated[int | None, tyro.conf.arg(metavar="STEP", help_behavior_hint="(default: newest)")] = None
    """Whose weights the adapter and the merged model have."""
    merged_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the merged model; auto is the base model's own, which can swallow small updates."""
    steps: Annotated[str | None, tyro.conf.arg(metavar="A-B", help_behavior_hint="(default: all)")] = None
    """Only debates of these steps: 12, or 10-20."""
    pairs: Literal["best_worst", "votes"] = "best_worst"
    """Preferences: the winner against the last, one pair per debate; or every two answers between which judges clearly preferred one."""
    only_right: bool = False
    """Training sets: only where the winning answer is known to be right."""
    debates: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STEP/NUMBER", help_behavior_hint="(default: the newest 20)")] = ()
    """Which debates the HTML file shows, like 12/0 12/3."""
    force: bool = False
    """Replace what an earlier export left."""

    def run(self) -> int:
        console = Terminal()
        job = Exporting.of(self, console)
        failed: list[str] = []
        try:
            for kind in job.kinds:
                try:
                    WORK[kind](job)
                except ConfigError as error:
                    failed.append(str(error))
        except OSError as error:
            if not disk_is_full(error):
                raise
            complain(f"the disk is full ({job.out}); make room and try again")
            job.report()
            return 1
        job.report()
        if failed and (job.named or not job.written):
            raise ConfigError("; ".join(failed))
        for reason in failed:
            job.say(f"Left out: {one_line(reason, 300)}")
        return 1 if job.damaged else 0


@dataclass
class Exporting:
    """One call of the command, and what came of it."""

    asked: Export
    console: Terminal
    runs: list[Run]
    out: Path
    kinds: Sequence[str]
    named: bool
    """Whether the kinds were asked for by name: then one that cannot be made is an error."""
    written: list[tuple[Path, str]]
    damaged: list[Damaged]

    @classmethod
    def of(cls, asked: Export, console: Terminal) -> Exporting:
        if not asked.runs:
            raise ConfigError("name at least one run's folder (moot export --help)")
        runs = [Run.open(path) for path in asked.runs]
        named = [kind for kind in KINDS if getattr(asked, kind)]
        if len(runs) > 1:
            if set(named) - {"figures"}:
                raise ConfigError(f"{named[0]} takes one run, got {len(runs)}; only figures show several together")
            if asked.out is None:
                raise ConfigError("several runs need --out: there is no one folder for their figures")
            named = ["figures"]
        kinds = named or [kind for kind in KINDS if kind not in LEFT_OUT]
        out = asked.out or asked.runs[0] / "export"
        check_free((out / name for kind in kinds for name in PLACES[kind]), asked.force)
        return cls(asked, console, runs, out, kinds, bool(named), [], [])

    @property
    def run(self) -> Run:
        return self.runs[0]

    def place(self, kind: str) -> Path:
        return self.out / PLACES[kind][0]

    def say(self, text: str) -> None:
        self.console.say(text)

    def report(self) -> None:
        for each in self.damaged[:10]:
            print(f"step {each.step}, line {each.line}: {one_line(each.reason, 200)}", file=sys.stderr)
        if self.written:
            self.console.say("Written:", "bold")
        for path, about in self.written:
            self.console.print(f"  {path}  {about}", markup=False, soft_wrap=True)


def _adapter(job: Exporting) -> None:
    adapter = find_adapter(job.run, job.asked.checkpoint, lambda note: job.say(f"Note: {note}"))
    with new_folder(job.place("adapter")) as folder:
        copy_adapter(adapter, folder)
    job.written.append((job.place("adapter"), f"the adapter of step {adapter.step}, for {one_line(adapter.model)}"))


def _merged(job: Exporting) -> None:
    adapter = find_adapter(job.run, job.asked.checkpoint, lambda note: job.say(f"Note: {note}"))
    try:
        from moot.engine.local.merge import merge
    except ModuleNotFoundError as error:
        raise ConfigError(f"a merged model needs {error.name}, which is not installed; run: pip install 'moot[local]'") from None
    from moot.engine.protocol import EngineError
    from moot.rl.rendering import Rendering

    model = job.run.config.get("model", {})

    def stops(tokenizer: Any) -> Sequence[int]:
        return Rendering(tokenizer, adapter.model, model.get("renderer", "auto"), bool(model.get("thinking"))).stop_ids

    with job.console.status(f"merging into {one_line(adapter.model)}"), new_folder(job.place("merged")) as folder:
        try:
            made = merge(adapter.model, adapter.place, folder, dtype=job.asked.merged_dtype, probe=_probe(job.run), stops=stops)
        except (EngineError, ValueError) as error:
            raise ConfigError(f"model {adapter.model!r} cannot be merged: {error}") from error
    kept = f"logprobs within {made.difference:.2g} of the adapter's, which training moved by up to {made.update:.2g}"
    job.written.append(
        (job.place("merged"), f"{one_line(adapter.model)} with the adapter of step {adapter.step} in it, {made.dtype}; {kept}")
    )
    if made.difference > 0.1 * made.update and made.dtype != "float32":
        job.say(f"Note: rounding to {made.dtype} swallows part of what was learned; --merged-dtype fp32 keeps it")


def _probe(run: Run, most: int = 512) -> list[int]:
    """The first conversation of the newest step: text as the model met it."""
    for step in reversed(run.steps()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            arrays = read_arrays(run.path / "debates" / f"{step:06d}.npz", ("prompt_tokens", "prompt_offsets", "tokens", "offsets"))
            prompt = arrays["prompt_tokens"][: arrays["prompt_offsets"][1]]
            return [*map(int, prompt), *map(int, arrays["tokens"][: arrays["offsets"][1]])][-most:]
    return []


def _sets(kind: str, make: Callable[[Export], Callable[[PlayedDebate], Any]]) -> Callable[[Exporting], None]:
    def work(job: Exporting) -> None:
        steps = pick_steps(job.run, job.asked.steps)
        with bar(kind, len(steps)) as steps_bar, new_file(job.place(kind)) as file:
            result = sets.write(_counted(job.run, steps, lambda: steps_bar.advance(kind)), make(job.asked), file)
            if not result.rows:
                reasons = "; ".join(f"{count} {reason}" for reason, count in result.left_out.items())
                raise ConfigError(f"{kind}: no debate of {job.run.path} has anything for it ({reasons})")
        job.damaged += [each for each in result.damaged if each not in job.damaged]
        left = ", ".join(f"{count} ({reason})" for reason, count in result.left_out.most_common())
        job.written.append((job.place(kind), f"{result.rows} rows" + (f"; left out {left}" if left else "")))

    return work


def _counted(run: Run, steps: Sequence[int], seen: Callable[[], None]) -> Iterator[PlayedDebate | Damaged]:
    for step in steps:
        yield from run.debates([step])
        seen()


def _html(job: Exporting) -> None:
    chosen = pick_debates(job.run, job.asked.debates, pick_steps(job.run, job.asked.steps), job.damaged)
    name = job.run.path.resolve().name
    model = job.run.config.get("model", {})
    who = "the scripted engine" if model.get("engine") == "scripted" else model.get("model", "a model")
    with new_file(job.place("html")) as file:
        for part in pages.page(chosen, f"Debates of {name}", f"{len(chosen)} debates from a run of moot with {who}."):
            file.write(part.encode())
    job.written.append((job.place("html"), f"{len(chosen)} debates to read"))


def pick_debates(run: Run, wanted: Sequence[str], steps: Sequence[int], damaged: list[Damaged], most: int = 20) -> list[PlayedDebate]:
    """Those asked for, in that order; else the newest ones, oldest first."""
    chosen: list[PlayedDebate] = []
    if not wanted:
        for step in reversed(steps):
            here = list(run.debates([step]))
            damaged += [each for each in here if isinstance(each, Damaged) and each not in damaged]
            chosen = [each for each in here if isinstance(each, PlayedDebate)][: most - len(chosen)] + chosen
            if len(chosen) >= most:
                break
        if not chosen:
            raise ConfigError(f"html: {run.path} has no debate that can be read")
        return chosen
    for name in wanted:
        match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", name)
        if not match:
            raise ConfigError(f"debates must be named STEP/NUMBER, like 12/3, got {name!r}")
        same = [each for each in run.debates([int(match[1])]) if isinstance(each, PlayedDebate) and each.number == int(match[2])]
        if not same:
            raise ConfigError(f"debates: {run.path} has no debate {name} that can be read")
        chosen += same[:1]
    return chosen


def _figures(job: Exporting) -> None:
    named: dict[str, Run] = {}
    for run in job.runs:
        short = run.path.resolve().name
        named[short if short not in named else str(run.path) if str(run.path) not in named else f"{run.path} ({len(named) + 1})"] = run
    with job.console.status("drawing"):
        files = figures.draw_runs({name: run.metrics() for name, run in named.items()}, job.out / "figures")
    about = f"{len(files) // 2} pictures as PNG and SVG, of {len(job.runs)} run{'s' if len(job.runs) > 1 else ''}"
    job.written.append((job.out / "figures", about))


def _transcripts(job: Exporting) -> None:
    steps = pick_steps(job.run, job.asked.steps)
    written = 0
    with bar("transcripts", len(steps)) as steps_bar, new_file(job.place("transcripts")) as file:
        for each in _counted(job.run, steps, lambda: steps_bar.advance("transcripts")):
            if isinstance(each, Damaged):
                job.damaged += [each] if each not in job.damaged else []
                continue
            file.write(json.dumps({"step": each.step, "number": each.number, **to_record(each, with_seen=True)}).encode() + b"\n")
            written += 1
        if not written:
            raise ConfigError(f"transcripts: {job.run.path} has no debate that can be read")
    job.written.append((job.place("transcripts"), f"{written} debates with what each agent saw"))


PLACES: dict[str, list[str]] = {
    "adapter": ["adapter"],
    "merged": ["merged"],
    "supervised": ["supervised.jsonl"],
    "preferences": ["preferences.jsonl"],
    "transcripts": ["transcripts.jsonl"],
    "html": ["debates.html"],
    "figures": [f"figures/{name}" for name in figures.file_names()],
}
WORK: dict[str, Callable[[Exporting], None]] = {
    "adapter": _adapter,
    "merged": _merged,
    "supervised": _sets("supervised", lambda asked: lambda each: sets.supervised(each, asked.only_right)),
    "preferences": _sets("preferences", lambda asked: lambda each: sets.PAIRS[asked.pairs](each, asked.only_right)),
    "transcripts": _transcripts,
    "html": _html,
    "figures": _figures,
}
