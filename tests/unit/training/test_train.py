"""The loop on the scripted engine: everything but learning."""

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.debate.protocols import V1, V2
from moot.engine.protocol import LossOutput, StepOutput
from moot.engine.scripted import ScriptedEngine
from moot.errors import EngineError
from moot.rl.advantages import ESTIMATORS
from moot.rl.lookup import find_reward
from moot.runs import Run
from moot.runs.record import read_line, to_record
from moot.settings.presets import PRESETS
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tasks import load
from moot.tasks.answer_classes import Limited
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.training.loop import train
from moot.training.parts import find_parts
from moot.training.state import Setup, Stopped, Watcher
from support.dying import dies_after

CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=4, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=3, num_train_datapoints=12),
    warm_questions=16,
    eval_every=2,
    eval_questions=3,
    save_every=2,
)


KEYS = """
env/all/ac_tokens_per_turn env/all/ob_tokens_per_turn env/all/turns_per_episode env/all/total_episodes env/all/total_turns
env/all/reward/total env/all/by_group/frac_mixed optim/kl_sample_train_v1 optim/kl_sample_train_v2 optim/entropy
consensus_reached round parse_error train_arithmetic/format train_arithmetic/correct train_arithmetic/pass@k
train_arithmetic/avg@k train_arithmetic/cons@k v2/total_votes v2/missing_comparisons v2/comparison_lines_invalid
reward/gen/mean reward/judge/mean trust/judge_accuracy trust/vote_truth_agreement trust/winner_correct trust/position_bias
trust/length_bias trust/vote_cycles trust/answer_diversity trust/judges_per_pair trust/duplicate_votes
alarm/degenerate_consensus alarm/random_noise alarm/format_collapse debates/failed debates/dropped
grading/given_up
""".split()  # noqa: SIM905 - names without quotes are easier to check against the specification


