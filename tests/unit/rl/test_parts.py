"""Turns in parts as tokens: what is inserted is observed and nothing more, and a datum reads as the turn; on every tokenizer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.parsing import CONTRACTS
from moot.debate.rewards import score
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.sections import NOTHING, content_of
from moot.debate.state import Debate
from moot.debate.types import ParseFailure, Question
from moot.engine.protocol import Floats, Ints, Sample, SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.rl.advantages import ESTIMATORS, advantages, with_advantages
from moot.rl.metrics import rollout_metrics, token_counts
from moot.rl.rollout import Player, rollout
from moot.rl.warm import examples
from moot.runs.arrays import token_arrays, turn_tokens
from moot.runs.record import read_line, to_record
from moot.tasks import load
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import NOWHERE, Advantages, SampledTurn, credit, tokens_by_section

QUESTION = Question("What is 3 + 4?", "7", instruction="Put the answer in a box.")
PARTS = ("given", "asked")
CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"layout": "rebuilt"},
    {"history_rounds": 1},
    {"closing_ballot": True},
    {"contract": "five_tag"},
    {"schedule": "sequential", "shuffle_labels": True},
    {"personas": False, "temperature": 0.7},
    {"layout": "shared"},
)


@cache
def _played(
    rendering: Rendering, way: str, choice: int, style: str, limits: tuple[tuple[str, int], ...]
) -> PlayedDebate:
    engine = ScriptedEngine(style=style, tokenizer=rendering.tokenizer)  # type: ignore[arg-type]
    debate = Debate(QUESTION, 4, 3, Rules(sections=way, **CHOICES[choice]))  # type: ignore[arg-type]
    judge = Player(engine, rendering, learns=False)
    (done,) = asyncio.run(
        rollout([debate], engine, rendering, SamplingParams(2000), judges=lambda number: [judge], limits=dict(limits))
    )
    assert done.error is None
    return done


def played(rendering: Rendering, way: str, choice: int = 0, style: str = "well_formed", **limits: int) -> PlayedDebate:
    return _played(rendering, way, choice, style, tuple(limits.items()))


def pieces(turn: SampledTurn) -> list[tuple[bool, Ints]]:
    """The turn's tokens cut into what was sampled and what was inserted, in order."""
    cuts = [0, *(np.flatnonzero(np.diff(turn.sampled.astype(int))) + 1).tolist(), len(turn.tokens)]
    return [(bool(turn.sampled[a]), turn.tokens[a:b]) for a, b in pairwise(cuts) if a < b]


# Observations


@pytest.mark.parametrize("way", PARTS)
@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_inserted_tokens_carry_no_mask_no_logprob_and_no_credit(rendering: Rendering, way: str, choice: int) -> None:
    done = played(rendering, way, choice)
    (values,) = advantages([(done.debate, score(done.debate, Scoring()))], ESTIMATORS["center_group"])
    assert values.per == "turn"
    inserted = 0
    for step, (turn, sampled) in enumerate(zip(done.debate.turns, done.sampled, strict=True)):
        assert not turn.failed, (step, turn.parsed)
        own_step = sum(other.agent == turn.agent for other in done.debate.turns[:step])
        assert len(sampled.tokens) == len(sampled.logprobs) == len(sampled.starts) == len(sampled.sampled)
        assert set(sampled.logprobs[~sampled.sampled].tolist()) <= {0.0}
        assert set(credit(turn, sampled, own_step, values)[~sampled.sampled].tolist()) <= {0.0}
        inserted += int((~sampled.sampled).sum())
    assert inserted
    made = datums(done.debate, done.sampled, values)
    assert sum(int(datum.mask.sum()) for datum in made) == sum(turn.count for turn in done.sampled)
    for datum in made:
        assert set(datum.mask.tolist()) <= {0.0, 1.0}
        for array in (datum.logprobs, datum.advantages):
            assert set(array[datum.mask == 0].tolist()) <= {0.0}


@pytest.mark.parametrize("way", PARTS)
def test_counts_are_of_sampled_tokens_alone(rendering: Rendering, way: str) -> None:
    done = played(rendering, way)
    sampled, read = token_counts([done])
    assert (
        sampled
        == sum(int(turn.sampled.sum()) for turn in done.sampled)
        < sum(len(turn.tokens) for turn in done.sampled)
    )
    assert sampled + read == sum(len(turn.prompt) + len(turn.tokens) for turn in done.sampled)
    metrics = rollout_metrics([done])
    assert metrics["tokens/sampled"] == sampled
    assert metrics["tokens/jury"] == sum(turn.count for turn in done.heard) > 0
    assert metrics["env/all/ac_tokens_per_turn"] == sampled / len(done.sampled)


# Reading back


@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_a_given_turn_decodes_to_its_text_exactly(rendering: Rendering, choice: int) -> None:
    done = played(rendering, "given", choice)
    for turn, sampled in zip((*done.debate.turns, *done.debate.jury), (*done.sampled, *done.heard), strict=True):
        assert "".join(rendering.said(tokens)[0] for _, tokens in pieces(sampled)) == turn.text
        assert rendering.said(sampled.tokens)[0] == turn.text
        assert rendering.said(sampled.tokens)[1].tolist() == sampled.starts.tolist()


