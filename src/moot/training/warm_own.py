"""A warm start in the model's own words: the form is taught, and the way of solving stays what it was.

The untrained model answers plainly. What it gets right (or, where no answer is known, what most of its answers agree
on) becomes the solutions of debates in the shape of the contract, and its real mistakes become the wrong ones. Every
few steps held-out debates are played: the phase ends when the form is learned, or when the variety of what is written
has halved. All that was sampled lies in warm_own.json in the run's folder.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from moot.debate.types import Message, Question
from moot.engine.protocol import Sample, Sampler, SamplingParams
from moot.errors import ConfigError
from moot.rl.metrics import Metrics, mean
from moot.rl.rollout import rollout
from moot.rl.warm import LONGEST, OwnWords, answers_by_text
from moot.tasks.answer_classes import plurality_label
from moot.tasks.answers import answer_in
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.tokens.speaker import answer_plainly, turn_seed
from moot.training.state import Setup, Stopped
from moot.util.disk import read_file, write_atomically

T = TypeVar("T")
FILE = "warm_own.json"
TRIES = 8
"""Plain answers per question."""
HELD_OUT_DEBATES, HELD_OUT_ANSWERS = 8, 32
VALID, VOTING, VARIETY = 0.95, 0.90, 0.5
"""The form is learned when so many turns can be read and so many of those that could vote did; too much is learned when
the entropy has fallen below this share of the untrained model's."""


@dataclass(frozen=True)
class OwnStart:
    """What the untrained model wrote, and what it was then."""

    solutions: dict[int, OwnWords]
    """By question number; only questions with a solution to learn."""
    entropy: float | None
    direct: float | None
    """Accuracy of plain answers to held-out questions."""


async def own_start(setup: Setup, task: Task) -> OwnStart:
    """Sampled once, and kept with the run."""
    kept = setup.run.path / FILE
    if not kept.exists():
        count = setup.config.warm_questions
        setup.watcher.note(f"asking the untrained model {count} questions, for solutions in its own words")
        base = await setup.engine.base()
        own = await _all_counted(setup, "questions", [_ask(setup, task, base, number) for number in range(count)])
        words = {number: asdict(solved) for number, solved in enumerate(own) if solved is not None}
        setup.watcher.note(f"it solved {len(words)} of them; the warm start is made of these")
        form, direct = await form_of(setup, base), await direct_accuracy(setup, base)
        write_atomically(
            kept, json.dumps({"solutions": words, "entropy": form["warm/entropy"], "direct": direct}).encode()
        )
    start = read_as(OwnStart, kept)
    if not start.solutions:
        raise Stopped(
            f"the untrained model solved none of the {setup.config.warm_questions} questions, so it has no "
            "words of its own to learn "
            "from; use --with warm_start:solutions=task, easier questions (--task), or a higher --max-tokens"
        )
    return start


def read_as(kind: type[T], file: Path) -> T:
    """What a run keeps of the model before training; ConfigError where it is damaged."""
    try:
        return TypeAdapter(kind).validate_json(read_file(file))
    except ValueError:
        raise ConfigError(f"{file} is damaged; put back what moot wrote, or start over with --restart") from None


async def _all_counted(setup: Setup, kind: str, work: Sequence[Awaitable[T]]) -> list[T]:
    done = itertools.count(1)
    setup.watcher.counted(kind, 0, len(work))

    async def one(awaitable: Awaitable[T]) -> T:
        result = await awaitable
        setup.watcher.counted(kind, next(done), len(work))
        return result

    return await asyncio.gather(*map(one, work))


async def _plain_answers(
    setup: Setup, sampler: Sampler, question: Question, what: object, count: int
) -> list[tuple[str, Sample]]:
    config = setup.config
    params = SamplingParams(
        config.debate.max_tokens, config.protocol.rules.temperature, seed=turn_seed(config.seed, "own", what)
    )
    return await answer_plainly(sampler, setup.rendering, [Message("user", question.plain)], params, count)


async def _ask(setup: Setup, task: Task, base: Sampler, number: int) -> OwnWords | None:
    question = task.train(number)
    said = await _plain_answers(setup, base, question, number, TRIES)
    answers = answers_by_text(said, task)
    given = [answers.get(text.strip()) for text, sample in said if sample.stop_reason == "stop"]
    return await asyncio.to_thread(sorted_out, answers, given, question, task)


