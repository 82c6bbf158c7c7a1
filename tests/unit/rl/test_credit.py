"""Which token is paid for what, and whole debates as what an engine trains on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moot.debate.parsing import BALLOT, CONTRACTS, parse
from moot.debate.protocol import Protocol
from moot.debate.rewards import score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Message, Parsed, ParseFailure, Question, Turn
from moot.engine.protocol import AdamParams, Datum, SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.records.played import PlayedDebate
from moot.rl.advantages import ESTIMATORS, advantages
from moot.rl.datums import datums
from moot.rl.rendering import Rendering
from moot.rl.rollout import rollout
from moot.turns import AgentAdvantages, SampledTurn, StepAdvantages, credit
from support.making import v2

few = settings(max_examples=50)

GENERATOR, JUDGE = 0.5, -2.0
PAID = StepAdvantages({"generator": ((GENERATOR,),), "judge": ((JUDGE,),)})
STREAM = {"solution": GENERATOR, "evaluation": GENERATOR, "comparison": JUDGE, "consensus": 0.0, "consensus_reason": 0.0}


@dataclass(frozen=True)
class Said:
    """A turn as sampled: its tokens, its text, and what each token was paid."""

    turn: Turn
    tokens: np.ndarray
    starts: np.ndarray
    values: np.ndarray

    def paid(self, rendering: Rendering, value: float) -> str:
        """The text of the tokens that got this much."""
        return rendering.decode(self.tokens[self.values == np.float32(value)])


def say(rendering: Rendering, text: str, contract: str = "three_tag", ended: bool = True, advantages: Any = PAID) -> Said:
    ids = rendering.tokenizer.encode(text, add_special_tokens=False)
    tokens = np.asarray([*ids, *rendering.stop_ids[:1]] if ended else ids, dtype=np.int32)
    said, starts = rendering.said(tokens)
    turn = Turn(1, 0, said, parse(said, contract, closed=False))
    sampled = SampledTurn(np.zeros(1, np.int32), False, tokens, np.zeros(len(tokens), np.float32), starts)
    return Said(turn, tokens, starts, credit(turn, sampled, 0, advantages))


# By hand


def test_solution_and_evaluation_are_the_generators_and_the_comparison_is_the_judges(name: str, rendering: Rendering) -> None:
    said = say(rendering, "Sure.\n\n <solution>7</solution>then <evaluation>ok</evaluation>so <comparison>N/A</comparison>")
    generator, judge, nobody = (said.paid(rendering, value) for value in (GENERATOR, JUDGE, 0.0))
    end = rendering.decode(said.tokens[-1:])
    if name == "bytes":
        assert generator == "<solution>7</solution><evaluation>ok</evaluation>"
        assert judge == f"<comparison>N/A</comparison>{end}"
        assert nobody == "Sure.\n\n then so "
    else:
        # Every real vocabulary has the token ` <`. Its first character is the space, which stands before the section.
        assert generator == "solution>7</solution>evaluation>ok</evaluation>"
        assert judge == f"comparison>N/A</comparison>{end}"
        assert nobody.removeprefix(" ") == "Sure.\n\n <then <so <"


JOINED = {"bytes": (), "smollm2": ("><",), "deepseek": ("><", ">\n", ">\n\n"), "qwen3": ("><", ">\n", ">\n\n")}
JOINED |= {"mistral": ("><",), "mistral-legacy": ("><",)}
"""Which of the pieces between two sections are one token."""


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_a_token_across_a_border_goes_with_its_first_character(name: str, rendering: Rendering, between: str) -> None:
    said = say(rendering, f"<solution>7</solution>{between}<evaluation>ok</evaluation>{between}<comparison>N/A</comparison>")
    generator, judge, nobody = (said.paid(rendering, value) for value in (GENERATOR, JUDGE, 0.0))
    end = rendering.decode(said.tokens[-1:])
    if name.startswith("mistral"):  # SentencePiece begins with ` <`, of which the space stands before the section
        assert nobody[:2] == " <"
        generator, nobody = "<" + generator, nobody[2:]
    if f">{between or '<'}" not in JOINED[name]:
        assert generator == "<solution>7</solution><evaluation>ok</evaluation>"
        assert judge == f"<comparison>N/A</comparison>{end}"
        assert nobody == between * 2
    elif between:  # the line feeds are in one token with the `>` that closes the section
        assert generator == f"<solution>7</solution>{between}<evaluation>ok</evaluation>{between}"
        assert judge == f"<comparison>N/A</comparison>{end}"
        assert nobody == ""
    else:  # the `<` that opens the comparison is in one token with the `>` that closes the evaluation
        assert generator == "<solution>7</solution><evaluation>ok</evaluation><"
        assert judge == f"comparison>N/A</comparison>{end}"
        assert nobody == ""


def test_what_follows_the_last_section_goes_with_it(rendering: Rendering) -> None:
    said = say(rendering, "<solution>7</solution> <evaluation>ok</evaluation> <comparison>N/A</comparison>\n\nHope this helps! 🙂")
    begin = said.turn.parsed.spans["comparison"][0]
    after = said.starts >= begin
    assert said.values[after].tolist() == [JUDGE] * int(after.sum())
    assert said.values[-1] == JUDGE  # the end-of-turn token
    assert said.starts[-1] == len(said.turn.text)


def test_all_of_a_ballot_is_the_judges(rendering: Rendering) -> None:
    """There is no answer in it that an evaluation could help along. A solution written all the same is nobody's."""
    ids = rendering.tokenizer.encode(
        "Sure.<solution>7</solution>\n<evaluation>ok</evaluation>\n<comparison>N/A</comparison>", add_special_tokens=False
    )
    tokens = np.asarray([*ids, rendering.stop_ids[0]], dtype=np.int32)
    text, starts = rendering.said(tokens)
    turn = Turn(2, 0, text, parse(text, BALLOT), ballot=True)
    sampled = SampledTurn(np.zeros(1, np.int32), False, tokens, np.zeros(len(tokens), np.float32), starts)
    found = credit(turn, sampled, 0, PAID)
    begin = turn.parsed.spans["evaluation"][0]
    assert set(found[starts < begin].tolist()) == {0.0}
    assert set(found[starts >= begin].tolist()) <= {0.0, JUDGE}
    assert "ok" in rendering.decode(tokens[found == np.float32(JUDGE)])
    assert found[-1] == JUDGE
    failed = Turn(2, 0, text, ParseFailure("no"), ballot=True)
    assert set(credit(failed, sampled, 0, PAID).tolist()) == {GENERATOR}


