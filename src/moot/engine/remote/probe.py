"""What this server can do, asked with small questions rather than assumed.

Everything happens on the model that will be trained, between saving its first state and loading it again, so nothing is
left of it. Two numbers of tokens tell the reductions apart: with one datum that has advantages and one, three times as
long, that has none,

    sum        the gradient is that of the first alone
    datums     half of it
    mean       half of it, and a datum made longer by tokens without advantages counts less
    tokens     a quarter of it
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import httpx
import numpy as np

from moot.engine.protocol import LOSSES, Datum, Floats, in_words
from moot.engine.remote.calls import await_server, fresh_name, gradient_norm, load, retry_uncertain, save_weights
from moot.engine.remote.units import Scaled, from_wire, to_wire
from moot.errors import EngineError

if TYPE_CHECKING:
    from moot.engine.remote.engine import Link

SHORT, LONG, TAIL = 8, 24, 16
"""Tokens of the datum with advantages, of the one without, and of what is appended to the first."""
NEWEST_JSON = "0.24.1"
"""The last SDK that speaks to servers without protobuf."""
GREETING_S = 3.0
"""How long a server that does not answer is waited for at the start."""
T = TypeVar("T")
Stops = tuple[Literal["strings", "ids"], ...]


@dataclass(frozen=True)
class Findings:
    sdk: str
    server: str
    context_length: int
    losses: tuple[str, ...]
    stop_types: Stops
    reduction: str
    frozen_samplers: bool
    """A sampler keeps the weights it was made with, however training continues."""
    notes: tuple[str, ...] = ()


def version_of(sdk: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(sdk.__version__).split(".")[:2] if part.isdigit())


def find_tokenizer(given: Any, model: str) -> Any:
    if given is not None and not isinstance(given, str):
        return given
    from transformers import AutoTokenizer

    name = given or model
    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        way_out = "name one that this machine has with --tokenizer"
        raise EngineError(f"no tokenizer for {name!r} ({type(error).__name__}); {way_out}") from None


async def start(
    link: Link, tokenizer: Any, context_length: int, startup_s: float, earlier: Findings | None
) -> tuple[Any, str, Findings]:
    """A training client, the path of its first state, and what was found; or one message: what is missing."""
    probe = _Probe(link, tokenizer, await _greet(link.base_url))
    try:
        async with asyncio.timeout(startup_s):
            await probe.connect()
            return probe.client, probe.saved, earlier or await probe.look(context_length)
    except EngineError:
        raise
    except Exception as error:
        why = f"nothing within {startup_s:.0f} s" if isinstance(error, TimeoutError) else in_words(error)
        raise EngineError(_explain(probe, why)) from error


def _explain(probe: _Probe, why: str) -> str:
    link = probe.link
    said = f"; the server's last refusal: {link.wire.last_refusal}" if link.wire.last_refusal else ""
    text = f"tinker SDK {probe.sdk.__version__} and {probe.server} do not get along: {probe.at} gave {why[:400]}{said}"
    if version_of(probe.sdk) >= (0, 25) and link.base_url:
        text += ". From 0.25 on the SDK speaks protobuf, which this server may not; "
        text += f"run: pip install tinker=={NEWEST_JSON}"
    elif "401" in why or "403" in why or "Authentication" in why:
        text += ". Check the key in TINKER_API_KEY"
    elif "LoRA" in why or "rank" in why:
        text += ". Choose another --lora-rank, or start the server with more room for adapters"
    return text


async def _greet(base_url: str | None) -> str:
    """Whether anything answers, before the SDK, which is patient for minutes; and what the server calls itself."""
    if base_url is None:
        return "the hosted service"
    await await_server(base_url, GREETING_S)
    async with httpx.AsyncClient(base_url=base_url, timeout=10.0) as plain:
        try:
            about = (await plain.get("/openapi.json")).json()["info"]
            name = f", which calls itself {about['title']!r} {about['version']}"
        except Exception:
            name = ""
    return f"the server at {base_url}{name}"


async def _context(link: Link, notes: list[str]) -> int:
    service = await link.service()
    offered = (await service.get_server_capabilities_async()).supported_models
    names = [str(model.model_name) for model in offered]
    if names and link.model not in names:
        others = ", ".join([*names[:8], *(["…"] if len(names) > 8 else [])])
        raise EngineError(f"the server has no model {link.model!r}; it has {others}")
    for model in offered:
        if model.model_name == link.model and model.max_context_length:
            return int(model.max_context_length)
    try:
        from transformers import AutoConfig

        length = int(AutoConfig.from_pretrained(link.model).max_position_embeddings)
    except Exception:
        nobody = "the server does not say how long a context it has, nor does the model"
        raise EngineError(f"{nobody}; give --context-length") from None
    notes.append(f"the server does not say how long a context it has; the model's own {length} is taken")
    return length


def _some_tokens(tokenizer: Any) -> list[int]:
    """Ordinary ones, the same each time: special ones may mean something to a server."""
    size, special = len(tokenizer), set(getattr(tokenizer, "all_special_ids", ()))
    ordinary = [i for i in range(min(size, 4096)) if i not in special]
    random = np.random.default_rng(0)
    return [int(i) for i in random.choice(ordinary, LONG + TAIL + 1)]


class _Probe:
    """Asks one server. `at` says what it is doing, for the message of a start that failed."""

    def __init__(self, link: Link, tokenizer: Any, server: str) -> None:
        import tinker

        self.link, self.server, self.at = link, server, "connecting"
        self.sdk, self._types, self._tokenizer = tinker, tinker.types, tokenizer

    async def connect(self) -> None:
        """To a new model, and back to its first state."""
        self.client = await self.link.connect(None)
        self.at = "saving a first state"
        self.saved = str((await retry_uncertain(lambda: self.client.save_state(fresh_name("start")))).path)
        await self.restore()  # a server may have left another's gradient in the place it gave us

    async def look(self, context_length: int) -> Findings:
        notes: list[str] = []
        self.at = "asking what the server has"
        context = context_length or await _context(self.link, notes)
        self._tokens = _some_tokens(self._tokenizer)
        self._short = _datum(self._tokens[: SHORT + 1], 1.0)
        self.at = "trying the losses"
        losses = await self.losses()
        if "importance_sampling" not in losses:
            taken = ", ".join(losses) or "none"
            raise EngineError(f"{self.server} takes of the losses only {taken}; importance_sampling is the least")
        self.at = "a forward pass"
        lone = await self.learn_logprobs()
        self.at = "measuring how losses are added up"
        reduction = await self.reduction(lone)
        if reduction != "sum":
            if "cispo" not in losses:
                losses = tuple(name for name in losses if name != "cross_entropy")
                unscaled = "the warm start's cross_entropy cannot be brought to scale"
                notes.append(f"the server averages losses and has no cispo, so {unscaled}")
            averages = f"the server averages losses ({reduction}) where the Tinker API sums them"
            notes.append(f"{averages}; advantages are multiplied to make up for it")
        self.at = "sampling"
        stops, frozen = await self.afresh(self.sampling)
        if not stops:
            raise EngineError(f"{self.server} takes neither stop strings nor stop ids; one of them must end a turn")
        if not frozen:
            notes.append("the server's samplers do not keep their weights: parts that need old weights cannot be used")
        notes.append("LoRA's alpha and its matrices are the server's choice")
        self.at = "loading the first state again"
        await self.restore()
        sdk = str(self.sdk.__version__)
        return Findings(sdk, self.server, context, losses, stops, reduction, frozen, tuple(notes))

    async def learn_logprobs(self) -> Datum:
        """The short datum with the model's own logprobs, so that its ratios are 1."""
        (logprobs,) = await self._forward(self._short, "importance_sampling")
        if not np.isfinite(logprobs).all():
            raise EngineError(f"the server's logprobs are not numbers: {logprobs[:4].tolist()}")
        if not logprobs.any():
            nothing = "the server returns logprobs that are all 0, which means none"
            raise EngineError(f"{nothing}; training needs a backend that returns them")
        self._short = replace(self._short, logprobs=logprobs)
        return self._short

    async def losses(self) -> tuple[str, ...]:
        taken = []
        for name in LOSSES:
            try:
                await self._forward(self._short, name)
            except TimeoutError:
                raise
            except Exception:
                continue
            taken.append(name)
        return tuple(taken)

    async def reduction(self, lone: Datum) -> str:
        silent = _datum(self._tokens[: LONG + 1], 0.0)
        longer = _lengthened(lone, self._tokens[SHORT + 1 : SHORT + 1 + TAIL])
        sent = ([lone], [lone, silent], [longer])
        alone, pair, long = [await self.afresh(partial(self._size, datums, lone)) for datums in sent]
        if not alone > 0:
            raise EngineError("a gradient of 0 came of a datum with advantages; the server does not train this model")
        measured = (pair / alone, long / alone)
        diluted = SHORT / (SHORT + TAIL)
        expected = {"sum": (1.0, 1.0), "datums": (1 / 2, 1.0), "mean": (1 / 2, diluted)}
        expected["tokens"] = (SHORT / (SHORT + LONG), diluted)
        for name, ratios in expected.items():
            if all(abs(a / b - 1) < 0.1 for a, b in zip(measured, ratios, strict=True)):
                return name
        raise EngineError(
            "how the server adds up losses is not understood: a second datum changes the gradient by "
            f"{measured[0]:.3f}, {TAIL} more tokens by {measured[1]:.3f}, where sums give 1 and 1 and averages 0.5 and "
            f"{diluted:.3f}; configure it to sum"
        )

    async def sampling(self) -> tuple[Stops, bool]:
        """Which stops are taken and heeded, and whether a sampler keeps its weights through a step."""
        prompt = self._tokens[:SHORT]
        sampler = await self._sampler()
        free = (await self._sample(sampler, prompt, [])).tokens
        stops: list[Literal["strings", "ids"]] = []
        middle = free[len(free) // 2]
        text = self._tokenizer.decode([middle])
        for kind, stop in (("strings", text), ("ids", middle)):
            try:
                cut = (await self._sample(sampler, prompt, [stop])).tokens
            except TimeoutError:
                raise
            except Exception:
                continue
            if not text.strip() or len(cut) <= free.index(middle) + 1:
                stops.append("strings" if kind == "strings" else "ids")
        sampled = await self._sample(sampler, prompt, [], temperature=1.0)
        if not sampled.logprobs or not any(sampled.logprobs):
            raise EngineError("the server samples without logprobs (or with all of them 0); training needs them")
        before = await self._heard(sampler)
        await self._step([self._short], self._types.AdamParams(learning_rate=0.01))
        after = await self._heard(sampler)
        return tuple(stops), bool(np.abs(after - before).max() < 1e-4)

    async def restore(self) -> None:
        await retry_uncertain(lambda: load(self.client, self.saved))

    async def afresh(self, work: Callable[[], Awaitable[T]]) -> T:
        """An experiment from the first state; one that was spoiled on the way is made again."""

        async def once() -> T:
            await self.restore()
            return await work()

        return await retry_uncertain(once)

    async def _size(self, datums: list[Datum], watched: Datum) -> float:
        """Of the gradient: the server's own figure, or what a step in proportion to it does."""
        metrics = await self._step(datums, self._types.AdamParams(learning_rate=0.0))
        norm = gradient_norm(metrics)
        return norm if norm is not None else await self._moved(datums, watched)

    async def _moved(self, datums: list[Datum], watched: Datum) -> float:
        """How far the logprobs move shows the gradient's size: Adam with a huge eps is plain gradient descent."""
        await self.restore()
        (before,) = await self._forward(watched, "importance_sampling")
        straight = self._types.AdamParams(learning_rate=30.0, beta1=0.0, beta2=0.0, eps=1e4)
        await self._step(datums, straight)
        (after,) = await self._forward(watched, "importance_sampling")
        return float(np.abs((after - before).sum(dtype=np.float64)))

    async def _step(self, datums: list[Datum], params: Any) -> Mapping[str, float]:
        data, loss, config = to_wire(Scaled("importance_sampling", None, datums, [1.0] * len(datums)), averaged=False)
        passed, stepped = self.client.forward_backward(data, loss, config), self.client.optim_step(params)
        _, done = await asyncio.gather(passed, stepped)
        return done.metrics or {}

    async def _forward(self, datum: Datum, loss: str) -> list[Floats]:
        call = Scaled(loss, None, [datum], [1.0])
        data, name, config = to_wire(call, averaged=False)
        return from_wire(call, (await self.client.forward(data, name, config)).loss_fn_outputs)[0]

    async def _sampler(self) -> Any:
        path = (await save_weights(self.client)).path
        return await self.client.create_sampling_client_async(path)

    async def _sample(self, sampler: Any, prompt: list[int], stop: list[Any], temperature: float = 0.0) -> Any:
        params = self._types.SamplingParams(max_tokens=8, temperature=temperature, stop=stop, seed=1)
        text = self._types.ModelInput.from_ints(prompt)
        answer = sampler.sample(prompt=text, num_samples=1, sampling_params=params)
        return (await asyncio.wrap_future(answer)).sequences[0]

    async def _heard(self, sampler: Any) -> Floats:
        text = self._types.ModelInput.from_ints(self._tokens[: LONG + 1])
        logprobs = await asyncio.wrap_future(sampler.compute_logprobs(text))
        return np.asarray([value for value in logprobs if value is not None], dtype=np.float32)


def _datum(tokens: list[int], advantage: float) -> Datum:
    array = np.asarray(tokens, dtype=np.int32)
    paid = np.full(len(array) - 1, advantage, np.float32)
    return Datum(array[:-1], array[1:], np.zeros_like(paid), paid, paid)


def _lengthened(datum: Datum, tail: list[int]) -> Datum:
    """With tokens behind it that have no advantage, and so no part in its gradient."""
    more = np.asarray(tail, dtype=np.int32)
    nothing = np.zeros(len(more), np.float32)
    whole = np.concatenate([datum.tokens, datum.targets[-1:], more])
    own = (datum.logprobs, datum.advantages, datum.mask)
    logprobs, advantages, mask = (np.concatenate([values, nothing]) for values in own)
    return Datum(whole[:-1], whole[1:], logprobs, advantages, mask)
