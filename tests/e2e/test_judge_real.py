"""`moot judge` with a real model: SmolLM2 on a processor. It is no good judge; that it is asked and measured is what is tested."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from moot.cli.main import main

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_a_real_model_judges_given_answers_by_probability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"What is {i} + 5?", "answer": i + 5, "answers": [f"{i} + 5 = {i + n}" for n in (5, 6)]}
        for i in range(3)
    ]
    Path("answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = [
        "--model",
        "smollm2-135m",
        "--device",
        "cpu",
        "--dtype",
        "fp32",
        "--evaluation-tokens",
        "24",
        "--out",
        "out",
    ]
    ways = ["--ballots", "approval", "pairs", "--checks", "1", "2", "--opponents", "1"]
    assert main(["judge", "--answers", "answers.jsonl", *options, *ways]) == 0
    verdicts = [json.loads(line) for line in Path("out/verdicts.jsonl").read_text().splitlines()]
    said = [verdict for verdict in verdicts if "value" in verdict]
    assert len(said) == 3 * 2 * 2 + 3 * 2
    assert all(
        0 < verdict["value"] < 1 and 0 < verdict["tokens"] <= 24 and verdict["by"] == "probability" for verdict in said
    )
    report = json.loads(Path("out/report.json").read_text())
    assert [row["questions"] for row in report["rows"]] == [3, 3, 3]


def test_the_verdicts_probability_is_that_of_the_whole_conversation_computed_anew() -> None:
    from moot.debate.types import Question
    from moot.engine.protocol import SamplingParams
    from moot.judges.asking import Asked, TokenJudge
    from moot.judges.ballots import share_of_first, spellings
    from moot.players.find import make_engine
    from moot.rl.rollout import Player
    from moot.settings.train import ModelConfig, TrainConfig

    engine, rendering = make_engine(TrainConfig(model=ModelConfig("smollm2-135m", device="cpu", dtype="fp32")))
    asked = Asked(Question("What is 3 + 5?", "8"), ("3 + 5 = 9. The answer is \\boxed{9}.",))

    async def go() -> tuple[float, float]:
        try:
            sampler = await engine.base()
            params = SamplingParams(16, seed=1)
            check = await TokenJudge(Player(sampler, rendering)).check(asked, params)
            prompt = rendering.prompt([asked.message])
            (sample,) = await sampler.sample(prompt, SamplingParams(16, seed=1, stop=rendering.stop_ids))
            whole = np.concatenate([prompt, sample.tokens, rendering.suffix(sample.tokens, asked.verdict)])
            encoded = [spellings(word, lambda text: rendering.encode(text).tolist()) for word in asked.words]
            assert all(len(tokens) == 1 for word in encoded for tokens in word)
            alone = [
                [float((await sampler.compute_logprobs([*whole, *tokens], start=len(whole)))[-1]) for tokens in word]
                for word in encoded
            ]
            return check.value, share_of_first(*alone)
        finally:
            await engine.close()

    value, anew = asyncio.run(go())
    assert value == pytest.approx(anew, abs=1e-5)
