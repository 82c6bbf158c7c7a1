"""`moot judge`: which judge, asked how, is worth listening to."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from moot.cli.console import Terminal
from moot.cli.ending import interruptible, kept
from moot.cli.evaluate import CONTINUING, Watching, model_changes
from moot.debate.checks import Ballot, Rules, Show
from moot.debate.prompt_texts import DEFAULT, load_prompts
from moot.debate.rewards.checked import PairsSettings
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.evaluate import AnswerStore, EvalConfig, evaluate
from moot.evaluate.store import SampleKey, question_key
from moot.evaluate.table import rich_table
from moot.judges.asking import judge_of
from moot.judges.ballots import many_unread
from moot.players.find import Players, check_reachable, policy_config
from moot.players.untrusted import is_code
from moot.runs import PlayedDebate, Run, write_atomically
from moot.settings.limits import Ge, check_limits
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.tasks import load as load_task
from moot.tasks.task import Task
from moot.tools.evaluate import answers_folder
from moot.tools.judge import Answered, Trial, TrialConfig, TrialRow, Way, check_verdict, graded
from moot.util.files import digest, json_lines, write_lines
from moot.util.intervals import Interval
from moot.util.safe_text import counted, one_line

_Str = Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")]
_File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
TABLES = (
    {"pair accuracy": "pair_accuracy", "J": "j", "tokens": "cost"},
    {"at 20%": "precision_20", "at 50%": "precision_50", "counting fails": "counting_fails"},
    {"one order": "one_order", "order flips": "order_flips", "length": "length"},
)
"""What matters first; a column that no row has is left out."""
LEGEND = {
    "pair accuracy": "pairs of a right and a wrong answer in which the right one has the higher score; 95% interval",
    "J": "right answers that are approved (score above ½) minus wrong ones",
    "tokens": "sampled for one score",
    "at 20%": "pair accuracy in the fifth of the pairs whose scores differ most",
    "at 50%": "the same in the half of the pairs whose scores differ most",
    "counting fails": "pair accuracy in questions whose most frequent answer is wrong",
    "one order": "how often the right one is preferred when a pair is shown once",
    "order flips": "pairs whose verdict changes with the order",
    "length": "correlation of score and length within a question",
}


TOGETHER: tuple[Rules, ...] = ("together",)


@dataclass(frozen=True)
class JudgeCommand:
    """Measure judges before training: which judge, asked how, tells right answers from wrong ones?

    A model answers each question several times; every judge is asked about the same answers, in every way named.
    approval: one answer, Yes or No, several checks. pairs: two answers in both orders. lines: all answers, in written
    comparisons. Answers and verdicts are kept as they come: the same command again continues where it stopped, and asks
    nothing twice.
    """

    judges: tuple[str, ...] = ("base",)
    """Who judges: base (the model itself), a run, RUN@STEP, RUN@best, RUN@judge, another model, or MODEL@URL of a chat
    server."""
    task: _Str = None
    """Where questions come from; that of the run in --answers, or arithmetic. Answers must be known."""
    model: _Str = None
    """Who answers: a hub id, a directory with a checkpoint, or smollm2-135m (the default)."""
    ballots: tuple[Ballot, ...] = ("approval",)
    """approval, pairs, lines."""
    checks: tuple[int, ...] = (1, 4)
    """How often an answer is checked for approval. The most is asked for; fewer are the first of these."""
    show: tuple[Show, ...] = ("solution",)
    """What is shown of an answer: the whole solution, or the final answer alone."""
    rules: tuple[Rules, ...] = TOGETHER
    """Of approval: together asks about the whole question; mean and least ask about each of its rules alone, where the
    task has them, and score an answer by the mean of their scores, or by the least."""
    prompts: tuple[str, ...] = ("default",)
    """Files with the texts that judges read, each a way of its own; default is the table judges of moot prompts."""
    questions: Annotated[int, Ge(1)] = 100
    """How many held-out questions."""
    k: Annotated[int, Ge(1)] = 8
    """Answers per question."""
    answers: _File = None
    """Answers from this file: a line per question, {"question": …, "answer": the right one, "answers": [texts]}. Or
    from a run's folder: the answers of its debates."""
    opponents: Annotated[int, Ge(1)] = 2
    """How many other answers each answer meets at most on the ballot pairs."""
    seed: int = 0
    """Chooses the questions and every sample."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Of answers and of the judges' thinking."""
    max_tokens: Annotated[int, Ge(1)] = 512
    """Longest answer."""
    evaluation_tokens: Annotated[int, Ge(1)] = 256
    """Longest thinking of a judge."""
    engine: _Str = None
    """What runs the model; local if not given. openai is a chat server."""
    base_url: _Str = None
    """Where a server is, for engine tinker or openai."""
    device: _Str = None
    """cpu, cuda, or auto."""
    dtype: _Str = None
    """auto, fp32 or bf16."""
    renderer: _Str = None
    """The chat format; auto looks it up by the model's id."""
    concurrency: Annotated[int, Ge(1)] = 256
    """Most answers and verdicts in the making at once."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for answers, verdicts and the report; judges/MODEL-TASK if not given."""
    json: bool = False
    """Print the report as JSON."""

    def run(self) -> int:
        if self.task is None:
            return replace(self, task=_task_of(self.answers)).run()
        console = Terminal(stderr=self.json)
        self._check()
        ways = self._ways()
        config, _ = policy_config(None, self.model, model_changes(self))
        task = load_task(self.task, self.seed, self.questions)
        given = None if self.answers is None else read_answers(self.answers, task)
        if given is not None and len(given) > self.questions:
            console.note(f"{self.answers} has {len(given)} questions; --questions {self.questions} of them are taken.")
            given = dict(list(given.items())[: self.questions])
        if not all(map(task.gradable, given or task.held_out[: self.questions])):
            raise ConfigError(f"task {task.name} has questions without a known answer; measure judges on another task")
        if any(way.rules != "together" for way in ways):
            task.rules_of((list(given) if given else task.held_out)[0])
        check_reachable(self.judges, "judge")
        watching = Watching(console)
        players = Players(config, None, watching.note, console.status)
        out = self.out or Path("judges") / answers_folder(None, config.model, task.name, None, 0).name
        with kept(CONTINUING, out), watching:
            out.mkdir(parents=True, exist_ok=True)
            rows = interruptible(self._measured(players, task, given, ways, out, watching))
            write_atomically(out / "report.json", json.dumps(self._report(rows), indent=1).encode() + b"\n")
        return self._show(rows, out, watching, console)

    def _check(self) -> None:
        check_limits(self)
        if not self.checks or min(self.checks) < 1:
            raise ConfigError(f"checks must be numbers from 1 up, got {' '.join(map(str, self.checks)) or 'none'}")
        for name in ("judges", "ballots", "show", "rules", "prompts"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must name at least one; leave the option out for the default")

    def _ways(self) -> list[Way]:
        texts = {name: DEFAULT if name == "default" else load_prompts(name) for name in self.prompts}
        return [
            Way(judge, ballot, show, prompts, "" if name == "default" else name, rules)
            for judge in dict.fromkeys(self.judges)
            for ballot in dict.fromkeys(self.ballots)
            for show in dict.fromkeys(self.show)
            for rules in dict.fromkeys(self.rules if ballot == "approval" else TOGETHER)
            for name, prompts in texts.items()
        ]

    async def _measured(
        self,
        players: Players,
        task: Task,
        given: dict[Question, list[str]] | None,
        ways: Sequence[Way],
        out: Path,
        watching: Watching,
    ) -> list[TrialRow]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(players.close)
            await players.load(None)
            guests = await players.opponents(list(dict.fromkeys(self.judges)), "judges")
            answers = await self._answers(players, task, out, watching) if given is None else graded(given, task)
            verdicts = stack.enter_context(contextlib.closing(AnswerStore(out / "verdicts.jsonl", check_verdict)))
            judges = {name: judge_of(guest) for name, (guest, _) in guests.items()}
            identities = {name: identity for name, (_, identity) in guests.items()}
            trial = Trial(answers, judges, identities, self._config, verdicts, watching)
            await trial.ask(ways)
            for judge in dict.fromkeys(self.judges):
                if told := many_unread(trial.unread([way for way in ways if way.judge == judge]), judge):
                    watching.note(told)
            write_lines(out / "asked.jsonl", trial.listing(ways))
            return trial.rows(ways)

    async def _answers(self, players: Players, task: Task, out: Path, watching: Watching) -> list[Answered]:
        """Sampled as `moot eval` samples them for a vote, and found again as there."""
        settings = EvalConfig(
            ("vote",), self.k, seed=self.seed, max_tokens=self.max_tokens, temperature=self.temperature,
            concurrency=self.concurrency, policy=players.identity,
        )  # fmt: skip
        questions = list(task.held_out)[: self.questions]
        with contextlib.closing(AnswerStore(out / "answers.jsonl")) as store:
            await evaluate(players.policy, task, settings, questions, answers=store, watcher=watching)
            place = digest(settings.settings("answer"))
            texts = {}
            for question in questions:
                records = [store.get(SampleKey(place, question_key(question), number)) for number in range(self.k)]
                texts[question] = [record["text"] for record in records if record is not None]
        return graded({question: own for question, own in texts.items() if own}, task)

    def _report(self, rows: Sequence[TrialRow]) -> dict[str, Any]:
        asked = {
            "task": self.task,
            "answers": str(self.answers) if self.answers else self.k,
            "questions": self.questions,
            "seed": self.seed,
            "opponents": self.opponents,
            "evaluation_tokens": self.evaluation_tokens,
            "temperature": self.temperature,
        }
        return {
            **asked,
            "rows": [row.as_dict() for row in rows],
            "advice": advice(rows),
            "options": self._options(rows),
        }

    @property
    def _config(self) -> TrialConfig:
        sampled = (self.evaluation_tokens, self.temperature, self.seed, self.concurrency)
        return TrialConfig(self.checks, self.opponents, *sampled)

    def _options(self, rows: Sequence[TrialRow]) -> str:
        told = options(rows, self._config)
        if self.engine == "openai":  # has no weights to train: the user names a model, and this one may judge it
            told = re.sub(r"--judge base\b", f"--judge {self.model}@{self.base_url or 'URL'}", told)
        return told

    def _show(self, rows: Sequence[TrialRow], out: Path, watching: Watching, console: Terminal) -> int:
        if self.json:
            print(json.dumps(self._report(rows)))
        else:
            shown: list[str] = []
            for table in TABLES:
                heads = [head for head, name in table.items() if any(getattr(row.measures, name) for row in rows)]
                if heads:
                    cells = [[str(row), *(_cell(row, table[head]) for head in heads)] for row in rows]
                    console.print()
                    console.print(rich_table(["what", *heads], cells))
                    shown += heads
            if shown:
                console.say("\n" + "\n".join(f"{head}: {LEGEND[head]}" for head in shown), "dim")
            if fewer := [f"{row}: {row.fewer}." for row in rows if row.fewer]:
                console.say("\n" + "\n".join(fewer))
            console.say(f"\n{advice(rows)}", "bold")
        count = max((row.measures.questions for row in rows), default=0)
        measured = f"{counted(count, 'question')} with right and wrong answers"
        console.say(f"\n{measured}. Report: {out / 'report.json'}. Look at every verdict: moot view {out}", "green")
        watching.say_losses()
        if (told := self._options(rows)) and beats_a_coin(rows):
            names = ["task"] if self.engine == "openai" else ["task", "model", "engine"]
            own = " ".join(f"--{name} {value}" for name in names if (value := getattr(self, name)))
            console.say(f"Train with it: moot train {own} {told}")
        return 0 if count else 1


def _cell(row: TrialRow, name: str) -> str:
    value: Interval | None = getattr(row.measures, name)
    if value is None:
        return "–"
    if name == "cost":
        return f"{value.value:,.0f}"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def advice(rows: Sequence[TrialRow]) -> str:
    """What to use, in words. `rows` stand best first."""
    best = rows[0].measures.pair_accuracy if rows else None
    if best is None:
        missing = "no question has both right and wrong answers that a judge scored"
        return f"Nothing could be measured: {missing}. Ask more questions, or others."
    figures = f"pair accuracy {best.value:.2f}, 95% interval {best.low:.2f} to {best.high:.2f}"
    if not beats_a_coin(rows):
        said = f"No way is clearly better than a coin; the best is {rows[0]} ({figures})."
        return f"{said}{_compared(rows)} Ask more questions, or another judge."
    said = f"Use {rows[0]} ({figures}).{_compared(rows)}"
    level = [row for row in rows[1:] if row.best_minus and row.best_minus.interval.low <= 0]
    cost = rows[0].measures.cost
    cheaper = [row for row in level if cost and row.measures.cost and row.measures.cost.value < cost.value]
    if cheaper:
        least = min(cheaper, key=lambda row: row.measures.cost.value if row.measures.cost else 0.0)
        said += f" Cheaper and not clearly worse: {least}."
    if len(rows) > 1:
        said += f" The best of {len(rows)} looks better than it is: measure it again, alone, with another --seed."
    return said


def _compared(rows: Sequence[TrialRow]) -> str:
    """The best with the next two. Two intervals that overlap do not say that two ways are alike."""
    return "".join(
        f" Pair accuracy of {_apart(rows[0], row)} minus {_apart(row, rows[0])}, on the "
        f"{counted(found.questions, 'question')} that both have: {found.interval.value:+.2f} "
        f"[{found.interval.low:+.2f}, {found.interval.high:+.2f}]."
        for row in rows[1:3]
        if (found := row.best_minus)
    )


def _apart(row: TrialRow, other: TrialRow) -> str:
    """What tells it from the other."""
    return ", ".join([part for part in row.parts if part not in other.parts] or row.parts)


def beats_a_coin(rows: Sequence[TrialRow]) -> bool:
    """Whether the best way surely does."""
    best = rows[0].measures.pair_accuracy if rows else None
    return best is not None and best.low > 0.5


def options(rows: Sequence[TrialRow], config: TrialConfig = TrialConfig()) -> str:
    """How `moot train` is told to use the best way, asked as it was measured; empty where nothing could be measured,
    or where it cannot: comparison lines are written about whole solutions there."""
    if not rows or rows[0].measures.pair_accuracy is None:
        return ""
    best, way = rows[0], rows[0].way
    if way.ballot == "lines" and way.show != "solution":
        return ""
    usual = TrainConfig()
    further = {
        "prompts": shlex.quote(way.texts) if way.texts else None,
        "evaluation-tokens": _unless(usual.debate.evaluation_tokens, config.max_tokens),
        "temperature": _unless(usual.protocol.rules.temperature, config.temperature),
    }
    told = "".join(f" --{name} {value}" for name, value in further.items() if value is not None)
    if way.ballot == "lines":
        return f"--judge {way.judge} --voters judges{told}"
    asked = {
        "checks": best.checks if way.ballot == "approval" else None,
        "opponents": _unless(PairsSettings.opponents, config.opponents) if way.ballot == "pairs" else None,
        "show": _unless("solution", way.show),
        "rules": _unless("together", way.rules),
    }
    settings = ",".join(f"{name}={value}" for name, value in asked.items() if value is not None)
    return f"--reward {way.ballot}{':' * bool(settings)}{settings} --judge {way.judge}{told}"


def _unless(usual: object, value: object) -> object:
    """None for what training does anyway."""
    return None if value == usual else f"{value:g}" if isinstance(value, float) else value


def _task_of(answers: Path | None) -> str:
    """The task of the run whose debates are asked about; otherwise the usual one."""
    if answers is None or not Run.exists(answers):
        return "arithmetic"
    task = config_of(Run.open(answers)).debate.task
    if is_code(task):
        raise ConfigError(
            f"{answers} names code as its task ({one_line(task, 120)}), which is not used on its word alone; if you "
            f"trust it, name it again (--task {one_line(task, 120)})"
        )
    return task


def answers_of_run(path: Path) -> dict[Question, list[str]]:
    """What was answered in a run's debates, question by question."""
    answers: dict[Question, list[str]] = {}
    for played in Run.open(path).debates():
        if isinstance(played, PlayedDebate) and played.error is None:
            said = [(turn.fields or {})["solution"] for turn in played.debate.turns if turn.answers]
            answers.setdefault(played.debate.question, []).extend(said)
    if not any(answers.values()):
        raise ConfigError(f"answers {str(path)!r}: this run has no debates with an answer that can be read")
    return {question: texts for question, texts in answers.items() if texts}


def read_answers(path: Path, task: Task) -> dict[Question, list[str]]:
    """A file of questions with answers, or a run. What the task asks in the same words is the task's own question."""
    if Run.exists(path):
        return answers_of_run(path)
    known = {question.text: question for question in task.held_out}
    answers: dict[Question, list[str]] = {}
    if not path.exists():
        raise ConfigError(f"answers {str(path)!r} cannot be read: no such file; check the path")
    for number, row, _ in json_lines(path):
        row = row if isinstance(row, dict) else {}
        texts, asked, right = (row.get(name) for name in ("answers", "question", "answer"))
        if not (isinstance(asked, str) and isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            wanted = '{"question": text, "answer": text, "answers": [texts]}'
            raise ConfigError(f"answers {str(path)!r}, line {number}: must be {wanted}")
        right = str(right) if isinstance(right, str | int | float) else None
        question = Question(asked, right) if right is not None or asked not in known else known[asked]
        answers.setdefault(question, []).extend(texts)
    if not answers:
        raise ConfigError(f"answers {str(path)!r} has no lines; each is a question with its answers")
    return answers
