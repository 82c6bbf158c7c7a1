"""A debate in progress: what has been said, who speaks next, and what they see. Immutable; `advance` gives the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from moot.debate import prompts
from moot.debate.labels import labels, with_agents
from moot.debate.parsing import parse
from moot.debate.protocol import V2, Protocol, eligible
from moot.debate.types import ConfigError, Observation, Parsed, Question, Said, Turn


@dataclass(frozen=True)
class Debate:
    question: Question
    num_agents: int = 3
    max_rounds: int = 3
    protocol: Protocol = V2
    turns: tuple[Turn, ...] = ()

    def __post_init__(self) -> None:
        if self.num_agents < 1:
            raise ConfigError(f"num_agents must be at least 1, got {self.num_agents}; training needs 3 or more")
        if self.max_rounds < 1:
            raise ConfigError(f"max_rounds must be at least 1, got {self.max_rounds}; use 1 for a single pass")

    @property
    def done(self) -> bool:
        if not self.turns:
            return False
        if self.aborted:
            return True
        last = self._last_round()
        return len(last) == self.num_agents and (last[-1].round >= self.max_rounds or self.agreed)

    @property
    def aborted(self) -> bool:
        return self.protocol.on_parse_failure == "abort" and bool(self.turns) and self.turns[-1].failed

    @property
    def agreed(self) -> bool:
        """Whether everybody said YES to consensus in the last round. Needs the five_tag contract."""
        last = self._last_round()
        return len(last) == self.num_agents and all(_said_yes(turn) for turn in last)

    def _last_round(self) -> list[Turn]:
        return [turn for turn in self.turns[-self.num_agents :] if turn.round == self.turns[-1].round]

    @property
    def next_speakers(self) -> tuple[int, ...]:
        if self.done:
            return ()
        if self.protocol.schedule == "parallel":
            return tuple(range(self.num_agents))
        return (len(self.turns) % self.num_agents,)

    @property
    def next_round(self) -> int:
        return len(self.turns) // self.num_agents + 1

    def observe(self, agent: int) -> Observation:
        round = self.next_round
        return Observation(
            agent=agent,
            round=round,
            eligible=eligible(self.protocol, self.turns, agent, round, self.num_agents),
            temperature=prompts.temperature(self.protocol, agent),
            newest=prompts.newest(self, agent, round),
            extends=prompts.extends(self, agent, round),
            own_turns=prompts.own_turns(self, agent, round),
            conversation=lambda: prompts.conversation(self, agent, round),
            labels=self.labels(agent),
        )

    def labels(self, viewer: int) -> Sequence[int]:
        """The number by which `viewer` knows each agent."""
        return labels(self.question, viewer, self.num_agents) if self.protocol.shuffle_labels else range(self.num_agents)

    def advance(self, said: Mapping[int, Said]) -> Debate:
        """Takes what each of `next_speakers` said. Under `abort`, turns of a parallel round after the first failed one are not kept."""
        if tuple(sorted(said)) != self.next_speakers:
            raise ValueError(f"agents {self.next_speakers} speak next, got turns of {tuple(sorted(said))}")
        turns = list(self.turns)
        for agent in self.next_speakers:
            turns.append(self.read(self.next_round, agent, said[agent]))
            if turns[-1].failed and self.protocol.on_parse_failure == "abort":
                break
        return replace(self, turns=tuple(turns))

    def read(self, round: int, agent: int, said: Said) -> Turn:
        """What was said, as a turn: in sections, and about seats instead of the author's labels."""
        parsed = parse(said.text, self.protocol.contract, said.closed)
        if self.protocol.shuffle_labels and isinstance(parsed, Parsed):
            parsed = with_agents(parsed, self.labels(agent))
        return Turn(round, agent, said.text, parsed)

    def steps(self) -> list[list[int]]:
        """For each agent, the indices of its turns in order."""
        steps: list[list[int]] = [[] for _ in range(self.num_agents)]
        for i, turn in enumerate(self.turns):
            steps[turn.agent].append(i)
        return steps


def _said_yes(turn: Turn) -> bool:
    return isinstance(turn.parsed, Parsed) and turn.parsed.fields.get("consensus", "").upper() == "YES"
