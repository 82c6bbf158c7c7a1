"""What agents are told. The system text of a seat never changes; what is new stands in the newest user message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moot.debate.labels import relabelled
from moot.debate.parsing import CONTRACTS
from moot.debate.rules import Rules, eligible, first_round_shown, shown
from moot.debate.types import Message, Parsed, Turn

if TYPE_CHECKING:
    from moot.debate.state import Debate


@dataclass(frozen=True)
class Persona:
    name: str
    style: str
    temperature: float


PERSONAS = (
    Persona("Methodical Analyst", "You work step by step and leave no step out.", 0.6),
    Persona("Creative Problem-Solver", "You look for an unusual way in when the usual one is long.", 1.0),
    Persona("Devil's Advocate", "You doubt every claim and hunt for the counterexample.", 0.9),
    Persona("Synthesizer", "You join the good parts of different views into one answer.", 1.0),
    Persona("First Principles Thinker", "You go back to definitions and build up from there.", 0.8),
)


def persona(agent: int) -> Persona:
    return PERSONAS[agent % len(PERSONAS)]


def temperature(rules: Rules, agent: int) -> float:
    return persona(agent).temperature if rules.personas else 1.0


_SECTIONS = {
    "solution": "your own complete answer",
    "evaluation": "what is right and wrong in the others' answers, and why",
    "comparison": "which of the others' answers is better, one pair a line",
    "consensus": "YES if everyone now agrees on the answer, otherwise NO",
    "consensus_reason": "one sentence saying why",
}


_FORMAT = "Answer in exactly these sections, each once, in this order, and write nothing after the last one:"
_COMPARING = (
    "A line of the comparison is `Agent A > Agent B` (A is better) or `Agent A = Agent B` (equally good), "
    "with the agents' numbers, no chains and no other signs. Evaluate first, then compare."
)


def system_text(rules: Rules, agent: int, num_agents: int, label: int | None = None) -> str:
    """`label` is what the agent is called, where that is not its seat."""
    called = agent if label is None else label
    who = f"You are Agent {called}, one of {num_agents} agents (Agent 0 to Agent {num_agents - 1}) who debate a question."
    if rules.personas:
        who += f" You are the {persona(agent).name}. {persona(agent).style}"
    sections = "\n".join(f"<{name}>{_SECTIONS[name]}</{name}>" for name in CONTRACTS[rules.contract])
    closing = "\nAfter the last round comes a closing ballot: then you write the evaluation and the comparison alone."
    return (
        f"{who}\n\n"
        f"{_FORMAT}\n{sections}\n\n"
        f"{_COMPARING}\n"
        f"Never compare yourself: a line that names Agent {called} is thrown away.\n"
        "Each message tells you whom you can compare. Where there is nobody, write N/A." + (closing if rules.closing_ballot else "")
    )


def for_judge(debate: Debate, judge: int) -> tuple[Message, ...]:
    """For one who holds no seat: the question and everybody's newest answer, whatever window the agents have."""
    labels, num_agents = debate.labels(judge), debate.num_agents
    answers = [debate.turns[i] for i in debate.answers().values()]
    answers.sort(key=lambda turn: labels[turn.agent])
    names = ", ".join(f"Agent {labels[turn.agent]}" for turn in answers)
    system = (
        f"You are a judge. {num_agents} agents (Agent 0 to Agent {num_agents - 1}) debated a question, and you are none of them.\n\n"
        f"{_FORMAT}\n"
        "<evaluation>what is right and wrong in the answers, and why</evaluation>\n"
        "<comparison>which of the answers is better, one pair a line</comparison>\n\n"
        f"{_COMPARING}"
    )
    parts = [
        f"Question:\n{debate.question.text}",
        *(_block(debate, turn, judge, labels) for turn in answers),
        f"Round {debate.jury_round}, the judges' ballot. Evaluate the answers of {names}, "
        f"then compare them with each other, in exactly these names: {names}.",
    ]
    return Message("system", system), Message("user", "\n\n".join(parts))


def conversation(debate: Debate, agent: int, round: int) -> tuple[Message, ...]:
    """Everything the agent knows when it is about to speak in `round`."""
    system = Message("system", system_text(debate.rules, agent, debate.num_agents, debate.labels(agent)[agent]))
    messages = [system]
    for i in own_turns(debate, agent, round):
        turn = debate.turns[i]
        messages += [_user_message(debate, agent, turn.round, i, round), Message("assistant", turn.text)]
    return (*messages, _user_message(debate, agent, round, len(debate.turns), round))


def newest(debate: Debate, agent: int, round: int) -> Message:
    """The last message of `conversation` without the work of writing the others."""
    return _user_message(debate, agent, round, len(debate.turns), round)


