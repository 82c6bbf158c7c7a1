"""Labels from weights that stand still: what most of a few plain answers to a question say.

The label-free recipes that last take the label from something that does not move with the policy, and train only on
questions in a band of agreement: where nearly all answers differ the label is noise, and where all agree there is
nothing to learn. Each question is asked once in a run; the labels lie in labels.jsonl in its folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from moot.debate.typed_fields import check_types
from moot.debate.types import Message, Question
from moot.engine.protocol import Sampler, SamplingParams
from moot.errors import ConfigError
from moot.settings.train import TrainConfig
from moot.tasks.answer_classes import plurality_label
from moot.tasks.answers import answer_in
from moot.tokens.speaker import answer_plainly, turn_seed
from moot.training.batches import MOST_BATCHES, further_questions
from moot.training.state import BatchQuestion, Progress, Setup, Stopped
from moot.training.weights import BesideStillWeights
from moot.util.files import append_lines, json_lines

FILE = "labels.jsonl"


def _shares(band: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= band[0] <= band[1] <= 1:
        raise ValueError(f"must be two shares from 0 to 1, the lower first, as in 0.3-0.9; got {band[0]:g}-{band[1]:g}")
    return band


Band = Annotated[
    tuple[float, float],
    BeforeValidator(lambda given: given.split("-") if isinstance(given, str) else given),
    AfterValidator(_shares),
]


@plain_dataclass(frozen=True)
class Label:
    level: int
    number: int
    answer: str | None
    """What most samples say; None where none has an answer."""
    share: float
    """The share of all samples that say so."""
    tokens: int = 0
    """What asking cost."""
    step: int = 0
    """For which it was asked. A run that was killed before that step's commit has not counted its tokens."""

    def within(self, band: tuple[float, float]) -> bool:
        return self.answer is not None and band[0] <= self.share <= band[1]


class FrozenLabels(BesideStillWeights):
    """Labels from weights that stand still, for majority. Measured: +7.3 [5.4, 9.2] points on GSM8K, one seed."""

    @dataclass(frozen=True)
    class Settings:
        weights: str = "start"
        """Whose plurality is the answer: base, start, ema, RUN or RUN@STEP, which answer each question before it is
        debated."""
        samples: Annotated[int, Field(ge=1, le=1000)] = 8
        """Answers from which each label is made."""
        band: Band = (0.3, 0.9)
        """Only questions are debated whose plurality has a share of the samples in this band: below it the label is
        noise, above it there is little to learn. Others take the place of the rest."""
        ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
        """How much of the moving average stays at each step, where the weights are ema."""

    settings: Settings
    sets_labels = True

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.labels: dict[tuple[int, int], Label] = {}
        """Of the questions met so far, by level and number."""
        self.unpaid: set[tuple[int, int]] = set()
        """Those whose tokens no step has counted yet."""

    def check(self, config: TrainConfig) -> None:
        if config.protocol.scoring.rule.grades != "same":
            raise ConfigError(
                f"frozen_labels needs the reward majority, got {config.protocol.scoring.reward}; leave it out"
            )

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """Finds the labels of an earlier day. A line that was cut off in a kill is asked for again."""
        await super().begin(setup, step, sampler)
        self.labels = known_labels(_file(setup))
        self.unpaid = {key for key, label in self.labels.items() if label.step > step}

    async def chosen(
        self, setup: Setup, progress: Progress, step: int, asked: list[BatchQuestion]
    ) -> tuple[list[BatchQuestion], int]:
        """Those whose label has a share in the band, and further ones in the place of the others."""
        wanted, kept, tokens = len(asked), list[BatchQuestion](), 0
        for _ in range(MOST_BATCHES):
            tokens += await self._label(setup, step, asked)
            kept += [
                question
                for question in asked
                if self.labels[question.level, question.number].within(self.settings.band)
            ]
            if len(kept) >= wanted:
                break
            asked = further_questions(setup, progress, wanted - len(kept))
        if not kept:
            low, high = self.settings.band
            raise Stopped(
                f"no question has a label with a share between {low:g} and {high:g}; widen band, or use other questions"
            )
        return kept, tokens

    async def _label(self, setup: Setup, step: int, asked: Sequence[BatchQuestion]) -> int:
        """Sees that all have labels; answers with the tokens of those that no step has counted."""
        keys = list(dict.fromkeys((question.level, question.number) for question in asked))
        if new := [key for key in keys if key not in self.labels]:
            weights = await self.still(setup)
            made = await asyncio.gather(*(self._ask(setup, step, level, number, weights) for level, number in new))
            append_lines(_file(setup), map(asdict, made))
            self.labels |= {(label.level, label.number): label for label in made}
            self.unpaid |= set(new)
        counted = [key for key in keys if key in self.unpaid]
        self.unpaid -= set(counted)
        return sum(self.labels[key].tokens for key in counted)

    async def _ask(self, setup: Setup, step: int, level: int, number: int, weights: Sampler) -> Label:
        config, task = setup.config, setup.tasks[level]
        question = task.train(number)
        params = replace(SamplingParams(config.debate.max_tokens), seed=turn_seed(config.seed, "label", level, number))
        said = await answer_plainly(
            weights, setup.rendering, [Message("user", question.plain)], params, self.settings.samples
        )
        answers = [answer_in(text, task.extract) for text, _ in said]
        answer, share = await asyncio.to_thread(plurality_label, answers, task.equal)
        return Label(level, number, answer, share, sum(len(sample.tokens) for _, sample in said), step)

    def question(self, asked: BatchQuestion, question: Question) -> Question:
        return replace(question, label=self.labels[asked.level, asked.number].answer)


def _file(setup: Setup) -> Path:
    return setup.run.path / FILE


def known_labels(file: Path) -> dict[tuple[int, int], Label]:
    """Labels of an earlier day; a line that is no label is left out, and its question is asked again."""
    known: dict[tuple[int, int], Label] = {}
    for _, row, ended in json_lines(file):
        with suppress(TypeError, ValueError, AttributeError):
            label = Label(**row)
            check_types(label)
            if ended:
                known[label.level, label.number] = label
    return known
