"""`moot check`: what should hold of a model and a task before training on it, and what a debate costs the model,
measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.text import Text

from moot.cli import train
from moot.cli.console import Terminal
from moot.cli.ending import interruptible, kept
from moot.cli.evaluate import CONTINUING, Watching
from moot.errors import ConfigError
from moot.evaluate import EvalConfig, Report
from moot.evaluate.preflight import SAYS, Finding, contract_findings, findings
from moot.evaluate.table import rich_table
from moot.players.find import Players, check_reachable
from moot.players.untrusted import checked_names
from moot.runs import Run
from moot.settings.presets import PRESETS
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.tasks import load as load_task
from moot.tokens.played import PlayedDebate
from moot.tools.check_judge import ask_judge, judge_finding, judge_named
from moot.tools.evaluate import evaluate_players
from moot.tools.judge import TrialRow
from moot.util.safe_text import counted

_STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}


@dataclass(frozen=True)
class Check:
    """Go through the preflight list before training: direct accuracy, valid comparisons, one agent right, judge
    accuracy; and what the debate's form costs: accuracy inside it, tokens, what a second round and a majority are
    worth. A judge without a seat (`--judge`, or `--reward approval`) is asked about the same answers.

    Takes the options of `moot train` and measures the model before any training; with a RUN, its newest checkpoint.
    Each line says go or no-go only if its whole 95% interval lies on one side of what is needed, otherwise caution.
    Exit status 1 if one says no-go.
    """

    run_dir: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")] = None
    """A run's folder, to check what it has trained so far; most useful after its warm start."""
    preset: str = "demo"
    """Where the other defaults come from, as in `moot train`."""
    config_file: Annotated[Path | None, tyro.conf.arg(name="config", metavar="FILE", help_behavior_hint="")] = None
    """The same file as for `moot train`."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=lambda: PRESETS["demo"])
    """What agents read, where a run starts, its parts, and its evaluations."""
    questions: int = 25
    """Held-out questions, each answered once alone and debated once."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the answers; where `moot eval` keeps its own, if not given."""
    trust_run: bool = False
    """Run the task's code and call the address that the run itself names, and print them."""
    json: bool = False
    """Print the findings as JSON."""
    settings_of: tyro.conf.Suppress[Path | None] = None
    """The run that the other defaults came from."""

    def run(self) -> int:
        console = Terminal(stderr=self.json)
        if self.questions < 1:
            raise ConfigError(f"questions must be at least 1, got {self.questions}")
        run = None if self.run_dir is None else Run.open(self.run_dir)
        if self.run_dir != self.settings_of:
            raise ConfigError(f"the run must come first: moot check {self.run_dir} …")
        config = self.config
        train.say_trusted(self.trust_run, self.run_dir or self.config_file, checked_names(config))
        if run is None and (note := train.demo_elsewhere(self.preset, config)):
            console.note(note)
        if why := config.protocol.rules.lacks.get("votes"):
            raise ConfigError(
                f"moot check measures how agents vote, and {why}; use moot eval --modes debate consultancy judge"
            )
        task = load_task(config.debate.task, config.seed, self.questions)
        if not all(map(task.gradable, task.held_out)):
            raise ConfigError(
                f"task {task.name} has questions without a known answer, and the checks need answers; check on another "
                "task"
            )
        checked = config.protocol.scoring.rule.checked
        check_reachable([config.outside_judge], "judge")
        watching = Watching(console)
        players = Players(config, run, watching.note, console.status)
        with kept(CONTINUING, self.out or "evals"), watching:
            # Whoever judges is asked afterwards, and about the same answers.
            played = config.protocol.with_choices({"reward": "generator_judge"} if checked else {})
            settings = EvalConfig.of(config, modes=("direct", "debate"), protocol=played)
            rows: list[TrialRow] = []

            async def ask(debates: list[PlayedDebate], folder: Path) -> None:
                rows.append(await ask_judge(players, config, task, debates, folder, watching))

            report, out = interruptible(
                evaluate_players(
                    players, settings, task, self.questions, watching, out=self.out,
                    beside=ask if judge_named(config) else None,
                )
            )  # fmt: skip
        return self._show(report, [judge_finding(row) for row in rows], watching, out, console)

    def _show(self, report: Report, judges: list[Finding], watching: Watching, out: Path, console: Terminal) -> int:
        checks, contract = findings(report), contract_findings(report)
        # The agents' own figure must not pass for the judge's, and where judges check answers agents need not compare.
        asked = self.config.protocol.scoring
        silent = {"judge"} if judges else set()
        silent |= {"comparisons"} if asked.rule.checked or not asked.agents_count else set()
        # A reward that is not made of votes, over turns of which none could vote.
        uncounted = {finding.check.metric for finding in checks if not finding.counted}
        silent |= {"comparisons", "judge"} if not asked.rule.from_votes and "comparisons" in uncounted else set()
        checks = [*(finding for finding in checks if finding.check.metric not in silent), *judges]
        results = [*checks, *contract]
        failed = any(finding.verdict == "fail" for finding in results)
        if self.json:
            told = {
                "checks": [finding.as_dict() for finding in checks],
                "contract": [finding.as_dict() for finding in contract],
            }
            print(json.dumps({"questions": report.rows[0].questions, "failed": failed, **told}))
            return int(failed)
        for heading, part in (("check", checks), ("what the debate's form costs", contract)):
            table = rich_table([heading, "measured", "95% interval", "needed", "verdict"], [])
            for finding in part:
                name = (
                    finding.check.name
                    if finding.check.metric != "pass@k"
                    else f"{finding.check.name} (pass@{report.settings['num_agents']})"
                )
                needed = f"> {_number(finding, finding.check.above)}"
                table.add_row(
                    name, *_measured(finding), needed, Text(SAYS[finding.verdict], style=_STYLES[finding.verdict])
                )
            console.print()
            console.print(table)
        for finding in results:
            if finding.verdict != "pass":
                console.print(Text.assemble(("\n" + finding.check.name, "bold"), ": ", _words(finding)))
        count = report.rows[0].questions
        console.say(f"\n{counted(count, 'question')}. Answers and debates: {out / 'answers.jsonl'}", "green")
        watching.say_losses()
        return int(failed or report.rows[0].questions == 0)


