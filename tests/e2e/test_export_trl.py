"""The exported sets in TRL itself: they load, mean what they should, and a step is taken on each."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from moot.cli.main import main
from moot.debate.types import Question
from support import tiny_chat
from support.making import debate, spoken, text, v2
from support.recorded import LOST, record

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WANTED = ("trl>=1.0", "datasets>=4.0")


def environment_with_trl() -> Path:
    """Its own environment, because TRL wants much that moot does not; what is installed here already is seen from there."""
    home = ROOT / ".cache" / "trl-venv"
    stamp, made_for = home / "made-for", f"{WANTED} {sys.prefix} {sys.version}"
    python = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != made_for:
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True, symlinks=True)
        (own,) = home.glob("lib/python*/site-packages")
        (own / "moot-tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *WANTED],
            check=True,
            timeout=1500,
        )
        stamp.write_text(made_for)
    return python


# What a reader of JSON lines may stumble over: line separators of other kinds, half a character, special tokens, nothing but spaces.
AWKWARD = "a\u2028b\x85c\r\nd\ud800e\x00f <|im_end|> \U0001f600"


@pytest.mark.timeout(1800)
def test_trl_reads_both_sets_and_takes_a_step_on_each(tmp_path: Path) -> None:
    asked = Question("What is 3 + 4?", "7", instruction="Put it in a box.")
    plain = replace(debate(v2(), [["", "", ""], ["1 > 2", "", ""]], [["5", "7", "6"]] * 2, "7"), question=asked)
    words = [
        (agent, text("Agent 1 > Agent 2" if agent == 0 else "N/A", solution=f"{AWKWARD} {agent}")) for agent in range(3)
    ]
    awkward = spoken([words, words], v2(), 3)
    run = record(tmp_path / "run", [[plain, LOST, awkward]])
    assert main(["export", str(run.path), "--supervised", "--preferences", "--out", str(tmp_path / "sets")]) == 0
    model = tiny_chat.save(tmp_path / "model")
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": ""}
    done = subprocess.run(
        [environment_with_trl(), Path(__file__).with_name("trl_one_step.py"), tmp_path / "sets", model, tmp_path / "scratch"],
        env=surroundings, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("TOLD ")).removeprefix("TOLD "))

    supervised, preferences = told["supervised"], told["preferences"]
    for name, found in told.items():
        written = [
            json.loads(line)
            for line in (tmp_path / "sets" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
            if line
        ]
        assert found["rows"] == written
        assert len(written) == found["prepared"] == 2
        assert found["moved"]
    question = "<|im_start|>user\nWhat is 3 + 4?\n\nPut it in a box.<|im_end|>\n<|im_start|>assistant\n"
    # Only the answer and the end of its turn are trained on.
    assert supervised["first"] == {"all": question + "\\boxed{7}<|im_end|>\n", "trained": "\\boxed{7}<|im_end|>\n"}
    assert math.isfinite(supervised["loss"]) and supervised["loss"] > 0
    assert preferences["first"] == {
        "prompt": question,
        "chosen": "\\boxed{7}<|im_end|>\n",
        "rejected": "\\boxed{6}<|im_end|>\n",
    }
    # Before its first step the policy is its own reference, so that either answer is as likely to be the better one.
    assert preferences["loss"] == pytest.approx(math.log(2), abs=1e-4)
