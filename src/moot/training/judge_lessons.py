"""Where a judge's exercises come from: made by the task, from answers asked for, or from the debates of a batch."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from moot.debate.checks import Show
from moot.debate.plain import plain_answers
from moot.debate.reward import Reward
from moot.debate.scores import Grades
from moot.debate.state import Debate
from moot.debate.types import Message, Question
from moot.engine.protocol import Sampler, SamplingParams
from moot.judges.learning import Solved, balanced, by_majority, by_slips, by_truth
from moot.tasks.answers import grade_all
from moot.tasks.task import Exercise, Task
from moot.tokens.played import PlayedDebate
from moot.tokens.speaker import answer_plainly, turn_seed
from moot.training.state import Setup

Kind = Literal["planted", "majority", "truth"]
FIRST = 50_000_000
"""The number of the first training question that is asked for a judge: far from those that are debated."""
LOOKED_AT = 8
"""Questions for each exercise that is wanted, at most: where few are of use, further ones are not asked for ever."""


@dataclass(frozen=True)
class Lessons:
    """What a judge learns from, and how much at a time."""

    kind: Kind
    show: Show
    count: int
    """Exercises of a step."""
    answers: int
    """Asked for each question, where exercises come from answers."""
    each_rule: bool = False
    """Each exercise is about one rule of its question alone."""

    @property
    def rules_at_once(self) -> int:
        """More are drawn where each is about one rule: of some rules most exercises are kept."""
        return 2 if self.each_rule else 1

    @classmethod
    def of(cls, kind: Kind, show: str, count: int, answers: int, task: Task, reward: Reward) -> Lessons:
        """`show` may be auto: what the judge is shown for the reward; where that asks for no checks, the final answer
        if the task's exercises are such answers."""
        if show == "auto" and reward.ballot == "approval":
            show = reward.settings.show
        made = show == "auto" and kind == "planted" and task.exercises
        return cls(kind, "answer" if show == "answer" or made else "solution", count, answers, reward.each_rule)

    def are_made(self, task: Task) -> bool:
        """Whether the task makes them: answers alone, to questions of their own."""
        return self.kind == "planted" and self.show == "answer" and task.exercises is not None

    def made(self, task: Task, seed: object, count: int) -> list[Exercise]:
        assert task.exercises is not None
        drawn = [
            exercise._replace(answer=text)
            for exercise in itertools.islice(task.exercises(turn_seed(seed, "exercises")), count * self.rules_at_once)
            if (text := task.as_shown(exercise.answer))
        ]
        if not self.each_rule:
            return balanced(drawn, count, seed)
        by_rule = list(
            zip(*(about_each_rule(exercise, task.rules_of(exercise.question)) for exercise in drawn), strict=True)
        )
        return [exercise for own in by_rule for exercise in balanced(own, count // len(by_rule), seed)]

    def of_debates(self, played: Sequence[PlayedDebate], seed: object) -> list[Exercise]:
        """From the last answers of the agents of each debate."""
        return self._chosen(
            [solved_of(debate.debate, debate.grades) for debate in played if debate.grades], self.count, seed
        )

    async def of_answers(
        self, setup: Setup, task: Task, sampler: Sampler, questions: Iterable[Question], count: int, seed: object
    ) -> tuple[list[Exercise], int]:
        """From answers to further questions, until there are enough; and the tokens that they took."""
        solved, tokens = list[Solved](), 0
        wanted, left = max(1, count // 2), itertools.islice(questions, LOOKED_AT * count)
        while batch := list(itertools.islice(left, wanted)):
            answered = await asyncio.gather(*(self._answers(setup, sampler, question, seed) for question in batch))
            tokens += sum(spent for _, spent in answered)
            debates = [plain_answers(question, texts) for question, (texts, _) in zip(batch, answered, strict=True)]
            grades = await asyncio.to_thread(grade_all, debates, task.equal, task.extract, task.check)
            solved += [solved_of(debate, grade) for debate, grade in zip(debates, grades, strict=True)]
            if len(self._chosen(solved, count, seed)) >= count // 2 * 2:
                break
        return self._chosen(solved, count, seed), tokens

    async def _answers(self, setup: Setup, sampler: Sampler, question: Question, seed: object) -> tuple[list[str], int]:
        config = setup.config
        own = turn_seed(seed, "answers", question.text)
        params = SamplingParams(config.debate.max_tokens, config.protocol.rules.temperature, seed=own)
        said = await answer_plainly(sampler, setup.rendering, [Message("user", question.plain)], params, self.answers)
        return [text for text, _ in said], sum(len(sample.tokens) for _, sample in said)

    def _chosen(self, solved: Sequence[Solved], count: int, seed: object) -> list[Exercise]:
        labelled: Callable[[Solved, Show, object], list[Exercise]]
        labelled = {"planted": by_slips, "majority": by_majority, "truth": by_truth}[self.kind]
        return balanced(itertools.chain.from_iterable(labelled(case, self.show, seed) for case in solved), count, seed)


def about_each_rule(exercise: Exercise, rules: Sequence[str]) -> list[Exercise]:
    """One exercise for each rule: whether that one is kept, whatever is wrong besides."""
    return [exercise._replace(right=kept, kept=(), rule=rule) for kept, rule in zip(exercise.kept, rules, strict=True)]


def solved_of(debate: Debate, grades: Grades) -> Solved:
    """What each agent ended with; those that failed to the end said nothing."""
    last = sorted(debate.answers().values())
    return Solved(
        replace(debate.question, label=None),
        tuple(debate.turns[i].solution for i in last),
        tuple(grades.answers[i] for i in last),
        tuple(grades.same[i] for i in last),
        tuple(grades.correct[i] for i in last),
    )


def further(task: Task, step: int, per_step: int) -> Iterable[Question]:
    """Training questions for one of the judge's own steps; no two steps ask the same numbers."""
    return (task.train(FIRST + step * per_step + i) for i in range(per_step))
