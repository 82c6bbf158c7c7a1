"""Training, evaluation and rescoring by judges who check answers, on the scripted engine and with planted judges."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import httpx
import pytest

import moot
from moot.debate.checks import Check, generator_reward, pairs_of, scores_in_pairs
from moot.debate.play import Speak
from moot.debate.protocols import V2
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError, EngineError
from moot.judges.asking import Asked
from moot.players.chat.chat import Chat, Patience
from moot.players.chat.chat_player import ChatPlayer
from moot.players.chat.endpoint import Endpoint
from moot.rl.lookup import find_estimator, find_reward
from moot.runs import PlayedDebate, Run
from moot.runs.record import read_line
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from moot.tasks import load
from moot.tokens.rendering import Rendering
from moot.tools.rescore import check, rescore
from moot.training.loop import train
from moot.training.parts import find_parts
from moot.training.state import Setup, Stopped
from support.chat_server import BASE, DONE, event, stream
from support.dying import dies_after

REWARDS = ["approval:checks=2", "approved:checks=2,vote_margin=0.2", "pairs", "approval:checks=1,show=answer"]


def config(reward: str, rounds: int = 1) -> TrainConfig:
    return TrainConfig(
        protocol=V2.with_choices({"reward": reward, "sections": "asked"}),
        model=ModelConfig(engine="scripted", deterministic=True),
        debate=DebateConfig(num_agents=4, max_rounds=rounds, max_tokens=400),
        optim=OptimConfig(batch_size=2, num_train_datapoints=6),
        warm_questions=0,
        eval_every=2,
        eval_questions=2,
    )


def made(path: Path, settings: TrainConfig, engine: ScriptedEngine | None = None, judge: Any = None) -> Setup:
    engine = engine or ScriptedEngine(seed=settings.seed)
    run = Run.open(path) if Run.exists(path) else Run.create(path, settings.as_dict(), {})
    arithmetic = load("arithmetic", settings.seed, settings.eval_questions)
    held_out = [replace(question, answer="7") for question in arithmetic.held_out]
    task = replace(arithmetic, train=lambda i: replace(arithmetic.train(i), answer="7"), held_out=held_out)
    scoring, rendering = settings.protocol.scoring, Rendering(engine.tokenizer)
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    setup = Setup(settings, engine, rendering, task, [task], reward, estimator, run, find_parts(settings))
    return replace(setup, judge=judge or setup.guest(engine))


def debates(run: Run) -> list[PlayedDebate]:
    return [played for played in run.debates() if isinstance(played, PlayedDebate)]


def untimed(run: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in run.metrics()]


class Planted:
    """A judge that knows the answer, or believes every other; it fails where a question says so. The script answers 7
    most often, so that is what is right here."""

    def __init__(self, right: bool = True, fails: str = "never") -> None:
        self.right, self.fails, self.asked = right, fails, list[tuple[Asked, SamplingParams]]()

    def judge(self) -> Planted:
        return self

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        self.asked.append((asked, params))
        if self.fails in asked.question.text:
            raise EngineError("the judge is gone")
        return Check(0.9 if ("{7}" in asked.answers[0]) == self.right else 0.2, "Hm.", 7)

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        raise AssertionError("nobody asks for lines")


@pytest.mark.parametrize("reward", REWARDS)
def test_a_run_pays_what_its_judge_says(reward: str, tmp_path: Path) -> None:
    run = moot.train(config(reward, rounds=2), tmp_path / "run")
    rule, rows = find_reward(reward), [row for row in run.metrics() if row["phase"] == "self_play"]
    assert len(rows) == 3 and all(row["debates/with_gradient"] for row in rows)
    played = debates(run)
    for one in played:
        assert one.scores is not None and one.debate.checks is not None and not one.debate.jury
        pairs = pairs_of(one.debate.checks)
        for i, (turn, number) in enumerate(zip(one.debate.turns, one.debate.turn_numbers(), strict=True)):
            values = [check.value for check in one.debate.checks if check.turns == (i,)]
            if rule.ballot == "approval" and values:
                assert len(values) == rule.settings.checks and turn.answers
            scores = (
                scores_in_pairs(pairs, i) if rule.ballot == "pairs" else [sum(values) / len(values)] if values else []
            )
            paid = one.scores.streams["generator"].values[turn.agent][number]
            if rule.name.startswith("approved"):
                assert paid == float(bool(scores) and 2 * scores[0] - 1 >= 0.2)
            elif scores or turn.failed:
                assert paid == pytest.approx(generator_reward(scores, failed=turn.failed))
    tokens = sum(check.tokens or 0 for one in played[-2:] for check in one.debate.checks or ())
    assert rows[-1]["tokens/jury"] == tokens > 0
    assert rows[-1]["jury/checks"] == sum(len(one.debate.checks or ()) for one in played[-2:])
    assert rows[-1]["tokens/spent"] == sum(row["tokens/sampled"] + row["tokens/jury"] for row in rows)


@pytest.mark.parametrize("reward", ["approval:checks=2", "pairs"])
@pytest.mark.parametrize("calls", [0, 20, 45, 70])
def test_a_run_cut_off_at_any_call_goes_on_to_the_same(reward: str, calls: int, tmp_path: Path) -> None:
    whole = made(tmp_path / "whole", config(reward))
    asyncio.run(train(whole))
    cut = made(tmp_path / "cut", config(reward), dies_after(calls)(seed=0))
    with contextlib.suppress(RuntimeError):
        asyncio.run(train(cut))
    again = made(tmp_path / "cut", config(reward))
    asyncio.run(train(again))
    assert untimed(again.run) == untimed(whole.run)
    assert list(again.run.records(3)) == list(whole.run.records(3))


def test_a_record_keeps_every_check_and_is_read_back_as_it_was(tmp_path: Path) -> None:
    setup = made(tmp_path / "run", config("approval:checks=2"), judge=Planted())
    asyncio.run(train(setup))
    record = next(iter(setup.run.records(1)))
    assert {"turns", "judge", "value", "by", "tokens", "thinking"} == record["checks"][0].keys()
    assert {check["thinking"] for check in record["checks"]} == {"Hm."} and record["protocol"][
        "reward"
    ] == "approval:checks=2"
    (first, *_) = debates(setup.run)
    assert [check.turns for check in first.debate.checks or ()] == [tuple(check["turns"]) for check in record["checks"]]
    assert first.winner == record["winner"] and record["votes"] == []


class Counting(Planted):
    """Believes that a rule is kept where the answer holds the rule's last word."""

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        self.asked.append((asked, params))
        return Check(0.9 if f"{{{asked.rule.split()[-1]}}}" in asked.answers[0] else 0.2, "Hm.", 7)


