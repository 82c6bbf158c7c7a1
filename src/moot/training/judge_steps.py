"""The steps of a judge that learns: its verdicts are heard, paid and trained on, and each step is kept with the run.

judge/steps.jsonl   a line for each step: what it was paid, what it cost, and where its state is
judge/held_out.jsonl   the answers that it is measured on
judge/serving.json   the step whose judge is listened to; `RUN@judge` is that one
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from moot.debate.checks import Show, approval
from moot.engine.protocol import Datum, Sampler, SamplingParams, Trainer
from moot.errors import ConfigError, EngineError
from moot.judges.asking import Asked, Heard, TokenJudge
from moot.judges.learning import advantages, measured, rewards, weights
from moot.players.checkpoints import JUDGE, SERVING, judge_place
from moot.rl.metrics import mean
from moot.runs.run import new_aside
from moot.tasks.task import Exercise
from moot.tokens.speaker import turn_seed
from moot.training.optimise import optimise
from moot.training.state import Progress, Setup, Stopped
from moot.util.disk import read_file, write_atomically
from moot.util.files import append_lines, write_lines
from moot.util.json_text import read_json

STEPS, HELD_OUT = "steps.jsonl", "held_out.jsonl"


class _Check(NamedTuple):
    exercise: Exercise
    place: int
    """The exercise's own."""
    heard: Heard


