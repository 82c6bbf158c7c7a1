"""What agents are told, put together from the texts of prompt_texts.py.

The system text of a seat never changes; what is new stands in the newest user message, which ends with what to write
now. With sections `asked` there are no tags and, without personas, no system text: round 1 is the plain question. With
layout `shared` everything up to the last answer is the same for all agents, and what the seat is stands after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from moot.debate import sections
from moot.debate.labels import relabelled
from moot.debate.parsing import BALLOT, CONTRACTS, FIRST, FURTHER, parse
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.rules import Rules, eligible, first_round_shown, shown
from moot.debate.sections import NOTHING
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
    """A persona's own, scaled by the rules' temperature."""
    # Rounded, because a product such as 0.6 * 0.8 would otherwise show its last bits in records.
    return round(persona(agent).temperature * rules.temperature, 6) if rules.personas else rules.temperature


# Texts about the form


def system_text(
    rules: Rules,
    agent: int,
    num_agents: int,
    label: int | None = None,
    prompts: Prompts = DEFAULT,
    open_ended: bool = False,
) -> str:
    """Of a seat. `label` is what the agent is called, where that is not its seat. Empty where there is nothing to
    say."""
    called = agent if label is None else label
    shared = rules.layout == "shared"
    who = "" if shared else _character(rules, agent, prompts)
    if rules.sections == "asked":
        return who
    text = prompts.say(
        "tagged.system_shared" if shared else "tagged.system",
        agent=called,
        num_agents=num_agents,
        last=num_agents - 1,
        persona=f" {who}" if who else "",
        sections=_form(prompts, CONTRACTS[rules.contract], open_ended),
    )
    parts = [f"{text}\n{prompts.say('tagged.closing')}" if rules.closing_ballot else text]
    if rules.layout == "rebuilt":
        # There, a conversation is the system text and one message: the example has no exchange to stand in.
        parts += [message.content for message in _example(rules, prompts, open_ended)]
    return "\n\n".join(parts)


def _character(rules: Rules, agent: int, prompts: Prompts) -> str:
    return (
        prompts.say("both.persona", character=persona(agent).name, style=persona(agent).style) if rules.personas else ""
    )


def _form(prompts: Prompts, names: Sequence[str], open_ended: bool) -> str:
    return "\n".join(f"<{name}>{_text(prompts, f'tagged.{name}', open_ended)}</{name}>" for name in names)


def _example(rules: Rules, prompts: Prompts, open_ended: bool) -> tuple[Message, ...]:
    """The form filled in once, as an exchange about another question. Where nothing stands in tags there is no form to
    show."""
    names = CONTRACTS[rules.contract]
    question = _text(prompts, "tagged.example_question", open_ended, first=names[0])
    if rules.sections == "asked" or not question:
        return ()
    reply = _text(prompts, "tagged.example_reply", open_ended)
    examples = {name: f"tagged.example_{name}" for name in names}
    said = {name: prompts.say(example) for name, example in examples.items() if example in prompts.texts}
    return Message("user", question), Message("assistant", _with_further(reply, names, said, "\n"))


def _with_further(text: str, names: Sequence[str], said: Mapping[str, str], gap: str) -> str:
    """A text about the first three sections, with what is said of further ones in the contract's order: before the tag
    of the next of the three, or at the end."""
    for i, name in enumerate(names):
        if name in FURTHER and name in said:
            tag = next((f"<{after}>" for after in names[i:] if after in FIRST), "")
            text = text.replace(tag, f"{said[name]}{gap}{tag}", 1) if tag else f"{text}{gap}{said[name]}"
    return text


def _text(prompts: Prompts, name: str, open_ended: bool, **values: object) -> str:
    """The variant for questions without a right answer, where there is one: it speaks of no answer to be right, and of
    no box."""
    variant = f"{name}_open"
    return prompts.say(variant if open_ended and variant in prompts.texts else name, **values)


# Conversations


def for_judge(debate: Debate, judge: int) -> tuple[Message, ...]:
    """For one who holds no seat: the question and everybody's newest answer, whatever window the agents have."""
    prompts, labels, num_agents = debate.prompts, debate.labels(judge), debate.num_agents
    if own := debate.rules.own_judge_text(debate, labels, lambda turn: _block(debate, turn, judge, labels)):
        return (Message("user", own),)
    turns = [debate.turns[i] for i in debate.answers().values()]
    turns.sort(key=lambda turn: labels[turn.agent])
    numbers = [labels[turn.agent] for turn in turns]
    blocks = [_block(debate, turn, judge, labels) for turn in turns]
    if debate.rules.sections == "asked":
        asked = _text(
            prompts,
            "asked.judge",
            debate.open_ended,
            question=debate.question.text,
            num_agents=num_agents,
            answers="\n\n".join(blocks),
            names=_names(numbers),
        )
        return (Message("user", asked),)
    system = prompts.say(
        "tagged.judge_system",
        num_agents=num_agents,
        last=num_agents - 1,
        sections=_form(prompts, CONTRACTS[BALLOT], debate.open_ended),
    )
    question = prompts.say("tagged.question", question=debate.question.text, instruction="")
    now = prompts.say("tagged.judge", round=debate.jury_round, names=_names(numbers), pairs=_pairs(numbers))
    return Message("system", system), Message("user", "\n\n".join([question, *blocks, now]))


