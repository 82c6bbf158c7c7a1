"""A tiny model is trained, exported, and read by peft and transformers: the logprobs are the engine's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import tiny_chat

pytest.importorskip("torch")
pytest.importorskip("peft")

import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from moot.cli.main import main
from moot.engine.local import LocalEngine
from moot.runs import Run

OPTIONS = [
    "--dtype=fp32", "--device=cpu", "--max-rounds=1", "--reward=majority", "--max-tokens=24", "--batch-size=2", "--num-train-datapoints=2",
    "--lora-rank=4", "--warm-questions=4", "--with=warm_start:batch_size=2,learning_rate=0.02", "--eval-every=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three steps; the base model's own end of text is not what ends a turn."""
    folder = tmp_path_factory.mktemp("weights")
    model = tiny_chat.save(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.eos_token = "<|im_start|>"
    tokenizer.save_pretrained(model)
    GenerationConfig(eos_token_id=tokenizer.eos_token_id).save_pretrained(model)
    status = main(["train", "--model", str(model), "--run", str(folder / "run"), *OPTIONS])
    assert status in (
        0,
        1,
    )  # 1: a random model's debates may carry no gradient; the warm start has moved the weights all the same
    return Run.open(folder / "run")


@pytest.fixture(scope="module")
def spoken(run: Run) -> list[int]:
    with np.load(run.path / "debates" / f"{run.steps()[-1]:06d}.npz") as arrays:
        return [
            *map(int, arrays["prompt_tokens"][: arrays["prompt_offsets"][1]]),
            *map(int, arrays["tokens"][: arrays["offsets"][1]]),
        ]


@pytest.fixture(scope="module")
def engines(run: Run, spoken: list[int]) -> tuple[Any, Any]:
    """The engine's logprobs of a turn as it was sampled: trained, and before any training."""
    engine = LocalEngine.create(
        run.config["model"]["model"], dtype="fp32", device="cpu", lora_rank=4, lora_alpha=8, max_cache_gib=0.05
    )
    engine.load_state(str(run.checkpoints()[0][1])).result()

    async def both() -> tuple[Any, Any]:
        trained, base = await engine.snapshot(), await engine.base()
        return (await trained.compute_logprobs(spoken))[1:], (await base.compute_logprobs(spoken))[1:]

    try:
        return asyncio.run(both())
    finally:
        asyncio.run(engine.close())


def logprobs(model: Any, tokens: list[int]) -> Any:
    given = torch.tensor([tokens])
    with torch.no_grad():
        logits = model.eval()(input_ids=given).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(1, given[0, 1:, None]).squeeze(1).numpy()


def test_the_exported_adapter_gives_peft_the_engines_logprobs(
    run: Run, spoken: list[int], engines: tuple[Any, Any], tmp_path: Path
) -> None:
    assert main(["export", str(run.path), "--adapter", "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    trained, base = engines
    assert np.abs(trained - base).max() > 0.1  # otherwise an adapter that does nothing would pass
    wrapped = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(run.config["model"]["model"]), tmp_path / "adapter"
    )
    assert np.abs(logprobs(wrapped, spoken) - trained).max() < 1e-4
    by_itself = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert np.abs(logprobs(by_itself, spoken) - trained).max() < 1e-4


def test_another_run_starts_from_the_exported_adapter(run: Run, spoken: list[int], tmp_path: Path) -> None:
    """With other settings; its step 0 is the adapter, to the last bit."""
    assert main(["export", str(run.path), "--adapter", "--out", str(tmp_path)]) == 0
    model, again = run.config["model"]["model"], tmp_path / "again"
    given = ["--from", str(tmp_path / "adapter"), "--model", model, "--run", str(again), *OPTIONS]
    assert main(["train", *given, "--warm-questions=0", "--with=warm_start:off", "--learning-rate=0.001"]) in (0, 1)
    (_, first), *_ = Run.open(again).checkpoints()
    name = "adapter_model.safetensors"
    found, exported = (load_file(place / name) for place in (first, tmp_path / "adapter"))
    assert found.keys() == exported.keys() and all(torch.equal(found[key], exported[key]) for key in found)


def test_an_older_checkpoint_is_another_adapter(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (newest, _), (older, _), *_ = run.checkpoints()
    for step in (newest, older):
        assert (
            main(["export", str(run.path), "--adapter", "--checkpoint", str(step), "--out", str(tmp_path / str(step))])
            == 0
        )
        assert f"the adapter of step {step}" in capsys.readouterr().out
    name = "adapter/adapter_model.safetensors"
    assert (tmp_path / str(newest) / name).read_bytes() != (tmp_path / str(older) / name).read_bytes()


def test_the_merged_model_is_plain_and_ends_its_turns_where_training_did(
    run: Run, spoken: list[int], engines: tuple[Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.path), "--merged", "--out", str(tmp_path)]) == 0
    assert "float32; logprobs within" in capsys.readouterr().out
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert not any("lora" in name for name in merged.state_dict())
    assert np.abs(logprobs(merged, spoken) - engines[0]).max() < 1e-4
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    end, text_end = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    assert set(merged.generation_config.eos_token_id) == {end, text_end}
    asked = [{"role": "user", "content": "Two and two?"}]
    base = AutoTokenizer.from_pretrained(run.config["model"]["model"])
    assert tokenizer.apply_chat_template(asked, tokenize=False) == base.apply_chat_template(asked, tokenize=False)


def test_precision_is_chosen_and_a_half_merged_folder_is_never_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", str(run.path), "--merged", "--merged-dtype", "bf16", "--out", str(tmp_path)]) == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto").dtype == torch.bfloat16
    before = {path.name: path.read_bytes() for path in (tmp_path / "merged").iterdir()}
    assert main(["export", str(run.path), "--merged", "--out", str(tmp_path)]) == 2

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    assert main(["export", str(run.path), "--merged", "--force", "--out", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "merged").iterdir()} == before


def test_a_base_model_that_has_gone_is_named(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(run.config["model"]["model"])
    hidden = model.rename(model.with_name("hidden"))
    try:
        assert main(["export", str(run.path), "--merged", "--out", str(tmp_path)]) == 2
    finally:
        hidden.rename(model)
    said = capsys.readouterr().err
    assert "cannot be merged" in said and len(said.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
