"""`moot eval`: how good a model is alone, by vote, in debate, and among others; with intervals, and resumable."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tyro

from moot.cli.console import Bars, Beat, Terminal
from moot.cli.ending import interruptible, kept
from moot.cli.registry import OtherProtocol
from moot.debate.prompt_texts import load_prompts
from moot.debate.protocols import PRESETS as PROTOCOLS
from moot.errors import ConfigError
from moot.evaluate import EvalConfig, EvalWatcher, Mode, Report
from moot.evaluate.report import before_and_after, report_folder
from moot.evaluate.table import caption, cells, legend, markdown, rich_tables
from moot.players.chat.endpoint import is_endpoint
from moot.players.checkpoints import own_judge, split_name
from moot.players.find import Players, check_reachable, policy_config
from moot.players.untrusted import check_trusted
from moot.settings.train import ModelConfig, TrainConfig
from moot.tasks import load as load_task
from moot.tasks.two_sided import as_debated
from moot.tools.evaluate import evaluate_players
from moot.util.disk import write_atomically
from moot.util.safe_text import counted, plain

CONTINUING = "What was answered is kept; the same command continues from there."
_Str = Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")]
_Int = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
_Float = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]


@dataclass(frozen=True)
class Eval:
    """Evaluate a run's checkpoint, or any model, on held-out questions.

    direct: one answer. vote: k answers, and the one most of them give. debate: self-play, the agents' average.
    debate+vote: one answer of the group. opponents: the policy in each seat once, against fixed others. wins: the
    answer beside that of the run's start, by --judge in both orders. With --protocol advocates a judge decides: debate
    (both sides argue), consultancy (one side argues), judge (nobody does). Rows are compared with the first one, on the
    same questions. Answers are kept as they come: the same command again continues where it stopped.
    """

    run_dir: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")] = None
    """A run's folder; its newest checkpoint is evaluated, with the settings it was trained with. RUN@best is the best
    one, RUN@30 that of step 30."""
    model: _Str = None
    """Instead of a run: a hub id, a directory with a checkpoint, or smollm2-135m (the default)."""
    step: _Int = None
    """This checkpoint of the run; 0 is the model before any training."""
    task: _Str = None
    """Where questions come from; the run's, or arithmetic."""
    modes: Annotated[tuple[Mode, ...], tyro.conf.arg(metavar="MODE [MODE ...]")] = ("direct", "vote", "debate")
    """Any of direct, vote, debate, debate+vote, opponents, wins, consultancy, judge; the first is what the others are
    compared with."""
    k: int = 5
    """Answers per vote."""
    match_tokens: bool = False
    """Choose k so that a vote generates as many tokens as a debate."""
    opponents: tuple[str, ...] = ("base",)
    """Who else debates in mode opponents: base (the model before training), a run, RUN@STEP, a model, or MODEL@URL of a
    chat server."""
    judge: _Str = None
    """Who compares the run's answers with those of its start (this adds mode wins; base if not given); or decides
    between advocates, or checks answers where the reward is made of checks. As --opponents, one name."""
    both_orders: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Ask the judge of advocates twice, the second time with the other order, also where the run did not: verdicts that
    change do not count."""
    questions: int = 200
    """How many held-out questions."""
    seed: int = 0
    """Chooses the questions and every sample."""
    temperature: _Float = None
    """What is sampled at, in debates and alone; the run's, or 1. A persona's own is multiplied by it; direct and vote
    have the average."""
    num_agents: _Int = None
    """Agents of a debate; the run's, or 3; of advocates always 2."""
    max_rounds: _Int = None
    """Rounds of a debate; the run's, or 2."""
    max_tokens: _Int = None
    """Longest turn, and longest plain answer; the run's, or 512."""
    protocol: OtherProtocol = None
    """The rules of the debates; the run's, or v2."""
    sections: Annotated[
        Literal["sampled", "given", "asked"] | None,
        tyro.conf.arg(metavar="{sampled,given,asked}", help_behavior_hint=""),
    ] = None
    """Whether the model writes the tags of a turn, is given them, or is asked for each section by itself; the run's, or
    asked (sampled with --protocol v1)."""
    prompts: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """A file with the texts that agents read; the run's, or the defaults."""
    engine: _Str = None
    """What runs the model; the run's, or local. openai is a chat server: no weights, no RUN."""
    base_url: _Str = None
    """Where a server is, for engine tinker or openai (then OPENAI_BASE_URL if not given, and the key is taken from
    OPENAI_API_KEY)."""
    trust_run: bool = False
    """Run the task's code and call the address that the run itself names, and print them."""
    device: _Str = None
    """cpu, cuda, or auto."""
    dtype: _Str = None
    """auto, fp32 or bf16."""
    renderer: _Str = None
    """The chat format; auto looks it up by the model's id."""
    thinking: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let the model think before it answers, also where the run did not."""
    concurrency: int = 256
    """Most answers and debates in the making at once."""
    name: _Str = None
    """Name of the evaluation; TASK-stepN if not given."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the answers and the report; RUN/evals/NAME, or evals/MODEL-TASK, if not given."""
    json: bool = False
    """Print the report as JSON."""
    markdown: bool = False
    """Print the table as Markdown."""

    def run(self) -> int:
        console = Terminal(stderr=self.json or self.markdown)
        run_dir, at = (self.run_dir and split_name(self.run_dir)) or (self.run_dir, None)
        if at is not None and self.step is not None:
            raise ConfigError(f"{self.run_dir} names its step already; leave --step {self.step} out")
        config, run = policy_config(
            run_dir, self.model, model_changes(self), self.task, self.trust_run, Terminal(stderr=True).note
        )
        if self.step is not None and run is None:
            raise ConfigError(f"step {self.step} is a run's; name the run, or leave step out")
        if self.questions < 1:
            raise ConfigError(f"questions must be at least 1, got {self.questions}")
        settings = self._settings(config, trained=run is not None)
        if self.judge is not None and not settings.needs_judge and "wins" not in settings.modes:
            settings = replace(settings, modes=(*settings.modes, "wins"))  # there is nothing else it could do
        check_reachable([self.judge or "", *(self.opponents if "opponents" in self.modes else ())], "judge or opponent")
        task = load_task(self.task or config.debate.task, self.seed, self.questions)
        judge = self.judge or ("base" if config.recipe.judge == "base" else None)
        if judge is None and settings.protocol.scoring.rule.checked:
            judge = config.recipe.judge or own_judge(run) or "base"
            if run is not None and is_endpoint(judge):
                check_trusted(run.path, {"judge": judge}, (), self.trust_run, Terminal(stderr=True).note)
        if self.both_orders and not settings.protocol.rules.needs_judge:
            raise ConfigError(
                "both_orders is about the judge of advocates, and here there is none; use --protocol advocates, or "
                "leave it out"
            )
        task = as_debated(task, settings.protocol.rules)
        watching = Watching(console)
        players = Players(config, run, watching.note, console.status)
        with kept(CONTINUING, self.out or "evals"), watching:
            work = evaluate_players(
                players,
                settings,
                task,
                self.questions,
                watching,
                step=at or self.step,
                opponents=self.opponents,
                judge=judge,
                out=self.out,
                name=self.name,
            )
            report, out = interruptible(work)
            target = report_folder(out, report.settings)
            report.save(target / "report.json")
            write_atomically(target / "report.md", f"{caption(report)}\n\n{markdown(*cells(report))}".encode())
        if target != out:
            console.note(f"{out / 'report.json'} has other settings and is kept; this report stands beside it.")
        return self._show(report, watching, target, console)

    def _settings(self, config: TrainConfig, trained: bool) -> EvalConfig:
        named = ("modes", "k", "match_tokens", "seed", "concurrency", "num_agents", "max_rounds", "max_tokens")
        changes: dict[str, Any] = {name: value for name in named if (value := getattr(self, name)) is not None}
        protocol = config.protocol if self.protocol is None else PROTOCOLS[self.protocol]
        # A model is asked as `moot train` and `moot ask` would ask it, a run as it was trained.
        usual = None if trained or self.protocol == "v1" else "asked"
        rules = {
            "sections": self.sections or usual,
            "temperature": self.temperature,
            "both_orders": self.both_orders or None,
        }
        changes["protocol"] = protocol.with_choices({name: value for name, value in rules.items() if value is not None})
        # Those who never agree: a run's rounds by agreement would always be added, and none ever left out.
        changes = {**changes["protocol"].rules.fixed, **changes}
        if self.prompts is not None:
            changes["prompts"] = load_prompts(str(self.prompts))
        return EvalConfig.of(config, **changes)

    def _show(self, report: Report, watching: Watching, out: Path, console: Terminal) -> int:
        header, rows = cells(report)
        if self.json:
            print(json.dumps(report.as_dict()))
        elif self.markdown:
            print(markdown(header, rows), end="")
        else:
            console.say(f"\n{caption(report)}", "bold")
            for table in rich_tables(header, rows):
                console.print()
                console.print(table)
            console.say("\n" + "\n".join(legend(header)), "dim")
        count = report.rows[0].questions
        console.say(f"\n{counted(count, 'question')}. Report: {out / 'report.json'}", "green")
        told = not (self.json or self.markdown) and self.run_dir and self.out is None
        if told and (folders := before_and_after(report, out)):
            reports = [Report.read(out.with_name(folder) / "report.json") for folder in folders]
            how = f"moot compare {out.parent.parent} --evals {' '.join(folders)}"
            console.say(f"Minus the model before training: {_gained(*reports)}{how}", "green")
        watching.say_losses()
        return 1 if any(row.questions == 0 for row in report.rows) else 0