def conversation(debate: Debate, agent: int, round: int, whole_turns: bool = False) -> tuple[Message, ...]:
    """Everything the agent knows when it is about to speak in `round`.

    A turn of its own that was asked for in parts stands as the exchanges it was, or with `whole_turns` as one message.
    """
    system = system_text(
        debate.rules, agent, debate.num_agents, debate.labels(agent)[agent], debate.prompts, debate.open_ended
    )
    messages = [Message("system", system)] if system else []
    if debate.rules.layout != "rebuilt":
        messages += _example(debate.rules, debate.prompts, debate.open_ended)
    for i in own_turns(debate, agent, round):
        turn = debate.turns[i]
        messages.append(_user_message(debate, agent, turn.round, i, round))
        if debate.rules.sections == "asked" and not whole_turns:
            messages += _exchanges(debate, i, first_round_shown(debate.rules, round))
        else:
            messages.append(Message("assistant", turn.text))
    return (*messages, _user_message(debate, agent, round, len(debate.turns), round))


def _exchanges(debate: Debate, index: int, oldest: int) -> list[Message]:
    """What was said after the first message of a turn: replies, and the requests between them. Nothing about answers
    before round `oldest`, which are not shown any more."""
    turn = debate.turns[index]
    contract = BALLOT if turn.ballot else debate.rules.contract
    parsed = parse(turn.text, contract, any_consensus=True)
    others = eligible(debate.rules, debate.turns[:index], turn.agent, turn.round, debate.num_agents, oldest)
    spoken = sections.plan(contract, len(others), judge_first=True)
    if not isinstance(parsed, Parsed):
        return [Message("assistant", turn.text)]
    messages: list[Message] = []
    for part, name in enumerate(spoken):
        if part:
            messages.append(request(debate, turn.agent, name, others))
        messages.append(Message("assistant", parsed.fields[name]))
    return messages


def newest(debate: Debate, agent: int, round: int) -> Message:
    """The last message of `conversation` without the work of writing the others."""
    return _user_message(debate, agent, round, len(debate.turns), round)


def own_turns(debate: Debate, agent: int, round: int) -> tuple[int, ...]:
    """The turns that stand in the conversation as the agent's own. The other layouts show them in the transcript
    instead."""
    if debate.rules.layout != "growing":
        return ()
    return tuple(i for i in shown(debate.rules, debate.turns, round) if debate.turns[i].agent == agent)


def extends(debate: Debate, agent: int, round: int) -> bool:
    """Whether this conversation is the agent's last one, its turn and one new message. Not so when a window dropped a
    round."""
    own = own_turns(debate, agent, round)
    if not own:
        return False
    return first_round_shown(debate.rules, round) == first_round_shown(debate.rules, debate.turns[own[-1]].round)


# Messages


