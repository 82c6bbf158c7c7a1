"""How often a question's plurality changes from one visit to the next.

A plurality that still flips is noise; one that never flips while its share nears 1 has nothing left to teach. Neither
needs a label. What most agents answered lies in visits.jsonl in the run's folder, a line per step, so that a run that
continues remembers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moot.debate.rewards import held_answers, last_parsed, plurality
from moot.rl.metrics import Metrics, mean
from moot.runs import Run
from moot.tasks.answer_classes import Comparing, Grader
from moot.tasks.answers import in_parallel
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.util.files import append_lines, json_lines

FILE = "visits.jsonl"
FLIPS = "trust/plurality_flips"
MOST = 100_000
"""Questions that are remembered; the sets people train on are smaller."""


def plurality_answer(played: PlayedDebate) -> str | None:
    """What most agents answered last, as the lowest-numbered of them wrote it."""
    if played.grades is None:
        return None
    held = held_answers(played.debate, played.grades)
    if (most := plurality(held)) is None:
        return None
    turn = last_parsed(played.debate)[held.index(most)]
    return None if turn is None else played.grades.answers[turn]


@dataclass
class Visits:
    """By task and question: the plurality of its last visit, in self-play and in evaluations apart."""

    file: Path
    last: dict[str, dict[str, str]]

    @classmethod
    def until(cls, run: Run, step: int) -> Visits:
        """Those of a run that continues after `step`. Later lines are of steps that are played again."""
        last: dict[str, dict[str, str]] = {}
        for _, row, _ in json_lines(run.path / FILE):
            match row:  # a line that somebody damaged is passed over
                case {"step": int(at), "phase": str(phase), "pluralities": dict(answers)} if at <= step:
                    known = {key: answer for key, answer in answers.items() if isinstance(answer, str)}
                    _remember(last.setdefault(phase, {}), known)
        return cls(run.path / FILE, last)

    async def update(self, step: int, phase: str, debates: Sequence[tuple[Task, PlayedDebate]]) -> Metrics:
        """The share of the questions met before whose plurality is another now. Several debates of a question are one
        visit: the first."""
        before, now, pairs = self.last.setdefault(phase, {}), dict[str, str](), list[tuple[Grader, str, str]]()
        for task, played in debates:
            question, answer = played.debate.question, plurality_answer(played)
            key = f"{task.name}/{question.id or question.text}"
            if answer is not None and key not in now:
                now[key] = answer
                pairs += [(task.equal, before[key], answer)] if key in before else []
        flips = await asyncio.to_thread(in_parallel, _differ, pairs, pairs[0][0]) if pairs else []
        _remember(before, now)
        append_lines(self.file, [{"step": step, "phase": phase, "pluralities": now}])
        return {FLIPS: mean(map(float, flips))}


def _remember(before: dict[str, str], now: dict[str, str]) -> None:
    """Tasks that make each question anew never come back to one, so only the newest are kept."""
    for key in now:
        before.pop(key, None)
    before |= now
    for key in list(before)[: max(0, len(before) - MOST)]:
        del before[key]


def _differ(pair: tuple[Grader, str, str]) -> bool:
    equal, before, now = pair
    comparing = Comparing(equal)
    return comparing.class_of(before, 0) != comparing.class_of(now, 1)
