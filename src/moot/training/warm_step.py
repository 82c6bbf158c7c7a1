"""One step of the supervised phase: examples for some questions, and an optimizer step on them."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from moot.engine.protocol import SamplingParams
from moot.rl import warm
from moot.tasks.task import Task
from moot.training.optimise import optimise
from moot.training.state import Progress, Setup
from moot.training.warm_own import direct_change, looked_at, own_start, read_as
from moot.util.disk import write_atomically

LOOKS = 8
"""How often a warm start in the model's own words looks whether the form is learned."""


async def warm_step(setup: Setup, progress: Progress, step: int) -> dict[str, Any]:
    """The row of the step; that of the last one, where there is nothing left to learn."""
    config, w, started = setup.config, setup.config.warm, time.perf_counter()
    i, count = step - 1, config.warm_questions
    task = setup.tasks[0]
    own = await own_start(setup, task) if w.solutions == "own" else None
    if own is not None and (ended := await looked_at(setup, step, own, max(1, config.warm_steps // LOOKS))) is not None:
        return {**ended, "time/train_s": time.perf_counter() - started}
    order = list(range(count)) if own is None else sorted(own.solutions)
    random.Random(f"{config.seed}/warm/0").shuffle(order)
    # Where few questions were solved they come round more often.
    numbers = [order[j % len(order)] for j in range(i * w.batch_size, min((i + 1) * w.batch_size, count))]
    wrong = await wrong_answers(setup, task)
    empty = config.empty_debate(task.train(0))
    solutions = None if own is None else own.solutions
    examples = await warm.examples(
        task, setup.rendering, empty, numbers, config.seed, wrong, alone=w.wrong == "none", own=solutions
    )
    trained = await optimise(setup.engine, progress, examples, "cross_entropy", w.learning_rate)
    tokens = trained["optim/trained_tokens"] or 1.0
    return {
        "step": step,
        "phase": "warm",
        "warm/loss_per_token": (trained["optim/loss"] or 0.0) / tokens,
        "warm/examples": float(len(examples)),
        "optim/grad_norm": trained["optim/grad_norm"],
        "optim/steps_skipped": trained["optim/steps_skipped"],
        "optim/trained_tokens": tokens,
        "optim/lr": w.learning_rate,
        **(
            await direct_change(setup, await setup.engine.snapshot(), own)
            if own is not None and step == config.warm_steps
            else {}
        ),
        "time/train_s": time.perf_counter() - started,
    }


async def wrong_answers(setup: Setup, task: Task) -> dict[int, list[str]]:
    """Wrong solutions that the untrained model wrote to the warm start's questions: sampled once, and kept with the
    run."""
    w = setup.config.warm
    if w.wrong != "sampled" or w.solutions == "own":
        return {}
    kept = setup.run.path / "warm_wrong.json"
    if not kept.exists():
        setup.watcher.note(f"asking the untrained model {setup.config.warm_questions} questions, for its own mistakes")
        base = await setup.engine.base()
        params = SamplingParams(max_tokens=setup.config.debate.max_tokens)
        sampled = await warm.sample_wrong(
            task, base, setup.rendering, params, range(setup.config.warm_questions), setup.config.seed
        )
        write_atomically(kept, json.dumps(sampled).encode())
    return read_as(dict[int, list[str]], kept)
