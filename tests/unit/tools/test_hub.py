"""Weights go to the hub with a card that says what they were trained on and what was measured. The hub here is a stand-in over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.cli.main import main
from moot.engine.manifest import sha256
from moot.evaluate.report import Report, ReportRow
from moot.runs import Run
from moot.settings.presets import PRESETS
from moot.tools.export.card import card
from moot.tools.export.weights import FILES


@dataclass
class Hub:
    """Takes repositories and commits as the hub does; every file comes within its commit."""

    address: str = ""
    status: int = 200
    created: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/api/repos/create":
            self.created.append(json.loads(body))
            return {"url": f"{self.address}/ana/summer", "id": "ana/summer", "name": "ana/summer"}
        if path.endswith("/preupload/main"):
            return {
                "files": [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for each in json.loads(body)["files"]
                ]
            }
        if path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"commitUrl": f"{self.address}/ana/summer/commit/1", "commitOid": "1", "success": True}
        return {}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    stand_in = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path.endswith(("/create", "/commit/main")):
                stand_in.tokens.add(self.headers.get("Authorization"))
            answer = json.dumps(
                stand_in.answer(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            ).encode()
            self.send_response(stand_in.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", stand_in.address)
    monkeypatch.setenv("HF_TOKEN", "hf_written_by_a_test")
    yield stand_in
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Eight warm-up steps, one step of self-play, evaluations around them; an adapter of step 9."""
    easy = PRESETS["easy"]
    config = replace(
        easy,
        debate=replace(easy.debate, task="/home/ana/secret/sums.jsonl:grader=text"),
        warm_questions=64,
    )
    made = Run.create(tmp_path / "sums", config.as_dict(), {"moot": "0.1.0"})
    measured = {"debates/played": 8, "test/valid_turns": 0.75, "trust/judge_accuracy": None}
    rows: list[dict[str, Any]] = [
        {"step": 0, "phase": "eval", "test_sums/correct": 0.25, **measured},
        {"step": 9, "phase": "self_play", "tokens/sampled": 345, "tokens/spent": 12345.0, "alarm/random_noise": 1},
        {"step": 9, "phase": "eval", "test_sums/correct": 0.5, **measured},
        {"step": 10, "phase": "self_play", "tokens/sampled": 1, "alarm/format_collapse": 1},
    ]
    (made.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = made.path / "checkpoints" / "000009"
    place.mkdir(parents=True)
    for name in FILES:
        (place / name).write_bytes(b"{}" if name.endswith("json") else b"weights")
    manifest = {"model": config.model.model, "files": {name: sha256(place / name) for name in FILES}}
    (place / "manifest.json").write_text(json.dumps(manifest))
    accuracy = {"accuracy": {"value": 0.639, "low": 0.601, "high": 0.677}}
    settings = {"task": "/home/ana/secret/sums.jsonl:grader=text", "step": 9}
    report = Report(settings, [ReportRow("direct", 1, 400, 0, 90.0, accuracy)], {})
    report.save(made.path / "evals" / "sums-step9" / "report.json")
    return Run.open(made.path)


def test_a_card_says_what_the_weights_were_trained_on_and_what_was_measured(run: Run) -> None:
    text = card(run, 9, "adapter")
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["base_model"] == "Qwen/Qwen3-8B"
    assert yaml.safe_load(front)["library_name"] == "peft"
    assert "- Questions: `sums.jsonl:grader=text`; 32 per step." in body
    assert "Known answers were used for a warm start on 64 questions." in body
    assert "Self-play: 1 step, 12,345 tokens sampled, learning rate 5e-05, seed 0." in body
    assert "| 0 | 25.0% | 75.0% | – |\n| 9 | 50.0% | 75.0% | – |" in body
    assert "| sums.jsonl:grader=text, step 9 | direct | 400 | 63.9% [60.1%, 67.7%] |" in body
    assert (
        "The alarm `random_noise` rang in 1 of 1 steps" in body and "format_collapse" not in body
    )  # step 10 is not in these weights
    assert "/home" not in text and "secret" not in text


def test_push_uploads_the_adapter_with_its_card_to_a_private_repository(
    run: Run, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.path), "--push", "ana/summer"]) == 0
    assert f"Pushed: {hub.address}/ana/summer" in capsys.readouterr().out
    (created,) = hub.created
    assert created["name"] == "summer" and created["organization"] == "ana"
    assert created.get("private") is True or created.get("visibility") == "private"
    assert hub.tokens == {"Bearer hf_written_by_a_test"}
    assert hub.files == {name: (run.path / "export" / "adapter" / name).read_bytes() for name in (*FILES, "README.md")}
    assert hub.files["README.md"].decode() == card(run, 9, "adapter")


def test_a_hub_that_refuses_is_told_in_one_line_and_the_export_stays(
    run: Run, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.status = 403
    assert main(["export", str(run.path), "--push", "ana/summer"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moot: ana/summer could not be pushed: ") and "hf_written" not in line
    assert (run.path / "export" / "adapter" / "adapter_model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--push", "summer"], "push must name a repository of the hub as OWNER/NAME, got 'summer'"),
        (
            ["--push", "ana/summer", "--adapter", "--merged"],
            "push takes the adapter or the merged model, got both; name one of them",
        ),
    ],
)
def test_what_cannot_be_pushed_is_refused_before_any_work(
    run: Run, hub: Hub, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.path), *arguments]) == 2
    assert complaint in capsys.readouterr().err
    assert not (run.path / "export").exists() and not hub.created


def test_a_push_without_a_token_says_where_to_get_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["export", str(run.path), "--push", "ana/summer"]) == 2
    assert "set HF_TOKEN, or log in with: hf auth login" in capsys.readouterr().err


def test_a_run_whose_settings_are_damaged_is_exported_without_a_card(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = json.loads((run.path / "run.json").read_text())
    del stored["config"]["protocol"]
    (run.path / "run.json").write_text(json.dumps(stored))
    assert main(["export", str(run.path), "--adapter"]) == 0
    assert "there is no model card" in capsys.readouterr().out
    assert not (run.path / "export" / "adapter" / "README.md").exists()
