"""The model card of exported weights: what they were trained on and what was measured, from the run's records alone."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moot.engine.published import SMOLLM, is_hub_id, published_name
from moot.errors import ConfigError
from moot.evaluate.report import Report
from moot.rl.alarms import ALARMS
from moot.rl.judge_trust import PAIR_ACCURACY
from moot.runs import Run
from moot.runs.run import measured, tokens_spent
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.training.parts import trained_tasks
from moot.util.safe_text import counted, one_line

Row = Mapping[str, Any]


def card(run: Run, step: int, kind: str, base: str = "") -> str:
    """Markdown with the front matter that the hub reads. `kind` is adapter or merged, of the checkpoint at `step`.
    `base` is the base model's name for others, where it is not the model's own."""
    config, rows = config_of(run), [row for row in run.metrics() if row["step"] <= step]
    model = base or published_name(config.model.model)
    named = is_hub_id(model)  # the hub links to it; a folder of this machine means nothing to others
    head = {"base_model": model if named else None, "library_name": "peft" if kind == "adapter" else "transformers"}
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items() if value)
    shown = model if named else Path(model).name
    what = "A LoRA adapter for" if kind == "adapter" else "The model"
    parts = [
        f"---\n{front}pipeline_tag: text-generation\ntags: [moot, debate, lora]\n---\n",
        f"# {one_line(run.path.resolve().name)}",
        f"{what} `{one_line(shown)}`, trained by debate with moot: step {step} of a run of {config.total_steps}.",
        "## What it was trained on\n",
        "\n".join(f"- {line}" for line in _training(config, rows)),
        "## What was measured\n",
        "\n".join(_during(config, rows)),
        "\n".join(_evaluations(run)),
        "Accuracy is measured on held-out questions of the task. Brackets are 95% intervals over questions. One run is "
        "one seed.",
    ]
    return "\n\n".join(filter(None, (part.strip("\n") for part in parts))) + "\n"


def _training(config: TrainConfig, rows: Sequence[Row]) -> Iterator[str]:
    d, scoring = config.debate, config.protocol.scoring
    tasks = ", ".join(f"`{one_line(_shown(name))}`" for name in trained_tasks(config))
    yield f"Questions: {tasks}; {config.optim.batch_size} per step."
    if config.model.model == SMOLLM:
        yield (
            "The base in training may have been the copy from the package index (4-bit weights, widened), which "
            "differs slightly from the hub's."
        )
    if config.start:
        yield f"Started from other trained weights: `{one_line(_shown(config.start))}`."
    yield f"Debates: {d.num_agents} copies of the model, {counted(d.max_rounds, 'round')}."
    yield f"Reward: `{one_line(_shown(scoring.reward))}`. {_labels(config)}"
    played = [row for row in rows if row["phase"] == "self_play"]
    tokens = max(tokens_spent(played).values(), default=0.0)
    steps = counted(len(played), "step")
    rate = f"learning rate {config.optim.learning_rate:g}"
    yield f"Self-play: {steps}, {tokens:,.0f} tokens sampled, {rate}, seed {config.seed}."


def _shown(name: str) -> str:
    """Files by their last part: the folders of one machine are nobody else's business."""
    return "".join(part.rpartition("/")[2] for part in re.split("([:,=])", name))


def _labels(config: TrainConfig) -> str:
    scoring = config.protocol.scoring
    used = [f"a warm start on {config.warm_questions} questions"] if config.warm_steps else []
    used += ["the reward"] if scoring.rule.grades == "right" or scoring.reward_mix or scoring.correct_bonus else []
    used += ["the curriculum, to choose questions"] if trained_tasks(config) != (config.debate.task,) else []
    return f"Known answers were used for {' and '.join(used)}." if used else "No known answers were used in training."


def _during(config: TrainConfig, rows: Sequence[Row]) -> Iterator[str]:
    evals = {row["step"]: row for row in rows if row["phase"] == "eval"}
    if evals:
        count = int(next(reversed(evals.values())).get("debates/played") or 0)
        yield f"During training, in debates on {count} held-out questions (few questions: a hint, not a result):\n"
        yield "| step | right answers | turns that could be read | votes for the right answer |\n|---|---|---|---|"
        for step, row in evals.items():
            judges = row[PAIR_ACCURACY] if PAIR_ACCURACY in row else row.get("trust/judge_accuracy")
            numbers = (measured(row, "test_*/correct"), row.get("test/valid_turns"), judges)
            yield f"| {step} | {' | '.join('–' if value is None else f'{value:.1%}' for value in numbers)} |"
        yield ""
    played = [row for row in rows if row["phase"] == "self_play"]
    rang = {name: sum(bool(row.get(name)) for row in played) for name in ALARMS}
    for name, steps in rang.items():
        if steps:
            rung = f"rang in {steps} of {len(played)} steps"
            yield f"- The alarm `{name.removeprefix('alarm/')}` {rung}: {ALARMS[name].means}"
    if played and not any(rang.values()):
        yield "- No alarm rang."


def _evaluations(run: Run) -> Iterator[str]:
    """What `moot eval` reported about this run, at whatever step; a report that cannot be read is passed over."""
    rows = []
    for path in sorted((run.path / "evals").glob("*/report.json")):
        with contextlib.suppress(OSError, ConfigError):
            report = Report.read(path)
            where = one_line(f"{_shown(str(report.settings.get('task')))}, step {report.settings.get('step', '–')}")
            for row in report.rows:
                if (found := row.metrics.get("accuracy")) is not None:
                    interval = f"{found['value']:.1%} [{found['low']:.1%}, {found['high']:.1%}]"
                    rows.append(f"| {where} | {one_line(row.name)} | {row.questions} | {interval} |")
    if rows:
        yield "Evaluated with `moot eval`:\n\n| task | mode | questions | right answers |\n|---|---|---|---|"
        yield from rows
    else:
        yield "It was not evaluated with `moot eval`."
