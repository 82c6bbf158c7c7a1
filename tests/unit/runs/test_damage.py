"""What is damaged, or of another version, is told in one line that says where and what to do."""

import hashlib
import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.cli import main
from moot.cli.main import main as run_command
from moot.errors import ConfigError
from moot.evaluate.figures import Panel
from moot.evaluate.report import Report, ReportRow
from moot.evaluate.store import AnswerStore, SampleKey
from moot.page.runs import Runs
from moot.rl.alarms import Alarms
from moot.runs import Damaged, Run
from moot.runs.arrays import SHOWN, read_arrays
from moot.settings.saved import config_of
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tools.rescore import rescore
from moot.training.parts.frozen_labels import Label, known_labels

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=1, num_train_datapoints=4),
    eval_every=0,
    save_every=1,
)
AGAIN = {"reward": "win_rate", "advantage": "center_group"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return moot.train(CONFIG, tmp_path / "run")


def change_header(run: Run, **parts: Any) -> None:
    header = {**run.header, **parts}
    (run.path / "run.json").write_text(json.dumps({name: value for name, value in header.items() if value is not None}))


def change_first_debate(run: Run, step: int, **parts: Any) -> None:
    file = run.path / "debates" / f"{step:06d}.jsonl"
    first, *rest = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(first), **parts}), *rest]) + "\n")


@pytest.mark.parametrize(
    "line", ["123", "{}", "[]", '{"step": 1}', '{"step": "1", "phase": "eval"}', '{"step": 1e999, "phase": "eval"}']
)
def test_a_line_of_the_metrics_that_is_no_row_is_left_out(run: Run, line: str) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]


def test_a_run_json_without_config_or_protocol_is_called_damaged(run: Run) -> None:
    config = run.config
    change_header(run, config={name: value for name, value in config.items() if name != "protocol"})
    with pytest.raises(ConfigError, match=r"run\.json is damaged: it has no protocol"):
        config_of(run)
    change_header(run, config=None)
    with pytest.raises(ConfigError, match=r"run\.json is damaged: it has no config"):
        config_of(run)


def test_a_newer_versions_setting_is_named_with_the_version_that_wrote_it(run: Run) -> None:
    config = run.config
    config["optim"]["momentum_of_tomorrow"] = 0.5
    change_header(run, config=config, made_by={"moot": "9.8.7"})
    with pytest.raises(
        ConfigError,
        match=r"the setting 'momentum_of_tomorrow', which this moot does not know; it was made by moot 9\.8\.7",
    ):
        config_of(run)


@pytest.mark.parametrize(
    ("section", "name", "value"), [("optim", "batch_size", 1e999), ("debate", "num_agents", "3"), ("model", "model", 5)]
)
def test_a_value_of_the_wrong_kind_is_named(run: Run, section: str, name: str, value: Any) -> None:
    config = run.config
    config[section][name] = value
    change_header(run, config=config)
    with pytest.raises(ConfigError, match=r"run\.json"):
        config_of(run)


def test_one_run_with_an_endless_batch_does_not_hide_the_others_on_the_page(run: Run) -> None:
    config = run.config
    config["optim"]["batch_size"] = 1e999
    change_header(run, config=config)
    moot.train(CONFIG, run.path.parent / "second")
    table = {each.name: each.summary() for each in Runs([run.path.parent]).all().values()}
    assert {name: summary["total"] for name, summary in table.items()} == {"run": None, "second": 4}


@pytest.mark.parametrize(
    ("part", "value"),
    [("rewards", {"generator": [[0.0, 0.0]], "judge": [[0.0, 0.0]]}), ("rewards", [1.0]), ("rewards", 5), ("advantages", [0.5]),
     ("num_agents", 10**12), ("votes", [{"turn": 0, "left_turn": 0, "right_turn": 1, "verdict": "?"}]), ("turns", {"a": 1}),
     ("question", "what?")],
)  # fmt: skip
def test_a_record_of_the_wrong_shape_is_a_damaged_line_and_the_others_are_scored(
    run: Run, part: str, value: Any
) -> None:
    change_first_debate(run, 2, **{part: value})
    found = rescore(run, AGAIN)
    assert (found.after.debates, found.damaged_lines) == (3, 1)
    assert [type(each) for each in run.debates([2])] == [Damaged]
    assert main(["export", str(run.path), "--supervised", "--html"]) == 1


def test_a_debates_file_that_is_no_text_is_counted_and_passed_over(run: Run) -> None:
    (run.path / "debates" / "000002.jsonl").write_bytes(bytes(range(256)))
    assert rescore(run, AGAIN).after.debates == 3


