"""What can be found wrong before a model is loaded or a folder made: a task that cannot serve, and a user's own
function that fails.

A user's reward, estimator and task are tried on two debates that are made up: one in which every turn can be read, and
one in which an agent's first turn cannot, which is where a reward that was never tried most often breaks.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from moot.debate.parsing import CONTRACTS, FURTHER
from moot.debate.rewards import Reward
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.errors import ConfigError
from moot.rl.advantages import Estimator, SeatMeans, advantages
from moot.settings.train import TrainConfig
from moot.tasks.answers import grade
from moot.tasks.task import Task
from moot.util.user_code import is_users, trying


def check_task(name: str, task: Task) -> None:
    """A user's task is asked for all that training will ask it for."""
    if is_users(name):
        with trying(name, "task"):
            _ask(task)


def check_warm_start(config: TrainConfig, task: Task) -> None:
    """`task` is the first that is trained on."""
    if config.warm_questions and config.warm.solutions == "own" and task.open_ended:
        raise ConfigError(
            f"warm_start: solutions must be task with task {task.name}, whose questions have no answers that could be "
            "right; got 'own'"
        )
    if 0 < len(task.training) < config.warm_questions:
        logging.getLogger("moot").warning(
            f"warm_questions is {config.warm_questions}, and task {task.name} has {len(task.training)} questions to "
            "train on: each is taught several times over"
        )
    bare = task.solution is None
    lacking = bare or (task.near_miss is None and config.warm.wrong != "none")
    if config.warm.solutions == "task" and config.warm_questions and lacking:
        needs = "worked solutions" if bare else "wrong answers beside right ones"
        right_alone = "" if bare else "teach right ones alone (--with warm_start:wrong=none), "
        raise ConfigError(
            f"warm_questions must be 0 with task {task.name}, got {config.warm_questions}: the warm start needs "
            f"{needs}, and this task has none; {right_alone}leave it out (--warm-questions 0), use the model's own "
            "(--with warm_start:solutions=own), or start from another run (--from)"
        )


def check_reward(config: TrainConfig, task: Task, rounds: int) -> None:
    """A reward that nothing could ever pay: votes where nobody reads anybody, or known answers where there are none.
    `rounds` are the most that a debate may have."""
    rules, scoring = config.protocol.rules, config.protocol.scoring
    alone = rounds == 1 and rules.schedule == "parallel" and not rules.closing_ballot
    if not config.optim.num_train_datapoints:
        return
    judged = config.outside_judge or scoring.reward_mix or scoring.correct_bonus
    if scoring.rule.from_votes and alone and not judged:
        raise ConfigError(
            f"max_rounds must be at least 2 with the reward {scoring.reward}, got 1: in one parallel round nobody "
            "reads anybody, so nobody votes; use --max-rounds 2, --closing-ballot, a --judge, or --reward majority"
        )
    if scoring.rule.checked and scoring.rule.asks["ballot"] == "pairs" and task.open_ended:
        raise ConfigError(
            f"the reward {scoring.reward} compares answers that differ, and task {task.name} has none to compare; use "
            "--reward approval"
        )
    if scoring.rule.grades == "right" and not task.gradable(task.train(0)):
        lacking = f"the reward {scoring.reward} needs known answers, and task {task.name} has none"
        raise ConfigError(f"{lacking}; use --reward majority, or leave --reward out for votes")


def check_scoring(config: TrainConfig, task: Task, reward: Reward, estimator: Estimator) -> None:
    """Ours have been tried; a user's is tried here, as training will call it."""
    scoring = config.protocol.scoring
    if scoring.rule.our_own and not is_users(scoring.advantage):
        return
    debates = [_made_up(config, _question(task), silent) for silent in (None, 0)]
    if reward.checked:
        debates = [replace(debate, checks=()) for debate in debates]
    grades = [grade(debate, task.equal, task.extract, task.check) for debate in debates]
    scores = [reward(debate, scoring, graded) for debate, graded in zip(debates, grades, strict=True)]
    advantages(zip(debates, scores, strict=True), estimator, SeatMeans())


def _question(task: Task) -> Question:
    question = task.train(0)
    return replace(question, answer=question.answer or "7") if not task.open_ended and task.check is None else question


def _ask(task: Task) -> None:
    question = task.train(0)
    list(task.held_out[:1])
    if question.answer is not None:
        task.right(question, question.answer)
        if task.solution is not None:
            task.extract(task.solution(question))
        if task.near_miss is not None:
            task.near_miss(question, 0)


def _made_up(config: TrainConfig, question: Question, silent: int | None) -> Debate:
    """A debate in which everybody speaks by the contract, but for the first turn of agent `silent`."""
    debate = config.empty_debate(question)
    while not debate.done:
        said = {agent: _turn(debate.observe(agent), question, silent) for agent in debate.next_speakers}
        debate = debate.advance(said)
    return debate


def _turn(observation: Observation, question: Question, silent: int | None) -> Said:
    if observation.agent == silent and observation.round == 1:
        return Said("This cannot be read.")
    others = sorted(observation.labels[seat] for seat in observation.eligible)
    said = {
        "solution": f"\\boxed{{{question.answer or 7}}}",
        "evaluation": "Fine.",
        "comparison": f"Agent {others[0]} > Agent {others[1]}" if len(others) > 1 else "N/A",
        **{name: section.open for name, section in FURTHER.items()},
    }
    return Said("\n".join(f"<{name}>{said[name]}</{name}>" for name in CONTRACTS[observation.contract]))
