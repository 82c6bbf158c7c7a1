"""A real model, tiny and random, is warmed up in its own words: without labels, by torch."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from moot.debate.protocols import V2
from moot.debate.rewards import REWARDS
from moot.debate.types import Question
from moot.engine.local import LocalEngine
from moot.rl.advantages import ESTIMATORS
from moot.runs import Run
from moot.settings.train import DebateConfig, OptimConfig, TrainConfig
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering
from moot.training.loop import train
from moot.training.state import Setup
from support import tiny_chat
from unit.training.test_train import Silent

pytestmark = pytest.mark.slow

CONFIG = TrainConfig(
    protocol=V2.with_choices(sections="asked", personas=False),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=60, evaluation_tokens=4),
    optim=OptimConfig(batch_size=2, num_train_datapoints=0),
    warm_questions=6,
    parts=("warm_start:batch_size=2,learning_rate=3e-3,solutions=own",),
    eval_every=0,
)


def colour(text: str) -> str:
    """Any text has an answer, so that a model that writes at random has some too."""
    return ("red", "blue")[len(text) % 2]


def test_a_tiny_model_is_warmed_up_in_its_own_words(tmp_path: Path) -> None:
    model = str(tiny_chat.save(tmp_path / "tiny"))
    engine = LocalEngine.create(model, dtype="fp32", device="cpu", max_cache_gib=0.1, token_budget=16384)
    task = Task(
        "colours",
        lambda number: Question(f"Which colour is {number}?"),
        [Question(f"And {n}?") for n in range(1)],
        extract=colour,
    )
    run = Run.create(tmp_path / "run", CONFIG.as_dict(), {})
    scoring = CONFIG.protocol.scoring
    reward, estimator = REWARDS[scoring.reward], ESTIMATORS[scoring.estimator]
    setup = Setup(
        CONFIG, engine, Rendering(engine.tokenizer, model), task, [task], reward, estimator, run, watcher=Silent()
    )
    asyncio.run(train(setup))
    kept = json.loads((run.path / "warm_own.json").read_text())
    assert kept["entropy"] > 1 and kept["direct"] is None, "no answers are known"
    rows = [row for row in run.metrics() if row["phase"] == "warm"]
    losses = [row["warm/loss_per_token"] for row in rows if "warm/loss_per_token" in row]
    assert len(losses) == 3 and losses[-1] < losses[0], "what it wrote itself becomes more probable, form included"
    for words in kept["solutions"].values():
        assert {colour(text) for text in words["right"]} == {words["answer"]} and words["answer"] not in map(
            colour, words["wrong"]
        )
