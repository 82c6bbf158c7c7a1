"""As many rounds as it takes: an early end when the answers agree, extra rounds while they do not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from moot.debate.parsing import BALLOT
from moot.debate.play import play
from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said, Turn
from moot.errors import ConfigError
from moot.tasks.answers import settled_by
from support.making import FAILED, text, v1, v2

ASKED: list[int] = []


def counting(turns: tuple[Turn, ...]) -> bool:
    """The grader's word, and a note of the round it was asked about."""
    ASKED.append(turns[0].round)
    assert [turn.agent for turn in turns] == [0, 1, 2]
    return settled_by()(turns)


def run(
    answers: list[str], max_rounds: int, protocol: Protocol | None = None, **settings: Any
) -> tuple[Debate, list[Observation]]:
    """Round r is answered as `answers[r - 1]` says, one character an agent; `-` fails, `?` has no answer."""
    seen: list[Observation] = []
    ASKED.clear()

    async def speak(observation: Observation) -> Said:
        seen.append(observation)
        if observation.contract == BALLOT:
            return Said(text(contract=BALLOT))
        said = answers[observation.round - 1][observation.agent]
        solution = "No idea." if said == "?" else f"\\boxed{{{said}}}"
        return Said(FAILED if said == "-" else text(solution=solution, contract=observation.contract))

    start = Debate(Question("q"), 3, max_rounds, (protocol or v2()).rules, settled=counting, **settings)
    return asyncio.run(play(start, speak)), seen


def rounds(debate: Debate) -> int:
    return debate.turns[-1].round


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        (["777", "888", "999"], 1),
        (["778", "777", "999"], 2),
        (["778", "78-", "777"], 3),
        (["77-", "77?", "778"], 3),
        (["???", "???", "???"], 3),
    ],
)
def test_a_debate_ends_after_the_first_round_in_which_all_answers_agree(
    schedule: str, answers: list[str], ends: int
) -> None:
    """A failed turn or a missing answer is no agreement. Each round is asked about once, the last allowed one not at all."""
    debate, _ = run(answers, 3, v2(schedule=schedule), stop_when_settled=True)
    assert rounds(debate) == ends
    assert len(debate.turns) == 3 * ends
    assert list(range(1, min(ends, 2) + 1)) == ASKED


@pytest.mark.parametrize(
    ("answers", "ends"),
    [(["778", "777", "x"], 2), (["777", "778", "777", "778"], 3), (["778"] * 9, 4), (["77-", "77?", "77-", "77-"], 4)],
)
def test_a_debate_goes_on_while_answers_differ_up_to_the_extra_rounds(answers: list[str], ends: int) -> None:
    """Two rounds and two extra. What is agreed before the second does not matter unless asked to stop."""
    debate, seen = run(answers, 2, extra_rounds=2)
    assert rounds(debate) == ends
    assert list(range(2, min(ends, 3) + 1)) == ASKED
    said = [observation.newest.content.split("\n\n")[-1] for observation in seen if observation.agent == 0]
    begins = [
        "Round 1 of 2. Nobody else has answered yet. ",
        "Round 2 of 2. Read ",
        "Round 3. This is an extra round because the answers do not agree yet. Read ",
        "Round 4. This is an extra round because the answers do not agree yet. Read ",
    ]
    assert len(said) == ends
    assert all(line.startswith(begin) for line, begin in zip(said, begins, strict=False))


def test_both_together() -> None:
    assert [
        rounds(run(answers, 2, stop_when_settled=True, extra_rounds=1)[0])
        for answers in (["777"], ["778", "777"], ["778"] * 3)
    ] == [
        1,
        2,
        3,
    ]


def test_the_closing_ballot_comes_after_the_early_end_and_after_the_extra_rounds() -> None:
    early, _ = run(["777"], 3, v2(closing_ballot=True), stop_when_settled=True)
    assert [(turn.round, turn.ballot) for turn in early.turns[::3]] == [(1, False), (2, True)]
    late, seen = run(["778"] * 3, 2, v2(closing_ballot=True), extra_rounds=1)
    assert [(turn.round, turn.ballot) for turn in late.turns[::3]] == [(1, False), (2, False), (3, False), (4, True)]
    assert "Round 4, the closing ballot." in seen[-1].newest.content
    run(["777"], 3, v2(closing_ballot=True), stop_when_settled=True)
    assert ASKED == [1], "the ballot asks the grader nothing"


def test_consensus_still_ends_a_debate_that_is_not_settled() -> None:
    async def speak(observation: Observation) -> Said:
        return Said(text(solution=f"\\boxed{{{observation.agent}}}", contract="five_tag", consensus="YES"))

    start = Debate(Question("q"), 3, 2, v1().rules, settled=settled_by(), extra_rounds=3)
    assert rounds(asyncio.run(play(start, speak))) == 1


def test_without_these_settings_nobody_is_asked_whether_it_is_settled() -> None:
    debate, _ = run(["777", "777"], 2)
    assert rounds(debate) == 2
    assert ASKED == []


def test_equality_is_the_graders() -> None:
    last_digit = settled_by(equal=lambda a, b: a[-1] == b[-1])
    for answers, same in ((["17", "7", "27"], True), (["17", "71", "7"], False)):
        state = Debate(Question("q"), 3, 1, v2().rules)
        turns = tuple(
            state.read(1, agent, Said(text(solution=f"\\boxed{{{said}}}"))) for agent, said in enumerate(answers)
        )
        assert last_digit(turns) is same


def test_how_it_is_settled_is_no_part_of_what_a_debate_is() -> None:
    a, b = (Debate(Question("q"), settled=settled_by()) for _ in range(2))
    assert a == b == Debate(Question("q"))
    assert "settled=" not in repr(a).replace("stop_when_settled=", "")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stop_when_settled": True}, "stop_when_settled needs settled"),
        ({"extra_rounds": 1}, "extra_rounds needs settled"),
        ({"extra_rounds": -1}, "extra_rounds must be 0 or more, got -1"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Debate(Question("q"), **settings)


@pytest.mark.parametrize(("workers", "in_thread"), [(1, False), (2, True)])
def test_a_grader_with_processes_is_waited_for_in_a_thread(workers: int, in_thread: bool) -> None:
    """Others go on meanwhile. A user's own function is asked where it always was."""
    where: list[bool] = []

    def equal(a: str, b: str) -> bool:
        where.append(threading.current_thread() is not threading.main_thread())
        return a == b

    equal.workers = workers  # type: ignore[attr-defined]

    async def speak(observation: Observation) -> Said:
        return Said(text(solution="\\boxed{7}"))

    start = Debate(Question("q"), 3, 3, v2().rules, settled=settled_by(equal), stop_when_settled=True)
    assert rounds(asyncio.run(play(start, speak))) == 1
    assert where == [in_thread] * 2
