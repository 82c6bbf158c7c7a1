"""Bad days and foreign loggers, for real: a disk that is full, and curves in Weights & Biases and trackio."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTED = ["--engine", "scripted", "--max-tokens", "2000"]


def train(where: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moot", "train", *arguments]
    return subprocess.run(
        command, cwd=where, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_in_one_line_and_room_lets_it_go_on(small_disk: Path) -> None:
    full = train(small_disk, *SCRIPTED)
    assert full.returncode == 1, full.stdout + full.stderr
    assert "the disk is full" in full.stderr and "moot train --resume runs/demo-arithmetic-seed0" in full.stderr
    assert "Traceback" not in full.stderr and len(full.stderr.strip().splitlines()) == 1
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    again = train(small_disk, *SCRIPTED)
    assert again.returncode == 0, again.stdout + again.stderr
    rows = [
        json.loads(line) for line in (small_disk / "runs/demo-arithmetic-seed0/metrics.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows if row["phase"] != "eval"] == list(range(1, 8))


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_is_a_full_disk_too(small_disk: Path, tmp_path: Path) -> None:
    """The local engine's weights are written by a library with an error of its own for it."""
    pytest.importorskip("torch")
    from support.tiny_chat import save

    subprocess.run(["mount", "-o", "remount,size=60k", str(small_disk)], check=True)
    model = save(tmp_path / "model")
    short = ["--model", str(model), "--max-tokens", "16", "--eval-every", "0", "--device", "cpu", "--lora-rank", "32"]
    full = train(small_disk, *short)
    assert full.returncode == 1, full.stdout + full.stderr
    assert "the disk is full" in full.stderr and "moot train --resume runs/demo-arithmetic-seed0" in full.stderr
    assert "Traceback" not in full.stderr and len(full.stderr.strip().splitlines()) == 1


def test_the_small_model_that_does_not_fit_the_cache_is_a_full_disk_too(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `smollm2-135m` is converted, a tiny model in its place: 20 kB of disk, and some 50 kB of weights."""
    pytest.importorskip("torch")
    subprocess.run(["mount", "-o", "remount,size=20k", str(small_disk)], check=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from moot.cli import main
    from moot.engine.local import smollm
    from support.tiny_chat import save

    gguf, tiny = tmp_path / "model.gguf", save(tmp_path / "model")
    gguf.write_bytes(b"a model")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    model.config.quantization_config = {}
    monkeypatch.setattr(smollm, "GGUF_SHA256", smollm.sha256(gguf))
    monkeypatch.setattr(smollm, "_download", lambda scratch: gguf)
    monkeypatch.setattr(smollm.AutoTokenizer, "from_pretrained", lambda **where: tokenizer)
    monkeypatch.setattr(smollm.AutoModelForCausalLM, "from_pretrained", lambda dtype, **where: model)
    monkeypatch.setenv("MOOT_CACHE", str(small_disk))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--model", "smollm2-135m", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    place = small_disk / "smollm2-135m"
    assert (
        said.splitlines()[-1]
        == f"moot: model 'smollm2-135m' cannot be loaded: [Errno 28] no space left on the device: '{place}'"
    )
    assert "Traceback" not in said
    assert not list(small_disk.iterdir()) and not (tmp_path / "runs").exists(), "nothing is left half written"


def test_a_checkpoint_of_another_rank_is_named_in_one_line_and_an_older_one_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    import asyncio

    from moot.engine.local import LocalEngine
    from moot.players.checkpoints import load_newest
    from moot.runs import Run
    from moot.settings.train import ModelConfig, TrainConfig
    from support.tiny_chat import save

    model = str(save(tmp_path / "model"))
    run = Run.create(tmp_path / "run", TrainConfig(model=ModelConfig(model=model, lora_rank=2)).as_dict(), {})

    async def saved_and_loaded() -> tuple[int | None, list[str]]:
        ranks = {
            step: LocalEngine.create(model, device="cpu", dtype="fp32", lora_rank=4 if step == 3 else 2, lora_alpha=4)
            for step in (2, 3)
        }
        for step, engine in ranks.items():
            await engine.save_state(str(run.checkpoint_place(step)))
            run.commit_checkpoint(step, {}, keep=True)
        notes: list[str] = []
        loaded = await load_newest(ranks[2], run, notes.append)
        for engine in ranks.values():
            await engine.close()
        return loaded and loaded.step, notes

    step, notes = asyncio.run(saved_and_loaded())
    newest = run.path / "checkpoints" / "000003"
    why = f"{newest}: saved with lora_rank=4, this engine runs lora_rank=2"
    assert step == 2 and notes == [f"checkpoint {newest} cannot be used ({why}); trying the one before it"]


def log_records(log: bytes) -> Iterator[bytes]:
    """The offline file is a log in LevelDB's format: blocks of 32 KiB, a record in one piece or in several."""
    at, whole = 7, b""  # the header was cut off, and counts for the blocks
    while at - 7 + 7 <= len(log):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        start = at - 7
        size, kind = int.from_bytes(log[start + 4 : start + 6], "little"), log[start + 6]
        whole = (whole if kind in (3, 4) else b"") + log[start + 7 : start + 7 + size]
        if kind in (1, 4):
            yield whole
        at += 7 + size


@pytest.mark.slow
def test_curves_go_to_weights_and_biases_and_to_trackio_when_asked(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("trackio")
    places = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = train(tmp_path, *SCRIPTED, "--log", "wandb", "trackio", **places)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        json.loads(line) for line in (tmp_path / "runs/demo-arithmetic-seed0/metrics.jsonl").read_text().splitlines()
    ]
    expected = [row["env/all/reward/total"] for row in rows if row["phase"] == "self_play"]

    (binary,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    from wandb.proto import wandb_internal_pb2

    seen = []
    for data in log_records(binary.read_bytes()[7:]):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            if (item.key or "/".join(item.nested_key)) == "env/all/reward/total":
                seen.append(json.loads(item.value_json))
    assert seen == pytest.approx(expected)

    (database,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(database) as connection:
        logged = [json.loads(row) for (row,) in connection.execute("select metrics from metrics order by step, id")]
    assert [row["env/all/reward/total"] for row in logged if "env/all/reward/total" in row] == pytest.approx(expected)


@pytest.mark.slow
def test_a_continued_run_is_one_run_in_mlflow(tmp_path: Path) -> None:
    """Where the package is installed: its own store in a file, without a server."""
    mlflow = pytest.importorskip("mlflow")
    place = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}"}
    short = [*SCRIPTED, "--warm-questions", "0", "--batch-size", "2", "--eval-questions", "2"]
    first = train(
        tmp_path, *short, "--num-train-datapoints", "4", "--log", "mlflow:project=mine", "--run", "r", **place
    )
    assert first.returncode == 0, first.stdout + first.stderr
    again = train(tmp_path, "--resume", "r", "--num-train-datapoints", "6", "--log", "mlflow", **place)
    assert again.returncode == 0, again.stdout + again.stderr
    client = mlflow.MlflowClient(place["MLFLOW_TRACKING_URI"])
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    history = client.get_metric_history(run.info.run_id, "env/all/reward/total")
    assert [metric.step for metric in history] == [1, 2, 3] and run.info.status == "FINISHED"
    assert {artifact.path for artifact in client.list_artifacts(run.info.run_id)} == {"config.json", "debates.json"}