def _number(finding: Finding, value: float) -> str:
    return f"{100 * value:+.0f} points" if finding.check.minus else f"{value:.0%}"


def _measured(finding: Finding) -> tuple[str, str]:
    if finding.measured is None:
        return "–", "–"
    low, high = (_number(finding, end).removesuffix(" points") for end in (finding.measured.low, finding.measured.high))
    return _number(
        finding, finding.measured.value
    ), "–" if finding.measured.low == finding.measured.high else f"{low} to {high}"


def _words(finding: Finding) -> str:
    note = f"{finding.note[0].upper()}{finding.note[1:]}. " if finding.note else ""
    if finding.verdict == "fail":
        return f"{note}{finding.check.remedy}"
    if finding.measured is None:
        return f"{note}Nothing could be measured; look at the other checks first."
    more = (
        f"about {finding.enough} questions (--questions) would tell"
        if finding.enough
        else "the value lies at the limit itself"
    )
    limit, remedy = _number(finding, finding.check.above), finding.check.remedy
    return f"{note}The interval has {limit} inside it; {more}. If it fails: {remedy}"


respelled = train.respelled


def defaults(arguments: list[str]) -> Check:
    """The preset, or the run, is read first, so that the other options change what it says."""
    if arguments and not arguments[0].startswith("-"):
        path = Path(arguments[0])
        run = Run.open(path)
        config = config_of(run)
        train.trusted(run.path, checked_names(config), arguments[1:])
        return Check(path, config=config, settings_of=path)
    read = train.defaults(arguments)
    return Check(preset=read.preset, config=read.config)
