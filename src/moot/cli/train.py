"""`moot train`: from a configuration to a run on disk, with something to look at on the way."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from moot import __version__
from moot.cli.console import Terminal
from moot.cli.ending import interruptible, kept
from moot.cli.loggers import check_names, make_loggers
from moot.debate.scoring import judge_warning
from moot.debate.types import ConfigError
from moot.players import check_judge, judge_for, make_engine
from moot.rl.choices import find_estimator, find_reward
from moot.rl.config import ABOUT, PRESETS, TrainConfig
from moot.rl.rollout import Player
from moot.rl.train import Loop, train
from moot.rl.warm_from import warm_start_of
from moot.tasks import load as load_task

_DEFAULT = "demo"


@dataclass(frozen=True)
class Train:
    """Train a model by debate: self-play, peer votes, policy gradient; on this machine, with nothing else running.

    Start from a preset and change what you like. Running the same command again goes on where the run stopped; so does
    --resume RUN. Everything is kept under the run's folder.
    """

    preset: str = _DEFAULT
    """Where the other defaults come from: demo, math, easy, hard, v1 or aime."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=lambda: PRESETS[_DEFAULT])
    run_dir: Annotated[Path | None, tyro.conf.arg(name="run", metavar="DIR")] = None
    """The run's folder; runs/PRESET-TASK-seedSEED if not given."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with this run, with the settings it was started with."""
    dry_run: bool = False
    """Print the plan, with tokens and memory, and stop."""
    log: tuple[str, ...] = ()
    """Besides JSON lines: tensorboard, wandb, trackio."""

    def run(self) -> int:
        from moot.cli.progress import Progress, summary
        from moot.records import Run

        console = Terminal()
        config, run_path = self._settings()
        if config.warm.warm_from and not Run.exists(run_path):
            warm_start_of(config)
        if self.dry_run:
            from moot.cli.plan import show_plan

            show_plan(config, run_path, console)
            return 0
        if warning := judge_warning(config.protocol.scoring, config.debate.num_agents):
            console.note(warning)
        # Whatever can be wrong with the settings is found before a folder is made.
        scoring = config.protocol.scoring
        reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
        task = load_task(config.debate.task, config.seed, config.eval_questions)
        stages = [load_task(name, config.seed, config.eval_questions) for name in config.recipe.curriculum]
        check_names(self.log)
        check_judge(config)
        with console.status(f"loading {config.model.model}"):
            engine, rendering = make_engine(config)
        run = Run.open(run_path) if Run.exists(run_path) else Run.create(run_path, config.as_dict(), {"moot": __version__})
        console.say(f"Run: {run_path}")
        loggers = make_loggers(self.log, run_path, config.as_dict())
        for note in engine.capabilities.notes:
            console.note(note)
        if not engine.capabilities.tempered_training and config.protocol.rules.personas:
            console.note("this engine trains at temperature 1, so every seat samples at temperature 1.")

        progress = Progress(console, loggers, config)
        loop = Loop(config, engine, rendering, task, run, progress, reward, estimator, stages=stages)
        try:
            with kept(f"Nothing that was finished is lost. Continue with: moot train --resume {run_path}", run_path), progress:
                interruptible(_train(loop, judge_for(config, engine, rendering, progress.note, console.status)))
        finally:
            for logger in loggers:
                logger.close()
        return summary(run, config, console)

    def _settings(self) -> tuple[TrainConfig, Path]:
        from moot.records import Run

        if self.resume is not None:
            run = Run.open(self.resume)
            return TrainConfig.from_dict(run.config), self.resume
        path = self.run_dir or Path("runs") / f"{self.preset}-{_folder(self.config.debate.task)}-seed{self.config.seed}"
        if Run.exists(path):
            before = TrainConfig.from_dict(Run.open(path).config)
            if changed := differences(before, self.config):
                raise ConfigError(f"{path} was started with other settings ({changed}); name another --run, or go on with --resume {path}")
        return self.config, path


def _folder(task: str) -> str:
    """A task's name as part of a folder's: files without their path, settings without what a shell would trip over."""
    name = Path(task).stem if Path(task).suffix in (".jsonl", ".json", ".txt") else task
    return re.sub(r"[^\w.+=-]+", "-", name).strip("-")[:60]


def differences(a: TrainConfig, b: TrainConfig) -> str:
    """The first few settings that differ, as `name old -> new`."""
    found: list[str] = []

    def walk(left: Any, right: Any) -> None:
        for f in fields(left):
            old, new = getattr(left, f.name), getattr(right, f.name)
            if hasattr(old, "__dataclass_fields__"):
                walk(old, new)
            elif old != new:
                found.append(f"{f.name} {old} -> {new}")

    walk(a, b)
    return ", ".join(found[:3]) + (", …" if len(found) > 3 else "")


async def _train(loop: Loop, judge: Awaitable[tuple[Any, Any]]) -> None:
    """A Ctrl-C ends the iteration in flight and lets go of the engines; what was committed stays."""
    loop.judge, judges_engine = await judge
    try:
        if "opponents" in loop.config.eval_modes:
            base = Player(await loop.engine.base(), loop.rendering, learns=False)
            loop.opponents = {"base": lambda seat: base}
        await train(loop)
    finally:
        await loop.engine.close()
        if judges_engine is not None:
            await judges_engine.close()


def defaults(arguments: list[str]) -> Train:
    """The preset is read first, so that the help shows its values and the other options change them."""
    try:
        chosen, _ = tyro.cli(_Preset, args=arguments, return_unknown_args=True, add_help=False, console_outputs=False)
    except SystemExit:
        chosen = _Preset()  # --preset without a name, which the parser of the whole command refuses in words
    if chosen.preset not in PRESETS:
        about = "; ".join(f"{name} ({words})" for name, words in ABOUT.items())
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, got {chosen.preset!r}: {about}")
    return Train(preset=chosen.preset, config=PRESETS[chosen.preset])


@dataclass(frozen=True)
class _Preset:
    preset: str = _DEFAULT
