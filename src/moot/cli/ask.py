"""`moot ask`: debate a question now, with a local model, a checkpoint, or any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from moot.cli.console import Terminal
from moot.cli.ending import complain, interruptible, kept
from moot.cli.live import Printed, Streamed, show_outcome
from moot.cli.registry import option_names
from moot.cli.speakers import Speakers
from moot.cli.spelling import respelled_ballot
from moot.debate.protocols import preset
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError, EngineError
from moot.evaluate.play import EvalWatcher
from moot.evaluate.store import AnswerStore
from moot.players.chat.listening import Listener
from moot.players.seats import TakenSeats
from moot.tools.ask import AskedDebate, Asking, GroupAnswer, group_answer
from moot.tools.asked import BRIEF_BOX
from moot.tools.judged import Judging
from moot.util.safe_text import counted, one_line


@dataclass(frozen=True)
class Ask:
    """Debate a question now, and see the answer, the votes, the agreement, the tokens and the cost.

    With SmolLM2 on this machine: moot ask "What is 17 * 23?"

    With a model you trained: moot ask "What is 17 * 23?" --checkpoint runs/demo-arithmetic-seed0

    With any OpenAI-compatible server: moot ask "What is 17 * 23?" --engine openai --base-url http://localhost:8000/v1
    --model NAME

    A file of questions: moot label
    """

    question: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION", help_behavior_hint="")] = ""
    """What to debate."""
    agents: Annotated[int, tyro.conf.arg(name="num-agents", aliases=["--agents"])] = 3
    """Agents in the debate. Below 3 nobody can vote."""
    rounds: Annotated[int, tyro.conf.arg(name="max-rounds", aliases=["--rounds"])] = 2
    """Rounds of the debate."""
    instruction: str = BRIEF_BOX
    """Stands under the question. Answers in a box can be compared with each other."""
    json: bool = False
    """Print one JSON object, and nothing else."""
    speakers: Annotated[Speakers, tyro.conf.OmitArgPrefixes] = field(default_factory=Speakers)

    def run(self) -> int:
        text = self.question.encode("utf-8", "replace").decode()
        if not text.strip():
            raise ConfigError('there is no question; ask one: moot ask "What is 17 * 23?"')
        self.speakers.check(self.agents, self.rounds)
        console = Terminal(stderr=self.json)
        if self.agents < 3:
            console.note("with fewer than 3 agents nobody can vote; the answer is the plurality's.")
        question = Question(text, id="1", instruction=self.instruction)
        debate = Debate(question, self.agents, self.rounds, self.speakers.rules(), prompts=self.speakers.prompts)
        with kept("Ask again.", "standard output"):
            return interruptible(self._run(debate, console))

    async def _run(self, debate: Debate, console: Terminal) -> int:
        async with AsyncExitStack() as stack:
            with console.status("getting ready"):
                seats = await self.speakers.take(self.agents, stack)
                judging = await self.speakers.judging(seats)
            for note in seats.notes():
                console.note(one_line(note, 300))
            return await self._ask(debate, seats, judging, console)

    async def _ask(self, debate: Debate, seats: TakenSeats, judging: Judging | None, console: Terminal) -> int:
        told, prices, ended = len(seats.notes()), self.speakers.prices(seats), list[AskedDebate]()
        with self._listener(debate, seats, console) as listener:
            scoring = preset(self.speakers.protocol).scoring
            interrupted = await until_interrupted(Asking([debate], scoring, seats.cast, listener, prices), ended.append)
        (asked,) = ended
        group, silent = group_answer(asked.played) if asked.ended == "done" else None, ""
        told_of_judge = ""
        if group is not None and judging is not None:
            try:
                with console.status(f"{one_line(judging.name)} reads the answers"):
                    (group,), told_of_judge = await judging.scored([asked], [group], AnswerStore(), EvalWatcher())
            except EngineError as error:
                silent = f"{error}, so the answer is the plurality's"
        for note in seats.notes()[told:]:  # more may have come while they spoke
            console.note(one_line(note, 300))
        if self.json:
            print(json.dumps(self._record(asked, group)), flush=True)
        else:
            show_outcome(asked, group, seats.names, prices, console)
            if told_of_judge:
                console.say(told_of_judge)
        what = _what_is_there(asked)
        if interrupted:
            complain(f"interrupted in {_where(asked)}; {what}")
            return 130
        if asked.ended == "failed":
            why = f"the debate broke off in {_where(asked)}: {asked.played.error}"
            complain(f"{why}. {what[0].upper()}{what[1:]}. {self.speakers.advice()}")
            return 1
        if silent:
            complain(f"{silent}. {self.speakers.advice()}")
        return int(bool(silent))

    def _record(self, asked: AskedDebate, group: GroupAnswer | None) -> dict[str, Any]:
        own = {"agents": self.agents, "rounds": self.rounds, "instruction": self.instruction}
        return {**asked.as_json(group), "settings": {**self.speakers.settings(), **own}}

    def _listener(self, debate: Debate, seats: TakenSeats, console: Terminal) -> AbstractContextManager[Listener]:
        if self.json:
            return nullcontext(Listener())
        return (Streamed if console.is_terminal else Printed)(console, debate.rules, seats.names)


async def until_interrupted(asking: Asking, finished: Callable[[AskedDebate], None], concurrency: int = 1) -> bool:
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


def _what_is_there(asked: AskedDebate) -> str:
    count = len(asked.debate.turns)
    if not count:
        return "nothing had been said in full"
    return f"the {counted(count, 'turn')} said in full {'is' if count == 1 else 'are'} above"


def _where(asked: AskedDebate) -> str:
    whole = len(asked.debate.turns)
    round = max((turn.round for turn in asked.debate.turns), default=0)
    if whole == round * asked.debate.num_agents and not asked.debate.done:
        round += 1
    return f"round {max(1, round)}"


def respelled(arguments: list[str]) -> list[str]:
    if asked := option_names(arguments) & {"--file", "--questions"}:
        name = asked.pop()
        raise ConfigError(f"there is no option {name}: this asks one question; for a file, moot label FILE")
    return respelled_ballot(arguments)