def test_in_the_five_tag_contract_consensus_and_what_follows_it_are_nobodys(rendering: Rendering) -> None:
    tags = "".join(f"<{tag}>{'YES' if tag == 'consensus' else 'x'}</{tag}>\n" for tag in CONTRACTS["five_tag"])
    said = say(rendering, tags + "bye", "five_tag")
    begin = said.turn.parsed.spans["consensus"][0]
    assert set(said.values[said.starts >= begin].tolist()) == {0.0}
    assert set(said.values[said.starts < begin].tolist()) - {0.0} == {GENERATOR, JUDGE}


@pytest.mark.parametrize("text", ["no tags at all 🙂", "", "<solution>7</solution><evaluation>", "<comparison></comparison>"])
@pytest.mark.parametrize("ended", [True, False])
def test_every_token_of_a_failed_turn_is_the_generators(rendering: Rendering, text: str, ended: bool) -> None:
    said = say(rendering, text, ended=ended)
    assert said.turn.failed
    assert said.values.tolist() == [GENERATOR] * len(said.tokens)


def test_a_turn_cut_inside_its_last_section_has_failed(rendering: Rendering) -> None:
    said = say(rendering, "<solution>7</solution><evaluation>ok</evaluation><comparison>Agent 0", ended=False)
    assert said.turn.failed
    assert set(said.values.tolist()) == {GENERATOR}


def test_spoken_in_parts_only_the_solution_that_failed_is_blamed() -> None:
    """Asked for an evaluation, a comparison and then a solution, which was cut. Requests (starts -1) are inserted.

    Characters: the solution stands at 10, the evaluation at 39, the comparison at 70.
    """
    text = "<solution>3 + 4</solution>\n<evaluation>Good.</evaluation>\n<comparison>N/A</comparison>"
    assert (text.index("3"), text.index("Good"), text.index("N/A")) == (10, 39, 70)
    starts = np.array([39, 41, -1, 70, -1, -1, 10, 12, 14], dtype=np.int32)
    inserted = np.array([0, 0, 1, 0, 1, 1, 0, 0, 0], dtype=bool)
    ids = np.arange(9, dtype=np.int32)
    sampled = SampledTurn(ids, False, ids, np.zeros(9, dtype=np.float32), starts, inserted=inserted)
    failed = Turn(2, 0, text, ParseFailure("the solution was cut at its token limit"))
    assert credit(failed, sampled, 0, PAID).tolist() == [0, 0, 0, 0, 0, 0, GENERATOR, GENERATOR, GENERATOR]
    one_reply = replace(sampled, inserted=None)
    assert credit(failed, one_reply, 0, PAID).tolist() == [GENERATOR] * 9, "where the model writes the tags, the whole turn"
    assert credit(failed, sampled, 0, AgentAdvantages((0.25,))).tolist() == [0.25, 0.25, 0, 0.25, 0, 0, 0.25, 0.25, 0.25]


