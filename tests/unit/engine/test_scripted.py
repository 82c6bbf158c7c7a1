"""The engine that speaks from a script: the same words for the same seed, honest logprobs, and the manners of a real one."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.debate.parsing import CONTRACTS, FURTHER, Further, parse
from moot.debate.prompt_texts import DEFAULT
from moot.debate.protocols import PRESETS, Protocol
from moot.debate.state import Debate
from moot.debate.types import Observation, ParseFailure, Question, Said
from moot.engine.protocol import AdamParams, Sample, Sampler, SamplingParams, Scene, Trainer
from moot.engine.scripted import ByteTokenizer, ScriptedEngine
from moot.errors import ContextOverflow
from moot.settings.presets import find_preset
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import scene_of
from support.datums import datum
from support.making import v1, v2

TOKENIZER = ByteTokenizer()
RENDERING = Rendering(TOKENIZER)
END = TOKENIZER.eos_token_id


def asked(protocol: Protocol | None = None, agent: int = 0, rounds: int = 0, num_agents: int = 4) -> Observation:
    """What an agent is asked after so many rounds of the same thing."""
    state = Debate(Question("What is 3 + 4?"), num_agents, 3, (protocol or v2()).rules)
    said = "<solution>7</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
    if state.rules.contract == "five_tag":
        said += "<consensus>NO</consensus><consensus_reason>So.</consensus_reason>"
    for _ in range(rounds * (1 if state.rules.schedule == "parallel" else num_agents)):
        state = state.advance({each: Said(said) for each in state.next_speakers})
    return state.observe(agent)


def prompt(*given: Any, **named: Any) -> np.ndarray:
    return RENDERING.prompt(asked(*given, **named).conversation())


def scene(*given: Any, **named: Any) -> Scene:
    return scene_of(asked(*given, **named))


def sample(engine: ScriptedEngine, ids: np.ndarray, **params: object) -> Sample:
    (found,) = asyncio.run(
        engine.sample(ids, SamplingParams(**{"max_tokens": 5000, "stop": (END,), "scene": scene(rounds=1), **params}))
    )  # type: ignore[arg-type]
    return found


def words(found: Sample) -> str:
    return TOKENIZER.decode([token for token in found.tokens.tolist() if token < 256])


def test_it_is_an_engine() -> None:
    engine = ScriptedEngine()
    assert isinstance(engine, Sampler)
    assert isinstance(engine, Trainer)


def test_the_same_seed_says_the_same() -> None:
    ids = prompt(rounds=1)
    for style in ("well_formed", "sloppy", "hostile", "mixed"):
        one, two = (sample(ScriptedEngine(style=style, seed=3), ids, seed=11) for _ in range(2))
        assert np.array_equal(one.tokens, two.tokens)
        assert np.array_equal(one.logprobs, two.logprobs)


def test_another_seed_another_prompt_or_another_engine_says_something_else() -> None:
    engine, ids = ScriptedEngine(style="well_formed", seed=3), prompt(rounds=1)
    assert len({words(sample(engine, ids, seed=seed)) for seed in range(50)}) > 1
    assert len({words(sample(engine, prompt(rounds=1, agent=agent), seed=1)) for agent in range(4)}) > 1
    assert len({words(sample(ScriptedEngine(style="well_formed", seed=seed), ids, seed=1)) for seed in range(20)}) > 1


@pytest.mark.parametrize("style", ["well_formed", "sloppy", "hostile", "mixed"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_logprobs_match_the_frequencies(style: str, rounds: int) -> None:
    """Of 4,000 samples, 100 per seed, each answer's share is exp(sum of its logprobs), a multiple of 1/8, within five deviations."""
    engine, ids, count = ScriptedEngine(style=style, seed=3), prompt(rounds=rounds), 4000  # type: ignore[arg-type]
    params = SamplingParams(max_tokens=5000, stop=(END,), scene=scene(rounds=rounds))
    seen: Counter[bytes] = Counter()
    chance: dict[bytes, float] = {}

    async def draw() -> None:
        for seed in range(40):
            for found in await engine.sample(ids, replace(params, seed=seed), count // 40):
                seen[found.tokens.tobytes()] += 1
                chance[found.tokens.tobytes()] = math.exp(found.logprobs.sum())

    asyncio.run(draw())
    assert len(seen) <= 8
    assert sum(chance.values()) == pytest.approx(1, abs=1e-5)
    for answer, times in seen.items():
        p = chance[answer]
        assert abs(times / count - p) < 5 * math.sqrt(p * (1 - p) / count) + 1e-6, f"{times}/{count} against {p}"


def test_the_first_token_alone_has_its_share_too() -> None:
    """Every well-formed answer begins with `<`: whoever stops there has sampled a certainty."""
    found = [
        sample(ScriptedEngine(style="well_formed", seed=3), prompt(), seed=seed, max_tokens=1) for seed in range(20)
    ]
    assert {int(each.tokens[0]) for each in found} == {ord("<")}
    assert all(each.logprobs[0] == pytest.approx(0, abs=1e-6) for each in found)


def test_temperature_0_is_certain() -> None:
    found = [sample(ScriptedEngine(seed=3), prompt(), seed=seed, temperature=0.0) for seed in range(10)]
    assert len({words(each) for each in found}) == 1
    assert all(not each.logprobs.any() for each in found)


def test_several_samples_are_those_of_several_numbers() -> None:
    engine, params = ScriptedEngine(style="well_formed", seed=3), SamplingParams(max_tokens=5000, stop=(END,), seed=1)
    many = asyncio.run(engine.sample(prompt(rounds=1), params, 16))
    again = asyncio.run(engine.sample(prompt(rounds=1), params, 16))
    assert len(many) == 16
    assert [words(each) for each in many] == [words(each) for each in again]
    assert len({words(each) for each in many}) > 1


# Where it stops


def test_it_ends_with_the_end_of_turn_token_where_that_is_asked_for() -> None:
    found = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1)
    assert found.stop_reason == "stop"
    assert found.tokens[-1] == END
    assert END not in found.tokens[:-1]


