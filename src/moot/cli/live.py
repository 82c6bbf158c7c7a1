"""A debate on the terminal while it happens, and what came of it. All model text goes through `plain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from moot.debate.prompts import persona
from moot.debate.rules import Rules
from moot.debate.types import Parsed, Turn
from moot.players.chat.listening import Listener
from moot.tools.ask import AskedDebate, GroupAnswer, Prices
from moot.util.safe_text import counted, one_line, plain

SHOWN = 4000
"""Characters of a section that are shown. A megabyte on one line helps nobody; --json and --out have all of it."""


def clipped(text: str) -> str:
    if len(text) <= SHOWN:
        return plain(text)
    return f"{plain(text[:SHOWN])} … ({len(text) - SHOWN:,} more characters)"


def _short(name: str) -> str:
    """A model in a folder goes by the folder's name."""
    return one_line(name.rstrip("/").rpartition("/")[2] if name.startswith(("/", ".", "~")) else name, 40)


class Printed(Listener):
    """Prints each turn when it is whole: for a pipe, a file, a log."""

    def __init__(self, console: Console, rules: Rules, names: Sequence[str]) -> None:
        self.console, self.rules, self.names = console, rules, names

    def __enter__(self) -> Printed:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held."""

    def retried(self, agent: int, why: str, wait_s: float) -> None:
        self.line(Text(f"Agent {agent}: {one_line(why, 200)}; asking again in {wait_s:.1f} s", style="yellow"))

    def said(self, turn: Turn) -> None:
        self.line(self.head(turn.round, turn.agent))
        if not isinstance(turn.parsed, Parsed):
            self.line(Text(clipped(turn.text.strip()), style="dim"))
            self.line(Text(f"could not be read: {one_line(turn.parsed.reason, 200)}", style="yellow"))
        else:
            self.sections({name: Text(clipped(content)) for name, content in turn.parsed.fields.items()})

    def sections(self, fields: Mapping[str, Text]) -> None:
        for name, content in fields.items():
            self.line(Text.assemble((f"{name}: ", "dim"), content))

    def line(self, text: Text) -> None:
        """Not folded: who reads a pipe folds it as they like, or searches it."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def head(self, round: int, agent: int) -> Text:
        who = f" · {persona(agent).name}" if self.rules.personas else ""
        seat = (f"\nRound {round} · Agent {agent}", "bold")
        return Text.assemble(seat, (f"{who} · {_short(self.names[agent])}", "dim"))


