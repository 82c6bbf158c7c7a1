"""Debates as an environment of verifiers (its v1 form: an `Env` whose agents play an episode), and so of prime-rl.

One role, `debater`, takes every seat. A seat's conversation is one trace; where the layout writes a new conversation
for each turn, every turn is one. Tokens are the host's own. `moot-debate` is the id of the environment, its taskset and
its harness.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import httpx

from moot.debate.play import play
from moot.debate.types import Message, Observation, Question, Said
from moot.errors import EngineError
from moot.integrations.hosted import Setting, rendering_of, replay, seat_metrics, seat_rewards, turn_rewards
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import credit

try:
    import verifiers.v1 as vf
    from pydantic import Field
except ImportError as error:
    missing = f"{__name__} needs the package verifiers"
    raise ImportError(f"{missing}; run: pip install 'verifiers>=0.4' ({error})") from error

__all__ = ["DebateEnv", "DebateHarness", "DebateTaskset"]


# Questions


class DebateData(vf.TaskData):
    """A question; for a trace, also the seat that it is of."""

    answer: str | None = None
    instruction: str = ""
    label: str | None = None
    seat: int | None = None

    def question(self) -> Question:
        return Question(self.prompt_text, self.answer, self.id or "", self.instruction, self.label)


class DebateTask(vf.Task[DebateData]):
    pass


class DebateTasksetConfig(vf.TasksetConfig):
    questions: str = "arithmetic"
    """One of moot's tasks, or a file of questions."""
    split: Literal["train", "held_out"] = "train"
    count: int = 1000
    """How many questions of the training stream."""
    seed: int = 0
    held_out: int = 64


class DebateTaskset(vf.Taskset[DebateTask, DebateTasksetConfig]):
    def load(self) -> Iterable[DebateTask]:
        config = self.config
        task = Setting(config.questions, seed=config.seed, held_out=config.held_out).loaded_task
        asked = task.held_out if config.split == "held_out" else [task.train(i) for i in range(config.count)]
        for question in asked:
            known = {"answer": question.answer, "instruction": question.instruction, "label": question.label}
            data = DebateData(id=question.id or None, prompt=question.text, **known)
            yield DebateTask(data, config.task)


# Speaking


class DebateHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model for one reply, in this process: a turn of a debate needs no program and no container."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> vf.ProgramResult:
        messages = [{"role": message.role, "content": message.content or ""} for message in data.prompt]
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            answered = await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )
        return vf.ProgramResult(0 if answered.is_success else 1, "", "" if answered.is_success else answered.text)


@dataclass
class _Conversation:
    """What a seat has said in one trace."""

    seat: int
    interaction: Any
    replies: list[_Reply] = field(default_factory=list)


@dataclass(frozen=True)
class _Reply:
    round: int
    node: Any
    cut: bool

    @property
    def tokens(self) -> list[int]:
        return [token for token, sampled in zip(self.node.token_ids, self.node.mask, strict=True) if sampled]


class _Seats:
    """Speaks for every seat through the host's agent, and keeps which node of which trace each reply is."""

    def __init__(self, agent: Any, task: DebateTask, open_until: AsyncExitStack) -> None:
        self._agent, self._task, self._open_until = agent, task, open_until
        self._current: dict[int, _Conversation] = {}
        self.conversations: list[_Conversation] = []

    async def __call__(self, observation: Observation) -> Said:
        fresh = not observation.extends and not observation.part
        if fresh:
            await self._begin(observation)
        conversation = self._current[observation.agent]
        trace = conversation.interaction.trace
        new = observation.conversation() if fresh else (observation.newest,)
        segment = await conversation.interaction.turn([_as_message(message) for message in new])
        if segment.terminated:
            why = trace.last_error.message if trace.last_error else trace.stop_condition
            raise EngineError(f"agent {observation.agent} could not speak in round {observation.round}: {why}")
        node = next(node for node in reversed(trace.nodes) if node.sampled)
        reply = _Reply(observation.round, node, trace.calls[-1].finish_reason == "length")
        conversation.replies.append(reply)
        return Said(node.message.content or "", closed=False, cut=reply.cut)

    async def _begin(self, observation: Observation) -> None:
        task = self._task.with_data(prompt=None, seat=observation.agent)
        interaction = await self._open_until.enter_async_context(self._agent.interaction(task))
        self._current[observation.agent] = _Conversation(observation.agent, interaction)
        self.conversations.append(self._current[observation.agent])

    def replies(self, seat: int) -> list[_Reply]:
        own = (conversation.replies for conversation in self.conversations if conversation.seat == seat)
        return list(chain.from_iterable(own))


