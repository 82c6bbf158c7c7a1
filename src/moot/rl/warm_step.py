"""One step of the supervised phase: examples for some questions, and an optimizer step on them."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from moot.debate.state import Debate
from moot.engine.protocol import SamplingParams
from moot.records.files import write_atomically
from moot.rl import warm
from moot.rl.loop import Loop
from moot.rl.optimise import optimise
from moot.tasks.task import Task


async def warm_step(loop: Loop, step: int) -> dict[str, Any]:
    config, started = loop.config, time.perf_counter()
    w, d = config.warm, config.debate
    per_epoch = config.warm_steps // w.warm_epochs
    epoch, i = divmod(step - 1, per_epoch)
    order = list(range(w.warm_questions))
    random.Random(f"{config.seed}/warm/{epoch}").shuffle(order)
    numbers = order[i * w.warm_batch_size : (i + 1) * w.warm_batch_size]
    task = loop.curriculum.tasks[0]
    wrong = await wrong_answers(loop, task)
    empty = Debate(task.train(0), d.num_agents, d.max_rounds, config.protocol.rules, prompts=config.prompts)
    examples = await warm.examples(task, loop.rendering, empty, numbers, config.seed, wrong, alone=w.warm_wrong == "none")
    trained = await optimise(loop, [examples], "cross_entropy", w.warm_learning_rate)
    tokens = trained["optim/trained_tokens"] or 1.0
    return {
        "step": step,
        "phase": "warm",
        "warm/loss_per_token": (trained["optim/loss"] or 0.0) / tokens,
        "warm/examples": float(len(examples)),
        "optim/grad_norm": trained["optim/grad_norm"],
        "optim/steps_skipped": trained["optim/steps_skipped"],
        "optim/trained_tokens": tokens,
        "optim/lr": w.warm_learning_rate,
        "time/train_s": time.perf_counter() - started,
    }


async def wrong_answers(loop: Loop, task: Task) -> dict[int, list[str]]:
    """Wrong solutions that the untrained model wrote to the warm start's questions: sampled once, and kept with the run."""
    w = loop.config.warm
    if w.warm_wrong != "sampled":
        return {}
    kept = loop.run.path / "warm_wrong.json"
    if not kept.exists():
        loop.watcher.note(f"asking the untrained model {w.warm_questions} questions, for its own mistakes")
        base = await loop.engine.base()
        params = SamplingParams(max_tokens=loop.config.debate.max_tokens)
        sampled = await warm.sample_wrong(task, base, loop.rendering, params, range(w.warm_questions), loop.config.seed)
        write_atomically(kept, json.dumps(sampled).encode())
    return {int(number): texts for number, texts in json.loads(kept.read_text()).items()}
