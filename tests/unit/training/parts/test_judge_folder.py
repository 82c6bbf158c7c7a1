"""The folder of a judge that learns, not as moot left it: nothing is lost in silence, nothing is believed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import ConfigError
from moot.players.checkpoints import judge_state
from moot.players.find import outsider
from moot.runs import Run
from unit.training.parts.test_judge_training import JUDGED, QUIET, having, judge_rows, trained
from unit.training.test_train import make_setup

LEARNING = having("steps=1,every=1,renewed=1", replace(JUDGED, save_every=1))
LONGER = replace(LEARNING, optim=replace(LEARNING.optim, num_train_datapoints=LEARNING.optim.num_train_datapoints * 2))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return trained(tmp_path / "run", LEARNING).run


def steps(run: Run) -> Path:
    return run.path / "judge" / "steps.jsonl"


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def continued(run: Run) -> None:
    (run.path / "run.json").write_text(json.dumps({**run.header, "config": LONGER.as_dict()}))
    trained(run.path, LONGER)


DAMAGES: dict[str, Callable[[list[str]], list[str]]] = {
    "no object": lambda rows: [rows[0], "[]", *rows[2:]],
    "torn in the middle": lambda rows: [rows[0], rows[1][:20], *rows[2:]],
    "without tokens": lambda rows: [rows[0], '{"step": 1, "state": "000001"}', *rows[2:]],
    "words for numbers": lambda rows: [
        rows[0], json.dumps({**json.loads(rows[1]), "pair_accuracy": "high", "j": 1}), *rows[2:],
    ],
    "a number without end": lambda rows: [json.dumps({**json.loads(rows[0]), "j": 10**400}), *rows[1:]],
    "another step's state": lambda rows: [rows[0].replace('"000000"', '"000002"'), *rows[1:]],
    "one missing": lambda rows: [rows[0], *rows[2:]],
    "all gone": lambda rows: [],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_steps_that_a_checkpoint_needs_and_that_are_damaged_end_the_run_in_one_line(run: Run, damage: str) -> None:
    file = steps(run)
    file.write_text("".join(line + "\n" for line in DAMAGES[damage](lines(file))))
    before = file.read_bytes()
    with pytest.raises(
        ConfigError, match=r"judge has \d of the \d+ steps of the judge .* put back what moot wrote there"
    ):
        continued(run)
    assert file.read_bytes() == before


def test_a_step_that_a_kill_cut_short_is_set_aside_and_taken_again(run: Run) -> None:
    whole = lines(steps(run))
    with steps(run).open("a") as file:
        file.write('{"step": 99, "rew')
    continued(run)
    assert lines(steps(run))[: len(whole)] == whole and len(lines(steps(run))) > len(whole)
    assert lines(run.path / "aside" / "001" / "judge" / "steps.jsonl") == ['{"step": 99, "rew']


def test_going_back_sets_the_later_steps_of_the_judge_aside(run: Run) -> None:
    newest, back = (number for number, _ in run.checkpoints()[:2])
    (run.path / "checkpoints" / f"{newest:06d}" / "state.json").write_text("half")
    whole = lines(steps(run))
    with steps(run).open("a") as file:
        file.write(json.dumps({**json.loads(whole[-1]), "step": len(whole), "state": f"{len(whole):06d}"}) + "\n")
    added = lines(steps(run))[-2:]
    continued(run)
    assert lines(steps(run))[: len(whole)] == whole, "what is done again comes out the same"
    asides = [lines(file) for file in (run.path / "aside").glob("*/judge/steps.jsonl")]
    assert back == newest - 1 and asides == [added]


@pytest.mark.parametrize("parts", ["x", {}, {"judge_training": "x"}, {"judge_training": {"steps": 1e999}}])
def test_an_older_checkpoint_that_knows_no_steps_of_the_judge_ends_no_run(run: Run, parts: object) -> None:
    file = run.checkpoints()[1][1] / "state.json"
    body = json.dumps({**json.loads(json.loads(file.read_text())["body"]), "parts": parts})
    file.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}))
    count = len(lines(steps(run)))
    continued(run)
    assert len(lines(steps(run))) > count


def test_held_out_answers_that_are_damaged_are_not_measured_on(run: Run) -> None:
    file = run.path / "judge" / "held_out.jsonl"
    whole = file.read_text()
    row = json.loads(whole.splitlines()[0])
    for damaged in ("", whole + '{"question', whole + json.dumps({**row, "right": "yes"}), whole + "[]\n"):
        file.write_text(damaged)
        with pytest.raises(ConfigError, match=r"judge/held_out\.jsonl is damaged; put back what moot wrote"):
            continued(run)


@pytest.mark.parametrize("said", ["[]", "{", '{"step": 1e999, "state": "000001"}', "[" * 9000, '{"state": "000001"}'])
def test_a_damaged_name_of_the_judge_that_serves_is_one_line(run: Run, said: str) -> None:
    (run.path / "judge" / "serving.json").write_text(said)
    with pytest.raises(ConfigError, match=r"judge/serving\.json is damaged"):
        judge_state(run)


def test_a_rank_that_a_runs_checkpoints_do_not_have_is_refused_before_memory_is_taken(run: Run, tmp_path: Path) -> None:
    setup = make_setup(tmp_path / "other", QUIET)
    place = run.checkpoints()[0][1]
    (place / "manifest.json").write_text(json.dumps({"lora_rank": 777, "files": {}}))
    own = (setup.engine, setup.rendering)
    for name in (f"{run.path}@judge", str(run.path)):
        with pytest.raises(ConfigError, match=r"lora_rank is .* and 777 in"):
            asyncio.run(outsider(name, "judge", setup.config, own, lambda _: None))


def test_what_was_trained_is_what_is_continued(run: Run) -> None:
    before = judge_rows(trained(run.path, LEARNING))
    assert before == [json.loads(line) for line in lines(steps(run))] and not (run.path / "aside").exists()
