"""What a new user tries in the first hour: it is refused at once, in one line that names the fix, or it does what was said."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli.evaluate import Eval
from moot.cli.main import main
from moot.cli.progress import _nothing_learned
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.players.create import create_engine
from moot.rl.checks import check_warm_start
from moot.runs import PlayedDebate, Run
from moot.settings.presets import PRESETS
from moot.settings.train import ModelConfig, TrainConfig
from moot.tasks import load as load_task
from support.making import FAILED, debate, v2

NOBODY = "nobody@http://127.0.0.1:1/v1"
SHORT = ("train", "--engine", "scripted", "--warm-questions", "0", "--num-train-datapoints", "2", "--batch-size", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit status, and what stands on standard error: one line."""
    status = main(list(words))
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return status, error


# What was tried is what is trained


def test_a_model_is_evaluated_as_it_would_be_trained_and_a_run_as_it_was() -> None:
    config = TrainConfig()
    assert config.protocol.rules.sections == "sampled", "what a run of old has"
    ways = {
        "asked": [(Eval(), False), (Eval(protocol="v2"), False), (Eval(sections="asked"), True)],
        "sampled": [(Eval(), True), (Eval(protocol="v1"), False), (Eval(sections="sampled"), False)],
    }
    for way, asked in ways.items():
        assert [options._settings(config, trained).protocol.rules.sections for options, trained in asked] == [way] * 3
    assert PRESETS["easy"].protocol.rules.sections == "asked"


LOADING = [
    ("train", "--dry-run"), ("train",), ("eval",), ("check", "--questions", "1"), ("ask", "1 + 1?"), ("judge",),
]  # fmt: skip


