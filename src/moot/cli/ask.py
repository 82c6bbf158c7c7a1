"""`moot ask`: debate a question now, with a local model, a checkpoint, or any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.text import Text

from moot.cli.console import Bars, Terminal
from moot.cli.ending import complain, interruptible, kept
from moot.cli.live import Printed, Streamed, show_outcome
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.protocols import preset
from moot.debate.rules import Rules
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.players.chat.chat import Patience
from moot.players.chat.endpoint import Endpoint, own_endpoint
from moot.players.chat.listening import Listener
from moot.players.seats import CommonModel, SpeakingSettings, TakenSeats, parse_seats, take_seats
from moot.settings.train import section_limits
from moot.tools.ask import BRIEF_BOX, AnswerFile, AskedDebate, Asking, Prices, asked_rules, group_answer, read_questions
from moot.util.safe_text import counted, one_line

GIVE_UP_AFTER = 3
"""Questions of a file that may fail one after another before the rest is left for later: the server is gone, not the
question hard."""


@dataclass(frozen=True)
class Ask:
    """Debate a question now, and see the answer, the votes, the agreement, the tokens and the cost.

    With SmolLM2 on this machine: moot ask "What is 17 * 23?"

    With a model you trained: moot ask "What is 17 * 23?" --checkpoint runs/demo-arithmetic-seed0

    With any OpenAI-compatible server: moot ask "What is 17 * 23?" --engine openai --base-url http://localhost:8000/v1
    --model NAME

    Many questions, where the same command continues: moot ask --file questions.txt --out answers.jsonl
    """

    question: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION", help_behavior_hint="")] = ""
    """What to debate."""
    file: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Questions instead of one: one per line, or JSON lines with question and, if known, answer. - is standard
    input."""
    engine: Literal["local", "openai", "tinker", "scripted"] = "local"
    """What runs the model: this machine, an OpenAI-compatible server, a Tinker server, or a script for trying out the
    command."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model's name; smollm2-135m with the local engine if not given."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the server is, as http://localhost:8000/v1; OPENAI_BASE_URL if not given. The key is taken from
    OPENAI_API_KEY."""
    seat: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="N=MODEL@URL")] = ()
    """Another model in seat N, at its own server or (without @URL) at base-url. Its key is taken from OPENAI_API_KEY_N.
    May be repeated."""
    tokenizer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Where a Tinker server's model has its tokenizer, if not under the model's name."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Load what was trained: a run, or one folder under its checkpoints."""
    agents: Annotated[int, tyro.conf.arg(name="num-agents", aliases=["--agents"])] = 3
    """Agents in the debate. Below 3 nobody can vote."""
    rounds: Annotated[int, tyro.conf.arg(name="max-rounds", aliases=["--rounds"])] = 2
    """Rounds of the debate."""
    protocol: Literal["v1", "v2"] = "v2"
    """The rules: v1 speaks in turn until all agree, v2 all at once with blind reviews."""
    closing_ballot: bool = False
    """After the last round everybody judges once more. Otherwise nobody judges the last answers, only those before."""
    sections: Literal["sampled", "given", "asked"] | None = None
    """sampled: the model writes the tags of a turn itself. given: the tags are inserted. asked: no tags, each section
    is asked for by
    itself, which small models need, and which takes several requests per turn. If not given: asked; with v1, as it is
    defined, sampled."""
    personas: bool = True
    """A character and a temperature for each seat, where the protocol has them."""
    prompts: Prompts = DEFAULT
    """A file with the texts that agents read, over the defaults; `moot prompts` prints it."""
    max_tokens: int = 512
    """Longest turn; where sections are given or asked, longest solution."""
    evaluation_tokens: int = 256
    """Longest evaluation, where sections are given or asked; a comparison has a quarter of it."""
    temperature: float = 1.0
    """What is sampled at. A persona's own temperature is multiplied by it."""
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
    """Where answers go, one JSON object per line; with --file, runs/ask-NAME.jsonl if not given. What is there is not
    asked again."""
    json: bool = False
    """Print JSON, one object per question, and nothing else."""

    def run(self) -> int:
        out = self.out or (self.file and Path("runs") / f"ask-{Path(self.file).stem.strip('-') or 'stdin'}.jsonl")
        questions = self._questions()
        settings, others = self._checked()
        console = Terminal(stderr=self.json)
        answers = AnswerFile(Path(out), questions, settings) if out else None
        if self.agents < 3:
            console.note("with fewer than 3 agents nobody can vote; the answer is the plurality's.")
        with kept("What was answered before is kept; ask again.", out or "standard output"):
            return interruptible(self._run(questions, settings, others, answers, console))

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
        """Everything that can be wrong is found before anything is asked. The settings say which answers may share a
        file."""
        tokens = (("max_tokens", 1), ("evaluation_tokens", 1))
        for name, low in (("agents", 1), ("rounds", 1), *tokens, ("retries", 0), ("concurrency", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name.replace('_', '-')} must be at least {low}, got {getattr(self, name)}")
        if not self.temperature >= 0:
            raise ConfigError(
                f"temperature must be 0 or more, got {self.temperature}; 0 always takes the likeliest word"
            )
        self._rules()
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
            own_endpoint(base_url, self.model)
        if self.base_url and self.engine not in ("openai", "tinker") and not self.seat:
            raise ConfigError(
                f"base-url is for --engine openai or tinker, got --engine {self.engine}; change one of the two"
            )
        if self.engine == "tinker" and not self.model and not self.checkpoint:
            raise ConfigError("engine tinker needs --model, or --checkpoint with a run that was trained there")
        if self.tokenizer and self.engine != "tinker":
            raise ConfigError(f"tokenizer is for --engine tinker, got --engine {self.engine}; leave it out")
        if self.checkpoint is not None and self.engine not in ("local", "tinker"):
            raise ConfigError(f"checkpoint needs --engine local or tinker, got {self.engine}")
        common = "engine model checkpoint agents rounds protocol closing_ballot max_tokens temperature seed instruction"
        settings: dict[str, Any] = {name: getattr(self, name) for name in common.split()}
        settings |= {name: getattr(self, name) for name in ("personas", "evaluation_tokens")}
        settings["sections"] = self._rules().sections
        settings["temperature"] = None if self.temperature == 1 else self.temperature
        if self.prompts != DEFAULT:
            settings["prompts"] = self.prompts.digest
        return {
            **settings,
            "base_url": base_url if self.engine in ("openai", "tinker") else None,
            "seats": list(self.seat),
        }, others

    def _rules(self) -> Rules:
        return asked_rules(
            {**vars(self), "sections": self.sections or ("sampled" if self.protocol == "v1" else "asked")}
        )

    def _base_url(self) -> str | None:
        """A server of one kind is no place for the other's requests."""
        return self.base_url or (os.environ.get("OPENAI_BASE_URL") if self.engine != "tinker" else None) or None

    # Asking

    async def _run(
        self,
        questions: list[Question],
        settings: dict[str, Any],
        others: dict[int, Endpoint],
        answers: AnswerFile | None,
        console: Terminal,
    ) -> int:
        rules = self._rules()
        waiting = [question for question in questions if answers is None or int(question.id) not in answers.done]
        if answers and self.json:
            # A program that reads the output gets all answers, those of the last time too.
            for record in answers.done.values():
                print(json.dumps(record), flush=True)
        if not waiting:
            console.say(f"Everything is answered already: {answers.path if answers else ''}", "green")
            return 0
        async with AsyncExitStack() as stack:
            with console.status("getting ready"):
                common = CommonModel(self.engine, self.model, self._base_url(), self.tokenizer, self.checkpoint)
                limits = section_limits(self.evaluation_tokens, self.agents)
                speaking = SpeakingSettings(rules, self.max_tokens, self.seed, limits)
                seats = await take_seats(
                    common, others, self.agents, speaking, Patience(self.retries, self.timeout), stack
                )
            debates = [Debate(question, self.agents, self.rounds, rules, prompts=self.prompts) for question in waiting]
            session = _Session(self, seats, settings, answers, console)
            return await (session.one(debates[0]) if self.file is None else session.many(debates))

    def prices(self, seats: TakenSeats) -> list[Prices | None]:
        if self.price_in is None or self.price_out is None:
            return [None] * self.agents
        given = Prices(self.price_in, self.price_out)
        return [given if billed else None for billed in seats.billed]

    def advice(self) -> str:
        if self.engine == "openai" or self.seat:
            return "See that the server runs and answers, then ask again; --retries and --timeout give it more time"
        return "Ask again; a smaller --max-tokens or fewer --rounds need less"


class _Session:
    """Shows, prints and keeps what comes of the questions."""

    def __init__(
        self, options: Ask, seats: TakenSeats, settings: dict[str, Any], answers: AnswerFile | None, console: Terminal
    ) -> None:
        self._options, self._seats, self._settings, self._answers, self._console = (
            options,
            seats,
            settings,
            answers,
            console,
        )
        self._prices, self._notes_told = options.prices(seats), 0
        self._scoring = preset(options.protocol).scoring
        self._tell_notes()

    def _tell_notes(self) -> None:
        """What the engines want known, each once; more may have come while they spoke."""
        notes = self._seats.notes()
        for note in notes[self._notes_told :]:
            self._console.note(one_line(note, 300))
        self._notes_told = len(notes)

    def _keep(self, asked: AskedDebate, printed: bool) -> None:
        record = {**asked.as_json(), "settings": self._settings}
        if self._answers:
            self._answers.add(record)
        if printed and self._options.json:
            print(json.dumps(record), flush=True)

    # One question

    async def one(self, debate: Debate) -> int:
        console, seats, ended = self._console, self._seats, list[AskedDebate]()
        with self._listener(debate) as listener:
            interrupted = await _debated(
                Asking([debate], self._scoring, seats.cast, listener, self._prices), ended.append
            )
        (asked,) = ended
        self._tell_notes()
        self._keep(asked, printed=True)
        if not self._options.json:
            show_outcome(asked, seats.names, self._prices, console)
        if interrupted:
            complain(f"interrupted in {_where(asked)}; {self._what_is_kept(asked)}")
            return 130
        if asked.ended == "failed":
            what = self._what_is_kept(asked)
            advice = self._options.advice()
            complain(
                f"the debate broke off in {_where(asked)}: {asked.played.error}. {what[0].upper()}{what[1:]}. {advice}"
            )
            return 1
        return 0

    def _listener(self, debate: Debate) -> AbstractContextManager[Listener]:
        if self._options.json:
            return nullcontext(Listener())
        return (Streamed if self._console.is_terminal else Printed)(self._console, debate.rules, self._seats.names)

    def _what_is_kept(self, asked: AskedDebate) -> str:
        count = len(asked.debate.turns)
        if not count:
            return "nothing had been said in full"
        where = f"in {self._answers.path}" if self._answers else "above"
        return f"the {counted(count, 'turn')} said in full {'is' if count == 1 else 'are'} {where}"

    # The questions of a file, several at once, with a bar and a line for each that is answered

    async def many(self, debates: list[Debate]) -> int:
        assert self._answers is not None
        before = list(self._answers.done.values())
        if before:
            self._console.say(f"{len(before)} answered before, in {self._answers.path}")
        bars, ended = Bars(self._console), list[AskedDebate]()
        bars.plan("debating", len(debates) + len(before), len(before))

        def finished(asked: AskedDebate) -> None:
            ended.append(asked)
            self._keep(asked, printed=asked.ended != "interrupted")
            if asked.ended == "interrupted":
                return
            bars.advance("debating")
            if not self._options.json:
                self._console.print(_line(asked), soft_wrap=not self._console.is_terminal)

        asking = Asking(debates, self._scoring, self._seats.cast, prices=self._prices, give_up_after=GIVE_UP_AFTER)
        with bars:
            interrupted = await _debated(asking, finished, self._options.concurrency)
        done = [*before, *(asked.as_json() for asked in ended if asked.ended == "done")]
        graded = [record["correct"] for record in done if record["correct"] is not None]
        missing = len(debates) + len(before) - len(done)
        right = f", {sum(graded)} of {len(graded)} right" if graded else ""
        self._console.say(
            f"{len(done)} answered{right}{f', {missing} not' if missing else ''}: {self._answers.path}", "bold"
        )
        if interrupted:
            complain("interrupted; nothing that was answered is lost. The same command continues")
            return 130
        errors = [asked.played.error for asked in ended if asked.ended == "failed"]
        if errors:
            complain(
                f"{missing} questions have no answer, the last because {errors[-1]}. The same command again asks only "
                "these"
            )
        return 1 if errors else 0


async def _debated(asking: Asking, finished: Callable[[AskedDebate], None], concurrency: int = 1) -> bool:
    """Whether it was interrupted; what was under way is then finished as it is."""
    try:
        await asking.run(finished, concurrency)
    except asyncio.CancelledError:
        # It is dealt with; what closes the engines afterwards must not think that it is being cancelled.
        if task := asyncio.current_task():
            task.uncancel()
        for asked in asking.unfinished():
            finished(asked)
        return True
    return False


def _line(asked: AskedDebate) -> Text:
    question = one_line(asked.debate.question.text, 50)
    if asked.ended != "done":
        return Text(
            f"{asked.played.number:>4}  failed: {one_line(asked.played.error or '', 100)}  {question}", style="yellow"
        )
    group = group_answer(asked.played)
    answer = "–" if group.answer is None else one_line(group.answer, 24)
    votes = (
        f"; the votes' winner holds {one_line(group.winner_answer or 'nothing', 24)}"
        if group.winner_agrees is False
        else ""
    )
    mark = "" if group.correct is None else "right  " if group.correct else "wrong  "
    return Text(
        f"{asked.played.number:>4}  {answer:<24}  {mark}{group.agreeing} of {asked.debate.num_agents} agree{votes}  "
        f"{question}"
    )


def _where(asked: AskedDebate) -> str:
    whole = len(asked.debate.turns)
    round = max((turn.round for turn in asked.debate.turns), default=0)
    if whole == round * asked.debate.num_agents and not asked.debate.done:
        round += 1
    return f"round {max(1, round)}"
