"""A played debate as JSON and back: nothing is lost that a reader needs, older records are read, and damage is a value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from moot.debate.protocols import V2
from moot.rl.advantages import ESTIMATORS, with_advantages
from moot.runs.record import Damaged, from_record, read_line, summary, to_record, to_transcript
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import score
from support.making import FAILED, Tabled, debate, v1, v2
from support.recorded import judged

ANSWERS = [["5", "7", "6"]] * 2
ONE_VOTE = [["", "", ""], ["1 > 2", "", ""]]


def taught(played: Tabled) -> PlayedDebate:
    (each,) = with_advantages(
        [PlayedDebate(played).scored(played.scoring, grade(played))], ESTIMATORS[played.scoring.estimator]
    )
    return each


def through_json(each: PlayedDebate) -> Any:
    return json.loads(json.dumps(to_record(each)))


PLAYED = {
    "one vote": debate(v2(), ONE_VOTE, ANSWERS, "7"),
    "by agent": debate(v1(), [["", "", "0 > 1"], ["1 > 2", "", ""]], ANSWERS, "7"),
    "a failed turn": debate(v2(), [["", FAILED, ""], ["", "0 > 2", ""]], ANSWERS, "7"),
    "the truth": debate(v2(reward="truth"), ONE_VOTE, ANSWERS, "7"),
    "nobody knows": debate(v2(), ONE_VOTE, ANSWERS),
    "a ballot, labels and judges": judged(v2(closing_ballot=True, shuffle_labels=True)),
    "judges who look on": judged(v2(closing_ballot=True), jury_counts=False),
}


@pytest.mark.parametrize("name", PLAYED)
def test_what_was_written_is_read_again(name: str) -> None:
    each = taught(PLAYED[name])
    record = through_json(each)
    read = from_record(record)
    assert through_json(read) == record
    assert read.debate.turns == each.debate.turns and read.debate.jury == each.debate.jury
    assert (read.scoring, read.advantages, read.outcome) == (each.scoring, each.advantages, each.outcome)
    assert (read.winner_is_right(), read.answer_known) == (each.winner_is_right(), each.answer_known)
    listed = summary(record)
    assert listed.winner == (None if each.outcome is None else each.outcome.winner)
    assert (listed.winner_correct, listed.failed_turns) == (
        each.winner_is_right(),
        sum(turn.failed for turn in each.debate.turns),
    )


def test_an_older_record_that_names_a_winner_of_a_level_debate_has_none() -> None:
    record = {**through_json(taught(debate(v2(), [[FAILED] * 3] * 2, None, "7"))), "winner": 0}
    read = from_record(record)
    assert read.outcome is not None and read.outcome.winner is None
    assert (summary(record).winner, summary(record).winner_correct) == (None, None)


def test_a_debate_that_the_engine_lost_has_its_reason_and_no_scores() -> None:
    lost = PlayedDebate(PLAYED["one vote"], error="EngineError: gone", scoring=V2.scoring)
    read = from_record(through_json(lost))
    assert (read.error, read.debate.turns, read.scores, read.outcome) == ("EngineError: gone", (), None, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"votes": [{"turn": -1, "left_turn": 1, "right_turn": 2, "verdict": ">"}]}, "a vote is about 1 and 2 by -1"),
        ({"votes": [{"turn": 3, "left_turn": 1, "right_turn": 9, "verdict": ">"}]}, "a vote is about 1 and 9 by 3"),
        ({"turns": [{"round": 1, "agent": 3, "text": "x", "failure": "?"}]}, "agent must lie in 0 to 2, got 3"),
        ({"protocol": {"hats": 3}}, "protocol has no choice 'hats'"),
        ({"question": 7}, "question must be an object, got 7"),
    ],
)
def test_a_record_that_cannot_be_is_a_value_with_its_reason(change: dict[str, Any], reason: str) -> None:
    record = {"number": 4, **through_json(taught(PLAYED["one vote"])), **change}
    damaged = read_line(json.dumps(record).encode(), step=12, place=4)
    assert isinstance(damaged, Damaged)
    assert (damaged.step, damaged.line) == (12, 5) and damaged.reason.startswith(reason)


def test_a_line_that_is_no_json_is_damaged_and_a_good_one_knows_its_place() -> None:
    assert read_line(b'{"number": 1, "que', 3, 0) == Damaged(
        3, 1, "not JSON: Unterminated string starting at column 15"
    )
    record = {"number": 1, **through_json(taught(PLAYED["one vote"]))}
    each = read_line(json.dumps(record).encode(), 3, 1)
    assert isinstance(each, PlayedDebate) and each.name == "3/1"


def test_a_transcript_is_scored_as_the_debate_was() -> None:
    each = taught(PLAYED["one vote"])
    (scored,) = score([json.dumps(to_transcript(each.debate))], V2)
    assert isinstance(scored, PlayedDebate)
    assert (scored.scores, scored.advantages) == (each.scores, each.advantages)


def test_scoring_again_forgets_what_the_old_scores_taught() -> None:
    each = taught(PLAYED["one vote"])
    other = each.scored(replace(each.scoring, reward="win_rate"), each.grades)
    assert other.advantages is None and other.outcome is not None and other.outcome.means == (0.0, 1.0, 0.0)
    assert each.outcome is not None and each.outcome.means == (0.0, 0.5, -0.5)