def test_a_judge_is_asked_about_each_rule_alone_and_the_run_says_so_and_can_be_counted_again(tmp_path: Path) -> None:
    """The answer 7 keeps one of two rules, another none; the rule that is said twice is asked about once."""
    judge, settings = Counting(), config("approval:checks=2,rules=mean")
    setup = made(tmp_path / "run", settings, judge=judge)
    rules = ("It is 7", "It is 8", " It is 7 ")
    task = replace(setup.task, rules=lambda question: rules)
    asyncio.run(train(replace(setup, task=task, tasks=[task])))
    assert {asked.rule for asked, _ in judge.asked} == {"It is 7", "It is 8"}
    values = set()
    for one in debates(setup.run):
        assert one.scores is not None and one.debate.checks is not None
        for i, turn in enumerate(one.debate.turns):
            own = [check.rule for check in one.debate.checks if check.turns == (i,)]
            assert own == (["It is 7"] * 2 + ["It is 8"] * 2 if turn.answers else [])
            if turn.answers:
                kept = "{7}" in turn.text or "{8}" in turn.text
                paid = one.scores.streams["generator"].values[turn.agent][0]
                assert paid == pytest.approx(2 * (0.9 + 0.2) / 2 - 1 if kept else 2 * 0.2 - 1)
                values.add(kept)
    assert values == {True, False}
    record = next(iter(setup.run.records(1)))
    assert [check.rule for check in debates(setup.run)[0].debate.checks or ()] == [c["rule"] for c in record["checks"]]
    again = rescore(setup.run, {"reward": "approved:checks=1,rules=least,vote_margin=0"})
    assert again.after.reward_mean == 0.0, "no answer keeps both"
    with pytest.raises(ConfigError, match=r"cannot be changed afterwards.* write rules=mean or rules=least"):
        rescore(setup.run, {"reward": "approval:checks=2"})


