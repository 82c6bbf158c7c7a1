"""Does training still learn? A tiny model under the reward truth, with the defaults and with what they were before.

    python bench/learning.py [--seeds 10] [--iterations 8] [--json]

No download and no GPU: a random Llama of two layers over twelve tokens, of which two are whole answers. Everything else is the real
loop, through the engine, the rendering, the records and the checkpoints. A seed has learned if the share of turns with the right answer
is at least RISE higher in the last three iterations than in the first. Exit status 1 if fewer than nine seeds in ten learn with the
defaults.

The two arms differ by the settings in ARMS alone and see the same questions, seeds and rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from moot.debate.types import Question
from moot.rl.lookup import find_estimator, find_reward
from moot.runs import Run
from moot.settings.presets import PRESETS
from moot.settings.train import DebateConfig, ModelConfig, TrainConfig
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering
from moot.training.loop import train
from moot.training.setup import RowsWatcher
from moot.training.state import Setup
from support.two_answers import TwoAnswers, random_model

RISE = 0.2
RATE = 0.02
"""For a model of a few thousand parameters; the presets' rates are for models a million times larger."""
ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # The protocol's choices and the optimizer's, over the preset `easy`. The two whole turns of this model stand in tags.
    "defaults": ({"reward": "truth", "sections": "sampled"}, {}),
    "before": (
        {"reward": "truth_last", "advantage": "center_group", "sections": "sampled"},
        {"parts": ()},
    ),
}


def settings(arm: str, seed: int, iterations: int) -> TrainConfig:
    scoring, others = ARMS[arm]
    preset = PRESETS["easy"]
    changed = {"batch_size": 4, "num_train_datapoints": 4 * iterations, "learning_rate": RATE}
    return replace(
        preset,
        protocol=preset.protocol.with_choices(personas=False, **scoring),
        model=ModelConfig(lora_rank=8, dtype="fp32", device="cpu"),
        debate=DebateConfig(num_agents=4, max_rounds=2, max_tokens=2),
        optim=replace(preset.optim, **changed),
        seed=seed,
        eval_every=0,
        **{"parts": preset.parts, **others},
    )


def colours(seed: int) -> Task:
    """One question, and which of the two answers is right depends on the seed."""
    right = ("red", "blue")[seed % 2]
    return Task("colours", lambda number: Question("Red or blue?", right, f"{number}"), [], extract=lambda text: None)


@dataclass(frozen=True)
class Learned:
    seed: int
    first: float
    """Share of turns with the right answer in the first iteration."""
    last: float
    """The same in the last three."""
    kl_step: float
    """The longest step."""

    @property
    def rose(self) -> bool:
        return self.last >= self.first + RISE


async def learn(arm: str, seed: int, iterations: int, folder: Path) -> Learned:
    from moot.engine.local import LocalEngine

    config, model = settings(arm, seed, iterations), random_model(folder / "model", seed)
    m = config.model
    engine = LocalEngine.create(
        str(model), dtype=m.dtype, device=m.device, lora_rank=m.lora_rank, max_cache_gib=0.1, seed=seed
    )
    rows: list[dict[str, Any]] = []
    run = Run.create(folder / "run", config.as_dict(), {})
    scoring = config.protocol.scoring
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    try:
        task, watcher = colours(seed), RowsWatcher(rows.append)
        await train(
            Setup(config, engine, Rendering(TwoAnswers()), task, [task], reward, estimator, run, watcher=watcher)
        )
    finally:
        await engine.close()
    right = [
        sum(turn["correct"] for turn in turns) / len(turns) for step in run.steps() if (turns := _turns(run, step))
    ]
    return Learned(
        seed, right[0], sum(right[-3:]) / 3, max((abs(row.get("optim/kl_step") or 0.0) for row in rows), default=0.0)
    )


def _turns(run: Run, step: int) -> list[dict[str, Any]]:
    return [turn for record in run.records(step) for turn in record["turns"]]


def measure(arm: str, seeds: Sequence[int], iterations: int) -> list[Learned]:
    found = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            found.append(asyncio.run(learn(arm, seed, iterations, Path(folder))))
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(given)
    result = {}
    for arm in ARMS:
        began = time.perf_counter()
        found = measure(arm, range(args.seeds), args.iterations)
        result[arm] = {
            "rose": sum(item.rose for item in found),
            "seeds": len(found),
            "first": sum(item.first for item in found) / len(found),
            "last": sum(item.last for item in found) / len(found),
            "longest_step": max(item.kl_step for item in found),
            "seconds": round(time.perf_counter() - began, 1),
        }
        if not args.json:
            told = "{rose} of {seeds} seeds rose; right answers {first:.0%} -> {last:.0%}; longest step {longest_step:.3f} nats; {seconds} s"
            print(f"{arm:<10} {told.format(**result[arm])}", flush=True)
    if args.json:
        print(json.dumps(result))
    return 0 if result["defaults"]["rose"] >= 0.9 * args.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
