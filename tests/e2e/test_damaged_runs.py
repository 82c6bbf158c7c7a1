"""Run folders damaged in every way a seed can think of, and every command that reads a run: one line, no stack, nothing deleted."""

import contextlib
import io
import os
import shutil
from pathlib import Path

import pytest

import moot
from moot.cli import main
from moot.rl.config import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from support.damaging import damage
from support.requesting import ask

pytest.importorskip("starlette")

from moot.page.runs import Runs
from moot.page.server import make_app

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=2, num_train_datapoints=6),
    eval_every=0,
    eval_questions=2,
)
READING = (
    ["rescore", "RUN", "--reward", "win_rate", "--advantage", "center_group"],
    ["rescore", "RUN", "--json"],
    ["export", "RUN", "--out", "OUT", "--supervised", "--preferences", "--html"],
    ["export", "RUN", "--out", "OUT", "--adapter"],
    ["compare", "RUN", "--out", "OUT"],
    ["eval", "RUN", "--questions", "1", "--modes", "direct", "--out", "OUT"],
    ["check", "RUN", "--questions", "1", "--out", "OUT"],
    ["train", "--resume", "RUN", "--dry-run"],
)
ASKED = ("runs", "metrics?run=run", "curves?run=run&key=env/all/reward/total", "config?run=run", "evals?run=run", "debates?run=run",
         "debate?run=run&debate=1.0", "debate?run=run&debate=3.1", "rescore?run=run&reward=win_rate&advantage=center_group",
         "trust?run=run", "seen?run=run&debate=1.0&turn=0", "words")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return moot.train(CONFIG, tmp_path_factory.mktemp("made") / "run").path


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What damage does to a figure shows when it is put together; to draw it takes longer than all the rest."""
    monkeypatch.setattr("moot.figures._save", lambda pyplot, figure, stem: pyplot.close(figure) or [])


def contents(path: Path) -> dict[str, bytes | None]:
    """But the lock, which every writer puts its name into."""
    return {
        str(place.relative_to(path)): place.read_bytes() if place.is_file() else None
        for place in sorted(path.rglob("*"))
        if place.name != "lock"
    }


def say(arguments: list[str], run: Path, out: Path) -> tuple[int, str]:
    said = io.StringIO()
    words = [{"RUN": str(run), "OUT": str(out)}.get(word, word) for word in arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            status = main(words)
        except SystemExit as stop:
            status = int(stop.code or 0)
    return status, said.getvalue()


def one_case(made: Path, where: Path, seed: int) -> None:
    run, out = where / "run", where / "out"
    shutil.copytree(made, run)
    what = f"seed {seed}: {damage(run, seed)}"
    before = contents(run)
    for arguments in READING:
        status, said = say(arguments, run, out)
        assert status in (0, 1, 2), (what, arguments, said)
        if status == 2:
            assert said.splitlines() and said.splitlines()[-1].startswith("moot: "), (what, arguments, said)
        assert "Traceback" not in said, (what, arguments, said)
        assert contents(run) == before, (what, arguments)
        shutil.rmtree(out, ignore_errors=True)
    look_at(run, where / "cache", what)
    assert contents(run) == before, what
    status, said = say(["train", "--resume", "RUN", "--num-train-datapoints", "8"], run, out)
    assert status in (0, 1, 2) and "Traceback" not in said, (what, said)
    lost = [name for name, content in before.items() if content and not _still(run, name, content)]
    assert not lost, (what, lost, said)


def look_at(run: Path, cache: Path, what: str) -> None:
    page = make_app(Runs([run]), cache)
    for path in ASKED:
        assert ask(page, f"/api/{path}").status < 500, (what, path)


def _still(run: Path, name: str, content: bytes) -> bool:
    """Somewhere in the run: in its place, aside, or under another name. What is written anew holds what it held."""
    if name == "run.json" or name.endswith(".tmp") or name.startswith("checkpoints/"):
        return True  # rolling checkpoints go once two newer ones can be read
    if name in ("metrics.jsonl", "visits.jsonl"):  # lines are added to them
        now = b"".join(file.read_bytes() for file in run.rglob(name) if file.is_file())
        return all(line.strip() in now for line in content.split(b"\n")[:-1])
    return any(file.read_bytes() == content for file in run.rglob("*") if file.is_file())


@pytest.mark.parametrize("block", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_twenty_damaged_runs_end_every_command_in_one_line(made: Path, tmp_path: Path, block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        one_case(made, tmp_path / str(seed), seed)


def test_the_page_looks_at_twenty_more_damaged_runs_without_an_error_of_its_own(made: Path, tmp_path: Path) -> None:
    for seed in range(20, 40):
        run = shutil.copytree(made, tmp_path / str(seed) / "run")
        what = f"seed {seed}: {damage(run, seed)}"
        before = contents(run)
        look_at(run, tmp_path / str(seed) / "cache", what)
        assert contents(run) == before, what


BLOCKS = int(os.environ.get("MOOT_FUZZ_BLOCKS", "3"))
"""Of a hundred runs each: 20 make the two thousand, which take most of an hour on two cores."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_damaged_runs_end_every_command_in_one_line(made: Path, tmp_path: Path, block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        one_case(made, tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))