def test_rules_are_asked_about_only_where_the_task_has_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="task arithmetic does not say which rules its questions have"):
        moot.train(config("approval:rules=mean"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("right", [True, False])
def test_answers_rise_and_fall_with_what_the_judge_believes(right: bool, tmp_path: Path) -> None:
    """0.9 and 0.2 pay 0.8 and -0.6, less their mean over the debate."""
    setup = made(tmp_path / "run", config("approval:checks=1"), judge=Planted(right))
    asyncio.run(train(setup))
    seen = set()
    for one in debates(setup.run):
        assert one.advantages is not None
        believed = {i: one.correct(i) == right for i, turn in enumerate(one.debate.turns) if turn.answers}
        mean = sum(0.8 if better else -0.6 for better in believed.values()) / len(believed)
        for i, better in believed.items():
            taught = one.advantages.streams["generator"][one.debate.turns[i].agent][0]
            assert taught == pytest.approx((0.8 if better else -0.6) - mean)
        seen |= set(believed.values())
    assert seen == {True, False}


def test_a_judge_reads_a_final_answer_as_its_task_shows_it(tmp_path: Path) -> None:
    """Sevens as words, and nothing of the rest: an answer of which there is nothing to show is not approved."""
    judge = Planted()
    setup = made(tmp_path / "run", config("approved:checks=1,show=answer"), judge=judge)
    task = replace(setup.tasks[0], shown=lambda answer: "{7}, seven" if answer == "7" else None)
    asyncio.run(train(replace(setup, task=task, tasks=[task])))
    assert {asked.answers for asked, _ in judge.asked} == {("{7}, seven",)}
    for played in debates(setup.run):
        assert played.scores is not None and played.debate.checks is not None
        shown = {turn for check in played.debate.checks for turn in check.turns}
        paid = played.scores.streams["generator"].values
        for i, (turn, number) in enumerate(zip(played.debate.turns, played.debate.turn_numbers(), strict=True)):
            assert paid[turn.agent][number] == float(i in shown)


def test_judges_are_asked_as_the_reward_says_and_never_what_is_right(tmp_path: Path) -> None:
    judge = Planted()
    settings = config("pairs:opponents=1,show=answer", rounds=2)
    asyncio.run(train(made(tmp_path / "run", replace(settings, eval_every=0), judge=judge)))
    assert {asked.ballot for asked, _ in judge.asked} == {"pairs"} and {asked.show for asked, _ in judge.asked} == {
        "answer"
    }
    assert all(asked.answers[0] != asked.answers[1] for asked, _ in judge.asked), "equal answers never meet"
    assert {params.max_tokens for _, params in judge.asked} == {settings.debate.evaluation_tokens}
    seeds = [params.seed for _, params in judge.asked]
    assert len(set(seeds)) == len(seeds), "no two checks think alike"
    assert not any("<solution>" in text for asked, _ in judge.asked for text in asked.answers)


def test_a_judge_that_fails_loses_its_debate_alone(tmp_path: Path) -> None:
    fine = made(tmp_path / "fine", config("approval:checks=1"), judge=Planted())
    asyncio.run(train(fine))
    text = debates(fine.run)[0].debate.question.text
    failing = made(tmp_path / "failing", config("approval:checks=1"), judge=Planted(fails=text))
    asyncio.run(train(failing))
    lost = [one for one in debates(failing.run) if one.error is not None]
    assert [one.debate.question.text for one in lost] == [text] and "the judge is gone" in (lost[0].error or "")
    with pytest.raises(Stopped, match="the judge is gone"):
        asyncio.run(train(made(tmp_path / "all", replace(config("pairs"), eval_every=0), judge=Planted(fails=""))))


def test_an_evaluation_is_scored_by_the_same_judge(tmp_path: Path) -> None:
    setup = made(tmp_path / "run", replace(config("approval:checks=1"), eval_questions=12), judge=Planted())
    asyncio.run(train(setup))
    row = next(row for row in setup.run.metrics() if row["phase"] == "eval")
    assert row["jury/checks"] > 0
    assert row["trust/winner_correct"] == 1.0, "the judge knows what is right"


def test_how_many_checks_count_and_how_sure_they_must_be_is_chosen_again_afterwards(tmp_path: Path) -> None:
    run = moot.train(config("approval:checks=3"), tmp_path / "run")
    fewer = moot.train(replace(config("approval:checks=1"), seed=0), tmp_path / "fewer")
    again = rescore(run, {"reward": "approval:checks=1"})
    as_trained = rescore(fewer, {"reward": "approval:checks=1"})
    assert again.after == as_trained.before == as_trained.after, "the first check of three is the only one of one"
    sure = rescore(run, {"reward": "approval:checks=3,vote_margin=1.0"})
    assert sure.after.with_signal == 0 and sure.before.with_signal == 1
    approved = rescore(run, {"reward": "approved:checks=3,vote_margin=0.0"})
    assert approved.after.with_signal is not None and approved.largest_difference


def test_how_good_the_judge_was_stands_beside_what_is_counted_again(tmp_path: Path) -> None:
    """Agents cast no votes: what a right answer gets is the judge's doing."""
    setup = made(tmp_path / "run", config("approval:checks=2"), judge=Planted())
    asyncio.run(train(setup))
    told = rescore(setup.run, {"reward": "approval:checks=1"})
    assert told.before.judge_accuracy == told.after.judge_accuracy == 1.0
    assert rescore(setup.run, {"reward": "majority"}).after.judge_accuracy is None


def test_a_good_judge_turns_the_majority_and_what_it_holds_is_paid(tmp_path: Path) -> None:
    """At J = 0.9 a right answer has 1 + 2.94 · 0.8 = 3.36 votes, and a wrong one 1 - 2.94 · 0.6 = -0.77."""
    settings = config("weighted_majority:checks=1,j=0.9")
    batches = replace(settings.optim, num_train_datapoints=24)
    setup = made(tmp_path / "run", replace(settings, optim=batches, eval_every=0), judge=Planted())
    asyncio.run(train(setup))
    outvoted = 0
    for one in debates(setup.run):
        assert one.scores is not None and one.grades is not None
        paid = one.scores.streams["generator"].values
        right = [one.correct(i) for i, turn in enumerate(one.debate.turns) if turn.answers]
        outvoted += 0 < sum(right) < len(right) / 2
        if any(right):
            for i, turn in enumerate(one.debate.turns):
                assert turn.failed or paid[turn.agent] == (float(one.correct(i)),)
    assert outvoted, "in some debate fewer than half are right, and are paid all the same"
    # Of a judge that is worth nothing, answers alone are votes.
    nothing, counted = (rescore(setup.run, {"reward": name}) for name in ("weighted_majority:checks=1,j=0", "majority"))
    assert nothing.after.correlation == counted.after.correlation and nothing.before.correlation is not None
    assert counted.after.correlation is not None and nothing.before.correlation > counted.after.correlation


@pytest.mark.parametrize(
    ("trained", "wanted", "why"),
    [
        ("generator_judge", "approval", "were not asked for them: its reward is generator_judge"),
        ("approval", "pairs", "were not asked for them: its reward is approval"),
        ("approval", "approval:checks=5", "checks of reward approval:checks=5 must be at most 4"),
        ("approval", "approval:show=answer", "write show=solution, as the run has it"),
        ("pairs", "pairs:opponents=1", "write opponents=2, as the run has it"),
    ],
)
def test_what_judges_were_not_asked_cannot_be_chosen_afterwards(
    trained: str, wanted: str, why: str, tmp_path: Path
) -> None:
    run = Run.create(tmp_path / "run", config(trained).as_dict(), {})
    with pytest.raises(ConfigError, match=why):
        check(run, {"reward": wanted})


def test_the_judge_is_the_model_before_training_unless_another_is_named() -> None:
    assert config("approval").outside_judge == "base" and config("generator_judge").outside_judge == ""
    named = replace(config("approval"), recipe=replace(config("approval").recipe, judge="m@http://localhost:1/v1"))
    assert named.outside_judge == "m@http://localhost:1/v1"


def test_a_damaged_check_is_damage(tmp_path: Path) -> None:
    setup = made(tmp_path / "run", config("approval:checks=1"), judge=Planted())
    asyncio.run(train(setup))
    line = json.dumps(next(iter(setup.run.records(1))))
    assert isinstance(read_line(line.encode(), 1, 0), PlayedDebate)
    for good, bad in (
        ('"value": 0.', '"value": 7.'),
        ('"by": "probability"', '"by": "luck"'),
        ('"turns": [3]', '"turns": [9]'),
    ):
        assert good in line and not isinstance(read_line(line.replace(good, bad).encode(), 1, 0), PlayedDebate), bad


class JudgingServer(httpx.AsyncBaseTransport):
    """A chat server that thinks, and says Yes with 80% where the answer is 7, otherwise No. It may give no
    log-probabilities."""

    def __init__(self, probabilities: bool) -> None:
        self.probabilities = probabilities

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        if "Reply with one word" not in body["messages"][-1]["content"]:
            return stream(event("It adds up."), event(finish="stop", usage=(40, 7)), DONE)
        if "top_logprobs" in body and not self.probabilities:
            return httpx.Response(400, json={"error": {"message": "'top_logprobs' is not supported"}})
        yes, no = (log(0.8), log(0.1)) if "{7}" in body["messages"][0]["content"] else (log(0.1), log(0.8))
        word = "Yes" if yes > no else "No"
        top = [{"token": "Yes", "logprob": yes}, {"token": "No", "logprob": no}]
        said = {"content": [{"token": word, "logprob": max(yes, no), "top_logprobs": top}]}
        told = event(word, logprobs=said) if self.probabilities else event(word)
        return stream(told, event(finish="stop", usage=(50, 1)), DONE)


@pytest.mark.parametrize(("probabilities", "values"), [(True, {8 / 9, 1 / 9}), (False, {1.0, 0.0})])
def test_a_judge_at_a_chat_server_is_heard_by_probabilities_or_by_its_word(
    probabilities: bool, values: set[float], tmp_path: Path
) -> None:
    chat = Chat(Endpoint(BASE, "m", None), Patience(retries=0), transport=JudgingServer(probabilities))
    setup = made(tmp_path / "run", replace(config("approval:checks=1"), eval_every=0), judge=ChatPlayer(chat))
    asyncio.run(train(setup))
    checks = [check for one in debates(setup.run) for check in one.debate.checks or ()]
    assert {round(check.value, 9) for check in checks} == {round(value, 9) for value in values}
    assert {check.by for check in checks} == {"probability" if probabilities else "word"}
    assert {check.tokens for check in checks} == {8} and {check.thinking for check in checks} == {"It adds up."}
    rows = [row for row in setup.run.metrics() if row["phase"] == "self_play"]
    assert all(row["jury/by_word"] == float(not probabilities) for row in rows)
    assert rows[-1]["tokens/jury"] == 8 * rows[-1]["jury/checks"]
