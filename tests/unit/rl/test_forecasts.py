"""Forecasts from the question to the page: what is asked, which tokens are taught what, what is kept, and what a run shows of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot.debate.forecasts import FORECASTS, Forecast
from moot.debate.play import play
from moot.debate.protocol import V2, Protocol
from moot.debate.rewards import REWARDS
from moot.debate.rules import Rules
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.page.debate import shown
from moot.page.trust import measured
from moot.rl.advantages import ESTIMATORS, with_advantages
from moot.rl.rollout import rollout
from moot.runs import Run
from moot.runs.record import from_record, read_line, to_record, to_transcript
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tasks import load
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tools.rescore import check, compare, rescore
from moot.tools.transcripts import BadLine, score
from moot.training.loop import train
from moot.training.state import Setup
from support.making import text

QUESTION = Question("What is 3 + 4?", "7", instruction="Put the answer in a box.")
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"layout": "rebuilt", "schedule": "sequential"},
    {"layout": "shared"},
    {"sections": "asked", "personas": False},
    {"sections": "asked", "closing_ballot": True},
    {"sections": "given"},
)


class Sure(ScriptedEngine):
    """Answers by the script, and says 70 whenever it is asked how likely something is."""

    def _answer(self, scene: Any, key: str, params: SamplingParams) -> Any:
        if scene.section == "forecast":
            return [*self.tokenizer.encode("70"), self.tokenizer.eos_token_id], "stop"
        return super()._answer(scene, key, params)


def played(rules: Rules, engine: ScriptedEngine | None = None) -> PlayedDebate:
    engine = engine or Sure(style="well_formed")
    (done,) = asyncio.run(
        rollout([Debate(QUESTION, 3, 2, rules)], engine, Rendering(engine.tokenizer), SamplingParams(2000))
    )
    assert done.error is None
    return done


def taught(done: PlayedDebate, protocol: Protocol = V2) -> PlayedDebate:
    return with_advantages([moot.score(done, protocol)], ESTIMATORS[protocol.scoring.estimator])[0]


# What is asked


@pytest.mark.parametrize("asked", FORECASTS)
def test_each_agent_is_asked_once_per_question_after_its_last_turn_and_nobody_else_hears_it(asked: str) -> None:
    heard: list[Observation] = []

    async def speak(observation: Observation) -> Said:
        heard.append(observation)
        return Said("55" if observation.section == "forecast" else text())

    done = asyncio.run(play(Debate(QUESTION, 3, 1, Rules(forecast=asked)), speak))  # type: ignore[arg-type]
    about = FORECASTS[asked]
    assert done.forecasts == tuple(Forecast(agent, each, "55", 0.55) for agent in range(3) for each in about)
    assert len(done.turns) == 3 and len(heard) == 3 + 3 * len(about)
    for observation in heard[3:]:
        last = observation.messages[-1]["content"]
        assert "How likely is it that your answer" in last and "from 0" in last
        said = [each["content"] for each in observation.messages if each["role"] == "assistant"]
        assert said[-1] in (text(), "55") and said.count("55") == observation.round - 2


def test_who_has_no_answer_is_not_asked_and_nobody_is_after_an_abort() -> None:
    async def speak(observation: Observation) -> Said:
        return Said("50" if observation.section == "forecast" else "mumble" if observation.agent == 1 else text())

    for rules, agents in ((Rules(forecast="win"), [0, 2]), (Rules(forecast="win", on_parse_failure="abort"), [])):
        done = asyncio.run(play(Debate(QUESTION, 3, 1, rules), speak))
        assert [each.agent for each in done.forecasts] == agents


@pytest.mark.parametrize("way", WAYS)
def test_the_tokens_of_a_forecast_continue_those_of_the_last_turn_and_read_as_the_conversation(
    way: dict[str, Any],
) -> None:
    done = played(Rules(forecast="both", **way))
    debate, tokenizer = done.debate, Sure().tokenizer
    assert len(done.forecast_turns) == len(debate.forecasts) == 6
    for agent, steps in enumerate(debate.turns_by_agent()):
        context: list[int] = []
        turns = [done.sampled[i] for i in steps]
        own = [turn for each, turn in zip(debate.forecasts, done.forecast_turns, strict=True) if each.agent == agent]
        for turn in [*turns, *own]:
            context = [*(context if turn.extends else []), *turn.prompt, *turn.tokens]
        asked = debate.observe_forecast(agent, [Said("70")]).messages
        whole = tokenizer.apply_chat_template([*asked, {"role": "assistant", "content": "70"}], tokenize=False)
        assert tokenizer.decode(context) + "\n" == whole
        assert all(turn.extends and turn.temperature == turns[-1].temperature for turn in own)


def test_what_a_model_says_that_is_no_number_is_a_value_and_never_an_error() -> None:
    done = played(Rules(forecast="both"), ScriptedEngine(style="hostile", seed=3))
    assert all(each.chance is None or 0 <= each.chance <= 1 for each in done.debate.forecasts)
    assert taught(done).advantages is not None


# What is taught


def test_a_forecasts_tokens_get_its_own_score_and_all_others_what_they_got_before() -> None:
    with_forecasts = taught(played(Rules(forecast="both")))
    without = taught(played(Rules()))
    assert with_forecasts.advantages is not None and without.advantages is not None
    made = datums(
        with_forecasts.debate, with_forecasts.sampled, with_forecasts.advantages, with_forecasts.forecast_turns
    )
    before = datums(without.debate, without.sampled, without.advantages)
    assert len(made) == len(before) == 3  # a conversation that grows stays one datum per agent
    for agent, (datum, old) in enumerate(zip(made, before, strict=True)):
        count = len(old.targets)
        np.testing.assert_array_equal(datum.targets[:count], old.targets)
        np.testing.assert_array_equal(datum.advantages[:count], old.advantages)
        # Two replies of three tokens each: 7, 0 and the end of the message.
        replies = datum.mask[count:] > 0
        assert replies.sum() == 6
        own = with_forecasts.advantages.forecasts[2 * agent : 2 * agent + 2]
        np.testing.assert_allclose(datum.advantages[count:][replies], np.repeat(own, 3), rtol=1e-6)
        assert not datum.advantages[count:][~replies].any()


def test_text_debates_are_taught_their_forecasts_too() -> None:
    def speak(observation: Observation) -> str:
        return (
            "70" if observation.section == "forecast" else text("Agent 1 > Agent 2" if observation.eligible else "N/A")
        )

    protocol = V2.with_choices(forecast="win")
    done = moot.score(moot.play(QUESTION, speak, protocol=protocol), protocol)
    assert [each.chance for each in done.debate.forecasts] == [0.7] * 3
    tokenizer = Sure().tokenizer
    with_forecasts = sum(int(datum.mask.sum()) for datum in moot.datums(done, tokenizer))
    without = replace(done, debate=replace(done.debate, forecasts=()))
    assert with_forecasts == sum(int(datum.mask.sum()) for datum in moot.datums(without, tokenizer)) + 3 * 3


# What is kept


def test_a_record_gives_back_forecasts_and_what_they_were_taught_and_has_none_where_nobody_was_asked() -> None:
    done = taught(played(Rules(forecast="both")), V2.with_choices(forecast="both", vote_weight="forecast"))
    record = json.loads(json.dumps(to_record(done)))
    assert record["forecasts"][0] == {
        "agent": 0,
        "about": "win",
        "text": "70",
        "chance": 0.7,
        "advantage": done.advantages.forecasts[0],
    }  # type: ignore[union-attr]
    read = from_record(record)
    assert read.debate.forecasts == done.debate.forecasts and read.advantages.forecasts == done.advantages.forecasts  # type: ignore[union-attr]
    assert (
        [vote.weight for vote in read.outcome.votes]
        == [vote.weight for vote in done.outcome.votes]
        == [0.7] * len(done.outcome.votes)
    )  # type: ignore[union-attr]
    assert json.loads(json.dumps(to_record(read))) == record
    plain = to_record(taught(played(Rules())))
    assert not {"forecasts", "weight"} & {*plain, *(key for vote in plain["votes"] for key in vote)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"agent": 3}, "agent about win or right"),
        ({"about": "luck"}, "agent about win or right"),
        ({"chance": 1.5}, "chance must lie in 0 to 1, got 1.5"),
        ({"chance": "high"}, "chance must be numbers, got 'high'"),
        ({"advantage": None}, "advantage must be numbers"),
        ({"text": 7}, "text must be text, got 7"),
    ],
)
def test_a_damaged_forecast_is_named(change: dict[str, Any], says: str) -> None:
    record = json.loads(json.dumps(to_record(taught(played(Rules(forecast="win"))))))
    record["forecasts"][1] |= change
    found = read_line(json.dumps({"number": 0, **record}).encode(), 1, 0)
    assert says in found.reason  # type: ignore[union-attr]


def test_a_transcript_may_bring_forecasts() -> None:
    done = played(Rules(forecast="right"))
    line = {**to_transcript(done.debate), "protocol": {"forecast": "right", "vote_weight": "forecast"}}
    (scored,) = score([json.dumps(line)], V2)
    assert isinstance(scored, PlayedDebate) and scored.debate.forecasts == done.debate.forecasts
    assert {vote.weight for vote in scored.outcome.votes} == {0.7}  # type: ignore[union-attr]
    for wrong, says in (
        (
            {"agent": 0, "about": "win", "text": "7"},
            "what the protocol's forecast asks for, win or right, got 'win' with forecast 'right'",
        ),
        ({"agent": 3, "about": "right", "text": "7"}, r"forecasts[0].agent must be below num_agents 3, got 3"),
        ({"agent": 0}, "forecasts[0] must be an object with agent, about and text"),
    ):
        (bad,) = score([json.dumps({**line, "forecasts": [wrong]})], V2)
        assert isinstance(bad, BadLine) and says in bad.reason


# A run


class Silent:
    def began(self, step: int, total: int, phase: str) -> None: ...
    def debate_finished(self, rollout: object) -> None: ...
    def row(self, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two steps of three debates in which everybody says 70, and an evaluation of three questions."""
    config = TrainConfig(
        model=ModelConfig(engine="scripted", deterministic=True),
        debate=DebateConfig(num_agents=4, max_rounds=3, max_tokens=2000),
        optim=OptimConfig(batch_size=3, num_train_datapoints=6),
        protocol=V2.with_choices(forecast="both", advantage="center_forecast", sections="asked", personas=False),
        eval_every=2,
        eval_questions=3,
    )
    engine, run = Sure(style="well_formed"), Run.create(tmp_path_factory.mktemp("runs") / "run", config.as_dict(), {})
    task = load("arithmetic", config.seed, config.eval_questions)
    reward, estimator = REWARDS["generator_judge"], ESTIMATORS["center_forecast"]
    setup = Setup(config, engine, Rendering(engine.tokenizer), task, [task], reward, estimator, run, watcher=Silent())
    asyncio.run(train(setup))
    return Run.open(run.path)