def sorted_out(
    answers: Mapping[str, str], given: Sequence[str | None], question: Question, task: Task
) -> OwnWords | None:
    """The texts with a right answer and the others. Where nobody knows which are right, those are that most of those
    `given` agree on, and at least two; None where nothing is right."""
    truth = question.answer
    if task.gradable(question):
        right = [text for text, answer in answers.items() if task.right(question, answer)]
    else:
        truth, share = plurality_label(given, task.equal)
        if truth is None or share * len(given) < 2:
            return None
        right = [text for text, answer in answers.items() if task.equal(answer, truth)]
    wrong = [text for text, answer in answers.items() if text not in right and len(text) <= LONGEST]
    return OwnWords(truth or answers[right[0]], right, wrong) if right else None


# Held-out


async def form_of(setup: Setup, sampler: Sampler) -> Metrics:
    """How well the form is kept in held-out debates, and how varied the tokens are."""
    config = setup.config
    questions = setup.task.held_out[:HELD_OUT_DEBATES]
    empty = [config.empty_debate(question) for question in questions]
    params = SamplingParams(max_tokens=config.debate.max_tokens)
    tempered = setup.tempered
    done = itertools.count(1)
    setup.watcher.counted("debates", 0, len(empty))
    played = await rollout(
        empty,
        sampler,
        setup.rendering,
        params,
        tempered=tempered,
        seed=f"{config.seed}/own",
        limits=config.debate.limits,
        finished=lambda *_: setup.watcher.counted("debates", next(done), len(empty)),
    )
    return measured([debate for debate in played if debate.error is None])


def measured(debates: Sequence[PlayedDebate]) -> Metrics:
    """Entropy is minus the mean logprob of the sampled tokens."""
    could = sum(played.ballots.could_vote for played in debates)
    return {
        "warm/valid_turns": mean(float(not turn.failed) for played in debates for turn in played.debate.turns),
        "warm/turns_with_vote": sum(played.ballots.did_vote for played in debates) / could if could else None,
        "warm/entropy": mean(
            -float(p) for played in debates for turn in played.sampled for p in turn.logprobs[turn.sampled]
        ),
    }


async def direct_accuracy(setup: Setup, sampler: Sampler) -> float | None:
    """Of plain answers to held-out questions with a known answer."""
    questions = [question for question in setup.task.held_out[:HELD_OUT_ANSWERS] if setup.task.gradable(question)]
    work = [_plain_answers(setup, sampler, question, f"held out {i}", 1) for i, question in enumerate(questions)]
    said = await _all_counted(setup, "questions", work)

    def right(question: Question, text: str, sample: Sample) -> float:
        answer = answer_in(text.strip(), setup.task.extract) if sample.stop_reason == "stop" else None
        return float(answer is not None and setup.task.right(question, answer))

    return await asyncio.to_thread(
        lambda: mean(right(question, *one) for question, (one,) in zip(questions, said, strict=True))
    )


def why_to_stop(form: Metrics, entropy: float | None) -> str:
    """Empty while there is something to learn."""
    valid, voting, now = (form[f"warm/{name}"] or 0.0 for name in ("valid_turns", "turns_with_vote", "entropy"))
    votes = form["warm/turns_with_vote"]
    if valid >= VALID and (votes is None or voting >= VOTING):
        told = "" if votes is None else f", {voting:.0%} of those that could vote do"
        return f"the form is learned: {valid:.0%} of the turns of held-out debates can be read{told}"
    if entropy and now < VARIETY * entropy:
        return f"variety has halved: the entropy of held-out debates fell from {entropy:.2f} to {now:.2f}"
    return ""


async def looked_at(setup: Setup, step: int, own: OwnStart, every: int) -> dict[str, Any] | None:
    """Before a step: the row that ends the phase, or None where it continues."""
    if (step - 1) % every:
        return None
    sampler = await setup.engine.snapshot()
    form = await form_of(setup, sampler)
    if not (why := why_to_stop(form, own.entropy)):
        return None
    setup.watcher.note(f"the warm start ends after {step - 1} of {setup.config.warm_steps} steps: {why}")
    row = {
        "step": setup.config.warm_steps,
        "phase": "warm",
        "warm/ended_after": float(step - 1),
        "warm/examples": 0.0,
        **form,
    }
    return {**row, **await direct_change(setup, sampler, own)}


async def direct_change(setup: Setup, sampler: Sampler, own: OwnStart) -> Metrics:
    """What the phase did to plain answers. Says so."""
    after = await direct_accuracy(setup, sampler)
    if own.direct is not None and after is not None:
        setup.watcher.note(
            f"direct accuracy on held-out questions was {own.direct:.0%} before the warm start and is {after:.0%} "
            "after it"
        )
    return {"warm/direct_before": own.direct, "warm/direct_after": after}
