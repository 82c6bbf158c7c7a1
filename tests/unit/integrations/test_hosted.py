"""A host's loop plays the seats of a debate: it is asked what moot asks, paid what moot pays, and never left waiting."""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from moot.debate.types import Question
from moot.errors import ConfigError, EngineError
from moot.integrations.hosted import (
    HostedDebate,
    Setting,
    rendering_of,
    replay,
    seat_metrics,
    seat_rewards,
    turn_rewards,
    with_logprobs,
)
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from support.hosted_model import SETTINGS, own_datums, own_debates, reply, save_tokenizer
from support.making import FAILED, debate, text, v2
from support.stressing import answered, seeds, tell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


Sampled = tuple[list[int], Literal["stop", "length"]]


async def hosted_by(
    debate: HostedDebate, seats: int, sampled: Callable[[int, list[int]], Sampled], first: int = 0
) -> list[int]:
    """A host that plays all seats at once, beginning with any of them. How often each was asked."""
    asked = [0] * seats

    async def play(seat: int) -> None:
        while (request := await debate.request(seat)) is not None:
            asked[seat] += 1
            debate.reply(seat, *sampled(seat, request.prompt.tolist()))

    await asyncio.gather(*(play((seat + first) % seats) for seat in range(seats)))
    return asked


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("first", [0, 2])
def test_the_seats_of_a_host_make_the_debate_that_moot_plays(name: str, first: int, folder: str) -> None:
    setting = SETTINGS[name]
    own = asyncio.run(own_debates(folder, setting))[0]

    async def play() -> tuple[list[int], PlayedDebate]:
        hosted = HostedDebate(setting.debate(setting.loaded_task.train(0)), rendering_of(folder, "qwen3"))
        asked = await hosted_by(hosted, 3, lambda seat, prompt: reply(folder, prompt)[::2], first)
        return asked, await setting.scored(hosted.played)

    asked, played = asyncio.run(play())
    # In "asked", turns have one, two and one part, and the evaluation is a part of its own in the second.
    assert asked == {"asked": [6, 6, 6]}.get(name, [2, 2, 2])
    assert played.debate.turns == own.debate.turns
    assert seat_rewards(played) == seat_rewards(own)
    for one, other in zip(own_datums(played), own_datums(own), strict=True):
        assert {**one, "logprobs": None} == {**other, "logprobs": None}


def said(rendering: Rendering, what: str) -> list[int]:
    return [*rendering.tokenizer.encode(what, add_special_tokens=False), rendering.stop_ids[0]]


def test_a_seat_that_was_never_asked_before_an_abort_has_no_request(folder: str) -> None:
    rendering = rendering_of(folder, "qwen3")

    async def play() -> tuple[list[int], PlayedDebate]:
        hosted = HostedDebate(Setting(protocol="v1").debate(Question("2 + 2?", "4")), rendering)
        return await hosted_by(
            hosted, 3, lambda seat, prompt: (said(rendering, "nothing that can be read"), "stop")
        ), hosted.played

    asked, played = asyncio.run(play())
    assert asked == [1, 0, 0]
    assert [turn.failed for turn in played.debate.turns] == [True]


def test_a_reply_whose_turn_was_not_kept_belongs_to_none(folder: str) -> None:
    """All speak at once, the second cannot be read, and the debate ends there: the third's words are heard by nobody."""
    rendering = rendering_of(folder, "qwen3")

    async def play() -> list[list[int | None]]:
        hosted = HostedDebate(Setting(choices={"on_parse_failure": "abort"}).debate(Question("2 + 2?", "4")), rendering)
        assert await hosted_by(
            hosted, 3, lambda seat, prompt: (said(rendering, "?" if seat == 1 else text()), "stop")
        ) == [1, 1, 1]
        return [hosted.turn_of_each_reply(seat) for seat in range(3)]

    assert asyncio.run(play()) == [[0], [0], [None]]


def test_whoever_waits_is_told_when_a_debate_is_given_up(folder: str) -> None:
    async def play() -> None:
        hosted = HostedDebate(Setting().debate(Question("2 + 2?", "4")), rendering_of(folder, "qwen3"))
        requests = [await hosted.request(seat) for seat in range(3)]
        assert all(requests)
        hosted.reply(0, said(rendering_of(folder, "qwen3"), text()))
        waiting = asyncio.create_task(hosted.request(0))
        await asyncio.sleep(0)
        with pytest.raises(EngineError, match="the debate is not over"):
            _ = hosted.played
        hosted.give_up()
        with pytest.raises(EngineError, match="the debate was given up"):
            await waiting
        with pytest.raises(EngineError, match="the debate was given up"):
            await hosted.request(1)

    asyncio.run(play())


@pytest.mark.parametrize("asked", [False, True])
def test_a_debate_that_is_given_up_before_its_first_step_keeps_nobody_waiting(folder: str, asked: bool) -> None:
    async def play() -> None:
        hosted = HostedDebate(Setting().debate(Question("2 + 2?", "4")), rendering_of(folder, "qwen3"))
        waiting = [asyncio.create_task(hosted.request(seat)) for seat in range(2)] if asked else []
        await asyncio.sleep(0)  # they have asked, and the debate is a task without a step
        hosted.give_up()
        hosted.give_up()
        for request in (*waiting, hosted.request(0), hosted.request(2)):
            with pytest.raises(EngineError, match="the debate was given up"):
                await answered(request, "a seat of a debate that was given up")
        with pytest.raises(EngineError, match="the debate is not over"):
            _ = hosted.played

    asyncio.run(play())


