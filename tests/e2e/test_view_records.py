"""The page reads what the training loop writes: every vote of a record is a line of its author's, under every kind of protocol."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from moot.page.debate import shown
from support.making import command, surroundings

SMALL = "--engine scripted --batch-size 6 --num-train-datapoints 12 --num-agents 4 --max-rounds 2 --max-tokens 2000"
BARE = "--warm-questions 0 --eval-every 0"
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--shuffle-labels --closing-ballot --judge base", id="remedies"),
        pytest.param("", id="v2", marks=SLOW),
        pytest.param("--preset v1", id="v1", marks=SLOW),
    ],
)
def test_votes_and_lines_tell_the_same_story(tmp_path: Path, options: str) -> None:
    run = tmp_path / "run"
    done = subprocess.run(
        command("train", *options.split(), *SMALL.split(), *BARE.split(), "--run", run),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    votes = 0
    for file in sorted((run / "debates").glob("*.jsonl")):
        for number, line in enumerate(file.read_text().splitlines()):
            record, found = json.loads(line), shown(run, int(file.stem), number)
            assert found is not None and "broken" not in found and found["tokens_error"] is None
            cast = Counter(vote["turn"] for vote in record["votes"] if vote["turn"] is not None)
            counted = {
                i: sum(each["fate"] == "vote" for each in turn.get("lines", ()))
                for i, turn in enumerate(found["turns"])
            }
            assert {i: count for i, count in counted.items() if count} == dict(cast)
            votes += sum(cast.values())
            for judge, said in zip(record.get("jury", ()), found["jury"], strict=True):
                assert sum(each["fate"] == "vote" for each in said.get("lines", ())) == len(judge["votes"])
            for turn in found["turns"]:
                # The advantage of a token is that of the stream the page says it belongs to.
                starts, given = turn["tokens"]["starts"], turn["tokens"]["advantages"]
                for section in turn.get("sections", ()):
                    stream = section["stream"] if "generator" in turn["advantages"] else "agent"
                    expected = turn["advantages"].get(stream, 0.0)
                    put = turn["tokens"].get("inserted") or [False] * len(starts)
                    sampled = [
                        (start, a) for start, a, inserted in zip(starts, given, put, strict=True) if not inserted
                    ]
                    inside = [a for start, a in sampled if section["begin"] <= start < section["end"]]
                    assert inside == pytest.approx([expected] * len(inside), abs=1e-4)
    assert votes > 20
