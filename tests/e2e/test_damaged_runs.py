"""Run folders damaged in every way a seed can think of, and every command that reads a run.

One line, no stack, no wait without end, nothing deleted, nothing outside the folder changed, nothing run.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

import moot
from moot.cli import main
from moot.debate.protocols import V2
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from support.damaging import damage
from support.requesting import ask

pytest.importorskip("starlette")

from moot.page.judging import Trials, is_trial
from moot.page.runs import Runs
from moot.page.server import make_app

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True, model="no/such-model"),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000, task="countdown"),
    optim=OptimConfig(batch_size=2, num_train_datapoints=6),
    parts=(
        "frozen_labels:weights=base,samples=2,band=0.0-1.0",
        "judge_training:show=answer,steps=1,every=1,renewed=1,exercises=4,checks=1,held_out=4",
        "judge_filter:checks=1,show=answer",
    ),
    protocol=V2.with_choices({"reward": "majority"}),
    eval_every=1,
    eval_questions=2,
)
SECONDS = 120
"""That a command may take on a machine with other work; what waits for a pipe waits for ever."""
SCRIPTED = ("--engine", "scripted", "--model", "no/such-model")
JUDGED = ("judge", "--questions", "1", "--k", "2", "--checks", "1", *SCRIPTED)
READING = (
    ["rescore", "RUN", "--reward", "win_rate", "--advantage", "center_group"],
    ["rescore", "RUN", "--json"],
    ["export", "RUN", "--out", "OUT", "--supervised", "--preferences", "--html"],
    ["export", "RUN", "--out", "OUT", "--adapter"],
    ["compare", "RUN", "--out", "OUT"],
    ["eval", "RUN", "--questions", "1", "--modes", "direct", "--out", "OUT"],
    ["check", "RUN", "--questions", "1", "--out", "OUT"],
    ["train", "--resume", "RUN", "--dry-run"],
    ["ask", "What is 1 + 1?", "--checkpoint", "RUN"],
    ["prompts", "RUN"],
    ["score", "RUN/debates/000001.jsonl"],
    [*JUDGED, "--judges", "base", "RUN", "RUN@best", "RUN@judge", "--out", "OUT"],
    [*JUDGED, "--answers", "RUN", "--task", "countdown", "--out", "OUT"],
    [
        "label",
        "QUESTIONS",
        "--checkpoint",
        "RUN",
        "--judge",
        "RUN@judge",
        "--num-answers",
        "2",
        "--out",
        "OUT/labels.jsonl",
    ],
    [
        "train",
        "--from",
        "RUN",
        "--num-train-datapoints",
        "1",
        "--batch-size",
        "1",
        "--num-agents",
        "3",
        *SCRIPTED,
        "--run",
        "OUT",
    ],
    ["eval", *SCRIPTED[:2], "--model", "RUN", "--questions", "1", "--modes", "direct", "--out", "OUT"],
)
WRITING = (
    ["eval", "RUN", "--questions", "1", "--modes", "direct", "debate"],
    ["check", "RUN", "--questions", "1"],
    ["train", "--resume", "RUN", "--num-train-datapoints", "8"],
)
ASKED = ("runs", "metrics?run=run", "curves?run=run&key=env/all/reward/total", "config?run=run", "evals?run=run", "debates?run=run",
         "debate?run=run&debate=1.0", "debate?run=run&debate=3.1", "rescore?run=run&reward=win_rate&advantage=center_group",
         "trust?run=run", "seen?run=run&debate=1.0&turn=0", "words", "about?run=run", "table?run=run",
         "judges", "verdicts?judge=run&begin=0")  # fmt: skip
MEASURING = (
    ["judge", "--answers", "ANSWERS", "--ballots", "approval", "pairs", "--checks", "1", *SCRIPTED, "--out", "RUN"],
    ["label", "QUESTIONS", *SCRIPTED, "--judge", "base", "--num-answers", "2", "--out", "RUN/labels.jsonl"],
)
"""Which continue in a folder of their own."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = moot.train(CONFIG, tmp_path_factory.mktemp("made") / "run").path
    status, said = say(["eval", "RUN", "--questions", "1", "--modes", "direct", "debate"], run, run)
    assert status == 0 and (run / "evals" / "countdown-step3" / "report.md").is_file(), said
    return run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What damage does to a figure shows when it is put together; to draw it takes longer than all the rest. No hub is asked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("moot.evaluate.figures._save", lambda pyplot, figure, stem: pyplot.close(figure) or [])


def contents(path: Path) -> dict[str, bytes | None]:
    """But the lock, which every writer puts its name into."""
    return {str(place.relative_to(path)): content(place) for place in sorted(path.rglob("*")) if place.name != "lock"}


def content(place: Path) -> bytes | None:
    """None of a folder or a pipe; of a link where it leads, and of a file of gigabytes how many."""
    if place.is_symlink():
        return os.fsencode(place.readlink())
    if not place.is_file():
        return None
    return place.read_bytes() if place.stat().st_size < 10**8 else str(place.stat().st_size).encode()