def test_a_run_whose_agents_all_say_70_has_the_calibration_that_follows(run: Run) -> None:
    """One of four wins, where anybody does: 1/4 * (0.7 - 1)^2 + 3/4 * 0.7^2 = 0.39."""
    rows = [row for row in run.metrics() if row["phase"] == "self_play"]
    assert len(rows) == 2
    for row in rows:
        assert (row["forecast/readable"], row["forecast/win_mean"], row["forecast/right_mean"]) == (
            1,
            pytest.approx(0.7),
            pytest.approx(0.7),
        )
        assert (row["forecast/win_came"], row["forecast/win_brier"]) == (0.25, pytest.approx(0.39))
        came = row["forecast/right_came"]
        assert row["forecast/right_brier"] == pytest.approx(0.09 * came + 0.49 * (1 - came))
        assert row["tokens/forecasts"] == 3 * 4 * 2 * 3
        assert row["trust/mean_accuracy"] == pytest.approx(came)
    (tested,) = [row for row in run.metrics() if row["phase"] == "eval" and row["step"] == 2]
    assert tested["forecast/readable"] == 1


def test_the_tokens_on_disk_carry_the_forecasts_own_advantages(run: Run) -> None:
    debates = [each for each in run.debates([1]) if isinstance(each, PlayedDebate)]
    arrays = np.load(run.path / "debates" / "000001.npz")
    for number, each in enumerate(debates):
        for k, forecast in enumerate(each.debate.forecasts):
            (place,) = np.flatnonzero((arrays["debate"] == number) & (arrays["turn"] == len(each.debate.turns) + k))
            own = arrays["advantages"][arrays["offsets"][place] : arrays["offsets"][place + 1]]
            came = each.forecast_came(forecast)
            np.testing.assert_allclose(own, [0 if came is None else 0.16 if came else -0.24] * 3, rtol=1e-6)


