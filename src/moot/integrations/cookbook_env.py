"""Debates as environments of the tinker-cookbook: a debate is a group, and each seat of it an `Env`.

The group's rewards come from the votes, so the cookbook's own centring over a group is moot's `center_group` wherever a
reward is the whole debate's. `DebateGroupBuilder.datums` has the credit per turn and section that the cookbook's own
datums cannot hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moot.debate.typed_fields import names_of
from moot.debate.types import Question
from moot.engine.protocol import Datum
from moot.errors import ConfigError, EngineError
from moot.integrations.hosted import (
    HostedDebate,
    Request,
    Setting,
    rendering_of,
    seat_metrics,
    seat_rewards,
    turn_rewards,
    with_logprobs,
)
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate

try:
    import chz
    import tinker
    from tinker_cookbook.rl.types import (
        PARSE_ERROR_MASKED_METRIC_KEY,
        Env,
        EnvGroupBuilder,
        InitialObservationOverflow,
        RLDataset,
        RLDatasetBuilder,
        StepResult,
        Trajectory,
        TrajectoryGroup,
    )
except ImportError as error:
    missing = f"{__name__} needs the package tinker-cookbook"
    raise ImportError(f"{missing}; run: pip install tinker-cookbook ({error})") from error


class SeatEnv(Env):
    """One seat. The seats of a debate wait for each other, so the loop must play a group's environments at once, as the
    cookbook does."""

    def __init__(self, hosted: HostedDebate, seat: int) -> None:
        self.hosted, self.seat = hosted, seat

    async def initial_observation(self) -> Any:
        request = await self.hosted.request(self.seat)
        # A debate that was aborted before this seat spoke: an episode without tokens.
        return InitialObservationOverflow(reward=0.0) if request is None else _as_input(request)

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        self.hosted.reply(self.seat, action, (extra or {}).get("stop_reason", "stop"))
        request = await self.hosted.request(self.seat)
        over = request is None
        observation, stop = (tinker.ModelInput.empty(), []) if request is None else _as_input(request)
        return StepResult(reward=0.0, episode_done=over, next_observation=observation, next_stop_condition=stop)


def _as_input(request: Request) -> tuple[tinker.ModelInput, list[Any]]:
    return tinker.ModelInput.from_ints(request.prompt.tolist()), list(request.stop)


@dataclass
class DebateGroupBuilder(EnvGroupBuilder):
    """One question as a group of seats."""

    question: Question
    setting: Setting
    model: str
    """The hub id or folder of the tokenizer, by which the chat format is chosen too."""
    renderer: str = "auto"
    played: PlayedDebate | None = field(default=None, init=False)
    """The debate with its votes, rewards and advantages, once it is over."""
    _hosted: HostedDebate | None = field(default=None, init=False, repr=False)
    _finished: HostedDebate | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hosted": None, "_finished": None}

    async def make_envs(self) -> Sequence[Env]:
        if self._hosted is not None:
            self._hosted.give_up()
            why = "a seat cannot be played again without the others of its debate"
            raise EngineError(f"{why}; use the rollout strategy FailFast")
        self._hosted = HostedDebate(self.setting.debate(self.question), rendering_of(self.model, self.renderer))
        return [SeatEnv(self._hosted, seat) for seat in range(self.setting.num_agents)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Any]
    ) -> list[tuple[float, dict[str, Any]]]:
        """Rewards per turn are written to the transitions; what is the whole debate's comes as the group's reward."""
        assert self._hosted is not None
        self.played = await self.setting.scored(self._hosted.played)
        by_turn, totals = turn_rewards(self.played), seat_rewards(self.played)
        paid = []
        for trajectory, env in zip(trajectory_group, env_group, strict=True):
            turns = self._hosted.turn_of_each_reply(env.seat)
            for i, (transition, turn) in enumerate(zip(trajectory.transitions, turns, strict=False)):
                if turn is None:  # the debate had ended: nobody is taught this turn
                    transition.metrics[PARSE_ERROR_MASKED_METRIC_KEY] = 1.0
                elif by_turn is not None and turn not in turns[i + 1 :]:
                    transition.reward = by_turn[env.seat][turn]
            paid.append((totals[env.seat] if by_turn is None else 0.0, seat_metrics(self.played, env.seat)))
        return paid

    async def cleanup(self) -> None:
        if self._hosted is not None:
            self._hosted.give_up()
        self._finished, self._hosted = self._hosted, None

    def logging_tags(self) -> list[str]:
        return ["debate", self.setting.task]

    def datums(self, group: TrajectoryGroup) -> list[tinker.Datum]:
        """What `moot train` would train on: the cookbook's tokens, masks and logprobs, with an advantage per turn and
        section.

        For the group that this builder played last, in this process; in place of the cookbook's
        `assemble_training_data`.
        """
        if self.played is None or self.played.advantages is None or self._finished is None:
            needs = "datums needs the group that this builder played, in this process"
            raise ConfigError(f"{needs}; play it with do_group_rollout first")
        logprobs: dict[tuple[int, int], list[float]] = {}
        for trajectory, metrics in zip(group.trajectories_G, group.metrics_G, strict=True):
            seat = int(metrics["seat"])
            for transition, turn in zip(trajectory.transitions, self._finished.turn_of_each_reply(seat), strict=False):
                if turn is not None:
                    logprobs.setdefault((seat, turn), []).extend(transition.ac.logprobs)
        sampled = list(self.played.sampled)
        for seat, turns in enumerate(self.played.debate.turns_by_agent()):
            for step, i in enumerate(turns):
                sampled[i] = with_logprobs(sampled[i], logprobs[seat, step])
        return [_as_datum(datum) for datum in datums(self.played.debate, sampled, self.played.advantages)]


def _as_datum(datum: Datum) -> tinker.Datum:
    inputs = {
        "target_tokens": datum.targets.astype(np.int64),
        "logprobs": datum.logprobs.astype(np.float32),
        "advantages": datum.advantages.astype(np.float32),
        "mask": datum.mask.astype(np.float32),
    }
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(datum.tokens.tolist()),
        loss_fn_inputs={name: tinker.TensorData.from_numpy(values) for name, values in inputs.items()},
    )


class DebateDataset(RLDataset):
    """Batches of questions, in the task's own order."""

    def __init__(
        self, questions: Sequence[Question], batch_size: int, setting: Setting, model: str, renderer: str = "auto"
    ) -> None:
        self._questions, self._batch_size = questions, batch_size
        self._setting, self._model, self._renderer = setting, model, renderer

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        asked = self._questions[index * self._batch_size : (index + 1) * self._batch_size]
        return [DebateGroupBuilder(question, self._setting, self._model, self._renderer) for question in asked]

    def __len__(self) -> int:
        return -(-len(self._questions) // self._batch_size)


@chz.chz
class DebateDatasetBuilder(RLDatasetBuilder):
    """Questions to train on, and the held-out ones as the test set."""

    model_name: str
    task: str = "arithmetic"
    num_batches: int = 100
    batch_size: int = 8
    """Debates per batch: each is a group of `num_agents` episodes."""
    num_agents: int = 3
    max_rounds: int = 2
    protocol: str = "v2"
    choices: dict[str, Any] = chz.field(default_factory=dict)
    renderer: str = "auto"
    seed: int = 0
    held_out: int = 64

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        setting = Setting(**{name: getattr(self, name) for name in names_of(Setting)})
        task = setting.loaded_task
        training = [task.train(i) for i in range(self.num_batches * self.batch_size)]
        how = (self.batch_size, setting, self.model_name, self.renderer)
        return DebateDataset(training, *how), DebateDataset(task.held_out, *how) if task.held_out else None
