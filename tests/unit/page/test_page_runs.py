"""Finding runs and reading metrics that are still being written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.evaluate.report import Report, ReportRow
from moot.page.about import about
from moot.page.runs import Metrics, Outside, Runs, Watched, inside, thinned
from moot.runs import Run
from moot.settings.presets import PRESETS
from support.paging import write_run


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(step: int, phase: str = "self_play", **values: Any) -> dict[str, Any]:
    return {"step": step, "phase": phase, **values}


def read(watched: Watched, key: str, phase: str = "train") -> Any:
    return watched.ask(lambda metrics: [list(column) for column in metrics.series.get(phase, {}).get(key, ([], []))])


def watched(folder: Path, text: str) -> tuple[Watched, Path]:
    write_run(folder, {})
    (folder / "metrics.jsonl").write_text(text)
    return Watched("run", folder), folder / "metrics.jsonl"


# Which runs there are


def test_a_place_is_a_run_or_holds_runs_and_names_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "deep/b", "too/far/down/c"):
        write_run(tmp_path / "one" / name, {})
    write_run(tmp_path / "two" / "a", {})
    found = Runs([tmp_path / "one", tmp_path / "two", tmp_path / "one" / "a"]).all()
    assert {name: run.path.relative_to(tmp_path).as_posix() for name, run in found.items()} == {
        "a": "one/a",
        "deep/b": "one/deep/b",
        "a~2": "two/a",
    }


def test_a_new_run_turns_up_and_a_known_one_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a", {})
    runs = Runs([tmp_path])
    first = runs.get("a")
    write_run(tmp_path / "b", {})
    assert runs.get("b") is None  # looked a moment ago
    runs._looked = float("-inf")
    assert runs.get("b") is not None and runs.get("a") is first


def test_a_link_that_leads_out_of_a_run_is_not_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {})
    (tmp_path / "secret").write_text("secret")
    (run / "debates" / "000001.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(Outside):
        inside(run, "debates", "000001.jsonl")
    with pytest.raises(Outside):
        inside(run, "..", "secret")
    assert inside(run, "run.json") == (run / "run.json").resolve()


def test_a_summary_is_made_again_only_where_a_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 runs that stand still, each look read 200 files of settings."""
    run, metrics = watched(tmp_path / "run", lines(row(1)))
    headers, header = [], Watched.header
    monkeypatch.setattr(Watched, "header", lambda self: headers.append(self.name) or header(self))
    first = run.summary()
    assert (run.summary() | {"age_s": 0}, len(headers)) == (first | {"age_s": 0}, 1)
    metrics.write_text(lines(row(1), row(2)))
    assert (run.summary()["step"], len(headers)) == (2, 2)
    settings = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**settings, "config": {"debate": {"num_agents": 17}}}))
    assert run.summary()["agents"] == 17
    (run.path / "held_out").mkdir(exist_ok=True)
    (run.path / "held_out" / "000002.jsonl").touch()
    assert run.summary()["held_out"] is True
    (run.path / "run.json").write_text("{")
    assert run.summary()["trouble"] and run.summary()["trouble"], "which is looked at each time: it may be a moment's"


def test_a_long_file_of_metrics_is_read_on_though_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.page.runs.AT_ONCE", 64)
    monkeypatch.setattr("moot.page.runs.PER_LOOK", 64)
    run, _ = watched(tmp_path / "run", lines(*(row(step) for step in range(1, 10))))
    looks = [run.summary()["step"] for _ in range(10)]
    assert looks[0] < looks[1] < looks[2] and looks[-1] == 9


# Metrics as they grow


def test_only_whole_lines_are_read_and_the_rest_when_it_is_there(tmp_path: Path) -> None:
    run, file = watched(tmp_path, lines(row(1, x=0.5)) + '{"step": 2, "phase": "self_pl')
    assert read(run, "x") == [[1.0], [0.5]]
    with file.open("a") as end:
        end.write('ay", "x": 0.75}\n')
    assert read(run, "x") == [[1.0, 2.0], [0.5, 0.75]]


@pytest.mark.parametrize("replace", [True, False], ids=["moved into its place", "written over"])
def test_a_file_that_was_rewritten_is_read_anew_even_where_it_is_longer(tmp_path: Path, replace: bool) -> None:
    run, file = watched(tmp_path, lines(row(1, x=1), row(2, x=2)))
    assert read(run, "x") == [[1.0, 2.0], [1.0, 2.0]]
    text = lines(row(1, x=1), row(2, x=20), row(3, x=30))
    if replace:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)
    else:
        file.write_text(text)
    assert read(run, "x") == [[1.0, 2.0, 3.0], [1.0, 20.0, 30.0]]
    file.unlink()
    assert read(run, "x") == [[], []]


