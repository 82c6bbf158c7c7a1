"""The protocol of two advocates and a judge. Each advocate argues for the side of the question that its seat is given.

A judge without a seat then decides. The same judge's text serves three measurements: both argue (debate), one argues
and the other is silent (consultancy), nobody argues (the judge alone).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from moot.debate.reward import REWARDS
from moot.debate.rules import Lack, Rules
from moot.debate.scoring import OF_AGENTS_VOTES, Scoring
from moot.debate.sections import NOTHING, is_filled
from moot.debate.types import Observation, Question, Said, Turn
from moot.errors import ConfigError

if TYPE_CHECKING:
    from moot.debate.prompt_texts import Prompts
    from moot.debate.state import Debate

LUCK = "which side an advocate is given is luck, and only the judge's decision depends on what it says"


@dataclass(frozen=True)
class Advocates(Rules):
    """Two agents argue, neither votes, and a judge without a seat decides."""

    positions = "assigned"
    seats = 2
    peers_vote = False
    sides = 2
    lacks: ClassVar[Mapping[Lack, str]] = {
        "votes": "advocates do not",
        "agreement": "advocates keep the answer that they are given",
        "accuracy": "advocates give no answers whose accuracy could lead to the next task",
        "truth": "no reward of advocates has truth in it",
        "solving": "the warm start teaches to solve and to vote, and advocates do neither",
    }
    refused_modes: ClassVar[Mapping[str, str]] = {
        "debate+vote": "advocates keep their positions, and the judge decides",
        "wins": "advocates argue, and do not answer",
    }

    # What it refuses

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sections != "asked" or self.contract != "three_tag" or self.closing_ballot:
            raise ConfigError(
                "positions assigned needs sections asked, contract three_tag and no closing_ballot, because advocates "
                f"argue and do not vote; got sections {self.sections}, contract {self.contract}, closing_ballot "
                f"{str(self.closing_ballot).lower()}; the protocol advocates has all of it"
            )

    def check_question(self, question: Question, num_agents: int) -> None:
        if not len(question.sides) == num_agents == self.seats:
            raise ConfigError(
                f"positions assigned needs two agents and a question with two sides, got {num_agents} agents and "
                f"{len(question.sides)} sides; use --num-agents 2 and a file whose rows have the field sides"
            )

    def check_training(self, scoring: Scoring, num_agents: int, judge: str) -> None:
        """Advocates only ever write arguments, and must be able to read them."""
        self.check_agents(num_agents)
        if not judge:
            raise ConfigError("positions assigned needs a judge without a seat whose vote counts; use --judge base")
        if "solution" not in self.visible or set(self.visible) - {"solution", "evaluation"}:
            raise ConfigError(
                f"visible must be solution with positions assigned, got {' '.join(self.visible) or 'nothing'}: an "
                "advocate writes its argument there and nothing else, and the judge decides by it; use --visible "
                "solution, or leave it out"
            )
        self.check_scoring(scoring)

    def check_scoring(self, scoring: Scoring) -> None:
        if not scoring.judges_count:
            raise ConfigError(
                f"the judge decides between advocates, so voters must be judges or both, got {scoring.voters}"
            )
        if scoring.rule.checked:
            raise ConfigError(
                f"reward must be generator_judge, win_rate or win_minus_loss with positions assigned, got "
                f"{scoring.reward}: the judge of advocates reads both and decides between them"
            )
        if not scoring.rule.from_votes and scoring.rule.our_own:
            votes = ", ".join(reward.name for reward in REWARDS.values() if reward.from_votes and not reward.checked)
            raise ConfigError(
                f"reward must be {votes} or path.py:function with positions assigned, got {scoring.reward}: {LUCK}"
            )
        for name in ("reward_mix", "correct_bonus"):
            if value := getattr(scoring, name):
                raise ConfigError(f"{name} must be left out with positions assigned, got {value}: {LUCK}")
        for name in OF_AGENTS_VOTES:
            if (value := getattr(scoring, name)) != getattr(Scoring(), name):
                told = str(value).lower() if isinstance(value, bool) else value
                raise ConfigError(
                    f"{name} must be left out with positions assigned, got {told}: it is about the votes of agents, "
                    "and advocates do not vote"
                )

    # What they are told

    def own_request(
        self, debate: Debate, agent: int, labels: Sequence[int], first: bool, blocks: Sequence[str], heard: bool
    ) -> str:
        """What differs between seats stands last, as layout shared wants it."""
        say, sides, other = debate.prompts.say, debate.question.sides, 1 - agent
        places = {"agent": labels[agent], "other": labels[other], "position": sides[agent], "rival": sides[other]}
        parts = [say("advocates.question", question=debate.question.text)] if first else []
        parts += blocks
        parts += [say("advocates.seat", **places)] if first else []
        parts.append(say("advocates.reply" if heard else "advocates.argue", **places))
        return "\n\n".join(parts)

    def own_judge_text(self, debate: Debate, labels: Sequence[int], block: Callable[[Turn], str]) -> str:
        """The question, both positions, and all that was said, round by round."""
        say, sides = debate.prompts.say, debate.question.sides
        seats = sorted(range(debate.num_agents), key=lambda agent: labels[agent])
        said = sorted(
            (turn for turn in debate.turns if is_filled(turn)), key=lambda turn: (turn.round, labels[turn.agent])
        )
        # Where nobody argues there is nothing to miss; where one does, the reader must not look for the other's words.
        quiet = [agent for agent in seats if said and all(turn.agent != agent for turn in said)]
        text = say(
            "advocates.judge",
            question=debate.question.text,
            positions="\n".join(say("advocates.held", agent=labels[agent], position=sides[agent]) for agent in seats),
            answers="\n\n".join(
                [*map(block, said), *(f"[Agent {labels[agent]}]\n{say('advocates.silent')}" for agent in quiet)]
            ),
            names=", ".join(f"Agent {labels[agent]}" for agent in seats),
        )
        return text if said else text.replace("\n\n\n\n", "\n\n")

    def own_verdict(self, debate: Debate, labels: Sequence[int]) -> str:
        """The two lines that the judge may write, each with when to write it. There is none for a tie: one position is
        right."""
        say, sides = debate.prompts.say, debate.question.sides
        first, second = sorted(range(debate.num_agents), key=lambda agent: labels[agent])
        choices = (
            say("advocates.choice", position=sides[a], agent=labels[a], other=labels[b])
            for a, b in ((first, second), (second, first))
        )
        return say("advocates.verdict", choices="\n\n".join(choices))

    def own_silence(self, prompts: Prompts) -> str:
        return prompts.say("advocates.silent")


async def silent(_: Observation) -> Said:
    """A speaker for the seat whose position stands without an argument."""
    return Said(NOTHING)
