"""Labels from weights that stand still: what most of a few plain answers to a question say.

The label-free recipes that last take the label from something that does not move with the policy, and train only on questions in a
band of agreement: where nearly all answers differ the label is noise, and where all agree there is nothing to learn. Each question is
asked once in a run; the labels lie in labels.jsonl in its folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from moot.debate.types import Message, Question
from moot.engine.protocol import Sampler, SamplingParams
from moot.records import Run
from moot.rl.recipe import Asked
from moot.rl.rendering import Rendering
from moot.rl.speaker import turn_seed
from moot.tasks.answers import answer_in
from moot.tasks.comparing import Grader
from moot.tasks.task import Task


@dataclass(frozen=True)
class Label:
    level: int
    number: int
    answer: str | None
    """What most samples say; None where none has an answer."""
    share: float
    """The share of all samples that say so."""

    def within(self, band: tuple[float, float]) -> bool:
        return self.answer is not None and band[0] <= self.share <= band[1]


def plurality_label(answers: Sequence[str | None], equal: Grader) -> tuple[str | None, float]:
    """The answer most samples give, the first of those level, and its share of all of them; a sample without an answer counts in the whole."""
    kinds: list[tuple[str, int]] = []
    for answer in answers:
        if answer is None:
            continue
        place = next((i for i, (known, _) in enumerate(kinds) if equal(answer, known)), None)
        if place is None:
            kinds.append((answer, 1))
        else:
            kinds[place] = (kinds[place][0], kinds[place][1] + 1)
    if not kinds:
        return None, 0.0
    most = max(kinds, key=lambda kind: kind[1])
    return most[0], most[1] / len(answers)


@dataclass(frozen=True)
class Labeller:
    """Asks the reference, and remembers in the run's folder what it said."""

    run: Run
    rendering: Rendering
    params: SamplingParams
    samples: int
    seed: int

    def known(self) -> dict[tuple[int, int], Label]:
        file = self.run.path / "labels.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return {(row["level"], row["number"]): Label(**row) for row in rows}

    async def label(self, asked: Sequence[Asked], tasks: Sequence[Task], reference: Sampler) -> Mapping[tuple[int, int], Label]:
        """A label for each question, those that are new from `samples` plain answers of the reference."""
        known = self.known()
        new = [each for each in dict.fromkeys((each.level, each.number) for each in asked) if each not in known]
        made = await asyncio.gather(*(self._ask(tasks[level], level, number, reference) for level, number in new))
        if made:
            with (self.run.path / "labels.jsonl").open("a") as file:
                file.writelines(json.dumps(asdict(label)) + "\n" for label in made)
        return known | {(label.level, label.number): label for label in made}

    async def _ask(self, task: Task, level: int, number: int, reference: Sampler) -> Label:
        question = task.train(number)
        prompt = self.rendering.prompt([Message("user", plain(question))])
        params = replace(self.params, stop=self.rendering.stop_ids, seed=turn_seed(self.seed, "label", level, number))
        said = [self.rendering.said(sample.tokens)[0] for sample in await reference.sample(prompt, params, self.samples)]
        answers = [answer_in(text, task.extract) for text in said]
        return Label(level, number, *await asyncio.to_thread(plurality_label, answers, task.equal))


def plain(question: Question) -> str:
    return "\n\n".join(filter(None, (question.text, question.instruction)))
