"""What is damaged, or of another version, is told in one line that says where and what to do."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.cli import main
from moot.cli.main import main as run_command
from moot.debate.types import ConfigError
from moot.page.runs import Runs
from moot.records import Damaged, Run
from moot.records.arrays import SHOWN, read_arrays
from moot.rescore import rescore
from moot.rl.config import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.rl.stored import config_of

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


@pytest.mark.parametrize("line", ["123", "{}", "[]", '{"step": 1}', '{"step": "1", "phase": "eval"}', '{"step": 1e999, "phase": "eval"}'])
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
        ConfigError, match=r"the setting 'momentum_of_tomorrow', which this moot does not know; it was made by moot 9\.8\.7"
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
def test_a_record_of_the_wrong_shape_is_a_damaged_line_and_the_others_are_scored(run: Run, part: str, value: Any) -> None:
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


def test_a_checkpoint_of_another_version_is_passed_over_for_an_older_one(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_read_only_file_system_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(run.path / "lock"))

    monkeypatch.setattr("moot.records.lock.os.open", read_only)
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