@contextlib.contextmanager
def no_wait_without_end(what: object) -> Iterator[None]:
    def wake(number: int, frame: object) -> NoReturn:
        raise TimeoutError(what)

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def say(arguments: list[str], run: Path, out: Path) -> tuple[int, str]:
    said = io.StringIO()
    names = {"RUN": run, "OUT": out, "QUESTIONS": run.parent / "questions.txt", "ANSWERS": run.parent / "answers.jsonl"}
    words = [re.sub("RUN|OUT|QUESTIONS|ANSWERS", lambda name: str(names[name[0]]), word) for word in arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), no_wait_without_end(arguments):
        try:
            status = main(words)
        except SystemExit as stop:
            status = int(stop.code or 0)
    return status, said.getvalue()


def asked(where: Path) -> None:
    """What a user asks about, beside what is damaged."""
    (where / "questions.txt").write_text("What is 1 + 1?\nWhat is 2 + 3?\n")
    texts = [f"So \\boxed{{{answer}}}" for answer in (2, 3)]
    (where / "answers.jsonl").write_text(json.dumps({"question": "1 + 1?", "answer": 2, "answers": texts}) + "\n")


def one_case(made: Path, where: Path, seed: int, share: int = 1) -> None:
    """Every command on a damaged run, or every `share`-th of them: which, goes by the seed."""
    run, out = where / "run", where / "out"
    shutil.copytree(made, run)
    asked(where)
    what = f"seed {seed}: {damage(run, seed)}"
    before, beside = contents(run), contents(where / "outside")
    for arguments in READING[seed % share :: share]:
        status, said = say(arguments, run, out)
        assert status in (0, 1, 2), (what, arguments, said)
        if status == 2:
            assert said.splitlines() and said.splitlines()[-1].startswith("moot: "), (what, arguments, said)
        assert "Traceback" not in said, (what, arguments, said)
        assert contents(run) == before, (what, arguments)
        shutil.rmtree(out, ignore_errors=True)
    look_at(run, where / "cache", what)
    assert contents(run) == before, what
    for arguments in WRITING[seed % share :: share]:
        status, said = say(arguments, run, out)
        assert status in (0, 1, 2) and "Traceback" not in said, (what, arguments, said)
        lost = [name for name, held in before.items() if held and not _still(run, name, held)]
        assert not lost, (what, arguments, lost, said)
    assert contents(where / "outside") == beside, what


def look_at(run: Path, cache: Path, what: str) -> None:
    page = make_app(Runs([run]), cache, Trials([run]))
    for path in ASKED:
        with no_wait_without_end((what, path)):
            assert ask(page, f"/api/{path}").status < 500, (what, path)


def _still(run: Path, name: str, held: bytes) -> bool:
    """Somewhere in the run: in its place, aside, or under another name. What is written anew holds what it held."""
    if (
        name in ("run.json", "judge/serving.json")
        or name.endswith(".tmp")
        or name.startswith(("checkpoints/", "judge/0"))
    ):
        return True  # rolling checkpoints go once two newer ones can be read, and states of a judge that none needs
    if "/report." in name:
        return True  # made anew from the same answers
    if name.endswith(".jsonl") and "/0" not in name:  # lines are added to them
        now = b"".join(content(file) or b"" for file in run.rglob("*") if file.name == Path(name).name)
        return all(line.strip() in now for line in held.split(b"\n"))
    return any(content(file) == held for file in run.rglob("*"))


@pytest.mark.parametrize("block", range(4))
def test_forty_damaged_runs_end_a_command_in_one_line(made: Path, tmp_path: Path, block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        one_case(made, tmp_path / str(seed), seed, share=3)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `moot judge` and `moot label` wrote."""
    folder = tmp_path_factory.mktemp("measured") / "run"
    asked(folder.parent)
    for arguments in MEASURING:
        assert say(arguments, folder, folder)[0] == 0
    assert is_trial(folder) and (folder / "labels-work" / "replies.jsonl").is_file()
    return folder


def one_measured_case(measured: Path, where: Path, seed: int) -> None:
    run = where / "run"
    shutil.copytree(measured, run)
    asked(where)
    what = f"seed {seed}: {damage(run, seed)}"
    before, beside = contents(run), contents(where / "outside")
    look_at(run, where / "cache", what)
    status, said = say(["score", "RUN/labels.jsonl"], run, run) if (run / "labels.jsonl").is_file() else (0, "")
    assert status in (0, 1, 2) and "Traceback" not in said, (what, said)
    assert contents(run) == before, what
    for arguments in MEASURING:
        status, said = say(arguments, run, run)
        assert status in (0, 1, 2) and "Traceback" not in said, (what, arguments, said)
    assert contents(where / "outside") == beside, what


@pytest.mark.parametrize("block", range(4))
def test_forty_damaged_folders_of_judge_and_label_end_a_command_in_one_line(
    measured: Path, tmp_path: Path, block: int
) -> None:
    for seed in range(10 * block, 10 * block + 10):
        one_measured_case(measured, tmp_path / str(seed), seed)


BLOCKS = int(os.environ.get("MOOT_FUZZ_BLOCKS", "5"))
"""Of a hundred runs each, which take about five minutes on an idle core."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_hundreds_of_damaged_runs_end_every_command_in_one_line(
    made: Path, measured: Path, tmp_path: Path, block: int
) -> None:
    for seed in range(100 * block, 100 * block + 100):
        one_case(made, tmp_path / str(seed), seed)
        one_measured_case(measured, tmp_path / str(seed) / "measured", seed)
        shutil.rmtree(tmp_path / str(seed))
