"""`moot label`: answers for questions that have none, each with how far to trust it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import tyro

from moot.cli.ask import until_interrupted
from moot.cli.console import Bars, Terminal
from moot.cli.ending import Ended, interruptible, kept
from moot.cli.evaluate import Watching
from moot.cli.labelled import cut_line, forecast_lines, kept_line, reliability_table, replaced_line, summary_lines
from moot.cli.registry import option_names
from moot.cli.speakers import Speakers
from moot.cli.spelling import respelled_ballot
from moot.debate.protocols import preset
from moot.debate.rewards import Grades
from moot.debate.sections import CUT
from moot.debate.state import Debate
from moot.debate.types import ParseFailure, Turn
from moot.errors import ConfigError
from moot.evaluate.figures import draw_reliability
from moot.evaluate.store import AnswerStore
from moot.players.chat.listening import Listener
from moot.players.memory import Replies
from moot.players.seats import TakenSeats
from moot.runs.lock import RunLock
from moot.tasks.answers import grade_all
from moot.tasks.graders import Grading, grading
from moot.tasks.sets import normal
from moot.tools.ask import AskedDebate, Asking, GroupAnswer, group_answer
from moot.tools.asked import BRIEF_BOX, IN_BOX
from moot.tools.judge import check_verdict
from moot.tools.label import Label, Sheet, calibrate, label_of, labelled_rows, read_sheet, write_labels
from moot.util.disk import read_file, refuse_links, write_atomically
from moot.util.json_text import read_json
from moot.util.safe_text import counted, one_line

GIVE_UP_AFTER = 3
"""Questions that may fail one after another before the rest is left for later: the server is gone, not the question
hard."""
USUAL = 0.6
"""Of a threshold that nobody has measured: a clear majority."""
FEWEST_ANSWERS = 20
"""Without which nothing is said of how many are cut."""
CONTINUING = "Nothing that was answered is lost; the same command continues"


@dataclass(frozen=True)
class LabelCommand:
    """Answer every question of a file several times, and keep the answer that most give, with how far to trust it.

    With a chat server: moot label questions.jsonl --engine openai --base-url http://localhost:8000/v1 --model NAME

    With a judge, and sure to 95% by the rows whose answers are known: moot label questions.csv --judge base --precision
    0.95 --known labelled.jsonl

    Then train on the labels that are trusted: moot train --preset truth --task questions-labels.jsonl

    Rows keep all their fields. Everything is kept as it comes: the same command again continues where it stopped, and
    asks nothing twice.
    """

    questions: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTIONS", help_behavior_hint="")] = ""
    """A .jsonl, .json, .csv or .txt file; FILE:question=FIELD,answer=FIELD where its fields have other names."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: NAME-labels.jsonl)")] = None
    """Where labels go: .jsonl, or .csv without what was said. If not given, into the current folder, wherever QUESTIONS
    is. What was said is kept beside it, in a folder."""
    answers: Annotated[int, tyro.conf.arg(name="num-answers", aliases=["--k", "--num-agents", "--agents"])] = 8
    """Answers per question."""
    rounds: Annotated[int, tyro.conf.arg(name="max-rounds", aliases=["--rounds"])] = 1
    """With 2, everybody reads the others' answers, judges them and answers again."""
    grader: str = ""
    """When two answers are the same: exact, number (1/2 is 0.5), text, choice, math, or path.py:function of (question,
    answer) for what is right. If not given, answers stand in a box and are compared as they are."""
    equal: str = ""
    """Beside a grader of your own: one of these names, or path.py:function of two answers."""
    threshold: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint=f"(default: {USUAL})")] = None
    """Labels with at least this confidence are trusted."""
    precision: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Find the threshold: the lowest at which so many of the trusted labels are right, by the known answers."""
    known: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Questions of QUESTIONS with their answers. Rows of QUESTIONS that have an answer count too."""
    instruction: str | None = None
    """Stands under each question. If not given, it asks for what the grader can read."""
    concurrency: int = 8
    """Questions under way at once."""
    json: bool = False
    """Print the report as JSON."""
    speakers: Annotated[Speakers, tyro.conf.OmitArgPrefixes] = field(
        default_factory=lambda: Speakers(personas=False, seed=0)
    )

    def run(self) -> int:
        console = Terminal(stderr=self.json)
        self._check()
        graded = grading(self.grader or "exact", self.equal) if self.grader or self.equal else IN_BOX
        sheet = read_sheet(self.questions, self.known)
        if self.precision is not None and not sheet.known:
            raise ConfigError("precision needs rows whose answers are known; give --known FILE, or rows with an answer")
        for note in sheet.notes:
            console.note(f"{note}.")
        job = _Job(self, sheet, graded, console)
        job.spare_what_is_there()
        with kept(f"{CONTINUING}.", job.out):
            return interruptible(job.run())

    def _check(self) -> None:
        if not self.questions:
            raise ConfigError("there are no questions; name a file of them: moot label questions.jsonl")
        for name, value in (("num-answers", self.answers), ("concurrency", self.concurrency)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        self.speakers.check(self.answers, self.rounds)
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold must lie between 0 and 1, got {self.threshold}")
        if self.precision is not None and not 0 < self.precision < 1:
            raise ConfigError(f"precision must be above 0 and below 1, got {self.precision}; 0.95 is usual")
        if self.threshold is not None and self.precision is not None:
            raise ConfigError("precision finds the threshold; leave one of the two out")
        if self.speakers.seed is None:
            raise ConfigError("seed must be a number, so that the same command finds its answers again")
        if self.out is not None and self.out.suffix not in (".jsonl", ".csv"):
            raise ConfigError(f"out must end in .jsonl or .csv, got {str(self.out)!r}")

    @property
    def place(self) -> Path:
        file = Path(self.questions.partition(":")[0])
        return self.out or Path(f"{file.stem}-labels{'.csv' if file.suffix == '.csv' else '.jsonl'}")


class _Job:
    """One labelling: what is asked, what came of it, and where it goes."""

    def __init__(self, options: LabelCommand, sheet: Sheet, graded: Grading, console: Terminal) -> None:
        self._options, self._sheet, self._graded, self._console = options, sheet, graded, console
        self.out = options.place
        self._work = self.out.with_name(f"{self.out.stem}-work")
        named = options.grader or options.equal
        self._instruction = options.instruction or (graded.instruction if named else BRIEF_BOX)
        self._spent = _Spent()

    def spare_what_is_there(self) -> None:
        """Labels replace labels that this command wrote, and no other file."""
        if not self.out.exists():
            return
        for name in filter(None, (self._options.questions, self._options.known)):
            if self.out.samefile(name.partition(":")[0]):
                raise ConfigError(f"out must not be {self.out}, which is read; leave --out out, or name another file")
        if not self._work.exists():
            raise ConfigError(f"out {self.out} is there and not from this command; move it, or name another with --out")

    async def run(self) -> int:
        options, console = self._options, self._console
        questions = self._sheet.questions(self._instruction)
        rules, prompts = options.speakers.rules(), options.speakers.prompts
        debates = [Debate(question, options.answers, options.rounds, rules, prompts=prompts) for question in questions]
        async with contextlib.AsyncExitStack() as stack:
            refuse_links(self._work.parent, {self._work.name})
            self._work.mkdir(parents=True, exist_ok=True)
            stack.enter_context(RunLock()).take(self._work, "another file with --out")
            replies = stack.enter_context(contextlib.closing(Replies(self._work / "replies.jsonl")))
            if replaced := self._replaced():
                console.note(replaced)
            for line in forecast_lines(debates, options.speakers):
                console.say(line)
            with console.status("getting ready"):
                seats = await options.speakers.take(options.answers, stack, replies)
                judging = await options.speakers.judging(seats)
            for note in seats.notes():
                console.note(one_line(note, 300))
            here = await self._here(debates, seats, replies)
            asked = await self._ask(debates, seats, here)
            done = [debate for debate in asked if debate.ended == "done"]
            with console.status("comparing answers"):
                groups = await asyncio.to_thread(self._compared, done)
            if judging is not None:
                verdicts = stack.enter_context(
                    contextlib.closing(AnswerStore(self._work / "verdicts.jsonl", check_verdict))
                )
                watching = stack.enter_context(Watching(console))
                stack.callback(watching.say_losses)
                groups, self._spent.judge = await judging.scored(done, groups, verdicts, watching)
        failed = next((debate.played.error for debate in asked if debate.ended == "failed"), None)
        return self._finish(done, groups, len(questions), failed)

    def _replaced(self) -> str | None:
        """What is told of labels that are there and were made otherwise."""
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):  # damaged, or an older one
            before = dict(read_json(read_file(self._work / "report.json"))["settings"])
            return replaced_line(self.out, before, self._settings()) if self.out.exists() else None
        return None

    async def _here(self, debates: Sequence[Debate], seats: TakenSeats, replies: Replies) -> float:
        """Says how many replies of before are to what is asked now, which only playing can tell: what is asked later
        follows from what was said. Answers with how many questions that makes, parts of one too."""
        kept, heard = len(replies), _Heard(self._turns())
        if not kept:
            return 0
        with replies.asking_nobody() as used, self._console.status("reading what is here from before"):
            asking = Asking(debates, preset(self._options.speakers.protocol).scoring, seats.cast, heard)
            await asking.run(lambda asked: heard.over(asked) if asked.ended == "done" else None)
        self._console.say(kept_line(len(used), kept))
        return heard.questions

    def _turns(self) -> int:
        """Of one question, at most."""
        options = self._options
        return options.answers * (options.rounds + options.speakers.rules().closing_ballot)

    async def _ask(self, debates: Sequence[Debate], seats: TakenSeats, here: float) -> list[AskedDebate]:
        """What is `here` from before takes no time, and is no measure of the time left."""
        options, console, ended = self._options, self._console, list[AskedDebate]()
        bars, told, warned = Bars(console), time.monotonic(), False
        bars.plan("questions", len(debates), here, first=min(options.concurrency, len(debates) // 2))

        def came() -> None:
            nonlocal warned
            bars.reach("questions", max(here, heard.questions))
            if not warned and heard.answers >= FEWEST_ANSWERS and 2 * heard.cut > heard.answers:
                warned = True
                console.say(cut_line(heard.cut, heard.answers, options.speakers.max_tokens), "yellow")

        heard = _Heard(self._turns(), came)

        def finished(asked: AskedDebate) -> None:
            nonlocal told
            ended.append(asked)
            self._spent.add(asked)
            heard.over(asked)
            bars.reach("questions", max(here, heard.questions), str(self._spent))
            if not console.is_terminal and time.monotonic() - told > 10:
                told = time.monotonic()
                left = bars.left("questions")
                console.say(f"{len(ended)} of {len(debates)} questions, {self._spent}{left}")

        scoring, prices = preset(options.speakers.protocol).scoring, options.speakers.prices(seats)
        asking = Asking(debates, scoring, seats.cast, heard, prices, give_up_after=GIVE_UP_AFTER)
        with bars:
            if await until_interrupted(asking, finished, options.concurrency):
                raise Ended(f"interrupted. {CONTINUING}.", 130)
        return ended

    def _compared(self, done: Sequence[AskedDebate]) -> list[GroupAnswer]:
        graded = self._graded
        grades: list[Grades] = grade_all([debate.debate for debate in done], graded.equal, graded.extract, graded.check)
        return [group_answer(debate.played, own) for debate, own in zip(done, grades, strict=True)]

    def _finish(
        self, done: Sequence[AskedDebate], groups: Sequence[GroupAnswer], questions: int, failed: str | None
    ) -> int:
        options, console, known = self._options, self._console, self._sheet.known
        left = None
        if failed is not None:
            missing = counted(questions - len(done), "question")
            why = f"{missing} got no answer, the last because {failed}. {options.speakers.advice()}"
            left = Ended(f"{why}. The same command asks only what is missing", 1)
        if left is not None and not done:
            raise left  # labels of before stay as they are
        keys = [normal(debate.debate.question.text) for debate in done]
        labels = {key: label_of(group, key in known) for key, group in zip(keys, groups, strict=True)}
        calibration = calibrate(
            list(labels.values()), options.precision, USUAL if options.threshold is None else options.threshold
        )
        reached = None if calibration.kept is None else calibration.kept.threshold
        both = zip(keys, done, groups, strict=True)
        records = {key: self._record(asked, group) for key, asked, group in both}
        write_labels(self.out, labelled_rows(self._sheet, labels, records, reached))
        report = self._report(labels, calibration.as_dict(), reached, questions)
        write_atomically(self._work / "report.json", json.dumps(report, indent=1).encode() + b"\n")
        for suffix in (".png", ".svg"):
            (self._work / f"reliability{suffix}").unlink(missing_ok=True)  # of labels that are no more
        pictures = self._draw(calibration.bins) if calibration.known else []
        if options.json:
            print(json.dumps(report))
        else:
            if calibration.known:
                console.print(reliability_table(calibration))
            measured = options.speakers.judge is not None, bool(options.grader or options.equal)
            for line, style in summary_lines(labels, calibration, reached, *measured):
                console.say(line, style)
            turns = [turn for asked in done for turn in asked.debate.turns]
            if cut := sum(map(_is_cut, turns)):
                told = f"{cut:,} of {len(turns):,} answers were cut at --max-tokens {options.speakers.max_tokens}"
                beside = "moot eval grades plain answers that were cut too, so it may find more right"
                console.say(f"{told} and count as none; give them more. ({beside}.)", "yellow")
            console.say(f"{self._spent}. {self._spent.judge}".rstrip())
            for path in (self.out, *pictures):
                console.say(f"Written: {path}", "green")
        if left is not None:
            raise left
        return 1 if reached is None else 0

    def _record(self, asked: AskedDebate, group: GroupAnswer) -> Mapping[str, Any]:
        return {**asked.as_json(group), "settings": self._settings()}

    def _settings(self) -> dict[str, Any]:
        options = self._options
        own = {"agents": options.answers, "rounds": options.rounds, "instruction": self._instruction}
        return {**options.speakers.settings(), **own, "grader": options.grader, "equal": options.equal}

    def _report(
        self, labels: Mapping[str, Label], calibration: Mapping[str, Any], threshold: float | None, questions: int
    ) -> dict[str, Any]:
        trusted = [label for label in labels.values() if label.trusted(threshold)]
        return {
            "questions": questions,
            "labelled": len(labels),
            "without_answer": sum(label.answer is None for label in labels.values()),
            "trusted": len(trusted),
            "threshold": threshold,
            "calibration": calibration,
            "tokens": {"read": self._spent.read, "written": self._spent.written},
            "cost": self._spent.cost,
            "labels": str(self.out),
            "settings": self._settings(),
        }

    def _draw(self, bins: Sequence[Any]) -> list[Path]:
        try:
            return draw_reliability(bins, self._work / "reliability")
        except ConfigError as error:  # matplotlib is an extra; the table says the same
            self._console.note(f"there is no picture: {error}")
            return []


class _Heard(Listener):
    """How many answers came, those of questions that are not over too."""

    def __init__(self, turns: int, came: Callable[[], None] = lambda: None) -> None:
        """`turns`: of a question, at most. `came` is called after each."""
        self._turns, self._came = turns, came
        self._over = self._of_those_over = self.answers = self.cut = 0

    @property
    def questions(self) -> float:
        """Those that are over, and of the others what was said."""
        return self._over + (self.answers - self._of_those_over) / self._turns

    def said(self, turn: Turn) -> None:
        self.answers, self.cut = self.answers + 1, self.cut + _is_cut(turn)
        self._came()

    def over(self, asked: AskedDebate) -> None:
        self._over, self._of_those_over = self._over + 1, self._of_those_over + len(asked.debate.turns)


def _is_cut(turn: Turn) -> bool:
    return isinstance(turn.parsed, ParseFailure) and turn.parsed.reason == CUT


@dataclass
class _Spent:
    """Tokens and money so far, those of earlier tries of the command too: they were paid for."""

    read: int = 0
    written: int = 0
    cost: float | None = 0.0
    judge: str = ""
    """What is told of it; what it reads is counted by nobody."""

    def add(self, asked: AskedDebate) -> None:
        read, written, _ = asked.tokens()
        self.read, self.written = self.read + read, self.written + written
        self.cost = None if self.cost is None or asked.cost is None else self.cost + asked.cost

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", cost {self.cost:.4g}"
        return f"{self.read:,} tokens read, {self.written:,} written{cost}"


def respelled(arguments: list[str]) -> list[str]:
    if asked := option_names(arguments) & {"--n", "-n", "--samples", "--num-samples", "--num-generations"}:
        raise ConfigError(f"there is no option {asked.pop()}; use --k for the answers per question (moot label --help)")
    if len(files := [*takewhile(lambda word: not word.startswith("-"), arguments)]) > 1:
        raise ConfigError(f"one file at a time, got {' and '.join(files)}; label each by itself, or make one of them")
    return respelled_ballot(arguments)
