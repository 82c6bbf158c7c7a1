"""The run that comes with moot: small, whole, and readable with the code beside it."""

from __future__ import annotations

from pathlib import Path

from moot.cli.view import EXAMPLE
from moot.page.debate import shown
from moot.page.filters import Where
from moot.page.index import Index
from moot.page.runs import Watched
from moot.runs import Run


def test_the_example_is_small_and_holds_no_weights_and_no_path_of_a_machine() -> None:
    files = [file for file in EXAMPLE.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1_500_000
    assert {file.suffix for file in files} == {".json", ".jsonl", ".npz"} and not (EXAMPLE / "checkpoints").exists()
    told = "".join(file.read_text() for file in files if file.suffix != ".npz")
    assert not [place for place in ("/home/", "/root/", "/tmp/", "/Users/") if place in told]


def test_every_debate_of_the_example_can_be_read_with_its_tokens(tmp_path: Path) -> None:
    index = Index(EXAMPLE, tmp_path / "cache")
    index.fill()
    rows = index.page(Where(), None, -1)
    assert len(rows) == 72 and {row["step"] for row in rows} == set(range(3, 21))  # after two steps of the warm start
    assert not [row["error"] for row in rows if row["error"]]
    for step in range(3, 21):
        found = shown(EXAMPLE, step, 0)
        assert found is not None and found["tokens_error"] is None and found["turns"][0]["tokens"]
    held_out = Index(EXAMPLE, tmp_path / "cache", "held_out")
    held_out.fill()
    assert held_out.counts(Where())["error"] == 0 < held_out.counts(Where())["debates"]
    summary = Watched("example", EXAMPLE).summary()
    assert (summary["step"], summary["total"], summary["trouble"]) == (20, 20, None)
    assert len(Run.open(EXAMPLE).metrics()) > 20
