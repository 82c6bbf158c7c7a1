"""Replies that are kept: what is damaged is asked for again."""

import asyncio
import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from moot.players.chat.reading import Reply
from moot.players.memory import Replies

SAID = asdict(Reply("4", "stop", prompt_tokens=3, completion_tokens=1, first_token={"4": -0.1}))
DAMAGED: list[Any] = [
    None, 3, "text", [], {}, {"text": "4"}, {**SAID, "text": 4}, {**SAID, "prompt_tokens": 10**400},
    {**SAID, "finish": None}, {**SAID, "of_tomorrow": 1}, {**SAID, "first_token": {"4": "high"}},
    {**SAID, "first_token": [1]}, {**SAID, "completion_tokens": "1"}, {"samples": []}, {"samples": 3},
    {"samples": [[[1, "2"], "stop"]]}, {"samples": [[[10**30], "stop"]]}, {"samples": [[[1], None]]},
]  # fmt: skip


async def _never() -> dict[str, Any]:
    raise AssertionError("this is asked again")


def replied(file: Path, asked: Any) -> dict[str, Any]:
    with closing(Replies(file)) as replies:
        return asyncio.run(replies.of(asked, _never))


@pytest.mark.parametrize("reply", [SAID, {"samples": [[[1, 2], "stop"]]}])
def test_a_reply_is_found_again_and_a_damaged_one_is_asked_for_again(tmp_path: Path, reply: dict[str, Any]) -> None:
    file = tmp_path / "replies.jsonl"

    async def answer() -> dict[str, Any]:
        return reply

    with closing(Replies(file)) as replies:
        asyncio.run(replies.of("one", answer))
    assert replied(file, "one") == reply
    (line,) = file.read_text().splitlines()
    for damaged in DAMAGED:
        file.write_text(json.dumps({**json.loads(line), "reply": damaged}) + "\n")
        with pytest.raises(AssertionError, match="asked again"):
            replied(file, "one")