def _gained(start: Report, trained: Report) -> str:
    """By mode, in points, where it was asked enough questions for an interval."""
    from moot.cli.progress import difference

    starts, told = {row.name: row for row in start.rows}, list[str]()
    for row in trained.rows:
        seed = trained.settings["seed"]
        if row.name in starts and (gain := difference(row, starts[row.name], "accuracy", seed)):
            value, low, high = (f"{100 * gain[end]:+.1f}" for end in ("value", "low", "high"))
            told.append(f"{row.name} {value} points [{low}, {high}]")
    return f"{', '.join(told)}. As a table: " if told else ""


def model_changes(options: object) -> dict[str, Any]:
    """How the model is run, where the options say it."""
    names = ("engine", "base_url", "device", "dtype", "renderer", "thinking")
    changes = {name: getattr(options, name, None) for name in names}
    for name, hint in get_type_hints(ModelConfig).items():
        choices = get_args(hint)
        if changes.get(name) is not None and choices and changes[name] not in choices:
            raise ConfigError(f"{name} must be {' or '.join(map(str, choices))}, got {changes[name]!r}")
    return {name: value for name, value in changes.items() if value is not None and value is not False}


class Watching(EvalWatcher):
    """A bar for each kind of sample, in a log a line now and then, and what the engine lost."""

    def __init__(self, console: Terminal) -> None:
        self._console, self._bars = console, Bars(console)
        self._beat = Beat(console, lambda: self._bars.so_far() or "at work")
        self._lost, self._first_error = 0, ""
        self._started = False

    def __enter__(self) -> Watching:
        """The bars begin with the first plan: until then engines are loaded, which has a sign of its own."""
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._beat.stop()
        self._bars.stop()

    def planned(self, kind: str, total: int, done: int) -> None:
        if not self._started:
            self._bars.start()
            self._started = True
        self._bars.plan(_plural(kind), total, done)

    def sampled(self, kind: str, tokens: int, error: str | None) -> None:
        if error is not None:
            self._lost += 1
            self._first_error = self._first_error or error
        self._bars.advance(_plural(kind), tokens)

    def note(self, text: str) -> None:
        self._console.note(text)

    def say_losses(self) -> None:
        if self._lost:
            why = f"({plain(self._first_error)}); their questions are left out"
            self._console.say(
                f"{self._lost} answers or debates were lost to the engine {why}. The same command tries them again.",
                "red",
            )


def _plural(kind: str) -> str:
    return {
        "answer": "answers",
        "debate": "debates",
        "consultancy": "consultancies",
        "judge": "judge alone",
        "start": "the start's answers",
        "verdict": "verdicts",
    }.get(kind, kind)
