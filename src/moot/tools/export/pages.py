"""Debates as one HTML file to send to a colleague: everything in it, nothing to run.

What a model wrote is only ever text between tags: escaped, with control and bidirectional characters shown by their
number. The page says in its own head that no script, no image and no address may be loaded, so that even a mistake here
would do nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from moot.debate.checks import Check
from moot.debate.html import text
from moot.debate.labels import relabelled
from moot.debate.prompts import persona
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Turn
from moot.tasks.programs import TESTS, last_program
from moot.tokens.played import PlayedDebate
from moot.util.safe_text import counted, one_line

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = Path(__file__).with_name("page.css")


def written(said: str) -> str:
    """The same, with programs as listings: their lines keep their places. Without a fence a program begins where the
    grader finds it."""
    parts = re.split(r"^```[^\n`]*\n(.*?)(?:\n[ \t]*```[ \t]*(?:\n|\Z)|\Z)", said, flags=re.M | re.S)
    program = last_program(said) if len(parts) == 1 else None
    if program:
        parts = [said[: said.rindex(program)], program]
    return "".join(f'<div class="code">{text(part)}</div>' if i % 2 else text(part) for i, part in enumerate(parts))


def page(debates: Sequence[PlayedDebate], title: str, about: str = "") -> Iterator[str]:
    """The file's text, in pieces."""
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield '<meta name="referrer" content="no-referrer">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{text(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
    yield f"<body>\n<h1>{text(title)}</h1>\n"
    yield f'<p class="soft">{text(about)}</p>\n<nav aria-label="Debates">\n<ol>\n'
    for i, played in enumerate(debates):
        asked = text(one_line(played.debate.question.text, 90))
        yield f'<li><a href="#d{i}">{asked}</a> <span class="soft">{_outcome(played)}</span></li>\n'
    yield "</ol>\n</nav>\n<main>\n"
    for i, played in enumerate(debates):
        yield _debate(played, i)
    yield "</main>\n</body>\n</html>\n"


def _debate(played: PlayedDebate, place: int) -> str:
    debate = played.debate
    parts = [f'<article id="d{place}">\n<h2>Debate {text(played.name)}</h2>\n']
    parts.append(f'<div class="text question">{written(debate.question.text)}</div>\n')
    answer = debate.question.answer
    if answer is not None and answer.startswith(TESTS):
        tests = f'<summary class="soft">Tests to pass</summary><div class="code">{text(answer)}</div>'
        parts.append(f"<details>{tests}</details>\n")
    elif answer is not None:
        parts.append(f'<p><span class="soft">Right answer:</span> {text(answer)}</p>\n')
    parts.append(f"<p>{_why(played)}</p>\n")
    for name, turns in debate.rounds.items():
        cards = "".join(_turn(played, i) for i in turns)
        parts.append(f'<h3>{name}</h3>\n<div class="turns">\n{cards}</div>\n')
    parts.append(_jury(played))
    parts.append(_matrix(played))
    return "".join(parts) + "</article>\n"


def _turn(played: PlayedDebate, i: int) -> str:
    turn, debate = played.debate.turns[i], played.debate
    outcome = played.outcome
    won = outcome is not None and turn.agent == outcome.winner
    kind = "turn failed" if turn.failed else "turn won" if won else "turn"
    tags = ['<span class="tag mark">won the debate</span>'] if won else []
    if played.answer_known and turn.answers:
        kind_of, how = ("good", "right") if played.correct(i) else ("bad", "wrong")
        tags.append(f'<span class="tag {kind_of}">{how} answer</span>')
    called = persona(turn.agent).name if debate.rules.personas else ""
    position = debate.position(turn.agent)
    called = called if position is None else f"argues for: {position}"
    who = f"Agent {turn.agent}" + (f' <span class="soft">{text(called)}</span>' if called else "")
    parts = [f'<section class="{kind}">\n<header><strong>{who}</strong>{"".join(tags)}</header>\n']
    parts.append(_said(played.debate, turn, bool(played.sampled) and played.sampled[i].stop_reason == "length"))
    if numbers := "<br>".join(_numbers(played, i)):
        parts.append(f'<div class="score">{numbers}</div>\n')
    parts.append(_checks(debate, i))
    return "".join(parts) + "</section>\n"


def _checks(debate: Debate, i: int) -> str:
    """What judges without a seat made of an answer, each with what it thought before its word."""
    own = [check for check in debate.checks or () if i in check.turns]
    if not own:
        return ""
    listed = "".join(
        f'<div class="name">{text(_verdict(debate, check, i))}</div><div class="text">{written(check.thinking)}</div>\n'
        for check in own
    )
    count = counted(len(own), "check")
    return f'<details><summary class="soft">{count} by judges without a seat</summary>\n{listed}</details>\n'


def _verdict(debate: Debate, check: Check, i: int) -> str:
    """The probability of the word that is for this answer; of a server that gives none, 100%, 0% or 50%."""
    if len(check.turns) == 1:
        return f"{check.rule} Yes by {check.value:.0%}".strip()
    first = check.turns[0] == i
    other = debate.turns[check.turns[1 if first else 0]].agent
    value = check.value if first else 1 - check.value
    return f"Preferred to Agent {other} by {value:.0%}, shown {'first' if first else 'second'}"