def test_files_with_odd_names_are_nobodys(run: Run) -> None:
    for name in ("notes.jsonl", "१२.jsonl", "²³.jsonl", "99999999999999999999.jsonl", "7.jsonl"):
        (run.path / "debates" / name).write_text("{}\n")
    (run.path / "debates" / "000009.jsonl").mkdir()
    assert run.steps() == [1, 2, 3, 4]
    (run.path / "debates" / "000009.jsonl").rmdir()
    config = run.config
    config["optim"]["num_train_datapoints"] = 5
    change_header(run, config=config)
    moot.train(config_of(run), run.path)
    assert (run.path / "debates" / "notes.jsonl").exists() and run.steps() == [1, 2, 3, 4, 5]


def test_a_checkpoint_of_another_version_is_passed_over_for_an_older_one(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.checkpoint_place(5)
    (run.path / "checkpoints" / "000005.tmp" / "scripted.json").write_text('{"steps": 1, "trained_tokens": 1}')
    run.commit_checkpoint(5, {"metrics": {"step": 5, "phase": "self_play"}, "alarms": "of tomorrow"}, keep=True)
    assert run_command(["train", "--resume", str(run.path), "--num-train-datapoints", "6"]) == 0
    assert "000005 cannot be used" in "".join(capsys.readouterr()).replace("\n", "")
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("folder", ["run/metrics.jsonl", "nowhere"])
def test_a_run_that_is_a_file_or_nothing_is_named(run: Run, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["rescore"], ["export"], ["compare"], ["eval"], ["check"], ["train", "--resume"]):
        assert main([*command, str(run.path.parent / folder)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and folder in said


def test_a_read_only_file_system_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(run.path / "lock"))

    monkeypatch.setattr("moot.runs.lock.os.open", read_only)
    assert main(["train", "--resume", str(run.path), "--num-train-datapoints", "6"]) == 1
    assert capsys.readouterr().err == f"moot: {run.path / 'lock'}: read-only file system\n"


def test_an_array_that_claims_a_trillion_entries_takes_no_memory(run: Run) -> None:
    file = run.path / "debates" / "000001.npz"
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1, dtype=np.int32)) | {"shape": (10**12,)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            with archive.open(name, "w") as member:
                if name == "tokens.npy":
                    np.lib.format.write_array_header_1_0(member, header)
                else:
                    member.write(content)
    with pytest.raises(ValueError, match=r"tokens in 000001\.npz claims 1,000,000,000,000 entries"):
        read_arrays(file, SHOWN)


def test_tokens_cut_short_or_no_archive_at_all_are_damage(run: Run) -> None:
    file = run.path / "debates" / "000001.npz"
    for content in (file.read_bytes()[:200], b"", b"PK\x03\x04 nothing"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"000001\.npz cannot be read"):
            read_arrays(file, SHOWN)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("offsets", np.array([0, 5])),
        ("offsets", np.array([[0]])),
        ("tokens", np.array("text")),
        ("starts", np.array(["a"])),
        ("turn", np.zeros(0)),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_damage(run: Run, name: str, odd: Any) -> None:
    file = run.path / "debates" / "000001.npz"
    with np.load(file) as given:
        arrays = dict(given)
    assert set(SHOWN) <= read_arrays(file, SHOWN).keys()
    np.savez(file, **{**arrays, name: odd})
    with pytest.raises(ValueError, match=r"000001\.npz cannot be read"):
        read_arrays(file, SHOWN)


# Of another shape


@pytest.mark.parametrize("sampled", [1e999, 10**400, -1])
def test_a_sealed_checkpoint_that_counts_without_end_is_passed_over(run: Run, sampled: float) -> None:
    file = run.checkpoints()[0][1] / "state.json"
    body = json.dumps({**json.loads(json.loads(file.read_text())["body"]), "sampled": sampled})
    file.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}))
    assert main(["train", "--resume", str(run.path), "--num-train-datapoints", "5"]) == 0
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert (run.path / "aside" / "001" / "checkpoints" / "000004").is_dir()


