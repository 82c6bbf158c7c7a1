"""A judge without a seat learns to judge, without labels, and is then listened to.

It learns in a phase of its own before self-play, in turn with the answers, or both. The judge that is listened to
stands still: a newer one takes its place only if it is no worse on held-out answers. Its tokens are the thinking and
the verdict, on data of their own; docs/judges.md says what they are paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.engine.protocol import Capabilities, Sampler, Sharing, Trainer
from moot.errors import ConfigError, EngineError
from moot.players.checkpoints import checkpoints, newest_whole
from moot.rl.metrics import Metrics
from moot.rl.rollout import Guest
from moot.settings.part_names import is_own
from moot.settings.train import TrainConfig
from moot.tasks.task import Exercise, Task
from moot.training.judge_lessons import LOOKED_AT, Kind, Lessons, further
from moot.training.judge_steps import JudgeSteps
from moot.training.part import Part
from moot.training.state import Lesson, Progress, Setup, Stopped

HELD_OUT = "judge/held out"
STEP_METRICS = ("reward", "approved_right", "approved_wrong", "thinking")


class JudgeTraining(Part):
    """A judge learns without labels, and its votes teach: J 0.51 to 0.82, +12 points. Measured: docs/experiment.md."""

    @dataclass(frozen=True)
    class Settings:
        reward: Kind = "planted"
        """What its verdicts are paid by: planted (exercises whose label is known because they were made, or slips
        planted into solutions that most agree with), majority (the plurality where it holds half of the answers), or
        truth."""
        steps: Annotated[int, Field(ge=0)] = 16
        """Its steps before self-play."""
        every: Annotated[int, Field(ge=0)] = 0
        """Iterations of self-play from one further step of it to the next; 0: it stands still."""
        renewed: Annotated[int, Field(ge=1)] = 4
        """Further steps after which it is measured, and listened to from then on if it is no worse."""
        exercises: Annotated[int, Field(ge=2, le=1000)] = 24
        """Answers that it judges in a step, half of them right."""
        checks: Annotated[int, Field(ge=1, le=1000)] = 4
        """How often it judges each."""
        answers: Annotated[int, Field(ge=2, le=1000)] = 8
        """Asked for each question before self-play, where the exercises are answers of the policy."""
        weight: Annotated[float, Field(gt=0)] = 1.0
        """Its learning rate, as a multiple of the policy's."""
        adapter: Literal["own", "policy"] = "own"
        """Whose weights learn: own, which the policy does not move, or the policy's."""
        show: Literal["auto", "solution", "answer"] = "auto"
        """What it is shown of an answer; auto: what the reward shows it, or the final answer where the task makes
        exercises."""
        held_out: Annotated[int, Field(ge=4, le=1000)] = 48
        """Held-out answers on which it is measured."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.guest: Guest | None = None
        self.opened: Trainer | None = None
        """The judge's own trainer."""
        self.steps: JudgeSteps
        self.lessons: Lessons
        self.held_out: list[Exercise] = []
        self.each_rule = False
        """Whether the reward asks about each rule of a question alone."""
        self.known, self.paid = 0, 0
        """Its steps that the checkpoint knows which the run continued from, and those whose tokens are counted."""

    # Before anything is loaded

    def check(self, config: TrainConfig) -> None:
        self.each_rule = config.protocol.scoring.rule.each_rule
        if config.recipe.judge:
            raise ConfigError(
                f"judge_training brings the judge itself, got --judge {config.recipe.judge} too; leave one of them out"
            )
        if not self.settings.steps and not self.settings.every:
            raise ConfigError(
                "judge_training: steps or every must be above 0, got 0 and 0: the judge would learn nothing"
            )

    def check_beside(self, config: TrainConfig, others: Sequence[Part]) -> None:
        rule = config.protocol.scoring.rule
        theirs = not rule.our_own or any(map(is_own, config.parts))  # nobody knows what a user's own code asks
        if not (rule.ballot == "approval" or theirs or any(part.asks() for part in others)):
            raise ConfigError(
                "judge_training teaches approval, one answer at a time, so the reward must be made of that, got "
                f"{config.protocol.scoring.reward}; use --reward approved, or --with judge_filter under majority"
            )

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        if not capabilities.frozen_samplers:
            raise ConfigError("judge_training must be left out on this server: its samplers do not keep their weights")
        if self.settings.adapter == "own" and not capabilities.siblings:
            raise ConfigError("judge_training: adapter must be policy: this engine trains one adapter, got own")

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        task, kind = tasks[0], self.settings.reward
        if kind == "truth" and not task.gradable(task.train(0)):
            raise ConfigError(
                f"judge_training:reward=truth needs a task with known answers, got {task.name}; use planted"
            )
        made = kind == "planted" and task.exercises is not None and self.settings.show != "solution"
        if self.each_rule and not (made and task.exercises and next(task.exercises(0)).kept):
            raise ConfigError(
                f"judge_training with a reward of each rule alone needs reward=planted and exercises that say which "
                f"rules they keep, got reward={kind} and task {task.name}; use rules=together"
            )
        if task.open_ended and kind != "truth" and not made:
            raise ConfigError(
                f"judge_training:reward={kind} needs answers that can be the same, got {task.name}, which is "
                "open-ended; train the judge on another task"
            )

    # Before a step

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> Sampler | None:
        own, first = self.settings, step == setup.config.warm_steps
        reward = setup.config.protocol.scoring.rule
        self.lessons = Lessons.of(own.reward, own.show, own.exercises, own.answers, setup.tasks[0], reward)
        trainer = setup.engine
        if own.adapter == "own":
            assert isinstance(setup.engine, Sharing)  # checked with the capabilities before the run began
            self.opened = trainer = await asyncio.to_thread(setup.engine.sibling, setup.config.seed)
        self.steps = JudgeSteps(setup, trainer, self.lessons.show, own.checks, own.weight)
        self.steps.rewind(own.steps) if first else self.steps.rewind(self.known, self.known)
        if not self.steps.rows:
            await self._start(setup, sampler)
        elif first or own.adapter == "own":
            await self.steps.load(self.steps.done)
        self.held_out = self.steps.kept_held_out()
        if first:
            await self._first_phase(setup, sampler)
        await self._listen(setup, None if first else step)
        return await trainer.snapshot() if first and own.adapter == "policy" else None

    async def _start(self, setup: Setup, sampler: Sampler) -> None:
        """What it is measured on, and how good it is before any step."""
        task, count, seed = setup.tasks[0], self.settings.held_out, f"{setup.config.seed}/{HELD_OUT}"
        if self.lessons.are_made(task):
            exercises, tokens = self.lessons.made(task, seed, count), 0
        else:
            questions = setup.task.held_out
            exercises, tokens = await self.lessons.of_answers(setup, setup.task, sampler, questions, count, seed)
        if not exercises:
            raise Stopped(self._nothing(setup.task, "held-out"))
        self.steps.keep_held_out(exercises)
        self.held_out = exercises
        row = await self._measured(setup)
        self.steps.rows = [{"step": 0, **row, "tokens": row["tokens"] + tokens}]
        await self.steps.keep()

    async def _first_phase(self, setup: Setup, sampler: Sampler) -> None:
        steps, wanted, task = self.steps, self.settings.steps, setup.tasks[0]
        # The answers that the next step needs are sampled while this one is taken: who answers stands still.
        coming = [asyncio.create_task(self._exercises(setup, sampler, steps.done + 1))] if steps.done < wanted else []
        try:
            while steps.done < wanted:
                setup.watcher.counted("judge steps", steps.done, wanted)
                number = steps.done + 1
                exercises, tokens = await coming.pop()
                if not exercises:
                    raise Stopped(self._nothing(task, "training"))
                if number < wanted:
                    coming = [asyncio.create_task(self._exercises(setup, sampler, number + 1))]
                row = await steps.step(exercises, setup.rate(number, 0.0), tokens)
                if steps.done == wanted:
                    measured = await self._measured(setup)
                    row |= {**measured, "tokens": row["tokens"] + measured["tokens"]}
                await steps.keep()
                steps.prune({0, steps.done - 1, steps.done})
                setup.watcher.counted("judge steps", steps.done, wanted)
        finally:
            for task_left in coming:
                task_left.cancel()
        if wanted:
            setup.watcher.note(self._told(wanted))
        if wanted and self.settings.adapter == "policy":
            await self._forget_moments(setup)

    async def _exercises(self, setup: Setup, sampler: Sampler, number: int) -> tuple[list[Exercise], int]:
        """Of a step of the first phase, and the tokens that finding them took."""
        task, count, seed = setup.tasks[0], self.settings.exercises, f"{setup.config.seed}/judge/{number}"
        if self.lessons.are_made(task):
            return self.lessons.made(task, seed, count), 0
        questions = further(task, number, LOOKED_AT * count)
        return await self.lessons.of_answers(setup, task, sampler, questions, count, seed)

    def _told(self, step: int) -> str:
        before, after = (self.steps.rows[number].get("pair_accuracy") for number in (0, step))
        change = " to ".join("unknown" if value is None else f"{value:.2f}" for value in (before, after))
        told = f"the judge took {step} steps: its held-out pair accuracy went from {change}"
        return told if self.steps.serving_at(step) == step else f"{told}, so the judge before them is listened to"

    async def _forget_moments(self, setup: Setup) -> None:
        """Those of a judge's loss would steer the first steps of answers."""
        try:
            await self.steps.load(self.steps.done, optimizer=False)
        except EngineError as error:
            setup.watcher.note(f"this engine cannot reset its optimizer, so Adam's moments of the judge stay ({error})")

    async def _measured(self, setup: Setup) -> dict[str, Any]:
        return await self.steps.measured(self.held_out, together=self.lessons.are_made(setup.tasks[0]))

    async def _listen(self, setup: Setup, step: int | None) -> None:
        """The judge that serves is loaded for a moment where another state is there now; `step` is that of the
        checkpoint that the run continues from."""
        steps, own = self.steps, self.settings.adapter == "own"
        is_there = steps.serving == steps.done and (own or step is None)
        if not is_there:
            await steps.load(steps.serving)
        self.guest = setup.guest(await steps.trainer.snapshot())
        if not is_there:
            newest = None if own or step is None else newest_whole(setup.run, step)
            await (steps.load(steps.done) if newest is None else setup.engine.load_state(newest.engine_state))
        steps.name_serving()

    def _nothing(self, task: Task, which: str) -> str:
        why = {
            "planted": "no slip could be planted into a solution that most agree with",
            "majority": "no question had an answer that at least half agree on and another beside it",
            "truth": "no question had right and wrong answers",
        }[self.settings.reward]
        remedy = "use easier questions, or another reward"
        if self.settings.reward == "planted" and task.exercises is not None:
            remedy = "use the task's own exercises, which are final answers: --reward approved:show=answer"
        return f"judge_training found nothing to judge among the {which} questions of {task.name}: {why}; {remedy}"

    def judge(self) -> Guest | None:
        return self.guest

    async def close(self) -> None:
        if self.opened is not None:
            await self.opened.close()

    # In a step

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        steps, own, newest = self.steps, self.settings, dict[str, Any]()
        iteration = setup.config.iteration(lesson.step)
        if own.every and iteration % own.every == 0:
            seed = f"{setup.config.seed}/judge/{steps.done + 1}"
            if self.lessons.are_made(setup.tasks[0]):
                exercises = self.lessons.made(setup.tasks[0], seed, own.exercises)
            else:
                exercises = await asyncio.to_thread(self.lessons.of_debates, lesson.taught, seed)
            newest = await steps.step(exercises, lesson.rate, 0) if exercises else {}
            if newest:
                is_due = (steps.done - own.steps) % own.renewed == 0
                if is_due:
                    measured = await self._measured(setup)
                    newest |= {**measured, "tokens": newest["tokens"] + measured["tokens"]}
                await steps.keep()
                if is_due and steps.serving == steps.done:
                    self.guest = setup.guest(await steps.trainer.snapshot())
                    steps.name_serving()
        elif not self.paid and own.steps:
            newest = steps.rows[-1]
        progress.sampled += sum(row["tokens"] for row in steps.rows[self.paid :])
        self.paid = len(steps.rows)
        serving, start = steps.rows[steps.serving], steps.rows[0]
        return {
            "judge/steps": float(steps.done),
            "judge/serving": float(steps.serving),
            **{f"judge/{name}": serving[name] for name in ("pair_accuracy", "j")},
            **{f"judge/{name}_before": start[name] for name in ("pair_accuracy", "j")},
            **{f"judge/{name}": newest.get(name) for name in STEP_METRICS if newest},
        }

    # After a step

    def committed(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """Lets go of the states that no checkpoint needs."""
        if self.settings.every:
            kept = (self._steps_at(saved.state) for saved in checkpoints(setup.run))
            ends = {0, self.settings.steps, self.steps.done, *kept}
            self.steps.prune(ends | {self.steps.serving_at(end) for end in ends})

    def _steps_at(self, state: Mapping[str, Any] | None) -> int:
        """Its steps that a checkpoint knows; 0 where that is damaged, and nothing can continue from there."""
        try:
            return int((state or {})["parts"][self.name]["steps"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return 0

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps.done if hasattr(self, "steps") else 0, "paid": self.paid}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.known, self.paid = int(state["steps"]), int(state["paid"])