def _said(debate: Debate, turn: Turn, cut: bool) -> str:
    match turn.parsed:
        case ParseFailure(reason=reason):
            why = f"{text(reason)}.{' It was cut at its token limit.' if cut else ''}"
            said = f'<div class="text">{text(turn.text)}</div>\n'
            return f'<p><span class="tag bad">could not be read</span> {why}</p>\n{said}'
        case Parsed(fields=fields):
            named = ((name.replace("_", " "), _about_seats(debate, turn, content)) for name, content in fields.items())
            return "".join(
                f'<div class="name">{text(name)}</div><div class="text">{written(content)}</div>\n'
                for name, content in named
            )


def _about_seats(debate: Debate, turn: Turn, content: str) -> str:
    """Where each agent knows the others by numbers of its own, a reader could not tell whom it means."""
    if not debate.rules.shuffle_labels:
        return content
    return relabelled(content, debate.labels(turn.agent), range(debate.num_agents))


def _jury(played: PlayedDebate) -> str:
    if not played.debate.jury:
        return ""
    cards = []
    for j, turn in enumerate(played.debate.jury):
        head = f"<header><strong>Judge {j}</strong></header>"
        cards.append(f'<section class="turn">\n{head}\n{_said(played.debate, turn, cut=False)}</section>\n')
    count = "count" if played.scoring.judges_count else "do not count"
    return f'<h3>Judges without a seat, whose votes {count}</h3>\n<div class="turns">\n{"".join(cards)}</div>\n'


def _numbers(played: PlayedDebate, i: int) -> list[str]:
    """What the turn got. A reward by agent belongs to no single turn, and stands under the votes."""
    agent, number, taught = played.debate.turns[i].agent, played.debate.turn_numbers()[i], played.advantages
    if played.scores is None or taught is None or played.scores.per == "agent":
        return []
    rewards = {name: stream.values[agent][number] for name, stream in played.scores.streams.items()}
    both = ((text(name), reward, taught.at(name, agent, number)) for name, reward in rewards.items())
    return [f"{name}: reward {reward:+.2f}, advantage {advantage:+.2f}" for name, reward, advantage in both]


def _outcome(played: PlayedDebate) -> str:
    if played.error is not None:
        return "lost by the engine"
    outcome = played.outcome
    return "nobody won" if outcome is None or outcome.winner is None else f"Agent {outcome.winner} won"


def _why(played: PlayedDebate) -> str:
    if played.error is not None:
        lost = "The engine failed, so the debate was never scored"
        return f'<span class="tag bad">lost</span> {lost}: {text(played.error)}'
    outcome = played.outcome
    if outcome is None:
        return "This debate was never scored."
    listed = ", ".join(f"Agent {agent} {mean:+.2f}" for agent, mean in enumerate(outcome.means) if mean is not None)
    reward = text(played.scoring.reward)
    if outcome.winner is None:
        agents = " and ".join(f"Agent {agent}" for agent in outcome.leaders)
        level = "all have the same mean reward" if len(outcome.leaders) == len(outcome.means) else f"{agents} are level"
        return f"Nobody won: {level if outcome.voted else 'no vote was cast'} ({reward}: {listed})."
    told = f"<strong>{_outcome(played)}</strong> by the highest mean reward ({reward}: {listed})."
    if played.debate.rules.shuffle_labels:
        told += " Agents knew each other by other numbers; here all are called by their seats."
    return told


def _matrix(played: PlayedDebate) -> str:
    """Who was preferred to whom, over the whole debate: the row's agent over the column's."""
    debate, agents = played.debate, range(played.debate.num_agents)
    preferred: Counter[tuple[int, int]] = Counter()
    ties = 0
    for vote in () if played.outcome is None else played.outcome.votes:
        preferred[vote.left, vote.right] += vote.verdict == ">"
        ties += vote.verdict == "="
    if not +preferred and not ties:
        wanted = debate.turns and not played.scoring.rule.checked
        return "<h3>Votes</h3>\n<p>No votes were cast.</p>\n" if wanted else ""
    head = "".join(f"<th scope=col>over {agent}</th>" for agent in agents)
    rows = ""
    for a in agents:
        cells = "".join("<td>–</td>" if a == b else f"<td>{preferred[a, b]}</td>" for b in agents)
        rows += f"<tr><th scope=row>Agent {a}</th>{cells}</tr>\n"
    even = f"<p>{ties} votes called two answers equally good.</p>\n" if ties else ""
    table = f"<table>\n<tr><td></td>{head}</tr>\n{rows}</table>"
    return f'<h3>Votes</h3>\n<div class="wide">{table}</div>\n{even}{_agent_numbers(played)}'


def _agent_numbers(played: PlayedDebate) -> str:
    if played.advantages is None or played.advantages.per != "agent":
        return ""
    listed = ", ".join(f"Agent {agent} {value:+.2f}" for agent, value in enumerate(played.advantages.values))
    return f'<p class="soft">Advantages: {listed}.</p>\n'
