"""`moot train`: from a configuration to a run on disk, with something to look at on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from moot.cli.console import Terminal
from moot.cli.ending import Ended, complain, interruptible, kept
from moot.cli.loggers import Loggers, check_names, log_in
from moot.cli.registry import TASK_NAMES, OtherProtocol, describe, option_names
from moot.debate.prompts import temperature as seat_temperature
from moot.debate.protocols import PRESETS as PROTOCOLS
from moot.debate.scoring import Scoring, judge_warning, listed
from moot.errors import ConfigError
from moot.players.checkpoints import split_name
from moot.players.start import model_of
from moot.players.untrusted import AGAIN, check_trusted, trained_names
from moot.rl.lookup import estimator_names
from moot.runs import Run
from moot.runs.lock import locked
from moot.settings.changes import change_settings, is_finished
from moot.settings.file import RunFile, read_run_file, with_settings
from moot.settings.presets import PRESETS, find_preset
from moot.settings.saved import config_of
from moot.settings.train import DebateConfig, TrainConfig
from moot.training.parts import find_parts, fitting
from moot.training.setup import check_folder, check_named
from moot.training.state import Setup
from moot.training.together import carry_out_together, prepare_together

_DEFAULT = "demo"
describe(DebateConfig, "task", f"Where questions come from: {TASK_NAMES}")
describe(Scoring, "advantage", f"{estimator_names()}; auto is the one that belongs to the reward.")


@dataclass(frozen=True)
class Train:
    """Train a model by debate: self-play, peer votes, policy gradient; on this machine or on a server.

    Start from a preset and change what you like. Running the same command again continues where the run stopped; so
    does
    --resume RUN. Everything is kept under the run's folder.
    """

    preset: Annotated[str, tyro.conf.arg(help=f"Where the other defaults come from: {listed(PRESETS)}.")] = _DEFAULT
    protocol: OtherProtocol = None
    """The rules of the debates and how votes count, all at once; the preset's if not given. Single choices below win
    over it."""
    config_file: Annotated[Path | None, tyro.conf.arg(name="config", metavar="FILE", help_behavior_hint="")] = None
    """Settings from a YAML file, which may name preset, seeds and run too, or from a run's run.json; `moot train FILE`
    is the same. Options on the command line win over it."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=lambda: PRESETS[_DEFAULT])
    """What agents read, where a run starts, its parts, and its evaluations."""
    run_dir: Annotated[Path | None, tyro.conf.arg(name="run", metavar="DIR", help_behavior_hint="")] = None
    """The run's folder; runs/PRESET-TASK-seedSEED if not given."""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT [INT ...]", help_behavior_hint="")] = ()
    """Train once with each of these seeds, all at once on one copy of the model; each run's folder ends in its seed."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """Continue this run with the settings it was started with. --num-train-datapoints makes it longer."""
    checkpoint: Annotated[int | None, tyro.conf.arg(metavar="STEP", help_behavior_hint="(default: newest)")] = None
    """Continue from the checkpoint of this step; the steps after it are moved aside."""
    restart: bool = False
    """Begin again at step 0 in the same folder; what is there is moved to RUN/aside, where it is still a run."""
    trust_run: bool = False
    """With --resume or --config: run the code and call the addresses that the run or the file names, and print them."""
    dry_run: bool = False
    """Print the plan, with tokens and memory, and stop. No code of yours is loaded."""
    log: tuple[str, ...] = ()
    """Where to log besides metrics.jsonl: tensorboard, wandb, trackio, mlflow; with settings as in
    wandb:project=mine,run=abc. A run that continues is the same run there."""

    def run(self, beside: Sequence[Train] = ()) -> int:
        """Also what is asked for beside it, all at once; runs with the same settings of the model share it."""
        return _train_all([self, *beside])

    def _by_seed(self) -> list[Train]:
        base = self.run_dir or Path("runs") / f"{self.preset}-{_folder(self.config.debate.task)}"
        return [
            replace(
                self,
                seeds=(),
                config=replace(self.config, seed=seed),
                run_dir=base.with_name(f"{base.name}-seed{seed}"),
            )
            for seed in self.seeds
        ] or [self]

    def _without_training(self, config: TrainConfig, run_path: Path, console: Terminal) -> int | None:
        """The exit status where nothing is to be trained: a dry run, or a run that is finished."""
        from moot.cli.progress import summary

        for note in filter(None, (demo_elsewhere(self.preset, config), started_elsewhere(config))):
            if self.resume is None:
                console.note(note)
        if self.dry_run:
            from moot.cli.plan import show_plan

            check_named(config, run_path, run_code=False)
            show_plan(config, run_path, console)
            return 0
        begun = Run.exists(run_path) and not self.restart and self.checkpoint is None
        if not begun or not is_finished(Run.open(run_path), config):
            return None
        console.say(f"Run: {run_path}")
        longer = f"moot train --resume {run_path} --num-train-datapoints {2 * config.optim.num_train_datapoints}"
        console.say(f"This run is finished: {config.total_steps} steps. Make it longer with: {longer}", "green")
        return summary(Run.open(run_path), config, console)

    def _settings(self, console: Terminal) -> tuple[TrainConfig, Path]:
        if self.resume is not None:
            if self.run_dir is not None:
                raise ConfigError(f"--resume {self.resume} names the run already; leave --run out")
            with nullcontext() if self.dry_run else locked(self.resume):
                notes = change_settings(Run.open(self.resume), self.config, write=not self.dry_run)
            for note in notes:
                console.note(note)
            return self.config, self.resume
        path = self.run_dir or Path("runs") / f"{self.preset}-{_folder(self.config.debate.task)}-seed{self.config.seed}"
        if path.exists() and not path.is_dir():
            raise ConfigError(f"--run must name a folder, and {path} is a file; name another")
        if self.checkpoint is not None and not Run.exists(path):
            raise ConfigError(f"checkpoint {self.checkpoint} is of a run to continue, and {path} holds none")
        if self.restart:
            return self.config, path
        check_folder(path, self.config, f"name another --run, or continue with: moot train --resume {path}")
        return self.config, path


def _train_all(asked: list[Train]) -> int:
    for train in asked:
        if train.restart and train.checkpoint is not None:
            raise ConfigError("--restart begins at step 0, and --checkpoint continues; leave one of them out")
        if train.seeds and train.resume is not None:
            raise ConfigError("seeds are for new runs; continue each run by itself with --resume RUN")
        check_names(train.log)
        for name in ("restart", "checkpoint", "log", "dry_run"):
            if getattr(train, name) != getattr(asked[0], name):
                raise ConfigError(f"--{name.replace('_', '-')} holds for all runs; say it before the first --")
    console = Terminal()
    plan: list[tuple[TrainConfig, Path]] = []
    status = 0
    for train in asked:
        say_trusted(train.trust_run, train.resume or train.config_file, trained_names(train.config))
        for run in train._by_seed():
            find_parts(run.config, users=False)  # a misspelled one is no other setting of a run that is there
            config, run_path = run._settings(console)
            if run_path in (path for _, path in plan):
                raise ConfigError(f"two of the runs are in {run_path}; name a --run after each --")
            ended = run._without_training(config, run_path, console)
            if ended is None:
                plan.append((config, run_path))
            else:
                status = max(status, ended)
    if not plan:
        return status
    log_in(asked[0].log)
    for warning in dict.fromkeys(judge_warning(c.protocol.scoring, c.debate.num_agents) for c, _ in plan):
        if warning:
            console.note(warning)
    return max(status, _train(asked[0], prepare_together(plan, console.busy, asked[0].restart), console))


def _train(asked: Train, setups: list[Setup], console: Terminal) -> int:
    """All at once. What ends one of several early is told when it happens, and again at the end."""
    from moot.cli.console import Bars
    from moot.cli.progress import RunProgress, summary

    several = len(setups) > 1
    for setup in setups:
        console.say(f"Run: {setup.run.path}")
    for note in dict.fromkeys(note for setup in setups for note in _engine_notes(setup)):
        console.note(note)
    with ExitStack() as stack:
        bars, watchers = Bars(console), []
        for setup in setups:
            loggers = Loggers(asked.log, setup.run.path, setup.config.as_dict())
            stack.callback(loggers.close)
            name = setup.run.path.name if several else ""
            watchers.append(stack.enter_context(RunProgress(console, bars, loggers, setup.config, name)))
        everywhere = "the same command" if several else _continuing(setups[0])
        with kept(f"Nothing that was finished is lost. Continue with {everywhere}", setups[0].run.path), bars:
            errors = interruptible(carry_out_together(setups, asked.checkpoint, console.busy, watchers))
    status = 0
    for setup, error in sorted(zip(setups, errors, strict=True), key=lambda ended: ended[1] is not None):
        try:
            with kept(f"Nothing that was finished is lost. Continue with {_continuing(setup)}", setup.run.path):
                if error is not None:
                    raise error
        except Ended as end:
            if not several:
                raise
            complain(f"{setup.run.path}: {end}")
            status = end.status
        else:
            status = max(status, summary(setup.run, setup.config, console))
    return status


def _continuing(setup: Setup) -> str:
    return f"moot train --resume {setup.run.path}{' --trust-run' if trained_names(setup.config) else ''}"


def _engine_notes(setup: Setup) -> Iterator[str]:
    """What differs with this engine."""
    config, able = setup.config, setup.engine.capabilities
    yield from able.notes
    warmer = {seat_temperature(config.protocol.rules, seat) for seat in range(config.debate.num_agents)} - {1.0}
    if not able.tempered_training and warmer:
        yield "this engine trains at temperature 1, so every seat samples at temperature 1."
    if config.protocol.rules.layout == "shared" and not able.shares_prefixes:
        yield (
            "this engine computes every turn with its whole prompt, so layout shared saves no training; growing "
            "has fewer tokens."
        )


def demo_elsewhere(preset: str, config: TrainConfig) -> str | None:
    """The default preset is made for one small model on sums; another model or task wants longer answers and more
    questions."""
    d, demo = config.debate, PRESETS["demo"]
    at_home = config.model.model == demo.model.model and d.task.partition(":")[0] == demo.debate.task
    changed = d.max_tokens != demo.debate.max_tokens or config.protocol != demo.protocol  # by options or by a file
    if preset != "demo" or at_home or config.model.kind.scripted or changed:
        return None
    return (
        f"the preset demo is made for {demo.model.model} on {demo.debate.task}: solutions of at most {d.max_tokens} "
        f"tokens, {config.optim.num_train_datapoints} questions. For other models and tasks start from --preset "
        "majority, easy, math or hard."
    )


def started_elsewhere(config: TrainConfig) -> str | None:
    """Weights alone come with `--from`; who expects the settings too would train on other questions unnoticed."""
    named = split_name(config.start) if config.start else None
    theirs = config_of(Run.open(named[0])) if named else config
    ours = (config.debate.task, config.protocol.scoring.reward)
    if named is None or ours == (theirs.debate.task, theirs.protocol.scoring.reward):
        return None
    return (
        f"{named[0]} was trained on {theirs.debate.task} with reward {theirs.protocol.scoring.reward}, and this run "
        f"trains on {ours[0]} with {ours[1]}; --config {named[0]}/run.json keeps its settings."
    )


def _folder(task: str) -> str:
    """A task's name as part of a folder's: files without their path, settings without what a shell would trip over."""
    name = Path(task).stem if Path(task).suffix in (".jsonl", ".json", ".txt") else task
    return re.sub(r"[^\w.+=-]+", "-", name).strip("-")[:60]


@dataclass(frozen=True)
class _Sources:
    """Where defaults come from."""

    preset: str | None = None
    protocol: str | None = None
    config: Path | None = None
    resume: Path | None = None
    start: Annotated[str, tyro.conf.arg(name="from")] = ""


@dataclass(frozen=True)
class _Length:
    """How long a run is, as other trainers say it."""

    steps: int = 0
    batch_size: int = 0


def respelled(arguments: list[str]) -> list[str]:
    """A file that comes first is `--config`, and `--steps` is as many questions as its batches have."""
    if arguments and arguments[0].endswith((".yaml", ".yml", ".json")) and not arguments[0].startswith("-"):
        arguments = ["--config", *arguments]
    if "--steps" not in option_names(arguments):
        return arguments
    if "--num-train-datapoints" in option_names(arguments):
        raise ConfigError("--steps and --num-train-datapoints both say how long the run is; leave one of them out")
    length, others = tyro.cli(_Length, args=arguments, return_unknown_args=True, add_help=False)
    if length.steps < 1:
        raise ConfigError(f"steps must be at least 1, got {length.steps}")
    named = "--batch-size" in option_names(arguments)
    batch_size = length.batch_size if named else defaults(others).config.optim.batch_size
    return [*others, "--batch-size", str(batch_size), "--num-train-datapoints", str(length.steps * batch_size)]


def defaults(arguments: list[str]) -> Train:
    """Preset, protocol, file and run are read first, so that the help shows their values and the other options change
    them."""
    _check_seeds(arguments)
    sources, _ = tyro.cli(_Sources, args=arguments, return_unknown_args=True, add_help=False)
    if sources.resume is not None:
        if clash := next((name for name in ("preset", "protocol", "config") if getattr(sources, name)), None):
            raise ConfigError(f"--resume continues with the settings of the run; leave --{clash} out")
        run = Run.open(sources.resume)
        config = config_of(run)
        trusted(run.path, trained_names(config), arguments)
        return Train(config=config)
    file = RunFile() if sources.config is None else read_run_file(sources.config)
    name = sources.preset or file.preset or _DEFAULT
    config = with_settings(find_preset(name), file.settings, f"{sources.config}: ")
    if sources.start:  # weights that were trained already need no warm start, unless one is asked for
        config = replace(config, warm_questions=0)
        # The preset's model was asked for by nobody.
        if not (_names_model(file.settings) or "--model" in option_names(arguments)) and (
            theirs := model_of(sources.start)
        ):
            config = replace(config, model=replace(config.model, model=theirs))
    if sources.config is not None:
        trusted(sources.config, trained_names(config), arguments)
    if sources.protocol in PROTOCOLS:
        config = fitting(config.under(PROTOCOLS[sources.protocol]))
    seeds = () if "--seed" in option_names(arguments) else file.seeds
    return Train(preset=name, config=config, run_dir=file.run, seeds=seeds)


def _names_model(settings: Mapping[str, Any]) -> bool:
    """By itself, or in the section of that name."""
    named = settings.get("model", {})
    return isinstance(named, str) or "model" in named


def _check_seeds(arguments: list[str]) -> None:
    """tyro takes the last word, or says what it could not parse."""
    if {"--seed", "--seeds"} <= option_names(arguments):
        raise ConfigError(
            "--seeds trains once with each of its seeds, so --seed would be left out; leave one of them out"
        )
    words = " ".join(arguments)
    if listed := re.search(r"--seeds[ =](\d+(?:,\d+)+)", words):
        raise ConfigError(
            f"--seeds wants spaces between its seeds, as in --seeds {listed[1].replace(',', ' ')}, got {listed[1]}"
        )


def trusted(source: Path, foreign: Mapping[str, str], arguments: list[str]) -> None:
    """Refuses code and addresses of a run or a file that are not on the command line, unless there is `--trust-run`."""
    words = option_names(arguments)
    if words & {"--help", "-h"}:
        return
    named = {setting for setting in foreign if f"--{setting.replace('_', '-')}" in words}
    given = {argument.removeprefix("--with=") for argument in arguments}
    if "with" in named and not given.issuperset(foreign["with"].split(AGAIN)):
        named.remove("with")  # other parts were named: what is on a command line comes beside the file's own
    check_trusted(source, foreign, named, "--trust-run" in words)


def say_trusted(trust: bool, source: Path | None, foreign: Mapping[str, str]) -> None:
    """What is run or called because of `--trust-run`, on stderr. Not while options are read, when nothing may be
    printed."""
    if trust and source is not None:
        check_trusted(source, foreign, (), trust, Terminal(stderr=True).note)