def test_the_page_shows_what_was_said_against_what_came(run: Run) -> None:
    found = measured(run.path, None)
    assert {key for key in found["panel"] if key.startswith("forecast/")} >= {
        "forecast/readable",
        "forecast/win_brier",
        "forecast/right_came",
    }
    (point,) = found["reliability"]["win"]
    assert (point["forecast"], point["came"], point["of"] % 4) == (pytest.approx(0.7), 0.25, 0)
    debate = shown(run.path, 1, 0)
    assert debate is not None and len(debate["forecasts"]) == 8
    assert {*debate["forecasts"][0]} == {"agent", "about", "text", "chance", "advantage", "came"}


def test_a_run_with_forecasts_can_be_rescored_and_one_without_cannot_use_them(run: Run, tmp_path: Path) -> None:
    same = rescore(run, {})
    assert same.largest_difference == pytest.approx(0, abs=1e-6) and not same.changed
    assert rescore(run, {"advantage": "center_round", "discount": 0.5}).after.advantage == "center_round"
    weighed = rescore(run, {"vote_weight": "forecast"})  # all weigh the same, so nothing changes
    assert weighed.largest_difference == pytest.approx(0, abs=1e-6)
    plain = Run.create(tmp_path / "plain", TrainConfig().as_dict(), {})
    plain.write_debates(1, [taught(played(Rules()))])
    for choices, says in (
        ({"vote_weight": "forecast"}, "vote_weight"),
        ({"advantage": "center_forecast"}, "center_forecast"),
    ):
        with pytest.raises(ConfigError, match=f"{says}.* needs forecasts"):
            rescore(plain, choices)
    with pytest.raises(ConfigError, match="forecast cannot be changed afterwards"):
        rescore(run, {"forecast": "none"})


def test_rescoring_with_a_discount_is_what_training_with_it_would_have_taught(tmp_path: Path) -> None:
    done = taught(played(Rules(sections="asked")))
    run = Run.create(tmp_path / "run", TrainConfig().as_dict(), {})
    run.write_debates(1, [done])
    ((_, after),) = compare(run, check(run, {"discount": 0.5}))  # type: ignore[misc]
    expected = taught(done, V2.with_choices(discount=0.5))
    assert after.advantages.streams == expected.advantages.streams  # type: ignore[union-attr]
    assert after.scoring.estimator == "center_round"