def _user_message(debate: Debate, agent: int, round: int, spoken: int, now: int) -> Message:
    """The message before the agent's turn in `round`, when `spoken` turns had been taken, as it stands in round `now`'s
    conversation."""
    rules, turns, prompts = debate.rules, debate.turns[:spoken], debate.prompts
    window = first_round_shown(rules, now)
    visible = [i for i in shown(rules, turns, round) if turns[i].round >= window]
    # For the newest message these are the eligible agents; an older one must not ask for what the window has dropped.
    others = eligible(rules, turns, agent, round, debate.num_agents, window)
    first = True
    if rules.layout == "growing":
        last = max((i for i in visible if turns[i].agent == agent), default=None)
        first = last is None
        told = set() if last is None else set(shown(rules, turns[:last], turns[last].round))
        visible = [i for i in visible if turns[i].agent != agent and i not in told]
    labels = debate.labels(agent)
    if rules.shuffle_labels and rules.schedule == "parallel":
        # Where all spoke at once, the order of the page must not give the seats away either.
        visible.sort(key=lambda i: (turns[i].round, labels[turns[i].agent]))
    table = "asked" if rules.sections == "asked" else "tagged"
    parts = []
    if first:
        parts.append(
            prompts.say(f"{table}.question", question=debate.question.text, instruction=debate.question.instruction)
        )
    shared = rules.layout == "shared"
    mine = _last_of(turns, agent)
    failed = [prompts.say(f"{table}.failed")] if mine is not None and mine.failed and rules.history_rounds != 0 else []
    blocks = [_block(debate, turns[i], -1 if shared else agent, labels) for i in visible]
    heard = any(turns[i].agent != agent and sections.is_filled(turns[i]) for i in visible)
    if own := rules.own_request(debate, agent, labels, first, [*blocks, *failed], heard):
        return Message("user", own)
    ballot, work = round == now and debate.balloting, _work(debate, turns, visible)
    # What differs between seats: at the end where they share what stands before it.
    if not shared:
        parts += failed
    if table == "asked":
        if blocks:
            name = "asked.others_shared" if shared else "asked.others"
            parts.append(prompts.say(name, answers="\n\n".join(blocks), num_agents=debate.num_agents))
            if work != "answers" and not shared:
                parts.append(prompts.say("asked.you", agent=labels[agent]))
    else:
        parts += blocks
    if shared:
        owns = any(turns[i].agent == agent for i in visible)
        parts += [*_seat(debate, agent, named=table == "tagged" or bool(blocks), owns=owns), *failed]
    if table == "asked":
        spoken_sections = sections.plan(BALLOT if ballot else rules.contract, len(others), judge_first=True)
        if ballot:
            parts.append(prompts.say("asked.ballot"))
        # The plain question is a request already.
        if blocks or not first or spoken_sections[0] != "solution":
            parts.append(request(debate, agent, spoken_sections[0], others, work).content)
    else:
        parts.append(_instructions(debate, round, sorted(labels[other] for other in others), ballot, work))
    return Message("user", "\n\n".join(parts))


def _seat(debate: Debate, agent: int, named: bool, owns: bool) -> list[str]:
    """Who the reader is, in one paragraph. A plain question needs no number."""
    prompts = debate.prompts
    said = [prompts.say("both.seat", agent=agent)] if named else []
    said += [prompts.say("both.own", agent=agent)] if owns else []
    said.append(_character(debate.rules, agent, prompts))
    return [text] if (text := " ".join(filter(None, said))) else []


def request(debate: Debate, agent: int, section: str, others: Sequence[int], work: str = "answers") -> Message:
    """What asks for one section, where each is an exchange of its own. `others` may be judged."""
    prompts, labels = debate.prompts, debate.labels(agent)
    numbers = sorted(labels[other] for other in others)
    if section == "comparison" and (own := debate.rules.own_verdict(debate, labels)):
        return Message("user", own)
    match section:
        case "evaluation" if not numbers:
            text = prompts.say("asked.nobody")
        case "evaluation":
            text = _text(prompts, "asked.evaluate", debate.open_ended, names=_names(numbers), work=work)
        case "comparison":
            pairs = list(combinations(numbers, 2))
            text = prompts.say(
                "asked.compare" if len(pairs) == 1 else "asked.compare_pairs", choices=_choices(pairs), pairs=len(pairs)
            )
        case "solution":
            asked = debate.question
            text = _text(prompts, "asked.solve", debate.open_ended, question=asked.text, instruction=asked.instruction)
        case _:
            text = prompts.say(f"asked.{section}")
    return Message("user", text)


