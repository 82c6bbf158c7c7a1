"""The answers of a debate that is over are checked by judges without a seat, one by one or in pairs, as its reward
wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from moot.debate.checks import Check, Show, drawn_pairs
from moot.debate.play import gather_or_raise
from moot.debate.reward import Reward
from moot.debate.scores import Grades
from moot.debate.state import Debate
from moot.engine.protocol import SamplingParams
from moot.judges.asking import Asked, judge_of
from moot.rl.rollout import Checking, Guest
from moot.tasks.answers import grade_all_async
from moot.tasks.task import Task
from moot.tokens.speaker import turn_seed


@dataclass(frozen=True)
class _Wanted:
    """One thing that every judge is asked about a debate: how often, about which turns, and what is shown of them."""

    turns: tuple[int, ...]
    answers: tuple[str, ...]
    number: int
    rule: str = ""


def checking(reward: Reward, task_of: Callable[[int], Task], max_tokens: int, seed: object) -> Checking | None:
    """How the judges of a debate are asked for what `reward` is made of; None for a reward that needs no checks.

    They think for at most `max_tokens`. Which answers are the same, the task of the debate's number says; what is
    right, nobody asks.
    """
    if not reward.checked:
        return None

    async def checked(number: int, debate: Debate, judges: Sequence[Guest]) -> Debate:
        if not judges:
            return debate
        own_seed = None if seed is None else f"{seed}/{number}"
        task = task_of(number)
        rules = task.rules_of(debate.question) if reward.each_rule else ("",)
        grades = await _grades(debate, reward, task)
        shown = {} if grades is None else {i: task.as_shown(answer) for i, answer in enumerate(grades.answers)}
        wanted = list(_wanted(debate, reward, grades, shown, rules, own_seed))

        async def one(judge: int, guest: Guest, case: _Wanted) -> Check:
            asked = Asked(debate.question, case.answers, reward.ballot, reward.settings.show, debate.prompts, case.rule)
            about = (*case.turns, case.number, *filter(None, (case.rule,)))
            place = None if own_seed is None else turn_seed(own_seed, "check", judge, *about)
            params = SamplingParams(max_tokens, debate.rules.temperature, seed=place)
            check = await judge_of(guest).check(asked, params)
            return replace(check, turns=case.turns, judge=judge, rule=case.rule)

        checks = await gather_or_raise(one(judge, guest, case) for judge, guest in enumerate(judges) for case in wanted)
        return replace(debate, checks=tuple(checks))

    return checked


async def _grades(debate: Debate, reward: Reward, task: Task) -> Grades | None:
    """Final answers, and which of them are the same; never which are right."""
    if reward.ballot != "pairs" and reward.settings.show == "solution":
        return None
    unlabelled = replace(debate, question=replace(debate.question, answer=None, label=None))
    (grades,) = await grade_all_async([unlabelled], task.equal, task.extract)
    return grades


def _wanted(
    debate: Debate,
    reward: Reward,
    grades: Grades | None,
    finals: Mapping[int, str | None],
    rules: Sequence[str],
    seed: object,
) -> Iterator[_Wanted]:
    """`finals`: the final answers as they are shown, by turn."""
    shown = _shown(debate, reward.settings.show, finals)
    if reward.ballot == "approval":
        for turn, text in shown.items():
            for rule in rules:
                for number in range(reward.settings.checks):
                    yield _Wanted((turn,), (text,), number, rule)
        return
    assert grades is not None
    for round in sorted({debate.turns[turn].round for turn in shown}):
        turns = [turn for turn in shown if debate.turns[turn].round == round]
        classes = [grades.same[turn] for turn in turns]
        for i, j in drawn_pairs(classes, [True] * len(turns), reward.settings.opponents, f"{seed}/{round}"):
            for one, other in ((turns[i], turns[j]), (turns[j], turns[i])):
                yield _Wanted((one, other), (shown[one], shown[other]), 0)


def _shown(debate: Debate, show: Show, finals: Mapping[int, str | None]) -> dict[int, str]:
    """By turn, what a judge reads of it. A failed turn is shown to nobody, and neither is one that has nothing to
    show."""
    texts = {
        i: finals.get(i) if show == "answer" else turn.solution for i, turn in enumerate(debate.turns) if turn.answers
    }
    return {i: text for i, text in texts.items() if text and text.strip()}
