"""`moot export`: what can be exported from a run, and at the end where it lies."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moot.cli.console import Terminal, bar
from moot.cli.ending import complain, kept
from moot.errors import ConfigError, EngineError
from moot.runs import Run
from moot.tools.export.hub import check_push, push_folder
from moot.tools.export.kinds import KINDS, Exporting, Options
from moot.tools.export.labels import export_labels
from moot.tools.export.places import check_free, place_beside
from moot.util.safe_text import counted, one_line


@dataclass(frozen=True)
class Export:
    """Export what a run has made, or the labels that moot label trusts as a supervised set.

    Name what you want; without a choice, all of a run but the merged model and the transcripts.

    Everything lands in one folder, and nothing there is overwritten without --force. Several runs can be named for
    figures, which then show them together.
    """

    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
    ]
    """The runs' folders, or one file of labels."""
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
    """transcripts.jsonl: every debate with all that each agent saw before it spoke: system text, observations, its own
    turns."""
    html: bool = False
    """debates.html: debates to read, one file without scripts."""
    figures: bool = False
    """figures/: the main curves as PNG and SVG."""
    checkpoint: Annotated[
        int | Literal["best"] | None, tyro.conf.arg(metavar="STEP", help_behavior_hint="(default: newest)")
    ] = None
    """Whose weights the adapter and the merged model have: a step, or best."""
    base_model: Annotated[str, tyro.conf.arg(metavar="OWNER/NAME", help_behavior_hint="(default: the run's)")] = ""
    """The base model's name for others, which the adapter and its card carry."""
    merged_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the merged model; auto is the base model's own, which can swallow small updates."""
    steps: Annotated[str | None, tyro.conf.arg(metavar="A-B", help_behavior_hint="(default: all)")] = None
    """Only debates of these steps: 12, or 10-20."""
    pairs: Literal["best_worst", "votes"] = "best_worst"
    """Preferences: the winner against the last, one pair per debate; or every two answers between which judges clearly
    preferred one."""
    only_right: bool = False
    """Training sets: only where the winning answer is known to be right."""
    debates: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="STEP/NUMBER", help_behavior_hint="(default: the newest 20)")
    ] = ()
    """Which debates the HTML file shows, like 12/0 12/3."""
    force: bool = False
    """Replace what an earlier export left."""
    push: Annotated[str | None, tyro.conf.arg(metavar="OWNER/NAME", help_behavior_hint="")] = None
    """Upload the adapter, or the merged model with --merged, to this repository of the hub, with a model card. A new
    one is private."""

    def run(self) -> int:
        if not self.runs:
            raise ConfigError("name at least one run's folder (moot export --help)")
        console = Terminal()
        named = [kind for kind in KINDS if getattr(self, kind)]
        if len(self.runs) > 1:
            if self.out is None:
                raise ConfigError("several runs need --out: there is no one folder for their figures")
            named = named or ["figures"]
        if self.push is not None:
            if self.adapter and self.merged:
                raise ConfigError("push takes the adapter or the merged model, got both; name one of them")
            check_push(self.push)
            named += [] if self.adapter or self.merged else ["adapter"]
        kinds = named or [kind for kind, about in KINDS.items() if not about.large]
        if any(path.is_file() for path in self.runs):
            return self._labels(named, console)
        options = Options(**{option.name: getattr(self, option.name) for option in fields(Options)})
        runs = [Run.open(path) for path in self.runs]
        job = Exporting(
            runs, self.out or place_beside(self.runs[0]), options, console.note, console.status, bar, _merge
        )
        job.check(kinds, self.force)
        try:
            with kept("Export again.", job.out):
                failed = job.write(kinds)
        finally:
            _report(job, console)
        # A kind that was asked for by name and cannot be made is an error; otherwise it is only left out.
        if failed and (named or not job.written):
            raise ConfigError("; ".join(failed))
        for reason in failed:
            console.say(f"Left out: {one_line(reason, 300)}")
        if self.push is not None:
            return self._push(self.push, job, console)
        return 1 if job.damaged else 0

    def _labels(self, named: list[str], console: Terminal) -> int:
        if len(self.runs) > 1 or self.push is not None or set(named) - {"supervised"}:
            raise ConfigError("a file of labels makes one set, supervised.jsonl; name one file, and no other kind")
        (file,) = self.runs
        target = (self.out or place_beside(file.parent)) / "supervised.jsonl"
        check_free([target], self.force)
        written = export_labels(file, target, self.only_right)
        left = "".join(f"; {count} left out: {reason}" for reason, count in written.left_out.items())
        console.say("Written:", "bold")
        console.print(f"  {target}  {counted(written.rows, 'row')}{left}", markup=False, soft_wrap=True)
        return 0 if written.rows else 1

    def _push(self, repo: str, job: Exporting, console: Terminal) -> int:
        folder = job.place("merged" if self.merged else "adapter")
        try:
            with console.status(f"uploading to {repo}"):
                address = push_folder(folder, repo, f"{folder.name} of {job.run.path.resolve().name}")
        except EngineError as error:
            complain(str(error))
            return 1
        console.say(f"Pushed: {address}", "green")
        return 1 if job.damaged else 0


def _merge(*arguments: Any, **options: Any) -> Any:
    try:
        from moot.engine.local.merge import merge
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a merged model needs {error.name}, which is not installed; run: pip install 'moot[local]'"
        ) from None
    return merge(*arguments, **options)


def _report(job: Exporting, console: Terminal) -> None:
    for damage in job.damaged[:10]:
        print(f"step {damage.step}, line {damage.line}: {one_line(damage.reason, 200)}", file=sys.stderr)
    if job.written:
        console.say("Written:", "bold")
    for path, about in job.written:
        console.print(f"  {path}  {about}", markup=False, soft_wrap=True)
