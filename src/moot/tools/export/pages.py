"""Debates as one HTML file to send to a colleague: everything in it, nothing to run.

What a model wrote is only ever text between tags: escaped, with control and bidirectional characters shown by their
number. The page
says in its own head that no script, no image and no address may be loaded, so that even a mistake here would do
nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from moot.debate.labels import relabelled
from moot.debate.prompts import persona
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Turn
from moot.tasks.programs import TESTS, last_program
from moot.tokens.played import PlayedDebate
from moot.util.safe_text import one_line, plain

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5b6577; --page: #fbfbfa; --card: #ffffff; --line: #dfe3ea;
  --good: #176b3a; --good-back: #e5f4ea; --bad: #9c2b20; --bad-back: #fbeae7; --mark: #2f56c4; --mark-back: #e9eefc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ee; --soft: #9aa4b5; --page: #14171d; --card: #1c2028;
  --line: #323947; --good: #7fd49d; --good-back: #18301f; --bad: #f0988c; --bad-back: #3a1f1c;
  --mark: #9db4ff; --mark-back: #1f2a4a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 0; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .25rem 0; } .soft, dt, th { color: var(--soft); font-weight: normal; }
nav ol { padding-left: 1.5rem; } a { color: var(--mark); }
article { margin-top: 2.5rem; padding-top: 1.25rem; border-top: 2px solid var(--line); }
.text { white-space: pre-wrap; unicode-bidi: isolate; margin: .15rem 0 .6rem; max-height: 32rem; overflow: auto; }
.question { font-size: 1.05rem; }
.code { white-space: pre; overflow: auto; margin: .3rem 0; padding: .4rem .6rem; border: 1px solid var(--line);
  border-radius: .3rem; font: .85rem/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.turns { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr));
  align-items: start; }
.turn { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem;
  min-width: 0; }
.turn.won { border-color: var(--mark); } .turn.failed { border-style: dashed; }
.turn header { display: flex; flex-wrap: wrap; gap: .1rem .5rem; align-items: baseline; margin-bottom: .3rem; }
.tag { border-radius: .3rem; padding: 0 .4rem; font-size: .85rem; white-space: nowrap; }
.good { color: var(--good); background: var(--good-back); } .bad { color: var(--bad); background: var(--bad-back); }
.mark { color: var(--mark); background: var(--mark-back); }
.name { font-size: .8rem; color: var(--soft); }
.score { border-top: 1px solid var(--line); padding-top: .3rem; font-size: .85rem; color: var(--soft); }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: right; padding: .1rem .7rem .1rem 0; font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; } .wide { overflow-x: auto; }
@media print { article { break-before: page; } .text { max-height: none; } }
""".strip()


