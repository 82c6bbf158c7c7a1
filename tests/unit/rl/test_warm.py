"""The warm start's examples: what they teach is right, in the words of whoever writes it."""

import asyncio
import random

import pytest

from moot.debate.play import play
from moot.debate.protocols import V2
from moot.debate.rewards import ballots
from moot.debate.state import Debate
from moot.debate.types import Observation, Parsed, Said
from moot.engine.scripted import ScriptedEngine
from moot.rl.warm import _Teacher, examples
from moot.tasks import load
from moot.tasks.answers import grade
from moot.tokens.rendering import Rendering
from support.making import v2

TASK = load("arithmetic", 0, 4)


def taught(number: int, **choices: object) -> Debate:
    debate = Debate(TASK.train(number), 5, 2, v2().with_choices(**choices).rules)  # type: ignore[arg-type]
    teacher = _Teacher(TASK, debate, random.Random(number), (), False, None)

    async def speak(observation: Observation) -> Said:
        return Said(teacher.write(observation)[0])

    return asyncio.run(play(debate, speak, teacher.watch))


@pytest.mark.parametrize(
    "choices",
    [{}, {"shuffle_labels": True}, {"closing_ballot": True}, {"shuffle_labels": True, "closing_ballot": True}],
    ids=str,
)
def test_every_vote_between_right_and_wrong_prefers_the_right_one_whatever_the_numbers(
    choices: dict[str, bool],
) -> None:
    between = 0
    for number in range(30):
        debate = taught(number, **choices)
        assert all(isinstance(turn.parsed, Parsed) for turn in debate.turns)
        assert sum(turn.ballot for turn in debate.turns) == (5 if choices.get("closing_ballot") else 0)
        found, cast = grade(debate, TASK.equal, TASK.extract), ballots(debate, V2.scoring)
        assert cast.lines_invalid == 0 and not cast.abstained
        for vote in cast.votes:
            left, right = found.correct[vote.left], found.correct[vote.right]
            assert vote.verdict == ("=" if left == right else ">")
            assert left or vote.verdict == "="
            between += left != right
    assert between > 20


def test_wrong_turns_stand_in_the_context_and_are_not_learned() -> None:
    engine = ScriptedEngine()
    rendering = Rendering(engine.tokenizer)
    empty = Debate(TASK.train(0), 3, 2, v2().rules)
    found = asyncio.run(examples(TASK, rendering, empty, range(6), 0, {n: ["It is \\boxed{-999}."] for n in range(6)}))
    learned = "".join(
        engine.tokenizer.decode([int(t) for t, m in zip(d.targets, d.mask, strict=True) if m]) for d in found
    )
    shown = "".join(engine.tokenizer.decode(d.tokens.tolist()) for d in found)
    assert "It is \\boxed{-999}." in shown and "<solution>It is \\boxed{-999}." not in learned
    assert "says -999, which is wrong" in learned


@pytest.mark.parametrize("sections", ["sampled", "asked"])
def test_right_solutions_alone_are_learned_and_no_judging(sections: str) -> None:
    engine = ScriptedEngine()
    empty = Debate(TASK.train(0), 3, 2, v2().with_choices(sections=sections, closing_ballot=True).rules)  # type: ignore[arg-type]
    made = asyncio.run(examples(TASK, Rendering(engine.tokenizer), empty, [4], 0, alone=True))
    assert TASK.solution is not None
    solution = TASK.solution(TASK.train(4))
    learned = [engine.tokenizer.decode([int(t) for t, m in zip(d.targets, d.mask, strict=True) if m]) for d in made]
    expected = f"<solution>{solution}</solution>" if sections == "sampled" else f"{solution}<|im_end|>"
    assert learned == [expected] * 3
