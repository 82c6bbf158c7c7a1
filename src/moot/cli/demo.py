"""`moot demo`: whole debates without a model, through every arrow of the picture, to datums."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from moot.cli.score import show
from moot.debate.protocol import preset
from moot.debate.rewards import score
from moot.debate.scoring import Scoring, judge_warning
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Question
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.rl.advantages import ESTIMATORS, advantages
from moot.rl.datums import datums
from moot.rl.metrics import reward_metrics, rollout_metrics
from moot.rl.rendering import Rendering
from moot.rl.rollout import Rollout, rollout
from moot.score import Scored
from moot.tasks.answers import grade
from moot.terminal import plain


@dataclass(frozen=True)
class Demo:
    """Play debates on the scripted engine, score them, and turn them into training data. Needs no model and takes seconds."""

    debates: int = 20
    """How many debates to play."""
    agents: int = 4
    """Agents in a debate."""
    rounds: int = 3
    """Rounds of a debate."""
    protocol: Literal["v1", "v2", "v2_literal"] = "v2"
    """The rules."""
    style: Literal["well_formed", "sloppy", "hostile", "mixed"] = "mixed"
    """How the script speaks."""
    seed: int = 0
    """The same seed gives the same debates."""
    out: Path = Path("runs/demo.jsonl")
    """Where the transcripts go, one debate a line, as `moot score` reads them."""

    def run(self) -> int:
        if self.debates < 1 or self.agents < 1 or self.rounds < 1:
            raise ConfigError(f"debates, agents and rounds must be at least 1, got {self.debates}, {self.agents} and {self.rounds}")
        console = Console(highlight=False)
        protocol = preset(self.protocol)
        if warning := judge_warning(protocol.scoring, self.agents):
            console.print(Text(f"Note: {warning}", style="yellow"))
        engine = ScriptedEngine(style=self.style, seed=self.seed)
        rendering = Rendering(engine.tokenizer)
        questions = [Question(f"What is {3 + i % 4} + {4 - i % 4}?", "7", id=str(i)) for i in range(self.debates)]
        debates = [Debate(question, self.agents, self.rounds, protocol.rules) for question in questions]

        with _progress(console) as bar:
            task = bar.add_task("debating", total=len(debates))
            played = asyncio.run(
                rollout(debates, engine, rendering, SamplingParams(max_tokens=4000), seed=self.seed, finished=lambda *_: bar.advance(task))
            )
        self._report(console, protocol.scoring, played)
        return 0

    def _report(self, console: Console, scoring: Scoring, played: list[Rollout]) -> None:
        grades = [grade(each.debate) for each in played]
        scores = [score(each.debate, scoring, found) for each, found in zip(played, grades, strict=True)]
        taught = advantages([(each.debate, found) for each, found in zip(played, scores, strict=True)], ESTIMATORS[scoring.advantage])
        made = [datum for each, values in zip(played, taught, strict=True) for datum in datums(each.debate, each.sampled, values)]

        first = played[0].debate
        for turn in first.turns[-first.num_agents :]:
            console.print(Text(f"\nRound {turn.round}, Agent {turn.agent}", style="bold"))
            console.print(Text(plain(turn.text[:600])))
        show(Scored(1, first, scoring, scores[0], taught[0], grades[0]), console)

        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text("".join(json.dumps(transcript(each.debate)) + "\n" for each in played))
        found = reward_metrics(scoring.reward, scores, taught) | rollout_metrics(played)
        console.print(
            Text(
                f"\n{len(played)} debates, {found['env/all/total_turns']:.0f} turns, {found['parse_error'] or 0:.0%} of them unreadable; "
                f"{found['debates/with_gradient'] or 0:.0%} of the debates would teach something; "
                f"{len(made)} datums, {sum(map(len, made)):,} tokens, {int(sum(d.mask.sum() for d in made)):,} of them trained."
            )
        )
        console.print(Text(f"Transcripts: {self.out}\nLook at them: moot score {self.out} --protocol {self.protocol}", style="green"))


def transcript(debate: Debate) -> dict[str, object]:
    turns = [{"round": turn.round, "agent": turn.agent, "text": turn.text} for turn in debate.turns]
    answer = {} if debate.question.answer is None else {"answer": debate.question.answer}
    return {"question": debate.question.text, "num_agents": debate.num_agents, "turns": turns, **answer}


def _progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console)