def test_a_stop_string_ends_it_and_is_kept() -> None:
    found = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1, stop=("</solution>",))
    assert found.stop_reason == "stop"
    assert words(found).endswith("</solution>")
    assert words(found).count("</solution>") == 1


def test_the_first_of_several_stop_strings_ends_it() -> None:
    found = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1, stop=("</comparison>", "</evaluation>"))
    assert words(found).endswith("</evaluation>")


def test_a_token_limit_cuts_it() -> None:
    whole = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1)
    for limit in (1, 10, len(whole.tokens) - 1):
        cut = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1, max_tokens=limit)
        assert cut.stop_reason == "length"
        assert cut.tokens.tolist() == whole.tokens[:limit].tolist()
        assert len(cut.logprobs) == limit
    exactly = sample(ScriptedEngine(style="well_formed"), prompt(), seed=1, max_tokens=len(whole.tokens))
    assert exactly.stop_reason == "stop"


def test_a_prompt_and_answer_that_do_not_fit_are_refused() -> None:
    ids = prompt()
    engine = ScriptedEngine(context_length=len(ids) + 100)
    assert len(sample(engine, ids, seed=1, max_tokens=100).tokens) <= 100
    with pytest.raises(ContextOverflow, match=str(len(ids) + 100)):
        sample(engine, ids, seed=1, max_tokens=101)


# What it says


@pytest.mark.parametrize("protocol", [v1(), v2()])
@pytest.mark.parametrize("rounds", [0, 1])
def test_the_well_formed_style_always_parses(protocol: Protocol, rounds: int) -> None:
    engine = ScriptedEngine(style="well_formed", seed=2)
    for seed in range(30):
        text = words(sample(engine, prompt(protocol, rounds=rounds), seed=seed, scene=scene(protocol, rounds=rounds)))
        assert not isinstance(parse(text, protocol.rules.contract, closed=False), ParseFailure)


def test_the_hostile_style_fails_often_and_not_always() -> None:
    failed = [
        isinstance(
            parse(
                words(sample(ScriptedEngine(style="hostile", seed=engine), prompt(rounds=1), seed=seed)), "three_tag"
            ),
            ParseFailure,
        )
        for engine in range(10)
        for seed in range(10)
    ]
    assert 10 < sum(failed) < 90


