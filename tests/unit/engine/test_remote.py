"""The remote engine against a small exact server, with and without a bad line between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinker")

import tinker

from moot.debate.rewards import REWARDS
from moot.engine.protocol import AdamParams, SamplingParams
from moot.engine.remote import RemoteEngine, ledger, probe, wire
from moot.engine.scripted import ByteTokenizer
from moot.errors import ContextOverflow, EngineError
from moot.rl.advantages import ESTIMATORS
from moot.runs import Run
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tasks import load
from moot.tokens.rendering import Rendering
from moot.training.loop import train
from moot.training.state import Setup
from support.datums import random_datum
from support.simulated_server import Manners, Server, serving

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Tokens:
    """64 tokens, each a character whose number ends in the token's."""

    all_special_ids = ()

    def __len__(self) -> int:
        return 64

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(0x2600 + i) for i in ids)


class Bytes(ByteTokenizer):
    all_special_ids = (256, 257)

    def __len__(self) -> int:
        return 258


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(wire, "LONGEST_PAUSE_S", 0.05)


@contextmanager
def engine_on(server: Server, faults: float = 0.0, seed: int = 0, **options: Any) -> Iterator[Any]:
    with serving(server, faults, seed, delay_s=0.02) if faults else serving(server) as (url, proxy):
        tokenizer = Tokens() if server.manners.vocabulary == 64 else Bytes()
        made = RemoteEngine.create(
            "table", base_url=url, api_key="tml-test", tokenizer=tokenizer, **{"startup_s": 60, **options}
        )
        made.proxy = proxy
        try:
            yield made
        finally:
            asyncio.run(made.close())


async def trained(
    engine: Any, steps: int = 4, losses: tuple[str, ...] = ("importance_sampling", "ppo", "cross_entropy")
) -> np.ndarray:
    """Steps on datums of unequal length, all enqueued before any result is looked at; then what the model thinks of a text."""
    waiting: list[Any] = []
    for step in range(steps):
        waiting.append(
            engine.forward_backward([random_datum(step), random_datum(step + 50, 17)], losses[step % len(losses)])
        )
        waiting.append(engine.optim_step(AdamParams(learning_rate=0.05)))
    for each in waiting:
        await each
    found: np.ndarray = (await engine.forward([random_datum(99, 40)])).logprobs[0]
    return found


