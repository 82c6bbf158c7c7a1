"""Frozen checkpoints of the run hold a seat, for when the vote drifts into a private code."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.engine.protocol import Capabilities, Sampler
from moot.errors import ConfigError
from moot.players.checkpoints import checkpoints, newest_whole
from moot.rl.rollout import Player, Seats
from moot.settings.train import TrainConfig
from moot.training.part import Part
from moot.training.state import Setup

MOST_PAST_SELVES = 8
"""Each holds its weights in memory."""


class PastSelves(Part):
    """A frozen checkpoint of the run holds one seat in a share of debates. Untried."""

    @dataclass(frozen=True)
    class Settings:
        share: Annotated[float, Field(ge=0, le=1)] = 0.2
        """Share of debates in which one seat is held by one of at most eight checkpoints that were kept, from the whole
        of the run."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.players: dict[int, Player] = {}
        """Kept checkpoints that may hold a seat, by step; few, however long the run."""

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        if not capabilities.frozen_samplers:
            raise ConfigError("past_selves must be left out on this server: its samplers do not keep their weights")

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """The kept checkpoints up to the newest take their seats again, oldest first."""
        chosen, newest = past_steps(setup.config, step), newest_whole(setup.run, step) if step else None
        if newest is None or not chosen:
            return
        for past in reversed(list(checkpoints(setup.run))):
            if past.state is not None and past.step in chosen:
                await setup.engine.load_state(past.engine_state)
                self._seat(setup, past.step, await setup.engine.snapshot())
        await setup.engine.load_state(newest.engine_state)

    def seats(self, setup: Setup, seed: str) -> Seats | None:
        return seats_of_past_selves(
            list(self.players.values()), self.settings.share, seed, setup.config.debate.num_agents
        )

    def committed(self, setup: Setup, step: int, sampler: Sampler) -> None:
        if setup.config.is_kept(step):
            self._seat(setup, step, sampler)

    def _seat(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """The policy of `step` takes its place among those that may hold a seat, and others make room."""
        self.players[step] = setup.guest(sampler)
        chosen = past_steps(setup.config, max(self.players))
        self.players = {past: player for past, player in self.players.items() if past in chosen}


def past_steps(config: TrainConfig, step: int) -> list[int]:
    """Up to `step`, the kept steps that may hold a seat: every one while they are few, then every second, every fourth
    and so on. So the whole run is represented, and weights that were let go are never needed again."""
    kept = [past for past in range(config.warm_steps + 1, step + 1) if config.is_kept(past)]
    stride = 1
    while len(kept[::stride]) > MOST_PAST_SELVES:
        stride *= 2
    return kept[::stride]


def seats_of_past_selves(players: Sequence[Player], share: float, seed: str, num_agents: int) -> Seats | None:
    """In a share of debates one seat, drawn by lot, goes to one of the past selves."""
    if not players or not share:
        return None

    def seats(number: int, seat: int) -> Player | None:
        rng = random.Random(f"{seed}/past/{number}")
        taken, taker = rng.random() < share, rng.choice(players)
        return taker if taken and seat == rng.randrange(num_agents) else None

    return seats