def test_it_is_told_who_it_is_and_whom_it_may_judge() -> None:
    assert scene(v2(), 2, 0) == Scene(agent=2)
    assert scene(v2(), 2, 1) == Scene(agent=2, eligible=(0, 1, 3))
    assert scene(v1(), 0, 1) == Scene(agent=0, eligible=(1, 2, 3), contract="five_tag")
    asking = v2(sections="asked", personas=False)
    assert scene(asking, 2, 0) == Scene(agent=2, section="solution")
    assert scene(asking, 2, 1) == Scene(agent=2, eligible=(0, 1, 3), section="evaluation")


def test_who_says_nothing_about_it_gets_a_plain_answer() -> None:
    assert "boxed" in (answer := words(sample(ScriptedEngine(style="well_formed"), prompt(), scene=None)))
    assert "<solution>" not in answer


EVERY_TEXT = {name: " ".join(["Reworded.", *re.findall(r"\{\w+\}", text)]) for name, text in DEFAULT.texts.items()}


@pytest.mark.parametrize("protocol", ["v1", "v2", "advocates"])
def test_texts_that_are_all_worded_anew_change_nothing_for_it(protocol: str, tmp_path: Path) -> None:
    """The whole of `moot train` on it: turns are read, votes are cast, and something is learned from."""
    demo = find_preset("demo")
    config = replace(
        demo,
        model=replace(demo.model, engine="scripted"),
        prompts=demo.prompts.with_texts(EVERY_TEXT, "the test"),
        debate=replace(demo.debate, max_tokens=2000, evaluation_tokens=200),
        warm_questions=0,
        optim=replace(demo.optim, num_train_datapoints=8),
        eval_questions=2,
    ).under(PRESETS[protocol])
    rows = [row for row in moot.train(config, tmp_path / "run").metrics() if row["phase"] == "self_play"]
    assert sum(row["debates/with_gradient"] * row["debates/played"] for row in rows) >= 1
    debates = [json.loads(line) for file in (tmp_path / "run" / "debates").glob("*.jsonl") for line in file.open()]
    assert any(debate["votes"] for debate in debates)
    said = [turn for debate in debates for turn in debate["turns"]]
    assert sum("fields" in turn for turn in said) > len(said) / 3


# Bytes


@pytest.mark.parametrize("text", ["", "plain", "naïve 中文 🙂", "<|im_start|>user\nhi<|im_end|>", "\x00\x7f"])
def test_bytes_go_there_and_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_special_tokens_are_one_token_each() -> None:
    assert TOKENIZER.encode("a<|im_end|>b") == [97, 257, 98]
    assert TOKENIZER.decode([97, 257, 98], skip_special_tokens=True) == "ab"
    assert TOKENIZER.convert_tokens_to_ids("<|im_start|>") == 256


# Training verbs


def test_training_is_counted_and_changes_nothing() -> None:
    """Ratio 1: the loss is minus the summed advantages of action tokens, -(1 + 2) here; three tokens are trained on."""
    engine = ScriptedEngine()
    before = sample(engine, prompt(), seed=1)

    async def step() -> float:
        result = await engine.forward_backward(
            [datum([0, 1], logprobs=-0.5, advantages=[0, 1]), datum([1, 1], logprobs=-0.5, advantages=[2, 0])],
            "importance_sampling",
        )
        assert engine.trained_tokens == 0
        await engine.optim_step(AdamParams())
        assert np.allclose(result.logprobs[1], [-0.5, -0.5])
        return result.loss

    assert asyncio.run(step()) == -3.0
    assert (engine.steps, engine.trained_tokens) == (1, 3)
    assert np.array_equal(sample(engine, prompt(), seed=1).tokens, before.tokens)


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="importance_sampling"):
        ScriptedEngine().forward([], "squared")


def test_it_speaks_every_section_where_the_contract_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that it has never heard of: what the contract's table says of it."""
    monkeypatch.setitem(FURTHER, "confidence", Further("0 to 10", "9", "5"))
    monkeypatch.setitem(CONTRACTS, "confident", ("solution", "evaluation", "confidence", "comparison"))
    said = sample(ScriptedEngine(style="well_formed"), prompt(), scene=Scene(contract="confident"))
    fields = parse(words(said), "confident").fields  # type: ignore[union-attr]
    assert list(fields) == ["solution", "evaluation", "confidence", "comparison"] and fields["confidence"] in "59"
    assert words(sample(ScriptedEngine(style="well_formed"), prompt(), scene=Scene(section="confidence"))) in "59"