def test_an_agents_one_number_is_for_every_token(rendering: Rendering) -> None:
    said = say(
        rendering,
        "Sure. <solution>7</solution> <evaluation>ok</evaluation> <comparison>N/A</comparison>",
        advantages=AgentAdvantages((0.25,)),
    )
    assert said.values.tolist() == [0.25] * len(said.tokens)
    assert said.values.dtype == np.float32


def test_a_number_a_step_is_for_every_token_of_the_step(rendering: Rendering) -> None:
    said = say(rendering, "Sure. <solution>7", advantages=StepAdvantages({"step": ((0.25,),)}))
    assert said.values.tolist() == [0.25] * len(said.tokens)


# For any text

content = st.text(max_size=12) | st.text(st.sampled_from("ab7 🙂👩\u200d👧中文é\u0301\u0308<>/\n\t`$\\{}한ﷺ"), max_size=12)


def in_contract(contract: str) -> st.SearchStrategy[str]:
    """A response in its sections, with anything inside and between them."""
    parts = []
    for tag in CONTRACTS[contract]:
        inside = st.just("yes") if tag == "consensus" else content
        parts += [content, st.just(f"<{tag}>"), inside, st.just(f"</{tag}>")]
    return st.tuples(*parts, content).map("".join)


def owed(said: Said, contract: str) -> list[float]:
    """What each token is owed by the rule, character by character."""
    if not isinstance(said.turn.parsed, Parsed):
        return [GENERATOR] * len(said.tokens)
    characters = [0.0] * (len(said.turn.text) + 1)
    for tag, (begin, end) in said.turn.parsed.spans.items():
        characters[begin:end] = [STREAM[tag]] * (end - begin)
    last = CONTRACTS[contract][-1]
    end = said.turn.parsed.spans[last][1]
    characters[end:] = [STREAM[last]] * (len(characters) - end)
    return [characters[start] for start in said.starts.tolist()]


@few
@given(text=in_contract("three_tag"), ended=st.booleans())
@example(text="🙂<solution>👩‍👩‍👧</solution>🙂<evaluation>e\u0301</evaluation>🙂<comparison>🙂</comparison>🙂", ended=True)
@example(text="<solution></solution><evaluation></evaluation><comparison></comparison>", ended=True)
@example(text="<think>a</think><solution><think>b</solution><evaluation></think></evaluation><comparison></comparison>", ended=False)
def test_every_token_gets_what_its_first_character_is_owed(rendering: Rendering, text: str, ended: bool) -> None:
    said = say(rendering, text, ended=ended)
    assert said.values.tolist() == owed(said, "three_tag")


@few
@given(text=in_contract("five_tag"))
def test_so_it_is_with_five_tags(rendering: Rendering, text: str) -> None:
    said = say(rendering, text, "five_tag")
    assert said.values.tolist() == owed(said, "five_tag")


@few
@given(text=in_contract("three_tag"))
def test_the_paid_tokens_decode_to_their_sections_up_to_tokens_across_a_border(rendering: Rendering, text: str) -> None:
    """Said without looking at where tokens start: what a run of paid tokens decodes to is the section, less what the token before
    took of its front, and with what its own last token took of what follows."""
    said = say(rendering, text)
    if not isinstance(said.turn.parsed, Parsed):
        return
    whole = said.turn.text
    begin, end = said.turn.parsed.spans["comparison"]
    paid = rendering.decode(said.tokens[said.values == np.float32(JUDGE)][:-1])
    if "�" in paid or "�" in whole:
        return  # a token across the border ends in the middle of a character
    assert whole.endswith(paid)
    assert whole[begin:end].endswith(">")
    lost = whole[begin : len(whole) - len(paid)]
    assert len(lost) <= 1  # `><`, ` <`: no vocabulary has a longer piece of a tag joined to what stands before it
    generated = rendering.decode(said.tokens[said.values == np.float32(GENERATOR)])
    for tag in ("solution", "evaluation"):
        a, b = said.turn.parsed.spans[tag]
        assert whole[a + 1 : b] in generated or "�" in generated


