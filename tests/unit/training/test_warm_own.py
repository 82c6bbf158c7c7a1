"""A warm start in the model's own words: what is kept of plain answers, when the phase ends, and what it says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.cli.progress import line
from moot.debate.protocols import V2
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import Sample
from moot.engine.scripted import ScriptedEngine
from moot.errors import ConfigError
from moot.rl.checks import check_warm_start
from moot.rl.warm import OwnWords, examples
from moot.settings.train import TrainConfig
from moot.tasks import Task, load
from moot.tokens.rendering import Rendering
from moot.training.loop import train
from moot.training.state import Setup, Stopped
from moot.training.warm_own import measured, sorted_out, why_to_stop
from support.making import FAILED, debate, judged, v2
from unit.training.test_train import CONFIG, make_setup

same = str.__eq__

SAID = {"three is 3": "3", "well, 3": "3", "it is 4": "4", "x" * 601: "5"}
"""Different texts with an answer. A mistake of over 600 characters is left out."""


@pytest.mark.parametrize(
    ("truth", "given", "kept"),
    [
        # With a known answer the right ones are those that have it.
        ("3", ["3", "3", "4", "5"], OwnWords("3", ["three is 3", "well, 3"], ["it is 4"])),
        ("4", ["3", "3", "4", "5"], OwnWords("4", ["it is 4"], ["three is 3", "well, 3"])),
        ("9", ["3", "3", "4", "5"], None),
        # Without one, those that most answers agree on, and at least two of them.
        (None, ["3", "3", "4", "5"], OwnWords("3", ["three is 3", "well, 3"], ["it is 4"])),
        (None, ["3", None, None, "4"], None),
        (None, [None, None], None),
    ],
)
def test_plain_answers_are_sorted_into_solutions_and_mistakes(
    truth: str | None, given: list[str | None], kept: OwnWords | None
) -> None:
    task = Task("own", train=lambda i: Question(""), held_out=(), equal=same)
    assert sorted_out(SAID, given, Question("How many?", truth), task) == kept


@pytest.mark.parametrize(
    ("valid", "votes", "entropy", "stops"),
    [
        (
            0.95,
            0.90,
            1.0,
            "the form is learned: 95% of the turns of held-out debates can be read, 90% of those that could vote do",
        ),
        (0.94, 1.00, 1.0, ""),
        (1.00, 0.89, 1.0, ""),
        (1.00, None, 1.0, "the form is learned: 100% of the turns of held-out debates can be read"),
        (0.10, 0.00, 0.49, "variety has halved: the entropy of held-out debates fell from 1.00 to 0.49"),
        (0.10, 0.00, 0.50, ""),
    ],
)
def test_when_the_phase_ends(valid: float, votes: float | None, entropy: float, stops: str) -> None:
    form = {"warm/valid_turns": valid, "warm/turns_with_vote": votes, "warm/entropy": entropy}
    assert why_to_stop(form, 1.0) == stops


def test_the_form_of_debates_by_hand() -> None:
    """Six turns, one of them failed. In round 2 agents 0 and 2 have seen one answer of two others each, and only agent 1 could vote."""
    one = judged(debate(v2(), [["", FAILED, ""], ["", "0 > 2", ""]]))
    assert measured([one]) == {"warm/valid_turns": 5 / 6, "warm/turns_with_vote": 1.0, "warm/entropy": None}


def test_its_own_solutions_are_learned_and_its_own_mistakes_judged() -> None:
    task, engine = load("arithmetic", 0, 4), ScriptedEngine()
    answers = {number: task.train(number).answer or "" for number in range(6)}
    own = {
        n: OwnWords(answer, [f"I count \\boxed{{{answer}}}", f"So \\boxed{{{answer}}}"], ["I say \\boxed{-999}"])
        for n, answer in answers.items()
    }
    empty = Debate(task.train(0), 3, 2, V2.with_choices(sections="asked", personas=False).rules)
    made = asyncio.run(examples(task, Rendering(engine.tokenizer), empty, range(6), 0, own=own))
    learned = "".join(engine.tokenizer.decode(d.targets[d.mask == 1].tolist()) for d in made)
    shown = "".join(engine.tokenizer.decode(d.tokens.tolist()) for d in made)
    assert (
        "I count \\boxed" in learned
        and "So \\boxed" in learned
        and "I say \\boxed{-999}" in shown
        and "I say" not in learned
    )
    assert "says -999, which is wrong" in learned
    without_labels = replace(task, train=lambda number: replace(task.train(number), answer=None))
    again = asyncio.run(examples(without_labels, Rendering(engine.tokenizer), empty, range(6), 0, own=own))
    assert [d.tokens.tolist() for d in again] == [d.tokens.tolist() for d in made], "no label is read"


# Whole runs


class Solver(ScriptedEngine):
    """Answers a plain question rightly half of the time."""

    def __init__(self, style: Any, right: bool = True) -> None:
        super().__init__(style, seed=0)
        task = load("arithmetic", 0, CONFIG.eval_questions)
        self.questions = [*(task.train(i) for i in range(4)), *task.held_out]
        self.right = right

    async def sample(self, prompt: Any, params: Any, num_samples: int = 1) -> Any:
        text = self.tokenizer.decode(list(prompt))
        asked = next(
            (each for each in self.questions if text.count("<|im_start|>") == 2 and f"\n{each.text}\n" in text), None
        )
        if asked is None:
            return await super().sample(prompt, params, num_samples)
        said = [f"It is \\boxed{{{asked.answer if i % 2 == 0 and self.right else -999}}}." for i in range(num_samples)]
        ids = [np.array([*self.tokenizer.encode(each), self.tokenizer.eos_token_id], dtype=np.int32) for each in said]
        return [Sample(each, np.full(len(each), -1.0, dtype=np.float32), "stop") for each in ids]


OWN: TrainConfig = replace(CONFIG, warm_questions=4, parts=("warm_start:batch_size=2,solutions=own",))


def run(path: Path, engine: ScriptedEngine, config: TrainConfig = OWN) -> Setup:
    setup = make_setup(path, config, engine)
    asyncio.run(train(setup))
    return setup


def test_a_model_that_knows_the_form_is_not_taught_it(tmp_path: Path) -> None:
    setup = run(tmp_path / "run", Solver("well_formed"))
    rows = setup.run.metrics()
    assert [(row["step"], row["phase"]) for row in rows][:3] == [(0, "eval"), (2, "warm"), (2, "eval")]
    warm = rows[1]
    assert warm["warm/ended_after"] == 0.0 and warm["warm/valid_turns"] == 1.0
    assert warm["warm/direct_before"] == warm["warm/direct_after"] == 1.0
    assert any(
        note.startswith("the warm start ends after 0 of 2 steps: the form is learned") for note in setup.watcher.notes
    )
    assert setup.engine.steps == 4, "no step of the warm start"
    assert "ended after 0 steps" in line(warm, 6, 1.0, 1.0)
    again = run(tmp_path / "run", Solver("well_formed"))
    assert again.run.metrics() == rows, "a run that has ended continues with nothing"


def test_a_model_that_does_not_is_taught_with_its_own_words(tmp_path: Path) -> None:
    setup = run(tmp_path / "run", Solver("hostile"), replace(OWN, optim=replace(OWN.optim, num_train_datapoints=3)))
    rows = [row for row in setup.run.metrics() if row["phase"] == "warm"]
    assert [row["step"] for row in rows] == [1, 2] and all(row["warm/examples"] for row in rows)
    assert (rows[-1]["warm/direct_before"], rows[-1]["warm/direct_after"]) == (1.0, 1.0)
    kept = json.loads((setup.run.path / "warm_own.json").read_text())
    assert {number: (len(words["right"]), words["wrong"]) for number, words in kept["solutions"].items()} == {
        str(number): (1, ["It is \\boxed{-999}."]) for number in range(4)
    }
    asked = [each for each in setup.watcher.counts if each[0] == "questions" and each[2] == 4]
    assert asked[:5] == [("questions", done, 4) for done in range(5)], "a bar moves while the untrained model is asked"
    assert "it solved 4 of them; the warm start is made of these" in setup.watcher.notes
    assert (
        "direct accuracy on held-out questions was 100% before the warm start and is 100% after it"
        in setup.watcher.notes
    )


def test_a_model_that_solves_nothing_has_no_words_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match=r"solved none of the 4 questions.*warm_start:solutions=task"):
        run(tmp_path / "run", Solver("hostile", right=False))


@pytest.mark.parametrize(
    "said", ["{", "[]", '{"solutions": {"0": 3}}', '{"x": []}', '{"0": [3]}', '{"0": 3}', "[" * 9000]
)
@pytest.mark.parametrize(("solutions", "kept"), [("own", "warm_own.json"), ("task", "warm_wrong.json")])
def test_what_is_kept_of_the_model_and_is_damaged_is_one_line(
    tmp_path: Path, solutions: str, kept: str, said: str
) -> None:
    config = replace(OWN, parts=(f"warm_start:solutions={solutions},wrong=sampled",))
    setup = make_setup(tmp_path / "run", config)
    (setup.run.path / kept).write_text(said)
    with pytest.raises(ConfigError, match=rf"{kept} is damaged; put back what moot wrote"):
        asyncio.run(train(setup))


def test_essays_have_no_right_answers_to_keep() -> None:
    essays = replace(load("arithmetic", 0, 4), open_ended=True, solution=None)
    with pytest.raises(ConfigError, match="warm_start: solutions must be task with task arithmetic"):
        check_warm_start(OWN, essays)
    check_warm_start(OWN, replace(essays, open_ended=False))
    assert Question("q").answer is None
