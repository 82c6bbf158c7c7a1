"""What a training run says of each step and at the end: numbers under their own names, one line per step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from moot.cli.console import Bars, Terminal, TimeLeft, clock
from moot.cli.label import _Heard
from moot.cli.loggers import Loggers
from moot.cli.progress import RunProgress, alarm_digest, line, summary
from moot.evaluate.report import Report, ReportRow
from moot.runs import PlayedDebate, Run
from moot.settings.presets import PRESETS
from moot.tools.ask import AskedDebate
from support.making import debate, v2

ROW: dict[str, Any] = {
    "step": 7,
    "phase": "self_play",
    "env/all/reward/total": 0.125,
    "debates/played": 6.0,
    "debates/with_gradient": 1.0,
    "debates/with_signal": 0.5,
    "trust/judge_accuracy": 0.625,
    "train_arithmetic/correct": 0.25,
    "parse_error": 0.05,
    "optim/kl_sample_train_v2": 0.00016,
    "tokens/sampled": 6000.0,
    "alarm/random_noise": 0.0,
    "alarm/format_collapse": None,
}


def test_signal_is_the_share_of_debates_with_a_signal_and_kl_says_between_whom() -> None:
    """Half the debates have a signal, though all carry a gradient; 6000 tokens in 4 seconds; 3723 seconds since the start."""
    assert line(ROW, 12, 4.0, 3723.0) == (
        "step  7/12  self-play   reward +0.12, signal 50%, judges right 62%, right 25%, unreadable 5%, sampler-trainer KL 1.6e-04, "
        "1,500 tokens/s  [1:02:03]"
    )


def test_many_unreadable_turns_come_with_the_share_that_was_cut() -> None:
    cut = {**ROW, "turns/cut": 0.79}
    assert "unreadable 81% (79% cut at --max-tokens), sampler" in line({**cut, "parse_error": 0.81}, 12, 4.0, 0.0)
    assert "unreadable 5%, sampler" in line(cut, 12, 4.0, 0.0)


def test_a_warm_step_tells_its_loss_per_token() -> None:
    row = {"step": 1, "phase": "warm", "warm/loss_per_token": 0.969, "optim/trained_tokens": 1484.0}
    assert line(row, 9, 1.0, 2.0) == "step 1/9  warm start  loss 0.969 per token, 1,484 tokens  [0:00:02]"


@pytest.mark.parametrize(("agents", "outside", "shown"), [(0.75, 0.4, "75%"), (None, 0.4, "40%")])
def test_judges_right_is_the_outside_judges_share_where_agents_cast_no_vote(
    agents: Any, outside: Any, shown: str
) -> None:
    row = {**ROW, "trust/judge_accuracy": agents, "trust/outside_accuracy": outside}
    assert f"judges right {shown}," in line(row, 12, 4.0, 0.0)


def test_a_judge_that_approves_has_its_j_in_the_line() -> None:
    row = {**ROW, "trust/judge_pair_accuracy": 0.7, "trust/judge_j": -0.125}
    assert "judges right 70%, J -0.12, right" in line(row, 12, 4.0, 0.0)
    assert "judges right 70%, right" in line({**row, "trust/judge_j": None}, 12, 4.0, 0.0), "pairs have none"


def test_a_run_whose_agents_never_vote_reads_nothing_of_votes() -> None:
    row = {**ROW, "trust/judge_accuracy": None, "trust/outside_accuracy": None}
    assert "signal 50%, right 25%," in line(row, 12, 4.0, 0.0)
    evaluated = {"step": 0, "phase": "eval", "test/valid_turns": 0.5, "test/turns_with_vote": None}
    evaluated |= {"trust/judge_accuracy": None, "test_arithmetic/correct": 0.25}
    assert line(evaluated, 9, 1.0, 2.0) == "step 0/9  evaluating  right 25%, valid turns 50%  [0:00:02]"


def test_of_many_at_once_no_time_left_is_told_before_as_many_are_done() -> None:
    """Of 800, 32 are under way at once. The first ends after 28 seconds, which are not what each takes."""
    now = [0.0]
    bars = Bars(Terminal())
    bars._bars.get_time = lambda: now[0]
    bars.plan("questions", 800, 0.5, first=32)
    (task,) = bars._bars.tasks
    task._get_time = lambda: now[0]
    task.start_time, now[0] = 0.0, 28.0
    for done in (1.5, 32.25):
        bars.reach("questions", done)
        assert bars.left("questions") == ""
    bars.reach("questions", 32.5)
    assert bars.left("questions") == f", about {clock(28 * 767.5 / 32)} left"


def test_answers_of_questions_that_are_not_over_count_too() -> None:
    heard = _Heard(4)
    whole, half = debate(v2(), [[""] * 4]), debate(v2(), [[""] * 2])
    for turn in (*whole.turns, *half.turns):
        heard.said(turn)
    heard.over(AskedDebate(PlayedDebate(whole), "done", (), 0, 0.0, None))
    assert (heard.answers, heard.questions) == (6, 1.5)


def test_a_step_that_takes_minutes_has_an_estimate_of_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four debates of a step of 100 seconds, played in its first half: 12 steps take 1,200 seconds. The evaluation before is no step."""
    now = [0.0]
    monkeypatch.setattr("moot.cli.console.time.perf_counter", lambda: now[0])
    progress = RunProgress(console := Terminal(), Bars(console), Loggers(), config := PRESETS["demo"])
    bars = progress._bars._bars
    bars.get_time = lambda: now[0]
    for task in bars.tasks:
        task._get_time = bars.get_time
    batch = config.optim.batch_size

    def left() -> str:
        return str(TimeLeft().render(bars.tasks[0]))

    progress.began(0, 12, "eval")
    now[0] += 300
    progress.row({**ROW, "step": 0, "phase": "eval", "test/valid_turns": 1.0, "test/turns_with_vote": 1.0})
    assert left() == "-:--:--"
    for step in (1, 2, 3):
        progress.began(step, 12, "self_play")
        for _ in range(batch):
            now[0] += 50 / batch
            progress.debate_finished(PlayedDebate(debate(v2(), [["", "", ""]])))
            if step == 1:
                seconds = 1200 - now[0] + 300
                assert left() == clock(seconds)
        now[0] += 50
        progress.row({**ROW, "step": step})
        assert left() == clock(1200 - 100 * step)


