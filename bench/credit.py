"""Who should pay for the tokens of an evaluation? A tiny model learns from its own votes, once with each choice.

    python bench/credit.py [--seeds 10] [--iterations 12] [--json]

No download and no GPU. A turn has three tokens: a solution (red or blue), an evaluation and a vote. A supervised start has planted
habits: 55% of the solutions are red, 65% of the evaluations praise red, and a vote follows its evaluation in nine turns of ten. So the
votes know a little more than the answers, and the evaluation leads to the vote, as in a real debate. Then the model trains on its own
votes, 5 agents in 2 rounds, and arms differ by `evaluation_credit` alone. Printed are red answers, red votes and turns that can be read:
first, and over the last three iterations.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np

from moot.debate.play import play
from moot.debate.protocols import V2
from moot.debate.rewards import generator_judge
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Observation, Parsed, Question, Said
from moot.engine.protocol import AdamParams, Datum, Sampler, SamplingParams
from moot.rl.advantages import advantages, center_group
from moot.tokens.datums import datums, imitated
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, kept_turns
from moot.tokens.teacher_forcing import dictated
from support.two_answers import TwoAnswers, random_model

CREDITS: tuple[str, ...] = get_args(get_type_hints(Scoring)["evaluation_credit"])
AGENTS, ROUNDS, DEBATES = 5, 2, 8
SOLVED, PRAISED, FOLLOWED = 0.55, 0.65, 0.9
PLANTING, RATE = 200, 0.003
COLOURS = ("red", "blue")
RULES = V2.with_choices(personas=False).rules


class Parts(TwoAnswers):
    """Each section of a turn is one token, in red or in blue."""

    SECTIONS = (
        "<solution>\\boxed{{{}}}</solution>",
        "<evaluation>The {} one is right.</evaluation>",
        "<comparison>{}</comparison>",
    )
    TOKENS = (
        *TwoAnswers.SPECIAL,
        *(text.format(c) for text in SECTIONS for c in COLOURS),
        *(f"word{i} " for i in range(4)),
    )
    MARKS = 8

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self.encoded(text, self.MARKS)


@dataclass(frozen=True)
class Shares:
    answers: float
    """Red, of the solutions that could be read."""
    votes: float
    """Red, of the evaluating turns that could be read."""
    readable: float


def said(turn_text: str, section: str) -> str | None:
    return next((colour for colour in COLOURS if section.format(colour) in turn_text), None)


def new_debate() -> Debate:
    return Debate(Question("Red or blue?"), AGENTS, ROUNDS, RULES)


async def planted(rendering: Rendering, rng: random.Random) -> list[Datum]:
    """Debates to imitate, written by the dice."""

    async def write(_: Observation) -> Said:
        solved, praised = (COLOURS[rng.random() > share] for share in (SOLVED, PRAISED))
        vote = praised if rng.random() < FOLLOWED else COLOURS[praised == "red"]
        return Said("".join(text.format(c) for text, c in zip(Parts.SECTIONS, (solved, praised, vote), strict=True)))

    debate = await play(new_debate(), write)
    sampled = await dictated(debate, rendering)
    return [
        datum
        for turns in debate.turns_by_agent()
        for datum in imitated(
            [sampled[i] for i in turns], [np.ones(len(sampled[i].tokens), dtype=np.float32) for i in turns]
        )
    ]


class Voting:
    """The model's own turns; its one-token vote is written out as lines about those who gave either answer."""

    def __init__(self, speaker: TokenSpeaker) -> None:
        self.speaker, self.debate = speaker, new_debate()

    def watch(self, debate: Debate) -> None:
        self.debate = debate

    async def __call__(self, seen: Observation) -> Said:
        turn = await self.speaker(seen)
        colour = said(turn.text, Parts.SECTIONS[2])
        if colour is None:
            return turn
        answers = {t.agent: said(t.text, Parts.SECTIONS[0]) for t in self.debate.turns if isinstance(t.parsed, Parsed)}
        better = [agent for agent in seen.eligible if answers.get(agent) == colour]
        worse = [agent for agent in seen.eligible if answers.get(agent) not in (colour, None)]
        lines = "\n".join(f"Agent {a} > Agent {b}" for a in better for b in worse) or "N/A"
        return Said(turn.text.replace(f"<comparison>{colour}", f"<comparison>{lines}", 1), turn.closed)


