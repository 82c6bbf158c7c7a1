"""A debate from its first turn to its last: who speaks, when it ends, and what happens when a speaker does not answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from moot.debate.play import play
from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.errors import ConfigError
from support.making import FAILED, text, v1, v2

Script = Callable[[int, int], str]


def run(protocol: Protocol, script: Script, num_agents: int = 3, max_rounds: int = 3) -> Debate:
    """Plays with a script: (round, agent) -> text."""

    async def speak(observation: Observation) -> Said:
        await asyncio.sleep(0)
        return Said(script(observation.round, observation.agent))

    return asyncio.run(play(Debate(Question("q"), num_agents, max_rounds, protocol.rules), speak))


def order(debate: Debate) -> list[tuple[int, int]]:
    return [(turn.round, turn.agent) for turn in debate.turns]


def five(consensus: str) -> str:
    return text(contract="five_tag", consensus=consensus)


ALL = [(round, agent) for round in (1, 2, 3) for agent in (0, 1, 2)]


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_everyone_speaks_in_order_until_the_rounds_are_over(schedule: str) -> None:
    debate = run(v2(schedule=schedule), lambda round, agent: text())
    assert order(debate) == ALL
    assert debate.done
    assert debate.next_speakers == ()
    assert debate.turns_by_agent() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert debate.turn_numbers() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_consensus_ends_the_debate_after_the_round_in_which_all_agree(schedule: str) -> None:
    """In round 1 Agent 1 says no, in round 2 everyone says yes, in any case."""
    said = {(1, 0): "YES", (1, 1): "NO", (1, 2): "YES", (2, 0): "yes", (2, 1): "Yes", (2, 2): "YES"}
    debate = run(v1(schedule=schedule), lambda round, agent: five(said[round, agent]))
    assert order(debate) == ALL[:6]
    assert debate.agreed


def test_yes_in_different_rounds_is_no_consensus() -> None:
    debate = run(v1(), lambda round, agent: five("YES" if agent == round - 1 else "NO"))
    assert order(debate) == ALL
    assert not debate.agreed


def test_two_of_three_are_no_consensus_and_a_failed_turn_says_nothing() -> None:
    debate = run(v1(on_parse_failure="continue"), lambda round, agent: FAILED if agent == 2 else five("YES"))
    assert order(debate) == ALL


def test_three_tags_never_agree() -> None:
    assert len(run(v2(), lambda round, agent: text(solution="<consensus>YES</consensus>")).turns) == 9


# Failures


def test_abort_in_sequence_ends_at_the_failing_turn() -> None:
    debate = run(v1(), lambda round, agent: FAILED if (round, agent) == (2, 1) else five("NO"))
    assert order(debate) == ALL[:5]
    assert debate.aborted
    assert debate.done
    assert [turn.failed for turn in debate.turns] == [False] * 4 + [True]


def test_abort_in_parallel_keeps_the_turns_of_lower_numbers() -> None:
    """Agents 1 and 2 both fail in round 2: Agent 0's turn and Agent 1's failure count, Agent 2's is not kept."""
    debate = run(v1(schedule="parallel"), lambda round, agent: FAILED if round == 2 and agent > 0 else five("NO"))
    assert order(debate) == [*ALL[:3], (2, 0), (2, 1)]
    assert debate.done


def test_abort_at_the_last_turn_of_a_round_of_yes_is_an_abort() -> None:
    debate = run(v1(), lambda round, agent: FAILED if agent == 2 else five("YES"))
    assert order(debate) == ALL[:3]
    assert debate.aborted
    assert not debate.agreed


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_continue_goes_on_after_any_number_of_failures(schedule: str) -> None:
    debate = run(v2(schedule=schedule), lambda round, agent: FAILED)
    assert order(debate) == ALL
    assert all(turn.failed for turn in debate.turns)
    assert not debate.aborted


def test_a_response_cut_at_its_token_limit_is_a_failure() -> None:
    cut = text().removesuffix("</comparison>")
    start = Debate(Question("q"), 1, 2, v2().rules)
    assert start.advance({0: Said(cut, closed=False)}).turns[0].failed
    assert not start.advance({0: Said(cut, closed=True)}).turns[0].failed


# Speakers


def test_a_speaker_that_raises_cancels_the_others_and_its_exception_comes_out_as_it_is() -> None:
    cancelled: list[int] = []
    ours = RuntimeError("the line is dead")

    async def speak(observation: Observation) -> Said:
        if observation.agent == 1:
            await asyncio.sleep(0.01)
            raise ours
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(observation.agent)
            raise
        return Said(text())

    with pytest.raises(RuntimeError) as error:
        asyncio.run(asyncio.wait_for(play(Debate(Question("q"), 3, 3, v2().rules), speak), 30))
    assert error.value is ours
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    assert sorted(cancelled) == [0, 2]


def test_speakers_that_all_raise_at_once_give_one_exception() -> None:
    async def speak(observation: Observation) -> Said:
        raise KeyError(observation.agent)

    with pytest.raises(KeyError) as error:
        asyncio.run(play(Debate(Question("q"), 3, 3, v2().rules), speak))
    assert error.value.args[0] in (0, 1, 2)


