"""Options as people type them who come from other trainers, and the names that they have here."""

from __future__ import annotations

from moot.cli.registry import option_names
from moot.errors import ConfigError
from moot.settings.part_names import part_instead

_DEBATES = {
    "--agents": "--num-agents",
    "--group-size": "--num-agents",
    "--rounds": "--max-rounds",
    "--max-new-tokens": "--max-tokens",
}
_TRAINING = {"--lr": "--learning-rate", "--num-steps": "--steps"}
_EPOCHS = (
    "; a run is counted in questions, as in --num-train-datapoints 1024, or in steps of --batch-size questions, "
    "as in --steps 32"
)
_REWARD = {
    "--checks": "approval:checks=8",
    "--vote-margin": "approval:vote_margin=0.5",
    "--show": "approval:show=answer",
    "--opponents": "pairs:opponents=4",
}
"""Settings that belong to a reward, and an example of each."""
_OTHERS = {
    "--ballot": "--reward approval:checks=4, or --reward pairs",
    "--judge-steps": "--with judge_training:steps=16",
    "--judge-reward": "--with judge_training:reward=planted",
    **dict.fromkeys(("--num-generations", "--rollout-n", "--n-samples"), "--num-agents"),
    **dict.fromkeys(("--max-completion-length", "--max-response-length", "--response-length"), "--max-tokens"),
    **dict.fromkeys(("--model-name", "--model-name-or-path"), "--model"),
    **dict.fromkeys(("--dataset", "--dataset-name", "--train-file"), "--task"),
    **dict.fromkeys(("--per-device-train-batch-size", "--train-batch-size"), "--batch-size, in questions"),
    "--beta": "--with kl_penalty:coef=0.001",
    **dict.fromkeys(("--warmup-steps", "--warmup-ratio"), "--with lr_schedule:warmup=5"),
    "--lr-scheduler-type": "--with lr_schedule:shape=cosine",
    "--reward-funcs": "--reward",
    "--output-dir": "--run",
    "--max-steps": "--steps",
    "--eval-steps": "--eval-every, in steps",
    "--save-steps": "--save-every, in steps",
    "--lora-r": "--lora-rank",
    "--report-to": "--log",
    "--resume-from-checkpoint": "--resume RUN",
    **dict.fromkeys(
        ("--gpus", "--num-gpus", "--n-gpus", "--nproc-per-node"),
        "one run for each GPU, as in CUDA_VISIBLE_DEVICES=1 moot train --seed 1 --run seed-1, or a server that has "
        "several: --engine tinker --base-url URL",
    ),
}
"""What is asked for here in other words."""


def respelled_ballot(arguments: list[str]) -> list[str]:
    """For commands that ask a judge and pay nobody."""
    if given := sorted(option_names(arguments) & _REWARD.keys()):
        raise ConfigError(f"there is no option {given[0]}; it belongs to the ballot: use --ballot {_REWARD[given[0]]}")
    return arguments


def other_spellings(command: str) -> dict[str, str]:
    """What people type, and what is meant."""
    if command == "eval":
        return _DEBATES
    return {**_DEBATES, **_TRAINING, "--steps": "--num-train-datapoints, divided by --batch-size"}


def respelled(arguments: list[str], command: str) -> list[str]:
    """The same options by the names that they have here. One that is known and none of ours is answered with ours."""
    names = _DEBATES if command == "eval" else _DEBATES | _TRAINING
    for name in sorted(option_names(arguments)) if command != "eval" else ():
        if instead := _instead(name):
            raise ConfigError(f"there is no option {name}{instead} (moot {command} --help)")
    return [_respelled(argument, names) for argument in arguments]


def _instead(name: str) -> str:
    """What to write for an option that training does not have, as the end of a sentence; empty where nothing is
    known."""
    if name in ("--epochs", "--num-epochs", "--num-train-epochs", "--total-epochs"):
        return _EPOCHS
    if name in _REWARD:
        return f"; it belongs to a reward: use --reward {_REWARD[name]}"
    if name in _OTHERS:
        return f"; use {_OTHERS[name]}"
    return part_instead(name)


def _respelled(argument: str, names: dict[str, str]) -> str:
    name, equals, value = argument.partition("=")
    option = names.get(name.replace("_", "-"))
    return argument if option is None else f"{option}{equals}{value}"
