"""`moot score`: transcripts in, rewards out; a table for people, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from moot.cli.console import Terminal
from moot.cli.ending import complain
from moot.cli.registry import ProtocolName
from moot.debate.outcome import AgentVote, Outcome
from moot.debate.protocols import preset
from moot.debate.reward import REWARDS, Reward, reward_names
from moot.errors import ConfigError
from moot.rl.lookup import find_reward
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import BadLine, as_json, failures, score
from moot.util.disk import read_file
from moot.util.safe_text import counted, one_line, plain

REWARD_HELP = f"{reward_names()}. Wins over what a line says."


@dataclass(frozen=True)
class Score:
    """Score transcripts of debates: who won, by how many votes, and what each turn would be taught.

    FILE holds one debate per line: {"question": "...", "num_agents": 3, "turns": [{"round": 1, "agent": 0, "text":
    "<solution>..."}, ...]}, with "answer" and "protocol" if you like. Use - for standard input. A bad line is reported
    and the others are still scored.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """JSON lines, one debate per line."""
    protocol: ProtocolName = "v2"
    """The rules the debates were played by; a line's own "protocol" changes single choices."""
    reward: Annotated[str | None, tyro.conf.arg(metavar="NAME", help=REWARD_HELP)] = None
    json: bool = False
    """Print one JSON object for each good line."""

    def run(self) -> int:
        rewards: dict[str, Reward] = dict(REWARDS)
        if self.reward and self.reward not in rewards:
            rewards[self.reward] = find_reward(self.reward)
        _refuse_runs(self.file)
        bad, seen = 0, Seen()
        console = Terminal()
        for result in score(_lines(self.file), preset(self.protocol), self.reward, rewards):
            if isinstance(result, BadLine):
                bad += 1
                print(f"line {result.line}: {' '.join(plain(result.reason).split())}", file=sys.stderr)
            elif self.json:
                seen.debates += 1
                print(json.dumps(as_json(result)))
            else:
                seen.add(result, show(result, console))
        if not bad and not seen.debates:
            source = "standard input" if self.file == "-" else self.file
            complain(f"{source} holds no debates: there is nothing to score")
        elif not self.json and seen.debates > 1:
            console.say(f"\n{seen.told(bad)}", "bold")
        return 1 if bad else 0


@dataclass
class Seen:
    """What the debates came to, all together."""

    debates: int = 0
    won: int = 0
    level: int = 0
    turns: int = 0
    failed: int = 0

    def add(self, scored: PlayedDebate, outcome: Outcome) -> None:
        self.debates += 1
        self.won += outcome.winner is not None
        self.level += outcome.winner is None and outcome.voted
        self.turns += len(scored.debate.turns)
        self.failed += len(failures(scored.debate))

    def told(self, bad: int) -> str:
        silent = self.debates - self.won - self.level
        won = f"{self.won} with a winner, {self.level} level, {silent} without a vote"
        lines = f"; {counted(bad, 'line')} could not be scored" if bad else ""
        return f"{self.debates} debates: {won}; {self.failed} of {self.turns} turns could not be read{lines}."


def _refuse_runs(file: str) -> None:
    """Debates that a run saved are scored already, and in a format of their own."""
    path = Path(file)
    run = path if path.is_dir() else path.parent.parent if path.parent.name == "debates" else None
    if run is not None and (run / "run.json").is_file():
        scored = f"{file} belongs to a run, whose debates are scored already"
        raise ConfigError(f"{scored}; count its votes otherwise with: moot rescore {run}")


def _lines(file: str) -> Iterator[str]:
    """Split at line feeds alone, as JSON lines are; what is not UTF-8 becomes a line that is not JSON."""
    raw = sys.stdin.buffer.read() if file == "-" else read_file(Path(file))
    for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield f"not UTF-8: {error.reason} at byte {error.start}"


def show(scored: PlayedDebate, console: Console, title: str = "") -> Outcome:
    """One debate: votes won and lost per round and agent, then the verdict. Returns the outcome."""
    debate = scored.debate
    outcome = scored.outcome
    assert outcome is not None
    won, lost = _tally(scored, outcome)
    rows: list[tuple[str, list[str], str]] = [("", [f"Agent {agent}" for agent in range(debate.num_agents)], "dim")]
    for name, indices in debate.rounds.items():
        turns = [debate.turns[i] for i in indices]
        round, failed = turns[0].round, {turn.agent for turn in turns if turn.failed}
        cells = ["failed" if a in failed else f"{won[round, a]}–{lost[round, a]}" for a in range(debate.num_agents)]
        rows.append((f"{name.lower()}, votes won–lost", cells, ""))
    for name, values in _summary(scored).items():
        rows.append((name, [f"{value:+.3f}" for value in values], "dim" if "advantage" in name else ""))
    lines = [
        (f"\n{title or f'Line {scored.number}: {one_line(debate.question.text)}'}", "bold"),
        *_aligned(rows),
        (_verdict(outcome), ""),
    ]
    for round, agent, reason in failures(debate):
        lines.append((f"  round {round}, Agent {agent} failed: {one_line(reason, 100)}", "yellow"))
    if console.is_terminal:
        console.print(Text("\n").join(Text(line, style=style) for line, style in lines), soft_wrap=True)
    else:
        print("\n".join(line for line, _ in lines), file=console.file)
    return outcome


def _aligned(rows: list[tuple[str, list[str], str]]) -> list[tuple[str, str]]:
    """Names on the left, numbers below each other. By hand: a `rich` table takes ten times as long as the scores."""
    first = max(len(name) for name, _, _ in rows)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells, _ in rows), strict=True)]
    return [
        ("  ".join([name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]), style)
        for name, cells, style in rows
    ]


def _tally(scored: PlayedDebate, outcome: Outcome) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """Votes by round and agent: the response's round, or the voting round where votes are about agents."""
    won: Counter[tuple[int, int]] = Counter()
    lost: Counter[tuple[int, int]] = Counter()
    for vote in outcome.votes:
        if vote.verdict == ">":
            won[_round(scored, vote, vote.left_turn), vote.left] += 1
            lost[_round(scored, vote, vote.right_turn), vote.right] += 1
    return won, lost


def _round(scored: PlayedDebate, vote: AgentVote, response: int | None) -> int:
    """0, which is no round, for what an outside judge says about an agent as a whole."""
    return scored.debate.turns[response].round if response is not None else vote.round or 0


def _summary(scored: PlayedDebate) -> dict[str, list[float]]:
    assert scored.scores is not None and scored.advantages is not None
    if scored.scores.per == "agent":
        return {"return": list(scored.scores.returns), "advantage": list(scored.advantages.values)}
    rows: dict[str, list[float]] = {}
    for name, stream in scored.scores.streams.items():
        rows[f"{name} reward, mean of turns"] = [_mean(values) for values in stream.values]
        rows[f"{name} advantage, mean of turns"] = [_mean(values) for values in scored.advantages.streams[name]]
    return rows


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


def _verdict(outcome: Outcome) -> str:
    tallies = [f"{won} votes won, {lost} lost" for won, lost in zip(outcome.won, outcome.lost, strict=True)]
    if outcome.winner is not None:
        return f"Agent {outcome.winner} won ({tallies[outcome.winner]})."
    if not outcome.voted:
        return "No votes were cast: nobody won."
    if not any(outcome.won):
        return "All votes were ties: nobody won."
    names = " and ".join(f"Agent {agent}" for agent in outcome.leaders)
    votes = {tallies[agent] for agent in outcome.leaders}
    equally = f" ({votes.pop()} each)" if len(votes) == 1 else ""
    return f"{names} are level{equally}: nobody won."