@dataclass
class JudgeSteps:
    """A judge in training, and its folder in the run."""

    setup: Setup
    trainer: Trainer
    """Its own, or the policy's."""
    show: Show
    checks: int
    weight: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    """By step; the first one is of the judge before any."""
    progress: Progress = field(default_factory=Progress)

    @property
    def folder(self) -> Path:
        return self.setup.run.path / JUDGE

    @property
    def done(self) -> int:
        return len(self.rows) - 1

    @property
    def serving(self) -> int:
        """The step whose judge is listened to: the newest that was no worse on held-out answers than those before."""
        return self.serving_at(self.done)

    def serving_at(self, last: int) -> int:
        best = 0
        for row in self.rows[1 : last + 1]:
            if "pair_accuracy" in row and is_no_worse(row["pair_accuracy"], self.rows[best]["pair_accuracy"]):
                best = row["step"]
        return best

    # One step

    async def step(self, exercises: Sequence[Exercise], rate: float, tokens: int) -> dict[str, Any]:
        """Learns from verdicts on the exercises. `tokens` is what it took to find them."""
        number, optim = self.done + 1, self.setup.config.optim
        judge = self._judge(await self.trainer.snapshot())
        heard, spent = await self._hear(judge, exercises, f"step/{number}")
        labels = [check.exercise.right for check in heard]
        paid = rewards(labels, [check.heard.value for check in heard])
        # The right word is known, so it is taught itself: a drawn one would say the same with far more noise.
        taught = zip(heard, labels, advantages(labels, paid), weights(labels), strict=True)
        datums = await asyncio.gather(
            *(_datum(judge, check.heard, right, thinking, said) for check, right, thinking, said in taught if said)
        )
        trained = await optimise(self.trainer, self.progress, datums, optim.loss, self.weight * rate)
        right, wrong = (
            [pay for pay, label in zip(paid, labels, strict=True) if label == kind] for kind in (True, False)
        )
        row = {
            "step": number,
            "reward": mean(sum(kind) / len(kind) for kind in (right, wrong) if kind),
            "approved_right": mean(right),
            "approved_wrong": None if not wrong else 1 - sum(wrong) / len(wrong),
            "thinking": mean(len(check.heard.thinking.tokens) for check in heard),
            "trained_tokens": trained["optim/trained_tokens"],
            "tokens": tokens + spent,
        }
        self.rows.append(row)
        return row

    def _judge(self, sampler: Sampler) -> TokenJudge:
        return TokenJudge(self.setup.guest(sampler))

    async def _hear(self, judge: TokenJudge, exercises: Sequence[Exercise], seed: str) -> tuple[list[_Check], int]:
        """All checks of all exercises, in order, and their tokens; what an engine fails at is left out."""
        config = self.setup.config
        gate, failures = asyncio.Semaphore(256), list[EngineError]()

        async def one(exercise: Exercise, place: int, check: int) -> _Check | None:
            asked = Asked(exercise.question, (exercise.answer,), "approval", self.show, config.prompts, exercise.rule)
            own = turn_seed(config.seed, "judge", seed, place, check)
            async with gate:
                try:
                    params = SamplingParams(config.debate.evaluation_tokens, 1.0, seed=own)
                    return _Check(exercise, place, await judge.hear(asked, params))
                except EngineError as error:
                    failures.append(error)
                    return None

        wanted = [
            one(exercise, place, check) for place, exercise in enumerate(exercises) for check in range(self.checks)
        ]
        heard = [check for check in await asyncio.gather(*wanted) if check is not None]
        if failures and not heard:
            raise Stopped(f"the judge could not be asked about any answer ({failures[0]}); mend that and start again")
        return heard, sum(len(check.heard.thinking.tokens) for check in heard)

    # How good it is

    async def measured(self, held_out: Sequence[Exercise], together: bool) -> dict[str, Any]:
        """Pair accuracy and J of the judge of now on held-out answers, and the tokens that it took."""
        heard, spent = await self._hear(self._judge(await self.trainer.snapshot()), held_out, HELD_OUT)
        values: dict[int, list[float]] = {}
        for check in heard:
            values.setdefault(check.place, []).append(check.heard.value)
        scores = [approval(values.get(place, [])) for place in range(len(held_out))]
        measures = measured(held_out, scores, together, self.setup.config.seed)
        named = {"pair_accuracy": measures.pair_accuracy, "j": measures.j}
        return {
            **{name: None if measure is None else measure.value for name, measure in named.items()},
            "tokens": spent,
        }

    # What is kept

    async def keep(self) -> None:
        """Writes the state of the newest step, and then its row: a row that is there has its state."""
        place = self.folder / f"{self.done:06d}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        saved = await self.trainer.save_state(str(place))
        self.rows[-1]["state"] = place.name if saved in (str(place), str(place.absolute())) else saved
        append_lines(self.folder / STEPS, self.rows[-1:])

    def rewind(self, last: int, least: int = 0) -> None:
        """The steps of an earlier day up to `last`, or to the newest whose state is there; ConfigError where those up
        to `least` are not all there. Others are done again, and their lines are set aside."""
        content = read_file(self.folder / STEPS) if (self.folder / STEPS).exists() else b""
        lines = [line for line in content.split(b"\n") if line]
        rows = list(takewhile(bool, (_row(line, number) for number, line in enumerate(lines[: last + 1]))))
        while rows and rows[-1]["state"].isdigit() and not (self.folder / rows[-1]["state"]).is_dir():
            rows.pop()
        if len(rows) <= least and least:
            raise ConfigError(
                f"{self.folder} has {max(len(rows) - 1, 0)} of the {least} steps of the judge that this checkpoint was "
                "trained with; put back what moot wrote there, or start over with --restart"
            )
        self.rows = rows
        if len(rows) < len(lines):
            aside = new_aside(self.setup.run.path) / JUDGE
            aside.mkdir()
            write_atomically(aside / STEPS, b"".join(line + b"\n" for line in lines[len(rows) :]))
            write_lines(self.folder / STEPS, rows)

    async def load(self, step: int, optimizer: bool = True) -> None:
        await self.trainer.load_state(self.state_of(step), optimizer)

    def state_of(self, step: int) -> str:
        return judge_place(self.folder, str(self.rows[step]["state"]))

    def name_serving(self) -> None:
        """For whoever reads the run."""
        named = {"step": self.serving, "state": self.rows[self.serving]["state"]}
        write_atomically(self.folder / SERVING, json.dumps(named).encode())

    def prune(self, needed: Collection[int]) -> None:
        """Lets go of the states of all other steps."""
        for place in self.folder.glob("[0-9]" * 6):
            if int(place.name) not in needed:
                shutil.rmtree(place, ignore_errors=True)

    # The answers that it is measured on

    def kept_held_out(self) -> list[Exercise]:
        file, kind = self.folder / HELD_OUT, TypeAdapter(Exercise)
        with suppress(FileNotFoundError, ValueError):
            if kept := [kind.validate_json(line, strict=True) for line in read_file(file).splitlines()]:
                return kept
        raise ConfigError(f"{file} is damaged; put back what moot wrote")

    def keep_held_out(self, exercises: Sequence[Exercise]) -> None:
        self.folder.mkdir(exist_ok=True)
        rows = [{**exercise._asdict(), "question": asdict(exercise.question)} for exercise in exercises]
        write_lines(self.folder / HELD_OUT, rows)


def is_no_worse(new: float | None, standing: float | None) -> bool:
    """Level is no worse; what was not measured is not known to be."""
    return new is not None and (standing is None or new >= standing)


def _row(line: bytes, step: int) -> dict[str, Any]:
    """A step's line; empty where it is none, or that of another step."""
    try:
        row = read_json(line)
        state, tokens = row.pop("state"), row["tokens"]
        whole = type(row["step"]) is int and row["step"] == step and type(tokens) is int and tokens >= 0
        named = isinstance(state, str) and (not state.isdigit() or state == f"{step:06d}")
        numbers = all(value is None or (type(value) in (int, float) and abs(value) < 1e15) for value in row.values())
        measured = ("j" in row) == ("pair_accuracy" in row) and (step > 0 or "j" in row)
    except (ConfigError, KeyError, TypeError, AttributeError):
        return {}
    return {**row, "state": state} if whole and named and numbers and measured else {}


async def _datum(judge: TokenJudge, heard: Heard, right: bool, thinking: float, said: float) -> Datum:
    word, logprobs = await judge.logprobs_of(heard, right)
    return heard.datum(word, logprobs, thinking, said)