def own_turns(debate: Debate, agent: int, round: int) -> tuple[int, ...]:
    """The turns that stand in the conversation as the agent's own. `rebuilt` shows them in the transcript instead."""
    if debate.rules.layout == "rebuilt":
        return ()
    return tuple(i for i in shown(debate.rules, debate.turns, round) if debate.turns[i].agent == agent)


def extends(debate: Debate, agent: int, round: int) -> bool:
    """Whether this conversation is the agent's last one, its turn and one new message. Not so when a window dropped a round."""
    own = own_turns(debate, agent, round)
    if not own:
        return False
    return first_round_shown(debate.rules, round) == first_round_shown(debate.rules, debate.turns[own[-1]].round)


def _user_message(debate: Debate, agent: int, round: int, spoken: int, now: int) -> Message:
    """The message before the agent's turn in `round`, when `spoken` turns had been taken, as it stands in round `now`'s conversation."""
    rules, turns = debate.rules, debate.turns[:spoken]
    window = first_round_shown(rules, now)
    known = [i for i in shown(rules, turns, round) if turns[i].round >= window]
    # For the newest message these are the eligible agents; an older one must not ask for what the window has dropped.
    others = eligible(rules, turns, agent, round, debate.num_agents, window)
    first = True
    if rules.layout == "growing":
        last = max((i for i in known if turns[i].agent == agent), default=None)
        first = last is None
        told = set() if last is None else set(shown(rules, turns[:last], turns[last].round))
        known = [i for i in known if turns[i].agent != agent and i not in told]
    parts = []
    if first:
        parts.append(f"Question:\n{debate.question.text}")
        if debate.question.instruction:
            parts.append(debate.question.instruction)
    if (mine := _last_of(turns, agent)) is not None and mine.failed and rules.history_rounds != 0:
        parts.append("Your last response could not be read. Write every section, with its opening and closing tag, in the given order.")
    labels = debate.labels(agent)
    if rules.shuffle_labels and rules.schedule == "parallel":
        # Where all spoke at once, the order of the page must not give the seats away either.
        known.sort(key=lambda i: (turns[i].round, labels[turns[i].agent]))
    parts += [_block(debate, turns[i], agent, labels) for i in known]
    ballot = round == now and debate.balloting
    parts.append(_instructions(debate, round, labels[agent], sorted(labels[other] for other in others), ballot))
    return Message("user", "\n\n".join(parts))


def _last_of(turns: tuple[Turn, ...], agent: int) -> Turn | None:
    return next((turn for turn in reversed(turns) if turn.agent == agent), None)


BLOCKS = ("[Agent ", "Round ")
"""How, after a blank line, a response and the instructions begin. A renderer may tokenise each once for all its readers."""


def _block(debate: Debate, turn: Turn, viewer: int, labels: Sequence[int]) -> str:
    rules = debate.rules
    head = f"[Agent {labels[turn.agent]}{' (you)' if turn.agent == viewer else ''}, round {turn.round}]"
    if not isinstance(turn.parsed, Parsed):
        return f"{head}\ngave no valid response."
    fields = {name: turn.parsed.fields[name] for name in CONTRACTS[rules.contract] if name in rules.visible}
    if rules.shuffle_labels:
        own = debate.labels(turn.agent)
        fields = {name: relabelled(said, own, labels) for name, said in fields.items()}
    clipped = (f"{name}: {said[: rules.max_chars_per_field].rstrip()}" for name, said in fields.items())
    return "\n".join([head, *clipped])


def _instructions(debate: Debate, round: int, agent: int, others: Sequence[int], ballot: bool) -> str:
    """`agent` and `others` are called as the reader knows them."""
    where = f"Round {round} of {debate.max_rounds}."
    if debate.extra_rounds and round > debate.max_rounds:
        where = f"Round {round}, an extra one because the answers do not agree yet."
    own, improved = "Write your solution. ", "Give your own, improved solution. "
    if ballot:
        where = (
            f"Round {round}, the closing ballot. The answers stand as they are. "
            "Write no solution, only <evaluation></evaluation> and <comparison></comparison>."
        )
        own = improved = ""
    if not others:
        return f"{where} You have seen no other answer. {own}Write N/A as evaluation and as comparison."
    if len(others) == 1:
        return f"{where} {improved}Evaluate Agent {others[0]}'s answer. There is only one, so write N/A as comparison."
    names = ", ".join(f"Agent {other}" for other in others)
    return (
        f"{where} {improved}Evaluate the answers of {names}, "
        f"then compare them with each other, in exactly these names: {names}. Leave yourself, Agent {agent}, out."
    )
