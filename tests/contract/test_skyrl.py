"""What SkyRL 0.3.0 (JAX backend) is known to do differently, each shown; and that it agrees with the local engine on the rest."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from factories import FOUND, make_local, make_remote

from moot.engine.protocol import AdamParams, Datum
from moot.errors import EngineError
from support.datums import sampled_datum
from support.engine_calls import PROMPT, greedy_free, one, trained
from support.skyrl_server import NEWEST, ROOT, Unavailable, newest_sdk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
run = asyncio.run


@pytest.fixture
def remote(tiny_model: Path, skyrl: Any) -> Iterator[Any]:
    engine = make_remote(tiny_model, skyrl=skyrl)
    yield engine
    run(engine.close())


@pytest.fixture
def sdk(remote: Any) -> Any:
    """The SDK's own training client, for what the engine would not do."""
    return remote._ledger.client


def raw(item: Datum, **changes: Any) -> Any:
    from tinker import types

    inputs = {"target_tokens": item.targets.astype(np.int64), "logprobs": item.logprobs, "advantages": item.advantages}
    tensors = {name: types.TensorData.from_numpy(array) for name, array in {**inputs, **changes}.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(item.tokens.tolist()), loss_fn_inputs=tensors)


async def sampled(engine: Any, tokens: int = 20) -> Datum:
    return sampled_datum(PROMPT, await one(await engine.snapshot(), params=greedy_free(tokens)))


def test_the_first_look_finds_them(remote: Any, skyrl: Any) -> None:
    found = FOUND[skyrl.url]
    assert found.reduction == "mean"
    assert not found.frozen_samplers
    assert found.losses == ("cross_entropy", "importance_sampling", "ppo", "cispo")
    assert found.stop_types == ("strings", "ids")
    assert found.sdk == "0.24.1" and "'Tinker API Mock' 0.0.1" in found.server


def test_known_it_averages_over_tokens_and_datums(remote: Any, sdk: Any) -> None:
    """One datum, the same twice, and with as many tokens again that have no advantage: 1, 1 and 1/2, where sums give 1, 2 and 1."""
    from tinker import types

    async def main() -> None:
        item = await sampled(remote)
        more = np.zeros(len(item), np.float32)
        longer = Datum(
            np.concatenate([item.tokens, item.tokens]), np.concatenate([item.targets, item.targets]),
            *(np.concatenate([array, more]) for array in (item.logprobs, item.advantages, item.mask)),
        )  # fmt: skip
        norms = []
        for batch in ([item], [item, item], [longer]):
            await sdk.forward_backward([raw(each) for each in batch], "importance_sampling")
            done = await sdk.optim_step(types.AdamParams(learning_rate=0.0))
            norms.append(done.metrics["skyrl.ai/grad_norm"])
        assert norms[1] / norms[0] == pytest.approx(1, rel=1e-3)
        assert norms[2] / norms[0] == pytest.approx(1 / 2, rel=1e-3)

    run(main())


def test_known_a_sampler_follows_the_live_weights_and_an_older_one_takes_them_back(remote: Any, sdk: Any) -> None:
    from tinker import types

    async def main() -> None:
        text = types.ModelInput.from_ints(PROMPT)
        item = await sampled(remote)

        async def sampler() -> Any:
            return await sdk.create_sampling_client_async(
                (await sdk.save_weights_for_sampler(f"known-{np.random.randint(1 << 30)}")).path
            )

        async def train() -> None:
            await sdk.forward_backward([raw(item)], "importance_sampling")
            await sdk.optim_step(types.AdamParams(learning_rate=0.05))

        async def live() -> np.ndarray:
            return np.asarray(
                (await sdk.forward([raw(item)], "importance_sampling")).loss_fn_outputs[0]["logprobs"].data
            )

        first = await sampler()
        before, start = np.asarray(await first.compute_logprobs_async(text)), await live()
        await train()
        assert np.abs(np.asarray(await first.compute_logprobs_async(text)) - before).max() > 1e-3  # it followed
        second, moved = await sampler(), await live()
        await second.compute_logprobs_async(text)
        assert np.abs(moved - start).max() > 1e-3
        await first.compute_logprobs_async(text)
        np.testing.assert_allclose(await live(), start, atol=1e-5)  # and took the training back

    run(main())


def test_the_engine_refuses_a_sampler_that_would_take_training_back(remote: Any) -> None:
    async def main() -> None:
        old = await remote.snapshot()
        await trained(remote, 1)
        with pytest.raises(EngineError, match="take a new snapshot"):
            await one(old)

    run(main())


def test_known_it_takes_arrays_of_unequal_length_in_silence_and_the_engine_does_not(remote: Any, sdk: Any) -> None:
    async def main() -> None:
        item = await sampled(remote)
        cut = raw(item, advantages=item.advantages[:-5], logprobs=item.logprobs[:-5])
        answer = await sdk.forward_backward([cut], "importance_sampling")
        assert len(answer.loss_fn_outputs[0]["logprobs"].data) == len(item)
        with pytest.raises(ValueError, match="one length"):
            Datum(item.tokens, item.targets, item.logprobs[:-5], item.advantages[:-5], item.mask)

    run(main())