@pytest.mark.parametrize("command", LOADING, ids=lambda command: " ".join(command[:2]))
def test_an_adapter_or_a_run_is_no_model(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    status, error = said(capsys, *command, "--model", "adapter")
    assert (
        status == 2
        and "model adapter is the folder of an adapter, not of a model" in error
        and "moot export RUN --merged" in error
    )
    Run.create(Path("mine"), PRESETS["demo"].as_dict(), {})
    status, error = said(capsys, *command, "--model", "mine")
    assert status == 2 and "moot export mine --merged, then --model mine/export/merged" in error
    status, error = said(capsys, *command, "--model", "mine/checkpoints")
    assert status == 2 and "model mine/checkpoints is a folder without a model: it has no config.json" in error
    status, error = said(capsys, *command, "--model", "./mime")
    assert status == 2 and "model ./mime: no such folder" in error
    assert not Path("runs").exists() and not Path("evals").exists()


def test_a_judge_that_nobody_answers_for_is_found_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("an engine was made")

    monkeypatch.setattr("moot.players.find.create_engine", never)
    status, error = said(capsys, *SHORT, "--judge", NOBODY, "--voters", "judges")
    assert status == 2 and f"judge or opponent {NOBODY} cannot be reached" in error and not Path("runs").exists()
    advocates = ("eval", "--engine", "scripted", "--protocol", "advocates", "--modes", "judge", "--task", "arithmetic")
    status, error = said(capsys, *advocates, "--judge", NOBODY)
    assert status == 2 and "cannot be reached" in error and not Path("evals").exists()


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ("mine@7", "judge: the run mine has no whole checkpoint of step 7; it has none"),
        ("http://localhost:8000/v1", "judge must be MODEL@URL, got 'http://localhost:8000/v1'; for example qwen3@http"),
        ("mine@judge", "mine has no judge of its own: it was not trained with judge_training"),
        ("mine@best", "mine has no best checkpoint"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_no_judge_and_leaves_no_run_behind(
    judge: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the same command with the right name would meet a run of other settings."""
    monkeypatch.chdir(tmp_path)
    Run.create(Path("mine"), PRESETS["demo"].as_dict(), {})
    status, error = said(capsys, *SHORT, "--engine", "scripted", "--reward", "approval", "--judge", judge)
    assert status == 2 and why in error and not Path("runs").exists()


def test_a_logger_that_is_not_installed_is_found_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "wandb" else there(name, *_))
    for dry in ((), ("--dry-run",)):
        status, error = said(capsys, *SHORT, "--log", "wandb", *dry)
        assert status == 2 and "pip install 'moot[wandb]'" in error and not Path("runs").exists()


def test_check_does_not_give_the_agents_figure_for_the_judges(capsys: pytest.CaptureFixture[str]) -> None:
    check = ("check", "--engine", "scripted", "--questions", "4", "--voters", "judges", "--json")
    status, error = said(capsys, *check, "--judge", NOBODY)
    assert status == 2 and f"judge {NOBODY} cannot be reached" in error and not Path("evals").exists()
    main([*check, "--judge", "base"])
    out, _ = capsys.readouterr()
    named = [each["check"] for each in json.loads(out)["checks"]]
    assert "judge accuracy" not in named and "judge base, lines, solution" in named


def test_a_log_says_what_is_being_loaded_before_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise ConfigError("it did not load")

    monkeypatch.setattr("moot.players.find.create_engine", gone)
    assert main([*SHORT, "--engine", "local", "--model", "large-model"]) == 2
    assert "loading large-model\n" in capsys.readouterr().out
    assert main([*SHORT, "--model", "large-model"]) == 2
    assert "loading scripted\n" in capsys.readouterr().out, "a script has no model to load"


def test_a_checker_with_worked_solutions_can_be_taught_by_right_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Near a right answer another may be right as well, so there are no wrong ones to teach."""
    monkeypatch.chdir(tmp_path)
    Path("even.py").write_text("def even(question, answer):\n    return answer in ('2', '4', '6')\n")
    rows = [{"question": f"Name an even number, not {n}.", "solution": "It is \\boxed{2}."} for n in range(10)]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    warm = [*SHORT, "--task", "q.jsonl:grader=even.py:even", "--warm-questions", "2", "--run", "a"]
    status, error = said(capsys, *warm)
    assert status == 2 and "wrong answers beside right ones" in error and "--with warm_start:wrong=none" in error
    assert main([*warm, "--with", "warm_start:wrong=none"]) == 0


# Mistakes that were answered with something else than their fix


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("--seeds", "0", "1", "--seed", "3"), "--seeds trains once with each of its seeds"),
        (("--seeds", "0,1,2"), "as in --seeds 0 1 2, got 0,1,2"),
        (("--seeds=4,5",), "as in --seeds 4 5, got 4,5"),
        (("--run", "/proc/x"), "run /proc/x: no folder can be made in /proc"),
        (("--task", "mine.jsonl"), "name yours, as in mine.jsonl:question=q,answer=a"),
        (("--config", "mine.yaml"), "there is no setting 'log'; name it on the command line, --log"),
        (("--gpus", "2"), "use one run for each GPU, as in CUDA_VISIBLE_DEVICES=1 moot train"),
        (("--engine", "local", "--model", "adapter"), "train on from it with moot train --from adapter, or join"),
        (("--judge", "base@"), "judge 'base@': before the @ stands no run, and behind it no address"),
        (("--num-agents", "2"), "num_agents must be at least 3 to train, got 2: with fewer nobody can vote"),
        (("--num-agents", "2", "--reward", "majority"), "with fewer the reward majority compares too few"),
    ],
)
def test_the_fix_is_named(typed: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.jsonl").write_text('{"q": "1 + 1?", "a": "2"}\n' * 6)
    Path("mine.yaml").write_text("log: [wandb]\n")
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    status, error = said(capsys, *SHORT, *typed)
    assert status == 2 and answer in error and not Path("runs").exists()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("ask", "--file", "q.jsonl"), "this asks one question; for a file, moot label FILE"),
        (("label", "q.jsonl", "--n", "3"), "there is no option --n; use --k for the answers per question"),
        (("label", "a.jsonl", "b.jsonl"), "one file at a time, got a.jsonl and b.jsonl"),
    ],
)
def test_what_is_meant_is_named_though_no_option_is_spelled_like_it(
    typed: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, error = said(capsys, *typed)
    assert status == 2 and answer in error and error.count("\n") == 1


def test_a_misspelled_part_is_named_where_a_run_is_there_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--run", "there"]) == 0
    capsys.readouterr()
    status, error = said(capsys, *SHORT, "--run", "there", "--with", "past_selfs")
    assert status == 2 and "got 'past_selfs'; did you mean past_selves?" in error


def test_a_dry_run_says_of_too_few_questions_for_the_warm_start_what_the_run_would(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"question": f"{n}?", "answer": str(n), "solution": f"It is {n}."} for n in range(6)]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [*SHORT, "--task", "mine.jsonl", "--with", "warm_start:wrong=none", "--warm-questions", "500", "--dry-run"]
    assert main(asked) == 0
    assert caplog.text.count("warm_questions is 500, and task mine has 5 questions") == 1


