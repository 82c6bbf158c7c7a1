"""Debate training in one file: the whole algorithm on moot's own parts, to read and to change.

    python recipes/debate_loop.py                              # SmolLM2-135M on arithmetic, on this machine
    python recipes/debate_loop.py --engine scripted            # the same in seconds: no model, nothing learned
    python recipes/debate_loop.py --reward truth --iterations 20

    questions -> debates -> votes -> rewards -> advantages -> datums -> one optimizer step -> a fresh sampler -> again

Left out, and in `moot train`: checkpoints and resuming, the best of them, records on disk, evaluation, how far a step moved the policy,
progress bars, schedules, a KL penalty, sampling ahead of training, every remedy, and what to do on bad days.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from typing import Any

from moot.debate.protocols import V2
from moot.debate.rewards import REWARDS
from moot.debate.state import Debate
from moot.engine.protocol import AdamParams, Datum, Sampler, SamplingParams
from moot.players.create import create_engine
from moot.rl import warm
from moot.rl.advantages import ESTIMATORS, SeatMeans, with_advantages
from moot.rl.metrics import answer_metrics, optim_metrics, reward_metrics, rollout_metrics
from moot.rl.rollout import rollout
from moot.rl.trust import panel
from moot.settings.model import ModelConfig
from moot.tasks import Task, load
from moot.tasks.answers import grade
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import carries_gradient


async def teach_the_contract(engine: Any, rendering: Rendering, task: Task, args: argparse.Namespace) -> None:
    """The warm start. A model that writes no valid turn gets no votes, so it first copies debates written by a script that knows the
    answers. This uses labels: its gain is not debate's."""
    for first in range(0, args.warm_questions, args.warm_batch):
        numbers = range(first, first + args.warm_batch)
        empty = Debate(task.train(first), args.agents, args.rounds, args.protocol.rules)
        batch = await warm.examples(task, rendering, empty, numbers, args.seed)
        out = await engine.forward_backward(batch, "cross_entropy")
        await engine.optim_step(AdamParams(args.warm_rate))
        tokens = sum(float(datum.mask.sum()) for datum in batch)
        print(f"warm start {first:4d}: loss {out.loss / tokens:.3f} a token", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # Adam forgets it: moments of another loss would steer the first steps of self-play
        await engine.load_state(await engine.save_state(folder), optimizer=False)


async def play(
    engine: Any, sampler: Sampler, rendering: Rendering, task: Task, args: argparse.Namespace, iteration: int
) -> list[PlayedDebate]:
    """Self-play: every seat of every debate is the same policy, under another persona and temperature. All debates run at once; the
    engine batches what they ask for, and a turn that extends the last one is only prefilled where it is new."""
    first = args.warm_questions + (iteration - 1) * args.batch
    debates = [
        Debate(task.train(number), args.agents, args.rounds, args.protocol.rules)
        for number in range(first, first + args.batch)
    ]
    played = await rollout(
        debates, sampler, rendering, SamplingParams(args.max_tokens),
        tempered=engine.capabilities.tempered_training, seed=f"{args.seed}/{iteration}",
    )  # fmt: skip
    return [each for each in played if each.error is None]  # what the engine lost is nobody's fault, and never scored


def datums_from(
    played: list[PlayedDebate], task: Task, args: argparse.Namespace, seats: SeatMeans
) -> tuple[list[Datum], dict[str, Any]]:
    """Votes to per-token advantages.

    The reward reads each debate's comparisons: `generator_judge` gives every step two numbers, how the others liked its answer and how
    well its own votes agree with theirs. `truth` and `majority` give every turn one, by its own answer. The estimator subtracts a mean, so
    that half of what is said is pushed up and half down: over the round for those two, over the debate for the others.
    Credit goes to tokens: the generator's to the solution alone, the judge's to evaluation and comparison, which can no longer
    change the answer. A turn that cannot be read gets the generator's on all of it.
    """
    grades = [
        grade(each.debate, task.equal, task.extract, task.check) for each in played
    ]  # looked at by the panel, and by the reward truth alone
    scored = [each.scored(args.protocol.scoring, found) for each, found in zip(played, grades, strict=True)]
    taught = with_advantages(scored, ESTIMATORS[args.protocol.scoring.estimator], seats)
    batch = [
        datum
        for each in taught
        if each.advantages is not None and carries_gradient(each.advantages)
        for datum in datums(each.debate, each.sampled, each.advantages)
    ]
    answers = answer_metrics([each.debate for each in taught], grades, task.name)
    return batch, {**rollout_metrics(taught), **reward_metrics(taught), **answers, **panel(taught)}


async def learn(engine: Any, batch: list[Datum], rate: float) -> dict[str, Any]:
    """One policy-gradient step: minus the sum over tokens of ratio times advantage, the ratio being trainer over sampler probability.
    On-policy it is 1 at every temperature, and `kl_sample_train_v2` says how nearly. The loss is summed, so its gradient is large and is
    not clipped: Adam divides by its size anyway."""
    if not batch:
        return {}
    losses, step = engine.forward_backward(batch, "importance_sampling"), engine.optim_step(AdamParams(rate))
    out = await losses  # both were enqueued before either is awaited: a remote engine never waits for us
    await step
    return dict(optim_metrics(batch, out.logprobs))


async def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    # An engine has the verbs of the Tinker API: forward_backward, optim_step, snapshot. A rendering turns messages into its tokens.
    engine = create_engine(ModelConfig(args.model, args.engine))
    rendering = Rendering(engine.tokenizer, args.model if args.engine == "local" else "")
    task, seats, rows = load(args.task, args.seed), SeatMeans(), []
    try:
        await teach_the_contract(engine, rendering, task, args)
        for iteration in range(1, args.iterations + 1):
            sampler = await engine.snapshot()  # keeps these weights, however training continues
            played = await play(engine, sampler, rendering, task, args, iteration)
            batch, row = datums_from(played, task, args, seats)
            # The rate rises over the first iterations: Adam's first steps are as long as any, and know the least.
            row |= await learn(engine, batch, args.rate * min(1.0, iteration / max(1, args.lr_warmup)))
            rows.append(row)
            shown = {
                "reward": row["env/all/reward/total"],
                "with gradient": row["debates/with_gradient"],
                "unreadable": row["parse_error"],
                "right": row[f"train_{task.name}/correct"],
                "judges right": row["trust/judge_accuracy"],
                "kl": row.get("optim/kl_sample_train_v2"),
            }
            numbers = (f"{name} {'–' if value is None else format(value, '.3g')}" for name, value in shown.items())
            print(f"iteration {iteration}: {', '.join(numbers)}", flush=True)
    finally:
        await engine.close()
    return rows


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["local", "scripted"], default="local")
    parser.add_argument("--model", default="smollm2-135m", help="a hub id or a directory")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=6, help="questions per iteration")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--reward", choices=list(REWARDS), default="generator_judge")
    parser.add_argument("--advantage", choices=["auto", *ESTIMATORS], default="auto")
    parser.add_argument("--rate", type=float, default=2e-5)
    parser.add_argument("--lr-warmup", type=int, default=5, help="iterations over which the rate rises")
    parser.add_argument("--warm-questions", type=int, default=16)
    parser.add_argument("--warm-batch", type=int, default=2)
    parser.add_argument("--warm-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(given)
    if args.agents < 3:
        parser.error(f"--agents must be at least 3, got {args.agents}: with fewer nobody can vote")
    args.protocol = V2.with_choices(
        reward=args.reward, advantage=args.advantage, evaluation_credit="judge"
    )  # as the presets for training
    return args


if __name__ == "__main__":
    asyncio.run(run(arguments()))
