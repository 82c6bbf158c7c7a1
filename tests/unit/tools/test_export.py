"""What is taken away from a run: who is chosen and why, what hostile text may not do, and that nothing is overwritten or left half done."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli.main import main
from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.evaluate.compare_runs import Group, curve
from moot.evaluate.figures import Panel
from moot.runs import PlayedDebate, Run
from moot.tools.export import figures, pages, sets
from moot.tools.export.places import check_free, new_file, new_folder
from moot.tools.export.weights import find_adapter
from support.making import FAILED, Tabled, debate, spoken, text, v2
from support.recorded import LOST, judged, record

ANSWERS = [["5", "7", "6"], ["5", "7", "6"]]
ONE_VOTE = [["", "", ""], ["1 > 2", "", ""]]
NO_VOTE = [["", "", ""], ["", "", ""]]


def saved(path: Path, *debates: Debate, **options: Any) -> list[PlayedDebate]:
    first = debates[0]
    run = record(
        path, [debates], Protocol(first.rules, first.scoring) if isinstance(first, Tabled) else v2(), **options
    )
    return [each for each in run.debates() if isinstance(each, PlayedDebate)]


def reason(make: Callable[..., Any], each: PlayedDebate, *options: Any) -> str:
    with pytest.raises(sets.LeftOut) as stop:
        list(make(each, *options))
    return str(stop.value)


# Supervised


def test_the_winners_last_answer_with_the_question_as_one_would_ask_it(tmp_path: Path) -> None:
    asked = Question("What is 3 + 4?", "7", instruction="Put the final answer in \\boxed{}.")
    played = debate(v2(), ONE_VOTE, [["5", "1", "6"], ["5", "7", "6"]], "7")
    (each,) = saved(tmp_path / "run", replace(played, question=asked))
    assert list(sets.supervised(each)) == [
        {
            "prompt": [{"role": "user", "content": "What is 3 + 4?\n\nPut the final answer in \\boxed{}."}],
            "completion": [{"role": "assistant", "content": "\\boxed{7}"}],
            "debate": "1/0",
        }
    ]


@pytest.mark.parametrize("make", [sets.supervised, sets.best_and_worst])
def test_debates_that_say_nothing_are_left_out_by_name(tmp_path: Path, make: Callable[..., Any]) -> None:
    level, lost, silent, tied = saved(
        tmp_path / "run",
        debate(v2(), NO_VOTE, ANSWERS, "7"),
        LOST,
        debate(v2(), [[FAILED] * 3] * 2, None, "7"),
        debate(v2(), [["", "", ""], ["1 > 2", "", "1 > 0"]], ANSWERS, "7"),
    )
    assert reason(make, level) == "nobody won: no vote was cast"
    assert reason(make, lost) == "the engine lost the debate"
    assert reason(make, silent) == "nobody won: no vote was cast"
    assert len(list(make(tied))) == 1  # agent 1 alone leads here
    unscored = replace(tied, scores=None)
    assert reason(make, unscored) == "the debate was never scored"


def test_leaders_that_are_level_are_no_winner_whatever_they_answer(tmp_path: Path) -> None:
    # Agents 0 and 1 each beat agent 2 once.
    rounds = [["", "", ""], ["1 > 2", "0 > 2", ""]]
    agree, differ = saved(
        tmp_path / "run",
        debate(v2(), rounds, [["7", "7.0", "6"]] * 2, "7"),
        debate(v2(), rounds, [["5", "7", "6"]] * 2, "7"),
    )
    for level in (agree, differ):
        assert reason(sets.supervised, level) == "nobody won: several are level"


def test_a_majority_of_equals_is_level_and_not_short_of_votes(tmp_path: Path) -> None:
    (level,) = saved(tmp_path / "run", debate(v2(reward="majority"), NO_VOTE, [["7", "7", "6"]] * 2, "7"))
    assert reason(sets.supervised, level) == "nobody won: several are level"


def test_a_winner_whose_last_turn_failed_answers_with_the_one_before(tmp_path: Path) -> None:
    # Round 2: 0 says 1 > 2; round 3: 0 says 1 > 2 again, and 1 fails. Agent 1 has +1, +1, -1: mean 1/3, which leads; agent 0 has 0.
    (lead,) = saved(
        tmp_path / "run",
        debate(v2(), [["", "", ""], ["1 > 2", "", ""], ["1 > 2", FAILED, ""]], [["5", "7", "6"]] * 3, "7"),
    )
    # Under truth the one right agent wins without a vote, and nobody else can be read.
    (none,) = saved(tmp_path / "other", debate(v2(reward="truth"), [[FAILED, "", FAILED]], [["7", "7", "7"]], "7"))
    (row,) = sets.supervised(lead)
    assert row["completion"][0]["content"] == "\\boxed{7}"
    assert reason(sets.best_and_worst, none) == "no readable answer below the winner's"


def test_an_empty_answer_teaches_nothing(tmp_path: Path) -> None:
    empty = [(agent, text("Agent 1 > Agent 2" if agent == 0 else "N/A", solution="  ")) for agent in range(3)]
    (each,) = saved(tmp_path / "run", spoken([empty, empty], v2(), 3))
    assert reason(sets.supervised, each) == "the winner's answer is empty"
    assert reason(sets.voted_pairs, each) == "no pair with a clear preference"


@pytest.mark.parametrize("make", [sets.supervised, sets.best_and_worst])
def test_only_right_leaves_out_wrong_and_unknown_winners(tmp_path: Path, make: Callable[..., Any]) -> None:
    right, wrong, unknown = saved(
        tmp_path / "run",
        debate(v2(), ONE_VOTE, ANSWERS, "7"),
        debate(v2(), ONE_VOTE, ANSWERS, "6"),
        debate(v2(), ONE_VOTE, ANSWERS),
    )
    assert len(list(make(right, True))) == len(list(make(unknown))) == 1
    assert reason(make, wrong, True) == reason(make, unknown, True) == "the winner's answer is not known to be right"


# Preferences


def test_the_best_against_the_worst_is_one_pair(tmp_path: Path) -> None:
    # Mean generator rewards: agent 0 nothing (0), agent 1 (+1 + 0)/2, agent 2 (-1 + 0)/2.
    (each,) = saved(tmp_path / "run", debate(v2(), ONE_VOTE, ANSWERS, "7"))
    (row,) = sets.best_and_worst(each)
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("\\boxed{7}", "\\boxed{6}")
    assert list(row) == ["prompt", "chosen", "rejected", "debate"]


def test_every_pair_the_judges_decided(tmp_path: Path) -> None:
    # 1 > 2 and 0 > 2 are clear; 0 = 1 is not.
    (each,) = saved(tmp_path / "run", debate(v2(), [["", "", ""], ["1 > 2", "0 > 2", "0 = 1"]], ANSWERS, "7"))
    said = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in sets.voted_pairs(each)]
    assert said == [("\\boxed{7}", "\\boxed{6}"), ("\\boxed{5}", "\\boxed{6}")]
    assert [row["chosen"][0]["content"] for row in sets.voted_pairs(each, True)] == ["\\boxed{7}"]


def test_the_same_text_twice_is_no_preference(tmp_path: Path) -> None:
    (each,) = saved(tmp_path / "run", debate(v2(), ONE_VOTE, [["5", "7", "7"]] * 2, "7"))
    assert reason(sets.best_and_worst, each) == reason(sets.voted_pairs, each) == "chosen and rejected are the same"


def test_programs_that_differ_in_their_indentation_are_two_programs() -> None:
    returned = "```python\ndef f(x):\n    for i in x:\n        y = i\n    return y\n```"
    earlier = returned.replace("    return", "        return")
    assert " ".join(returned.split()) == " ".join(earlier.split()) and sets._essence(returned) != sets._essence(earlier)
    assert sets._essence(returned) == sets._essence(returned.replace("y = i", "y = i  ").replace("def", "\ndef"))
    assert sets._essence("It  is\n5.") == "It is 5."


def test_a_page_shows_programs_as_listings_and_their_tests_folded(tmp_path: Path) -> None:
    assert pages.written("So:\n```python\nif a < b:\n    pass\n```\nDone.") == (
        'So:\n<div class="code">if a &lt; b:\n    pass</div>Done.'
    )
    assert pages.written("a ``` b") == "a ``` b"
    assert pages.written("Complete it.\n\ndef f(x):\n    ") == 'Complete it.\n\n<div class="code">def f(x):</div>'
    played = replace(
        debate(v2(), ONE_VOTE, ANSWERS, "7"), question=Question("Complete f.", "# tests of f\nassert f(1) == 2")
    )
    shown = "".join(pages.page(saved(tmp_path / "run", played), "t"))
    assert '<summary class="soft">Tests to pass</summary>' in shown and "Right answer:" not in shown


def test_a_ballot_is_never_taken_for_an_answer(tmp_path: Path) -> None:
    (each,) = saved(tmp_path / "run", judged(v2(closing_ballot=True), jury_counts=False))
    (row,) = sets.supervised(each)
    (pair,) = sets.best_and_worst(each)
    (voted,) = sets.voted_pairs(each)
    assert row["completion"][0]["content"] == "\\boxed{6}"
    assert pair == voted and pair["rejected"][0]["content"] == "\\boxed{7}"


def test_half_a_character_does_not_reach_a_file_that_others_read(tmp_path: Path) -> None:
    words = [
        (agent, text("Agent 1 > Agent 2" if agent == 0 else "N/A", solution=f"a\ud800b \U0001f600 {agent}"))
        for agent in range(3)
    ]
    run = record(tmp_path / "run", [[spoken([words, words], v2(), 3)]])
    with (tmp_path / "set.jsonl").open("wb") as file:
        assert sets.write(run.debates(), sets.supervised, file).rows == 1
    (line,) = (tmp_path / "set.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["completion"][0]["content"] == "a\ufffdb \U0001f600 1"


def test_what_was_left_out_is_counted_by_reason(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS), LOST, debate(v2(), NO_VOTE, ANSWERS), LOST]])
    with (run.path / "debates" / "000001.jsonl").open("ab") as file:
        file.write(b'{"number": 9, "quest')
    with (tmp_path / "set.jsonl").open("wb") as file:
        written = sets.write(run.debates(), sets.supervised, file)
    assert written.rows == 1
    assert written.left_out == {"the engine lost the debate": 2, "nobody won: no vote was cast": 1, "damaged line": 1}
    assert [(each.step, each.line) for each in written.damaged] == [(1, 5)]


# Places


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ConfigError, match="exists; --force replaces it"):
        check_free([tmp_path / "a"], force=False)
    check_free([tmp_path / "a", tmp_path / "b"], force=True)
    with pytest.raises(ConfigError, match="is a file, and a folder is needed"):
        check_free([tmp_path / "a" / "b"], force=True)


@pytest.mark.parametrize("trouble", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_when_writing_fails_the_old_stays_and_no_half_is_left(tmp_path: Path, trouble: BaseException) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_text("old")
    with pytest.raises(type(trouble)), new_file(tmp_path / "file") as file:
        file.write(b"half")
        raise trouble
    with pytest.raises(type(trouble)), new_folder(tmp_path / "folder") as folder:
        (folder / "half").write_text("half")
        raise trouble
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "old").read_text() == "old"


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with new_folder(tmp_path / "deep" / "folder") as folder:
            (folder / name).write_text(name)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["folder"]
    assert [path.name for path in (tmp_path / "deep" / "folder").iterdir()] == ["second"]


# Weights


def checkpoint(run: Run, step: int, weights: bytes) -> Path:
    place = run.checkpoint_place(step)
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": weights}
    for name, data in files.items():
        (place / name).write_bytes(data)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    (place / "manifest.json").write_text(json.dumps({"version": 1, "model": "tiny", "files": digests}))
    return run.commit_checkpoint(step, {"metrics": {}}, keep=True)


def test_the_newest_whole_adapter_is_taken_and_a_damaged_one_named(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE)]])
    checkpoint(run, 1, b"one")
    newest = checkpoint(run, 2, b"two")
    assert find_adapter(run).step == 2
    assert find_adapter(run, 1).step == 1
    (newest / "adapter_model.safetensors").write_bytes(b"twp")
    notes: list[str] = []
    assert find_adapter(run, note=notes.append).step == 1
    assert "adapter_model.safetensors does not match its checksum" in notes[0] and "taking step 1 instead" in notes[0]
    with pytest.raises(ConfigError, match="does not match its checksum"):
        find_adapter(run, 2)
    with pytest.raises(ConfigError, match=r"checkpoint 7 is not in .*; there are 1, 2"):
        find_adapter(run, 7)
    (newest / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"manifest\.json is missing"):
        find_adapter(run, 2)


def test_a_run_without_weights_says_why(tmp_path: Path) -> None:
    run = record(tmp_path / "none", [[debate(v2(), ONE_VOTE)]])
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        find_adapter(run)
    scripted = record(tmp_path / "scripted", [[debate(v2(), ONE_VOTE)]], engine="scripted")
    scripted.checkpoint_place(1)
    scripted.commit_checkpoint(1, {}, keep=True)
    with pytest.raises(ConfigError, match="made by the scripted engine, which has no weights"):
        find_adapter(scripted)


# Figures


def rows(*values: float | None, phase: str = "self_play", key: str = "env/all/reward/total") -> list[dict[str, Any]]:
    return [{"step": step, "phase": phase, key: value} for step, value in enumerate(values, 1)]


def measured(path: Path, *rows: dict[str, Any]) -> Run:
    run = Run.create(path, {}, {})
    for row in rows:
        run.append_metrics(row)
    return run


def test_what_was_not_measured_is_a_gap_and_not_a_zero(tmp_path: Path) -> None:
    def line(panel: Panel, name: str, *found: dict[str, Any]) -> Any:
        return curve(Group(name, (measured(tmp_path / name, *found),), {}), panel)

    reward = next(curve for curve in figures.CURVES if curve.name == "reward")
    drawn = line(reward, "gaps", *rows(0.5, None, float("nan"), 0.25))
    assert (drawn.steps, drawn.mean) == ([1, 4], [0.5, 0.25])
    held_out = next(curve for curve in figures.CURVES if curve.name == "accuracy")
    found = [
        *rows(0.1, phase="eval", key="test_gsm8k/correct"),
        *rows(0.9, key="test_gsm8k/correct"),
        {"phase": "eval"},
    ]
    drawn = line(held_out, "other phases", *found)
    assert (drawn.steps, drawn.mean) == ([1], [0.1])


def test_two_runs_share_one_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = {
        "first <run>": measured(tmp_path / "1", *rows(0.5, 0.6)),
        "second $x$": measured(tmp_path / "2", *rows(0.1, 0.2)),
    }
    files = figures.draw_runs(runs, tmp_path)
    assert [file.name for file in files] == ["curves.png", "curves.svg", "reward.png", "reward.svg"]
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "curves.svg").read_text()
    assert "first &lt;run&gt;" in svg and "second $x$" in svg and "Reward of an agent" in svg
    figures.draw_runs(runs, tmp_path / "again")
    assert (tmp_path / "again" / "curves.svg").read_text() == svg


def test_figures_without_matplotlib_or_metrics_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there are no metrics to draw yet"):
        figures.draw_runs({"run": measured(tmp_path / "empty")}, tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'moot\[figures\]'"):
        figures.draw_runs({"run": measured(tmp_path / "run", *rows(1.0))}, tmp_path)


# The command


def test_a_full_disk_is_told_in_one_line_and_nothing_half_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS)]])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sets, "write", full)
    assert main(["export", str(run.path), "--supervised"]) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert list((run.path / "export").iterdir()) == []


def test_one_kind_that_cannot_be_made_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(tmp_path / "run", [[debate(v2(), NO_VOTE, ANSWERS)]])
    assert main(["export", str(run.path), "--supervised", "--html"]) == 2
    assert "supervised: no debate of" in capsys.readouterr().err
    assert [path.name for path in (run.path / "export").iterdir()] == ["debates.html"]


def test_a_damaged_line_is_named_and_the_status_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS)]])
    with (run.path / "debates" / "000001.jsonl").open("ab") as file:
        file.write(b'{"number": 1,')
    assert main(["export", str(run.path), "--supervised", "--preferences", "--html"]) == 1
    said = capsys.readouterr()
    assert said.err.count("step 1, line 2: not JSON") == 1
    assert "supervised.jsonl  1 rows; left out 1 (damaged line)" in said.out
