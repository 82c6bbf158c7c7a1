"""A run of somebody else's is data: what it names is run or called only by the user's own word."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.cli import main
from moot.errors import ConfigError
from moot.runs import Run
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tools.rescore import rescore

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=1, num_train_datapoints=2),
    eval_every=0,
)
THEIRS = """
from pathlib import Path
Path(__file__).with_name("executed").touch()
from moot.tasks.arithmetic import *
from moot.tasks import load
def task(seed, held_out):
    return load("arithmetic", seed, held_out)
def reward(debate, answers=None):
    return [0.0] * debate.num_agents
def grader(question, answer):
    return answer == question.answer
"""
Edit = Callable[..., tuple[Path, Path]]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edit:
    """A run in which a setting is changed as somebody else could, and the mark that their code leaves."""
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "theirs.py"
    code.write_text(THEIRS)

    def make(section: str, name: str, value: Any) -> tuple[Path, Path]:
        run = moot.train(CONFIG, tmp_path / "run")
        header = run.header
        settings = header["config"][section] if section else header["config"]
        settings[name] = (
            value.format(code=code) if isinstance(value, str) else [each.format(code=code) for each in value]
        )
        (run.path / "run.json").write_text(json.dumps(header))
        return run.path, tmp_path / "executed"

    return make


SETTINGS = [
    ("protocol", "reward", "{code}:reward"),
    ("protocol", "advantage", "{code}:reward"),
    ("debate", "task", "{code}:task"),
    ("debate", "task", "arithmetic:grader={code}:grader"),
    ("", "parts", ["curriculum:tasks={code}:task"]),
    ("", "parts", ["{code}:Theirs"]),
    ("model", "base_url", "http://127.0.0.1:1/theirs"),
    ("recipe", "judge", "spy@http://127.0.0.1:1/v1"),
]
USES = {
    "reward": ["rescore", "train"],
    "advantage": ["rescore", "train"],
    "task": ["eval", "check", "train"],
    "base_url": ["eval", "check", "train"],
    "judge": ["check", "train"],
}
COMMANDS = {
    "rescore": ["rescore", "{run}"],
    "eval": ["eval", "{run}", "--questions", "2"],
    "check": ["check", "{run}", "--questions", "2"],
    "train": ["train", "--resume", "{run}", "--num-train-datapoints", "3"],
}


@pytest.mark.parametrize(("section", "name", "value"), SETTINGS)
def test_what_a_run_names_is_not_run_or_called_on_its_word_alone(
    section: str, name: str, value: Any, theirs: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    run, executed = theirs(section, name, value)
    name, uses = (
        ("with", ["train"] if "Theirs" in value[0] else ["eval", "check", "train"])
        if name == "parts"
        else (name, USES[name])
    )
    for command in uses:
        capsys.readouterr()
        assert main([word.format(run=run) for word in COMMANDS[command]]) == 2, command
        said = capsys.readouterr().err
        assert f"names code or an address ({name} " in said and "--trust-run" in said and said.count("\n") == 1, (
            command,
            said,
        )
    assert main(["train", "--config", str(run / "run.json"), "--run", "mine"]) == 2
    assert not executed.exists() and not Path("mine").exists()


def test_a_part_of_somebody_elses_is_not_taken_because_another_is_named(
    theirs: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    run, executed = theirs("", "parts", ["{code}:Theirs"])
    named = f"{executed.with_name('theirs.py')}:Theirs"
    for words in (
        ["--config", str(run / "run.json"), "--run", "mine"],
        ["--resume", str(run), "--num-train-datapoints", "4"],
    ):
        assert main(["train", *words, "--with", "distill"]) == 2
        assert f"name it again (--with {named})" in capsys.readouterr().err.replace("\n", "") and not executed.exists()
        assert main(["train", *words, "--with", named]) == 2
        assert "must be a class made of moot.training.part.Part" in capsys.readouterr().err and executed.exists()
        executed.unlink()


@pytest.mark.parametrize(
    ("section", "name", "value"), [("protocol", "reward", "{code}:reward"), ("", "parts", ["{code}:Theirs"])]
)
def test_reading_exporting_and_looking_run_nothing(section: str, name: str, value: Any, theirs: Edit) -> None:
    run, executed = theirs(section, name, value)
    assert main(["export", str(run), "--supervised"]) == 0
    assert main(["export", str(run), "--html"]) == 0
    assert main(["compare", str(run)]) == 0
    assert len(list(Run.open(run).debates())) == 2
    assert not executed.exists()


def test_named_again_or_trusted_it_is_run_and_trust_says_what(theirs: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    run, executed = theirs("debate", "task", "{code}:task")
    named = str(executed.with_name("theirs.py")) + ":task"
    assert main(["eval", str(run), "--questions", "2", "--task", named]) == 0
    assert executed.exists()
    executed.unlink()
    note = f"Note: {{}} is trusted, so this is run or called: task {named}\n"
    for source, command in (
        (run, ["eval", str(run), "--questions", "2"]),
        (run, ["check", str(run), "--questions", "1"]),
        (run, ["train", "--resume", str(run), "--num-train-datapoints", "3"]),
        (run / "run.json", ["train", "--config", str(run / "run.json"), "--run", "mine"]),
    ):
        executed.unlink(missing_ok=True)
        capsys.readouterr()
        assert main([*command, "--trust-run"]) in ((0, 1) if command[0] == "check" else (0,)), command
        assert note.format(source) in capsys.readouterr().err, command
        assert executed.exists(), command


CONFIGS = {
    "shared-recipe.json": lambda code: json.dumps({"config": {"debate": {"task": f"{code}:task"}}}),
    "recipe.yaml": lambda code: f"task: {code}:task\n",
    "reward.yaml": lambda code: f"protocol:\n  reward: {code}:reward\n",
    "grader.yml": lambda code: f"debate: {{task: 'arithmetic:equal={code}:grader'}}\n",
    "judge.yaml": lambda code: "judge: spy@http://127.0.0.1:1/v1\n",
    "url": lambda code: "base_url: http://127.0.0.1:1\nengine: tinker\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_of_settings_is_trusted_by_what_it_names_and_not_by_its_own_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(THEIRS)
    (tmp_path / name).write_text(CONFIGS[name](tmp_path / "theirs.py"))
    for more in ([], ["--dry-run"]):
        assert main(["train", "--config", name, "--run", "mine", *more]) == 2
        said = capsys.readouterr().err
        assert f"{name} names code or an address (" in said and "--trust-run" in said and said.count("\n") == 1, said
    assert not (tmp_path / "executed").exists() and not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    "named",
    [["--task", "theirs.py:task"], ["--reward", "theirs.py:reward"], ["--task", "q.jsonl:grader=theirs.py:grader"]],
)
def test_a_dry_run_loads_no_code_even_of_ones_own(
    named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(THEIRS)
    (tmp_path / "q.jsonl").write_text('{"question": "one?", "answer": "1"}\n')
    assert main(["train", "--engine", "scripted", *named, "--dry-run"]) == 0
    assert "(code, not loaded)" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "executed").exists()


def test_another_task_named_for_an_evaluation_leaves_the_runs_own_alone(theirs: Edit) -> None:
    run, executed = theirs("debate", "task", "{code}:task")
    assert main(["eval", str(run), "--questions", "2", "--task", "arithmetic"]) == 0
    assert not executed.exists()


def test_a_resumed_run_takes_its_code_when_it_is_named_again(theirs: Edit) -> None:
    run, executed = theirs("debate", "task", "{code}:task")
    named = str(executed.with_name("theirs.py")) + ":task"
    assert main(["train", "--resume", str(run), "--num-train-datapoints", "3", "--task", named]) == 0
    assert executed.exists()


def test_the_library_refuses_too_and_a_choice_that_replaces_the_code_is_enough(theirs: Edit) -> None:
    run, executed = theirs("protocol", "reward", "{code}:reward")
    with pytest.raises(ConfigError, match="names code or an address"):
        rescore(Run.open(run), {})
    assert rescore(Run.open(run), {"reward": "win_rate", "advantage": "center_group"}).after.debates == 2
    assert not executed.exists()
