"""Moot's debates in other people's trainers: the real packages, each in an environment of its own, and a model that reads tokens.

Rewards, tokens, masks and logprobs are those of the same debates played by moot alone; so is the credit, as far as a host can hold it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from support.hosted_model import SETTINGS, own_datums, own_debates, own_rewards, save_tokenizer
from support.making import surroundings
from support.skyrl_server import Unavailable, environment

pytest.importorskip("torch")  # which the cookbook imports
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
COOKBOOK = (
    "tinker-cookbook==0.5.8", "tinker==0.36.0", "chz==0.4.0", "cloudpickle==3.1.2", "termcolor==3.3.0", "blobfile==3.3.0", "lxml==6.1.3",
    "pycryptodomex==3.24.2", "datasets==4.8.4", "pyarrow==26.0.1", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==3.6.0",
)  # fmt: skip
VERIFIERS = (
    "verifiers==0.4.0", "aiofiles==25.1.0", "aiohappyeyeballs==2.7.1", "aiohttp==3.14.5", "aiosignal==1.4.0", "anthropic==2.8.0",
    "cffi==2.1.1", "connectrpc==0.11.1", "cryptography==50.0.2", "frozenlist==1.8.0", "loguru==0.7.3", "mcp==2.0.0", "mcp-types==2.0.0",
    "msgpack==1.2.4", "multidict==7.2.1", "openai==2.54.0", "prime-runs==0.1.4", "prime-sandboxes==0.5.1", "prime-traces==0.0.10",
    "prime-tunnel==0.1.15", "propcache==0.5.4", "protobuf-py==0.1.1", "protobuf-py-ext==0.1.1", "pycparser==3.12", "PyJWT==2.15.1",
    "sse-starlette==3.7.0", "tenacity==9.2.1", "tomli-w==1.2.0", "yarl==1.25.1",
)  # fmt: skip
"""Without their dependencies: the large ones (torch, transformers) are seen where the tests run."""


def hosted(name: str, packages: tuple[str, ...], script: str, tokenizer: str) -> Any:
    place = ROOT / ".cache" / f"{name}-venv"
    try:
        python = environment(place, (("--no-deps", *packages),))
    except Unavailable as reason:
        pytest.skip(f"DID NOT RUN with {packages[0]}: {reason}")
    (own,) = place.glob("lib/python*/site-packages")
    (own / "moot-tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    settings = surroundings({"PYTHONPATH": str(ROOT / "src"), "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"})
    done = subprocess.run(
        [str(python), str(ROOT / "tests" / "support" / script), tokenizer],
        capture_output=True,
        text=True,
        env=settings,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def own(tokenizer: str) -> dict[str, list[dict[str, Any]]]:
    """The same debates without a host."""
    return {
        name: [
            {**own_rewards(played), "datums": own_datums(played)}
            for played in asyncio.run(own_debates(tokenizer, setting))
        ]
        for name, setting in SETTINGS.items()
    }


@pytest.fixture(scope="module")
def in_cookbook(tokenizer: str) -> Any:
    return hosted("cookbook", COOKBOOK, "cookbook_debates.py", tokenizer)


@pytest.fixture(scope="module")
def in_verifiers(tokenizer: str) -> Any:
    return hosted("verifiers", VERIFIERS, "verifiers_debates.py", tokenizer)


def same(there: list[dict[str, Any]], here: list[dict[str, Any]], *names: str) -> None:
    assert len(there) == len(here)
    for one, other in zip(there, here, strict=True):
        for name in names:
            assert one[name] == pytest.approx(other[name], abs=1e-6), name


# The tinker-cookbook


@pytest.mark.parametrize("name", SETTINGS)
def test_the_cookbooks_own_rollouts_read_and_pay_what_moot_does(name: str, own: Any, in_cookbook: Any) -> None:
    for there, here in zip(in_cookbook[name], own[name], strict=True):
        assert there["seats"] == pytest.approx(here["seats"])
        same(there["host"], here["datums"], "tokens", "targets", "mask", "logprobs")
        # With the cookbook's tokens and moot's own credit, where its loop can take them.
        same(there["moot"], here["datums"], "tokens", "targets", "mask", "logprobs", "advantages")


@pytest.mark.parametrize("name", ["per debate", "rebuilt"])
def test_where_a_reward_is_the_whole_debates_the_cookbooks_own_advantages_are_moots(
    name: str, own: Any, in_cookbook: Any
) -> None:
    assert any(any(datum["advantages"]) for debate in own[name] for datum in debate["datums"])
    for there, here in zip(in_cookbook[name], own[name], strict=True):
        same(there["host"], here["datums"], "advantages")


def test_rewards_per_turn_stand_on_the_cookbooks_transitions(own: Any, in_cookbook: Any) -> None:
    for there, here in zip(in_cookbook["per turn"], own["per turn"], strict=True):
        assert there["turns"] == here["turns"]
    # A turn in parts is paid once: a debate of three turns has up to six parts.
    for there, here in zip(in_cookbook["asked"], own["asked"], strict=True):
        assert [len(row) > 3 for row in there["turns"]] == [True] * 3
        assert [list(filter(None, row)) for row in there["turns"]] == [list(filter(None, row)) for row in here["turns"]]


def test_a_seat_that_cannot_be_sampled_ends_its_group_and_nobody_waits_for_it(in_cookbook: Any) -> None:
    assert in_cookbook["failures"] == {
        "fail fast": "ConnectionError: the server is gone",
        "retry": "EngineError: a seat cannot be played again without the others of its debate; use the rollout strategy FailFast",
    }


def test_the_examples_of_the_page_train_in_the_cookbook(own: Any, in_cookbook: Any) -> None:
    found = in_cookbook["documented"]
    assert found["batches"] == 100
    same(found["datums"], [datum for debate in own["per debate"] for datum in debate["datums"]], "tokens", "advantages")
    # Its own loop, two steps of 8 debates with 3 seats and 2 rounds.
    assert sorted(found["applied"]) == ["forward_backward"] * 2 + ["optim_step"] * 2
    assert [(step["env/all/total_episodes"], step["env/all/total_turns"]) for step in found["steps"]] == [(24, 48)] * 2
    assert all(step["env/all/failed_turns"] == 0 and step["grad_norm"] > 0 for step in found["steps"])


# verifiers


def branches(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As datums: shifted by one."""
    return [
        {
            "tokens": branch["token_ids"][:-1],
            "targets": branch["token_ids"][1:],
            **{name: [float(value) for value in branch[name][1:]] for name in ("mask", "logprobs", "advantages")},
        }
        for trace in traces
        for branch in trace["branches"]
    ]


