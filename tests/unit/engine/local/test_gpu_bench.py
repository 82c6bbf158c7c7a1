"""The bench for GPUs runs anywhere, on a model of a few thousand weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_bench_runs_without_a_gpu_and_writes_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [
        sys.executable,
        str(ROOT / "bench" / "gpu.py"),
        "--models",
        "tiny",
        "--device",
        "cpu",
        "--sequences",
        "3",
        "--prompt",
        "20",
    ]
    command += [
        "--tokens",
        "6",
        "--debates",
        "1",
        "--datums",
        "2",
        "--datum-tokens",
        "32",
        "--cache-gib",
        "0.02",
        "--iterations",
        "2",
        "--judged",
        "9",
        "--out",
        str(out),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    kinds = [
        "loaded",
        "sampling",
        "profile",
        "debate",
        "judging",
        "statistics",
        "training",
        "iteration",
        "iteration",
        "recomputed training",
    ]
    kinds += ["peft", "peft iteration"]
    assert [item["kind"] for item in results] == kinds, results
    assert all(item["rate"] > 0 for item in results if "rate" in item)
    growing, shared, recomputed, _, plain = results[-5:]
    assert plain["length"] == 20 + 64 + 3 * 6 + 2 * (4 * 6 + 64) and plain["sequences"] == 10
    # 10 agents. Plain: an end of 64, and either 3 turns of 6 with twice 4 turns and an end between them, or 3 datums.
    assert growing["tokens"] == 10 * (20 + 64 + 3 * 6 + 2 * (4 * 6 + 64) - 1)
    assert shared["tokens"] == 10 * sum(20 + round * 30 + 64 + 6 - 1 for round in range(3))
    assert shared["computed_tokens"] < shared["tokens"] and growing["computed_tokens"] == growing["tokens"]
    assert growing["layout"] == "growing" and shared["layout"] == "shared"
    assert 0.02 < results[6]["predicted_gib"] < 0.03, "the cache of 0.02 GiB and little else"
    assert recomputed["predicted_gib"] < results[6]["predicted_gib"]
    assert "tiny" in done.stdout.splitlines()[-1]
    # 9 answers to 2 questions of 20 tokens, and of an answer's four checks the first computes all but the last token's logits.
    assert results[4]["answers"] == 9 and results[4]["prefilled_tokens"] < 9 * (20 + 6 + 64) + 4 * 9 * 20
    assert "judging 9 answers x 4 checks" in done.stdout


def test_what_ends_early_keeps_what_it_said(tmp_path: Path) -> None:
    """The limit ends it while it loads: the trouble is told, and the table is still drawn."""
    out = tmp_path / "gpu.json"
    command = [
        sys.executable,
        str(ROOT / "bench" / "gpu.py"),
        "--models",
        "tiny",
        "--device",
        "cpu",
        "--limit",
        "0.2",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 0, done.stderr
    assert [item["kind"] for item in json.loads(out.read_text())] == ["trouble", "trouble"]
    assert "did not finish: ended after" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
def test_what_torch_holds_in_a_pass_is_what_a_dry_run_counts(recompute: bool) -> None:
    """3 layers of SmolLM2's width: the count is within a tenth of what was held, as it is for larger models."""
    command = [
        sys.executable,
        str(ROOT / "bench" / "footprint.py"),
        "--shape",
        "smollm2-135m-shape",
        "--layers",
        "3",
        "--tokens",
        "8192",
    ]
    done = subprocess.run([*command, *["--gradient-checkpointing"] * recompute], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith(
        "smollm2-135m-shape, 3 layers, 8,192 tokens in 1 pass, activations " + ("recomputed" if recompute else "kept")
    )
    ratio = float(second.rpartition(" ")[2])
    assert 0.85 < ratio < 1.15, second
