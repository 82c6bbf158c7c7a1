"""An evaluation that was stopped continues, and what the engine lost is tried again; a vote may take as many tokens as a debate."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from moot.engine.protocol import Ints, Sample, SamplingParams
from moot.errors import ConfigError, EngineError
from moot.evaluate import AnswerStore, Report, evaluate
from moot.evaluate.store import SampleKey
from moot.evaluate.table import cells
from moot.rl.rollout import Player
from unit.evaluate.test_evaluate import CONFIG, RENDERING, TASK, WRONG, Others, Scripted, policy_says, run, turn, value

# Equal tokens


def test_match_tokens_gives_vote_as_many_answers_as_a_debate_costs() -> None:
    """A turn is 300 tokens, a debate 6 turns; an answer 100: k is 18."""

    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        said = "\\boxed{1}" if seat is None else turn(True, question)
        return said + " " * ((100 if seat is None else 300) - 1 - len(said))

    config = replace(CONFIG, modes=("direct", "vote", "debate"), k=5, match_tokens=True)
    sampler = Scripted(says)
    report = run(sampler, config)
    direct, vote, debate = report.rows
    assert (direct.tokens, vote.name, vote.tokens, debate.tokens) == (100, "vote@18", 1800, 1800)
    assert sum(seat is None for _, seat, _ in sampler.calls) == 4 * 18
    assert report.settings["k"] == 18


def test_match_tokens_needs_something_to_match() -> None:
    with pytest.raises(ConfigError, match="modes must name vote and debate"):
        replace(CONFIG, modes=("direct", "vote"), match_tokens=True)


# Going on


def test_rounds_end_when_the_answers_agree_where_the_run_plays_so() -> None:
    config = replace(CONFIG, modes=("debate",), max_rounds=3, stop_when_settled=True)
    sampler = Scripted(lambda question, seat, round, params: turn(seat != 0 or round > 1 or question > 1, question))
    (row,) = run(sampler, config).rows
    # Questions 0 and 1 need a second round, 2 and 3 do not.
    assert Counter(round for _, _, round in sampler.calls) == {1: 12, 2: 6}
    assert value(row, "accuracy") == 1.0


ALL = replace(CONFIG, modes=("direct", "vote", "debate", "opponents"), k=3)


def everything(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
    if seat is None:
        return f"\\boxed{{{question if (params.seed or 0) % 2 else WRONG}}}"
    return policy_says(question, seat, round, params)


def test_what_is_on_file_is_not_sampled_again(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    first = run(Scripted(everything), ALL, opponents={"them": Others()}, answers=AnswerStore(file))
    again = Scripted(everything)
    assert run(again, ALL, opponents={"them": Others()}, answers=AnswerStore(file)) == first
    assert again.calls == []
    more = Scripted(everything)
    run(more, replace(ALL, k=5), opponents={"them": Others()}, answers=AnswerStore(file))
    assert len(more.calls) == 4 * 2, "two more answers to each question, and nothing else"


@pytest.mark.parametrize("change", [{"max_tokens": 3000}, {"seed": 1}, {"policy": "another"}])
def test_other_settings_are_sampled_anew(tmp_path: Path, change: dict[str, object]) -> None:
    file = tmp_path / "answers.jsonl"
    run(Scripted(everything), replace(ALL, modes=("direct", "debate")), answers=AnswerStore(file))
    again = Scripted(everything)
    run(again, replace(ALL, modes=("direct", "debate"), **change), answers=AnswerStore(file))  # type: ignore[arg-type]
    assert len(again.calls) == 4 + 4 * 6


def test_another_reward_needs_no_new_debates_and_another_schedule_does(tmp_path: Path) -> None:
    file, config = tmp_path / "answers.jsonl", replace(ALL, modes=("debate",))
    run(Scripted(everything), config, answers=AnswerStore(file))
    again = Scripted(everything)
    run(
        again, replace(config, protocol=config.protocol.with_choices({"reward": "win_rate"})), answers=AnswerStore(file)
    )
    assert again.calls == []
    run(again, replace(config, protocol=config.protocol.with_choices({"history_rounds": 1})), answers=AnswerStore(file))
    assert len(again.calls) == 24


def test_an_evaluation_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = run(Scripted(everything), ALL, opponents={"them": Others()})

    class Stops(Scripted):
        async def sample(
            self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1
        ) -> list[Sample]:
            if len(self.calls) == 40:
                stopping.cancel()
            return await super().sample(prompt, params, num_samples)

    file, stops = tmp_path / "answers.jsonl", Stops(everything)

    async def stopped() -> None:
        nonlocal stopping
        stopping = asyncio.ensure_future(
            evaluate(
                Player(stops, RENDERING),
                TASK,
                replace(ALL, concurrency=4),
                opponents={"them": Others()},
                answers=AnswerStore(file),
            )
        )
        with pytest.raises(asyncio.CancelledError):
            await stopping

    stopping: asyncio.Future[Report]
    asyncio.run(stopped())
    kept = len(AnswerStore(file))
    assert 0 < kept < 4 * (3 + 1 + 3)
    with file.open("ab") as torn:
        torn.write(b'{"settings": "half a li')
    rest = Scripted(everything)
    assert run(rest, ALL, opponents={"them": Others()}, answers=AnswerStore(file)) == whole
    assert 0 < len(rest.calls) < 4 * (3 + 6 + 6)
    assert len(AnswerStore(file)) == 4 * (3 + 1 + 3)


def test_a_line_that_a_kill_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_bytes(b'{"settings": "half a li')
    AnswerStore(file).add(SampleKey("s", "q", 0), {"text": "7", "stop": "stop", "tokens": 1})
    found = AnswerStore(file).get(SampleKey("s", "q", 0))
    assert found is not None and found["text"] == "7"


def test_what_the_engine_lost_is_left_out_counted_and_tried_again(tmp_path: Path) -> None:
    def fails(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        if question == 2 and seat is not None:
            raise EngineError("gone")
        return everything(question, seat, round, params)

    file, config = tmp_path / "answers.jsonl", replace(ALL, modes=("direct", "debate"))
    direct, debate = run(Scripted(fails), config, answers=AnswerStore(file)).rows
    assert (direct.questions, direct.failed, debate.questions, debate.failed) == (4, 0, 3, 1)
    assert debate.difference is not None and debate.difference["questions"] == 3
    again = Scripted(everything)
    _, debate = run(again, config, answers=AnswerStore(file)).rows
    assert (debate.questions, debate.failed) == (4, 0)
    assert {question for question, _, _ in again.calls} == {2}


def test_our_own_mistakes_are_loud() -> None:
    def breaks(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="a mistake of ours"):
        run(Scripted(breaks), ALL, opponents={"them": Others()})


# Speed, order and chance


def test_all_questions_and_modes_are_sampled_at_once() -> None:
    class Counts(Scripted):
        now = most = 0

        async def sample(
            self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1
        ) -> list[Sample]:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return await super().sample(prompt, params, num_samples)

    wide, narrow = Counts(everything), Counts(everything)
    run(wide, ALL, opponents={"them": Others()})
    assert wide.most == 4 * (3 + 3 + 3), (
        "three answers, a debate of three, and three debates with one policy's seat each"
    )
    run(narrow, replace(ALL, concurrency=2), opponents={"them": Others()})
    assert narrow.most <= 6


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    report = run(Scripted(everything), ALL, opponents={"them": Others()})
    report.save(tmp_path / "deep" / "report.json")
    back = Report.read(tmp_path / "deep" / "report.json")
    assert [row.metrics for row in back.rows] == [row.metrics for row in report.rows]
    assert back.settings == report.settings
    flat = report.flat("test_sums/")
    assert flat["test_sums/debate/accuracy"] == value(report.rows[2], "accuracy")
    assert flat["test_sums/direct/accuracy_low"] == report.rows[0].metrics["accuracy"]["low"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"modes": ()}, "modes must name at least one of direct, vote"),
        (
            {"modes": ("direct", "guess")},
            "modes may name direct, vote, debate, debate\\+vote, opponents, wins, consultancy, judge, got 'guess'",
        ),
        ({"modes": ("direct", "direct")}, "modes names 'direct' twice"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"temperature": float("nan")}, "temperature must be a number, got nan"),
        ({"temperature": -1.0}, "temperature must be 0 \\(greedy\\) or more, got -1.0"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replace(CONFIG, **change)  # type: ignore[arg-type]


def test_round_1_and_its_plurality_are_told_beside_what_the_second_round_made_of_them() -> None:
    """Right in round 1: none, one, two, three of three agents. In round 2 all are right.

    Round 1: (0 + 1 + 2 + 3) / 12 = 1/2, its plurality in two of four; the debate: 1.
    """
    report = run(
        Scripted(lambda question, seat, round, params: turn(round == 2 or (seat or 0) < question, question)),
        replace(CONFIG, modes=("debate",)),
    )
    (row,) = report.rows
    assert (value(row, "round_1"), value(row, "round_1_plurality"), value(row, "accuracy")) == (0.5, 0.5, 1.0)
    header, _ = cells(report)
    assert "round 1" in header and "round 1 plurality" in header


def test_a_debate_of_one_round_has_no_round_to_compare_with() -> None:
    report = run(Scripted(lambda question, *_: turn(True, question)), replace(CONFIG, modes=("debate",), max_rounds=1))
    assert "round_1" not in report.rows[0].metrics and "round 1" not in cells(report)[0]
