"""The verbs, on the `tinker` SDK."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import httpx
import numpy as np

from moot.engine.pending import Pending, outcome
from moot.engine.protocol import (
    AdamParams,
    Capabilities,
    Datum,
    Floats,
    Ints,
    LossOutput,
    Sample,
    Sampler,
    SamplingParams,
    StepOutput,
    by_beginning,
    check_datums,
    check_loss,
    check_prompt,
    check_start,
    in_words,
)
from moot.engine.remote import probe
from moot.engine.remote.calls import adam, await_server, fresh_name, gradient_norm, load, retry_uncertain, save_weights
from moot.engine.remote.ledger import CLOSED, ReplayLog
from moot.engine.remote.probe import Findings
from moot.engine.remote.units import REDUCTIONS, Scaled, ScaledBatch, check_untempered, from_wire, to_wire
from moot.engine.remote.wire import RetryTransport, pause
from moot.errors import EngineError

SAMPLE_TRIES = 6
LIKELIEST = 20
"""Tokens that a server is asked for in the place of one."""
FORGOTTEN = ("not loaded", "not found", "Not Found", "expired")
"""How servers say that they know nothing of a model or a session, as after a restart."""


class RemoteEngine:
    """A `Trainer`. Make one with `RemoteEngine.create`, and `close` it when done."""

    def __init__(self, link: Link, ledger: ReplayLog, findings: Findings, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.findings = findings
        self._link, self._ledger = link, ledger
        self._averaged = findings.reduction != "sum"
        self._batch = ScaledBatch(REDUCTIONS[findings.reduction])
        self._version = 0
        """Changes of the weights so far; a sampler knows after which it was made."""
        self.capabilities = Capabilities(
            model=link.model,
            context_length=findings.context_length,
            losses=findings.losses,
            tempered_training=False,
            stop_types=findings.stop_types,
            reduction="mean" if self._averaged else "sum",
            deterministic=False,
            frozen_samplers=findings.frozen_samplers,
            siblings=True,
            notes=findings.notes,
        )

    @classmethod
    def create(
        cls,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        lora_rank: int = 16,
        seed: int = 0,
        tokenizer: Any = None,
        context_length: int = 0,
        startup_s: float = 300.0,
        timeout_s: float = 900.0,
        patience_s: float = 180.0,
        findings: Findings | None = None,
    ) -> RemoteEngine:
        """Connect, look the server over within `startup_s`, and save the state that a first restore would go back to.

        `tokenizer` is one, or the name of one, or None for the model's own. `context_length` 0 asks the server.
        `timeout_s` bounds one training call or one turn, `patience_s` how long an unreachable server is waited for.
        `findings` of an earlier look may be given.
        """
        link = Link(model, base_url, api_key, lora_rank, seed, patience_s)
        ledger = ReplayLog(link.connect, link.discard, timeout_s)
        try:
            given = probe.find_tokenizer(tokenizer, model)
            look = probe.start(link, given, context_length, startup_s, findings)
            client, saved, findings = ledger.run(look).result(startup_s + 30)
        except BaseException:
            ledger.close()
            link.end()
            raise
        ledger.start(client, saved)
        return cls(link, ledger, findings, given)

    def sibling(self, seed: int) -> RemoteEngine:
        """A session and a model of its own at the same server, which is not looked over again."""
        if self._ledger.closed:
            raise EngineError(CLOSED)
        link = self._link
        return RemoteEngine.create(
            link.model,
            base_url=link.base_url,
            api_key=link._api_key,
            lora_rank=link.rank,
            seed=seed,
            tokenizer=self.tokenizer,
            timeout_s=self._ledger.timeout_s,
            patience_s=link.wire.patience_s,
            findings=self.findings,
        )

    @property
    def statistics(self) -> dict[str, int]:
        """Requests, bytes and faults so far, and how often the saved state was restored and the rest replayed."""
        return {**self._link.wire.counts, "replays": self._ledger.replays}

    @property
    def faults(self) -> dict[str, int]:
        """Requests sent again, calls in doubt, and restores, since the start."""
        statistics = self.statistics
        return {name: statistics.get(name, 0) for name in ("retries", "uncertain", "replays")}

    # Training

    def forward(self, datums: Sequence[Datum], loss: str = "cross_entropy") -> Pending[LossOutput]:
        self._check(datums, loss, None)
        call = Scaled(loss, None, list(datums), [1.0] * len(datums))
        data, name, config = to_wire(call, averaged=False)
        send = lambda client: _read(call, client.forward(data, name, config))  # noqa: E731
        return self._ledger.call("forward", send, lasting=False)

    def forward_backward(
        self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None
    ) -> Pending[LossOutput]:
        self._check(datums, loss, loss_config)
        calls = self._batch.add(loss, loss_config, list(datums))
        ready = [to_wire(call, self._averaged) for call in calls]

        def send(client: Any) -> Awaitable[LossOutput]:
            answers = [client.forward_backward(*call) for call in ready]
            return _read(calls[-1], answers[-1], answers[:-1])

        return self._ledger.call("forward_backward", send, lasting=True)

    def optim_step(self, params: AdamParams) -> Pending[StepOutput]:
        self._version += 1
        self._batch = ScaledBatch(REDUCTIONS[self.findings.reduction])
        return self._ledger.call("optim_step", lambda client: _stepped(client.optim_step(adam(params))), lasting=True)

    def save_state(self, path: str) -> Pending[str]:
        """The server keeps it under a name of its own; the path only lends its last part to that."""
        send = lambda client: _path(client.save_state(fresh_name(path)))  # noqa: E731
        return self._ledger.call("save_state", send, lasting=False, saved_at=str)

    def load_state(self, path: str, optimizer: bool = True) -> Pending[None]:
        if not path.startswith("tinker://"):
            raise EngineError(f"{path} is not a state of a server; those begin with tinker://")
        self._version += 1
        self._batch = ScaledBatch(REDUCTIONS[self.findings.reduction])
        # After a lost connection the state with its optimizer is restored, or the last one and then this call again.
        saved_at = (lambda _: path) if optimizer else None
        send = lambda client: load(client, path, optimizer)  # noqa: E731
        return self._ledger.call("load_state", send, lasting=True, saved_at=saved_at)

    def snapshot(self, path: str | None = None) -> Pending[RemoteSampler]:
        """With a path, the server keeps the weights for good, under a name that ends as the path does."""
        version = self._version

        def send(client: Any) -> Awaitable[RemoteSampler]:
            # The call that saves is made here, in its place; what reads it waits.
            return self._sampler(client, save_weights(client, path), version)

        return self._ledger.call("snapshot", send, lasting=False)

    def base(self) -> Pending[RemoteSampler]:
        async def make(client: Any) -> RemoteSampler:
            return RemoteSampler(self, await self._link.base_sampler(), None)

        return self._ledger.call("base", make, lasting=False)

    async def close(self) -> None:
        """What is not done fails with EngineError; the model is unloaded from the server, its saved states stay."""
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        """As `close`, for those who are not in an event loop."""
        self._ledger.close()
        self._link.end()

    def _check(self, datums: Sequence[Datum], loss: str, config: dict[str, float] | None) -> None:
        check_loss(loss, config, self.capabilities.losses)
        check_datums(datums, self.capabilities.context_length)
        check_untempered(datums)

    # Sampling, for RemoteSampler

    async def _sampler(self, client: Any, saving: Awaitable[Any], version: int) -> RemoteSampler:
        path = str((await saving).path)
        return RemoteSampler(self, await client.create_sampling_client_async(path), version, path)

    async def _ask(self, sampler: RemoteSampler, question: Callable[[Any], Any]) -> Any:
        """A bounded number of tries, each with a time-out; a model that is gone is brought back between them."""
        reason = ""
        for attempt in range(SAMPLE_TRIES):
            generation = sampler.generation
            try:
                return await asyncio.wait_for(asyncio.wrap_future(question(sampler.client)), self._ledger.timeout_s)
            except TimeoutError:
                reason = f"no answer within {self._ledger.timeout_s:.0f} s"
            except asyncio.CancelledError:
                if (own := asyncio.current_task()) is None or own.cancelling():
                    raise
                reason = "the SDK cancelled it"
            except Exception as error:  # the SDK's kinds are many; what is worth another try shows by trying
                reason = in_words(error)
            if self._ledger.closed:
                break
            await asyncio.sleep(pause(attempt))
            if attempt and any(word in reason for word in FORGOTTEN):
                await outcome(self._ledger.run(self._revive(sampler, reason, generation)))
        raise EngineError(f"sampling failed {attempt + 1} times: {reason}")

    async def _revive(self, sampler: RemoteSampler, reason: str, generation: int) -> None:
        """A restarted server has forgotten the sampler. The saved state is the same, if nothing was trained since."""
        with contextlib.suppress(Exception):  # then the next try says what is wrong
            if sampler.version is None:
                sampler.client = await asyncio.wait_for(self._link.base_sampler(), self._ledger.timeout_s)
            elif sampler.version != self._version:
                # The model has moved on. A server that keeps saved weights apart from models can still sample from
                # these.
                made = self._ledger.client.create_sampling_client_async(sampler.path)
                sampler.client = await asyncio.wait_for(made, self._ledger.timeout_s)
            else:
                async with self._link.reviving:
                    if sampler.generation == generation:
                        await self._ledger.renew(reason, generation)
                        saving = save_weights(self._ledger.client)
                        made = self._sampler(self._ledger.client, saving, sampler.version)
                        fresh = await asyncio.wait_for(made, self._ledger.timeout_s)
                        sampler.client, sampler.generation = fresh.client, self._ledger.generation

    def _check_alive(self, sampler: RemoteSampler) -> None:
        if self._ledger.closed:
            raise EngineError(CLOSED)
        if not self.findings.frozen_samplers and sampler.version not in (None, self._version):
            why = "this server keeps one set of weights a model, and they were trained since this sampler was made"
            raise EngineError(f"{why}; take a new snapshot")


class RemoteSampler(Sampler):
    """A `Sampler`. `version` says after which change of the weights it was made; None for the base model."""

    def __init__(self, engine: RemoteEngine, client: Any, version: int | None, path: str = "") -> None:
        self._engine = engine
        self.client, self.version, self.path = client, version, path
        self.generation = engine._ledger.generation

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        from tinker import types

        tokens = check_prompt(prompt, params.max_tokens, self._engine.capabilities.context_length)
        wanted = types.SamplingParams(**{**asdict(params), "stop": list(params.stop)})
        text = types.ModelInput.from_ints(tokens.tolist())
        given = {"prompt": text, "num_samples": num_samples, "sampling_params": wanted}
        answer = await self._asked(lambda client: client.sample(**given))
        if len(answer.sequences) != num_samples:
            raise EngineError(f"the server returned {len(answer.sequences)} samples, not {num_samples}")
        return [_sample(sequence, params.temperature) for sequence in answer.sequences]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        """The server computes all of them, wherever they start."""
        from tinker import types

        if temperature != 1:
            raise ValueError(f"a remote engine computes logprobs at temperature 1, not {temperature}")
        items, first = check_prompt(tokens, 1, self._engine.capabilities.context_length), check_start(start)
        out = np.full(len(items), np.nan, dtype=np.float32)
        if first < len(items):
            text = types.ModelInput.from_ints(items.tolist())
            logprobs = await self._asked(lambda client: client.compute_logprobs(text))
            out[first:] = _logprobs(logprobs, len(items))[first:]
        return out

    async def score_continuations(
        self, prompt: Sequence[int] | Ints, candidates: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> list[float]:
        """One request for those that differ in their last token alone, as the words of a verdict do: the server tells
        the likeliest tokens of that place. Those that are not among them are asked for one by one."""
        if temperature != 1:
            raise ValueError(f"a remote engine computes logprobs at temperature 1, not {temperature}")
        start = [*map(int, prompt)]
        groups = [(body, ends) for body, ends in by_beginning(candidates).items() if len(set(ends)) > 1]
        told = await asyncio.gather(*(self._one_and_likeliest([*start, *body, ends[0]]) for body, ends in groups))
        scores: dict[tuple[int, ...], float] = {}
        for (body, ends), (logprobs, likeliest) in zip(groups, told, strict=True):
            before = float(logprobs[len(start) : -1].sum())
            known = {**likeliest, ends[0]: float(logprobs[-1])}
            scores |= {(*body, end): before + known[end] for end in ends if end in known}
        wanted = [tuple(map(int, candidate)) for candidate in candidates]
        left = [candidate for candidate in dict.fromkeys(wanted) if candidate not in scores]
        scores |= zip(left, await super().score_continuations(start, left), strict=True)
        return [scores[candidate] for candidate in wanted]

    async def _one_and_likeliest(self, tokens: list[int]) -> tuple[Floats, dict[int, float]]:
        """The logprobs of these tokens, and those of the likeliest tokens in the place of the last, as far as the
        server tells."""
        from tinker import types

        items = check_prompt(tokens, 1, self._engine.capabilities.context_length)
        given = {"prompt": types.ModelInput.from_ints(items.tolist()), "num_samples": 1}
        given |= {"sampling_params": types.SamplingParams(max_tokens=1), "include_prompt_logprobs": True}
        answer = await self._asked(lambda client: client.sample(**given, topk_prompt_logprobs=LIKELIEST))
        likeliest = (getattr(answer, "topk_prompt_logprobs", None) or [None])[-1] or ()
        return _logprobs(answer.prompt_logprobs, len(items)), {int(token): float(value) for token, value in likeliest}

    async def _asked(self, question: Callable[[Any], Any]) -> Any:
        self._engine._check_alive(self)
        return await self._engine._ask(self, question)


class Link:
    """How a session with the server is had, and had again."""

    def __init__(
        self, model: str, base_url: str | None, api_key: str | None, rank: int, seed: int, patience_s: float
    ) -> None:
        self.model, self.base_url, self.rank, self.seed = model, base_url, rank, seed
        self.wire = RetryTransport(patience_s)
        self.reviving = asyncio.Lock()
        self._api_key = api_key
        self._service: Any = None
        self._opened: list[Any] = []

    def _serve(self) -> Any:
        import tinker

        # It reports each failed try of a turn; ours are counted, and told when they are given up.
        logging.getLogger("tinker.lib.retry_handler").setLevel(logging.CRITICAL)
        if self.base_url is not None:
            os.environ.setdefault("TINKER_TELEMETRY", "0")  # a server of one's own has no use for it
        told = {"base_url": self.base_url, "api_key": self._api_key}
        given: dict[str, Any] = {name: value for name, value in told.items() if value}
        if takes_transport():
            # One retry at a time: the wire's, which knows what may be sent again.
            given |= {"http_client": httpx.AsyncClient(transport=self.wire, timeout=60.0), "max_retries": 0}
        return tinker.ServiceClient(**given)

    async def service(self) -> Any:
        if self._service is None:
            made = await asyncio.to_thread(self._serve)
            await asyncio.to_thread(lambda: made.holder)  # opens the session, which older SDKs put off
            self._service = made
            self._opened.append(made)
        return self._service

    def end(self) -> None:
        """Ends the sessions, which would otherwise tell their server that they live until the process ends."""
        while self._opened:
            self._opened.pop().holder.close()

    async def connect(self, path: str | None) -> Any:
        """A new model, restored from a saved state if there is one. The session is new too: it may be gone."""
        self._service = None  # samplers of the old one may still be at work; it ends with the last of them
        if self.base_url is not None:
            await await_server(self.base_url, self.wire.patience_s)
        service = await self.service()
        client = await service.create_lora_training_client_async(
            base_model=self.model, rank=self.rank, seed=self.seed, train_unembed=False
        )
        if path is not None:
            await retry_uncertain(lambda: load(client, path))
        return client

    async def base_sampler(self) -> Any:
        service = await self.service()
        return await service.create_sampling_client_async(base_model=self.model)

    async def discard(self, client: Any) -> None:
        """Frees the model's place on the server, where it can be freed. A server that is down has no place to free."""
        if self.base_url is None:
            return
        with contextlib.suppress(Exception):
            async with httpx.AsyncClient(base_url=self.base_url, timeout=5.0) as plain:
                headers = {"X-API-Key": self._api_key} if self._api_key else {}
                asked = {"model_id": client.model_id, "type": "unload_model"}
                await plain.post("/api/v1/unload_model", json=asked, headers=headers)


