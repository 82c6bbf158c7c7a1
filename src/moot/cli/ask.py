"""`moot ask`: debate a question now, with a local model, a checkpoint, or any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from moot.ask import BRIEF_BOX, Answers, Asked, Asking, Prices, Watcher, read_questions, verdict
from moot.cli.live import Printed, Streamed, show_outcome
from moot.cli.seats import Common, Manner, Seats, parse_seats, take_seats
from moot.debate.protocol import preset
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Question
from moot.speakers.chat import Patience
from moot.speakers.endpoint import endpoint
from moot.terminal import one_line

GIVE_UP_AFTER = 3
"""Questions of a file that may fail one after another before the rest is left for later: the server is gone, not the question hard."""


@dataclass(frozen=True)
class Ask:
    """Debate a question now, and see the answer, the votes, the agreement, the tokens and the cost.

    With SmolLM2 on this machine: moot ask "What is 17 * 23?"

    With a model you trained: moot ask "What is 17 * 23?" --checkpoint runs/demo-arithmetic-seed0

    With any OpenAI-compatible server: moot ask "What is 17 * 23?" --engine openai --base-url http://localhost:8000/v1 --model NAME

    Many questions, where the same command again goes on: moot ask --file questions.txt --out answers.jsonl
    """

    question: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION", help_behavior_hint="")] = ""
    """What to debate."""
    file: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Questions instead of one: one a line, or JSON lines with question and, if known, answer. - is standard input."""
    engine: Literal["local", "openai", "tinker", "scripted"] = "local"
    """What runs the model: this machine, an OpenAI-compatible server, a Tinker server, or a script for trying out the command."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model's name; smollm2-135m with the local engine if not given."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the server is, as http://localhost:8000/v1; OPENAI_BASE_URL if not given. The key is taken from OPENAI_API_KEY."""
    seat: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="N=MODEL@URL")] = ()
    """Another model in seat N, at its own server or (without @URL) at base-url. Its key is taken from OPENAI_API_KEY_N. May be repeated."""
    tokenizer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Where a Tinker server's model has its tokenizer, if not under the model's name."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Load what was trained: a run, or one folder under its checkpoints."""
    agents: int = 3
    """Agents in the debate. Below 3 nobody can vote."""
    rounds: int = 2
    """Rounds of the debate."""
    protocol: Literal["v1", "v2"] = "v2"
    """The rules: v1 speaks in turn until all agree, v2 all at once with blind reviews."""
    closing_ballot: bool = False
    """After the last round everybody judges once more. Otherwise nobody judges the last answers, only those before."""
    max_tokens: int = 512
    """Longest turn."""
    temperature: float | None = None
    """The same for all; each persona's own if not given."""
    seed: int | None = None
    """The same seed gives the same debate, where the engine can."""
    instruction: str = BRIEF_BOX
    """Stands under the question. Answers in a box can be compared with each other."""
    price_in: Annotated[float | None, tyro.conf.arg(metavar="PRICE")] = None
    """Price of a million tokens read."""
    price_out: Annotated[float | None, tyro.conf.arg(metavar="PRICE")] = None
    """Price of a million tokens written."""
    retries: int = 5
    """How often to ask a server again that fails, is busy or breaks off."""
    timeout: float = 300.0
    """Seconds a server may stay silent; one that answers in turn lets the last wait for all the others."""
    concurrency: int = 4
    """Questions of a file in debate at once."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Where answers go, one JSON object a line; with --file, runs/ask-NAME.jsonl if not given. What is there already is not asked again."""
    json: bool = False
    """Print JSON, one object a question, and nothing else."""

    def run(self) -> int:
        questions = self._questions()
        settings, others = self._checked()
        console = Console(highlight=False, stderr=self.json)
        answers = None
        if out := self.out or (self.file and Path("runs") / f"ask-{Path(self.file).stem.strip('-') or 'stdin'}.jsonl"):
            answers = Answers(Path(out), questions, settings)
        if self.agents < 3:
            console.print(Text("Note: with fewer than 3 agents nobody can vote; the answer is the plurality's.", style="yellow"))
        try:
            return asyncio.run(_until_interrupted(lambda: self._run(questions, settings, others, answers, console)))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _say(f"the disk is full ({error.filename or out}); make room and ask again: what was answered before is kept")
            return 1

    def _questions(self) -> list[Question]:
        text = self.question.encode("utf-8", "replace").decode()
        if bool(text.strip()) == (self.file is not None):
            raise ConfigError('ask one question, or give --file: moot ask "What is 17 * 23?"')
        if text.strip():
            return [Question(text, id="1", instruction=self.instruction)]
        assert self.file is not None
        raw = sys.stdin.buffer.read() if self.file == "-" else Path(self.file).read_bytes()
        return read_questions(raw, "standard input" if self.file == "-" else self.file, self.instruction)

    def _checked(self) -> tuple[dict[str, Any], dict[int, Any]]:
        """Everything that can be wrong is found before anything is asked. The settings say which answers may share a file."""
        for name, low in (("agents", 1), ("rounds", 1), ("max_tokens", 1), ("retries", 0), ("concurrency", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name.replace('_', '-')} must be at least {low}, got {getattr(self, name)}")
        if self.temperature is not None and not 0 <= self.temperature <= 100:
            raise ConfigError(f"temperature must be 0 or more, got {self.temperature}; 0 always takes the likeliest word")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout must be above 0 seconds, got {self.timeout}")
        for name, price in (("price-in", self.price_in), ("price-out", self.price_out)):
            if price is not None and not 0 <= price < float("inf"):
                raise ConfigError(f"{name} must be 0 or more, got {price}")
        if (self.price_in is None) != (self.price_out is None):
            raise ConfigError("price-in and price-out go together; give both")
        base_url = self._base_url()
        others = parse_seats(self.seat, self.agents, base_url if self.engine != "tinker" else None)
        if self.engine == "openai" and len(others) < self.agents:
            if not base_url:
                raise ConfigError("engine openai needs --base-url (or OPENAI_BASE_URL); for example http://localhost:8000/v1")
            if not self.model:
                raise ConfigError("engine openai needs --model, the name by which the server knows it")
            endpoint(base_url, self.model, os.environ.get("OPENAI_API_KEY"))
        if self.base_url and self.engine not in ("openai", "tinker") and not self.seat:
            raise ConfigError(f"base-url is for --engine openai or tinker, got --engine {self.engine}; change one of the two")
        if self.engine == "tinker" and not self.model and not self.checkpoint:
            raise ConfigError("engine tinker needs --model, or --checkpoint with a run that was trained there")
        if self.tokenizer and self.engine != "tinker":
            raise ConfigError(f"tokenizer is for --engine tinker, got --engine {self.engine}; leave it out")
        if self.checkpoint is not None and self.engine not in ("local", "tinker"):
            raise ConfigError(f"checkpoint needs --engine local or tinker, got {self.engine}")
        common = "engine model checkpoint agents rounds protocol closing_ballot max_tokens temperature seed instruction"
        settings: dict[str, Any] = {name: getattr(self, name) for name in common.split()}
        return {**settings, "base_url": base_url if self.engine in ("openai", "tinker") else None, "seats": list(self.seat)}, others

    def _base_url(self) -> str | None:
        """A server of one kind is no place for the other's requests."""
        return self.base_url or (os.environ.get("OPENAI_BASE_URL") if self.engine != "tinker" else None) or None

    # Asking

    async def _run(
        self, questions: list[Question], settings: dict[str, Any], others: dict[int, Any], answers: Answers | None, console: Console
    ) -> int:
        protocol = preset(self.protocol).with_choices(closing_ballot=self.closing_ballot)
        manner = Manner(protocol.rules, self.max_tokens, self.temperature, self.seed)
        async with AsyncExitStack() as stack:
            waiting = [question for question in questions if answers is None or int(question.id) not in answers.done]
            if not waiting:
                console.print(Text(f"Everything is answered already: {answers.path if answers else ''}", style="green"))
                return self._repeat(answers)
            with console.status("getting ready"):
                common = Common(self.engine, self.model, self._base_url(), self.tokenizer, self.checkpoint)
                seats = await take_seats(common, others, self.agents, manner, Patience(self.retries, self.timeout), stack)
            notes = _Notes(seats, console)
            notes.print()
            prices = self._prices(seats)
            debates = [Debate(question, self.agents, self.rounds, protocol.rules) for question in waiting]
            if self.file is None:
                return await self._one(debates[0], settings, seats, prices, answers, console, notes)
            assert answers is not None
            self._repeat(answers)
            return await _Many(self, debates, settings, seats, prices, answers, console).run()

    def _prices(self, seats: Seats) -> list[Prices | None]:
        if self.price_in is None or self.price_out is None:
            return [None] * self.agents
        given = Prices(self.price_in, self.price_out)
        return [given if billed else None for billed in seats.billed]

    def _repeat(self, answers: Answers | None) -> int:
        """A program that reads the output gets all answers, those of the last time too."""
        for record in answers.done.values() if answers and self.json else ():
            print(json.dumps(record), flush=True)
        return 0

    async def _one(
        self, debate: Debate, settings: dict[str, Any], seats: Seats, prices: Sequence[Prices | None], answers: Answers | None,
        console: Console, notes: _Notes,
    ) -> int:  # fmt: skip
        watcher: Any = nullcontext(Watcher())
        if not self.json:
            watcher = (Streamed if console.is_terminal else Printed)(console, debate.rules, seats.names)
        with watcher as watching:
            asking = Asking(1, debate, preset(self.protocol).scoring, seats.cast, watching, prices)
            interrupted = False
            try:
                asked = await asking.run()
            except asyncio.CancelledError:
                asked, interrupted = asking.so_far("interrupted"), True
                _go_on()
        notes.print()
        record = {**asked.as_json(), "settings": settings}
        if answers:
            answers.add(record)
        if self.json:
            print(json.dumps(record), flush=True)
        else:
            show_outcome(asked, seats.names, prices, console)
        if interrupted:
            _say(f"interrupted in {_where(asked)}; {_kept(asked, answers)}")
            return 130
        if asked.ended == "failed":
            kept = _kept(asked, answers)
            _say(f"the debate broke off in {_where(asked)}: {asked.error}. {kept[0].upper()}{kept[1:]}. {self._advice()}")
            return 1
        return 0

    def _advice(self) -> str:
        if self.engine == "openai" or self.seat:
            return "See that the server runs and answers, then ask again; --retries and --timeout give it more time"
        return "Ask again; a smaller --max-tokens or fewer --rounds need less"


class _Notes:
    """What the engines want known, each once."""

    def __init__(self, seats: Seats, console: Console) -> None:
        self._seats, self._console, self._told = seats, console, 0

    def print(self) -> None:
        notes = self._seats.notes()
        for note in notes[self._told :]:
            self._console.print(Text(f"Note: {one_line(note, 300)}", style="yellow"), soft_wrap=not self._console.is_terminal)
        self._told = len(notes)


class _Many:
    """The questions of a file, several at once, with a bar and a line for each that is answered."""

    def __init__(
        self, options: Ask, debates: list[Debate], settings: dict[str, Any], seats: Seats, prices: Sequence[Prices | None],
        answers: Answers, console: Console,
    ) -> None:  # fmt: skip
        self._options, self._debates, self._settings, self._seats, self._prices = options, debates, settings, seats, prices
        self._answers, self._console = answers, console
        self._under_way: dict[int, Asking] = {}
        self._finished: list[Asked] = []
        self._failed_in_a_row = 0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console,
        )  # fmt: skip
        self._task = self._bar.add_task("debating", total=len(debates) + len(answers.done), completed=len(answers.done))

    async def run(self) -> int:
        if already := len(self._answers.done):
            self._console.print(Text(f"{already} answered before, in {self._answers.path}"))
        gate = asyncio.Semaphore(self._options.concurrency)
        interrupted = False
        with self._bar:
            try:
                await self._ask_all(gate)
            except asyncio.CancelledError:
                interrupted = True
                _go_on()
                for asking in self._under_way.values():
                    self._answers.add(self._record(asking.so_far("interrupted")))
        return self._report(interrupted)

    async def _ask_all(self, gate: asyncio.Semaphore) -> None:
        """What goes wrong comes out as it is: a reader that went away, a disk that is full."""
        try:
            async with asyncio.TaskGroup() as group:
                for debate in self._debates:
                    group.create_task(self._ask(debate, gate))
        except* Exception as failures:
            failure: BaseException = failures
            while isinstance(failure, BaseExceptionGroup):
                failure = failure.exceptions[0]
            raise failure from None

    async def _ask(self, debate: Debate, gate: asyncio.Semaphore) -> None:
        async with gate:
            if self._failed_in_a_row >= GIVE_UP_AFTER:
                return
            number = int(debate.question.id)
            self._under_way[number] = Asking(
                number, debate, preset(self._options.protocol).scoring, self._seats.cast, Watcher(), self._prices
            )
            asked = await self._under_way[number].run()
            del self._under_way[number]
            record = self._record(asked)
            self._answers.add(record)
            self._finished.append(asked)
            self._failed_in_a_row = 0 if asked.ended == "done" else self._failed_in_a_row + 1
            self._bar.advance(self._task)
            if self._options.json:
                print(json.dumps(record), flush=True)
            else:
                self._console.print(_line(asked), soft_wrap=not self._console.is_terminal)

    def _record(self, asked: Asked) -> dict[str, Any]:
        return {**asked.as_json(), "settings": self._settings}

    def _report(self, interrupted: bool) -> int:
        done = [*self._answers.done.values(), *(asked.as_json() for asked in self._finished if asked.ended == "done")]
        known = [record["correct"] for record in done if record["correct"] is not None]
        failed = len(self._debates) + len(self._answers.done) - len(done)
        right = f", {sum(known)} of {len(known)} right" if known else ""
        self._console.print(Text(f"{len(done)} answered{right}{f', {failed} not' if failed else ''}: {self._answers.path}", style="bold"))
        if interrupted:
            _say("interrupted; nothing that was answered is lost. The same command again goes on")
            return 130
        errors = [asked for asked in self._finished if asked.ended == "failed"]
        if errors:
            _say(f"{failed} questions have no answer, the last because {errors[-1].error}. The same command again asks only these")
        return 1 if errors else 0


