"""`moot ask` with a model on this machine: a tiny random one, whose words mean nothing and whose tokens can be compared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import tiny_chat
from support.asking import here

pytest.importorskip("torch")

OPTIONS = ("--rounds", 1, "--agents", 2, "--max-tokens", 40, "--json")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(model: Path) -> Iterator[Any]:
    from moot.engine.local import LocalEngine

    made = LocalEngine.create(str(model), device="cpu", dtype="fp32", lora_rank=2, lora_alpha=4)
    yield made
    asyncio.run(made.close())


def texts(*arguments: object) -> list[str]:
    done = here("What is 3 + 4?", *OPTIONS, *arguments)
    assert done.returncode == 0, done.stderr
    return [turn["text"] for turn in json.loads(done.stdout)["turns"]]


@pytest.mark.slow
def test_a_run_and_one_of_its_checkpoints_speak_with_what_was_trained(model: Path, engine: Any, tmp_path: Path) -> None:
    from moot.engine.protocol import AdamParams, Datum
    from moot.runs import Run
    from moot.settings.train import ModelConfig, TrainConfig

    config = TrainConfig(model=ModelConfig(model=str(model), lora_rank=2))
    run = Run.create(tmp_path / "run", config.as_dict(), {})

    async def train() -> None:
        ones, tokens = np.ones(8, dtype=np.float32), np.full(8, 65, dtype=np.int32)
        for _ in range(5):
            await engine.forward_backward([Datum(tokens, tokens, 0 * ones, 0 * ones, ones)], "cross_entropy")
            await engine.optim_step(AdamParams(learning_rate=0.3))
        await engine.save_state(str(run.checkpoint_place(1)))
        run.commit_checkpoint(1, {}, keep=True)

    asyncio.run(train())
    greedy = ("--temperature", 0)
    trained = texts("--checkpoint", run.path, *greedy)
    assert trained == texts("--checkpoint", run.path / "checkpoints" / "000001", *greedy)
    assert trained != texts("--model", model, *greedy)
    wrong = here("q", "--checkpoint", run.path, "--model", "other")
    assert wrong.returncode == 2 and f"is of {model}, not of other; leave --model out" in wrong.stderr
    empty = Run.create(tmp_path / "empty", config.as_dict(), {})
    for place, says in (
        (empty.path, "has no whole checkpoint yet"),
        (tmp_path / "nowhere", "is neither a run, nor a checkpoint in one"),
    ):
        done = here("q", "--checkpoint", place)
        assert done.returncode == 2 and says in done.stderr


def test_a_debate_too_long_for_the_model_ends_with_what_to_do(model: Path) -> None:
    done = here("x" * 17_000, "--model", model, "--rounds", 1)
    assert done.returncode == 1
    assert (
        "exceed the model's context of" in done.stderr and "use fewer --rounds or a smaller --max-tokens" in done.stderr
    )


def test_what_is_heard_piece_by_piece_is_what_is_said_and_what_would_be_said_in_one_go(engine: Any) -> None:
    from moot.engine.protocol import SamplingParams
    from moot.players.chat.streaming import StreamingSampler
    from moot.tokens.rendering import Rendering

    rendering = Rendering(engine.tokenizer)
    params = SamplingParams(max_tokens=50, temperature=0.0, stop=rendering.stops("three_tag"))
    prompt = np.array(engine.tokenizer.encode("Two and two?"), dtype=np.int32)

    async def sample(piece: int) -> tuple[Any, list[str], Any]:
        heard: list[str] = []
        sampler = StreamingSampler(await engine.base(), lambda ids: rendering.said(ids)[0], 16384, heard.append, piece)
        (sample,) = await sampler.sample(prompt, params)
        return sample, heard, sampler.spent

    whole, _, spent = asyncio.run(sample(0))
    for piece in (1, 7, 16, 50, 64):
        found, heard, also_spent = asyncio.run(sample(piece))
        assert found.tokens.tolist() == whole.tokens.tolist() and found.stop_reason == whole.stop_reason
        np.testing.assert_allclose(found.logprobs, whole.logprobs, atol=1e-4)
        # The end of a text may lack bytes of its last character; nothing else is held back.
        assert rendering.said(whole.tokens)[0].startswith("".join(heard))
        assert also_spent == spent == (len(prompt), len(whole.tokens))
    assert len(heard) == 1 and len(asyncio.run(sample(7))[1]) > 1
