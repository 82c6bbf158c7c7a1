"""What the contract costs a model: right answers, valid turns and votes in each way to speak, against the plain question.

    python bench/contract.py --model smollm2-135m --task arithmetic
    python bench/contract.py --model MODEL --task gsm8k:train=train.jsonl --questions 200 [--layout shared] [--prompts FILE] [--json OUT]

Untrained models, training-slice questions, one temperature and one limit for all. `plain` rows ask the question alone, with the task's
own instruction and with others. The other rows are debates of three agents and two rounds: `asked`, `given` and `sampled` sections.
The last lines say which aims are reached. Nothing here is trained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from moot import tasks
from moot.debate.prompt_texts import DEFAULT, load_prompts
from moot.debate.protocols import V2
from moot.debate.rewards import ballots, plurality
from moot.debate.rules import Rules
from moot.debate.state import Debate
from moot.debate.types import Message, Question
from moot.engine.protocol import SamplingParams
from moot.rl.rollout import rollout
from moot.tasks.answers import answer_in, grade_all
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering
from moot.util.intervals import interval, paired_interval

WORDINGS = {
    "the task's own": None,
    "short": "Work through this step by step in words and arithmetic, without code. Keep it short. End with the final answer in \\boxed{}.",
    "reason": "Please reason step by step, and put your final answer within \\boxed{}.",
}
LIMITS = {"evaluation": 256, "comparison": 64}


def percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def share(hits: Sequence[float], of: Sequence[float] | None = None) -> dict[str, float] | None:
    """A share with its 95% interval, resampled by question."""
    measured = interval(hits, of)
    return None if measured is None else {"value": measured.value, "low": measured.low, "high": measured.high}


async def plain(
    args: argparse.Namespace, sampler: Any, rendering: Rendering, task: Task, questions: Sequence[Question]
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, instruction in WORDINGS.items():
        asked = [replace(q, instruction=instruction) if instruction else q for q in questions]
        started = time.perf_counter()

        async def one(number: int, question: Question) -> tuple[bool, int, bool]:
            prompt = rendering.prompt([Message("user", f"{question.text}\n\n{question.instruction}")])
            params = SamplingParams(args.max_tokens, args.temperature, stop=rendering.stop_ids, seed=number)
            samples = await sampler.sample(prompt, params, args.agents)
            given = [answer_in(rendering.said(sample.tokens)[0], task.extract) for sample in samples]
            right = [answer is not None and task.right(question, answer) for answer in given]
            lengths = [len(sample.tokens) for sample in samples]
            return (
                sum(right) / len(right),
                sum(lengths) / len(lengths),
                sum(s.stop_reason == "length" for s in samples) / len(samples),
            )

        found = await asyncio.gather(*(one(number, question) for number, question in enumerate(asked)))
        tokens = [length for _, length, _ in found]
        rows[name] = {
            "right": [float(right) for right, _, _ in found],
            "accuracy": share([right for right, _, _ in found]),
            "tokens": float(np.mean(tokens)),
            "cut": float(np.mean([cut for _, _, cut in found])),
            "tokens_per_s": args.agents * sum(tokens) / (time.perf_counter() - started),
        }
        print(
            f"  plain, {name}: {percent(np.mean(rows[name]['right']))} right, {rows[name]['tokens']:.0f} tokens",
            flush=True,
        )
    return rows


async def debates(
    args: argparse.Namespace, way: str, sampler: Any, rendering: Rendering, task: Task, questions: Sequence[Question]
) -> dict[str, Any]:
    rules = Rules(sections=way, layout=args.layout, personas=False, temperature=args.temperature)
    texts = load_prompts(args.prompts) if args.prompts else DEFAULT
    empty = [Debate(question, args.agents, 2, rules, prompts=texts) for question in questions]
    limit = args.max_tokens if way != "sampled" else args.max_tokens + sum(LIMITS.values())
    started = time.perf_counter()
    played = await rollout(
        empty, sampler, rendering, SamplingParams(limit), limits=LIMITS, concurrency=args.concurrency
    )
    seconds = time.perf_counter() - started
    kept = [entry for entry in played if entry.error is None]
    grades = grade_all([entry.debate for entry in kept], task.equal, task.extract, task.check)
    rights: dict[int, list[float]] = {1: [], 2: []}
    valid, voted, could, mixed, good, majority = [], [], [], [], [], []
    for entry, grade in zip(kept, grades, strict=True):
        turns = entry.debate.turns
        for round in (1, 2):
            rights[round].append(
                float(np.mean([grade.correct[i] for i, turn in enumerate(turns) if turn.round == round]))
            )
        valid.append(float(np.mean([not turn.failed for turn in turns])))
        cast = ballots(entry.debate, V2.scoring)
        voted.append(cast.did_vote)
        could.append(cast.could_vote)
        pairs = [
            vote for vote in cast.votes if vote.verdict == ">" and grade.correct[vote.left] != grade.correct[vote.right]
        ]
        mixed.append(len(pairs))
        good.append(sum(grade.correct[vote.left] for vote in pairs))
        first = [grade.same[i] for i, turn in enumerate(turns) if turn.round == 1]
        common = plurality(first)
        majority.append(
            float(common is not None and any(grade.correct[i] for i in range(len(first)) if grade.same[i] == common))
        )
    sampled = [int(turn.sampled.sum()) for entry in kept for turn in entry.sampled]
    row = {
        "round 1": share(rights[1]),
        "round 2": share(rights[2]),
        "right in round 1": rights[1],
        "round 2 minus round 1": _difference(rights[2], rights[1]),
        "majority of round 1": share(majority),
        "valid turns": share(valid),
        "turns with a vote": share(voted, could),
        "judges right": share(good, mixed),
        "votes between right and wrong": sum(mixed),
        "tokens per turn": float(np.mean(sampled)) if sampled else None,
        "tokens per s": sum(sampled) / seconds,
        "failed": len(played) - len(kept),
        "why": _reasons(kept),
        "example": [{"text": turn.text, "parsed": not turn.failed} for turn in kept[0].debate.turns] if kept else [],
    }
    print(
        f"  {way}: round 1 {percent(np.mean(rights[1]))}, round 2 {percent(np.mean(rights[2]))}, valid {percent(np.mean(valid))}, "
        f"voted {percent(sum(voted) / max(1, sum(could)))}, {row['tokens per turn']:.0f} tokens per turn",
        flush=True,
    )
    return row


def _difference(after: Sequence[float], before: Sequence[float]) -> dict[str, float]:
    ones = [1.0] * len(after)
    found = paired_interval((after, ones), (before, ones))
    assert found is not None
    return {"value": found.value, "low": found.low, "high": found.high}


def _reasons(played: Sequence[Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in played:
        for turn in entry.debate.turns:
            if turn.failed:
                counts[turn.parsed.reason[:60]] = counts.get(turn.parsed.reason[:60], 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:5])


def aims(result: dict[str, Any]) -> list[tuple[str, str, bool | None]]:
    """What is asked of the contract, what was measured, and whether it is reached."""
    best = max(np.mean(row["right"]) for row in result["plain"].values())
    lines: list[tuple[str, str, bool | None]] = []
    for way in ("asked", "given", "sampled"):
        if way not in result:
            continue
        row = result[way]
        first, second, valid = row["round 1"]["value"], row["round 2"]["value"], row["valid turns"]["value"]
        vote = row["turns with a vote"]["value"] if row["turns with a vote"] else None
        least = 0.85 if way == "sampled" else 0.99
        if way != "sampled":
            kept = first >= 0.95 * best
            lines.append(
                (
                    f"{way}: round 1 at least 0.95 of the best plain wording",
                    f"{percent(first)} of {percent(best)}",
                    kept,
                )
            )
        lines.append(
            (f"{way}: round 2 not below round 1", f"{percent(second)} after {percent(first)}", second >= first)
        )
        lines.append((f"{way}: valid turns at least {least:.0%}", percent(valid), valid >= least))
        lines.append((f"{way}: turns with a vote at least 90%", percent(vote), vote is not None and vote >= 0.9))
    return lines


def save(args: argparse.Namespace, result: dict[str, Any]) -> None:
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    from moot.engine.local import LocalEngine

    engine = LocalEngine.create(
        args.model, max_batch=args.concurrency * args.agents, max_cache_gib=args.cache_gib or None
    )
    rendering = Rendering(engine.tokenizer, args.model)
    sampler = await engine.snapshot()
    task = tasks.load(args.task)
    questions = [task.train(number) for number in range(args.questions)]
    result: dict[str, Any] = {
        "model": args.model,
        "task": args.task,
        "settings": {k: v for k, v in vars(args).items() if k != "json"},
    }
    print(
        f"{args.model} on {task.name}: {len(questions)} questions, temperature {args.temperature:g}, at most {args.max_tokens} tokens"
    )
    result["plain"] = await plain(args, sampler, rendering, task, questions)
    for way in args.ways:
        result[way] = await debates(args, way, sampler, rendering, task, questions)
        save(args, result)
    await engine.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--ways", nargs="+", default=["asked", "given", "sampled"])
    parser.add_argument("--layout", default="growing", choices=["growing", "rebuilt", "shared"])
    parser.add_argument("--prompts", default="")
    parser.add_argument("--concurrency", type=int, default=128, help="debates at once")
    parser.add_argument("--cache-gib", type=float, default=0.0)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    result = asyncio.run(measure(args))
    print(f"\n{'aim':58s} {'measured':28s} reached")
    lines = aims(result)
    for aim, measured, reached in lines:
        print(f"{aim:58s} {measured:28s} {'yes' if reached else 'no'}")
    result["aims"] = [{"aim": aim, "measured": measured, "reached": bool(reached)} for aim, measured, reached in lines]
    save(args, result)


if __name__ == "__main__":
    main()
