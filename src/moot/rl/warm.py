"""The warm start: supervised examples in the shape of the contract, before self-play.

A model that never writes a valid turn gets no votes, and learns nothing from them. So questions with known answers are
debated by a script that knows the truth: some agents slip in round 1, and from then on everyone evaluates rightly,
votes rightly and answers rightly. Only right turns are learned; wrong ones stand in the context with weight 0. Or right
solutions alone are learned, and no judging. Either uses labels: report its gain apart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moot.debate.parsing import ANY_TAG, BALLOT, CONTRACTS, FURTHER, THINK
from moot.debate.play import play
from moot.debate.state import Debate
from moot.debate.types import Message, Observation, Parsed, Said
from moot.engine.protocol import Datum, Sample, Sampler, SamplingParams
from moot.errors import ConfigError
from moot.tasks.answers import answer_in
from moot.tasks.task import Task
from moot.tokens.datums import imitated
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import answer_plainly, kept_turns, turn_seed
from moot.tokens.teacher_forcing import Dictation
from moot.tokens.turn import tokens_by_section


@dataclass(frozen=True)
class OwnWords:
    """What the untrained model wrote to one question, plainly asked."""

    answer: str
    """The known one, or without one what most of its answers say."""
    right: list[str]
    wrong: list[str]


class _Teacher:
    """Writes each turn from what the seat was shown, for the sampler below, which only makes tokens of it."""

    def __init__(
        self, task: Task, debate: Debate, rng: random.Random, wrong: Sequence[str], alone: bool, own: OwnWords | None
    ) -> None:
        question = debate.question
        if own is not None:
            self._right, self._truth, wrong = rng.sample(own.right, len(own.right)), own.answer, own.wrong
            alone = alone or not wrong  # without a real mistake there is none to judge
        elif task.solution is None or (task.near_miss is None and not alone) or not task.gradable(question):
            lacking = f"the warm start needs worked solutions, and task {task.name} has none"
            raise ConfigError(f"{lacking}; set warm_questions to 0")
        else:
            worked = task.solution(question)
            # Where many answers are right, that of the worked solution stands for them.
            self._right, self._truth = [worked], question.answer or answer_in(worked, task.extract) or ""
        self._task, self._question, self._debate, self._wrong = task, question, debate, wrong
        # At least one seat is right and, where there are three, usually one is wrong: otherwise there is nothing to
        # judge.
        seats = list(range(debate.num_agents))
        rng.shuffle(seats)
        slips = rng.choice([0, 1, 1, 2]) if debate.num_agents > 2 and not alone else 0
        self._slips = {seat: rng.randrange(5) for seat in seats[: min(slips, debate.num_agents - 1)]}

    def watch(self, debate: Debate) -> None:
        self._debate = debate

    def write(self, observation: Observation) -> tuple[str, bool]:
        """The turn's text, or that of the section asked for, and whether the turn is right and so worth learning."""
        slips = observation.round == 1 and observation.agent in self._slips
        turn = (observation.agent + observation.round) % len(self._right)
        solution = self._slip(observation.agent) if slips else self._right[turn]
        evaluation = comparison = "N/A"
        if observation.eligible:
            newest = {turn.agent: turn for turn in self._debate.turns if turn.answers}
            # By the numbers the writer knows the others by, in their order.
            seats = sorted(observation.eligible, key=lambda seat: observation.labels[seat])
            held = {observation.labels[seat]: self._answer(newest[seat].parsed) for seat in seats}
            right = {label: answer is not None and self._is_right(answer) for label, answer in held.items()}
            evaluation = " ".join(self._remark(label, answer, right[label]) for label, answer in held.items())
            if len(held) > 1:
                comparison = "\n".join(self._votes(right))
        agreed = bool(observation.eligible) and not slips
        said = {
            "solution": solution,
            "evaluation": evaluation,
            "comparison": comparison,
            **{name: section.agreed if agreed else section.open for name, section in FURTHER.items()},
        }
        worth = not slips or observation.contract == BALLOT
        if observation.section:
            return said[observation.section] + (f"\n</{observation.section}>" if observation.opening else ""), worth
        return "\n".join(f"<{name}>{said[name]}</{name}>" for name in CONTRACTS[observation.contract]), worth

    def _slip(self, seat: int) -> str:
        if self._wrong:
            return self._wrong[self._slips[seat] % len(self._wrong)]
        assert self._task.near_miss is not None
        wrong = self._task.near_miss(self._question, self._slips[seat])
        return self._right[0].replace(self._truth, wrong) if self._truth else wrong

    def _answer(self, parsed: object) -> str | None:
        return answer_in(parsed.fields["solution"], self._task.extract) if isinstance(parsed, Parsed) else None

    def _is_right(self, answer: str) -> bool:
        if self._task.gradable(self._question):
            return self._task.right(self._question, answer)
        return self._task.equal(answer, self._truth)

    def _remark(self, label: int, answer: str | None, right: bool) -> str:
        return f"Agent {label} says {answer}, which is {'right' if right else f'wrong: it is {self._truth}'}."

    def _votes(self, right: dict[int, bool]) -> Iterator[str]:
        labels = sorted(right)
        for i, a in enumerate(labels):
            for b in labels[i + 1 :]:
                if right[a] == right[b]:
                    yield f"Agent {a} = Agent {b}"
                else:
                    yield f"Agent {a} > Agent {b}" if right[a] else f"Agent {b} > Agent {a}"


