"""A real, independent server for the slow tier: SkyRL 0.3.0 (JAX backend, CPU), in a virtual environment of its own.

The environment is made once, under `.cache/skyrl-venv` (about 2 GB, some minutes). Where it cannot be made, `Unavailable` says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".cache" / "skyrl-venv"
PACKAGES = (
    "jax==0.10.2", "flax==0.12.8", "optax==0.2.8", "transformers==5.8.0", "safetensors", "tokenizers", "rich", "cloudpathlib", "fastapi",
    "uvicorn", "sqlmodel", "sqlalchemy[asyncio]", "aiosqlite", "psutil", "httpx", "peft==0.18.1", "tinker==0.24.1",
)  # fmt: skip
STEPS = (("torch>=2.8,<2.14",), ("--no-deps", "skyrl==0.3.0"), PACKAGES)
NEWEST = "0.36.0"
KEY = "tml-test"


class Unavailable(Exception):
    """The server cannot be had here, and why."""


def interpreter() -> Path:
    return environment(ENVIRONMENT, STEPS)


def newest_sdk() -> Path:
    """The Python of an environment with the newest SDK and little else."""
    return environment(ROOT / ".cache" / f"tinker-{NEWEST}-venv", ((f"tinker=={NEWEST}", "numpy", "httpx", "orjson"),))


def environment(place: Path, steps: tuple[tuple[str, ...], ...]) -> Path:
    """A virtual environment's Python, after making it if need be."""
    python = place / "bin" / "python"
    wanted = hashlib.sha256(repr((steps, sys.version_info[:2])).encode()).hexdigest()
    mark = place / "made-from"
    if mark.exists() and mark.read_text() == wanted:
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    for packages in steps:
        _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
    mark.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    if done.returncode:
        raise Unavailable(f"{' '.join(command[1:5])} … failed: {done.stderr.strip()[-400:]}")


@dataclass
class Running:
    """A server's address, and the two processes that it is."""

    port: int
    model: Path
    where: Path
    backend: dict[str, int]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            str(interpreter()), str(Path(__file__).with_name("skyrl_launch.py")), "--base-model", str(self.model), "--port", str(self.port),
            "--database-url", f"sqlite:///{self.where / 'server.db'}", "--checkpoints-base", str(self.where / "checkpoints"),
            "--backend-config", json.dumps({"max_lora_adapters": 24, "max_lora_rank": 8, **self.backend}),
        ]  # fmt: skip
        surroundings = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "HF_HUB_OFFLINE": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "skyrl-jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with (self.where / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=surroundings, start_new_session=True)
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=2).close()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"the server did not come up; its log ends: {self.log()[-1500:]}")
            time.sleep(0.3)

    def stop(self, hard: bool = False) -> None:
        """Ends both processes by their ids: the engine outlives its parent otherwise."""
        import psutil

        if self.process is None:
            return
        try:
            own = psutil.Process(self.process.pid)
            both = [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            both = []
        for each in both:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill() if hard else each.terminate()
        _, left = psutil.wait_procs(both, timeout=20)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(20)
        self.process = None

    def log(self) -> str:
        return (self.where / "server.log").read_text(errors="replace")


@contextlib.contextmanager
def running(model: Path, where: Path, **backend: int) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Running(port, model, where, backend)
    try:
        server.start()
        yield server
    finally:
        server.stop()
