"""`moot train`: from a configuration to a run on disk, with something to look at on the way."""

from __future__ import annotations

import asyncio
import errno
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from moot import __version__
from moot.cli.loggers import check_names, make_loggers
from moot.cli.players import judge_for
from moot.debate.rewards import REWARDS, Reward, users_reward
from moot.debate.scoring import Scoring, judge_warning
from moot.debate.types import ConfigError, Question
from moot.engine.protocol import EngineError
from moot.evaluate import EvalConfig, evaluate
from moot.rl.advantages import ESTIMATORS, Estimator
from moot.rl.config import ABOUT, PRESETS, TrainConfig
from moot.rl.rendering import Rendering
from moot.rl.train import Loop, train
from moot.rl.warm_from import warm_start_of
from moot.tasks import Task
from moot.tasks import load as load_task
from moot.users import load

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
        from moot.rl.train import Stopped

        console = Console(highlight=False)
        config, run_path = self._settings()
        if config.warm.warm_from and not Run.exists(run_path):
            warm_start_of(config)
        if self.dry_run:
            from moot.cli.plan import show_plan

            show_plan(config, run_path, console)
            return 0
        if warning := judge_warning(config.protocol.scoring, config.debate.num_agents):
            console.print(Text(f"Note: {warning}", style="yellow"))
        # Whatever can be wrong with the settings is found before a folder is made.
        reward, estimator = find_reward(config.protocol.scoring), find_estimator(config.protocol.scoring)
        task = load_task(config.debate.task, config.seed, config.eval_questions)
        stages = [load_task(name, config.seed, config.eval_questions) for name in config.recipe.curriculum]
        check_names(self.log)
        from moot.cli.engines import make_engine

        with console.status(f"loading {config.model.model}"):
            engine, rendering = make_engine(config)
        run = Run.open(run_path) if Run.exists(run_path) else Run.create(run_path, config.as_dict(), {"moot": __version__})
        console.print(Text(f"Run: {run_path}"))
        loggers = make_loggers(self.log, run_path, config.as_dict())
        for note in engine.capabilities.notes:
            console.print(Text(f"Note: {note}", style="yellow"))
        if not engine.capabilities.tempered_training and config.protocol.rules.personas:
            console.print(Text("Note: this engine trains at temperature 1, so every seat samples at temperature 1.", style="yellow"))

        progress = Progress(console, loggers, config)
        loop = Loop(config, engine, rendering, task, run, progress, reward, estimator, stages=stages)
        if config.eval_modes:
            settings = EvalConfig.of(config, modes=config.eval_modes, tempered=engine.capabilities.tempered_training)
            loop.also = plain_answers(rendering, task, settings, task.held_out[: config.eval_questions])
        try:
            with progress:
                asyncio.run(_train(loop, judge_for(config, engine, rendering, console)))
        except Stopped as stop:
            return _say_stop(console, run_path, str(stop), 1)
        except asyncio.CancelledError:
            return _say_stop(console, run_path, "interrupted", 130)
        except EngineError as error:
            return _say_stop(console, run_path, str(error), 1)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return _say_stop(console, run_path, f"the disk is full ({error.filename or run_path}); make room", 1)
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


def plain_answers(rendering: Rendering, task: Task, settings: EvalConfig, questions: Sequence[Question]) -> Callable[[Any], Any]:
    """What the loop asks at each evaluation besides its debates."""

    async def measure(sampler: Any) -> dict[str, float | None]:
        report = await evaluate(sampler, rendering, task, settings, questions)
        return report.flat(f"test_{task.name}/")

    return measure


async def _train(loop_: Loop, judge: Awaitable[tuple[Any, Any]]) -> None:
    """A first Ctrl-C ends the iteration in flight and lets go of the engine; what was committed stays."""
    engine = loop_.engine
    loop_.judge, other = await judge
    task = asyncio.ensure_future(train(loop_))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    finally:
        await engine.close()
        if other is not None:
            await other.close()


def _say_stop(console: Console, path: Path, why: str, status: int) -> int:
    console.print(Text(f"\nStopped: {why}.", style="bold"))
    console.print(Text(f"Nothing that was finished is lost. Go on with: moot train --resume {path}"))
    return status


def find_reward(scoring: Scoring) -> Reward:
    if scoring.reward in REWARDS:
        return REWARDS[scoring.reward]
    return users_reward(load(scoring.reward, "reward"), scoring.reward)


def find_estimator(scoring: Scoring) -> Estimator:
    if scoring.advantage in ESTIMATORS:
        if scoring.advantage == "center_round" and scoring.reward in ("win_rate", "win_minus_loss", "truth", "majority"):
            raise ConfigError(f"advantage center_round needs rewards by step, and {scoring.reward} is by agent; use center_group")
        return ESTIMATORS[scoring.advantage]
    return load(scoring.advantage, "advantage")


def defaults(arguments: list[str]) -> Train:
    """The preset is read first, so that the help shows its values and the other options change them."""
    name = _DEFAULT
    for i, argument in enumerate(arguments):
        if argument == "--preset" and i + 1 < len(arguments):
            name = arguments[i + 1]
        elif argument.startswith("--preset="):
            name = argument.split("=", 1)[1]
    if name not in PRESETS:
        known = "; ".join(f"{known} ({about})" for known, about in ABOUT.items())
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}: {known}")
    return Train(preset=name, config=PRESETS[name])
