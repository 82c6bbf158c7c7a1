"""`moot score` against a second scorer, written from the specification alone: see tests/oracle."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transcripts import transcript_files, transcripts

from moot.debate.protocols import preset
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import BadLine, as_json, score
from oracle import bad_lines, score_file, score_line
from support.making import moot

TRANSCRIPTS, FILES = 900, 100
TOLERANCE = 1e-9


@cache
def made(count: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    return list(transcripts(count, seed=seed))


@cache
def by_the_oracle(count: int, seed: int) -> list[dict[str, Any]]:
    return [score_line(line, name) for name, line in made(count, seed)]


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two objects differ. Of a failure only round and agent are compared: its reason is free text."""
    if isinstance(expected, dict):
        if not isinstance(found, dict) or list(found) != list(expected):
            return [f"{where}: {found!r} has not the keys {list(expected)}"]
        return [d for key in expected for d in differences(found[key], expected[key], f"{where}.{key}")]
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return [f"{where}: {found!r}, expected {expected!r}"]
        if where.endswith(".failures"):
            assert all(isinstance(reason, str) and reason for _, _, reason in found)
            found, expected = [failure[:2] for failure in found], [failure[:2] for failure in expected]
        return [
            d for i, (f, e) in enumerate(zip(found, expected, strict=True)) for d in differences(f, e, f"{where}[{i}]")
        ]
    if isinstance(expected, float):
        return [] if abs(found - expected) <= TOLERANCE else [f"{where}: {found!r}, expected {expected!r}"]
    return [] if found == expected else [f"{where}: {found!r}, expected {expected!r}"]


def through_json(scored: PlayedDebate) -> dict[str, Any]:
    return json.loads(json.dumps(as_json(scored)))


@pytest.mark.parametrize("part", range(3))
def test_transcripts_one_by_one(part: int) -> None:
    """300 debates in each part, each scored as a file of its own."""
    debates, oracle = made(TRANSCRIPTS // 3, 101 + part), by_the_oracle(TRANSCRIPTS // 3, 101 + part)
    for number, ((name, line), scored) in enumerate(zip(debates, oracle, strict=True)):
        (result,) = score([json.dumps(line)], preset(name))
        assert isinstance(result, PlayedDebate), f"debate {number}: {result}"
        assert not differences(through_json(result), {"line": 1, **scored}), (
            f"debate {number}, {name}: {json.dumps(line)}"
        )


def test_whole_files() -> None:
    """100 files with blank and bad lines, running means and batches that go over lines, and rewards from the command line."""
    for number, (name, reward, lines) in enumerate(transcript_files(FILES, seed=7)):
        results = list(score(lines, preset(name), reward))
        good = [through_json(result) for result in results if isinstance(result, PlayedDebate)]
        assert not differences(good, score_file(lines, name, reward)), f"file {number}, {name}, {reward}"
        bad = [result.line for result in results if isinstance(result, BadLine)]
        assert bad == [line for line, _ in bad_lines(lines, name, reward)], f"file {number}"


def test_the_generator_reaches_what_it_should() -> None:
    """A comparison proves nothing about debates that never happen: votes, ties, penalties, failures of every kind, long windows."""
    scored = by_the_oracle(TRANSCRIPTS // 3, 101)
    by_step = [each for each in scored if "votes" in each]
    assert {name for name, _ in made(TRANSCRIPTS // 3, 101)} == {"v1", "v2", "v2_literal"}
    assert sum(each["votes"] > 0 for each in by_step) > 100
    assert sum(each["missing_comparisons"] > 0 for each in by_step) > 50
    assert sum(each["lines_invalid"] > 0 for each in by_step) > 50
    assert sum(bool(each["failures"]) for each in scored) > 50
    assert sum(each.get("malformed", 0) > 0 for each in scored) > 10
    assert len({value for each in by_step for row in each["judge"] for value in row}) > 8


@pytest.mark.parametrize("name", ["v1", "v2", "v2_literal"])
def test_hundreds_of_debates_through_the_command(name: str, tmp_path: Path) -> None:
    """The debates of one preset in one file: those whose advantages do not depend on the lines around them."""
    alone = ("center_group", "center_round")
    both = [
        (line, scored)
        for (each, line), scored in zip(made(TRANSCRIPTS, 5), by_the_oracle(TRANSCRIPTS, 5), strict=True)
        if each == name and line.get("protocol", {}).get("advantage", "center_group") in alone
    ]
    chosen = [line for line, _ in both]
    assert len(chosen) > 100
    path = tmp_path / "debates.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in chosen))
    done = moot("score", path, "--json", "--protocol", name)
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = [{"line": number, **scored} for number, (_, scored) in enumerate(both, 1)]
    assert not differences(found, expected)


def test_whole_files_through_the_command(tmp_path: Path) -> None:
    """The six longest of the files, with their blank and bad lines: numbers on standard output and error, exit status 1 for bad ones."""
    files = sorted(transcript_files(FILES, seed=8), key=lambda file: -len(file[2]))[:6]
    assert any(bad_lines(lines, name, reward) for name, reward, lines in files)
    for number, (name, reward, lines) in enumerate(files):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        done = moot("score", path, "--json", "--protocol", name, *(["--reward", reward] if reward else []))
        bad = [line for line, _ in bad_lines(lines, name, reward)]
        assert done.returncode == (1 if bad else 0)
        assert [int(line.removeprefix("line ").split(":")[0]) for line in done.stderr.splitlines()] == bad
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert not differences(found, score_file(lines, name, reward)), f"file {number}"