# Whole debates on the scripted engine

AGENTS, ROUNDS = 4, 3
QUESTION = Question("What is 3 + 4?", "7")


@dataclass(frozen=True)
class Played:
    debate: Debate
    sampled: tuple[SampledTurn, ...]
    advantages: StepAdvantages
    datums: list[Datum]

    def of(self, agent: int) -> list[Datum]:
        """The datums stand agent by agent; an agent's are as many as its turns that extend nothing."""
        counts = [sum(not self.sampled[i].extends for i in turns) for turns in self.debate.steps()]
        first = sum(counts[:agent])
        return self.datums[first : first + counts[agent]]


@cache
def _play(rendering: Rendering, protocol: Protocol, style: str, rounds: int, max_tokens: int) -> Played:
    engine = ScriptedEngine(style=style, tokenizer=rendering.tokenizer)  # type: ignore[arg-type]
    debate = Debate(QUESTION, AGENTS, rounds, protocol.rules)
    (done,) = asyncio.run(rollout([debate], engine, rendering, SamplingParams(max_tokens)))
    assert done.error is None
    (found,) = advantages([(done.debate, score(done.debate, protocol.scoring))], ESTIMATORS[protocol.scoring.estimator])
    assert isinstance(found, StepAdvantages)
    return Played(done.debate, done.sampled, found, datums(done.debate, done.sampled, found))


def played(rendering: Rendering, style: str = "well_formed", rounds: int = ROUNDS, max_tokens: int = 2000, **choices: Any) -> Played:
    return _play(rendering, v2(**choices), style, rounds, max_tokens)


def sequence(datum: Datum) -> np.ndarray:
    """The tokens before they were shifted."""
    return np.append(datum.tokens[:1], datum.targets)


def stretches(datum: Datum) -> list[tuple[bool, np.ndarray]]:
    """The sequence cut into what was read and what was sampled, in order."""
    tokens, sampled = sequence(datum), np.append(0, datum.mask)
    cuts = [0, *(np.flatnonzero(np.diff(sampled)) + 1).tolist(), len(tokens)]
    return [(bool(sampled[a]), tokens[a:b]) for a, b in pairwise(cuts)]


def together(parts: Sequence[np.ndarray]) -> list[float]:
    return np.concatenate(list(parts)).tolist()