def test_training_makes_one_curve_and_every_other_phase_its_own(tmp_path: Path) -> None:
    text = lines(row(1, "warm", x=1), row(2, x=2), row(2, "eval", x=3), row(9, "eval of tomorrow", x=4), row(3, x=None))
    run, _ = watched(tmp_path, text)
    assert read(run, "x") == [[1.0, 2.0, 3.0], [1.0, 2.0, None]]
    assert read(run, "x", "eval") == [[2.0], [3.0]]
    assert read(run, "x", "eval of tomorrow") == [[9.0], [4.0]]
    about = run.ask(lambda metrics: metrics.keys()["train"]["x"])
    assert about == {"n": 2, "step": 3.0, "last": None, "recent": 1.5, "min": 1.0, "max": 2.0}


def test_lines_that_are_no_rows_are_passed_over(tmp_path: Path) -> None:
    bad = (
        'null\n[1]\n"step"\n{}\n{"step": "one"}\n{"step": NaN, "x": 1}\n{"step": [1]}\nnot json\n\xff\n'
        + "[" * 100_000
        + "\n"
        + '{"step": 1'
        + "0" * 400
        + "}\n"
    )
    text = (
        bad
        + lines(row(4, x=1.0, words="many", nested={"y": 1}, flag=True))
        + '{"step": 5, "phase": "self_play", "x": NaN}\n'
    )
    run, _ = watched(tmp_path, text)
    assert read(run, "x") == [[4.0, 5.0], [1.0, None]]
    assert read(run, "flag") == [[4.0], [1.0]]
    assert read(run, "words") == read(run, "nested") == [[], []]


def test_an_alarm_that_cannot_tell_does_not_show_what_it_said_before(tmp_path: Path) -> None:
    noise = "alarm/random_noise"
    run, _ = watched(
        tmp_path,
        lines(row(1, **{noise: 1.0}), row(2, **{noise: 1.0, "alarm/format_collapse": 1.0}), row(3, **{noise: None})),
    )
    assert run.summary()["alarms"][noise] is None
    assert run.ask(lambda metrics: metrics.ringing("random_noise")) == [1, 2]
    assert run.ask(lambda metrics: metrics.ringing("format_collapse")) == [2]
    assert run.ask(lambda metrics: metrics.ringing("any")) == [1, 2]


def test_a_summary_needs_no_settings_and_counts_steps_where_it_has_them(tmp_path: Path) -> None:
    run, _ = watched(tmp_path, lines(row(5, x=1)))
    (tmp_path / "run.json").write_text("[]")
    assert run.summary()["total"] is None and run.summary()["step"] == 5
    config = {
        "optim": {"num_train_datapoints": 10, "batch_size": 4},
        "warm_questions": 17,
        "parts": ["warm_start:batch_size=2"],
    }
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "config": config}))
    assert run.summary()["total"] == 3 + 3 * 3


def test_evaluations_are_read_without_their_questions_and_broken_ones_passed_over(tmp_path: Path) -> None:
    run, _ = watched(tmp_path / "run", "")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "report.json").write_text('{"rows": []}')
    direct = ReportRow("direct", 1, 1, 0, 5, {}, by_question={"right": {"a": (1, 1)}})
    for name, body in {
        "good": json.dumps(Report({"judge": "base"}, [direct], {}).as_dict()),
        "odd": '{"rows": [1]}',
        "empty": "",
        "list": "[]",
    }.items():
        (tmp_path / "run" / "evals" / name).mkdir(parents=True)
        (tmp_path / "run" / "evals" / name / "report.json").write_text(body)
    (tmp_path / "run" / "evals" / "link").symlink_to(tmp_path / "secret")
    (report,) = run.evals()
    assert (report["name"], report["judge"]) == ("good", "base")
    without = {"k": 1, "questions": 1, "failed": 0, "metrics": {}, "difference": None}
    assert report["rows"] == [{"name": "direct", "tokens": 5, **without}]


# Thinning


def test_a_spike_outlives_thinning() -> None:
    values: list[float | None] = [0.0] * 10_000
    values[6_789] = 5.0
    values[1_234] = -3.0
    steps, kept = thinned(([float(i) for i in range(10_000)], values), 200)
    assert len(steps) <= 200
    assert (6_789.0, 5.0) in zip(steps, kept, strict=True) and (1_234.0, -3.0) in zip(steps, kept, strict=True)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=300), st.integers(10, 100))
