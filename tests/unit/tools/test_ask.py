"""What a debate comes to, who is paid for what, and what is drawn while it happens; each table can be checked by hand."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from moot.cli.live import Printed, Streamed, outcome_lines, spending
from moot.debate.protocols import V1, V2
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from moot.rl.rollout import rollout
from moot.runs import PlayedDebate
from moot.tasks.answers import grade
from moot.tasks.graders import GRADERS
from moot.tools.ask import AskedDebate, Asking, GroupAnswer, Prices, group_answer
from support.making import FAILED, Tabled, debate, text, v1, v2

# Verdicts


def judged_now(played: Tabled) -> GroupAnswer:
    return group_answer(PlayedDebate(played, scoring=played.scoring))


def test_the_answer_is_what_most_hold_and_the_winner_by_votes_stands_beside_it() -> None:
    """Votes on round 1: 2 > 1 and 2 > 0, so mean rewards over both rounds are -1/2, -1/2, +1/2; 0 and 1 hold 7."""
    played = debate(v2(), [["", "", ""], ["2 > 1", "2 > 0", "0 = 1"]], [["7", "7", "8"]] * 2)
    group = judged_now(played)
    assert (group.answer, group.agreeing) == ("7", 2)
    assert (group.outcome.winner, group.level, group.winner_answer, group.winner_agrees) == (2, (2,), "8", False)
    assert (group.outcome.won, group.outcome.lost, group.outcome.means) == ((0, 0, 2), (1, 1, 0), (-0.5, -0.5, 0.5))
    assert [vote.verdict for vote in group.outcome.votes] == [">", ">", "="]
    assert group.right == (False,) * 3 and group.solution is not None and "7" in group.solution
    said = lines(played)
    assert (
        "Agreement: 2 of 3 hold “7”." in said
        and "Answer: 7\n" in said
        and "The winner by votes holds another: “8”." in said
    )


def test_agreement_is_about_the_answer_beside_it_in_the_record() -> None:
    played = debate(v2(), [["", "", ""], ["2 > 1", "2 > 0", "0 = 1"]], [["7", "7", "8"]] * 2)
    asked = ask(*playing([turn.text for turn in played.turns], played), scoring=played.scoring)
    record = asked.as_json(group_answer(asked.played))
    assert (record["answer"], record["agreement"], record["winner"], record["winner_answer"]) == ("7", 2 / 3, 2, "8")


def test_a_tie_goes_to_the_lowest_number_and_the_winner_answers_where_nothing_can_be_compared() -> None:
    apart = judged_now(debate(v2(), [["", "", ""], ["1 > 2", "", ""]], [["1", "2", "3"]] * 2))
    assert (apart.outcome.winner, apart.answer, apart.agreeing, apart.winner_agrees) == (1, "1", 1, False)
    prose = debate(v2(), [["", "", ""], ["1 > 2", "", ""]], [["\\emph{a}", "\\emph{b}", "\\emph{c}"]] * 2)
    unboxed = judged_now(prose)
    assert (unboxed.answer, unboxed.agreeing, unboxed.winner_agrees) == (None, 0, None) and "{b}" in str(
        unboxed.solution
    )


def test_where_a_judge_scored_the_highest_mean_score_decides() -> None:
    """7 is held twice with 0.9 and 0.3, a mean of 0.6; 8 once with 0.7."""
    group = replace(judged_now(debate(v2(), [["", "", ""]], [["7", "8", "7"]])), scores=(0.3, 0.7, 0.9))
    assert (group.answer, group.agreeing, group.ranked) == ("8", 1, [1, 0])
    assert group.score(0) == pytest.approx(0.6) and "8" in str(group.solution)
    level = replace(group, scores=(0.9, 0.6, 0.3))
    assert (level.answer, level.agreeing) == ("7", 2), "level scores: what more of them hold"
    assert level.solution == level.solutions[0], "of those who hold it, the one with the highest score"


def test_answers_are_those_of_the_last_readable_turn() -> None:
    found = judged_now(debate(v2(), [["", "", ""], ["1 > 2", FAILED, ""]], [["1", "2", "3"], ["4", "5", "6"]]))
    assert found.held == ("4", "2", "6")
    # Agent 1: +1 for the vote, -1 for the turn that cannot be read.
    assert found.outcome.means == (0.0, 0.0, -0.5) and found.outcome.winner is None and found.level == (0, 1)


def test_without_a_vote_that_prefers_somebody_nobody_wins_and_the_plurality_answers() -> None:
    for rounds in ([["", "", ""]], [["", "", ""], ["1 = 2", "", ""]]):
        found = judged_now(debate(v2(), rounds, [["8", "7", "7"]] * len(rounds)))
        assert (found.outcome.winner, found.answer, found.agreeing) == (None, "7", 2)


def test_the_first_protocols_votes_are_about_agents_of_all_rounds() -> None:
    found = judged_now(debate(v1(), [["", "", "0 > 1"], ["1 > 2", "0 > 2", ""]], [["7", "8", "9"]] * 2))
    assert found.outcome.won == (2, 1, 0) and found.outcome.lost == (0, 1, 2) and found.outcome.means == (1.0, 0.5, 0.0)
    assert found.answer == "7"


def test_a_number_in_prose_is_an_answer_only_where_a_grader_says_so() -> None:
    prose = debate(v2(), [["", "", ""]], [["It is \\emph{past}: 1945."] * 3], truth="1945")  # \\emph: nothing boxes it
    assert judged_now(prose).held == (None, None, None)
    graded = GRADERS["number"]
    known = group_answer(PlayedDebate(prose, scoring=prose.scoring), grade(prose, graded.equal, graded.extract))
    assert known.held == ("1945", "1945", "1945") and known.right == (True,) * 3


def test_all_that_is_unreadable_leaves_no_answer_and_no_error() -> None:
    found = judged_now(debate(v2(), [[FAILED] * 3] * 2))
    assert (found.outcome.winner, found.answer, found.solution, found.agreeing) == (None, None, None, 0)


def lines(played: Tabled) -> str:
    asked = ask(*playing([turn.text for turn in played.turns], played), scoring=played.scoring)
    return "\n".join(str(line) for line in outcome_lines(asked, group_answer(asked.played)))


def test_the_lines_say_who_is_level_and_what_was_agreed() -> None:
    said = lines(debate(v2(), [["", "", ""], ["1 > 2", "2 > 0", "0 > 1"]], [["7", "7", "8"]] * 2))
    assert "Nobody won: Agents 0, 1 and 2 are level (3 votes). The answer is the plurality's." in said
    assert "Agreement: 2 of 3 hold “7”." in said and "Answer: 7" in said
    apart = lines(debate(v2(), [["", "", ""], ["1 > 2", "", ""]], [["1", "2", "3"]] * 2))
    assert "Agent 1 won: 1 of 1 decided votes (1 vote)." in apart
    assert "Agreement: none, no two agents hold the same answer." in apart and "plurality" not in apart


def test_the_first_protocol_stops_at_a_turn_that_cannot_be_read_and_says_so() -> None:
    assert "The debate ended early: Agent 1's turn in round 1 could not be read." in lines(
        debate(v1(), [["", FAILED]], num_agents=3)
    )


# Playing, paying


class Reciter:
    """Says its lines in turn; None is an engine that fails."""

    def __init__(self, agent: int, said: list[str | None], spent: tuple[int | None, int | None] = (1000, 10)) -> None:
        self._said, self.spent, self._agent = said, spent, agent

    async def __call__(self, observation: Observation) -> Said:
        text = self._said.pop(0)
        if text is None:
            await asyncio.sleep(0.01)
            raise EngineError("gone")
        return Said(text)


def ask(debate: Debate, cast: Any, prices: Any = (), scoring: Scoring = V2.scoring) -> AskedDebate:
    ended: list[AskedDebate] = []
    asyncio.run(Asking([debate], scoring, cast, prices=prices).run(ended.append))
    (asked,) = ended
    return asked


def playing(said: list[str], played: Debate, spent: Any = None) -> tuple[Debate, Any]:
    started = Debate(played.question, played.num_agents, played.max_rounds, played.rules)
    by_agent: list[list[str | None]] = [[] for _ in range(played.num_agents)]
    for i, each in enumerate(said):
        by_agent[i % played.num_agents].append(each)
    counts = spent or [(1000, 10)] * played.num_agents
    return started, lambda number, agent, listener: Reciter(agent, by_agent[agent], counts[agent])


GOOD = text()


def test_cost_is_tokens_times_price_and_unknown_where_either_is() -> None:
    """Six turns of 1,000 read at 2 and 10 written at 50 a million: 6 * (2,000 + 500) / 1e6 = 0.015."""
    empty = Debate(Question("q"), 3, 2, V2.rules)
    price = Prices(2, 50)
    asked = ask(*playing([GOOD] * 6, empty), [price] * 3)
    assert asked.cost is not None and abs(asked.cost - 0.015) < 1e-12
    assert "Cost: 0.0150 (by the prices given)" in spending(asked, [price] * 3)
    some = ask(*playing([GOOD] * 6, empty), [price, None, price])
    assert some.cost is None and "other models sit in seats 1" in spending(some, [price, None, price])
    silent = ask(*playing([GOOD] * 6, empty, [(1000, 10), (None, None), (1000, 10)]), [price] * 3)
    assert silent.cost is None and silent.tokens() == (4000, 40, 2)
    assert "not every turn's tokens were told" in spending(silent, [price] * 3)
    assert "give --price-in" in spending(ask(*playing([GOOD] * 6, empty)), [None] * 3)


@pytest.mark.parametrize(
    ("protocol", "kept"), [(V2, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 2)]), (V1, [(1, 0), (1, 1), (1, 2), (2, 0)])]
)
def test_when_an_engine_fails_whole_turns_are_kept_and_nothing_is_scored(
    protocol: Any, kept: list[tuple[int, int]]
) -> None:
    good = text(contract=protocol.rules.contract)
    said: list[list[str | None]] = [[good, good], [good, None], [good, good]]
    started = Debate(Question("q"), 3, 2, protocol.rules)
    asked = ask(started, lambda number, agent, listener: Reciter(agent, said[agent]))
    assert asked.ended == "failed" and asked.played.error == "gone"
    assert [(turn.round, turn.agent) for turn in asked.debate.turns] == kept
    assert "winner" not in asked.as_json() and len(asked.spent) == len(kept)


def test_after_some_failures_in_a_row_the_rest_is_left_for_later() -> None:
    """Questions 1 and 3 to 5 fail; two in a row are enough, so 5 and 6 are not begun."""
    asked_seats: list[tuple[int, int]] = []

    def cast(question: str, agent: int, listener: Any) -> Reciter:
        number = int(question)
        asked_seats.append((number, agent))
        return Reciter(agent, [None if number in (1, 3, 4, 5) else GOOD])

    debates = [Debate(Question("q", id=str(number)), 3, 1, V2.rules) for number in range(1, 7)]
    ended: list[AskedDebate] = []
    asyncio.run(Asking(debates, V2.scoring, cast, give_up_after=2).run(ended.append))
    assert [(asked.played.number, asked.ended) for asked in ended] == [
        (1, "failed"),
        (2, "done"),
        (3, "failed"),
        (4, "failed"),
    ]
    assert asked_seats == [(number, agent) for number in (1, 2, 3, 4) for agent in range(3)]


def test_an_interruption_leaves_what_was_said_in_full_of_every_debate_under_way() -> None:
    async def silent(observation: Observation) -> Said:
        if observation.round == 2 or observation.agent == 2:
            await asyncio.Event().wait()
        return Said(GOOD)

    class Silent:
        spent = (10, 1)

        async def __call__(self, observation: Observation) -> Said:
            return await silent(observation)

    async def run() -> list[AskedDebate]:
        debates = [Debate(Question("q", id=str(number)), 3, 2, V2.rules) for number in (1, 2, 3)]
        asking = Asking(debates, V2.scoring, lambda number, agent, listener: Silent())
        task = asyncio.ensure_future(asking.run(lambda asked: None, concurrency=2))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asking.unfinished()

    left = asyncio.run(run())
    assert [(asked.played.number, asked.ended, [(t.round, t.agent) for t in asked.debate.turns]) for asked in left] == [
        (1, "interrupted", [(1, 0), (1, 1)]),
        (2, "interrupted", [(1, 0), (1, 1)]),
    ]


def test_whoever_hears_of_a_debate_and_fails_ends_the_others_too() -> None:
    """A full disk comes out as it is, and no debate goes on behind its back."""
    spoken: list[int] = []

    class Slow(Reciter):
        async def __call__(self, observation: Observation) -> Said:
            await asyncio.sleep(0.01 * (self._agent + 1))
            spoken.append(1)
            return await super().__call__(observation)

    def full(asked: AskedDebate) -> None:
        raise OSError(28, "No space left on device")

    debates = [Debate(Question("q", id=str(number)), 1, rounds, V2.rules) for number, rounds in ((1, 1), (2, 500))]
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(
            Asking(debates, V2.scoring, lambda number, agent, listener: Slow(agent, [GOOD] * 500)).run(
                full, concurrency=2
            )
        )
    assert len(spoken) < 10


def test_a_seat_that_nobody_takes_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="no policy for the seats of debate 0"):
        asyncio.run(
            rollout(
                [Debate(Question("q"), 3, 1, V2.rules)], None, None, SamplingParams(1), seats=lambda number, seat: None
            )
        )


# On the terminal


def drawn(watch: Streamed, console: Console) -> str:
    with console.capture() as capture:
        console.print(watch._render())
    return capture.get()


def test_what_is_thrown_away_is_wiped_and_the_reason_stands_in_its_place() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=30)
    watch = Streamed(console, V2.rules, ["m"] * 3)
    watch.began(0, 1)
    watch.began(1, 1)
    watch.heard(0, "HALF \x1b[2J")
    watch.heard(1, "other")
    assert "HALF \\u001b[2J" in drawn(watch, console) and "other" in drawn(watch, console)
    watch.retried(0, "it broke\x07 off", 1.5)
    assert "HALF" not in drawn(watch, console) and "it broke\\u0007 off; asking again in 1.5 s" in drawn(watch, console)
    watch.heard(0, "WHOLE")
    assert (
        "WHOLE" in drawn(watch, console)
        and "HALF" not in drawn(watch, console)
        and "asking again" not in drawn(watch, console)
    )


@settings(max_examples=40)
@given(st.text(max_size=3000), st.integers(1, 12), st.integers(60, 200), st.integers(5, 60))
def test_what_is_drawn_fits_the_screen_whatever_is_said_on_it(said: str, agents: int, width: int, height: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    watch = Streamed(console, V2.rules, ["m"] * agents)
    for agent in range(agents):
        watch.began(agent, 1)
        watch.heard(agent, said)
    assert drawn(watch, console).count("\n") < height


def test_in_a_pipe_a_turn_is_printed_once_and_not_folded() -> None:
    out = io.StringIO()
    with Printed(Console(file=out, width=20, highlight=False), V2.rules, ["/models/some/folder"] * 3) as watch:
        watch.heard(0, "nothing yet")
        assert out.getvalue() == ""
        watch.said(debate(v2(), [["1 > 2"]], [["7"]]).turns[0])
    assert out.getvalue().splitlines()[1:] == [
        "Round 1 · Agent 0 · Methodical Analyst · folder",
        "solution: \\boxed{7}",
        "evaluation: Fine.",
        "comparison: Agent 1 > Agent 2",
    ]
