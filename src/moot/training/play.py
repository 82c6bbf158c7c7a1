"""The debates of a batch, played by the policy and by whoever else a part gives a seat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moot.debate.state import Debate
from moot.engine.protocol import Sampler, SamplingParams
from moot.judges.checking import checking
from moot.rl.rollout import Guest, Judges, Seats, rollout
from moot.settings.train import section_limits
from moot.tasks.answers import settled_by
from moot.tokens.played import PlayedDebate
from moot.training.state import Batch, BatchQuestion, Progress, Setup


async def play_batch(
    setup: Setup, progress: Progress, step: int, asked: list[BatchQuestion], sampler: Sampler, wave: str = ""
) -> Batch:
    """The questions that are worth a debate, and their debates. `wave` tells further questions of a step from its
    first."""
    tokens = 0
    for part in setup.parts:
        asked, cost = await part.chosen(setup, progress, step, asked)
        tokens += cost
    return Batch(asked, await _self_play(setup, step, asked, sampler, wave), tokens)


async def _self_play(
    setup: Setup, step: int, asked: Sequence[BatchQuestion], sampler: Sampler, wave: str
) -> list[PlayedDebate]:
    d, seed = setup.config.debate, f"{setup.config.seed}/{step}{wave}"
    debates = [_new_debate(setup, question) for question in asked]
    most = max((debate.num_agents for debate in debates), default=d.num_agents)  # more than usual where a part says so
    return await rollout(
        debates,
        sampler,
        setup.rendering,
        SamplingParams(max_tokens=d.max_tokens),
        tempered=setup.tempered,
        seed=seed,
        seats=_seats(setup, seed),
        judges=_judges(setup),
        checking=checking(setup.reward, lambda number: setup.tasks[asked[number].level], d.evaluation_tokens, seed),
        limits=section_limits(d.evaluation_tokens, most),
        finished=lambda _, done: setup.watcher.debate_finished(done),
    )


def _new_debate(setup: Setup, asked: BatchQuestion) -> Debate:
    task = setup.tasks[asked.level]
    question, settings = task.train(asked.number), dict[str, object]()
    for part in setup.parts:
        question, settings = part.question(asked, question), settings | dict(part.debate_settings())
    empty = replace(
        setup.config.empty_debate(question), num_agents=asked.num_agents, settled=settled_by(task.equal, task.extract)
    )
    return replace(empty, **settings)  # type: ignore[arg-type]


def _seats(setup: Setup, seed: str) -> Seats | None:
    """Of several parts that fill a seat, the first."""
    given = [seats for part in setup.parts if (seats := part.seats(setup, seed)) is not None]

    def seat_of(number: int, seat: int) -> Guest | None:
        return next((guest for seats in given if (guest := seats(number, seat)) is not None), None)

    return seat_of if given else None


def _judges(setup: Setup) -> Judges | None:
    if (judge := setup.outside_judge()) is None:
        return None
    judges: Judges = lambda number: [judge]  # noqa: E731 - typed, and as short as it is
    for part in setup.parts:
        judges = part.judges(judges)
    return judges