STYLES = ["well_formed", "sloppy", "hostile", "mixed"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_growing_gives_one_datum_an_agent_with_all_it_sampled(rendering: Rendering, style: str, schedule: str) -> None:
    debate = played(rendering, style, schedule=schedule)
    assert len(debate.datums) == AGENTS
    for agent, turns in enumerate(debate.debate.steps()):
        (datum,) = debate.of(agent)
        assert len(turns) == ROUNDS
        assert together([tokens for sampled, tokens in stretches(datum) if sampled]) == together([debate.sampled[i].tokens for i in turns])
        acted = datum.mask == 1
        assert datum.targets[acted].tolist() == together([debate.sampled[i].tokens for i in turns])
        assert datum.logprobs[acted].tolist() == together([debate.sampled[i].logprobs for i in turns])
        values = [credit(debate.debate.turns[i], debate.sampled[i], step, debate.advantages) for step, i in enumerate(turns)]
        assert datum.advantages[acted].tolist() == together(values)
        for array in (datum.logprobs, datum.advantages):
            assert set(array[~acted].tolist()) <= {0.0}
        assert datum.tokens[1:].tolist() == datum.targets[:-1].tolist()


def test_a_turns_logprobs_are_still_its_chance_in_the_datum(rendering: Rendering) -> None:
    """The script picks one of eight answers, so a turn's tokens together have a chance of 1/8, or of 2/8 if two are alike."""
    debate = played(rendering)
    for agent in range(AGENTS):
        (datum,) = debate.of(agent)
        sampled = np.append(0, datum.mask)
        borders = np.flatnonzero(np.diff(sampled) == 1)
        assert len(borders) == ROUNDS
        chances = [8 * math.exp(part.sum()) for part in np.split(datum.logprobs, borders)[1:]]
        assert chances == pytest.approx([round(chance) for chance in chances], abs=1e-4)
        # In round 1 the answers differ in one number, and all eight may be alike; with votes in them they are not.
        assert 1 <= round(chances[0]) <= 8
        assert all(1 <= round(chance) < 8 for chance in chances[1:])


def test_judged_debates_pay_both_sides_and_the_tokens_say_so(rendering: Rendering) -> None:
    """Round 1 sees nobody, so nothing is compared there; in round 2 the votes are about it."""
    debate = played(rendering)
    generator, judge = debate.advantages.streams["generator"], debate.advantages.streams["judge"]
    assert any(value for row in generator for value in row)
    for agent, turns in enumerate(debate.debate.steps()):
        (datum,) = debate.of(agent)
        expected = {0.0, *map(np.float32, generator[agent]), *map(np.float32, judge[agent])}
        assert set(datum.advantages.tolist()) <= {float(value) for value in expected}
        assert len(turns) == ROUNDS


@pytest.mark.parametrize("style", ["well_formed", "sloppy"])
@pytest.mark.parametrize("layout", ["growing", "rebuilt"])
def test_a_datum_reads_as_the_debate(rendering: Rendering, style: str, layout: str) -> None:
    debate = played(rendering, style, layout=layout).debate
    for agent, turns in enumerate(debate.steps()):
        found = iter(part for datum in played(rendering, style, layout=layout).of(agent) for part in stretches(datum))
        for step, i in enumerate(turns):
            is_sampled, read = next(found)
            prompt = rendering.decode(read)
            assert not is_sampled
            is_sampled, tokens = next(found)
            assert is_sampled
            assert rendering.said(tokens)[0] == debate.turns[i].text
            if step == 0 or layout == "rebuilt":
                assert f"You are Agent {agent}. {AGENTS} agents" in prompt
                assert QUESTION.text in prompt
            else:
                assert QUESTION.text not in prompt
            assert f"Round {step + 1} of {ROUNDS}." in prompt
            for other in debate.turns:
                new = other.round == step if layout == "growing" else other.round <= step
                if other.agent == agent:
                    assert f"[Agent {agent}, round" not in prompt
                elif new and isinstance(other.parsed, Parsed):
                    for field in ("solution", "evaluation"):
                        assert f"{field}: {other.parsed.fields[field]}" in prompt
                    assert f"[Agent {other.agent}, round {other.round}]" in prompt
                    assert f"comparison: {other.parsed.fields['comparison']}" not in prompt  # reviews are blind
                elif new:
                    assert f"[Agent {other.agent}, round {other.round}]\ngave no valid response." in prompt
                else:
                    assert f"[Agent {other.agent}, round {other.round}]" not in prompt
        assert next(found, None) is None


def test_a_window_of_one_round_starts_a_new_datum_each_time_it_moves(rendering: Rendering) -> None:
    """Rounds 1 and 2 show round 1; round 3 drops it, and round 4 drops round 2."""
    debate = played(rendering, rounds=4, history_rounds=1)
    assert len(debate.datums) == 3 * AGENTS
    for agent, turns in enumerate(debate.debate.steps()):
        first, second, third = debate.of(agent)
        tokens = [debate.sampled[i].tokens.tolist() for i in turns]
        assert [part.tolist() for sampled, part in stretches(first) if sampled] == tokens[:2]
        assert [part.tolist() for sampled, part in stretches(second) if sampled] == [tokens[2]]
        assert [part.tolist() for sampled, part in stretches(third) if sampled] == [tokens[3]]
        # The last own turn stands in the new prompt as it was sampled, to be read and not to be trained on again.
        (_, read), _ = stretches(second)
        assert contains(read.tolist(), tokens[1])
        (_, read), _ = stretches(third)
        assert contains(read.tolist(), tokens[2])
        assert not contains(read.tolist(), tokens[1]) or tokens[1] == tokens[2]


def contains(whole: list[int], part: list[int]) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def test_rebuilt_gives_one_datum_a_turn(rendering: Rendering) -> None:
    debate = played(rendering, layout="rebuilt")
    assert len(debate.datums) == AGENTS * ROUNDS
    in_order = [i for turns in debate.debate.steps() for i in turns]
    for datum, i in zip(debate.datums, in_order, strict=True):
        (_, read), (_, tokens) = stretches(datum)
        assert read.tolist() == debate.sampled[i].prompt.tolist()
        assert tokens.tolist() == debate.sampled[i].tokens.tolist()
        assert datum.temperature == debate.sampled[i].temperature


def test_turns_cut_at_their_limit_are_failed_and_the_sequence_still_grows(rendering: Rendering) -> None:
    """Twelve tokens are never a whole response: every turn fails, all its tokens get -1, and the next message ends it first."""
    debate = played(rendering, max_tokens=12)
    assert all(turn.failed for turn in debate.debate.turns)
    assert len(debate.datums) == AGENTS
    for agent in range(AGENTS):
        (datum,) = debate.of(agent)
        parts = stretches(datum)
        assert [sampled for sampled, _ in parts] == [False, True] * ROUNDS
        assert [len(tokens) for sampled, tokens in parts if sampled] == [12] * ROUNDS
        assert datum.advantages[datum.mask == 1].tolist() == [-1.0] * (12 * ROUNDS)
        for sampled, tokens in parts[2:]:
            assert sampled or int(tokens[0]) == rendering.stop_ids[0]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
def test_every_style_of_speaking_can_be_trained_on(rendering: Rendering, style: str, layout: str) -> None:
    engine = ScriptedEngine(style=style, tokenizer=rendering.tokenizer)  # type: ignore[arg-type]
    protocol = v2(layout=layout)

    async def one_step() -> tuple[list[PlayedDebate], list[Datum]]:
        done = await rollout([Debate(QUESTION, AGENTS, 2, protocol.rules)] * 6, engine, rendering, SamplingParams(1000))
        scored = [(each.debate, score(each.debate, protocol.scoring)) for each in done]
        found = advantages(scored, ESTIMATORS[protocol.scoring.estimator])
        batch = [datum for each, values in zip(done, found, strict=True) for datum in datums(each.debate, each.sampled, values)]
        await engine.forward_backward(batch, "importance_sampling")
        await engine.optim_step(AdamParams())
        return done, batch

    done, batch = asyncio.run(one_step())
    assert [each.error for each in done] == [None] * 6
    assert len(batch) == 6 * AGENTS * (1 if layout == "growing" else 2)
    assert (engine.steps, engine.trained_tokens) == (1, sum(len(turn.tokens) for each in done for turn in each.sampled))


def test_a_special_token_in_the_script_ends_the_turn_as_it_ends_a_models(name: str, rendering: Rendering) -> None:
    """One of ten attacks of a hostile agent spells ChatML's <|im_end|> after its opening tag."""
    asked = "Round 1 of 3. Write <solution>, <evaluation> and <comparison>."
    prompt = rendering.prompt([Message("system", "You are Agent 0. 3 agents answer."), Message("user", asked)])
    params = SamplingParams(1000, stop=rendering.stops("three_tag"))

    async def turns() -> list[np.ndarray]:
        engines = [ScriptedEngine("hostile", seed, rendering.tokenizer) for seed in range(40)]
        return [(await engine.sample(prompt, params))[0].tokens for engine in engines]

    found = asyncio.run(turns())
    assert [turn.tolist() for turn in found if set(turn[:-1].tolist()) & set(rendering.stop_ids)] == []
    cut_short = [turn for turn in found if rendering.said(turn)[0] == "<solution>"]
    assert bool(cut_short) == (name in ("bytes", "smollm2", "qwen3"))


# Whose the evaluation is


@pytest.mark.parametrize(("whose", "evaluation"), [("generator", GENERATOR), ("judge", JUDGE), ("nobody", 0.0)])
def test_the_evaluations_tokens_go_to_whom_the_scoring_names(rendering: Rendering, whose: Any, evaluation: float) -> None:
    paid = StepAdvantages(PAID.streams, Scoring(evaluation_credit=whose).stream_of)
    said = say(rendering, "<solution>7</solution><evaluation>fine</evaluation><comparison>N/A</comparison>", advantages=paid)
    expected = {"solution": GENERATOR, "evaluation": evaluation, "comparison": JUDGE}
    for name, (begin, end) in said.turn.parsed.spans.items():
        inside = (said.starts >= begin) & (said.starts < end)
        assert set(said.values[inside].tolist()) == {expected[name]}, name


@pytest.mark.parametrize("reward", ["truth", "majority"])
def test_truth_and_majority_are_for_the_solutions_tokens_alone(rendering: Rendering, reward: str) -> None:
    paid = StepAdvantages({"generator": ((0.25,),)}, Scoring(reward=reward).stream_of)
    said = say(rendering, "<solution>7</solution><evaluation>fine</evaluation><comparison>N/A</comparison>", advantages=paid)
    begin, end = said.turn.parsed.spans["solution"]
    inside = (said.starts >= begin) & (said.starts < end)
    assert set(said.values[inside].tolist()) == {0.25}
    assert set(said.values[~inside].tolist()) == {0.0}
    failed = say(rendering, "no tags", advantages=paid)
    assert set(failed.values.tolist()) == {0.25}
