"""The main curves of a run, or of several in one picture, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moot.errors import ConfigError
from moot.evaluate.compare_runs import Group, picture
from moot.evaluate.figures import Panel, draw
from moot.runs import Run

CURVES = (
    Panel("accuracy", "Right answers, held out", "eval", "test_*/correct", share=True),
    Panel("accuracy_train", "Right answers, training questions", "self_play", "train_*/correct", share=True),
    Panel("reward", "Reward of an agent", "self_play", "env/all/reward/total"),
    Panel("gradient", "Debates with a gradient", "self_play", "debates/with_gradient", share=True),
    Panel("parse_error", "Turns that could not be read", "self_play", "parse_error", share=True),
    Panel("judge_accuracy", "Votes for the right answer", "self_play", "trust/judge_accuracy", share=True, level=0.5),
    Panel("vote_truth_agreement", "Reward of right minus wrong", "self_play", "trust/vote_truth_agreement", level=0.0),
    Panel("winner_correct", "Winners that are right", "self_play", "trust/winner_correct", share=True),
    Panel("diversity", "Distinct answers per agent", "self_play", "trust/answer_diversity"),
    Panel("kl", "Sampler against trainer (KL, v2)", "self_play", "optim/kl_sample_train_v2"),
)


def file_names() -> list[str]:
    return [f"{name}.{kind}" for name in ("curves", *(panel.name for panel in CURVES)) for kind in ("png", "svg")]


def draw_runs(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """One picture of all curves and one of each that has points. Answers with the files it wrote."""
    drawn = picture([Group(name, (run,), {}) for name, run in runs.items()], panels=CURVES)
    if not drawn:
        raise ConfigError(f"{', '.join(runs)}: there are no metrics to draw yet; wait for the first step")
    return draw(drawn, folder / "curves", alone=True)
