"""The newest SDK in an environment of its own: its types and its wire, round trip, against what the pinned one does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.making import surroundings
from support.skyrl_server import NEWEST, Unavailable, newest_sdk

pytest.importorskip("tinker")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def found() -> Any:
    try:
        python = newest_sdk()
    except Unavailable as reason:
        pytest.skip(f"DID NOT RUN with tinker {NEWEST}: {reason}")
    settings = surroundings({"PYTHONPATH": str(ROOT / "src"), "TINKER_TELEMETRY": "0"})
    done = subprocess.run(
        [str(python), str(ROOT / "tests" / "support" / "newest_sdk.py")],
        capture_output=True,
        text=True,
        env=settings,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_training_over_protobuf_comes_out_as_over_json(found: Any) -> None:
    from support.newest_sdk import run
    from support.simulated_server import Manners

    here = run(Manners(reduction="mean"))
    there = found["trained"]
    assert (here.pop("sdk"), there.pop("sdk")) == ("0.24.1", NEWEST)
    assert here["reduction"] == there["reduction"] == "mean"
    assert here["tokens"] == there["tokens"]
    for name in ("loss", "logprobs", "sampled", "known"):
        np.testing.assert_allclose(here[name], there[name], atol=1e-5)


def test_a_server_without_protobuf_is_given_up_in_time_with_both_named_and_the_remedy(found: Any) -> None:
    said = found["refused"]
    assert f"tinker SDK {NEWEST} and the server at http://127.0.0.1:" in said["message"]
    assert "run: pip install tinker==0.24.1" in said["message"]
    assert said["seconds"] < 30