def takes_transport() -> bool:
    """SDKs up to 0.24 take a transport. Later ones see to retries, for servers that number requests."""
    import tinker

    return probe.version_of(tinker) < (0, 25)


async def _read(call: Scaled, answer: Awaitable[Any], others: Sequence[Awaitable[Any]] = ()) -> LossOutput:
    output = (await asyncio.gather(answer, *others))[0]
    logprobs, loss = from_wire(call, output.loss_fn_outputs)
    trained = sum(int(np.count_nonzero(datum.mask)) for datum in call.datums)
    return LossOutput(logprobs, loss, {"tokens": float(sum(map(len, call.datums))), "trained_tokens": float(trained)})


async def _stepped(answer: Awaitable[Any]) -> StepOutput:
    metrics = (await answer).metrics or {}
    norm = gradient_norm(metrics)
    if norm is None:
        return StepOutput({})
    return StepOutput({"grad_norm": norm, "skipped": float(not np.isfinite(norm))})


async def _path(answer: Awaitable[Any]) -> str:
    return str((await answer).path)


def _logprobs(told: Sequence[float | None] | None, count: int) -> Floats:
    """Of so many tokens; some servers leave out the first, which has none."""
    values = [np.nan if value is None else value for value in told or ()]
    if len(values) not in (count, count - 1):
        raise EngineError(f"the server returned {len(values)} logprobs for {count} tokens")
    return np.array([np.nan] * (count - len(values)) + values, np.float32)


def _sample(sequence: Any, temperature: float) -> Sample:
    tokens = np.asarray(sequence.tokens, dtype=np.int32)
    if sequence.logprobs is None:
        raise EngineError("the server returned no logprobs with its samples; without them there is nothing to train on")
    logprobs = np.asarray(sequence.logprobs, dtype=np.float32)
    if len(tokens) != len(logprobs):
        raise EngineError(f"the server returned {len(logprobs)} logprobs for {len(tokens)} sampled tokens")
    reason: Literal["stop", "length"] = "stop" if str(sequence.stop_reason).endswith("stop") else "length"
    # The likeliest token was taken with certainty, whatever the server says of the distribution it was taken from.
    return Sample(tokens, np.zeros_like(logprobs) if temperature == 0 else np.minimum(logprobs, 0.0), reason)
