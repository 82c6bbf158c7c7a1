"""Curves as pictures, PNG and SVG: panels side by side, a line in each for a run or a group of runs. Needs matplotlib
(extra `figures`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.errors import ConfigError
from moot.rl.judge_trust import PAIR_ACCURACY
from moot.runs.run import measured
from moot.util.disk import write_atomically
from moot.util.intervals import wilson
from moot.util.safe_text import one_line

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Told apart by most people, colour-blind or not."""
LOOK = {"svg.hashsalt": "moot", "svg.fonttype": "none", "text.parse_math": False, "axes.titlesize": "medium"}
STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Panel:
    """A metric and how it is shown."""

    name: str
    """Of a file that shows it alone."""
    title: str
    phase: str
    key: str
    """The metric's name; * stands for a task's."""
    share: bool = False
    """Between 0 and 1, shown in percent."""
    level: float | None = None
    """What pure chance, or no effect at all, would give."""
    saved: tuple[str, str] | None = None
    """Mode and metric of the evaluations saved by `moot eval`, for runs that measured nothing on the way."""

    def value(self, row: Mapping[str, Any]) -> float | None:
        """The metric in a line of metrics.jsonl; None where it was not measured, which is not 0."""
        if row.get("phase") != self.phase or not isinstance(row.get("step"), int):
            return None
        # Where judges' checks make the reward, these are the votes.
        by_checks = self.key == "trust/judge_accuracy" and PAIR_ACCURACY in row
        value = measured(row, PAIR_ACCURACY if by_checks else self.key)
        return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


@dataclass(frozen=True)
class Curve:
    """A run, or the mean of several with their range."""

    steps: list[float]
    """Training steps, or sampled tokens."""
    mean: list[float]
    low: list[float]
    high: list[float]
    runs: int = 1


Picture = Sequence[tuple[Panel, Mapping[str, Curve]]]
"""The panels in order, each with its lines by label. A label has one colour in all of them."""


def draw(picture: Picture, stem: Path, *, axis: str = "step", alone: bool = False) -> list[Path]:
    """Writes `stem`.png and `stem`.svg; the files. `alone` adds a picture of each panel."""
    pyplot = _pyplot()
    labels = list(dict.fromkeys(label for _, lines in picture for label in lines))
    columns = min(3, len(picture))
    rows = -(-len(picture) // columns)
    written: list[Path] = []
    with pyplot.rc_context(LOOK):
        size = (4.2 * columns, 2.9 * rows + 0.4)
        whole, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for place, (panel, lines) in zip(grid.flat, picture, strict=False):
            _panel(place, panel, lines, labels, axis)
        for place in grid.flat[len(picture) :]:
            place.set_axis_off()
        if len(labels) > 1:
            several = any(line.runs > 1 for _, lines in picture for line in lines.values())
            title = "mean and range over seeds" if several else None
            legend = {"loc": "outside lower center", "ncols": min(4, len(labels)), "frameon": False}
            whole.legend(*_legend(grid.flat), title=title, **legend)
        written += _save(pyplot, whole, stem)
        for panel, lines in picture if alone else ():
            single, place = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")
            _panel(place, panel, lines, labels, axis)
            if len(labels) > 1:
                place.legend(frameon=False, fontsize="small")
            written += _save(pyplot, single, stem.with_name(panel.name))
    return written


@dataclass(frozen=True)
class Bin:
    """Answers of about the same confidence."""

    confidence: float
    """Their mean."""
    right: int
    of: int

    @property
    def share(self) -> float:
        return self.right / self.of

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.right, self.of)

    def as_dict(self) -> dict[str, float]:
        low, high = self.interval
        return {**vars(self), "low": low, "high": high}


def draw_reliability(bins: Sequence[Bin], stem: Path) -> list[Path]:
    """What was said of answers beside what came: on the diagonal, confidence is the share that is right."""
    pyplot = _pyplot()
    with pyplot.rc_context(LOOK):
        figure, place = pyplot.subplots(figsize=(4.2, 4.2), layout="constrained")
        said, came = [one.confidence for one in bins], [one.share for one in bins]
        reach = [[one.share - one.interval[0] for one in bins], [one.interval[1] - one.share for one in bins]]
        place.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (2, 3)))
        place.errorbar(said, came, reach, fmt="o", color=COLOURS[0], capsize=3)
        for one in bins:
            place.annotate(str(one.of), (one.confidence, one.share), textcoords="offset points", xytext=(6, -10))
        place.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="confidence", ylabel="share that is right")
        place.spines[["top", "right"]].set_visible(False)
        return _save(pyplot, figure, stem)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ConfigError("figures need matplotlib, which is not installed; run: pip install 'moot[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _panel(place: Any, panel: Panel, lines: Mapping[str, Curve], labels: Sequence[str], axis: str) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for label, line in lines.items():
        number = labels.index(label)
        colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
        marker = "o" if panel.phase == "eval" or len(line.steps) == 1 else None
        look = {"color": colour, "linewidth": 1.6, "marker": marker, "markersize": 4}
        place.plot(line.steps, line.mean, style, label=one_line(label, 40), **look)
        if line.runs > 1:
            place.fill_between(line.steps, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    if panel.level is not None:
        place.axhline(panel.level, color="0.6", linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    if panel.share:
        place.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        place.set_ylim(-0.03, 1.03)
    place.set_title(panel.title, loc="left")
    place.set_xlabel(axis)
    place.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    place.spines[["top", "right"]].set_visible(False)
    place.grid(axis="y", color="0.9", linewidth=0.8)
    place.set_axisbelow(True)


def _legend(places: Any) -> tuple[list[Any], list[str]]:
    """Every label once, whichever panel it first appears in."""
    handles: dict[str, Any] = {}
    for place in places:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return list(handles.values()), list(handles)


def _save(pyplot: Any, figure: Any, stem: Path) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, about in (("png", {"Software": None}), ("svg", {"Date": None})):
        target, image = stem.with_name(f"{stem.name}.{kind}"), io.BytesIO()
        figure.savefig(image, format=kind, dpi=160, metadata=about)
        write_atomically(target, image.getvalue())
        written.append(target)
    pyplot.close(figure)
    return written