@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_an_asked_turn_decodes_to_its_replies_and_the_requests_between_them(rendering: Rendering, choice: int) -> None:
    done = played(rendering, "asked", choice)
    for turn, sampled in zip((*done.debate.turns, *done.debate.jury), (*done.sampled, *done.heard), strict=True):
        assert turn.fields is not None
        found = pieces(sampled)
        assert [is_sampled for is_sampled, _ in found] == [True, False] * (len(found) // 2) + [True]
        contents = [content_of(rendering.said(tokens)[0])[1] for is_sampled, tokens in found if is_sampled]
        filled = [content for name, content in turn.fields.items() if content != NOTHING or name == "consensus"]
        assert sorted(contents) == sorted(filled)
        for is_sampled, tokens in found:
            if not is_sampled:
                assert any(
                    words in rendering.decode(tokens) for words in ("Now ", "Do all agents", "Say why", "Check the")
                )
        assert (sampled.starts[~sampled.sampled] == NOWHERE).all()


@pytest.mark.parametrize("way", PARTS)
@pytest.mark.parametrize("choice", [0, 3, 6])
def test_each_sampled_token_is_paid_for_its_own_section(rendering: Rendering, way: str, choice: int) -> None:
    done = played(rendering, way, choice)
    for turn, sampled in zip(done.debate.turns, done.sampled, strict=True):
        assert turn.fields is not None
        for name, tokens in tokens_by_section(turn.parsed, sampled.starts).items():
            said = rendering.said(sampled.tokens[tokens & sampled.sampled])[0]
            content = turn.fields[name]
            # A token at a border may hold a character of the next section, or miss one of the last.
            assert content[1:-1] in said if content != NOTHING else len(said) <= 1
            others = [
                text for other, text in turn.fields.items() if other != name and len(text) > 20 and text != content
            ]
            assert not any(text in said for text in others)
        counted = sum(
            int((tokens & sampled.sampled).sum()) for tokens in tokens_by_section(turn.parsed, sampled.starts).values()
        )
        assert counted == sampled.count


@pytest.mark.parametrize("way", PARTS)
def test_one_growing_sequence_per_agent(rendering: Rendering, way: str) -> None:
    done = played(rendering, way)
    values = Advantages({"generator": ((1.0,) * 3,) * 4, "judge": ((-1.0,) * 3,) * 4})
    made = datums(done.debate, done.sampled, values)
    assert len(made) == 4
    for datum, own in zip(made, done.debate.turns_by_agent(), strict=True):
        tokens = np.append(datum.tokens[:1], datum.targets)
        whole = np.concatenate([part for i in own for part in (done.sampled[i].prompt, done.sampled[i].tokens)])
        assert tokens.tolist() == whole.tolist()


# Whatever a model writes


class Says:
    """A sampler that says what it is told to, section by section, and stops where it is asked to."""

    def __init__(self, rendering: Rendering, replies: dict[str, str]) -> None:
        self._rendering, self._replies = rendering, replies

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        assert params.scene is not None
        ids = list(self._rendering.tokenizer.encode(self._replies[params.scene.section], add_special_tokens=False))
        reason: Literal["stop", "length"] = "stop"
        for i in range(len(ids)):
            said = self._rendering.decode(np.asarray(ids[: i + 1], dtype=np.int32))
            if any(isinstance(stop, str) and stop in said for stop in params.stop):
                ids = ids[: i + 1]
                break
        else:
            ids.append(self._rendering.stop_ids[0])
        if len(ids) > params.max_tokens:
            ids, reason = ids[: params.max_tokens], "length"
        tokens = np.asarray(ids, dtype=np.int32)
        return [Sample(tokens, -np.ones(len(ids), dtype=np.float32), reason)]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        return np.zeros(len(tokens), dtype=np.float32)


def said_by_all(rendering: Rendering, way: str, replies: dict[str, str], **limits: int) -> PlayedDebate:
    debate = Debate(QUESTION, 3, 2, Rules(sections=way, personas=False))  # type: ignore[arg-type]
    most = limits.pop("solution", 400)
    (done,) = asyncio.run(rollout([debate], Says(rendering, replies), rendering, SamplingParams(most), limits=limits))
    assert done.error is None
    return done


TAGS = [f"<{slash}{name}>" for name in CONTRACTS["five_tag"] for slash in ("", "/")]
hostile = st.lists(
    st.sampled_from(
        [
            *TAGS,
            "</SOLUTION>",
            "<Evaluation>",
            "<think>",
            "</think>",
            "<sol<think>ution>",
            "\n",
            "7 ",
            "🙂",
            "><",
            "é中",
        ]
    ),
    max_size=8,
).map("".join)


@settings(max_examples=15, deadline=None)
@given(way=st.sampled_from(PARTS), solution=hostile, evaluation=hostile, comparison=hostile)
def test_tags_in_a_section_stay_in_it_and_the_tokens_say_so(
    rendering: Rendering, way: str, solution: str, evaluation: str, comparison: str
) -> None:
    replies = {"solution": f"It is {solution}", "evaluation": evaluation, "comparison": comparison}
    done = said_by_all(rendering, way, replies)
    plain = said_by_all(rendering, way, {**replies, "evaluation": "Fine.", "comparison": "N/A"})
    for turn, sampled, other in zip(done.debate.turns, done.sampled, plain.debate.turns, strict=True):
        if turn.fields is None or other.fields is None:
            # A reply of thinking alone, or one whose first word is a tag, says nothing.
            assert turn.parsed == other.parsed == ParseFailure("the solution is empty")
        else:
            assert turn.fields["solution"] == other.fields["solution"]
        assert (sampled.starts <= len(turn.text)).all()
        assert set(sampled.logprobs[sampled.sampled].tolist()) <= {-1.0}
        assert set(sampled.logprobs[~sampled.sampled].tolist()) <= {0.0}
        if way == "given":
            assert "".join(rendering.said(tokens)[0] for _, tokens in pieces(sampled)) == turn.text


@pytest.mark.parametrize("way", PARTS)
def test_a_cut_solution_fails_the_turn_and_a_cut_evaluation_does_not(rendering: Rendering, way: str) -> None:
    replies = {
        "solution": "3 + 4 = 7\n\\boxed{7}",
        "evaluation": "They are all right, every one of them.",
        "comparison": "Agent 1 > Agent 2",
    }
    whole = said_by_all(rendering, way, replies)
    assert not any(turn.failed for turn in whole.debate.turns)
    short = said_by_all(rendering, way, replies, evaluation=4)
    assert not any(turn.failed for turn in short.debate.turns)
    assert [turn.stop_reason for turn in short.sampled] == ["stop"] * 3 + ["length"] * 3
    cut = said_by_all(rendering, way, replies, solution=4)
    assert {getattr(turn.parsed, "reason", "") for turn in cut.debate.turns} == {
        "the solution was cut at its token limit"
    }


def test_a_section_that_its_own_tag_ends_was_not_cut(rendering: Rendering) -> None:
    """In capitals a tag stops no engine. What follows it is cut away, and the section is whole although the limit was reached."""
    ids = rendering.tokenizer.encode("7</SOLUTION> and so on", add_special_tokens=False)
    replies = {"solution": "7</SOLUTION> and so on and on and on and on", "evaluation": "Fine.", "comparison": "N/A"}
    done = said_by_all(rendering, "given", replies, solution=len(ids) + 1)
    assert {turn.fields["solution"] if turn.fields else None for turn in done.debate.turns} == {"7"}
    assert {turn.stop_reason for turn in done.sampled} == {"stop"}


# Records


@pytest.mark.parametrize("way", PARTS)
def test_a_record_gives_back_which_tokens_were_inserted(rendering: Rendering, way: str, tmp_path: Path) -> None:
    """Written and read as a run writes and reads them: the turns, and of each token whether the rules put it there."""
    done = said_by_all(
        rendering, way, {"solution": "\\boxed{7}", "evaluation": "Fine.", "comparison": "Agent 1 > Agent 2"}
    )
    (taught,) = with_advantages([done.scored(Scoring(), None)], ESTIMATORS["center_group"])
    np.savez_compressed(tmp_path / "tokens.npz", **token_arrays([taught, taught]))
    back = read_line(json.dumps({"number": 1, **to_record(taught)}).encode(), 1, 1)
    assert (
        isinstance(back, PlayedDebate) and back.debate.turns == done.debate.turns and back.debate.rules.sections == way
    )
    with np.load(tmp_path / "tokens.npz") as arrays:
        by_turn = turn_tokens(arrays, 1)
    assert sorted(by_turn) == list(range(6))
    assert sum(int(each["inserted"].sum()) for each in by_turn.values()) > 0
    for i, sampled in enumerate(done.sampled):
        assert by_turn[i]["inserted"].tolist() == (~sampled.sampled).tolist()
        assert (
            by_turn[i]["ids"].tolist() == sampled.tokens.tolist()
            and by_turn[i]["starts"].tolist() == sampled.starts.tolist()
        )
        assert (
            not by_turn[i]["advantages"][by_turn[i]["inserted"]].any()
            and not by_turn[i]["logprobs"][by_turn[i]["inserted"]].any()
        )


# The warm start


@pytest.mark.parametrize("way", ["sampled", *PARTS])
def test_a_warm_start_teaches_what_is_sampled_and_no_more(rendering: Rendering, way: str) -> None:
    task = load("arithmetic", 0, 4)
    empty = Debate(task.train(0), 3, 2, Rules(sections=way, personas=False))  # type: ignore[arg-type]
    made = asyncio.run(examples(task, rendering, empty, range(3), 0))
    learned = "".join(rendering.decode(datum.targets[datum.mask == 1]) for datum in made)
    assert "\\boxed{" in learned and "which is right" in learned and "Agent 1 " in learned
    assert ("<evaluation>" in learned) == (way == "sampled")
    assert ("</evaluation>" in learned) == (way != "asked")
    assert not any(words in learned for words in ("Now compare", "Others answered", "Write now"))