def test_a_log_gets_a_sign_of_life_while_nothing_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.cli.console.QUIET_S", 0.02)
    said, deadline = "", time.monotonic() + 60
    with RunProgress(console := Terminal(), Bars(console), Loggers(), PRESETS["demo"]) as progress:
        progress.began(0, 12, "eval")
        progress.debate_finished(PlayedDebate(debate(v2(), [["", "", ""]])))
        while said.count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
            said += capsys.readouterr().out
    first, *_ = [text for text in said.splitlines() if "1 of" in text]
    assert first.startswith("step  0/12  evaluating  1 of ") and "debates  [0:00:" in first and "left" not in first


def test_a_log_is_never_silent_for_more_than_half_a_minute_and_says_how_much_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of the test's own. Half of step 1 of 12 took 60 seconds, so 23 more minutes are left a minute later, and
    more while the other half goes on; after the whole step at 120 seconds 22."""
    now = [0.0]
    monkeypatch.setattr("moot.cli.console.time.monotonic", lambda: now[0])
    progress = RunProgress(console := Terminal(), Bars(console), Loggers(), config := PRESETS["demo"])
    progress._bars._bars.get_time = lambda: now[0]
    for task in progress._bars._bars.tasks:
        task._get_time = progress._bars._bars.get_time

    class Over:
        def wait(self, seconds: float) -> bool:
            now[0] += seconds
            if now[0] == 60:
                for _ in range(config.optim.batch_size):
                    progress.debate_finished(PlayedDebate(debate(v2(), [["", "", ""]])))
            return now[0] > 120

    monkeypatch.setattr(progress._beat, "_over", Over())
    progress.began(1, 12, "self_play")
    progress._beat.run()
    batch = config.optim.batch_size
    told = [text.partition("self-play")[2].strip() for text in capsys.readouterr().out.splitlines()]
    assert told == [
        f"0 of {batch} debates  [0:00:10]",
        f"0 of {batch} debates  [0:00:30]",
        f"{batch} of {batch} debates  [0:01:00, about 0:23:00 left]",
        f"{batch} of {batch} debates  [0:01:30, about 0:34:30 left]",
        f"{batch} of {batch} debates  [0:02:00, about 0:46:00 left]",
    ]
    now[0] = 120
    progress.row({**ROW, "step": 1})
    assert capsys.readouterr().out.endswith("  [0:02:00, about 0:22:00 left]\n")


def test_an_alarm_is_explained_when_it_begins_to_ring_and_each_step_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunProgress(console := Terminal(), Bars(console), Loggers(), PRESETS["demo"]) as progress:
        for step, rings in ((7, 0.0), (8, 1.0), (9, 1.0)):
            progress.began(step, 12, "self_play")
            progress.row({**ROW, "step": step, "alarm/random_noise": rings})
    lines = capsys.readouterr().out.splitlines()
    assert [text.split("  ")[0] for text in lines] == ["step", "step", lines[2].split("  ")[0], "step"], (
        "one line each, however wide"
    )
    assert "ALARM" not in lines[0] and "ALARM random_noise" in lines[1] and "ALARM random_noise" in lines[3]
    assert lines[2].startswith("ALARM random_noise: votes between right and wrong answers look like coin tosses")


def test_verdicts_that_cannot_be_read_are_told_once_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(console := Terminal(), Bars(console), Loggers(), PRESETS["demo"]) as progress:
        for step, share in ((7, 0.2), (8, 0.25), (9, 1.0)):
            progress.began(step, 12, "self_play")
            progress.row({**ROW, "step": step, "jury/unread": share})
    (note,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("Note: ")]
    assert note.startswith("Note: 25% of the verdicts say neither word, or both, and count as ½") and "thinking" in note


def test_the_summary_tells_when_an_alarm_rang_and_what_it_means() -> None:
    played = [{**ROW, "step": step, "alarm/random_noise": float(step in (8, 9))} for step in (7, 8, 9, 10)]
    digest = alarm_digest(played)
    assert list(digest) == ["random_noise"]
    assert digest["random_noise"].startswith(
        "rang at 2 of 4 steps, first at step 8, last at step 9. It means: votes between "
    )
    assert "to the end" in alarm_digest(played[:3])["random_noise"]
    assert alarm_digest(played[:1]) == {}


def held_out(run: Run, step: int, right: int, valid: int) -> None:
    """An evaluation of ten questions, so many of them right and so many readable."""
    shares = {
        "accuracy": {f"q{i}": (float(i < right), 1.0) for i in range(10)},
        "valid_turns": {f"q{i}": (float(i < valid), 1.0) for i in range(10)},
        "judge": {
            f"q{i}": (float(right > 1), float(i < 5)) for i in range(10)
        },  # in five questions alone a vote could be right
    }
    Report({}, [ReportRow("debate", 4, 10, 0, 50.0, {}, None, shares)], {}).save(run.held_out_report(step))
    run.append_metrics(
        {
            "step": step,
            "phase": "eval",
            "test/valid_turns": valid / 10,
            "test/turns_with_vote": 0.0,
            "trust/judge_accuracy": float(right > 1),
        }
        | {"test_arithmetic/correct": right / 10, "debates/played": 10.0}
    )


def test_the_summary_pairs_held_out_questions_and_says_what_self_play_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine of ten questions go from wrong to right: +90, whose interval excludes 0; one turn more can be read: +10, which does not."""
    config = PRESETS["demo"]
    run = Run.create(tmp_path / "run", config.as_dict(), {})
    held_out(run, 0, 0, 0)
    held_out(run, config.warm_steps, 1, 5)
    held_out(run, config.warm_steps + 3, 10, 6)
    summary(run, config, Terminal())
    told = capsys.readouterr().out
    assert (
        "right answers, held out 0% before, 10% after the warm start, 100% after self-play; self-play +90 points [+70, +100]"
        in told
    )
    assert "60% after self-play; self-play +10 points [+0, +30]" in told
    # Five pairs are too few for an interval, however clear they look.
    assert "judges right            0% before, 0% after the warm start, 100% after self-play\n" in told
    assert "Self-play moved: right answers, held out up (95% intervals over 10 held-out questions" in told


def test_the_summary_of_rows_that_somebody_cut_leaves_out_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = PRESETS["demo"]
    run = Run.create(tmp_path / "run", config.as_dict(), {})
    for step, phase in ((0, "eval"), (9, "self_play"), (9, "eval")):
        run.append_metrics({"step": step, "phase": phase, "debates/with_gradient": "all"})
    assert summary(run, config, Terminal()) == 1
    told = capsys.readouterr().out
    assert "0 of 0 debates carried a gradient, in 1 step." in told and "valid turns  " not in told
