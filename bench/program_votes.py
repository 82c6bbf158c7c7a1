#!/usr/bin/env python3
"""Programs as votes beside worked answers, at equal tokens: which majority is right more often?

    python bench/program_votes.py --model DIR --task gsm8k:train=FILE,test=FILE --questions 20

A model answers each question several times in words, and writes several functions that calculate the answer (the part
`program_votes`); the sandbox runs these. Each way then has the same tokens per question to spend on votes: as many
votes as that buys are drawn, many times over, and the plurality is graded. Questions are training ones, so that a test
set stays unseen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from moot.debate.types import Message, Question
from moot.engine.protocol import SamplingParams
from moot.players.find import make_engine
from moot.settings.train import ModelConfig, TrainConfig
from moot.tasks import load
from moot.tasks.answers import answer_in
from moot.tasks.task import Task
from moot.tokens.speaker import answer_plainly, turn_seed
from moot.training.parts.frozen_labels import plurality_label
from moot.training.parts.program_votes import ask_for_programs
from moot.util.intervals import interval, paired_interval

DRAWS = 200


@dataclass(frozen=True)
class Voted:
    question: str
    answers: list[str | None]
    programs: list[str | None]
    answer_tokens: int
    program_tokens: int


def kept(path: Path) -> list[Voted]:
    return [Voted(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def keep(path: Path, known: list[Voted]) -> None:
    path.write_text("".join(json.dumps(asdict(voted)) + "\n" for voted in known))


async def sample(options: argparse.Namespace, task: Task) -> list[Voted]:
    """A line of the file for each question, so that what was cut off goes on."""
    known = kept(options.out)
    model = ModelConfig(options.model, device=options.device, dtype=options.dtype)
    engine, rendering = make_engine(TrainConfig(model=model))
    sampler = await engine.base()

    async def one(question: Question) -> Voted:
        def params(kind: str) -> SamplingParams:
            return SamplingParams(options.max_tokens, options.temperature, seed=turn_seed(kind, question.text))

        asked = [Message("user", question.plain)]
        said = await answer_plainly(sampler, rendering, asked, params("answer"), options.answers)
        answers = [answer_in(text, task.extract) for text, _ in said]
        spent = sum(len(one.tokens) for _, one in said)
        programs, tokens = await ask_for_programs(sampler, rendering, question, params("program"), options.programs)
        return Voted(question.text, answers, programs, spent, tokens)

    try:
        questions = [task.train(i) for i in range(options.questions)][len(known) :]
        for start in range(0, len(questions), options.at_once):
            began = time.monotonic()
            known += await asyncio.gather(*map(one, questions[start : start + options.at_once]))
            keep(options.out, known)
            print(f"{len(known)} of {options.questions} questions, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        await engine.close()
    return known


def right_at(voted: Voted, question: Question, task: Task, answers: int, programs: int) -> float:
    """How often the plurality of so many votes of each kind is right."""
    rng, right = random.Random(question.text), 0
    for _ in range(DRAWS):
        votes = rng.sample(voted.answers, answers) + rng.sample(voted.programs, programs)
        label, _ = plurality_label(votes, task.equal)
        right += label is not None and task.right(question, label)
    return right / DRAWS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--answers", type=int, default=6)
    parser.add_argument("--programs", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=320)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("program-votes.jsonl"))
    options = parser.parse_args()
    task = load(options.task, 0, 1)
    voted = asyncio.run(sample(options, task))
    questions = [task.train(i) for i in range(len(voted))]
    count = len(voted)
    per_answer = sum(v.answer_tokens for v in voted) / (count * options.answers)
    per_program = sum(v.program_tokens for v in voted) / (count * options.programs)
    ran = sum(value is not None for v in voted for value in v.programs) / (count * options.programs)
    print(
        f"{count} questions. Tokens of an answer {per_answer:.0f}, of a program {per_program:.0f}; {ran:.0%} of the "
        "programs return a number."
    )
    halves = [(n, round(n * per_answer / 2 / per_program)) for n in range(2, options.answers + 1, 2)]
    print(
        "one answer, one program: "
        + ", ".join(
            f"{sum(right_at(v, q, task, *one) for v, q in zip(voted, questions, strict=True)) / count:.1%}"
            for one in ((1, 0), (0, 1))
        )
    )
    for answers, half in halves:
        ways = {
            f"{answers} answers": (answers, 0),
            f"{2 * half} programs": (0, 2 * half),
            f"{answers // 2} answers + {half} programs": (answers // 2, half),
        }
        shares = {}
        for name, (words, code) in ways.items():
            if code > options.programs:
                continue
            shares[name] = [right_at(v, q, task, words, code) for v, q in zip(voted, questions, strict=True)]
        print(f"\nat {answers * per_answer:.0f} tokens per question:")
        words = shares[f"{answers} answers"]
        for name, values in shares.items():
            own = interval(values, [1] * count)
            gain = paired_interval((values, [1] * count), (words, [1] * count))
            assert own and gain
            told = f"  {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if values is not words else ""
            print(f"  {name:<28}{own.value:.3f} [{own.low:.3f}, {own.high:.3f}]{told}")


if __name__ == "__main__":
    main()
