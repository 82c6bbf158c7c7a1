"""Is the learning rate too high? Take a few steps on one batch, and look at other questions after each.

    moot train --task arithmetic --max-rounds 1 --max-tokens 64 --no-personas --warm-questions 128 \\
        --with warm_start:learning_rate=5e-4 --num-train-datapoints 0 --eval-every 0 --run runs/warm
    python recipes/step_size.py runs/warm --rates 1e-4 2e-5

Some questions are answered by a group of agents and rewarded by the truth; the same datums are then trained on again and again. After 1, 3
and 10 steps: how probable is the right answer, worked out as in the warm start, to those questions and to held-out ones? At a rate that is
small enough the batch is learned and the others hold. A rate at which the batch itself is lost again is too high for one of this size.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from moot.debate.rewards import truth
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import AdamParams, Sampler, SamplingParams
from moot.errors import ConfigError
from moot.players.checkpoints import newest_whole
from moot.players.find import make_engine
from moot.rl.advantages import ESTIMATORS, advantages
from moot.rl.rollout import rollout
from moot.runs import Run
from moot.settings.train import TrainConfig
from moot.tasks import Task, load
from moot.tasks.answers import grade_all
from moot.tokens.datums import datums
from moot.tokens.rendering import Rendering
from moot.tokens.turn import carries_gradient

FIRST = 1_000_000
"""Number of the first question asked: none of the warm start's."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="its newest checkpoint is where each rate starts")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-4, 2e-5])
    parser.add_argument("--questions", type=int, default=8, help="in the batch")
    parser.add_argument("--agents", type=int, default=8, help="that answer each of them")
    parser.add_argument("--held-out", type=int, default=40, help="other questions to look at")
    parser.add_argument("--steps", nargs="+", type=int, default=[1, 3, 10], help="when to look")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    run = Run.open(args.run)
    config = TrainConfig.from_dict(run.config)
    config = replace(config, model=replace(config.model, device=args.device))
    checkpoint = newest_whole(run)
    if checkpoint is None:
        raise ConfigError(f"{args.run} has no checkpoint that is whole; train it first")
    start = checkpoint.engine_state
    task = load(config.debate.task, config.seed, args.held_out)
    engine, rendering = make_engine(config)
    asked = [task.train(FIRST + i) for i in range(args.questions)]

    async def look(when: str) -> None:
        sampler = await engine.snapshot()
        shares = [
            await probability(sampler, rendering, task, config, questions) for questions in (asked, task.held_out)
        ]
        print(f"{when:<24} right answers: {shares[0]:.1%} in the batch, {shares[1]:.1%} held out", flush=True)

    try:
        await engine.load_state(start)
        await look("before")
        debates = [Debate(question, args.agents, 1, config.protocol.rules) for question in asked]
        params = SamplingParams(max_tokens=config.debate.max_tokens)
        tempered = engine.capabilities.tempered_training
        played = await rollout(
            debates, await engine.snapshot(), rendering, params, concurrency=256, tempered=tempered, seed="step-size"
        )
        scoring = replace(config.protocol.scoring, reward="truth", advantage="auto")
        grades = grade_all([each.debate for each in played], task.equal, task.extract, task.check)
        scores = [truth(each.debate, scoring, found) for each, found in zip(played, grades, strict=True)]
        values = advantages(zip([each.debate for each in played], scores, strict=True), ESTIMATORS[scoring.estimator])
        taught = [(each, value) for each, value in zip(played, values, strict=True) if carries_gradient(value)]
        batch = [datum for each, value in taught for datum in datums(each.debate, each.sampled, value)]
        print(f"{len(taught)} of {len(played)} questions carry a gradient", flush=True)
        for rate in args.rates:
            await engine.load_state(start)
            for step in range(1, max(args.steps) + 1):
                await engine.forward_backward(batch, "importance_sampling")
                await engine.optim_step(AdamParams(rate))
                if step in args.steps:
                    await look(f"{step} steps of {rate:g}")
    finally:
        await engine.close()


async def probability(
    sampler: Sampler, rendering: Rendering, task: Task, config: TrainConfig, questions: list[Question]
) -> float:
    """Of the right answer as the warm start would have it, from the first tag to the last; the mean over questions."""
    found = []
    for question in questions:
        prompt = rendering.prompt(
            Debate(question, config.debate.num_agents, 1, config.protocol.rules).observe(0).conversation()
        )
        assert task.solution is not None, f"task {task.name} has no worked solutions"
        text = f"<solution>{task.solution(question)}</solution>\n<evaluation>N/A</evaluation>\n<comparison>N/A</comparison>"
        said = [*rendering.tokenizer.encode(text, add_special_tokens=False), rendering.stop_ids[0]]
        logprobs = await sampler.compute_logprobs(np.concatenate([prompt, np.array(said, dtype=np.int32)]))
        found.append(float(np.exp(logprobs[len(prompt) :].sum())))
    return sum(found) / len(found)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ConfigError as error:
        sys.exit(f"step_size: {error}")