class Silent(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.counts: list[tuple[str, int, int]] = []
        self.rows: list[dict[str, Any]] = []

    def counted(self, kind: str, done: int, total: int) -> None:
        self.counts.append((kind, done, total))

    def row(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def note(self, text: str) -> None:
        self.notes.append(text)


def make_setup(path: Path, config: TrainConfig = CONFIG, engine: ScriptedEngine | None = None) -> Setup:
    engine = engine or ScriptedEngine(seed=config.seed)
    run = Run.open(path) if Run.exists(path) else Run.create(path, config.as_dict(), {})
    task = load("arithmetic", config.seed, config.eval_questions)
    reward, estimator = find_reward(config.protocol.scoring.reward), ESTIMATORS[config.protocol.scoring.estimator]
    tasks, parts = [task, replace(task, name="second")], find_parts(config)
    return Setup(config, engine, Rendering(engine.tokenizer), task, tasks, reward, estimator, run, parts, Silent())


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    setup = make_setup(tmp_path_factory.mktemp("whole") / "run")
    asyncio.run(train(setup))
    return setup


def test_a_run_is_two_warm_steps_four_iterations_and_evaluations_first_last_and_between(finished: Setup) -> None:
    rows = finished.run.metrics()
    assert [(row["step"], row["phase"]) for row in rows] == [
        (0, "eval"), (1, "warm"), (2, "warm"), (2, "eval"),
        (3, "self_play"), (4, "self_play"), (4, "eval"), (5, "self_play"), (6, "self_play"), (6, "eval"),
    ]  # fmt: skip
    assert finished.engine.steps == 2 + 4


def test_the_debates_of_each_evaluation_are_kept_with_the_questions_in_one_order(finished: Setup) -> None:
    folder = finished.run.path / "held_out"
    assert sorted(file.name for file in folder.glob("*.jsonl")) == [
        "000000.jsonl",
        "000002.jsonl",
        "000004.jsonl",
        "000006.jsonl",
    ]
    for step, file in (
        (row["step"], folder / f"{row['step']:06d}.jsonl") for row in finished.run.metrics() if row["phase"] == "eval"
    ):
        debates = [read_line(line, step, place) for place, line in enumerate(file.read_bytes().splitlines())]
        assert all(isinstance(each, PlayedDebate) and each.outcome is not None for each in debates)
        assert [each.debate.question for each in debates] == list(finished.task.held_out[:3])


def test_what_an_engine_made_good_is_in_the_row_of_an_iteration(tmp_path: Path) -> None:
    class Crowded(ScriptedEngine):
        faults = {"out_of_memory": 2}  # noqa: RUF012 - as an engine's property

    config = replace(CONFIG, optim=replace(CONFIG.optim, num_train_datapoints=3), warm_questions=0, eval_every=0)
    setup = make_setup(tmp_path / "run", config, Crowded(seed=0))
    asyncio.run(train(setup))
    assert [row["engine/out_of_memory"] for row in setup.run.metrics() if row["phase"] == "self_play"] == [2.0]


def test_every_key_that_the_sources_name_is_in_the_row_of_an_iteration(finished: Setup) -> None:
    row = next(row for row in finished.run.metrics() if row["phase"] == "self_play")
    for key in KEYS:
        assert key in row, key
    assert row["env/all/total_episodes"] == 3 * 4
    assert row["env/all/total_turns"] == 3 * 4 * 2
    assert row["optim/kl_sample_train_v2"] == 0  # the script agrees with itself


def test_the_same_seed_gives_the_same_metrics_and_another_seed_does_not(finished: Setup, tmp_path: Path) -> None:
    again = make_setup(tmp_path / "again")
    asyncio.run(train(again))
    assert untimed(again.run.metrics()) == untimed(finished.run.metrics())
    other = make_setup(tmp_path / "other", replace(CONFIG, seed=1))
    asyncio.run(train(other))
    assert untimed(other.run.metrics()) != untimed(finished.run.metrics())


@pytest.mark.parametrize("calls", [0, 3, 30, 75, 110, 140])
def test_a_run_cut_off_at_any_call_goes_on_to_the_same_metrics(finished: Setup, tmp_path: Path, calls: int) -> None:
    setup = make_setup(tmp_path / "run", engine=dies_after(calls)(seed=0))
    with contextlib.suppress(RuntimeError):
        asyncio.run(train(setup))
    resumed = make_setup(tmp_path / "run")
    asyncio.run(train(resumed))
    assert untimed(resumed.run.metrics()) == untimed(finished.run.metrics())


def test_a_damaged_newest_checkpoint_is_noticed_and_the_one_before_it_used(finished: Setup, tmp_path: Path) -> None:
    setup = make_setup(tmp_path / "run")
    asyncio.run(train(setup))
    (setup.run.path / "checkpoints" / "000006" / "state.json").write_text("{}")
    resumed = make_setup(tmp_path / "run")
    asyncio.run(train(resumed))
    assert "000006 cannot be used" in resumed.watcher.notes[0]
    assert untimed(resumed.run.metrics()) == untimed(finished.run.metrics())


def test_every_debate_is_on_disk_with_its_tokens(finished: Setup) -> None:
    records = list(finished.run.records(3))
    assert [record["number"] for record in records] == [0, 1, 2]
    arrays = np.load(finished.run.path / "debates" / "000003.npz")
    assert len(arrays["debate"]) == sum(len(record["turns"]) for record in records)
    assert arrays["offsets"][-1] == len(arrays["tokens"]) == len(arrays["logprobs"]) == len(arrays["advantages"])
    first = records[0]["turns"][0]
    tokens = arrays["tokens"][arrays["offsets"][0] : arrays["offsets"][1]]
    assert finished.rendering.said(tokens)[0] == first["text"]


def test_what_a_run_saved_comes_back_as_it_was(finished: Setup) -> None:
    read = [each for each in finished.run.debates() if isinstance(each, PlayedDebate)]
    assert [each.name for each in read] == [f"{step}/{number}" for step in finished.run.steps() for number in range(3)]
    for each, record in zip(
        read, (r for step in finished.run.steps() for r in finished.run.records(step)), strict=True
    ):
        assert json.loads(json.dumps({"number": each.number, **to_record(each)})) == record
    assert not (finished.run.path / "index.sqlite").exists()


def test_debates_without_a_gradient_are_not_trained_on_but_are_part_of_what_was_sampled(tmp_path: Path) -> None:
    class Off(ScriptedEngine):
        def forward(self, datums: Any, loss: str = "cross_entropy") -> Any:
            result = super().forward(datums, loss)

            async def off() -> LossOutput:
                out = await result
                # Further off for debates without a gradient, so that leaving them out would show.
                return replace(
                    out,
                    logprobs=[
                        lp - (0.1 if d.advantages.any() else 0.3) for lp, d in zip(out.logprobs, datums, strict=True)
                    ],
                )

            return off()

    config = replace(
        CONFIG,
        eval_every=0,
        protocol=CONFIG.protocol.with_choices(reward="truth_last"),
        optim=replace(CONFIG.optim, num_train_datapoints=30),
    )
    setup = make_setup(tmp_path / "run", config, engine=Off(seed=0))
    asyncio.run(train(setup))
    without = [row for row in setup.run.metrics() if row.get("debates/dropped")]
    assert without
    for row in without:
        assert row["optim/trained_tokens"] < row["tokens/sampled"]
        assert 0.1 + 1e-6 < row["optim/kl_sample_train_v1"] <= 0.3 + 1e-6


def test_three_skipped_steps_in_a_row_stop_the_run(tmp_path: Path) -> None:
    class Nan(ScriptedEngine):
        def optim_step(self, params: object) -> Any:
            async def skipped() -> StepOutput:
                return StepOutput({"skipped": 1.0})

            return skipped()

    setup = make_setup(tmp_path / "run", engine=Nan(seed=0))
    with pytest.raises(Stopped, match="three optimizer steps in a row"):
        asyncio.run(train(setup))


def test_debates_that_the_engine_lost_are_counted_and_left_out(tmp_path: Path) -> None:
    class Flaky(ScriptedEngine):
        calls = 0

        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls % 37 == 0:
                raise EngineError("the server went away")
            return await super().sample(*args, **kwargs)

    setup = make_setup(tmp_path / "run", engine=Flaky(seed=0))
    asyncio.run(train(setup))
    lost = [row["debates/failed"] for row in setup.run.metrics() if row["phase"] == "self_play"]
    assert sum(lost) > 0
    errors = [record["error"] for step in setup.run.steps() for record in setup.run.records(step) if "error" in record]
    assert len(errors) == sum(lost) and set(errors) == {"EngineError: the server went away"}


def test_comparisons_that_the_grader_gave_up_are_counted(finished: Setup, tmp_path: Path) -> None:
    class Hopeless:
        def __call__(self, given: str, right: str) -> bool:
            return False

        def within(self, given: str, right: str, seconds: float) -> Limited:
            return Limited(False, given_up=True)

    setup = make_setup(tmp_path / "run")
    task = replace(setup.task, equal=Hopeless())
    setup = replace(setup, task=task, tasks=[task])
    asyncio.run(train(setup))
    counts = [
        [row["grading/given_up"] for row in each.run.metrics() if "grading/given_up" in row]
        for each in (finished, setup)
    ]
    assert counts[0] == [0, 0, 0, 0]
    assert all(count > 0 for count in counts[1]) and len(counts[1]) == 4


def test_the_run_stops_cleanly_when_every_debate_fails(tmp_path: Path) -> None:
    class Dead(ScriptedEngine):
        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            raise EngineError("no route")

    setup = make_setup(tmp_path / "run", replace(CONFIG, eval_every=0), engine=Dead(seed=0))
    with pytest.raises(Stopped, match=r"every debate of step 3 failed in the engine \(EngineError: no route\)"):
        asyncio.run(train(setup))


def test_learning_rate_schedules_start_full_and_fall_to_nearly_nothing(tmp_path: Path) -> None:
    def rates(schedule: str) -> list[float]:
        config = replace(
            CONFIG,
            eval_every=0,
            optim=replace(CONFIG.optim, learning_rate=1.0),
            parts=(f"lr_schedule:shape={schedule}",),
        )
        setup = make_setup(tmp_path / schedule, config)
        asyncio.run(train(setup))
        return [round(row["optim/lr"], 6) for row in setup.run.metrics() if row["phase"] == "self_play"]

    assert rates("constant") == [1, 1, 1, 1]
    assert rates("linear") == [1, 0.75, 0.5, 0.25]
    assert rates("cosine") == [1, 0.853553, 0.5, 0.146447]


def test_the_presets_are_the_published_tables() -> None:
    math, easy, hard, v1 = (PRESETS[name] for name in ("math", "easy", "hard", "v1"))
    assert (math.model.model, math.debate.max_tokens, math.debate.num_agents, math.debate.max_rounds) == (
        "Qwen/Qwen3-8B",
        768,
        3,
        3,
    )
    assert (math.optim.batch_size, math.optim.learning_rate, math.optim.num_train_datapoints) == (16, 3e-5, 1024)
    assert (math.eval_every, math.save_every, math.parts) == (50, 100, ("lr_schedule:warmup=5",))
    # Not the source's, and why, stands beside it.
    assert math.protocol == V2.with_choices(evaluation_credit="judge", sections="asked", personas=False)
    assert {name: preset.debate.task for name, preset in PRESETS.items()} == {
        "demo": "arithmetic",
        "majority": "gsm8k",
        "votes": "countdown",
        "truth": "gsm8k",
        "math": "math",
        "easy": "gsm8k",
        "hard": "math",
        "v1": "arithmetic",
        "aime": "aime24",
        "advocates": "gsm8k",
    }
    assert (v1.debate.max_tokens, v1.protocol) == (8196, V1)
    assert (easy.debate.num_agents, easy.debate.max_rounds, easy.optim.learning_rate, easy.optim.batch_size) == (
        3,
        2,
        5e-5,
        32,
    )
    assert (hard.warm.learning_rate, hard.warm_questions, hard.debate.num_agents, hard.debate.max_rounds) == (
        1e-4,
        1536,
        5,
        3,
    )
    assert (hard.optim.learning_rate, hard.protocol.scoring.lambda_gen, hard.protocol.scoring.lambda_judge) == (
        3e-5,
        0.5,
        1.5,
    )
    assert (v1.protocol.rules.schedule, v1.protocol.rules.contract, v1.protocol.scoring.reward) == (
        "sequential",
        "five_tag",
        "win_rate",
    )


def test_a_configuration_survives_its_json() -> None:
    for config in (*PRESETS.values(), CONFIG):
        assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
