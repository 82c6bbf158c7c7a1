"""The main curves of a run, or of several in one picture, as PNG and SVG. Needs matplotlib (the extra `figures`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError
from moot.evaluate.figure import COLOURS, LINES
from moot.export.places import new_file
from moot.terminal import one_line

Metrics = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Curve:
    name: str
    """Of the file."""
    title: str
    phase: str
    key: str
    """A metric, or `start*end` where a task's name stands between."""
    share: bool = False
    """Between 0 and 1, shown in percent."""
    level: float | None = None
    """What pure chance, or no effect at all, would give."""


CURVES = (
    Curve("accuracy", "Right answers, held out", "eval", "test_*/correct", share=True),
    Curve("accuracy_train", "Right answers, training questions", "self_play", "train_*/correct", share=True),
    Curve("reward", "Reward of an agent", "self_play", "env/all/reward/total"),
    Curve("gradient", "Debates with a gradient", "self_play", "debates/with_gradient", share=True),
    Curve("parse_error", "Turns that could not be read", "self_play", "parse_error", share=True),
    Curve("judge_accuracy", "Votes for the right answer", "self_play", "trust/judge_accuracy", share=True, level=0.5),
    Curve("vote_truth_agreement", "Right answers' reward less wrong ones'", "self_play", "trust/vote_truth_agreement", level=0.0),
    Curve("winner_correct", "Winners that are right", "self_play", "trust/winner_correct", share=True),
    Curve("diversity", "Distinct answers per agent", "self_play", "trust/answer_diversity"),
    Curve("kl", "Sampler against trainer (KL, v2)", "self_play", "optim/kl_sample_train_v2"),
)


def points(curve: Curve, rows: Metrics) -> tuple[list[int], list[float]]:
    """Steps and values; what could not be measured is left out, which is not 0."""
    start, star, end = curve.key.partition("*")
    steps, values = [], []
    for row in rows:
        if row.get("phase") != curve.phase or not isinstance(row.get("step"), int):
            continue
        found = next((v for k, v in row.items() if k.startswith(start) and k.endswith(end)), None) if star else row.get(curve.key)
        if isinstance(found, int | float) and math.isfinite(found):
            steps.append(row["step"])
            values.append(float(found))
    return steps, values


def file_names() -> list[str]:
    return [f"{name}.{kind}" for name in ("curves", *(curve.name for curve in CURVES)) for kind in ("png", "svg")]


def draw(runs: Mapping[str, Metrics], folder: Path) -> list[Path]:
    """One picture of all curves and one of each that has points. Answers with the files it wrote."""
    pyplot = _pyplot()
    drawn = [curve for curve in CURVES if any(points(curve, rows)[0] for rows in runs.values())]
    if not drawn:
        raise ConfigError(f"{', '.join(runs)}: there are no metrics to draw yet; wait for the first step")
    written = []
    columns = min(3, len(drawn))
    lines = -(-len(drawn) // columns)
    with pyplot.rc_context({"svg.hashsalt": "moot", "svg.fonttype": "none", "text.parse_math": False, "axes.titlesize": "medium"}):
        whole, grid = pyplot.subplots(lines, columns, figsize=(4.2 * columns, 2.9 * lines), squeeze=False, layout="constrained")
        for place, curve in zip(grid.flat, drawn, strict=False):
            _panel(place, curve, runs)
        for place in grid.flat[len(drawn) :]:
            place.set_axis_off()
        if len(runs) > 1:
            handles, labels = _legend(grid.flat)
            whole.legend(handles, labels, loc="outside lower center", ncols=min(4, len(runs)), frameon=False)
        written += _save(pyplot, whole, folder / "curves")
        for curve in drawn:
            single, place = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")
            _panel(place, curve, runs)
            if len(runs) > 1:
                place.legend(frameon=False, fontsize="small")
            written += _save(pyplot, single, folder / curve.name)
    return written


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ConfigError("figures need matplotlib, which is not installed; run: pip install 'moot[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _panel(place: Any, curve: Curve, runs: Mapping[str, Metrics]) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for i, (name, rows) in enumerate(runs.items()):
        steps, values = points(curve, rows)
        if steps:
            marker = "o" if curve.phase == "eval" or len(steps) == 1 else None
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i // len(COLOURS) % len(LINES)]}
            place.plot(steps, values, label=one_line(name, 40), linewidth=1.6, marker=marker, markersize=4, **style)
    if curve.level is not None:
        place.axhline(curve.level, color="0.6", linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    if curve.share:
        place.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        place.set_ylim(-0.03, 1.03)
    place.set_title(curve.title, loc="left")
    place.set_xlabel("step")
    place.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    place.spines[["top", "right"]].set_visible(False)
    place.grid(axis="y", color="0.9", linewidth=0.8)
    place.set_axisbelow(True)


def _legend(places: Any) -> tuple[list[Any], list[str]]:
    """Every run once, whichever panel it first appears in."""
    found: dict[str, Any] = {}
    for place in places:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _save(pyplot: Any, figure: Any, stem: Path) -> list[Path]:
    written = []
    for kind, about in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = stem.with_name(f"{stem.name}.{kind}")
        with new_file(target) as file:
            figure.savefig(file, format=kind, dpi=160, metadata=about)
        written.append(target)
    pyplot.close(figure)
    return written