def test_a_debate_can_be_cancelled_from_outside() -> None:
    async def main() -> int:
        stopped = 0

        async def speak(observation: Observation) -> Said:
            nonlocal stopped
            try:
                await asyncio.sleep(60)
            finally:
                stopped += 1
            return Said(text())

        task = asyncio.create_task(play(Debate(Question("q"), 3, 3, v2().rules), speak))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stopped

    assert asyncio.run(main()) == 3


def test_all_of_a_parallel_round_speak_at_once_and_one_of_a_sequential_round() -> None:
    """The most that spoke at the same time."""

    async def most(protocol: Protocol) -> int:
        now = top = 0

        async def speak(observation: Observation) -> Said:
            nonlocal now, top
            now += 1
            top = max(top, now)
            await asyncio.sleep(0.001)
            now -= 1
            return Said(text())

        await play(Debate(Question("q"), 4, 2, protocol.rules), speak)
        return top

    assert asyncio.run(most(v2())) == 4
    assert asyncio.run(most(v2(schedule="sequential"))) == 1


def test_a_person_can_sit_at_the_table() -> None:
    """Agent 2 is a person who types: an ordinary function in a thread. The others are coroutines. It is shown what any other is."""
    shown: list[str] = []

    def ask_person(observation: Observation) -> str:
        shown.append(observation.newest.content)
        return text("Agent 0 > Agent 1") if observation.eligible else text()

    async def speak(observation: Observation) -> Said:
        if observation.agent == 2:
            return Said(await asyncio.to_thread(ask_person, observation))
        return Said(text())

    debate = asyncio.run(play(Debate(Question("What is 3 + 4?"), 3, 2, v2().rules), speak))
    assert len(debate.turns) == 6
    assert "What is 3 + 4?" in shown[0]
    assert "Agent 0, Agent 1" in shown[1]


def test_whoever_watches_sees_every_step() -> None:
    seen: list[int] = []

    async def speak(observation: Observation) -> Said:
        return Said(text())

    asyncio.run(
        play(Debate(Question("q"), 3, 2, v2().rules), speak, watch=lambda debate: seen.append(len(debate.turns)))
    )
    assert seen == [3, 6]
    seen.clear()
    asyncio.run(
        play(
            Debate(Question("q"), 3, 2, v2(schedule="sequential").rules),
            speak,
            watch=lambda debate: seen.append(len(debate.turns)),
        )
    )
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_thousand_debates_at_once_end() -> None:
    """Every answer takes its own random moment; nothing waits for anything but its own round."""
    chance = random.Random(4)

    async def speak(observation: Observation) -> Said:
        await asyncio.sleep(chance.random() / 100)
        return Said(
            text(contract="five_tag", consensus=chance.choice(["YES", "NO"])) if chance.random() < 0.95 else FAILED
        )

    async def main() -> list[Debate]:
        protocols = [
            v1(),
            v1(schedule="parallel"),
            v1(on_parse_failure="continue"),
            v1(layout="growing", schedule="parallel"),
        ]
        debates = [Debate(Question(f"q{i}"), 3, 2, protocols[i % 4].rules) for i in range(1000)]
        return await asyncio.wait_for(asyncio.gather(*(play(debate, speak) for debate in debates)), 120)

    debates = asyncio.run(main())
    assert len(debates) == 1000
    assert all(debate.done for debate in debates)
    assert [debate.question.text for debate in debates] == [f"q{i}" for i in range(1000)]


# States


@pytest.mark.parametrize(
    "said", [{}, {0: Said("x")}, {0: Said("x"), 1: Said("x"), 2: Said("x"), 3: Said("x")}, {1: Said("x")}]
)
def test_turns_of_the_wrong_speakers_are_refused(said: dict[int, Said]) -> None:
    with pytest.raises(ValueError, match=r"agents \(0, 1, 2\) speak next"):
        Debate(Question("q"), 3, 1, v2().rules).advance(said)
    if set(said) != {0}:
        with pytest.raises(ValueError, match=r"agents \(0,\) speak next"):
            Debate(Question("q"), 3, 1, v1().rules).advance(said)


def test_nobody_speaks_after_the_end() -> None:
    done = Debate(Question("q"), 1, 1, v2().rules).advance({0: Said(text())})
    assert done.done
    with pytest.raises(ValueError, match="speak next"):
        done.advance({0: Said(text())})


def test_a_debate_is_not_changed_but_followed_by_the_next() -> None:
    start = Debate(Question("q"), 1, 2, v2().rules)
    after = start.advance({0: Said(text())})
    assert (len(start.turns), len(after.turns)) == (0, 1)
    with pytest.raises(FrozenInstanceError):
        start.turns = after.turns  # type: ignore[misc]


@pytest.mark.parametrize(
    ("agents", "rounds", "says"), [(0, 1, "num_agents"), (-1, 1, "num_agents"), (3, 0, "max_rounds")]
)
def test_nonsense_is_refused(agents: int, rounds: int, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{says} must be at least 1, got"):
        Debate(Question("q"), agents, rounds)