def test_known_its_logprobs_are_those_of_temperature_1(remote: Any) -> None:
    async def main() -> None:
        sampler = await remote.snapshot()
        sample = await one(sampler, params=greedy_free(20, temperature=0.5))
        plain = await sampler.compute_logprobs([*PROMPT, *sample.tokens.tolist()])
        np.testing.assert_allclose(sample.logprobs, plain[len(PROMPT) :], atol=1e-4)
        assert not remote.capabilities.tempered_training  # so nothing is trained on that was sampled otherwise

    run(main())


def test_known_it_does_not_number_requests(remote: Any, sdk: Any, skyrl: Any) -> None:
    """The same request twice, number and all, becomes two pieces of work: a lost answer must not be fetched by asking again."""

    async def main() -> None:
        item = await sampled(remote)
        body = {
            "model_id": sdk.model_id, "seq_id": 4711,
            "forward_backward_input": {
                "loss_fn": "cross_entropy",
                "data": [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": item.tokens.tolist()}]},
                          "loss_fn_inputs": {"target_tokens": {"data": item.targets.tolist(), "dtype": "int64"},
                                             "weights": {"data": item.mask.tolist(), "dtype": "float32"}}}],
            },
        }  # fmt: skip
        async with httpx.AsyncClient(base_url=skyrl.url) as plain:
            twice = [(await plain.post("/api/v1/forward_backward", json=body)).json()["request_id"] for _ in range(2)]
        assert twice[0] != twice[1]

    run(main())


def test_the_base_sampler_knows_nothing_of_training(remote: Any) -> None:
    async def main() -> None:
        start = await (await remote.snapshot()).compute_logprobs(PROMPT)
        await trained(remote)
        np.testing.assert_allclose(await (await remote.base()).compute_logprobs(PROMPT), start, atol=1e-5)
        with pytest.raises(ValueError, match=r"at temperature 1, not 0\.5"):
            await (await remote.base()).compute_logprobs(PROMPT, 0.5)

    run(main())


def unpacked(server: Path, here: Path) -> Path:
    """The adapter that the server saved, in peft's format."""
    (archive,) = (server / "checkpoints").rglob("same-start-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(here, filter="data")
    (adapter,) = here.rglob("adapter_model.safetensors")
    return adapter


def test_local_and_remote_agree_in_logprobs_and_in_the_update(
    remote: Any, skyrl: Any, tiny_model: Path, tmp_path: Path
) -> None:
    """The same adapter on both sides, the same datums of unequal length, three losses, three steps of Adam, two accumulated calls.

    Tolerances: 1e-4 in any logprob before training, 2e-3 after each step, in which logprobs move by more than 0.05.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    async def main() -> None:
        local = make_local(tiny_model)
        try:
            await remote.snapshot("same-start")
            unused = set_peft_model_state_dict(local._wrapped, load_file(unpacked(skyrl.where, tmp_path)))
            assert not unused.unexpected_keys

            sampler = await local.snapshot()
            samples = [await one(sampler, params=greedy_free(length, seed=length)) for length in (5, 20, 33)]
            items = [
                sampled_datum(PROMPT, sample, advantage)
                for sample, advantage in zip(samples, (1.0, -0.5, 0.7), strict=True)
            ]
            here, there = [(await engine.forward(items)).logprobs for engine in (local, remote)]
            for a, b, item in zip(here, there, items, strict=True):
                np.testing.assert_allclose(a[item.mask > 0], b[item.mask > 0], atol=1e-4)
            for loss in ("importance_sampling", "cross_entropy", "ppo"):
                for engine in (local, remote):
                    engine.forward_backward(items[:2], loss)
                    engine.forward_backward(items[2:], loss)
                    await engine.optim_step(AdamParams(learning_rate=0.01))
                before, (here, there) = here, [(await engine.forward(items)).logprobs for engine in (local, remote)]
                for a, b, item in zip(here, there, items, strict=True):
                    np.testing.assert_allclose(a[item.mask > 0], b[item.mask > 0], atol=2e-3, err_msg=loss)
                moved = max(np.abs(a - b)[item.mask > 0].max() for a, b, item in zip(here, before, items, strict=True))
                assert moved > 0.05
        finally:
            await local.close()

    run(main())


def test_with_the_newest_sdk_it_is_given_up_in_time_with_both_versions_and_the_remedy(
    skyrl: Any, tiny_model: Path
) -> None:
    try:
        python = newest_sdk()
    except Unavailable as reason:
        pytest.skip(f"DID NOT RUN with tinker {NEWEST}: {reason}")
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TINKER_TELEMETRY": "0"}
    command = [str(python), str(ROOT / "tests" / "support" / "newest_sdk.py"), skyrl.url, str(tiny_model)]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=300)
    said = json.loads(done.stdout.splitlines()[-1])
    assert (
        f"tinker SDK {NEWEST} and the server at {skyrl.url}, which calls itself 'Tinker API Mock' 0.0.1 do not get along"
        in said["message"]
    )
    assert "run: pip install tinker==0.24.1" in said["message"]
    assert said["seconds"] < 60
