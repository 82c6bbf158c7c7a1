"""Steps in the setup: how long they were, when the rate gives way, on how much signal they rest, and what Adam remembers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import AdamParams, Datum, LossOutput
from moot.engine.scripted import ScriptedEngine
from moot.errors import EngineError
from moot.players.checkpoints import checkpoints
from moot.training.loop import train
from moot.training.optimise import MEASURED
from moot.training.state import Setup
from support.dying import dies_after
from unit.training.test_train import CONFIG, make_setup, untimed


class Moved(ScriptedEngine):
    """Each optimizer step lowers the logprob of every token by 0.02; what was loaded and measured is written down."""

    def __init__(self, **options: Any) -> None:
        super().__init__(seed=0, **options)
        self.loaded: list[tuple[str, bool]] = []
        self.rates: list[float] = []
        self.measured: list[int] = []
        self.lowered = 0.0

    def forward(self, datums: Sequence[Datum], loss: str = "cross_entropy", measured: bool = True) -> Any:
        if measured:
            self.measured.append(len(datums))
        now = [(datum.logprobs - self.lowered).astype(np.float32) for datum in datums]

        # Not a coroutine: a run that dies leaves it unread, and Python complains of an unread coroutine in whatever test comes next.
        done: asyncio.Future[LossOutput] = asyncio.get_running_loop().create_future()
        done.set_result(LossOutput(now, 0.0))
        return done

    def forward_backward(self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None) -> Any:
        return self.forward(datums, loss, measured=False)

    def optim_step(self, params: AdamParams) -> Any:
        self.rates.append(params.learning_rate)
        self.lowered += 0.02
        return super().optim_step(params)

    def load_state(self, path: str, optimizer: bool = True) -> Any:
        self.loaded.append((Path(path).name, optimizer))
        return super().load_state(path)


def rows(setup: Setup) -> list[dict[str, Any]]:
    return [row for row in setup.run.metrics() if row["phase"] == "self_play"]


def trained(path: Path, engine: ScriptedEngine | None = None, parts: tuple[str, ...] = (), **optim: Any) -> Setup:
    setup = make_setup(path, replace(CONFIG, eval_every=0, parts=parts, optim=replace(CONFIG.optim, **optim)), engine)
    asyncio.run(train(setup))
    return setup


def further(setup: Setup) -> int:
    """Questions beyond the batches, as the newest checkpoint has it."""
    return sum(count for _, count in (next(checkpoints(setup.run)).state or {})["further"])


def test_a_step_is_measured_after_all_of_its_optimizer_steps(tmp_path: Path) -> None:
    """A step lowers every logprob by 0.02. Measured on the first datums."""
    engine = Moved()
    setup = trained(tmp_path / "run", engine)
    assert [row["optim/kl_step"] for row in rows(setup)] == pytest.approx([0.02] * 4, abs=1e-6)
    assert len(engine.measured) == 4 and 0 < max(engine.measured) <= 12


def test_a_step_is_measured_on_64_datums_at_most(tmp_path: Path) -> None:
    engine = Moved()
    trained(tmp_path / "run", engine, batch_size=20, num_train_datapoints=20)
    assert engine.measured == [MEASURED]


def test_a_script_takes_steps_of_no_length(tmp_path: Path) -> None:
    assert [row["optim/kl_step"] for row in rows(trained(tmp_path / "run"))] == [0, 0, 0, 0]


def test_steps_that_are_too_long_halve_the_rate_and_a_resumed_run_remembers(tmp_path: Path) -> None:
    """Each iteration moves by 0.02, more than 1.5 times the target of 0.01: the rate is 1, 1/2, 1/4, 1/8 of the configured one."""
    options: dict[str, Any] = {"parts": ("adaptive_rate:target_kl=0.01",), "learning_rate": 8e-5}
    whole = trained(tmp_path / "whole", Moved(), **options)
    assert [row["optim/lr"] for row in rows(whole)] == pytest.approx([8e-5, 4e-5, 2e-5, 1e-5])
    assert [row["optim/lr_factor"] for row in rows(whole)] == pytest.approx([0.5, 0.25, 0.125, 0.0625])

    class Dies(Moved):
        def optim_step(self, params: AdamParams) -> Any:
            if len(self.rates) == 2 + 2:
                raise RuntimeError("cut off")
            return super().optim_step(params)

    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", Dies(), **options)
    again = trained(tmp_path / "cut", Moved(), **options)
    assert [row["optim/lr"] for row in rows(again)] == pytest.approx([8e-5, 4e-5, 2e-5, 1e-5])


def test_without_a_target_the_rate_is_as_configured(tmp_path: Path) -> None:
    setup = trained(tmp_path / "run", Moved(), learning_rate=8e-5)
    assert [row["optim/lr"] for row in rows(setup)] == [8e-5] * 4
    assert "optim/lr_factor" not in rows(setup)[0]


def test_the_optimizer_starts_anew_after_the_warm_start_and_only_there(tmp_path: Path) -> None:
    """Two warm steps: the state of the second is loaded without its optimizer. A run resumed later takes its optimizer along."""
    engine = Moved()
    trained(tmp_path / "run", engine)
    assert engine.loaded == [("000002", False)]
    later = Moved()
    trained(tmp_path / "run", later)
    assert later.loaded == [("000006", True)]


def test_a_run_that_is_resumed_right_after_the_warm_start_also_starts_the_optimizer_anew(tmp_path: Path) -> None:
    class Dies(Moved):
        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("cut off")

    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "run", Dies())
    engine = Moved()
    trained(tmp_path / "run", engine)
    assert engine.loaded == [("000002", True), ("000002", False)]


def test_an_engine_that_cannot_start_its_optimizer_anew_says_so(tmp_path: Path) -> None:
    class Stubborn(ScriptedEngine):
        def load_state(self, path: str, optimizer: bool = True) -> Any:
            if not optimizer:
                raise EngineError("weights come with their optimizer here")
            return super().load_state(path)

    setup = trained(tmp_path / "run", Stubborn(seed=0))
    assert any("cannot reset its optimizer" in note for note in setup.watcher.notes)  # type: ignore[attr-defined]


# A signal before a step


def numbers(setup: Setup, step: int) -> list[str]:
    return [record["question"]["id"] for record in setup.run.records(step)]


def test_further_questions_are_debated_until_enough_debates_carry_a_gradient(tmp_path: Path) -> None:
    """Batches of 3. More than 12 gradients cannot be had in 4 batches, so every step debates 12 questions, none twice."""
    setup = trained(tmp_path / "run", parts=("min_signal:debates=100",))
    assert [row["debates/played"] for row in rows(setup)] == [12, 12, 12, 12]
    assert further(setup) == 4 * 9
    asked = [id for step in setup.run.steps() for id in numbers(setup, step)]
    assert len(asked) == 48 and len(set(asked)) == 48


def test_a_longer_run_asks_no_question_again_that_it_debated_for_a_signal(tmp_path: Path) -> None:
    """Before, further questions stood behind the batches of the shorter run, and became batches of the longer one."""
    parts = ("min_signal:debates=100",)
    trained(tmp_path / "run", parts=parts)
    setup = trained(tmp_path / "run", parts=parts, num_train_datapoints=24)
    asked = [id for step in setup.run.steps() for id in numbers(setup, step)]
    assert len(asked) == 8 * 12 and len(set(asked)) == 8 * 12


def test_a_batch_with_enough_signal_is_left_as_it_is(tmp_path: Path) -> None:
    plain, enough = trained(tmp_path / "plain"), trained(tmp_path / "enough", parts=("min_signal:debates=1",))
    assert further(enough) == 0
    assert untimed(rows(enough)) == untimed(rows(plain))


def test_a_run_cut_off_while_it_looks_for_a_signal_continues_to_the_same_debates(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", parts=("min_signal:debates=100",))

    with contextlib.suppress(RuntimeError):
        trained(tmp_path / "cut", dies_after(150)(seed=0), parts=("min_signal:debates=100",))
    again = trained(tmp_path / "cut", parts=("min_signal:debates=100",))
    assert untimed(again.run.metrics()) == untimed(whole.run.metrics())
    assert [numbers(again, step) for step in again.run.steps()] == [numbers(whole, step) for step in whole.run.steps()]