def _as_message(message: Message) -> Any:
    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    return kinds[message.role](content=message.content)


# The environment


class DebateEnvConfig(vf.EnvConfig):
    debater: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """Who sits in every seat: the policy, unless a model is named."""
    max_concurrent_agents: int | None = None
    """All seats of a round speak at once."""
    num_agents: int = 3
    max_rounds: int = 2
    protocol: str = "v2"
    choices: dict[str, Any] = Field(default_factory=dict)
    """Choices of the protocol that differ from the preset's."""
    tokenizer: str = ""
    """The hub id or folder of the model's tokenizer: with it sampled tokens get moot's own `advantages`."""
    renderer: str = "auto"


class DebateEnv(vf.Env[DebateEnvConfig]):
    """One episode is one debate. Its rewards come from the votes, when it is over."""

    def _setting(self) -> Setting:
        config, asked = self.config, self.taskset.config
        debated = (asked.questions, config.num_agents, config.max_rounds, config.protocol, config.choices)
        return Setting(*debated, asked.seed, asked.held_out)

    async def run(self, task: DebateTask, agents: Any) -> None:
        setting = self._setting()
        async with AsyncExitStack() as open_until_the_end:
            seats = _Seats(agents.debater, task, open_until_the_end)
            debate = await play(setting.debate(task.data.question()), seats)
        played = await setting.scored(PlayedDebate(debate))
        _pay(seats, played)
        if self.config.tokenizer:
            await _credit(seats, played, rendering_of(self.config.tokenizer, self.config.renderer))


def _pay(seats: _Seats, played: PlayedDebate) -> None:
    """A trace earns what its turns earned; what its seat earned, where a reward is the whole debate's."""
    by_turn, totals = turn_rewards(played), seat_rewards(played)
    for conversation in seats.conversations:
        seat, trace = conversation.seat, conversation.interaction.trace
        rounds = {reply.round for reply in conversation.replies}
        turns = [played.debate.turns[i] for i in played.debate.turns_by_agent()[seat]]
        own = [step for step, turn in enumerate(turns) if turn.round in rounds]
        trace.record_reward("debate", totals[seat] if by_turn is None else sum(by_turn[seat][step] for step in own))
        trace.record_metrics(seat_metrics(played, seat))


async def _credit(seats: _Seats, played: PlayedDebate, rendering: Rendering) -> None:
    """Moot's own credit for each sampled token, where the host has tokens and they say what was read."""
    debate = played.debate
    replies = [seats.replies(seat) for seat in range(debate.num_agents)]
    assert played.advantages is not None
    if not all(reply.tokens for own in replies for reply in own):
        return
    replayed = await replay(debate, rendering, [[(reply.tokens, reply.cut) for reply in own] for own in replies])
    if replayed is None:
        return
    sampled = replayed.played.sampled
    for seat, turns in enumerate(debate.turns_by_agent()):
        credits = [credit(debate.turns[i], sampled[i], step, played.advantages) for step, i in enumerate(turns)]
        values = [tokens[sampled[i].sampled] for tokens, i in zip(credits, turns, strict=True)]
        for reply, step in zip(replies[seat], replayed.turn_of_each_reply(seat), strict=True):
            count = len(reply.tokens)
            reply.node.advantages = [0.0] * count if step is None else values[step][:count].tolist()
            if step is not None:
                values[step] = values[step][count:]