def test_labels_of_another_shape_are_asked_for_again(run: Run) -> None:
    label = Label(0, 3, "7", 1.0, 5)
    odd = [
        asdict(label) | {name: value} for name in asdict(label) for value in ([], {}, 5 if name == "answer" else "x")
    ]
    rows = [{"level": 0}, asdict(label) | {"of_tomorrow": 1}, [], "text", *odd, asdict(label)]
    (run.path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert known_labels(run.path / "labels.jsonl") == {(0, 3): label}


NO_ROWS = {"format": 1, "settings": {}, "rows": [], "trust": {}}


@pytest.mark.parametrize(
    "odd", [[], {"format": 1}, NO_ROWS, "deep", NO_ROWS | {"rows": 5}, NO_ROWS | {"settings": [1]}]
)
def test_a_held_out_report_of_another_shape_is_left_out_of_the_summary(
    tmp_path: Path, odd: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = moot.train(replace(CONFIG, eval_every=1, eval_questions=2), tmp_path / "run")
    run.held_out_report(4).write_text("[" * 5000 if odd == "deep" else json.dumps(odd))
    assert main(["train", "--resume", str(run.path)]) == 0
    assert "Self-play moved" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["metrics", "k", "tokens", "by_question", "difference", "name"])
@pytest.mark.parametrize("odd", [[1], {"accuracy": 5}, {"accuracy": {"value": "high", "low": 0, "high": 1}}, 10**400])
def test_a_saved_evaluation_of_another_shape_is_one_line(tmp_path: Path, part: str, odd: Any) -> None:
    row = ReportRow(
        "direct",
        1,
        1,
        0,
        5.0,
        {"accuracy": {"value": 1.0, "low": 1.0, "high": 1.0}},
        None,
        {"accuracy": {"q": (1.0, 1.0)}},
    )
    report = Report({"step": 3}, [row], {}).as_dict()
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert Report.read(tmp_path / "report.json").rows[0].name == "direct"
    report["rows"][0][part] = odd
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ConfigError, match=r"report\.json is not a saved evaluation: .*; evaluate again"):
        Report.read(tmp_path / "report.json")


@pytest.mark.parametrize("name", ["debates", "right_answers", "best_vote_rate"])
@pytest.mark.parametrize("odd", ["12", None, [1], {}])
def test_alarms_of_another_shape_make_a_checkpoint_one_of_another_version(name: str, odd: Any) -> None:
    alarms = Alarms()
    alarms.update([])
    state = alarms.state()
    assert Alarms.from_state(json.loads(json.dumps(state))) == alarms
    (state if name in state else state["window"][0])[name] = odd if name != "best_vote_rate" or odd != "12" else "x"
    with pytest.raises((TypeError, ValueError)):
        Alarms.from_state(state)


@pytest.mark.parametrize("odd", [{"agent": [0]}, {"round": "1"}, {"text": 5}, {"stop": None}])
def test_kept_answers_of_another_shape_are_asked_for_again(tmp_path: Path, odd: dict[str, Any]) -> None:
    turn = {"round": 1, "agent": 0, "text": "", "stop": "stop"}
    rows = [
        {"settings": "s", "question": "q", "number": 0, "turns": [turn], "tokens": 5},
        {"settings": "s", "question": "q", "number": 1, "turns": [turn, turn | odd], "tokens": 5},
        {"settings": "s", "question": "q", "number": 2, "text": "7", "stop": [], "tokens": 5},
        {"settings": "s", "question": "q", "number": 3, "text": "7", "stop": "stop", "tokens": 5},
        {"settings": "s", "question": "q", "number": 4, "text": "7", "stop": "stop", "tokens": 10**400},
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = AnswerStore(tmp_path / "answers.jsonl")
    assert [number for number in range(5) if store.get(SampleKey("s", "q", number))] == [0, 3]


def test_metrics_larger_than_a_float_are_no_metrics(run: Run, tmp_path: Path) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 5, "phase": "self_play", "tokens/sampled": 10**400, "env/all/reward/total": 10**30})
            + "\n"
        )
    assert run.metrics()[-1] == {"step": 5, "phase": "self_play", "env/all/reward/total": 10**30}
    assert main(["compare", str(run.path), "--no-figure", "--out", str(tmp_path / "out")]) == 0
    assert (
        Panel("", "", "self_play", "tokens/sampled").value({"step": 5, "phase": "self_play", "tokens/sampled": 10**400})
        is None
    )


def test_files_nested_without_end_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("a: " + "[" * 5000 + "]" * 5000)
    (tmp_path / "c.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    (tmp_path / "p.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    for option in (("--config", "c.yaml"), ("--config", "c.json"), ("--prompts", "p.toml")):
        assert main(["train", option[0], str(tmp_path / option[1]), "--dry-run", "--engine", "scripted"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and option[1] in said


def test_transcripts_cost_what_they_are_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two hundred lines of silent agents, 30 KB, took 40 seconds and a gigabyte."""
    line = {"question": "q", "num_agents": 10_000, "turns": []}
    lines = [line, {**line, "num_agents": 3}, line, {**line, "num_agents": 3}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert main(["score", "--json", str(tmp_path / "t.jsonl")]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(each)["line"] for each in out.splitlines()] == [1, 2, 4]
    assert (
        err.startswith("line 3: num_agents of all lines adds up to more than the file is long") and err.count("\n") == 1
    )
