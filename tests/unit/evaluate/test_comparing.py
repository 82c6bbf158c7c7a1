"""Runs side by side: which are one group, what is paired with what, and the curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.errors import ConfigError
from moot.evaluate.compare_runs import PANELS, compared, curve, ends, entries, groups, open_runs, picture, saved_report
from moot.evaluate.counting import QuestionCounts
from moot.evaluate.report import Report, before_and_after, make_row
from moot.evaluate.table import latex, markdown
from moot.runs import Run
from moot.runs.run import tokens_spent
from moot.settings.train import TrainConfig


def a_run(where: Path, name: str, seed: int, reward: str = "generator_judge", values: tuple[float, ...] = ()) -> Run:
    run = Run.create(where / name, {"seed": seed, "protocol": {"reward": reward}, "eval_every": 5}, {})
    for step, found in enumerate(values):
        run.append_metrics({"step": step, "phase": "eval", "test_sums/correct": found, "trust/judge_accuracy": None})
        spent = {"tokens/spent": 100.0 * (step + 1)}
        run.append_metrics({"step": step, "phase": "self_play", "train_sums/correct": found, **spent})
    return run


def evaluated(run: Run, right: list[int], step: int = 3, task: str = "sums", first: int = 0, name: str = "") -> None:
    counted = {str(first + i): QuestionCounts({"avg@k": (float(r), 1.0)}, tokens=10) for i, r in enumerate(right)}
    row = make_row("direct", 1, "avg@k", counted, 0, None, 0)
    Report({"task": task, "step": step}, [row], {}).save(
        run.path / "evals" / (name or f"{task}-step{step}") / "report.json"
    )


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path) -> None:
    made = [a_run(tmp_path, f"peer-seed{seed}", seed) for seed in (0, 1)] + [a_run(tmp_path, "truth-seed0", 0, "truth")]
    peers, truth = groups(made)
    assert (peers.label, peers.seeds, truth.label, truth.seeds) == ("peer", [0, 1], "truth", [0])
    assert truth.settings == {"protocol.reward": "truth"}


def test_a_setting_that_came_later_does_not_part_the_seeds_of_one_experiment(tmp_path: Path) -> None:
    """The first run knows nothing of `eval_modes`; the second has its default written down."""
    later = TrainConfig(seed=1).as_dict()
    earlier = {name: value for name, value in TrainConfig(seed=0).as_dict().items() if name != "eval_modes"}
    made = [Run.create(tmp_path / f"run-seed{config['seed']}", config, {}) for config in (earlier, later)]
    (group,) = groups(made)
    assert group.seeds == [0, 1]


def test_groups_of_one_name_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    made = [a_run(tmp_path / "a", "run", 0), a_run(tmp_path / "b", "run", 0, "truth")]
    assert [group.label for group in groups(made)] == ["run (reward generator_judge)", "run (reward truth)"]


def test_differences_are_on_the_questions_that_all_have(tmp_path: Path) -> None:
    """Peers: seeds 0 and 1 are right on 2 and 4 of 4; truth on 4 of its 4, of which it shares three with them."""
    peers = [a_run(tmp_path, f"peer-seed{seed}", seed) for seed in (0, 1)]
    truth = a_run(tmp_path, "truth-seed0", 0, "truth")
    evaluated(peers[0], [1, 1, 0, 0])
    evaluated(peers[1], [1, 1, 1, 1])
    evaluated(truth, [1, 1, 1, 1], first=1)
    found = groups([*peers, truth])
    first, second = compared(entries(found, ["*"]))
    assert (first["group"], first["seeds"], first["questions"], first["accuracy"]["value"]) == ("peer", 2, 4, 0.75)
    assert first["over_seeds"] == [0.5, 1.0] and first["difference"] is None
    assert (second["questions"], second["accuracy"]["value"]) == (4, 1.0)
    gap = second["difference"]
    assert (gap["questions"], gap["versus"]) == (3, "peer")
    # On the shared questions 1 to 3 the peers' means are 1, 1/2, 1/2.
    assert gap["value"] == pytest.approx(1 / 3)
    assert gap["p"] == pytest.approx(0.5), "two differences of the same sign: 2 of 4 ways are as extreme"
    assert gap["low"] <= gap["value"] <= gap["high"]


def test_a_run_at_two_moments_is_paired_with_itself(tmp_path: Path) -> None:
    """Two seeds, far apart from each other, each of which gains one question of four: the gain is certain, the level is not."""
    runs = [a_run(tmp_path, f"peer-seed{seed}", seed) for seed in (0, 1)]
    for run, warm, final in zip(runs, ([0, 0, 0, 0], [1, 1, 1, 0]), ([1, 0, 0, 0], [1, 1, 1, 1]), strict=True):
        evaluated(run, warm, step=1, name="warm")
        evaluated(run, final, step=2, name="final")
    warm, final = compared(entries(groups(runs), ["warm", "final"]))
    assert (warm["group"], final["group"]) == ("peer, warm", "peer, final")
    assert warm["difference"] is None
    gap = final["difference"]
    assert (gap["value"], gap["versus"]) == (0.25, "peer, warm")
    # Each question's mean gain is 1/2, 0, 0, 1/2, whichever runs are drawn: 0 only if neither gaining question is.
    assert gap["high"] - gap["low"] < final["accuracy"]["high"] - final["accuracy"]["low"]
    assert gap["p"] == pytest.approx(0.5)


def test_before_and_after_have_the_same_settings_questions_and_mode_whichever_was_made_last(tmp_path: Path) -> None:
    """Beside them stand one of other questions, one at another temperature, one of another mode, and one that nobody can
    read."""

    def report(
        name: str, step: int, first: int, temperature: float = 1.0, questions: int = 2, mode: str = "direct"
    ) -> Report:
        counted = {str(first + i): QuestionCounts({"avg@k": (1.0, 1.0)}) for i in range(questions)}
        settings = {"task": "sums", "step": step, "temperature": temperature, "questions": questions}
        made = Report(settings, [make_row(mode, 1, "avg@k", counted, 0, None, 0)], {})
        made.save(tmp_path / name / "report.json")
        return made

    report("sums-step0", 0, first=10)
    report("cold", 0, first=0, temperature=0.0)
    report("debated", 0, first=0, mode="debate")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/report.json").write_text("{")
    trained = report("sums-step4", 4, first=0)
    assert before_and_after(trained, tmp_path / "sums-step4") is None
    start = report("sums-step0,questions=3", 0, first=0, questions=3)
    both = ("sums-step0,questions=3", "sums-step4")
    assert before_and_after(trained, tmp_path / "sums-step4") == both
    assert before_and_after(start, tmp_path / "sums-step0,questions=3") == both


def test_evaluations_without_a_question_in_common_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path, "truth-seed0", 0)
    evaluated(run, [0, 1], step=0)
    evaluated(run, [1, 1], step=4, first=2)
    names = ["sums-step0", "sums-step4"]
    assert main(["compare", str(run.path), "--evals", *names, "--out", str(tmp_path / "c"), "--no-figure"]) == 0
    said = capsys.readouterr().out
    assert "'truth, sums-step4' and 'truth, sums-step0' have no question in common, so nothing is subtracted" in said


def test_judge_accuracy_of_a_group_is_a_share_of_all_its_votes(tmp_path: Path) -> None:
    run = a_run(tmp_path, "peer-seed0", 0)
    counted = {
        str(i): QuestionCounts({"avg@k": (1.0, 1.0), "judge": (float(right), 4.0)}) for i, right in enumerate((4, 2, 3))
    }
    Report({"task": "sums", "step": 1}, [make_row("debate", 3, "avg@k", counted, 0, None, 0)], {}).save(
        run.path / "evals/a/report.json"
    )
    (row,) = compared(entries(groups([run]), ["*"]))
    assert row["judge"]["value"] == 0.75 and 0.5 <= row["judge"]["low"] < 0.75 < row["judge"]["high"] <= 1


def test_of_several_evaluations_the_last_step_counts_unless_one_is_named(tmp_path: Path) -> None:
    run = a_run(tmp_path, "peer-seed0", 0)
    evaluated(run, [0, 0], step=0)
    evaluated(run, [1, 1], step=9)
    last, before = saved_report(run, "*"), saved_report(run, "*", step=0)
    assert last is not None and last.settings["step"] == 9
    assert before is not None and before.rows[0].metrics["accuracy"]["value"] == 0.0  # type: ignore[index]
    assert saved_report(run, "no-such*") is None


def test_curves_are_mean_and_range_over_seeds_at_the_steps_all_have(tmp_path: Path) -> None:
    made = [
        a_run(tmp_path, "peer-seed0", 0, values=(0.0, 0.2, 0.4)),
        a_run(tmp_path, "peer-seed1", 1, values=(0.2, 0.6)),
    ]
    (group,) = groups(made)
    right, _, _, judges, *_ = PANELS
    found = curve(group, right)
    assert found is not None
    assert (found.steps, found.runs) == ([0, 1], 2)
    assert (found.mean, found.low, found.high) == (pytest.approx([0.1, 0.4]), [0.0, 0.2], [0.2, 0.6])
    tokens = curve(group, right, "tokens")
    assert tokens is not None and tokens.steps == [100, 200], "what was sampled up to and with the step"
    assert curve(group, judges) is None, "null is not a number"
    last = ends(group, right)
    assert (
        last is not None
        and last["last"]["mean"] == pytest.approx(0.5)
        and last["last"]["sd"] == pytest.approx(0.02**0.5)
    )


def test_runs_that_end_at_different_steps_are_laid_over_each_other_moment_by_moment(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, f"peer-seed{seed}", seed) for seed in (0, 1)]
    for run, last in zip(runs, (7, 9), strict=True):
        evaluated(run, [0, 0], step=2)
        evaluated(run, [1, 0], step=last)
    (group,) = groups(runs)
    alone = curve(group, next(panel for panel in PANELS if panel.saved == ("direct", "accuracy")))
    assert alone is not None
    assert (alone.steps, alone.mean) == ([2, 8], [0.0, 0.5]), (
        "from the saved evaluations, as nothing was measured on the way"
    )


def test_the_first_value_is_of_a_moment_that_all_runs_have(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, f"warm-seed{seed}", seed) for seed in (0, 1)]
    evaluated(runs[0], [0, 0], step=0)  # the untrained model, once for all seeds
    for run in runs:
        evaluated(run, [1, 0], step=2)
    (group,) = groups(runs)
    found = ends(group, next(panel for panel in PANELS if panel.saved == ("direct", "accuracy")))
    assert found is not None and found["first"] == {"mean": 0.5, "sd": 0.0}


def test_a_run_named_twice_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path, "peer-seed0", 0)
    with pytest.raises(ConfigError, match="is named twice"):
        open_runs([run.path, run.path])


def test_tables_are_markdown_and_latex() -> None:
    header, rows = ["mode", "accuracy"], [["vote@5", "50.0 [40.0, 60.0]"], ["a_b & 5%", "–"]]
    assert markdown(header, rows).splitlines() == [
        "| mode | accuracy |",
        "| --- | ---: |",
        "| vote@5 | 50.0 [40.0, 60.0] |",
        "| a_b & 5% | – |",
    ]
    written = latex(header, rows, "Held out")
    assert "a\\_b \\& 5\\% & -- \\\\" in written
    assert written.startswith("% Held out\n\\begin{tabular}{lr}\n\\toprule\nmode & accuracy \\\\\n\\midrule\n")


def test_the_figure_is_drawn_in_both_formats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from moot.evaluate.figures import draw

    members = groups([a_run(tmp_path, f"peer-seed{seed}", seed, values=(0.1, 0.2 + seed / 10)) for seed in (0, 1)])
    targets = draw(picture(members), tmp_path / "out" / "curves")
    assert targets == [tmp_path / "out" / "curves.png", tmp_path / "out" / "curves.svg"]
    assert targets[0].read_bytes().startswith(b"\x89PNG") and b"<svg" in targets[1].read_bytes()[:2000]
    empty: list[Any] = groups([a_run(tmp_path, "empty-seed0", 0)])
    assert not picture(empty)


def test_tokens_are_all_that_were_spent(tmp_path: Path) -> None:
    """Those of judges and labels too, as a budget counts them; a row that does not say them has none."""
    rows = [
        {"step": 1, "tokens/sampled": 10.0, "tokens/spent": 30.0},
        {"step": 2, "tokens/sampled": 10.0, "tokens/spent": 70.0},
    ]
    damaged = {"step": 3, "tokens/sampled": 1.0, "tokens/spent": "many"}
    assert tokens_spent([{"phase": "self_play", **row} for row in (*rows, damaged)]) == {1: 30.0, 2: 70.0}
    run = Run.create(tmp_path / "run", TrainConfig().as_dict(), {})
    for row in rows:
        run.append_metrics({"phase": "self_play", "train_x/correct": 0.5, **row})
    panel = next(panel for panel in PANELS if panel.key == "train_*/correct")
    drawn = curve(groups([run])[0], panel, "tokens")
    assert drawn is not None and drawn.steps == [30.0, 70.0]