async def examples(
    task: Task, rendering: Rendering, empty: Debate, numbers: Sequence[int], seed: int,
    wrong: Mapping[int, Sequence[str]] | None = None, alone: bool = False, own: Mapping[int, OwnWords] | None = None,
) -> list[Datum]:  # fmt: skip
    """One debate per question, like the `empty` one but for its question, as datums whose mask marks the tokens to
    learn. `wrong` holds real mistakes, by question number; `own` real solutions too. With `alone` there is one round,
    and the right solutions in it are all that is learned."""
    made: list[Datum] = []
    for number in numbers:
        debate = replace(empty, question=task.train(number), max_rounds=1 if alone else empty.max_rounds)
        rng = random.Random(f"{seed}/warm/{number}")
        teacher = _Teacher(task, debate, rng, (wrong or {}).get(number, ()), alone, (own or {}).get(number))
        made += await _example(debate, teacher, rendering, alone)
    return made


LONGEST = 600
"""Longer mistakes are left out, so that contexts stay small."""
TRIES = 4
"""Plain answers per question, of which the wrong ones are kept."""


def answers_by_text(said: Sequence[tuple[str, Sample]], task: Task) -> dict[str, str]:
    """The answer in each different text that was not cut, has one, and has no tag that would end a section."""
    whole = (text for text, sample in said if sample.stop_reason == "stop")
    texts = dict.fromkeys(text.strip() for text in whole if not ANY_TAG.search(text) and not THINK.search(text))
    return {text: answer for text in texts if (answer := answer_in(text, task.extract)) is not None}


async def sample_wrong(
    task: Task, base: Sampler, rendering: Rendering, params: SamplingParams, numbers: Sequence[int], seed: int
) -> dict[int, list[str]]:
    """What the model itself gets wrong: solutions to a plain question, each with an answer, and none of them right."""

    async def one(number: int) -> list[str]:
        question = task.train(number)
        own = replace(params, seed=turn_seed(seed, "wrong", number))
        said = await answer_plainly(base, rendering, [Message("user", question.plain)], own, TRIES)
        texts = answers_by_text(said, task)
        return [text for text, answer in texts.items() if len(text) <= LONGEST and not task.right(question, answer)]

    return dict(zip(numbers, await asyncio.gather(*map(one, numbers)), strict=True))


async def _example(debate: Debate, teacher: _Teacher, rendering: Rendering, alone: bool) -> list[Datum]:
    dictation = Dictation(rendering)
    speaker = dictation.speaker(debate.rules.contract)
    worth: dict[tuple[int, int], bool] = {}

    async def speak(observation: Observation) -> Said:
        dictation.text, worth[observation.round, observation.agent] = teacher.write(observation)
        return await speaker(observation)  # no other seat runs in between: nothing here waits for anything

    played = await play(debate, speak, teacher.watch)
    sampled = kept_turns(speaker, played)
    made: list[Datum] = []
    for turns in played.turns_by_agent():
        weights = [sampled[i].sampled * np.float32(worth[played.turns[i].round, played.turns[i].agent]) for i in turns]
        if alone:
            sections = [tokens_by_section(played.turns[i].parsed, sampled[i].starts) for i in turns]
            solutions = [by_name.get("solution", np.float32(0)) for by_name in sections]
            weights = [weight * own for weight, own in zip(weights, solutions, strict=True)]
        made += imitated([sampled[i] for i in turns], weights)
    return made
