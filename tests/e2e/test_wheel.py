"""What others install: an sdist, the wheel built from it, in an empty environment, and the demo from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]  # torch is installed, and a model trained


def run(*command: object, cwd: Path) -> str:
    """Nothing of this checkout is on the path of what runs here."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`python -m build` makes the sdist from the checkout, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, cwd=folder)
    (wheel,) = (folder / "dist").glob("moot-*.whl")
    assert len(list((folder / "dist").glob("moot-*.tar.gz"))) == 1
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[local,view]", cwd=folder)
    return folder / "venv" / "bin"


def test_the_wheel_brings_the_licences_of_what_it_ships_and_every_text(bin: Path, tmp_path: Path) -> None:
    where = Path(run(bin / "python", "-c", "import moot; print(moot.__path__[0])", cwd=tmp_path).strip())
    assert bin.parent in where.parents
    page = ("page/static/index.html", "page/static/vendor/katex/LICENSE", "page/example/debates/000020.npz")
    for name in ("py.typed", "debate/prompts.toml", *page):
        assert (where / name).is_file(), name
    assert (where.parent / "moot_debate.py").is_file()  # the environment that verifiers looks for by this name
    assert "[asked]" in run(bin / "moot", "prompts", cwd=tmp_path)


def test_the_demo_runs_from_the_wheel(bin: Path, tmp_path: Path) -> None:
    """The preset demo, cut to one warm-up step and one step of self-play."""
    assert run(bin / "moot", "demo", "--debates", 2, cwd=tmp_path).lstrip().startswith("Question: ")
    cut = [
        "--warm-questions",
        2,
        "--with",
        "warm_start:batch_size=2",
        "--batch-size",
        2,
        "--num-train-datapoints",
        2,
        "--max-tokens",
        32,
    ]
    run(
        bin / "moot",
        "train",
        *cut,
        "--evaluation-tokens",
        16,
        "--eval-every",
        0,
        "--eval-questions",
        0,
        "--run",
        "runs/demo",
        cwd=tmp_path,
    )
    rows = [json.loads(line) for line in (tmp_path / "runs" / "demo" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["phase"]) for row in rows] == [(1, "warm"), (2, "self_play")]
    assert rows[1]["debates/played"] == 2
    assert "adapter of step 2" in run(bin / "moot", "export", "runs/demo", "--adapter", cwd=tmp_path)
