"""`moot demo`: whole debates without a model, through every arrow of the picture, to datums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from moot.cli.console import Bars, Terminal
from moot.cli.ending import interruptible
from moot.cli.registry import PeerProtocol
from moot.cli.score import show
from moot.debate.protocols import preset
from moot.debate.scoring import Scoring, judge_warning
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, with_advantages
from moot.rl.metrics import reward_metrics, rollout_metrics
from moot.rl.rollout import rollout
from moot.runs.record import to_transcript
from moot.tasks.answers import grade
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.util.disk import refuse_links
from moot.util.files import write_lines
from moot.util.safe_text import counted, one_line, plain


@dataclass(frozen=True)
class Demo:
    """Play debates on the scripted engine, score them, and turn them into training data. Needs no model and takes
    seconds."""

    debates: int = 20
    """How many debates to play."""
    num_agents: Annotated[int, tyro.conf.arg(aliases=["--agents"])] = 4
    """Agents in a debate."""
    max_rounds: Annotated[int, tyro.conf.arg(aliases=["--rounds"])] = 3
    """Rounds of a debate."""
    protocol: PeerProtocol = "v2"
    """The rules."""
    style: Literal["well_formed", "sloppy", "hostile", "mixed"] = "well_formed"
    """How the script speaks: as the contract asks, or with the mistakes that models make."""
    seed: int = 0
    """The same seed gives the same debates."""
    out: Path = Path("runs/demo.jsonl")
    """Where the transcripts go, one debate per line, as `moot score` reads them."""

    def run(self) -> int:
        if self.debates < 1 or self.num_agents < 1 or self.max_rounds < 1:
            given = f"{self.debates}, {self.num_agents} and {self.max_rounds}"
            raise ConfigError(f"debates, num_agents and max_rounds must be at least 1, got {given}")
        refuse_links(self.out.parent, {self.out.name})
        console = Terminal()
        protocol = preset(self.protocol)
        engine = ScriptedEngine(style=self.style, seed=self.seed)
        rendering = Rendering(engine.tokenizer)
        questions = [Question(f"What is {3 + i % 4} + {4 - i % 4}?", "7", id=str(i)) for i in range(self.debates)]
        debates = [Debate(question, self.num_agents, self.max_rounds, protocol.rules) for question in questions]

        with Bars(console) as bars:
            bars.plan("debates", len(debates))
            params = SamplingParams(max_tokens=4000)
            finished = lambda *_: bars.advance("debates")  # noqa: E731
            played = interruptible(rollout(debates, engine, rendering, params, seed=self.seed, finished=finished))
        self._report(console, protocol.scoring, played)
        if warning := judge_warning(protocol.scoring, self.num_agents, trained=False):
            console.note(warning)  # last: a reader wants the debate first
        return 0

    def _report(self, console: Terminal, scoring: Scoring, played: list[PlayedDebate]) -> None:
        scored = [debate.scored(scoring, grade(debate.debate)) for debate in played]
        taught = with_advantages(scored, ESTIMATORS[scoring.estimator])
        made = [datum for one in taught if one.advantages for datum in datums(one.debate, one.sampled, one.advantages)]

        shown = max(range(len(played)), key=lambda i: (sum(not turn.failed for turn in played[i].debate.turns), -i))
        tell(played[shown].debate, console)
        show(taught[shown], console, "How the votes were counted")

        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_lines(self.out, [to_transcript(debate.debate) for debate in played])
        metrics = reward_metrics(taught) | rollout_metrics(played)
        console.say(
            f"\n{counted(len(played), 'debate')}, {metrics['env/all/total_turns']:.0f} turns, "
            f"{metrics['parse_error'] or 0:.0%} of them unreadable; {metrics['debates/with_gradient'] or 0:.0%} of the "
            f"debates would teach something; {len(made)} datums, {sum(map(len, made)):,} tokens, "
            f"{int(sum(d.mask.sum() for d in made)):,} of them trained."
        )
        score = f"moot score {self.out} --protocol {self.protocol}"
        console.say(f"Transcripts: {self.out}\nCount their votes: {score}\nLook at them: moot view {self.out}", "green")


def tell(debate: Debate, console: Terminal) -> None:
    """The question, then what each agent said, round by round, one line per section."""
    console.say(f"\nQuestion: {plain(debate.question.text)}", "bold")
    for round, turns in debate.rounds.items():
        console.say(f"\n{round}", "bold")
        for turn in (debate.turns[i] for i in turns):
            console.say(f"  Agent {turn.agent}")
            for name, content in (turn.fields or {"could not be read": turn.text}).items():
                parts = content.splitlines() if name == "comparison" else [content]
                console.say(f"    {name}: {one_line(', '.join(filter(None, map(str.strip, parts))), 100)}")
