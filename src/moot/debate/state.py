"""A debate in progress: what has been said, who speaks next, and what they see. Immutable; `advance` gives the next
one.

    rounds of answers  ->  [closing ballot]  ->  [outside judges]

Everybody answers for `max_rounds` rounds; fewer where `stop_when_settled` and the answers agree, up to `extra_rounds`
more while they do not. With `closing_ballot` everybody then judges once more, because nobody has judged the last
answers yet. Judges who hold no seat come last, and only what they say about the answers is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moot.debate import prompts, sections
from moot.debate.checks import Check
from moot.debate.labels import labels_for, with_agents
from moot.debate.parsing import BALLOT, parse
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.rules import Rules, eligible
from moot.debate.types import Message, Observation, Parsed, ParseFailure, Question, Said, Turn
from moot.errors import ConfigError

V2_RULES = Rules()

Settled = Callable[[tuple[Turn, ...]], bool]
"""The turns of one whole round -> whether their answers agree. Equality is the grader's, so a task builds it."""


@dataclass(frozen=True)
class Debate:
    question: Question
    num_agents: int = 3
    max_rounds: int = 3
    rules: Rules = V2_RULES
    turns: tuple[Turn, ...] = ()
    settled: Settled | None = field(default=None, compare=False, repr=False)
    """Asked once a round, and only where the next two need it."""
    stop_when_settled: bool = False
    """End after the first round in which the answers agree."""
    extra_rounds: int = 0
    """Go on past `max_rounds` while the answers do not agree, for at most this many rounds."""
    jury: tuple[Turn, ...] = ()
    """Ballots of judges who hold no seat; the j-th judge is number `num_agents + j`."""
    checks: tuple[Check, ...] | None = None
    """What judges who hold no seat made of its answers, one by one or in pairs; None where nobody was asked for
    that."""
    prompts: Prompts = field(default=DEFAULT, compare=False, repr=False)
    """The texts everybody reads."""
    _found: list[bool] = field(default_factory=list, init=False, compare=False, repr=False)
    """What `_answered` found out, once it has."""

    def __repr__(self) -> str:
        """For people: everything is in the fields, and as Python it fills a screen."""
        lines = [
            line
            for turn in self.turns
            if isinstance(turn.parsed, Parsed)
            for line in turn.parsed.lines
            if line.kind == "comparison"
        ]
        votes = ", ".join(f"{line.left} {line.verdict} {line.right}" for line in lines[:9]) + ", …" * (len(lines) > 9)
        asked = self.question.text if len(self.question.text) <= 60 else f"{self.question.text[:59]}…"
        rounds = f"{max((turn.round for turn in self.turns), default=0)} of {self.max_rounds} rounds"
        unread = sum(turn.failed for turn in self.turns)
        turns = f"{len(self.turns)} turns" + f" ({unread} cannot be read)" * bool(unread)
        return f"Debate({asked!r}: {self.num_agents} agents, {rounds}, {turns}, votes {votes or 'none'})"

    def __post_init__(self) -> None:
        if self.num_agents < 1:
            raise ConfigError(f"num_agents must be at least 1, got {self.num_agents}; training needs 3 or more")
        if self.max_rounds < 1:
            raise ConfigError(f"max_rounds must be at least 1, got {self.max_rounds}; use 1 for a single pass")
        if self.extra_rounds < 0:
            raise ConfigError(f"extra_rounds must be 0 or more, got {self.extra_rounds}; 0 means none")
        self.rules.check_question(self.question, self.num_agents)
        if self.settled is None and (self.stop_when_settled or self.extra_rounds):
            name = "stop_when_settled" if self.stop_when_settled else "extra_rounds"
            raise ConfigError(
                f"{name} needs settled, which decides whether answers agree; build it with settled_by of the task's "
                "grader"
            )

    def position(self, agent: int) -> str | None:
        """The answer that its seat is given to argue for; None where agents look for the answer themselves."""
        return self.rules.position(self.question, agent)

    @property
    def argued(self) -> bool:
        """Whether a seat is given the answer that it argues for."""
        return any(self.position(agent) is not None for agent in range(self.num_agents))

    @property
    def done(self) -> bool:
        if not self.turns:
            return False
        if self.aborted or self.turns[-1].ballot:
            return True
        return self._answered and not self.rules.closing_ballot

    @property
    def balloting(self) -> bool:
        """Whether the closing ballot is what comes next."""
        return self.rules.closing_ballot and bool(self.turns) and self._answered and not self.done

    @property
    def aborted(self) -> bool:
        return self.rules.on_parse_failure == "abort" and bool(self.turns) and self.turns[-1].failed

    @property
    def agreed(self) -> bool:
        """Whether everybody said YES to consensus in the last round. Needs the five_tag contract."""
        last = self._last_round
        return len(last) == self.num_agents and all(_said_yes(turn) for turn in last)

    @property
    def _answered(self) -> bool:
        """Whether no further round of answers comes. Remembered, because a grader may be slow."""
        # Not a cached_property: until Python 3.12 all debates would share its lock, and wait for each other's graders.
        if not self._found:
            self._found.append(self._find_answered())
        return self._found[0]

    def _find_answered(self) -> bool:
        last = self._last_round
        if len(last) < self.num_agents:
            return False
        round = last[-1].round
        if self.agreed or round >= self.max_rounds + self.extra_rounds:
            return True
        if round < self.max_rounds and not self.stop_when_settled:
            return False
        return self.settled is not None and self.settled(last)

    @property
    def _last_round(self) -> tuple[Turn, ...]:
        """The newest round of answers."""
        answers = [turn for turn in self.turns[-2 * self.num_agents :] if not turn.ballot]
        return tuple(turn for turn in answers[-self.num_agents :] if turn.round == answers[-1].round)

    @property
    def next_speakers(self) -> tuple[int, ...]:
        if self.done:
            return ()
        # A ballot is secret under either schedule: nobody votes with the others' votes in sight.
        if self.rules.schedule == "parallel" or self.balloting:
            return tuple(range(self.num_agents))
        return (len(self.turns) % self.num_agents,)

    @property
    def next_round(self) -> int:
        return len(self.turns) // self.num_agents + 1

    def observe(self, agent: int, said: Sequence[Said] = ()) -> Observation:
        """What an agent is given before it speaks; in a turn of several parts, after it has `said` the ones before."""
        round = self.next_round
        whole = Observation(
            agent=agent,
            round=round,
            eligible=eligible(self.rules, self.turns, agent, round, self.num_agents),
            temperature=prompts.temperature(self.rules, agent),
            newest=prompts.newest(self, agent, round),
            extends=prompts.extends(self, agent, round),
            own_turns=prompts.own_turns(self, agent, round),
            conversation=lambda: prompts.conversation(self, agent, round),
            contract=BALLOT if self.balloting else self.rules.contract,
            labels=self.labels(agent),
            turnwise=lambda: prompts.conversation(self, agent, round, whole_turns=True),
        )
        return self._part(whole, said)

    def _part(self, whole: Observation, said: Sequence[Said]) -> Observation:
        """The part of a turn that comes after those that were said."""
        if not (spoken := self.parts(whole)):
            return whole
        said, section = tuple(said), spoken[len(said)]  # a copy: who plays goes on adding to theirs
        given = self.rules.sections == "given"
        replies = [
            sections.kept(name, reply.text) if given else reply.text for name, reply in zip(spoken, said, strict=False)
        ]
        newest = whole.newest if given or not said else prompts.request(self, whole.agent, section, whole.eligible)

        def conversation() -> tuple[Message, ...]:
            messages = list(whole.conversation())
            if given:
                return (*messages, Message("assistant", sections.spoken_so_far(whole.contract, spoken, replies)))
            for name, reply in zip(spoken, replies, strict=False):
                if name != spoken[0]:
                    messages.append(prompts.request(self, whole.agent, name, whole.eligible))
                messages.append(Message("assistant", reply))
            return (*messages, newest) if said else tuple(messages)

        return replace(
            whole,
            newest=newest,
            conversation=conversation,
            section=section,
            part=len(said),
            last_part=len(said) == len(spoken) - 1,
            opening=sections.opening(whole.contract, spoken, replies) if given else "",
            closing=(lambda reply: sections.closing(whole.contract, spoken, [*replies, sections.kept(section, reply)]))
            if given
            else whole.closing,
        )

    def parts(self, observation: Observation) -> tuple[str, ...]:
        """The sections that a turn is spoken in, in order; none where the model writes the whole turn, tags
        included."""
        if self.rules.sections == "sampled":
            return ()
        return sections.plan(observation.contract, len(observation.eligible), self.rules.sections == "asked")

    def joined(self, observation: Observation, said: Sequence[Said]) -> Said:
        """The parts of a turn as one."""
        if not (spoken := self.parts(observation)):
            return said[0]
        return sections.joined(self.rules.sections, observation.contract, spoken, said)

    @property
    def open_ended(self) -> bool:
        """No answer is known and none is asked for in a certain form: texts then speak of no right answer."""
        return self.question.answer is None and not self.question.instruction

    def labels(self, viewer: int) -> Sequence[int]:
        """The number by which `viewer` knows each agent. Who judges in both orders has them the other way round the
        second time."""
        swapped = self.rules.both_orders and viewer >= self.num_agents and (viewer - self.num_agents) % 2 == 1
        shuffled = (
            labels_for(self.question, viewer - swapped, self.num_agents)
            if self.rules.shuffle_labels
            else range(self.num_agents)
        )
        return [self.num_agents - 1 - label for label in shuffled] if swapped else shuffled

    def advance(self, said: Mapping[int, Said]) -> Debate:
        """Takes what each of `next_speakers` said. Under `abort`, turns of a parallel round after the first failed one
        are not kept."""
        if tuple(sorted(said)) != self.next_speakers:
            raise ValueError(f"agents {self.next_speakers} speak next, got turns of {tuple(sorted(said))}")
        turns = list(self.turns)
        for agent in self.next_speakers:
            turns.append(self.read(self.next_round, agent, said[agent], self.balloting))
            if turns[-1].failed and self.rules.on_parse_failure == "abort":
                break
        return replace(self, turns=tuple(turns))

    def read(self, round: int, agent: int, said: Said, ballot: bool = False) -> Turn:
        """What was said, as a turn: in sections, and about seats instead of the author's labels."""
        contract = BALLOT if ballot else self.rules.contract
        # Spoken on its own, a consensus may be a sentence: only its YES or NO is read, and nothing else can spoil the
        # turn.
        in_parts = self.rules.sections != "sampled"
        parsed = (
            ParseFailure(said.failure)
            if said.failure
            else parse(said.text, contract, said.closed, any_consensus=in_parts)
        )
        return Turn(
            round,
            agent,
            said.text,
            parsed if isinstance(parsed, ParseFailure) else self.about_seats(parsed, agent),
            ballot,
        )

    def about_seats(self, parsed: Parsed, author: int) -> Parsed:
        """With comparison lines about seats instead of the author's labels."""
        return (
            with_agents(parsed, self.labels(author)) if self.rules.shuffle_labels or self.rules.both_orders else parsed
        )

    def turns_by_agent(self) -> list[list[int]]:
        """For each agent, the indices of its turns in order."""
        rows: list[list[int]] = [[] for _ in range(self.num_agents)]
        for i, turn in enumerate(self.turns):
            rows[turn.agent].append(i)
        return rows

    @property
    def rounds(self) -> dict[str, list[int]]:
        """For each round, by what it is called, the indices of its turns in order."""
        rounds: dict[str, list[int]] = {}
        for i, turn in enumerate(self.turns):
            rounds.setdefault("Closing ballot" if turn.ballot else f"Round {turn.round}", []).append(i)
        return rounds

    def turn_numbers(self) -> list[int]:
        """For each turn, which of its agent's turns it is, from 0."""
        counts = [itertools.count() for _ in range(self.num_agents)]
        return [next(counts[turn.agent]) for turn in self.turns]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from moot.debate.html import as_html

        return as_html(self)

    def before(self, turn: int) -> Debate:
        """As it stood when the author of that turn was asked for it."""
        spoken = self.turns[turn]
        # Those who speak together see none of each other's turns.
        together = spoken.ballot or self.rules.schedule == "parallel"
        first = next(
            i for i, other in enumerate(self.turns) if other.round == spoken.round and other.ballot == spoken.ballot
        )
        return replace(
            self,
            turns=self.turns[: first if together else turn],
            jury=(),
            checks=None,
            # Whether answers were settled is known by what came next, and no grader needs to be asked again.
            settled=lambda _: spoken.ballot,
            stop_when_settled=spoken.ballot,
            extra_rounds=max(self.extra_rounds, spoken.round - spoken.ballot - self.max_rounds, 0),
        )

    # Judges without a seat

    def answers(self) -> dict[int, int]:
        """For each agent that has one, the turn that holds its answer: its newest that could be read and is no
        ballot."""
        return {turn.agent: i for i, turn in enumerate(self.turns) if turn.answers}

    def observe_as_judge(self, judge: int, said: Sequence[Said] = ()) -> Observation:
        """What the j-th outside judge is given: the question and everybody's newest answer, nothing of the way
        there."""
        messages = prompts.for_judge(self, self.num_agents + judge)
        whole = Observation(
            agent=self.num_agents + judge,
            round=self.jury_round,
            eligible=tuple(sorted(self.answers())),
            temperature=self.rules.temperature,
            newest=messages[-1],
            extends=False,
            own_turns=(),
            conversation=lambda: messages,
            contract=BALLOT,
            labels=self.labels(self.num_agents + judge),
        )
        return self._part(whole, said)

    def heard(self, said: Sequence[Said]) -> Debate:
        """Takes what further outside judges said."""
        first = self.num_agents + len(self.jury)
        ballots = tuple(self.read(self.jury_round, first + j, reply, ballot=True) for j, reply in enumerate(said))
        return replace(self, jury=self.jury + ballots)

    @property
    def jury_round(self) -> int:
        """Outside judges speak after the last answers, where a closing ballot would."""
        return max((turn.round for turn in self.turns if not turn.ballot), default=0) + 1


def _said_yes(turn: Turn) -> bool:
    return isinstance(turn.parsed, Parsed) and turn.parsed.fields.get("consensus", "").upper() == "YES"
