"""A run on disk: what is written can be read, what was torn is noticed, and coming back loses nothing that was committed."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.debate.parsing import BALLOT
from moot.debate.play import hear
from moot.debate.types import Observation, Said
from moot.errors import ConfigError
from moot.players.checkpoints import checkpoints
from moot.runs import PlayedDebate, Run
from moot.runs.record import summary, to_record
from moot.tasks.answers import grade, settled_by
from support.making import FAILED, Tabled, by_agent, by_step, debate, lines, text, v1, v2


def new_run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"seed": 1}, {"moot": "test"})


def checkpoint(run: Run, step: int, keep: bool = False) -> None:
    (run.checkpoint_place(step) / "weights").write_text(str(step))
    run.commit_checkpoint(step, {"metrics": {"step": step, "phase": "self_play"}}, keep)


def test_a_folder_without_run_json_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run: it has no run\.json"):
        Run.open(tmp_path)


def test_a_run_of_another_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    (run.path / "run.json").write_text(json.dumps({"format": 99, "config": {}}))
    with pytest.raises(ConfigError, match="format 99, and this moot reads format 1"):
        Run.open(run.path)


def test_a_line_cut_short_by_a_kill_is_left_out_and_so_is_what_is_no_number(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.append_metrics({"step": 1, "phase": "self_play", "x": 1.5, "no number": "1", "nor": [2], "true": True})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "phase": "se')
    assert run.metrics() == [{"step": 1, "phase": "self_play", "x": 1.5}]


def test_rewinding_drops_later_rows_and_puts_back_the_one_a_kill_swallowed(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step in (1, 2, 4):
        run.append_metrics({"step": step, "phase": "self_play"})
    for step in (2, 4):
        run.write_held_out(step, [])
    run.rewind(3, {"step": 3, "phase": "self_play", "x": 7})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert [file.name for file in (run.path / "held_out").iterdir()] == ["000002.jsonl"]
    assert (run.path / "aside" / "001" / "held_out" / "000004.jsonl").is_file()
    run.rewind(3, {"step": 3, "phase": "self_play", "x": 7})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_two_rolling_checkpoints_stay_and_kept_ones_stay_for_good(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step in range(1, 7):
        checkpoint(run, step, keep=step == 2)
    assert [step for step, _ in run.checkpoints()] == [6, 5, 2]


def test_a_checkpoint_that_was_never_finished_does_not_count(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    checkpoint(run, 1)
    (run.checkpoint_place(2) / "weights").write_text("half")
    assert [step for step, _ in run.checkpoints()] == [1]


def test_a_changed_state_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    checkpoint(run, 1)
    checkpoint(run, 2)
    file = run.path / "checkpoints" / "000002" / "state.json"
    sealed = json.loads(file.read_text())
    sealed["body"] = sealed["body"].replace('"step": 2', '"step": 3')
    file.write_text(json.dumps(sealed))
    found = [(each.step, each.state is None) for each in checkpoints(run)]
    assert found == [(2, True), (1, False)]


def test_nothing_half_written_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        run.write_debates(1, [])
    assert sorted(file.name for file in (run.path / "debates").iterdir()) == ["000001.jsonl"]


# What a debate looks like


def judged(played: Tabled, shorthand: str) -> Tabled:
    async def speak(observation: Observation) -> Said:
        return Said(FAILED if shorthand == FAILED else text(lines(shorthand), contract=BALLOT))

    return asyncio.run(hear(played, speak))


def recorded(played: Tabled) -> dict[str, Any]:
    scores = (by_agent if played.scoring.reward == "win_rate" else by_step)(played)[0]
    return json.loads(
        json.dumps(to_record(PlayedDebate(played, scoring=played.scoring, scores=scores, grades=grade(played))))
    )


def test_what_a_record_of_a_plain_debate_holds() -> None:
    record = recorded(debate(v2(), [["", "", ""], ["1 > 2", "", ""]], truth="7"))
    assert list(record) == [
        "question",
        "num_agents",
        "max_rounds",
        "protocol",
        "turns",
        "winner",
        "signal",
        "votes",
        "rewards",
    ]
    assert list(record["turns"][0]) == ["round", "agent", "text", "fields", "answer", "correct", "same"]
    assert record["votes"] == [{"turn": 3, "left_turn": 1, "right_turn": 2, "verdict": ">"}]


def test_ballots_and_outside_judges_are_recorded() -> None:
    """Truth 7; 0 and 2 are right. 0's ballot prefers 1, one judge prefers 0 to 1, another cannot be read."""
    played = debate(v2(closing_ballot=True), [["", "", ""]], answers=[["7", "8", "7"]], truth="7")
    cast = tuple(
        played.read(2, a, Said(text(lines(said), contract=BALLOT)), ballot=True)
        for a, said in enumerate(["1 > 2", "", ""])
    )
    heard = judged(judged(replace(played, turns=played.turns + cast), "0 > 1; 0 > 9"), FAILED)
    record = recorded(heard)
    assert [turn.get("ballot", False) for turn in record["turns"]] == [False] * 3 + [True] * 3
    assert set(record["turns"][3]["fields"]) == {"evaluation", "comparison"}
    assert record["turns"][3]["answer"] is None
    assert record["votes"] == [
        {"turn": 3, "left_turn": 1, "right_turn": 2, "verdict": ">"},
        {"turn": None, "judge": 0, "left_turn": 0, "right_turn": 1, "verdict": ">"},
    ]
    assert record["jury_counts"] is True
    assert record["jury"] == [
        {
            "text": heard.jury[0].text,
            "fields": {"evaluation": "Fine.", "comparison": "Agent 0 > Agent 1\nAgent 0 > Agent 9"},
            "votes": [{"left_turn": 0, "right_turn": 1, "verdict": ">"}],
        },
        {"text": FAILED, "failure": "no <evaluation> in the text", "votes": []},
    ]
    onlooking = recorded(replace(heard, scoring=replace(heard.scoring, voters="agents")))
    assert (len(onlooking["votes"]), len(onlooking["jury"][0]["votes"]), onlooking["jury_counts"]) == (1, 1, False)

    listed = summary(record)
    assert (listed.correct, listed.disagreement, listed.failed_turns) == (pytest.approx(2 / 3), True, 0), (
        "a ballot replaces no answer"
    )


def test_votes_by_agent_name_the_judge_too() -> None:
    record = recorded(judged(debate(v1(), [["", "", "0 > 1"]]), "1 > 0"))
    assert record["votes"] == [
        {"turn": 2, "left": 0, "right": 1, "verdict": ">"},
        {"turn": None, "judge": 0, "left": 1, "right": 0, "verdict": ">"},
    ]


def test_rounds_that_were_not_fixed_are_recorded() -> None:
    played = replace(debate(v2(), [["", "", ""]]), settled=settled_by(), stop_when_settled=True, extra_rounds=2)
    record = recorded(played)
    assert (record["stop_when_settled"], record["extra_rounds"]) == (True, 2)
