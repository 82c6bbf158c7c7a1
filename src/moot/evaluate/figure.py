"""Curves of several groups of runs in one picture. Needs matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError
from moot.evaluate.comparing import PANELS, Curve, Group, curve

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Told apart by most people, colour-blind or not."""
LINES = ("-", "--", "-.", ":")


def draw(members: Sequence[Group], targets: Sequence[Path], against: str = "step") -> bool:
    """The picture in each of `targets`, by their endings; False if no run has anything to show yet."""
    panels = [(panel, found) for panel in PANELS if any(found := [curve(group, panel, against) for group in members])]
    if not panels:
        return False
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ConfigError("figures need matplotlib; run: pip install 'moot[figures]', or leave the figure out with --no-figure") from None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, (panel, found) in zip(axes.flat, panels, strict=False):
        for i, one in enumerate(found):
            if one is not None:
                _line(axis, one, members[i].label, i)
        axis.set_title(panel.title, fontsize=9)
        axis.set_xlabel("step" if against == "step" else "tokens sampled in self-play", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
        if panel.share:
            axis.set_ylim(-0.02, 1.02)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        # One entry a group: in some panels it may have fewer seeds.
        handles |= {str(label): handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(handles.values()),
        list(handles),
        title="mean and range over seeds" if any(len(group.runs) > 1 for group in members) else None,
        title_fontsize=8,
        loc="outside lower center",
        ncols=min(3, len(handles)),
        fontsize=8,
        frameon=False,
    )
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=160)
    return True


def _line(axis: Any, one: Curve, label: str, number: int) -> None:
    colour, style = COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]
    marker = "o" if len(one.steps) < 15 else None
    axis.plot(one.steps, one.mean, style, color=colour, label=label, linewidth=1.5, marker=marker, markersize=3)
    if one.runs > 1:
        axis.fill_between(one.steps, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