def text(said: object) -> str:
    """A model's or a user's words, safe between tags and in attributes."""
    return escape(plain(str(said)), quote=True)


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
    yield (
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<meta name="referrer" '
        'content="no-referrer">\n'
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{text(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<h1>{text(title)}</h1>\n"
    yield f'<p class="soft">{text(about)}</p>\n<nav aria-label="Debates">\n<ol>\n'
    for i, each in enumerate(debates):
        asked = text(one_line(each.debate.question.text, 90))
        yield f'<li><a href="#d{i}">{asked}</a> <span class="soft">{_outcome(each)}</span></li>\n'
    yield "</ol>\n</nav>\n<main>\n"
    for i, each in enumerate(debates):
        yield _debate(each, i)
    yield "</main>\n</body>\n</html>\n"


def _debate(each: PlayedDebate, place: int) -> str:
    debate = each.debate
    parts = [
        f'<article id="d{place}">\n<h2>Debate {text(each.name)}</h2>\n<div class="text '
        f'question">{written(debate.question.text)}</div>\n'
    ]
    if debate.question.answer is not None and debate.question.answer.startswith(TESTS):
        parts.append(
            '<details><summary class="soft">Tests to pass</summary><div '
            f'class="code">{text(debate.question.answer)}</div></details>\n'
        )
    elif debate.question.answer is not None:
        parts.append(f'<p><span class="soft">Right answer:</span> {text(debate.question.answer)}</p>\n')
    parts.append(f"<p>{_why(each)}</p>\n")
    for (round, ballot), turns in groupby(enumerate(debate.turns), key=lambda item: (item[1].round, item[1].ballot)):
        cards = (_turn(each, i) for i, _ in turns)
        name = "Closing ballot" if ballot else f"Round {round}"
        parts.append(f'<h3>{name}</h3>\n<div class="turns">\n{"".join(cards)}</div>\n')
    parts.append(_jury(each))
    parts.append(_matrix(each))
    return "".join(parts) + "</article>\n"


def _turn(each: PlayedDebate, i: int) -> str:
    turn, debate = each.debate.turns[i], each.debate
    outcome = each.outcome
    won = outcome is not None and turn.agent == outcome.winner
    kind = "turn failed" if turn.failed else "turn won" if won else "turn"
    tags = ['<span class="tag mark">won the debate</span>'] if won else []
    if each.answer_known and turn.answers:
        tags.append(
            '<span class="tag good">right answer</span>'
            if each.correct(i)
            else '<span class="tag bad">wrong answer</span>'
        )
    called = persona(turn.agent).name if debate.rules.personas else ""
    called = f"argues for: {debate.question.sides[turn.agent]}" if debate.assigned else called
    who = f"Agent {turn.agent}" + (f' <span class="soft">{text(called)}</span>' if called else "")
    parts = [f'<section class="{kind}">\n<header><strong>{who}</strong>{"".join(tags)}</header>\n']
    parts.append(_said(each.debate, turn, bool(each.sampled) and each.sampled[i].stop_reason == "length"))
    if numbers := "<br>".join(_numbers(each, i)):
        parts.append(f'<div class="score">{numbers}</div>\n')
    return "".join(parts) + "</section>\n"


def _said(debate: Debate, turn: Turn, cut: bool) -> str:
    match turn.parsed:
        case ParseFailure(reason=reason):
            why = f"{text(reason)}.{' It was cut at its token limit.' if cut else ''}"
            return (
                f'<p><span class="tag bad">could not be read</span> {why}</p>\n<div '
                f'class="text">{text(turn.text)}</div>\n'
            )
        case Parsed(fields=fields):
            named = ((name.replace("_", " "), _about_seats(debate, turn, content)) for name, content in fields.items())
            return "".join(
                f'<div class="name">{text(name)}</div><div class="text">{written(content)}</div>\n'
                for name, content in named
            )


def _about_seats(debate: Debate, turn: Turn, content: str) -> str:
    """Where each agent knows the others by numbers of its own, a reader could not tell whom it means."""
    return (
        relabelled(content, debate.labels(turn.agent), range(debate.num_agents))
        if debate.rules.shuffle_labels
        else content
    )


def _jury(each: PlayedDebate) -> str:
    if not each.debate.jury:
        return ""
    cards = (
        '<section class="turn">\n<header><strong>Judge '
        f"{j}</strong></header>\n{_said(each.debate, turn, cut=False)}</section>\n"
        for j, turn in enumerate(each.debate.jury)
    )
    count = "count" if each.scoring.judges_count else "do not count"
    return f'<h3>Judges without a seat, whose votes {count}</h3>\n<div class="turns">\n{"".join(cards)}</div>\n'


def _numbers(each: PlayedDebate, i: int) -> list[str]:
    """What the turn got. A reward by agent belongs to no single turn, and stands under the votes."""
    agent, number, taught = each.debate.turns[i].agent, each.debate.turn_numbers()[i], each.advantages
    if each.scores is None or taught is None or each.scores.per == "agent":
        return []
    both = (
        (text(name), stream.values[agent][number], taught.at(name, agent, number))
        for name, stream in each.scores.streams.items()
    )
    return [f"{name}: reward {reward:+.2f}, advantage {advantage:+.2f}" for name, reward, advantage in both]


def _outcome(each: PlayedDebate) -> str:
    if each.error is not None:
        return "lost by the engine"
    outcome = each.outcome
    return "nobody won" if outcome is None or outcome.winner is None else f"Agent {outcome.winner} won"


def _why(each: PlayedDebate) -> str:
    if each.error is not None:
        return (
            f'<span class="tag bad">lost</span> The engine failed, so the debate was never scored: {text(each.error)}'
        )
    outcome = each.outcome
    if outcome is None:
        return "This debate was never scored."
    listed = ", ".join(f"Agent {agent} {mean:+.2f}" for agent, mean in enumerate(outcome.means) if mean is not None)
    reward = text(each.scoring.reward)
    if outcome.winner is None:
        agents = " and ".join(f"Agent {agent}" for agent in outcome.leaders)
        level = "all have the same mean reward" if len(outcome.leaders) == len(outcome.means) else f"{agents} are level"
        return f"Nobody won: {level if outcome.voted else 'no vote was cast'} ({reward}: {listed})."
    renamed = (
        " Agents knew each other by other numbers; here all are called by their seats."
        if each.debate.rules.shuffle_labels
        else ""
    )
    return f"<strong>{_outcome(each)}</strong> by the highest mean reward ({reward}: {listed}).{renamed}"


def _matrix(each: PlayedDebate) -> str:
    """Who was preferred to whom, over the whole debate: the row's agent over the column's."""
    debate, agents = each.debate, range(each.debate.num_agents)
    preferred: Counter[tuple[int, int]] = Counter()
    ties = 0
    for vote in () if each.outcome is None else each.outcome.votes:
        preferred[vote.left, vote.right] += vote.verdict == ">"
        ties += vote.verdict == "="
    if not +preferred and not ties:
        return "<h3>Votes</h3>\n<p>No votes were cast.</p>\n" if debate.turns else ""
    head = "".join(f"<th scope=col>over {agent}</th>" for agent in agents)
    rows = "".join(
        "<tr><th scope=row>Agent "
        f"{a}</th>{''.join('<td>–</td>' if a == b else f'<td>{preferred[a, b]}</td>' for b in agents)}</tr>\n"
        for a in agents
    )
    even = f"<p>{ties} votes called two answers equally good.</p>\n" if ties else ""
    return (
        "<h3>Votes</h3>\n<div "
        f'class="wide"><table>\n<tr><td></td>{head}</tr>\n{rows}</table></div>\n{even}{_agent_numbers(each)}'
    )


def _agent_numbers(each: PlayedDebate) -> str:
    if each.advantages is None or each.advantages.per != "agent":
        return ""
    listed = ", ".join(f"Agent {agent} {value:+.2f}" for agent, value in enumerate(each.advantages.values))
    return f'<p class="soft">Advantages: {listed}.</p>\n'
