"""How a judge is asked: what follows what, in tokens and at a chat server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import httpx
import numpy as np
import pytest

from moot.debate.checks import Check
from moot.debate.prompt_texts import DEFAULT
from moot.debate.types import Question
from moot.engine.protocol import Sample, SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.judges.asking import Asked, TokenJudge, judge_of, texts_digest
from moot.judges.ballots import spellings
from moot.players.chat.chat import Chat, Patience
from moot.players.chat.chat_judge import ChatJudge
from moot.players.chat.chat_player import ChatPlayer
from moot.players.chat.endpoint import Endpoint
from moot.rl.rollout import Player
from moot.tokens.rendering import Rendering
from support.chat_server import BASE, DONE, Server, event, stream

QUESTION = Question("What is {two} and two?", "4")
ONE = Asked(QUESTION, ("It is \\boxed{4}.",))
TWO = Asked(QUESTION, ("Four.", "Five, {names}."), "pairs", "answer")


def test_a_judge_reads_the_question_and_the_answers_as_they_are() -> None:
    assert QUESTION.text in ONE.message.content and ONE.answers[0] in ONE.message.content
    assert "[A]\nFour.\n\n[B]\nFive, {names}." in TWO.message.content
    assert (ONE.words, TWO.words) == (("Yes", "No"), ("A", "B"))
    assert "Yes or No" in ONE.verdict.content and "A or B" in TWO.verdict.content


def test_a_judge_of_one_rule_reads_that_rule_and_not_the_question() -> None:
    one = replace(ONE, rule="Use at least {answers} words.")
    assert one.rule in one.message.content and ONE.answers[0] in one.message.content
    assert QUESTION.text not in one.message.content
    assert one.words == ("Yes", "No") and "Yes or No" in one.verdict.content != ONE.verdict.content
    rule = DEFAULT.with_texts({"judges.rule": "{rule} {answers}"}, "test")
    assert texts_digest(rule, "approval", "solution") == texts_digest(DEFAULT, "approval", "solution")
    assert texts_digest(rule, "approval", "solution", True) != texts_digest(DEFAULT, "approval", "solution", True)


def test_verdicts_are_found_again_by_the_texts_that_were_read_alone() -> None:
    other = DEFAULT.with_texts({"asked.ballot": "Vote."}, "test")
    verdict = DEFAULT.with_texts({"judges.pairs_verdict": "A or B?"}, "test")
    assert texts_digest(other, "approval", "solution") == texts_digest(DEFAULT, "approval", "solution")
    assert texts_digest(verdict, "approval", "answer") == texts_digest(DEFAULT, "approval", "answer")
    assert texts_digest(verdict, "pairs", "answer") != texts_digest(DEFAULT, "pairs", "answer")


class Listening(ScriptedEngine):
    """Keeps what it was asked for and what it sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.sampled: list[tuple[list[int], Sample]] = []
        self.scored: list[tuple[list[int], list[list[int]]]] = []

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        samples = await super().sample(prompt, params, num_samples)
        self.sampled.append((list(map(int, prompt)), samples[0]))
        return samples

    async def score_continuations(self, prompt: Any, candidates: Any, temperature: float = 1.0) -> list[float]:
        assert temperature == 1.0
        self.scored.append((list(map(int, prompt)), [list(each) for each in candidates]))
        return [log(0.2), log(0.1), log(0.2), log(0.1), log(0.1), log(0.05), log(0.025), log(0.025)]