def test_no_seat_waits_for_ever_wherever_a_host_gives_up_or_is_cancelled(folder: str) -> None:
    rendering, counts = rendering_of(folder, "qwen3"), Counter[str]()

    async def seat_of(hosted: HostedDebate, seat: int) -> None:
        while await hosted.request(seat) is not None:
            counts["requests"] += 1
            await asyncio.sleep(0)
            hosted.reply(seat, said(rendering, text()))

    async def play(seed: int) -> None:
        rng = random.Random(seed)
        hosted = HostedDebate(Setting(protocol=rng.choice(["v1", "v2"])).debate(Question("2 + 2?", "4")), rendering)
        seats = [asyncio.create_task(seat_of(hosted, seat)) for seat in range(3)]
        for _ in range(rng.randrange(14)):
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            seats[rng.randrange(3)].cancel()
            await asyncio.sleep(0)
        hosted.give_up()
        for task in seats:
            try:
                await answered(task, f"a seat, seed {seed}")
                counts["over"] += 1
            except (EngineError, asyncio.CancelledError) as error:
                counts[type(error).__name__] += 1

    for seed in seeds(50):
        asyncio.run(play(seed))
    tell("hosted", counts)
    assert min(counts[name] for name in ("requests", "over", "EngineError", "CancelledError")) > 10, counts


def test_a_replay_has_the_tokens_of_a_debate_or_says_that_they_are_others(folder: str) -> None:
    rendering, setting = rendering_of(folder, "qwen3"), Setting()
    own = asyncio.run(own_debates(folder, setting))[0]
    replies = [
        [(own.sampled[i].tokens.tolist(), own.sampled[i].stop_reason == "length") for i in turns]
        for turns in own.debate.turns_by_agent()
    ]
    replayed = asyncio.run(replay(own.debate, rendering, replies))
    assert replayed is not None
    assert [turn.tokens.tolist() for turn in replayed.played.sampled] == [turn.tokens.tolist() for turn in own.sampled]

    thinking = [[(said(rendering, "<think>Hm.</think>") + tokens, cut) for tokens, cut in own] for own in replies]
    assert asyncio.run(replay(own.debate, rendering, thinking)) is None
    assert asyncio.run(replay(own.debate, rendering, [replies[0][:1], *replies[1:]])) is None


def scored(played: PlayedDebate, setting: Setting) -> PlayedDebate:
    return asyncio.run(setting.scored(played))


def test_a_turn_is_paid_the_weighted_sum_of_its_streams_and_a_seat_the_sum_of_its_turns() -> None:
    # Agent 0 prefers agent 1's first answer to agent 2's; agent 2 cannot be read in round 2.
    played = PlayedDebate(debate(v2(), [["", "", ""], ["1 > 2", "", FAILED]]))
    setting = Setting(choices={"lambda_judge": 0.5})
    # Agent 0 votes with the majority, which is itself: 1 x 0.5. Agent 1 compares nobody in round 2: -0.5 x 0.5. A failed turn costs 1.
    assert turn_rewards(scored(played, setting)) == [[0.0, 0.5], [1.0, -0.25], [-1.0, -1.0]]
    assert seat_rewards(scored(played, setting)) == [0.5, 0.75, -2.0]


def test_a_reward_of_the_whole_debate_is_no_turns() -> None:
    played = scored(
        PlayedDebate(debate(v2(), [["", "", ""], ["1 > 2", "", FAILED]])), Setting(choices={"reward": "win_rate"})
    )
    assert turn_rewards(played) is None
    assert seat_rewards(played) == [0.0, 1.0, -1.0]  # a failed turn costs 1


def test_metrics_of_a_seat() -> None:
    played = scored(
        PlayedDebate(debate(v2(), [["", "", ""], ["1 > 2", "", FAILED]], [["5", "7", "6"]] * 2, "7")), Setting()
    )
    assert seat_metrics(played, 1) == {"seat": 1, "turns": 2, "failed_turns": 0, "won": 1, "correct": 1}
    assert seat_metrics(played, 2) == {"seat": 2, "turns": 2, "failed_turns": 1, "won": 0, "correct": 0}


def test_the_hosts_logprobs_stand_on_sampled_tokens_alone(folder: str) -> None:
    turn = asyncio.run(own_debates(folder, SETTINGS["asked"]))[0].sampled[3]
    assert turn.inserted is not None and turn.inserted.any()
    count = int(turn.sampled.sum())
    filled = with_logprobs(turn, [-0.5] * count)
    assert np.array_equal(filled.logprobs, np.where(turn.sampled, np.float32(-0.5), np.float32(0)))


def test_a_setting_is_plain_data_and_refuses_what_a_host_cannot_play() -> None:
    setting = Setting(choices={"reward": "win_rate"})
    assert pickle.loads(pickle.dumps(setting)) == setting
    with pytest.raises(ConfigError, match="sections 'given' cuts what was sampled"):
        Setting(choices={"sections": "given"})
    with pytest.raises(ConfigError, match="voters 'judges' needs judges without a seat"):
        Setting(choices={"voters": "judges"})
    with pytest.raises(ConfigError, match="positions 'assigned' needs a judge without a seat"):
        Setting(protocol="advocates")


@pytest.mark.parametrize(("module", "package", "install"), [
    ("cookbook_env", "tinker_cookbook.rl.types", "the package tinker-cookbook; run: pip install tinker-cookbook"),
    ("verifiers_env", "verifiers.v1", "the package verifiers; run: pip install 'verifiers>=0.4'"),
])  # fmt: skip
def test_without_its_package_a_module_says_which_one_to_install(
    module: str, package: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"moot.integrations.{module}", raising=False)
    with pytest.raises(ImportError) as refused:
        __import__(f"moot.integrations.{module}")
    assert install in str(refused.value)