def by_seat(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Traces come in the order in which they are closed: the last that was opened first."""
    return [trace for seat in range(3) for trace in traces[::-1] if trace["seat"] == seat]


@pytest.mark.parametrize("name", SETTINGS)
def test_verifiers_traces_are_moots_datums_with_moots_credit(name: str, own: Any, in_verifiers: Any) -> None:
    for there, here in zip(in_verifiers[name], own[name], strict=True):
        same(branches(by_seat(there)), here["datums"], "tokens", "targets", "mask", "logprobs", "advantages")


def test_a_trace_earns_what_its_seat_does(own: Any, in_verifiers: Any) -> None:
    for name in ("per debate", "per turn", "asked"):
        for there, here in zip(in_verifiers[name], own[name], strict=True):
            assert [trace["reward"] for trace in by_seat(there)] == pytest.approx(here["seats"])
    for there, here in zip(in_verifiers["rebuilt"], own["rebuilt"], strict=True):
        assert [trace["reward"] for trace in by_seat(there)] == pytest.approx(
            [here["seats"][trace["seat"]] for trace in by_seat(there)]
        )


def test_minus_the_mean_of_its_traces_a_reward_is_moots_own_advantage(own: Any, in_verifiers: Any) -> None:
    """Which is what GRPO in prime-rl gives for groups of one episode."""
    for there, here in zip(in_verifiers["per debate"], own["per debate"], strict=True):
        mean = sum(trace["reward"] for trace in there) / len(there)
        for trace, datum in zip(by_seat(there), here["datums"], strict=True):
            given = [(trace["reward"] - mean) * mask for mask in datum["mask"]]
            assert given == pytest.approx(datum["advantages"], abs=1e-6)


def test_without_a_tokenizer_the_tokens_have_no_credit_and_the_rewards_are_the_same(
    own: Any, in_verifiers: Any
) -> None:
    traces = by_seat(in_verifiers["without a tokenizer"])
    assert [trace["reward"] for trace in traces] == pytest.approx(own["per turn"][0]["seats"])
    assert [branch["advantages"] for trace in traces for branch in trace["branches"]] == [None] * 3


def test_an_episode_whose_server_fails_is_lost_with_the_reason(in_verifiers: Any) -> None:
    assert in_verifiers["lost"]["ok"] is False
    (error,) = in_verifiers["lost"]["errors"]
    assert "could not speak in round 1" in error and "the server is gone" in error


def test_the_command_of_the_page_plays_debates_and_its_configuration_is_read(own: Any, in_verifiers: Any) -> None:
    found = in_verifiers["documented"]
    assert len(found["rewards"]) == 4
    for there, here in zip(found["rewards"], own["per turn"], strict=False):
        assert there == pytest.approx(here["seats"])
    assert found["configured"] == {"reward": "win_rate"}