def test_a_closed_engine_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tells its server every ten seconds that the session lives, and complains once it cannot."""
    from tinker.lib.internal_client_holder import InternalClientHolder

    alive: list[asyncio.Task[None]] = []
    begun = InternalClientHolder._start_heartbeat

    async def noted(holder: Any) -> asyncio.Task[None]:
        alive.append(await begun(holder))
        return alive[-1]

    monkeypatch.setattr(InternalClientHolder, "_start_heartbeat", noted)
    with engine_on(Server()):
        assert alive and not alive[0].done()
    deadline = time.monotonic() + 60
    while not alive[0].done() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive[0].done()


# -- the first look -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["sum", "datums", "mean", "tokens"])
@pytest.mark.parametrize("tells_norm", [True, False])
def test_how_a_server_adds_up_is_measured_from_its_figures_or_from_its_steps(reduction: str, tells_norm: bool) -> None:
    with engine_on(Server(Manners(reduction=reduction, tells_norm=tells_norm))) as engine:
        assert engine.findings.reduction == reduction
        assert engine.capabilities.reduction == ("sum" if reduction == "sum" else "mean")


def test_what_a_server_ignores_or_lacks_is_found_and_said() -> None:
    manners = Manners(frozen_samplers=False, losses=("importance_sampling", "ppo"), stops=("ids",))
    with engine_on(Server(manners)) as engine:
        assert engine.findings.losses == ("importance_sampling", "ppo")
        assert engine.findings.stop_types == ("ids",)
        assert not engine.capabilities.frozen_samplers
        said = " / ".join(engine.capabilities.notes)
        assert "parts that need old weights cannot be used" in said
    with engine_on(Server()) as engine:
        assert engine.capabilities.frozen_samplers
        assert engine.findings.stop_types == ("strings", "ids")
        assert engine.capabilities.context_length == 4096


def test_the_first_look_leaves_nothing_behind() -> None:
    server = Server(Manners(frozen_samplers=False))
    with engine_on(server):
        (model,) = server.models.values()
        assert not model.trained.any() and not model.first.any() and model.steps == 0 and model.gradient is None
    assert not server.models  # closing gave the place back


@pytest.mark.parametrize(
    ("manners", "words"),
    [
        (Manners(logprobs=False), "logprobs that are all 0, which means none"),
        (
            Manners(losses=("cross_entropy",)),
            "takes of the losses only cross_entropy; importance_sampling is the least",
        ),
        (Manners(stops=()), "neither stop strings nor stop ids"),
        (Manners(tells_context=False), "give --context-length"),
    ],
)
def test_a_server_that_will_not_do_is_refused_in_one_message(
    manners: Manners, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(transformers, "AutoConfig", None)  # nobody is asked about a model that does not exist
    with pytest.raises(EngineError) as caught, engine_on(Server(manners)):
        pass
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up_with_both_versions_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EngineError) as caught, engine_on(Server(Manners(latency_s=60)), startup_s=0.5):
        pass
    assert f"tinker SDK {tinker.__version__} and the server at http://127.0.0.1:" in str(caught.value)
    assert "connecting gave nothing within 0 s" in str(caught.value)
    monkeypatch.setattr(tinker, "__version__", "0.36.0")
    with pytest.raises(EngineError) as caught, engine_on(Server(Manners(latency_s=60)), startup_s=0.5):
        pass
    assert "speaks protobuf, which this server may not; run: pip install tinker==0.24.1" in str(caught.value)


def test_nobody_there_and_another_model_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "GREETING_S", 0.1)
    with pytest.raises(
        EngineError,
        match=r"no server that speaks the Tinker API answers at http://127.0.0.1:9 .*; start one, or mend --base-url",
    ):
        RemoteEngine.create("table", base_url="http://127.0.0.1:9", tokenizer=Tokens())
    with serving(Server()) as (url, _), pytest.raises(EngineError, match="no model 'chair'; it has table"):
        RemoteEngine.create("chair", base_url=url, api_key="tml-test", tokenizer=Tokens())


# -- units ----------------------------------------------------------------------------------------------------------------------------


def test_the_same_steps_whatever_the_server_divides_by() -> None:
    found = {}
    for reduction in ("sum", "datums", "mean", "tokens"):
        with engine_on(Server(Manners(reduction=reduction))) as engine:
            found[reduction] = asyncio.run(trained(engine))
    for reduction, logprobs in found.items():
        np.testing.assert_allclose(logprobs, found["sum"], atol=1e-6, err_msg=reduction)


# -- a bad line -----------------------------------------------------------------------------------------------------------------------


async def trained_and_sampled(engine: Any) -> list[np.ndarray]:
    found = []
    for _ in range(4):
        found.append(await trained(engine, 2))
        sampler = await engine.snapshot()
        (sample,) = await sampler.sample(PROMPT, SamplingParams(max_tokens=10, seed=1))
        found.append(sample.logprobs)
        assert (await engine.save_state("checkpoint")).startswith("tinker://")
    return found


@cache
def over_a_good_line() -> list[np.ndarray]:
    with engine_on(Server()) as engine:
        return asyncio.run(trained_and_sampled(engine))


@pytest.mark.parametrize("seed", range(3))
def test_with_a_fault_on_every_fifth_call_the_weights_come_out_the_same_to_the_last_bit(seed: int) -> None:
    expected = over_a_good_line()
    with engine_on(Server(), faults=0.2, seed=seed) as engine:
        found = asyncio.run(trained_and_sampled(engine))
        assert engine.statistics["replays"] > 0
        assert engine.proxy.seen["reset_after"] > 0 and engine.proxy.seen["truncated"] > 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_restarted_server_is_brought_back_to_where_it_was() -> None:
    """Saved states outlive it, as they do on disk; models, sessions and samplers do not."""

    async def work(engine: Any, server: Server, restart: bool) -> list[Any]:
        await trained(engine, 3)
        await engine.save_state("checkpoint")
        after = engine.forward_backward([random_datum(7)], "ppo")  # not in the saved state
        await after
        sampler = await engine.snapshot()
        if restart:
            server.restart()
        (sample,) = await sampler.sample(PROMPT, SamplingParams(max_tokens=10, seed=1))
        if restart:
            server.restart()
        await engine.optim_step(AdamParams(learning_rate=0.05))
        return [sample.tokens, (await engine.forward([random_datum(99, 40)])).logprobs[0]]

    outcomes = []
    for restart in (False, True):
        server = Server()
        with engine_on(server) as engine:
            outcomes.append(asyncio.run(work(engine, server, restart)))
            assert engine.statistics["replays"] == (2 if restart else 0)
    for a, b in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_server_that_stays_away_ends_the_run_with_where_its_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_REPLAYS", 3)
    server = Server()

    async def work(engine: Any) -> None:
        saved = await engine.save_state("checkpoint")
        engine._link.wire.patience_s = 0.05
        engine._link.base_url = "http://127.0.0.1:9"
        server.restart()
        with pytest.raises(
            EngineError, match=rf"could not be brought back after 3 tries .*last saved state is {saved}"
        ):
            await engine.forward_backward([random_datum(1)], "ppo")
        with pytest.raises(EngineError, match="could not be brought back"):
            await engine.optim_step(AdamParams())

    with engine_on(server) as engine:
        asyncio.run(work(engine))


def test_a_call_that_is_itself_at_fault_fails_alone() -> None:
    async def work(engine: Any) -> None:
        before = await trained(engine, 2)
        with pytest.raises(EngineError, match="Checkpoint not found"):
            await engine.load_state("tinker://nobody/weights/nothing")
        np.testing.assert_array_equal((await engine.forward([random_datum(99, 40)])).logprobs[0], before)
        with pytest.raises(EngineError, match="is not a state of a server"):
            await engine.load_state("/tmp/somewhere")

    with engine_on(Server()) as engine:
        asyncio.run(work(engine))


def test_a_sampler_that_would_undo_training_is_not_used() -> None:
    async def work(engine: Any) -> None:
        old = await engine.snapshot()
        await old.sample(PROMPT, SamplingParams(max_tokens=3))
        await trained(engine, 1)
        with pytest.raises(EngineError, match="trained since this sampler was made; take a new snapshot"):
            await old.sample(PROMPT, SamplingParams(max_tokens=3))
        await (await engine.snapshot()).sample(PROMPT, SamplingParams(max_tokens=3))
        with pytest.raises(ContextOverflow, match="prompt of 8 tokens and max_tokens 4096 exceed the context of 4096"):
            await (await engine.base()).sample(PROMPT, SamplingParams(max_tokens=4096))

    with engine_on(Server(Manners(frozen_samplers=False))) as engine:
        asyncio.run(work(engine))


# -- a whole run ----------------------------------------------------------------------------------------------------------------------

CONFIG = TrainConfig(
    model=ModelConfig(engine="tinker"),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=8),
    optim=OptimConfig(batch_size=3, num_train_datapoints=9, learning_rate=0.01),
    warm_questions=1,
    eval_every=3,
    eval_questions=1,
)


def run_of(engine: Any, path: Path, config: TrainConfig = CONFIG) -> Run:
    run = Run.open(path) if Run.exists(path) else Run.create(path, config.as_dict(), {})
    task = load("arithmetic", config.seed, config.eval_questions)
    reward, estimator = REWARDS[config.protocol.scoring.reward], ESTIMATORS[config.protocol.scoring.estimator]
    asyncio.run(train(Setup(config, engine, Rendering(engine.tokenizer), task, [task], reward, estimator, run)))
    return run


def told(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith(("time/", "engine/"))}
        for row in run.metrics()
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Over a good line, and without a break."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_TELEMETRY", "0")
        with engine_on(Server(Manners(vocabulary=258))) as engine:
            return run_of(engine, tmp_path_factory.mktemp("whole") / "run")


def test_a_run_is_paid_by_a_judge_on_the_server(tmp_path: Path) -> None:
    """The untrained weights check each answer twice; which word is likelier the server computes."""
    protocol = CONFIG.protocol.with_choices({"reward": "approval:checks=2", "sections": "asked"})
    debates = replace(CONFIG.debate, max_rounds=1, max_tokens=60, evaluation_tokens=8)
    config = replace(CONFIG, protocol=protocol, debate=debates, warm_questions=0, eval_every=0)
    with engine_on(Server(Manners(vocabulary=258))) as engine:
        run = Run.create(tmp_path / "run", config.as_dict(), {})
        task, rendering = load("arithmetic", 0, 1), Rendering(engine.tokenizer)
        scoring = config.protocol.scoring
        made = Setup(config, engine, rendering, task, [task], scoring.rule, ESTIMATORS[scoring.estimator], run)

        async def go() -> None:
            await train(replace(made, judge=made.guest(await engine.base())))

        asyncio.run(go())
    rows = run.metrics()
    assert [row["debates/failed"] for row in rows] == [0.0] * 3
    records = [record for step in run.steps() for record in run.records(step)]
    checks = [check for record in records for check in record["checks"]]
    assert checks and all(0 < check["value"] < 1 and check["by"] == "probability" for check in checks)
    assert sum(row["tokens/jury"] for row in rows) == sum(check["tokens"] for check in checks)


@pytest.mark.slow
def test_a_run_over_a_bad_line_has_the_metrics_of_one_over_a_good_line_and_every_debate(
    whole_run: Run, tmp_path: Path
) -> None:
    with engine_on(Server(Manners(vocabulary=258)), 0.2, seed=4) as engine:
        faulty = run_of(engine, tmp_path / "run")
        assert 0 < max(row.get("engine/replays", 0) for row in faulty.metrics()) <= engine.statistics["replays"]
    assert told(whole_run) == told(faulty)
    for run in (whole_run, faulty):
        assert run.steps() == [2, 3, 4]
        debates = [debate for step in run.steps() for debate in run.records(step)]
        assert len(debates) == 9 and not any("error" in debate for debate in debates)
        assert len({debate["question"]["text"] for debate in debates}) == 9
        assert all(len(debate["turns"]) == 6 for debate in debates)


def test_a_run_goes_on_from_the_servers_saved_state(whole_run: Run, tmp_path: Path) -> None:
    """Stopped after step 2; a new engine in a new session loads what the server kept, and ends as if nothing had been."""
    server = Server(Manners(vocabulary=258))

    class Enough(Exception): ...

    with engine_on(server) as engine:
        save, saved = engine.save_state, []

        def save_two(path: str) -> Any:
            if len(saved) == 2:
                raise Enough
            saved.append(path)
            return save(path)

        engine.save_state = save_two
        with pytest.raises(Enough):
            run_of(engine, tmp_path / "cut")
    with engine_on(server) as engine:
        cut = run_of(engine, tmp_path / "cut")
    assert told(cut) == told(whole_run)