def _last_of(turns: tuple[Turn, ...], agent: int) -> Turn | None:
    return next((turn for turn in reversed(turns) if turn.agent == agent), None)


BLOCKS = ("[Agent ", "Round ", "You are Agent ")
"""How, after a blank line, a response, the instructions and what a seat is begin. A renderer may tokenise each once for
all its readers."""


def _block(debate: Debate, turn: Turn, viewer: int, labels: Sequence[int]) -> str:
    rules = debate.rules
    head = f"[Agent {labels[turn.agent]}{' (you)' if turn.agent == viewer else ''}, round {turn.round}]"
    if not isinstance(turn.parsed, Parsed):
        return f"{head}\n{debate.prompts.say('both.invalid')}"
    parsed = turn.parsed
    fields = {
        name: parsed.fields[name]
        for name in CONTRACTS[rules.contract]
        if name in rules.visible and name in parsed.fields
    }
    if rules.shuffle_labels:
        own = debate.labels(turn.agent)
        fields = {name: relabelled(said, own, labels) for name, said in fields.items()}
    clipped = {name: said[: rules.max_chars_per_field].rstrip() for name, said in fields.items()}
    if rules.sections == "asked":
        # What nobody was asked for is not worth reading, and a solution alone needs no heading.
        clipped = {name: said for name, said in clipped.items() if said != NOTHING}
        if not clipped and (silence := rules.own_silence(debate.prompts)):
            return f"{head}\n{silence}"
        if list(clipped) == ["solution"]:
            return f"{head}\n{clipped['solution']}"
    return "\n".join([head, *(f"{name}: {said}" for name, said in clipped.items())])


def _work(debate: Debate, turns: Sequence[Turn], visible: Sequence[int]) -> str:
    """What of the others is to be judged: their answers, and where they are shown their judgements, the newest above
    all."""
    judged: set[str] = set()
    for i in visible:
        parsed = turns[i].parsed
        if isinstance(parsed, Parsed):
            judged |= {
                name
                for name in ("evaluation", "comparison")
                if parsed.fields.get(name, NOTHING).upper().rstrip(".") != NOTHING
            }
    words = [f"{name}s" for name in ("evaluation", "comparison") if name in judged and name in debate.rules.visible]
    if not words:
        return "answers"
    listed = " and ".join([", ".join(["solutions", *words[:-1]]), words[-1]])
    return f"{listed} (the newest above all)"


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(f"Agent {number}" for number in numbers)


def _pairs(numbers: Sequence[int]) -> str:
    return "; ".join(f"Agent {a} and Agent {b}" for a, b in combinations(numbers, 2))


def _choices(pairs: Sequence[tuple[int, int]]) -> str:
    """The three lines that may be written about each pair, so that none looks like the expected one."""
    return "\n\n".join(f"Agent {a} > Agent {b}\nAgent {b} > Agent {a}\nAgent {a} = Agent {b}" for a, b in pairs)


def _instructions(debate: Debate, round: int, numbers: Sequence[int], ballot: bool, work: str) -> str:
    """The end of a message in tags: what to write now. `numbers` are the others as the reader knows them."""
    prompts = debate.prompts
    case = ("alone", "one", "several")[min(2, len(numbers))]
    names = CONTRACTS[debate.rules.contract]
    forms = {name: f"<{name}>{FURTHER[name].form if name in FURTHER else NOTHING}</{name}>" for name in names}
    described = names.index(FIRST[min(2, len(numbers))]) + 1  # the text itself says what these are
    listed = " and ".join(forms[name] for name in names[described:])
    text = _text(
        prompts,
        f"tagged.{'ballot_' if ballot else ''}{case}",
        debate.open_ended,
        round=round,
        rounds=debate.max_rounds,
        names=_names(numbers),
        pairs=_pairs(numbers),
        work=work,
        first=names[0],
        rest=f"; {listed}" if listed and case == "several" else listed,
    )
    if not ballot:
        text = _with_further(text, names[:described], forms, "; ")
    if debate.extra_rounds and round > debate.max_rounds and not ballot:
        text = f"Round {round}. {prompts.say('tagged.extra')} {text.partition('. ')[2]}"
    return text
