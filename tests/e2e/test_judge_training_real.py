"""A judge that learns with a real model: SmolLM2 on a processor, two steps. Whose weights move is what is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.cli.main import main

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SMALL = (
    "--device cpu --dtype fp32 --task arithmetic --max-tokens 24 --evaluation-tokens 24 --lora-rank 4 --eval-every 0"
)
SIZES = "--num-agents 3 --max-rounds 1 --batch-size 1 --num-train-datapoints 1 --warm-questions 0 --lr 1e-12 --reward majority"


def largest(folder: Path) -> float:
    """Of the half of the adapter that begins at 0."""
    from safetensors.torch import load_file

    (file,) = folder.rglob("adapter_model.safetensors")
    return max(float(value.abs().max()) for name, value in load_file(file).items() if "lora_B" in name)


def test_the_judges_own_weights_move_and_the_policys_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    part = "judge_training:steps=2,exercises=4,checks=2,held_out=4,weight=1e9"
    # The policy's steps are too short to see, and the judge's are 1e-3 long.
    heard = "judge_filter:checks=1,show=answer"
    assert main(["train", "--with", part, "--with", heard, "--run", "run", *SMALL.split(), *SIZES.split()]) in (0, 1)
    rows = [json.loads(line) for line in Path("run/judge/steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2] and sum(row["tokens"] for row in rows) > 0
    assert any(row.get("trained_tokens") for row in rows), "some verdicts differed"
    before, after = largest(Path("run/judge/000000")), largest(Path("run/judge/000002"))
    assert before == 0 and after > 1e-4
    assert largest(Path("run/checkpoints/000001")) < 1e-9
    answers = [{"question": "What is 3 + 5?", "answer": 8, "answers": ["3 + 5 = 8", "3 + 5 = 9"]}]
    Path("answers.jsonl").write_text("".join(json.dumps(each) + "\n" for each in answers))
    asked = [
        "judge",
        "--model",
        "smollm2-135m",
        "--answers",
        "answers.jsonl",
        "--judges",
        "base",
        "run@judge",
        "--checks",
        "1",
    ]
    assert main([*asked, "--show", "answer", "--evaluation-tokens", "24", "--out", "out", "--device", "cpu"]) == 0
    verdicts = [json.loads(line) for line in Path("out/verdicts.jsonl").read_text().splitlines()]
    assert len([verdict for verdict in verdicts if "value" in verdict]) == 4, "two judges, two answers"