class Streamed(Printed):
    """Shows every seat's words as they come, side by side below what is already said; a whole turn moves up into it."""

    def __init__(self, console: Console, rules: Rules, names: Sequence[str]) -> None:
        super().__init__(console, rules, names)
        self._speaking: dict[int, tuple[int, list[str]]] = {}
        self._held: dict[int, str] = {}
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Streamed:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        # What was not finished is shown as what it is.
        for agent, (round, pieces) in sorted(self._speaking.items()):
            if pieces:
                text = "".join(pieces)
                self.console.print(self.head(round, agent))
                self.console.print(Text(f"{clipped(text.strip())} … (cut off: not a turn)", style="dim"))
        self._speaking.clear()
        self._live.stop()

    def began(self, agent: int, round: int) -> None:
        self._speaking[agent] = (round, [])

    def heard(self, agent: int, piece: str) -> None:
        self._held.pop(agent, None)
        self._speaking[agent][1].append(piece)

    def retried(self, agent: int, why: str, wait_s: float) -> None:
        self._speaking[agent][1].clear()
        self._held[agent] = f"{one_line(why, 200)}; asking again in {wait_s:.1f} s"

    def said(self, turn: Turn) -> None:
        self._speaking.pop(turn.agent, None)
        self._held.pop(turn.agent, None)
        super().said(turn)

    def sections(self, fields: Mapping[str, Text]) -> None:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, content in fields.items():
            grid.add_row(name, content)
        self.console.print(grid)

    def _render(self) -> RenderableType:
        speaking = sorted(dict(self._speaking).items())
        width, height = self.console.size
        room = max(1, (height - 2) // max(1, len(speaking)) - 2)
        parts: list[RenderableType] = []
        for agent, (round, pieces) in speaking[: max(1, (height - 2) // 3)]:
            parts.append(self.head(round, agent))
            if agent in self._held:
                parts.append(Text(self._held[agent], style="yellow"))
                continue
            tail = plain("".join(pieces[-500:])[-2 * width * room :])
            lines = Text(tail or "…", style="dim").wrap(self.console, width)
            parts += lines[-room:]
        return Group(*parts)


# What came of it


def show_outcome(
    asked: AskedDebate,
    group: GroupAnswer | None,
    names: Sequence[str],
    prices: Sequence[Prices | None],
    console: Console,
) -> None:
    if group is not None:
        console.print()
        console.print(_table(asked, group, names))
        for line in outcome_lines(asked, group):
            console.print(line, soft_wrap=not console.is_terminal)
    console.print(Text(spending(asked, prices), style="dim"), soft_wrap=not console.is_terminal)


def _table(asked: AskedDebate, group: GroupAnswer, names: Sequence[str]) -> Table:
    outcome = group.outcome
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "model", "last answer"):
        table.add_column(name, overflow="fold")
    for name in ("votes won–lost", "reward", "unreadable turns", *(["score"] if group.scores else [])):
        table.add_column(name, justify="right")
    for agent in range(asked.debate.num_agents):
        failed = sum(turn.failed for turn in asked.debate.turns if turn.agent == agent)
        answer = group.held[agent]
        table.add_row(
            f"Agent {agent}",
            Text(_short(names[agent])),
            Text("–" if answer is None else one_line(answer, 40)),
            f"{outcome.won[agent]}–{outcome.lost[agent]}",
            "–" if (reward := outcome.means[agent]) is None else f"{reward:+.2f}",
            str(failed),
            *(["–" if (score := group.scores[agent]) is None else f"{score:.2f}"] if group.scores else []),
            style="bold" if agent == outcome.winner else None,
        )
    return table


def outcome_lines(asked: AskedDebate, group: GroupAnswer) -> list[Text]:
    debate, outcome = asked.debate, group.outcome
    lines = []
    if debate.aborted:
        last = debate.turns[-1]
        why = f"Agent {last.agent}'s turn in round {last.round} could not be read."
        lines.append(Text(f"The debate ended early: {why}", style="yellow"))
    if all(turn.failed for turn in debate.turns):
        why = "No turn could be read: this model does not keep to the form."
        lines.append(Text(f"{why} Try a larger one, or a trained --checkpoint.", style="yellow"))
    ties = sum(vote.verdict == "=" for vote in outcome.votes)
    decided = len(outcome.votes) - ties
    count = counted(len(outcome.votes), "vote") + (f", {ties} of them a tie" if ties else "")
    chosen = "the one with the judge's highest score" if group.scores else "the plurality's"
    instead = f" The answer is {chosen}." if group.agreeing else ""
    if outcome.winner is None and len(group.level) > 1 and decided:
        names = ", ".join(map(str, group.level[:-1])) + f" and {group.level[-1]}"
        lines.append(Text(f"Nobody won: Agents {names} are level ({count}).{instead}"))
    elif outcome.winner is None:
        why = "every vote was a tie" if outcome.votes else "no votes were cast"
        why = "nobody could vote" if debate.num_agents < 3 else why
        lines.append(Text(f"Nobody won: {why}.{instead}"))
    else:
        won = f"{outcome.won[outcome.winner]} of {decided} decided votes ({count})"
        lines.append(Text(f"Agent {outcome.winner} won: {won}."))
    lines.append(Text(_agreement(group, debate.num_agents)))
    lines.append(Text.assemble(("\nAnswer: ", "bold"), (_answer(group), "bold green")))
    if group.winner_agrees is False:
        lines.append(Text(f"The winner by votes holds another: {_quoted(group.winner_answer)}.", style="yellow"))
    return lines


def _agreement(group: GroupAnswer, agents: int) -> str:
    if not group.agreeing:
        return "No agent gave an answer in a box, so answers cannot be compared."
    if group.agreeing == 1 < agents:
        return "Agreement: none, no two agents hold the same answer."
    return f"Agreement: {group.agreeing} of {agents} hold {_quoted(group.answer)}."


def _answer(group: GroupAnswer) -> str:
    if group.answer is not None:
        return clipped(group.answer)
    return clipped(group.solution) if group.solution else "none"


def _quoted(answer: str | None) -> str:
    return "nothing" if answer is None else f"“{one_line(answer, 60)}”"


def spending(asked: AskedDebate, prices: Sequence[Prices | None]) -> str:
    """Tokens, cost and time. A price nobody gave is not guessed."""
    read, written, silent = asked.tokens()
    tokens = f"Tokens: {read:,} read, {written:,} written"
    if silent:
        tokens += f", and {silent} turns whose server did not say"
    if asked.retries:
        tokens += f"; {asked.retries} tries were thrown away and are not counted"
    if asked.cost is not None:
        cost = f"{asked.cost:.6f}".rstrip("0").rstrip(".") if asked.cost < 0.01 else f"{asked.cost:.4f}"
        money = f"{cost} (by the prices given)"
    elif all(price is None for price in prices):
        money = "unknown (give --price-in and --price-out, per million tokens)"
    elif silent:
        money = "unknown (not every turn's tokens were told)"
    elif not asked.debate.turns:
        money = "unknown (no turn was finished)"
    else:
        seats = ", ".join(str(agent) for agent, price in enumerate(prices) if price is None)
        money = f"unknown (the prices are those of --model, and other models sit in seats {seats})"
    return f"{tokens}. Cost: {money}. {asked.seconds:.1f} s."