async def debated(sampler: Sampler, rendering: Rendering, seed: str) -> tuple[Debate, Any, list[str]]:
    speaker = TokenSpeaker(
        sampler, rendering, SamplingParams(max_tokens=4, stop=rendering.stops("three_tag")), seed=seed
    )
    voting = Voting(speaker)
    played = await play(new_debate(), voting, voting.watch)
    sampled = kept_turns(speaker, played)
    return played, sampled, [rendering.tokenizer.decode(turn.tokens.tolist()) for turn in sampled]


def shares(played: Sequence[tuple[Debate, Any, list[str]]]) -> Shares:
    turns = [(turn, text) for debate, _, texts in played for turn, text in zip(debate.turns, texts, strict=True)]
    readable = [text for turn, text in turns if not turn.failed]
    answers, votes = (
        [c for text in readable if (c := said(text, section)) is not None] for section in Parts.SECTIONS[::2]
    )
    return Shares(
        *(colours.count("red") / max(1, len(colours)) for colours in (answers, votes)), len(readable) / len(turns)
    )


def start(folder: Path, seed: int) -> Path:
    """A random model that has learned the planted habits, whole, as pretraining would teach them."""
    import torch
    from transformers import LlamaForCausalLM

    path, rendering, rng = random_model(folder, seed, len(Parts.TOKENS)), Rendering(Parts()), random.Random(seed)
    model = LlamaForCausalLM.from_pretrained(path)
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(PLANTING):
        for datum in asyncio.run(planted(rendering, rng)):
            logits = model(torch.tensor(datum.tokens, dtype=torch.long)[None]).logits[0]
            losses = torch.nn.functional.cross_entropy(
                logits, torch.tensor(datum.targets, dtype=torch.long), reduction="none"
            )
            (losses * torch.tensor(datum.mask)).sum().backward()
        adam.step()
        adam.zero_grad()
    model.save_pretrained(path)
    return path


async def learn(model: Path, credit: str, seed: int, iterations: int) -> list[Shares]:
    from moot.engine.local import LocalEngine

    engine = LocalEngine.create(str(model), dtype="fp32", device="cpu", lora_rank=8, max_cache_gib=0.1, seed=seed)
    rendering = Rendering(Parts())
    scoring, history = V2.with_choices(evaluation_credit=credit).scoring, []
    for iteration in range(iterations):
        sampler = await engine.snapshot()
        played = await asyncio.gather(*(debated(sampler, rendering, f"{seed}/{iteration}/{i}") for i in range(DEBATES)))
        history.append(shares(played))
        values = advantages([(debate, generator_judge(debate, scoring, None)) for debate, _, _ in played], center_group)
        taught = [
            d
            for (debate, sampled, _), value in zip(played, values, strict=True)
            for d in datums(debate, sampled, value)
        ]
        engine.forward_backward(taught, "importance_sampling")
        await engine.optim_step(AdamParams(learning_rate=RATE))
    await engine.close()
    return history


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(given)
    result: dict[str, list[list[float]]] = {}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            model = start(Path(folder), seed)
            for credit in CREDITS:
                history = asyncio.run(learn(model, credit, seed, args.iterations))
                first, *last = ([item.answers, item.votes, item.readable] for item in (history[0], *history[-3:]))
                result.setdefault(credit, []).append([*first, *np.mean(last, axis=0).tolist()])
        if not args.json:
            print(
                f"seed {seed}: " + "; ".join(f"{credit} {rows[-1][3]:.0%} red" for credit, rows in result.items()),
                flush=True,
            )
    for credit, rows in result.items() if not args.json else ():
        middle, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
        told = (
            f"{name} {middle[i]:.0%} -> {middle[i + 3]:.0%} (± {spread[i + 3]:.0%})"
            for i, name in enumerate(("red answers", "red votes", "readable"))
        )
        print(f"{credit:<10} {'; '.join(told)}", flush=True)
    if args.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
