"""Programs vote beside the answers: what a reply is worth, how votes are counted, and what is paid."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError, EngineError
from moot.tasks import load
from moot.tokens.played import PlayedDebate
from moot.training.loop import train
from moot.training.parts import find_part, find_parts
from moot.training.parts.program_votes import result
from moot.training.state import Setup
from unit.training.test_train import CONFIG, make_setup

QUIET = replace(CONFIG, eval_every=0, warm_questions=0)
MAJORITY = replace(QUIET, protocol=QUIET.protocol.with_choices(reward="majority"))
VOTING = replace(MAJORITY, parts=("program_votes:programs=5",))


def reply(body: str) -> str:
    return f"Here it is.\n```python\ndef solve():\n    {body}\n```"


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("boxes = 3\n    return boxes * 14", "42"),
        ("return 0.1 + 0.2", "0.3"),
        ("return -84 / 2", "-42"),
        ("return 1 / 3", "0.3333333333"),
        ("return True", None),
        ("return '42'", None),
        ("return float('inf')", None),
        ("return 42, 43", None),
        ("raise ValueError", None),
        ("import os; os._exit(0)", None),
        ("return open('/etc/passwd').read()", None),
    ],
)
def test_what_a_function_returns_is_a_vote_where_it_is_a_number(body: str, number: str | None) -> None:
    assert result(reply(body)) == number


def test_a_reply_without_a_function_is_no_vote() -> None:
    assert result("The answer is 42.") is None
    assert result("```python\nprint(42)\n```") is None
    assert result("```python\ndef other():\n    return 42\n```") is None


class Codes(ScriptedEngine):
    """Where five replies are asked for, these are functions that return these numbers; None: the engine fails."""

    numbers: tuple[int, ...] | None = (99, 99, 99, 99, 5)

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> Any:
        samples = await super().sample(prompt, params, num_samples)
        if num_samples != 5:
            return samples
        if self.numbers is None:
            raise EngineError("gone")
        assert "solve()" in self.tokenizer.decode(list(prompt))
        texts = [reply(f"return {number}") for number in self.numbers]
        ids = [np.array([*self.tokenizer.encode(text), self.tokenizer.eos_token_id], np.int32) for text in texts]
        return [replace(samples[0], tokens=each, logprobs=np.zeros(len(each), np.float32)) for each in ids]


def trained(path: Path, numbers: tuple[int, ...] | None, config: Any = VOTING) -> Setup:
    engine = Codes(seed=0)
    engine.numbers = numbers
    setup = make_setup(path, config, engine=engine)
    asyncio.run(train(setup))
    return setup


def rows(setup: Setup) -> list[dict[str, Any]]:
    return [row for row in setup.run.metrics() if row["phase"] == "self_play"]


def debates(setup: Setup) -> list[PlayedDebate]:
    return [played for played in setup.run.debates() if isinstance(played, PlayedDebate)]


def paid(setup: Setup) -> list[tuple[tuple[float, ...], ...]]:
    return [played.scores.streams["generator"].values for played in debates(setup) if played.scores]


def test_programs_outvote_the_answers_and_are_counted(tmp_path: Path) -> None:
    """Three agents at most say one thing, and four programs say 99, which nobody else does: nobody is paid."""
    plain, setup = trained(tmp_path / "plain", None, MAJORITY), trained(tmp_path / "run", (99, 99, 99, 99, 5))
    assert {played.debate.question.label for played in debates(setup)} == {"99"}
    assert all(value <= 0 for values in paid(setup) for row in values for value in row)
    assert any(value == 1 for values in paid(plain) for row in values for value in row)
    for row in rows(setup):
        assert (row["votes/programs_run"], row["votes/changed"], row["votes/right"]) == (1.0, 1.0, 0.0)
    spoken = sum(row["tokens/sampled"] for row in rows(setup))
    tokens = sum(len(setup.engine.tokenizer.encode(reply(f"return {n}"))) + 1 for n in (99, 99, 99, 99, 5))  # type: ignore[attr-defined]
    assert rows(setup)[-1]["tokens/spent"] == spoken + tokens * len(debates(setup))


@pytest.mark.parametrize("numbers", [None, (91, 92, 93, 94, 95)])
def test_where_programs_fail_or_differ_the_answers_count_as_ever(
    numbers: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """No two programs say the same here, and where all is level the first answer counts."""
    setup = trained(tmp_path / "run", numbers, replace(VOTING, debate=replace(VOTING.debate, max_rounds=1)))
    plain = trained(tmp_path / "plain", None, replace(MAJORITY, debate=replace(VOTING.debate, max_rounds=1)))
    assert paid(setup) == paid(plain)
    assert {row["votes/changed"] for row in rows(setup)} == {0.0}
    assert {row["votes/right"] == row["votes/right_without"] for row in rows(setup)} == {True}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (replace(VOTING, protocol=QUIET.protocol), "program_votes needs the reward majority, got generator_judge"),
        (
            replace(VOTING, protocol=QUIET.protocol.with_choices(reward="weighted_majority")),
            "program_votes needs the reward majority, got weighted_majority",
        ),
        (replace(VOTING, parts=("program_votes", "frozen_labels")), "got frozen_labels too; leave one of them out"),
    ],
)
def test_what_it_cannot_be_used_with_is_named(config: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_parts(config)


@pytest.mark.parametrize("task", ["countdown", "constraints", "reasoning-gym:leg_counting"])
def test_questions_whose_answer_is_no_number_are_refused(task: str) -> None:
    part = find_part("program_votes")
    part.check_tasks([load("arithmetic")])
    with pytest.raises(ConfigError, match="program_votes needs questions whose answer is a number"):
        part.check_tasks([load(task)])