def test_thinning_keeps_order_extremes_and_true_points(values: list[float | None], points: int) -> None:
    series = ([float(i) for i in range(len(values))], values)
    steps, kept = thinned(series, points)
    assert len(steps) <= max(points, 10) and steps == sorted(set(steps))
    assert all(values[int(step)] == value for step, value in zip(steps, kept, strict=True))
    known = [value for value in values if value is not None]
    left = [value for value in kept if value is not None]
    assert (min(known), max(known)) == (min(left), max(left)) if known else not left


def test_metrics_begin_empty() -> None:
    assert Metrics().keys() == {} and Metrics().age() is None


# A line in the table of runs


def test_the_table_shows_means_of_the_last_five_steps_and_the_last_evaluation(tmp_path: Path) -> None:
    key = "env/all/reward/total"
    rows = [row(step, **{key: float(step), "train_sums/correct": step / 10}) for step in range(1, 8)]
    rows += [row(6, "eval", **{"test_sums/correct": 0.25}), row(7, "eval", **{"test_sums/correct": 0.5})]
    found, _ = watched(tmp_path / "run", lines(*rows))
    assert found.summary()["headline"] == {
        "reward": 5.0,
        "right": pytest.approx(0.5),
        "held_out": 0.5,
    }  # (3 + 4 + 5 + 6 + 7) / 5


def test_runs_that_differ_by_their_seed_alone_have_one_recipe(tmp_path: Path) -> None:
    def recipe(name: str, **config: Any) -> Any:
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"format": 1, "config": config}))
        return Watched(name, tmp_path / name).summary()["recipe"]

    first, second, other = recipe("a", seed=0, lr=1), recipe("b", seed=1, lr=1), recipe("c", seed=0, lr=2)
    assert first == second != other
    assert recipe("d", lr=1) is None  # a run that does not say its seed stands alone


def test_curves_stand_along_tokens_or_time_as_well(tmp_path: Path) -> None:
    """Warm steps sample nothing; an evaluation takes time and samples nothing that is trained on."""
    rows = [
        {"step": 1, "phase": "warm", "time/train_s": 2.0},
        {"step": 2, "phase": "self_play", "time/train_s": 10.0, "tokens/sampled": 100.0, "round": 1.0},
        {"step": 2, "phase": "eval", "time/eval_s": 5.0, "test/x": 0.5},
        {"step": 3, "phase": "self_play", "time/train_s": 20.0, "tokens/sampled": 50.0, "round": 2.0},
        {"step": 4, "phase": "self_play", "tokens/sampled": None, "round": 2.0},
    ]
    run = Watched("run", write_run(tmp_path / "run", {}, rows))
    assert run.ask(lambda m: m.along("tokens", m.series["train"]["round"])) == [100, 150, 150]
    assert run.ask(lambda m: m.along("time", m.series["train"]["round"])) == [17, 37, 37]
    assert run.ask(lambda m: m.along("time", m.series["eval"]["test/x"])) == [17]
    assert run.ask(lambda m: (m.spent("tokens"), m.spent("time"))) == (150, 37)


def test_a_run_tells_where_it_comes_from_and_what_it_changes_of_its_preset(tmp_path: Path) -> None:
    config = json.loads(json.dumps(PRESETS["truth"].as_dict()))
    config["debate"]["num_agents"] = 3
    made = {"moot": "1.2.3", "command": "moot train --preset=truth --num-agents 3", "host": "here"}
    Run.create(tmp_path / "run", config, made)
    found = about(Watched("run", tmp_path / "run"))
    assert found["made_by"] == {"moot": "1.2.3", "command": made["command"], "host": "here"}
    assert found["preset"] == "truth"
    changed = [setting for setting in found["settings"] if setting["value"] != setting["usual"]]
    assert changed == [{"name": "debate.num_agents", "value": "3", "usual": "8"}]
    config["prompts"]["texts"]["asked.you"] = "You are {agent}."
    Run.create(tmp_path / "texts", config, made)
    assert changed == [
        setting
        for setting in about(Watched("t", tmp_path / "texts"))["settings"]
        if setting["value"] != setting["usual"]
    ], "nobody set the texts: moot had others then"
    Run.create(tmp_path / "own", config, {**made, "command": f"{made['command']} --prompts own.toml"})
    own = [s["name"] for s in about(Watched("o", tmp_path / "own"))["settings"] if s["value"] != s["usual"]]
    assert own == ["prompts.texts.asked.you", "debate.num_agents"]
    Run.create(tmp_path / "older", config, {"moot": "0.0.1"})
    assert (
        about(Watched("older", tmp_path / "older"))["preset"] == "truth"
    )  # the nearest, where the command is not known