@pytest.mark.parametrize("limit", [5, 2000])
def test_the_verdict_continues_the_sampled_tokens_whether_the_thinking_ended_or_was_cut(limit: int) -> None:
    engine = Listening()
    rendering = Rendering(engine.tokenizer)
    check = asyncio.run(TokenJudge(Player(engine, rendering)).check(ONE, SamplingParams(limit, seed=3)))
    ((prompt, sample),), ((whole, candidates),) = engine.sampled, engine.scored
    assert prompt == rendering.prompt([ONE.message]).tolist()
    assert whole[: len(prompt)] == prompt
    assert whole[len(prompt) : len(prompt) + len(sample.tokens)] == sample.tokens.tolist()
    text = rendering.decode(np.array(whole))
    assert text.endswith(f"<|im_end|>\n<|im_start|>user\n{ONE.verdict.content}<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("<|im_end|>") == 3, "the turn is closed once, also where it was cut"
    assert candidates == [list(s) for word in ONE.words for s in spellings(word, engine.tokenizer.encode)]
    assert check.value == pytest.approx(0.6 / 0.8)
    assert check.tokens == len(sample.tokens) and check.thinking == rendering.said(sample.tokens)[0]


# Chat servers


def verdict(content: str, top: dict[str, float] | None = None) -> httpx.Response:
    listed = [{"token": token, "logprob": logprob} for token, logprob in (top or {}).items()]
    logprobs = (
        {"content": [{"token": "\n", "logprob": -0.1}, {**listed[0], "top_logprobs": listed}]} if listed else None
    )
    return stream(event(content, logprobs=logprobs), event(finish="stop", usage=(50, 1)), DONE)


def thought() -> httpx.Response:
    return stream(event("It adds up."), event(finish="stop", usage=(40, 7)), DONE)


def ask(asked: Asked, *answers: Callable[[], httpx.Response]) -> tuple[Check, list[Any], list[str]]:
    server = Server(*answers)

    async def go() -> tuple[Check, list[str]]:
        chat = Chat(Endpoint(BASE, "m", None), Patience(retries=0), transport=server)
        check = await ChatJudge(chat).check(asked, SamplingParams(100, 0.7, seed=5))
        await chat.close()
        return check, chat.notes

    check, notes = asyncio.run(go())
    return check, server.bodies, notes


def test_a_server_with_logprobs_is_heard_by_them() -> None:
    check, (first, second), _ = ask(
        ONE, thought, lambda: verdict("No", {"No": log(0.5), " yes": log(0.1), "Yes": log(0.15)})
    )
    assert check == Check(pytest.approx(0.25 / 0.75), "It adds up.", 8, "probability")  # type: ignore[arg-type]
    assert "logprobs" not in first and (first["max_tokens"], first["temperature"]) == (100, 0.7)
    assert (second["logprobs"], second["top_logprobs"], second["temperature"]) == (True, 20, 1.0)
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][1]["content"] == "It adds up."


@pytest.mark.parametrize(("said", "value"), [("Yes.", 1.0), ("no", 0.0), ("Hm", 0.5)])
def test_a_server_without_logprobs_is_taken_at_its_word(said: str, value: float) -> None:
    assert ask(ONE, thought, lambda: verdict(said))[0] == Check(value, "It adds up.", 8, "word")


def cut(content: str) -> httpx.Response:
    return stream(event(content), event(finish="length", usage=(50, 16)), DONE)


@pytest.mark.parametrize("begun", ["<think>\nOkay, the user wants one word. No other text", ""])
def test_a_server_that_thinks_before_its_word_is_given_the_tokens_for_it(begun: str) -> None:
    """Thinking may stand in the reply, or be kept back; either way it was cut at the few tokens of a word."""
    whole = "<think>No other text? Yes or no.</think>\n\nYes"
    check, bodies, _ = ask(ONE, thought, lambda: cut(begun), lambda: verdict(whole))
    assert check == Check(1.0, "It adds up.", 7 + 16 + 1, "word")
    assert [body["max_tokens"] for body in bodies] == [100, 16, 116]
    unread, bodies, _ = ask(ONE, thought, lambda: cut(begun), lambda: cut("<think>No"))
    assert unread.unread and unread.value == 0.5 and len(bodies) == 3
    assert len(ask(ONE, thought, lambda: cut("Yes, because it"))[1]) == 2, "a word that can be read is enough"


def test_a_server_that_refuses_logprobs_is_asked_without_them() -> None:
    refused = httpx.Response(400, json={"error": {"message": "'top_logprobs' must be at most 5"}})
    check, bodies, notes = ask(TWO, thought, lambda: refused, lambda: verdict("B"))
    assert check.value == 0.0 and check.by == "word"
    assert "logprobs" in bodies[1] and not {"logprobs", "top_logprobs"} & set(bodies[2])
    assert "the word that it says counts" in notes[0]


@pytest.mark.parametrize(
    "logprobs", [[], {"content": 3}, {"content": [{"token": "Yes", "logprob": "x", "top_logprobs": 7}]}]
)
def test_logprobs_that_cannot_be_read_are_none(logprobs: Any) -> None:
    answer = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop", "logprobs": logprobs}]}
    check, _, _ = ask(
        ONE,
        thought,
        lambda: httpx.Response(200, content=json.dumps(answer), headers={"content-type": "application/json"}),
    )
    assert check == Check(1.0, "It adds up.", None, "word")


def test_who_can_judge() -> None:
    engine = ScriptedEngine()
    assert isinstance(judge_of(Player(engine, Rendering(engine.tokenizer))), TokenJudge)
    assert isinstance(judge_of(ChatPlayer(Chat(Endpoint(BASE, "m", None)))), ChatJudge)
    with pytest.raises(ConfigError, match="a judge must be a model or a chat server"):
        judge_of(lambda observation: None)  # type: ignore[arg-type, return-value]