def _go_on() -> None:
    """The interruption is dealt with; what closes the engines afterwards must not think that it is being cancelled."""
    if task := asyncio.current_task():
        task.uncancel()


def _line(asked: Asked) -> Text:
    question = one_line(asked.debate.question.text, 50)
    if asked.ended != "done":
        return Text(f"{asked.number:>4}  failed: {one_line(asked.error or '', 100)}  {question}", style="yellow")
    found = verdict(asked.debate, asked.scoring)
    answer = "–" if found.answer is None else one_line(found.answer, 24)
    by = "nobody won" if found.winner is None else f"Agent {found.winner} won"
    mark = "" if found.correct is None else "right  " if found.correct else "wrong  "
    return Text(f"{asked.number:>4}  {answer:<24}  {mark}{by}, {found.agreeing} of {asked.debate.num_agents} agree  {question}")


def _where(asked: Asked) -> str:
    whole = len(asked.debate.turns)
    round = max((turn.round for turn in asked.debate.turns), default=0)
    if whole == round * asked.debate.num_agents and not asked.debate.done:
        round += 1
    return f"round {max(1, round)}"


def _kept(asked: Asked, answers: Answers | None) -> str:
    count = len(asked.debate.turns)
    if not count:
        return "nothing had been said in full"
    return f"the {count} turn{'s' * (count != 1)} said in full {'is' if count == 1 else 'are'} " + (
        f"in {answers.path}" if answers else "above"
    )


def _say(message: str) -> None:
    from moot.terminal import plain

    print(f"moot: {plain(' '.join(message.split()))}", file=sys.stderr)


async def _until_interrupted(work: Any) -> int:
    """A first Ctrl-C cancels what is asked, which then shows and keeps what there is."""
    coroutine: Coroutine[Any, Any, int] = work()
    task = asyncio.ensure_future(coroutine)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None  # before anything was asked