def test_the_fix_that_is_named_works() -> None:
    Path("mine.jsonl").write_text("".join(f'{{"q": "{i} + 1?", "a": "{i + 1}"}}\n' for i in range(6)))
    question = load_task("mine.jsonl:question=q,answer=a", 0, 1).train(0)
    assert question.answer == str(int(question.text.split()[0]) + 1)


def test_more_warm_questions_than_there_are_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Path("mine.jsonl").write_text(
        "".join(f'{{"question": "{i}?", "answer": "{i}", "solution": "It is {i}."}}\n' for i in range(6))
    )
    task = load_task("mine.jsonl", 0, 1)
    for count, told in ((500, True), (len(task.training), False)):
        caplog.clear()
        config = replace(TrainConfig(), warm_questions=count, parts=("warm_start:wrong=none",))
        check_warm_start(config, task)
        assert (f"warm_questions is {count}, and task mine has 5 questions" in caplog.text) == told


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ("truth", "in every debate all agents were right, or none was, so the reward truth had nothing to prefer"),
        ("majority", "in every debate all agents gave one answer, or no two the same"),
        ("generator_judge", "nothing was learned from votes. Try a longer warm start"),
        ("approved", "the judge's scores paid all agents of a debate alike under the reward approved. Compare judges"),
    ],
)
def test_why_nothing_was_learned_fits_the_reward(reward: str, why: str) -> None:
    told = _nothing_learned(replace(PRESETS["demo"], protocol=PRESETS["demo"].protocol.with_choices(reward=reward)))
    assert why in told and ("votes" in told) == (reward == "generator_judge")


def test_a_model_that_is_nowhere_is_told_in_one_line_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from moot.engine.local import model_files

    monkeypatch.setattr(model_files, "hub_answers", lambda: False)
    monkeypatch.setattr(model_files.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("the hub was asked"))
    with pytest.raises(
        ConfigError, match="it is not on this machine, and the model hub cannot be reached; --model FOLDER"
    ) as told:
        create_engine(ModelConfig("nobody/nothing-7b"))
    assert len(str(told.value).splitlines()) == 1
    monkeypatch.setattr(model_files, "hub_answers", lambda: True)
    assert model_files.local_copy("nobody/nothing-7b") == "nobody/nothing-7b"


def test_a_debate_prints_in_a_line() -> None:
    tabled = debate(v2(), [["", "", ""], ["2 > 1", "2 > 0", FAILED]], [["7", "7", "8"]] * 2)
    played = Debate(tabled.question, 3, 2, tabled.rules, tabled.turns)
    long = replace(played, question=replace(played.question, text="Why? " * 100))
    assert (
        str(played)
        == f"Debate({played.question.text!r}: 3 agents, 2 of 2 rounds, 6 turns (1 cannot be read), votes 2 > 1, 2 > 0)"
    )
    assert len(f"{long!r}") < 200 and str(PlayedDebate(long)) == f"Played{long}"
    assert "0 of 2 rounds, 0 turns, votes none" in str(replace(played, turns=()))
