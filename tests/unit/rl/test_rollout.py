"""Many debates at once: how many, in what order, what a failing engine costs, and that chance does not depend on timing."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from moot.debate.play import Speak
from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import Ints, Sample, SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ContextOverflow, EngineError
from moot.rl.metrics import rollout_metrics, token_counts
from moot.rl.rollout import Player, rollout
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, turn_seed
from moot.tokens.turn import Advantages
from support.making import v1, v2

ENGINE = ScriptedEngine(style="mixed", seed=5)
RENDERING = Rendering(ENGINE.tokenizer)
PARAMS = SamplingParams(max_tokens=3000)


def debates(count: int, protocol: Protocol | None = None, rounds: int = 2) -> list[Debate]:
    return [
        Debate(Question(f"What is {i} + 4?", str(i + 4)), 3, rounds, (protocol or v2()).rules) for i in range(count)
    ]


class Watched:
    """A scripted sampler that can be slow, and can fail; it notes which debates are being sampled."""

    def __init__(
        self, style: str = "mixed", chance: random.Random | None = None, fails: dict[int, Exception] | None = None
    ) -> None:
        self._engine = ScriptedEngine(style=style, seed=5)  # type: ignore[arg-type]
        self._chance, self._fails = chance, fails or {}
        self.now: Counter[int] = Counter()
        self.calls: list[tuple[int, SamplingParams]] = []
        self.most_debates = self.most_calls = 0
        self.cancelled = 0

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        found = re.search(r"What is (\d+) \+ 4\?", RENDERING.decode(np.asarray(prompt, dtype=np.int32)))
        assert found
        number = int(found[1])
        self.calls.append((number, params))
        self.now[number] += 1
        self.most_debates = max(self.most_debates, sum(count > 0 for count in self.now.values()))
        self.most_calls = max(self.most_calls, sum(self.now.values()))
        try:
            await asyncio.sleep(self._chance.random() / 200 if self._chance else 0)
            if number in self._fails:
                raise self._fails[number]
            return await self._engine.sample(prompt, params, num_samples)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now[number] -= 1

    async def compute_logprobs(self, tokens: Sequence[int] | Ints) -> np.ndarray:
        raise NotImplementedError


def run(batch: list[Debate], sampler: object, **options: object) -> list[PlayedDebate]:
    return asyncio.run(asyncio.wait_for(rollout(batch, sampler, RENDERING, PARAMS, **options), 120))  # type: ignore[arg-type]


def texts(played: list[PlayedDebate]) -> list[list[str]]:
    return [[turn.text for turn in each.debate.turns] for each in played]


# How many at once


@pytest.mark.parametrize("concurrency", [1, 4])
def test_at_most_so_many_debates_are_sampled_at_once(concurrency: int) -> None:
    sampler = Watched(chance=random.Random(1))
    played = run(debates(20), sampler, concurrency=concurrency)
    assert len(played) == 20
    assert sampler.most_debates == concurrency
    assert sampler.most_calls <= 3 * concurrency


def test_without_a_bound_in_the_way_all_are_sampled_at_once() -> None:
    sampler = Watched(chance=random.Random(1))
    run(debates(20), sampler)
    assert (sampler.most_debates, sampler.most_calls) == (20, 60)


def test_results_stand_in_the_order_of_the_debates_and_each_is_reported_when_finished() -> None:
    reported: list[int] = []
    played = run(debates(12), Watched(chance=random.Random(2)), finished=lambda number, result: reported.append(number))
    assert [each.debate.question.text for each in played] == [f"What is {i} + 4?" for i in range(12)]
    assert sorted(reported) == list(range(12))


# An engine that fails


@pytest.mark.parametrize("error", [EngineError("no answer for 600 s"), ContextOverflow("9000 tokens")])
def test_a_debate_that_meets_an_engine_error_ends_alone_with_its_reason(error: EngineError) -> None:
    played = run(debates(6), Watched(fails={2: error}))
    assert [each.error for each in played] == [None, None, f"{type(error).__name__}: {error}", None, None, None]
    assert played[2].sampled == ()
    assert all(each.debate.done and len(each.sampled) == 6 for i, each in enumerate(played) if i != 2)
    assert texts(played)[3:] == texts(run(debates(6), Watched()))[3:], "the others are what they would have been"


def test_the_other_agents_of_a_lost_round_are_not_waited_for() -> None:
    class OneFails(Watched):
        async def sample(
            self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1
        ) -> list[Sample]:
            self.calls.append((0, params))
            if len(self.calls) == 1:
                raise EngineError("gone")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            raise AssertionError("waited a minute")

    sampler = OneFails()
    (played,) = run(debates(1), sampler)
    assert played.error == "EngineError: gone"
    # The two others had started, or had not: either way nobody waits.
    assert sampler.cancelled == len(sampler.calls) - 1


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), KeyError("x"), AssertionError("no")])
def test_our_own_mistakes_are_loud(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        run(debates(6), Watched(fails={2: error}))
    assert raised.value is error


# Chance


def test_the_same_seed_gives_the_same_debates_whatever_the_timing() -> None:
    quick = run(debates(10), Watched(), seed=7)
    slow = run(debates(10), Watched(chance=random.Random(3)), seed=7, concurrency=3)
    assert texts(quick) == texts(slow)
    for a, b in zip(quick, slow, strict=True):
        for one, two in zip(a.sampled, b.sampled, strict=True):
            assert np.array_equal(one.tokens, two.tokens)
            assert np.array_equal(one.prompt, two.prompt)
            assert np.array_equal(one.logprobs, two.logprobs)


def test_another_seed_gives_other_debates() -> None:
    assert texts(run(debates(4), Watched(), seed=7)) != texts(run(debates(4), Watched(), seed=8))


def test_every_turn_has_a_seed_of_its_own() -> None:
    sampler = Watched(style="well_formed")
    run(debates(5), sampler, seed=1)
    seeds = [params.seed for _, params in sampler.calls]
    assert len(seeds) == len(set(seeds)) == 5 * 6
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)


def test_without_a_seed_the_engine_chooses() -> None:
    sampler = Watched(style="well_formed")
    run(debates(1), sampler, seed=None)
    assert {params.seed for _, params in sampler.calls} == {None}


def test_a_turns_seed_depends_on_what_it_is() -> None:
    """The numbers are those of the first version: a seed that changed would make a continued run another run."""
    assert (turn_seed(0, 1, 2), turn_seed("7/3", 2, 0)) == (971120508, 1703124489)
    assert len({turn_seed(a, b, c) for a in range(5) for b in range(5) for c in range(5)}) == 125
    assert turn_seed("1", "12") != turn_seed("11", "2")


# What is asked of the engine


def test_personas_are_sampled_at_their_temperatures_and_datums_will_know() -> None:
    sampler = Watched(style="well_formed")
    (played,) = run(debates(1, rounds=1), sampler)
    assert sorted(params.temperature for _, params in sampler.calls) == [0.6, 0.9, 1.0]
    assert [turn.temperature for turn in played.sampled] == [0.6, 1.0, 0.9]


def test_an_engine_that_cannot_train_tempered_samples_at_its_own_temperature() -> None:
    sampler = Watched(style="well_formed")
    (played,) = run(debates(1, rounds=1), sampler, tempered=False)
    assert {params.temperature for _, params in sampler.calls} == {1.0}
    assert {turn.temperature for turn in played.sampled} == {1.0}


def test_training_samples_without_top_p_and_top_k_and_stops_on_the_renderers_ids_alone() -> None:
    sampler = Watched(style="well_formed")
    run(debates(1), sampler)
    for _, params in sampler.calls:
        assert (params.top_p, params.top_k, params.max_tokens) == (1.0, -1, 3000)
        assert params.stop == RENDERING.stop_ids
        assert all(isinstance(stop, int) for stop in params.stop)


# What comes back


def test_sampled_turns_stand_in_the_order_of_the_debates_turns_and_spell_their_text() -> None:
    for protocol in (v2(), v2(schedule="sequential"), v1(on_parse_failure="continue")):
        for each in run(debates(3, protocol), Watched()):
            assert len(each.sampled) == len(each.debate.turns)
            for turn, sampled in zip(each.debate.turns, each.sampled, strict=True):
                assert RENDERING.said(sampled.tokens)[0] == turn.text
                assert len(sampled.tokens) == len(sampled.logprobs) == len(sampled.starts)


def test_turns_after_an_abort_are_not_kept() -> None:
    """A parallel round that is aborted drops the turns of higher numbers; so does what was sampled."""
    played = run(debates(40, v1(schedule="parallel")), Watched(style="hostile"))
    dropped = [each for each in played if each.debate.aborted and len(each.debate.turns) % 3]
    assert dropped, "some debate must end in the middle of a round"
    assert all(len(each.sampled) == len(each.debate.turns) for each in played)


def test_tokens_are_counted_once() -> None:
    (played,) = run(debates(1), Watched(style="well_formed"))
    sampled, read = token_counts([played])
    assert sampled == sum(len(turn.tokens) for turn in played.sampled)
    assert read == sum(len(turn.prompt) for turn in played.sampled)


def answer(whole: str, reason: str, stop: tuple[str, ...] | tuple[int, ...]) -> bool:
    """Whether a response is readable that came back with this stop reason from an engine asked to stop so."""

    class Says:
        async def sample(self, prompt: object, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
            ids = np.asarray(ENGINE.tokenizer.encode(whole), dtype=np.int32)
            return [Sample(ids, np.zeros(len(ids), dtype=np.float32), reason)]  # type: ignore[arg-type]

    rendering = Rendering(ENGINE.tokenizer)
    rendering.stop_ids = tuple(each for each in stop if isinstance(each, int))
    assert rendering.stops("three_tag") == stop
    speaker = TokenSpeaker(Says(), rendering, PARAMS)  # type: ignore[arg-type]
    debate = Debate(Question("q"), 1, 1, v2().rules)
    said = asyncio.run(speaker(debate.observe(0)))
    return not debate.advance({0: said}).turns[0].failed


def test_a_missing_last_tag_is_forgiven_only_where_a_stop_string_took_it() -> None:
    cut = "<solution>7</solution><evaluation>N/A</evaluation><comparison>N/A"
    strings, ids = ("</comparison>",), (257,)
    assert answer(cut, "stop", strings)
    assert not answer(cut, "length", strings), "cut at its token limit"
    assert not answer(cut, "stop", ids), "the end-of-turn token is not the closing tag"
    assert not answer(cut, "length", ids)
    assert all(answer(cut + "</comparison>", reason, stop) for reason in ("stop", "length") for stop in (strings, ids))


# Seats held by somebody else


def test_a_guest_takes_its_seat_and_only_the_policy_is_trained_on() -> None:
    guest = ScriptedEngine(style="well_formed", seed=9)

    async def text_only(observation: Observation) -> Said:
        return Said("<solution>\\boxed{1}</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>")

    def seats(number: int, seat: int) -> Player | Speak | None:
        return {1: Player(guest, RENDERING, learns=False), 2: text_only}.get(seat)

    (alone,) = run(debates(1), ENGINE)
    (mixed,) = run(debates(1), ENGINE, seats=seats)
    said = {(turn.round, turn.agent): turn.text for turn in mixed.debate.turns}
    assert said[1, 0] == alone.debate.turns[0].text
    assert said[1, 2] == said[2, 2] and "\\boxed{1}" in said[1, 2]
    assert [turn.learns for turn in mixed.sampled] == [True, False, False] * 2
    assert [len(turn.tokens) > 0 for turn in mixed.sampled] == [True, True, False] * 2
    flat = Advantages.per_agent((1.0, -1.0, 2.0))
    assert [datum.advantages.max() for datum in datums(mixed.debate, mixed.sampled, flat)] == [1.0]
    assert len(datums(alone.debate, alone.sampled, flat)) == 3


# Ballots and outside judges


def test_a_ballot_stops_at_its_own_last_tag_where_stops_are_strings() -> None:
    """Five sections end with consensus_reason, a ballot with comparison. Token ids, where a renderer has them, stand alone in both."""
    strings = Rendering(ENGINE.tokenizer)
    strings.stop_ids = ()
    for rendering, answer_stop, ballot_stop in (
        (strings, ("</consensus_reason>",), ("</comparison>",)),
        (RENDERING, RENDERING.stop_ids, RENDERING.stop_ids),
    ):
        sampler = Watched(style="well_formed")
        batch = debates(1, v1(closing_ballot=True, on_parse_failure="continue"), rounds=1)
        (played,) = asyncio.run(rollout(batch, sampler, rendering, PARAMS))  # type: ignore[arg-type]
        assert [params.stop for _, params in sampler.calls] == [answer_stop] * 3 + [ballot_stop] * 3
        assert [turn.ballot for turn in played.debate.turns] == [False] * 3 + [True] * 3
        assert not any(turn.failed for turn in played.debate.turns)
        assert len(played.sampled) == 6


def test_a_growing_debate_with_a_ballot_is_still_one_datum_an_agent() -> None:
    (played,) = run(debates(1, v2(closing_ballot=True)), Watched(style="well_formed"))
    assert [turn.extends for turn in played.sampled] == [False] * 3 + [True] * 6
    found = datums(played.debate, played.sampled, Advantages.per_agent((1.0, 2.0, 3.0)))
    assert len(found) == 3
    assert sum(int(datum.mask.sum()) for datum in found) == token_counts([played])[0]


def test_outside_judges_are_heard_after_the_debate_and_never_trained_on() -> None:
    asked: list[Observation] = []

    async def text_only(observation: Observation) -> Said:
        asked.append(observation)
        return Said("<evaluation>Fine.</evaluation><comparison>Agent 0 > Agent 1</comparison>")

    judge = Player(ScriptedEngine(style="well_formed", seed=9), RENDERING)
    plain = run(debates(3), ScriptedEngine(style="well_formed", seed=5))
    heard = run(
        debates(3), ScriptedEngine(style="well_formed", seed=5), judges=lambda number: [judge, text_only][:number]
    )
    assert texts(heard) == texts(plain)
    assert [len(each.debate.jury) for each in heard] == [0, 1, 2]
    assert [[turn.agent for turn in each.debate.jury] for each in heard] == [[], [3], [3, 4]]
    assert not any(turn.failed for each in heard for turn in each.debate.jury)
    assert len(asked) == 1
    assert [[len(turn.tokens) > 0 for turn in each.heard] for each in heard] == [[], [True], [True, False]]
    assert not any(turn.learns for each in heard for turn in each.heard)
    assert token_counts(heard) == token_counts(plain), "what the judges cost is counted apart"
    flat = Advantages.per_agent((1.0, -1.0, 2.0))
    for before, after in zip(plain, heard, strict=True):
        one, two = (datums(each.debate, each.sampled, flat) for each in (before, after))
        assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True))
    found = rollout_metrics(heard)
    spent = sum(len(turn.tokens) for each in heard for turn in each.heard)
    assert (found["jury/ballots"], found["jury/parse_error"], found["tokens/jury"]) == (3.0, 0.0, float(spent))
    assert {key: found[key] for key in rollout_metrics(plain)} == rollout_metrics(plain)


def test_the_same_seed_gives_the_same_ballots() -> None:
    judge = Player(ScriptedEngine(style="mixed", seed=9), RENDERING)
    one, two = (
        run(debates(6), Watched(chance=random.Random(i)), seed=3, judges=lambda _: [judge, judge]) for i in range(2)
    )
    assert [[turn.text for turn in each.debate.jury] for each in one] == [
        [turn.text for turn in each.debate.jury] for each in two
    ]


def test_a_debate_whose_judge_is_lost_is_lost() -> None:
    """Its votes would be missing from the reward, so it is recorded with the reason and left out."""
    judge = Player(Watched(fails={1: EngineError("gone")}), RENDERING)  # type: ignore[arg-type]
    played = run(debates(3), ENGINE, judges=lambda _: [judge])
    assert [each.error for each in played] == [None, "EngineError: gone", None]
