"""A run on disk. Training, evaluation and the page meet only here; docs/formats.md says it for other tools.

    run.json                     format version, configuration, what made it
    metrics.jsonl                one object an iteration (and evaluation), in order
    debates/000012.jsonl         every debate of iteration 12: text, fields, votes, rewards
    debates/000012.npz           its tokens, logprobs and advantages: one array each, cut by `offsets`
    index.sqlite                 where each debate is and what came of it; rebuilt from the files when missing
    checkpoints/000012/          the engine's state, and state.json: the loop's own, with the iteration's metrics

An iteration is committed by its checkpoint. Files are written beside their place and moved there, so a kill leaves either all of
one or none; what a killed iteration left behind is overwritten when it is played again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moot.debate.outcome import AgentVote, Outcome
from moot.debate.protocol import Protocol
from moot.debate.rewards import AgentScores, Grades, Scores, outside_votes
from moot.debate.scoring import Scoring
from moot.debate.types import ConfigError, Parsed, Turn
from moot.rl.advantages import Advantages, AgentAdvantages
from moot.rl.datums import credit
from moot.rl.metrics import has_signal
from moot.rl.rollout import Rollout
from moot.rl.turns import SampledTurn

FORMAT = 1


@dataclass(frozen=True)
class Played:
    """One debate of an iteration with all that came of it; scores, grades and advantages are missing where the engine failed."""

    rollout: Rollout
    scoring: Scoring
    scores: Scores | None = None
    grades: Grades | None = None
    advantages: Advantages | None = None


class Run:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Opening

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], made_by: Mapping[str, Any]) -> Run:
        run = cls(path)
        (path / "debates").mkdir(parents=True, exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
        write_atomically(path / "run.json", json.dumps({"format": FORMAT, "config": config, "made_by": made_by}, indent=1).encode())
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        run = cls(path)
        if not (path / "run.json").is_file():
            raise ConfigError(f"{path} is not a run: it has no run.json")
        version = run.header.get("format")
        if version != FORMAT:
            raise ConfigError(f"{path} is a run of format {version}, and this moot reads format {FORMAT}; use the moot that made it")
        return run

    @staticmethod
    def exists(path: Path) -> bool:
        return (path / "run.json").is_file()

    @property
    def header(self) -> dict[str, Any]:
        try:
            found = json.loads((self.path / "run.json").read_text())
        except ValueError as error:
            raise ConfigError(f"{self.path / 'run.json'} is damaged: {error}") from None
        return found if isinstance(found, dict) else {}

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.header["config"])

    # Metrics

    def metrics(self) -> list[dict[str, Any]]:
        """Every complete line; a last line cut short by a kill is left out."""
        file = self.path / "metrics.jsonl"
        rows = []
        for line in file.read_bytes().split(b"\n") if file.exists() else ():
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
        return rows

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def rewind(self, step: int, last: Mapping[str, Any] | None) -> None:
        """Forgets what was written after checkpoint `step`, and puts back its metrics if a kill came before they were written."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        if last is not None and last not in kept and not any(row["step"] == step and row["phase"] == last["phase"] for row in kept):
            kept.append(dict(last))
        write_atomically(self.path / "metrics.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in kept))
        for file in (self.path / "debates").iterdir():
            if file.name.split(".")[0].isdigit() and int(file.name.split(".")[0]) > step:
                file.unlink()
        self._drop_from_index(step)

    # Debates

    def write_debates(self, step: int, played: Sequence[Played]) -> None:
        lines = [json.dumps({"number": i, **debate_record(each)}).encode() + b"\n" for i, each in enumerate(played)]
        write_atomically(self.path / "debates" / f"{step:06d}.jsonl", b"".join(lines))
        arrays = token_arrays(played)
        target = self.path / "debates" / f"{step:06d}.npz"
        with _beside(target) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        self._add_to_index(step, lines, played)

    def debates(self, step: int) -> Iterator[dict[str, Any]]:
        with (self.path / "debates" / f"{step:06d}.jsonl").open("rb") as file:
            yield from map(json.loads, file)

    def steps(self) -> list[int]:
        return sorted(int(file.stem) for file in (self.path / "debates").glob("*.jsonl") if file.stem.isdigit())

    # The index

    def index(self) -> sqlite3.Connection:
        """Opened, or rebuilt from the files where it is missing or damaged."""
        file = self.path / "index.sqlite"
        if file.exists():
            connection = sqlite3.connect(file)
            try:
                connection.execute("select count(*) from debates").fetchone()
                return connection
            except sqlite3.DatabaseError:
                connection.close()
                file.unlink()
        connection = sqlite3.connect(file)
        connection.execute(_SCHEMA)
        for step in self.steps():
            offset = 0
            with (self.path / "debates" / f"{step:06d}.jsonl").open("rb") as lines:
                for line in lines:
                    connection.execute(_INSERT, _index_row(step, offset, len(line), json.loads(line)))
                    offset += len(line)
        connection.commit()
        return connection

    def _add_to_index(self, step: int, lines: Sequence[bytes], played: Sequence[Played]) -> None:
        try:
            with contextlib.closing(self.index()) as connection:
                offset = 0
                connection.execute("delete from debates where step = ?", (step,))
                for line in lines:
                    connection.execute(_INSERT, _index_row(step, offset, len(line), json.loads(line)))
                    offset += len(line)
                connection.commit()
        except sqlite3.OperationalError as error:
            if "full" not in str(error):
                raise
            raise OSError(errno.ENOSPC, "no space left on the device", str(self.path / "index.sqlite")) from error

    def _drop_from_index(self, step: int) -> None:
        if (self.path / "index.sqlite").exists():
            with contextlib.closing(self.index()) as connection:
                connection.execute("delete from debates where step > ?", (step,))
                connection.commit()

    # Checkpoints

    def checkpoint_place(self, step: int) -> Path:
        """Where an engine writes the state of `step`; `commit_checkpoint` moves it to its name."""
        place = self.path / "checkpoints" / f"{step:06d}.tmp"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def commit_checkpoint(self, step: int, state: Mapping[str, Any], keep: bool) -> Path:
        """Rolling checkpoints go away once two newer ones stand; kept ones stay."""
        temporary = self.path / "checkpoints" / f"{step:06d}.tmp"
        body = json.dumps({**state, "step": step, "keep": keep})
        seal = hashlib.sha256(body.encode()).hexdigest()
        write_atomically(temporary / "state.json", json.dumps({"sha256": seal, "body": body}).encode())
        final = temporary.with_suffix("")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        _sync_folder(final.parent)
        rolling = [(n, place) for n, place in self.checkpoints() if not (_state(place) or {}).get("keep")]
        for _, place in rolling[2:]:
            shutil.rmtree(place, ignore_errors=True)
        return final

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Newest first."""
        places = (self.path / "checkpoints").glob("[0-9]*")
        return sorted(((int(place.name), place) for place in places if place.name.isdigit()), reverse=True)

    def load_checkpoints(self) -> Iterator[tuple[int, Path, dict[str, Any] | None]]:
        """Newest first, with the loop's state; None where that is damaged."""
        for step, place in self.checkpoints():
            yield step, place, _state(place)


def engine_state(place: Path, state: Mapping[str, Any]) -> str:
    """What to give to an engine's `load_state`: the checkpoint's folder, or the name under which a server keeps it."""
    return str(state.get("engine_state") or place)


def _state(place: Path) -> dict[str, Any] | None:
    try:
        sealed = json.loads((place / "state.json").read_text())
        body = sealed["body"]
        if hashlib.sha256(body.encode()).hexdigest() != sealed["sha256"]:
            return None
        found = json.loads(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if isinstance(found, dict) else None


# What a debate looks like


def debate_record(played: Played) -> dict[str, Any]:
    debate = played.rollout.debate
    record: dict[str, Any] = {
        "question": {name: getattr(debate.question, name) for name in ("id", "text", "answer", "instruction")},
        "num_agents": debate.num_agents,
        "max_rounds": debate.max_rounds,
        "protocol": _protocol(played),
    }
    if debate.stop_when_settled or debate.extra_rounds:
        record |= {"stop_when_settled": debate.stop_when_settled, "extra_rounds": debate.extra_rounds}
    if played.rollout.error is not None:
        return {**record, "error": played.rollout.error, "turns": []}
    grades, scores = played.grades, played.scores
    record["turns"] = [
        {
            "round": turn.round,
            "agent": turn.agent,
            "text": turn.text,
            **_read(turn),
            **({"ballot": True} if turn.ballot else {}),
            **({"answer": grades.answers[i], "correct": grades.correct[i]} if grades else {}),
            **({"stop": played.rollout.sampled[i].stop_reason} if played.rollout.sampled else {}),
        }
        for i, turn in enumerate(debate.turns)
    ]
    if debate.jury:
        record["jury_counts"] = played.scoring.judge_counts
        record["jury"] = [{"text": turn.text, **_read(turn)} for turn in debate.jury]
        for judge in record["jury"]:
            judge["votes"] = []
        for vote in outside_votes(debate, played.scoring):
            about = {"left_turn": vote.left, "right_turn": vote.right, "verdict": vote.verdict}
            record["jury"][vote.author - debate.num_agents]["votes"].append(about)
    if scores is not None:
        outcome = Outcome.of(debate, scores, played.scoring)
        record["winner"], record["signal"] = outcome.winner, has_signal(scores)
        record["votes"] = [_vote(vote) for vote in outcome.votes]
        if isinstance(scores, AgentScores):
            record["rewards"], record["returns"] = scores.rewards, scores.returns
        else:
            record["rewards"] = {name: stream.values for name, stream in scores.streams.items()}
    if played.advantages is not None:
        given = played.advantages
        record["advantages"] = given.values if isinstance(given, AgentAdvantages) else given.streams
    return record


def _read(turn: Turn) -> dict[str, Any]:
    return {"fields": dict(turn.parsed.fields)} if isinstance(turn.parsed, Parsed) else {"failure": turn.parsed.reason}


def _protocol(played: Played) -> dict[str, Any]:
    """Whether judges count stands beside what they said, as `jury_counts`."""
    choices = Protocol(played.rollout.debate.rules, played.scoring).as_dict()
    return {name: value for name, value in choices.items() if name != "judge_counts"}


def _vote(vote: AgentVote) -> dict[str, Any]:
    """By the turn that cast it, or by which outside judge did; about two responses, or about two agents."""
    caster: dict[str, Any] = {"turn": vote.turn} if vote.judge is None else {"turn": None, "judge": vote.judge}
    if vote.left_turn is None:
        return {**caster, "left": vote.left, "right": vote.right, "verdict": vote.verdict}
    return {**caster, "left_turn": vote.left_turn, "right_turn": vote.right_turn, "verdict": vote.verdict}


def token_arrays(played: Sequence[Played]) -> dict[str, Any]:
    """All turns of an iteration end to end. Turn k of the file has `prompt_tokens[prompt_offsets[k]:prompt_offsets[k+1]]`, and so on."""
    turns: list[SampledTurn] = []
    credits: list[Any] = []
    where: list[tuple[int, int]] = []
    for number, each in enumerate(played):
        steps = {i: step for own in each.rollout.debate.steps() for step, i in enumerate(own)}
        for i, turn in enumerate(each.rollout.sampled):
            turns.append(turn)
            where.append((number, i))
            known = each.advantages
            values = None if known is None else credit(each.rollout.debate.turns[i], turn, steps[i], known)
            credits.append(np.zeros(len(turn.tokens), dtype=np.float32) if values is None else values)

    def joined(arrays: list[Any], kind: type) -> Any:
        return np.concatenate(arrays).astype(kind) if arrays else np.zeros(0, dtype=kind)

    return {
        "format": np.array(FORMAT),
        "debate": np.array([n for n, _ in where], dtype=np.int32),
        "turn": np.array([i for _, i in where], dtype=np.int32),
        "extends": np.array([turn.extends for turn in turns], dtype=bool),
        "temperature": np.array([turn.temperature for turn in turns], dtype=np.float32),
        "prompt_offsets": np.cumsum([0, *(len(turn.prompt) for turn in turns)], dtype=np.int64),
        "prompt_tokens": joined([turn.prompt for turn in turns], np.int32),
        "offsets": np.cumsum([0, *(len(turn.tokens) for turn in turns)], dtype=np.int64),
        "tokens": joined([turn.tokens for turn in turns], np.int32),
        "logprobs": joined([turn.logprobs for turn in turns], np.float32),
        "advantages": joined(credits, np.float32),
        "starts": joined([turn.starts for turn in turns], np.int32),
        "inserted": joined([~turn.sampled for turn in turns], bool),
    }


_SCHEMA = """create table debates (
    step integer, number integer, offset integer, length integer, question text, winner integer, signal integer, failures integer,
    correct real, disagreement integer, error text, primary key (step, number))"""
_INSERT = "insert or replace into debates values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _index_row(step: int, offset: int, length: int, record: Mapping[str, Any]) -> tuple[Any, ...]:
    turns = record["turns"]
    last = {turn["agent"]: turn for turn in turns if "failure" not in turn and not turn.get("ballot")}
    answers = {turn.get("answer") for turn in last.values()}
    known = record["question"]["answer"] is not None and bool(turns)
    correct = sum(bool(turn.get("correct")) for turn in last.values()) / record["num_agents"] if known else None
    return (
        step,
        record["number"],
        offset,
        length,
        record["question"]["text"].encode("utf-8", "replace").decode(),  # half a character is text to JSON, and not to SQLite
        record.get("winner"),
        int(record["signal"]) if "signal" in record else None,
        sum("failure" in turn for turn in turns),
        correct,
        int(len(answers) > 1),
        record.get("error"),
    )


# Writing that a kill cannot tear


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    temporary = target.with_name(target.name + ".tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(target: Path, content: bytes) -> None:
    with _beside(target) as temporary:
        temporary.write_bytes(content)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
