"""Training's evaluation is the evaluator's: the same debates, the same numbers, under the names a run's metrics always had."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from statistics import mean

import pytest

from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.evaluate import EvalConfig, evaluate
from moot.evaluate.training import evaluate_in_training
from moot.rl.rollout import Player
from moot.settings.train import DebateConfig, TrainConfig
from moot.tasks import load
from moot.tasks.answers import grade_all
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering

CONFIG = TrainConfig(debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000), eval_questions=6, seed=3)
KEYS = """
env/all/total_episodes env/all/total_turns env/all/turns_per_episode env/all/ac_tokens_per_turn env/all/ob_tokens_per_turn
tokens/sampled tokens/read tokens/solution debates/played debates/failed debates/overflowed parse_error round consensus_reached turns/cut
test_arithmetic/format test_arithmetic/correct test_arithmetic/pass@k test_arithmetic/avg@k test_arithmetic/cons@k
trust/judge_accuracy trust/vote_truth_agreement trust/winner_correct trust/mean_accuracy trust/position_bias trust/length_bias
trust/vote_cycles trust/answer_diversity trust/plurality_share trust/self_preference trust/order_flips
trust/judges_per_pair trust/duplicate_votes test/valid_turns test/turns_with_vote
""".split()  # noqa: SIM905 - names without quotes are easier to compare


def measure(config: TrainConfig = CONFIG, seen: list[PlayedDebate] | None = None) -> dict[str, float | None]:
    engine = ScriptedEngine(style="mixed", seed=1)
    rendering = Rendering(engine.tokenizer)
    base = Player(engine, rendering, learns=False)
    task = load("arithmetic", config.seed, config.eval_questions)
    finished = [].append if seen is None else seen.append
    opponents = {"base": base} if "opponents" in config.eval_modes else None
    return asyncio.run(evaluate_in_training(engine, rendering, task, config, opponents=opponents, finished=finished))


def test_the_names_are_those_of_a_runs_metrics() -> None:
    assert set(measure()) == set(KEYS)


def test_the_numbers_are_the_evaluators_own() -> None:
    engine = ScriptedEngine(style="mixed", seed=1)
    settings = EvalConfig.of(CONFIG, modes=("debate",))
    report = asyncio.run(evaluate(Player(engine, Rendering(engine.tokenizer)), load("arithmetic", 3, 6), settings))
    found = measure()
    (row,) = report.rows
    for metric in ("correct", "pass@k", "cons@k", "format"):
        number = row.metrics[metric]
        assert number is not None and found[f"test_arithmetic/{metric}"] == number["value"]
    assert {name: found[name] for name in report.trust} == report.trust
    assert found["test_arithmetic/correct"] is not None and 0 < found["test_arithmetic/correct"] < 1


def test_each_debate_is_seen_as_it_ends_and_counted() -> None:
    seen: list[PlayedDebate] = []
    found = measure(seen=seen)
    assert (len(seen), found["debates/played"], found["env/all/total_turns"]) == (6, 6.0, 36.0)
    assert found["tokens/sampled"] == sum(len(turn.tokens) for each in seen for turn in each.sampled)


def test_the_debates_that_are_kept_have_the_grades_that_were_counted_and_are_graded_once() -> None:
    engine, task = ScriptedEngine(style="mixed", seed=1), load("arithmetic", 3, 6)
    compared: list[tuple[str, str]] = []

    def equal(one: str, other: str) -> bool:
        compared.append((one, other))
        return task.equal(one, other)

    kept: list[PlayedDebate] = []
    watched = replace(task, equal=equal)
    found = asyncio.run(
        evaluate_in_training(
            engine, Rendering(engine.tokenizer), watched, CONFIG, keep=lambda _, debates: kept.extend(debates)
        )
    )
    in_evaluation = len(compared)
    assert [each.grades for each in kept] == grade_all([each.debate for each in kept], equal, task.extract)
    assert in_evaluation == len(compared) - in_evaluation > 0
    assert [each.debate.question for each in kept] == list(task.held_out) and all(
        each.sampled and each.scores for each in kept
    )
    assert found["trust/winner_correct"] == mean(each.winner_is_right() for each in kept if each.winner is not None)


def test_opponents_take_the_other_seats_when_asked() -> None:
    """The policy in each of three seats once a question: three answers, and the script's own accuracy beside it."""
    found = measure(replace(CONFIG, eval_modes=("direct", "opponents")))
    extra = set(found) - set(KEYS)
    assert {
        "test_arithmetic/direct/accuracy",
        "test_arithmetic/against_base/accuracy",
        "test_arithmetic/against_base/accuracy_low",
    } <= extra
    assert found["debates/played"] == 6, "debates against others are not counted as self-play"


def test_a_mode_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"eval_modes may name direct, vote, debate\+vote, opponents, wins, got 'debate'"
    ):
        replace(CONFIG, eval_modes=("debate",))
