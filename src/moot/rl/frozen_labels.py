"""Labels from weights that stand still: what most of a few plain answers to a question say.

The label-free recipes that last take the label from something that does not move with the policy, and train only on questions in a
band of agreement: where nearly all answers differ the label is noise, and where all agree there is nothing to learn. Each question is
asked once in a run; the labels lie in labels.jsonl in its folder.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from moot.debate.choices import check_types
from moot.debate.types import Message
from moot.engine.protocol import Sampler, SamplingParams
from moot.records import Run
from moot.records.files import append_lines, json_lines
from moot.rl.remedies import BatchQuestion
from moot.rl.rendering import Rendering
from moot.rl.speaker import answer_plainly, turn_seed
from moot.tasks.answers import answer_in
from moot.tasks.comparing import Comparing, Grader
from moot.tasks.task import Task

FILE = "labels.jsonl"


@dataclass(frozen=True)
class Label:
    level: int
    number: int
    answer: str | None
    """What most samples say; None where none has an answer."""
    share: float
    """The share of all samples that say so."""
    tokens: int = 0
    """What asking cost."""

    def within(self, band: tuple[float, float]) -> bool:
        return self.answer is not None and band[0] <= self.share <= band[1]


def plurality_label(answers: Sequence[str | None], equal: Grader) -> tuple[str | None, float]:
    """What most samples say, the first of those level, and its share of all of them: a sample without an answer is one of them too."""
    comparing = Comparing(equal)
    kinds = [(comparing.class_of(answer, i), answer) for i, answer in enumerate(answers) if answer is not None]
    if not kinds:
        return None, 0.0
    (most, count), *_ = Counter(kind for kind, _ in kinds).most_common(1)
    return next(answer for kind, answer in kinds if kind == most), count / len(answers)


@dataclass(frozen=True)
class Labeller:
    """Asks the reference, and remembers in the run's folder what it said."""

    run: Run
    rendering: Rendering
    params: SamplingParams
    samples: int
    seed: int

    def known(self) -> dict[tuple[int, int], Label]:
        """Those of an earlier day. A line that was cut off in a kill is asked for again."""
        known: dict[tuple[int, int], Label] = {}
        for _, row, ended in json_lines(self.run.path / FILE):
            with suppress(TypeError, ValueError, AttributeError):  # a line that somebody damaged
                label = Label(**row)
                check_types(label)
                if ended:
                    known[label.level, label.number] = label
        return known

    async def label(
        self, asked: Sequence[BatchQuestion], tasks: Sequence[Task], reference: Sampler, known: Mapping[tuple[int, int], Label]
    ) -> list[Label]:
        """Labels of the questions that are not `known`, each from `samples` plain answers of the reference."""
        new = [each for each in dict.fromkeys((each.level, each.number) for each in asked) if each not in known]
        made = await asyncio.gather(*(self._ask(tasks[level], level, number, reference) for level, number in new))
        if made:
            append_lines(self.run.path / FILE, map(asdict, made))
        return list(made)

    async def _ask(self, task: Task, level: int, number: int, reference: Sampler) -> Label:
        question = task.train(number)
        params = replace(self.params, seed=turn_seed(self.seed, "label", level, number))
        said = await answer_plainly(reference, self.rendering, [Message("user", question.plain)], params, self.samples)
        answers = [answer_in(text, task.extract) for text, _ in said]
        answer, share = await asyncio.to_thread(plurality_label, answers, task.equal)
        return Label(level, number, answer, share, sum(len(sample.tokens) for _, sample in said))
