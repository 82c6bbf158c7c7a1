"""Which token is paid for what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moot.debate.parsing import BALLOT, CONTRACTS, parse
from moot.debate.scores import EVERY
from moot.debate.scoring import Scoring
from moot.debate.types import Parsed, ParseFailure, Turn
from moot.tokens.rendering import Rendering
from moot.tokens.turn import Advantages, SampledTurn, credit

few = settings(max_examples=50)

GENERATOR, JUDGE = 0.5, -2.0
PAID = Advantages({"generator": ((GENERATOR,),), "judge": ((JUDGE,),)})
STREAM = {
    "solution": GENERATOR,
    "evaluation": GENERATOR,
    "comparison": JUDGE,
    "consensus": 0.0,
    "consensus_reason": 0.0,
}


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


def say(
    rendering: Rendering, text: str, contract: str = "three_tag", ended: bool = True, advantages: Any = PAID
) -> Said:
    ids = rendering.tokenizer.encode(text, add_special_tokens=False)
    tokens = np.asarray([*ids, *rendering.stop_ids[:1]] if ended else ids, dtype=np.int32)
    said, starts = rendering.said(tokens)
    turn = Turn(1, 0, said, parse(said, contract, closed=False))
    sampled = SampledTurn(np.zeros(1, np.int32), False, tokens, np.zeros(len(tokens), np.float32), starts)
    return Said(turn, tokens, starts, credit(turn, sampled, 0, advantages))


# By hand


def test_solution_and_evaluation_are_the_generators_and_the_comparison_is_the_judges(
    name: str, rendering: Rendering
) -> None:
    said = say(
        rendering, "Sure.\n\n <solution>7</solution>then <evaluation>ok</evaluation>so <comparison>N/A</comparison>"
    )
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
    said = say(
        rendering, f"<solution>7</solution>{between}<evaluation>ok</evaluation>{between}<comparison>N/A</comparison>"
    )
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
    said = say(
        rendering,
        "<solution>7</solution> <evaluation>ok</evaluation> <comparison>N/A</comparison>\n\nHope this helps! 🙂",
    )
    begin = said.turn.parsed.spans["comparison"][0]
    after = said.starts >= begin
    assert said.values[after].tolist() == [JUDGE] * int(after.sum())
    assert said.values[-1] == JUDGE  # the end-of-turn token
    assert said.starts[-1] == len(said.turn.text)


def test_all_of_a_ballot_is_the_judges(rendering: Rendering) -> None:
    """There is no answer in it that an evaluation could help along. A solution written all the same is nobody's."""
    ids = rendering.tokenizer.encode(
        "Sure.<solution>7</solution>\n<evaluation>ok</evaluation>\n<comparison>N/A</comparison>",
        add_special_tokens=False,
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


@pytest.mark.parametrize(
    "text", ["no tags at all 🙂", "", "<solution>7</solution><evaluation>", "<comparison></comparison>"]
)
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
    assert credit(failed, one_reply, 0, PAID).tolist() == [GENERATOR] * 9, (
        "where the model writes the tags, the whole turn"
    )
    assert credit(failed, sampled, 0, Advantages.per_agent((0.25,))).tolist() == [
        0.25,
        0.25,
        0,
        0.25,
        0,
        0,
        0.25,
        0.25,
        0.25,
    ]


def test_an_agents_one_number_is_for_every_token(rendering: Rendering) -> None:
    said = say(
        rendering,
        "Sure. <solution>7</solution> <evaluation>ok</evaluation> <comparison>N/A</comparison>",
        advantages=Advantages.per_agent((0.25,)),
    )
    assert said.values.tolist() == [0.25] * len(said.tokens)
    assert said.values.dtype == np.float32


def test_a_number_a_step_is_for_every_token_of_the_step(rendering: Rendering) -> None:
    said = say(rendering, "Sure. <solution>7", advantages=Advantages({"step": ((0.25,),)}, {EVERY: "step"}))
    assert said.values.tolist() == [0.25] * len(said.tokens)


# For any text

content = st.text(max_size=12) | st.text(
    st.sampled_from("ab7 🙂👩\u200d👧中文é\u0301\u0308<>/\n\t`$\\{}한ﷺ"), max_size=12
)


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
@example(
    text="🙂<solution>👩‍👩‍👧</solution>🙂<evaluation>e\u0301</evaluation>🙂<comparison>🙂</comparison>🙂", ended=True
)
@example(text="<solution></solution><evaluation></evaluation><comparison></comparison>", ended=True)
@example(
    text="<think>a</think><solution><think>b</solution><evaluation></think></evaluation><comparison></comparison>",
    ended=False,
)
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


# Whose the evaluation is


@pytest.mark.parametrize(("whose", "evaluation"), [("generator", GENERATOR), ("judge", JUDGE), ("nobody", 0.0)])
def test_the_evaluations_tokens_go_to_whom_the_scoring_names(
    rendering: Rendering, whose: Any, evaluation: float
) -> None:
    paid = Advantages(PAID.streams, Scoring(evaluation_credit=whose).stream_of)
    said = say(
        rendering, "<solution>7</solution><evaluation>fine</evaluation><comparison>N/A</comparison>", advantages=paid
    )
    expected = {"solution": GENERATOR, "evaluation": evaluation, "comparison": JUDGE}
    for name, (begin, end) in said.turn.parsed.spans.items():
        inside = (said.starts >= begin) & (said.starts < end)
        assert set(said.values[inside].tolist()) == {expected[name]}, name


@pytest.mark.parametrize("reward", ["truth", "majority"])
def test_truth_and_majority_are_for_the_solutions_tokens_alone(rendering: Rendering, reward: str) -> None:
    paid = Advantages({"generator": ((0.25,),)}, Scoring(reward=reward).stream_of)
    said = say(
        rendering, "<solution>7</solution><evaluation>fine</evaluation><comparison>N/A</comparison>", advantages=paid
    )
    begin, end = said.turn.parsed.spans["solution"]
    inside = (said.starts >= begin) & (said.starts < end)
    assert set(said.values[inside].tolist()) == {0.25}
    assert set(said.values[~inside].tolist()) == {0.0}
    failed = say(rendering, "no tags", advantages=paid)
    assert set(failed.values.tolist()) == {0.25}
