"""A judge measured three ways: both sides argue, one side argues, nobody argues. The judge is scripted, so the table is known by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moot.debate.protocols import PRESETS
from moot.debate.types import Question
from moot.engine.protocol import Ints, Sample, SamplingParams
from moot.engine.scripted import ByteTokenizer
from moot.errors import ConfigError
from moot.evaluate import AnswerStore, EvalConfig, Report, evaluate
from moot.rl.rollout import Player
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering

TOKENIZER = ByteTokenizer()
RENDERING = Rendering(TOKENIZER)
QUESTIONS = tuple(
    Question(f"What is {i} + 0?", str(i), id=str(i), sides=(str(i), "99") if i % 2 == 0 else ("99", str(i)))
    for i in range(4)
)
"""Seat 0 has the right side of the even ones."""
TASK = Task("sums", lambda i: QUESTIONS[i], QUESTIONS)
CONFIG = EvalConfig(modes=("debate", "consultancy", "judge"), num_agents=2, max_rounds=2, protocol=PRESETS["advocates"])
VERDICTS = {
    # Question: whom the judge finds right in the debate, where seat 0 argues alone, where seat 1 does, and where nobody does.
    0: ("0", "0", "1", "0"),  # right, right, wrong, right
    1: ("1", "0", "1", "0"),  # right, wrong, right, wrong
    2: ("0", "0", "0", "?"),  # right, right, right, no verdict
    3: ("0", "0", "1", "1"),  # wrong, wrong, right, right
}


class Speaking:
    """A sampler that reads what is asked: an argument, the judge's thoughts, or its verdict."""

    def __init__(self) -> None:
        self.arguments: list[tuple[int, int]] = []
        self.verdicts: list[int] = []

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        ids = TOKENIZER.encode(self._says(TOKENIZER.decode(np.asarray(prompt).tolist())))
        tokens = np.asarray([*ids, TOKENIZER.eos_token_id], dtype=np.int32)
        return [Sample(tokens, np.zeros(len(tokens), dtype=np.float32), "stop")]

    def _says(self, told: str) -> str:
        asked = re.search(r"What is (\d+) \+ 0\?", told)
        assert asked
        question = int(asked[1])
        if who := re.search(r"You are Agent (\d)", told):
            self.arguments.append((question, int(who[1])))
            return "Because."
        if "Now decide which" not in told:
            return "I think."
        argued = tuple(f"[Agent {agent}, round 1]" in told for agent in (0, 1))
        said = VERDICTS[question][((True, True), (True, False), (False, True), (False, False)).index(argued)]
        self.verdicts.append(question)
        return "I cannot tell." if said == "?" else f"Agent {said} > Agent {1 - int(said)}"

    async def compute_logprobs(
        self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0
    ) -> np.ndarray:
        raise NotImplementedError


def run(
    policy: Speaking, judge: Speaking | None = None, config: EvalConfig = CONFIG, answers: AnswerStore | None = None
) -> Report:
    who = None if judge is None else Player(judge, RENDERING)  # type: ignore[arg-type]
    work = evaluate(Player(policy, RENDERING), TASK, config, judge=who, answers=answers)  # type: ignore[arg-type]
    return asyncio.run(asyncio.wait_for(work, 60))


def shares(report: Report, metric: str) -> list[float | None]:
    return [None if (number := row.metrics.get(metric)) is None else number["value"] for row in report.rows]


def test_the_three_accuracies_of_a_judge() -> None:
    """Debate: 3 of 4. Consultancy: 1/2, 1/2, 2/2, 1/2. Alone: right, wrong, no verdict, right, which is 2 of 4, and 2 of 3 verdicts."""
    policy, judge = Speaking(), Speaking()
    report = run(policy, judge)
    assert [row.name for row in report.rows] == ["debate", "consultancy", "judge"]
    assert shares(report, "accuracy") == [3 / 4, 5 / 8, 2 / 4]
    assert shares(report, "decided") == [1.0, 1.0, 3 / 4]
    assert shares(report, "judge") == [3 / 4, 5 / 8, 2 / 3]
    # Alone, an advocate is believed in 7 of 8: all but seat 1 on question 2.
    assert shares(report, "preferred") == [None, 7 / 8, None]
    assert shares(report, "valid_turns") == [1.0, 1.0, None]
    assert report.trust["trust/judge_accuracy"] == 3 / 4
    gap = report.rows[2].difference
    assert gap is not None and gap["value"] == pytest.approx(-1 / 4) and gap["versus"] == "debate"
    assert all(row.metrics["accuracy"]["low"] < row.metrics["accuracy"]["high"] for row in report.rows)  # type: ignore[index]


def test_only_the_policy_argues_and_only_the_judge_decides() -> None:
    """Per question: two seats in two rounds; each seat alone in two rounds; nobody. And four verdicts."""
    policy, judge = Speaking(), Speaking()
    run(policy, judge)
    assert sorted(policy.arguments) == sorted((i, seat) for i in range(4) for seat in (0, 1) for _ in range(2 + 2))
    assert (policy.verdicts, judge.arguments, sorted(judge.verdicts)) == ([], [], sorted([*range(4)] * 4))


def test_without_a_judge_the_policy_decides() -> None:
    alone = Speaking()
    assert shares(run(alone), "accuracy") == [3 / 4, 5 / 8, 2 / 4] and len(alone.verdicts) == 16


def test_what_was_decided_is_kept_and_another_judge_is_asked_anew(tmp_path: Path) -> None:
    first, again, other = Speaking(), Speaking(), Speaking()
    config = replace(CONFIG, judge="one")
    run(Speaking(), first, config, AnswerStore(tmp_path / "answers.jsonl"))
    kept = run(Speaking(), again, config, AnswerStore(tmp_path / "answers.jsonl"))
    assert (len(first.verdicts), len(again.verdicts)) == (16, 0) and shares(kept, "accuracy") == [3 / 4, 5 / 8, 2 / 4]
    run(Speaking(), other, replace(config, judge="two"), AnswerStore(tmp_path / "answers.jsonl"))
    assert len(other.verdicts) == 16


def test_against_somebody_else_the_judge_says_who_argues_better() -> None:
    """The policy in seat 0, then in seat 1. The judge's verdicts are those of the debate each time: 3 of 4 are right, and each time one of
    the two is believed."""
    config = replace(CONFIG, modes=("opponents",))
    work = evaluate(
        Player(Speaking(), RENDERING),  # type: ignore[arg-type]
        TASK,
        config,
        opponents={"base": Player(Speaking(), RENDERING, learns=False)},  # type: ignore[arg-type]
        judge=Player(Speaking(), RENDERING),  # type: ignore[arg-type]
    )
    report = asyncio.run(asyncio.wait_for(work, 60))
    assert (shares(report, "accuracy"), shares(report, "preferred")) == ([3 / 4], [1 / 2])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"modes": ("judge",), "protocol": PRESETS["v2"]}, "'judge' here: needs advocates: use --protocol advocates"),
        ({"modes": ("debate+vote",)}, "'debate\\+vote' here: advocates keep their positions"),
        ({"num_agents": 3}, "num_agents must be 2 with positions assigned, got 3"),
    ],
)
def test_modes_that_make_no_sense_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(CONFIG, **changes)  # type: ignore[arg-type]
