"""The help that a newcomer sees, the spellings that people bring along, and a run in one file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from moot.cli.main import _parse, main, understood
from moot.cli.short_help import SHORT
from moot.cli.spelling import _REWARD
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS
from moot.settings.presets import ABOUT, PRESETS
from moot.tasks import TASKS
from moot.training.parts import about

ESSENTIAL = (
    "--model --task --reward --num-agents --max-rounds --batch-size --num-train-datapoints --learning-rate "
    "--temperature --max-tokens --run --seed --with"
)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", SHORT)
def test_the_help_fits_two_screens_and_says_where_the_rest_is(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, command, "--help")
    assert text == shown(capsys, command, "-h")
    assert len(text.splitlines()) <= 80 and max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1] == f"All options: moot {command} --help-all"


def test_the_help_of_train_has_the_essential_options_and_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--help")
    assert re.findall(r"(?m)^  (--[a-z-]+) [A-Z]+", text) == ESSENTIAL.split()
    assert re.findall(r"(?m)^  ([a-z0-9]+)  +\S", text.split("--preset NAME")[1]) == list(ABOUT)
    assert "Questions per step. (default: 4)" in text
    assert "Questions per step. (default: 32)" in shown(capsys, "train", "--preset", "majority", "--help")


def test_the_whole_help_has_every_option_the_parts_and_the_other_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--help-all")
    others = ("--token-budget", "--deterministic", "--lr ", "--steps")
    assert all(option in text for option in (*ESSENTIAL.split(), *others))
    words = " ".join(text.split())
    assert all(f"{name} {line}" in words for name, line in about().items())
    assert "--match-tokens" in shown(capsys, "eval", "--help-all")


def examples() -> list[str]:
    return [command for short in SHORT.values() for _, command in short.examples]


@pytest.mark.parametrize("line", examples())
def test_every_example_is_understood(line: str) -> None:
    _, command, *options = shlex.split(line)
    understood(command, options)


def test_the_measured_result_is_an_example_with_its_settings() -> None:
    """As docs/experiment.md tells them."""
    (line,) = (command for _, command in SHORT["train"].examples if "2200000" in command)
    typed = "--preset easy --model Qwen/Qwen2.5-Coder-1.5B-Instruct --reward majority --num-agents 8 --max-rounds 1"
    more = "--temperature 0.8 --max-tokens 512 --learning-rate 8e-5 --num-train-datapoints 100000 --max-sampled-tokens 2200000"
    assert _parse("train", shlex.split(line)[2:]).config == _parse("train", f"{typed} {more}".split()).config


def test_truth_is_majority_with_known_answers() -> None:
    majority, truth = PRESETS["majority"], PRESETS["truth"]
    assert majority.protocol.with_choices(reward="truth") == truth.protocol
    assert {name for name, value in vars(majority).items() if value != vars(truth)[name]} == {"protocol"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--lr 1e-5", "--learning-rate 1e-5"),
        ("--lr=1e-5", "--learning-rate=1e-5"),
        ("--agents 5 --rounds 1", "--num-agents 5 --max-rounds 1"),
        ("--group-size 5", "--num-agents 5"),
        ("--max-new-tokens 99", "--max-tokens 99"),
        ("--max_new_tokens 99", "--max-tokens 99"),
        ("--steps 7", "--num-train-datapoints 28"),
        ("--num-steps 7 --batch-size 3", "--batch-size 3 --num-train-datapoints 21"),
        ("--preset easy --steps=2", "--preset easy --num-train-datapoints 64"),
    ],
)
def test_what_people_type_elsewhere_is_the_setting_that_they_mean(typed: str, meant: str) -> None:
    assert _parse("train", typed.split()) == _parse("train", meant.split())


def test_eval_knows_those_of_debates() -> None:
    meant = _parse("eval", ["--num-agents", "5", "--max-tokens", "9"])
    assert _parse("eval", ["--agents", "5", "--max-new-tokens", "9"]) == meant


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--kl-beta 0.1", "--with kl_penalty:coef="),
        ("--checks 8", "use --reward approval:checks=8"),
        ("--vote_margin=0.3", "use --reward approval:vote_margin=0.5"),
        ("--show answer", "use --reward approval:show=answer"),
        ("--opponents 4", "use --reward pairs:opponents=4"),
        ("--num_generations 8", "there is no option --num-generations; use --num-agents"),
        ("--max-completion-length 99", "use --max-tokens"),
        ("--beta 0.04", "use --with kl_penalty:coef="),
        ("--output-dir runs/a", "use --run"),
        ("--num-train-epochs 3", "or in steps of --batch-size questions"),
        ("--epochs 3", "or in steps of --batch-size questions, as in --steps 32"),
        ("--steps 3 --num-train-datapoints 5", "leave one of them out"),
        ("--steps 0", "steps must be at least 1, got 0"),
        ("--steps many", "many"),
    ],
)
def test_the_rest_is_answered_with_what_to_write(typed: str, says: str) -> None:
    for command in ("train", "check"):
        with pytest.raises(ConfigError) as error:
            _parse(command, typed.split())
        assert says in str(error.value)


def test_what_belongs_to_a_reward_is_answered_with_something_that_works() -> None:
    for option, example in _REWARD.items():
        assert option.removeprefix("--").replace("-", "_") in example
        assert _parse("train", ["--reward", example]).config.protocol.scoring.reward == example
    assert _parse("eval", ["runs/a", "--opponents", "base"]).opponents == ("base",), "an evaluation has opponents"


MINE = """
preset: majority
seeds: [0, 1]
run: runs/mine
with: past_selves:share=0.3
engine: scripted
learning_rate: 1e-5
"""


def test_a_run_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    train = _parse("train", [str(file)])
    assert (train.preset, train.seeds, train.run_dir) == ("majority", (0, 1), Path("runs/mine"))
    assert (train.config.debate, train.config.parts) == (PRESETS["majority"].debate, ("past_selves:share=0.3",))
    assert (train.config.optim.learning_rate, train.config.model.engine) == (1e-5, "scripted")
    assert _parse("train", ["--config", str(file)]) == train
    assert _parse("check", [str(file)]).config == train.config


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(MINE)
    train = _parse("train", [str(file), "--preset", "truth", "--seed", "5", "--run", "other", "--lr", "2"])
    assert (train.preset, train.config.protocol.scoring.reward) == ("truth", "truth")
    assert train.config.optim.learning_rate == 2
    assert (train.seeds, train.config.seed, train.run_dir) == ((), 5, Path("other"))
    assert _parse("train", [str(file), "--seeds", "7"]).seeds == (7,)


def test_the_whole_help_goes_by_topic_and_breaks_no_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--help-all")
    assert re.findall(r"(?m)^([a-z].*):$", text) == [
        "the command",
        "what agents read, where a run starts, its parts, and its evaluations",
        "what is said",
        "how votes count",
        "the model, and what runs it",
        "questions, and the size of a debate",
        "how much is learned from, and how",
        "an outside judge, and when a run ends",
        "parts, for --with",
        "other spellings",
    ]
    assert max(map(len, text.splitlines())) <= 80
    assert "  --personas, --no-personas\n" in text and "config." not in text
    assert "parallel: all speak at once, and each sees finished rounds only." in " ".join(text.split())
    assert shown(capsys, "label", "--help-all") == shown(capsys, "label", "--help"), "which has all of it"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--lora-rank 0", "lora_rank must be at least 1, got 0"),
        ("--lora-rank 2000", "lora_rank must be at most 1024, got 2000"),
        ("--eval-questions -3", "eval_questions must be 0 or more, got -3"),
        ("--context-length -1", "context_length must be 0 or more, got -1"),
        ("--max-sampled-tokens -1", "max_sampled_tokens must be 0 or more, got -1"),
        ("--learning-rate nan", "learning_rate must be a number, got nan"),
    ],
)
def test_a_limit_stands_at_its_field(option: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _parse("train", option.split())


def test_help_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Names are taken from where they are known, so that a new one needs no second line."""
    words = " ".join(shown(capsys, "train", "--help-all").split())
    task, advantage, preset = (
        words.split(f" --{name} STR ")[1].split("(default")[0] for name in ("task", "advantage", "preset")
    )
    assert all(name in task for name in TASKS) and all(name in advantage for name in ESTIMATORS)
    assert all(name in preset for name in PRESETS)
