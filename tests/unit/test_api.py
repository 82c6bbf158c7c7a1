"""What `import moot` offers: the names, and that each does what docs/api.md says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moot
from moot import Observation, Question, Said
from moot.cli.train import defaults
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.rl.rollout import rollout
from moot.tokens.rendering import Rendering
from moot.tokens.turn import Advantages
from support.making import FAILED, debate, text, v1, v2
from support.recorded import LOST, record


def test_every_name_is_there_and_told_to_type_checkers() -> None:
    told = Path(moot.__file__).read_text().split("if TYPE_CHECKING:")[1].split("_HOMES")[0]
    for name in moot.__all__:
        assert getattr(moot, name) is not None and re.search(rf"\b{name}\b", told)
    assert set(moot._HOME) == set(moot.__all__) <= set(dir(moot))
    with pytest.raises(AttributeError, match="has no attribute 'debates'; it offers PRESETS, V1, V2"):
        _ = moot.debates


def test_importing_it_imports_nothing_of_weight() -> None:
    program = "import sys, typing, importlib, __future__; before = set(sys.modules); import moot; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if not name.startswith("importlib")] == ["moot"]


# Playing


def answers(observation: Observation) -> str:
    """Agent i answers i in round 1, and prefers the lower number of the others in round 2."""
    others = observation.eligible
    return text(
        f"Agent {others[0]} > Agent {others[1]}" if len(others) > 1 else "N/A", f"\\boxed{{{observation.agent}}}"
    )


def test_a_plain_function_speaks_for_every_seat() -> None:
    played = moot.play("What is 3 + 4?", answers)
    assert played.done and [(turn.round, turn.agent) for turn in played.turns] == [
        (r, a) for r in (1, 2) for a in range(3)
    ]
    assert [turn.fields and turn.fields["comparison"] for turn in played.turns[3:]] == [
        "Agent 1 > Agent 2",
        "Agent 0 > Agent 2",
        "Agent 0 > Agent 1",
    ]


def test_coroutines_speak_at_once_and_plain_functions_in_turn() -> None:
    order: list[str] = []

    def plain(observation: Observation) -> Said:
        order.append(f"{observation.agent} begins")
        order.append(f"{observation.agent} ends")
        return Said(answers(observation))

    async def waiting(observation: Observation) -> str:
        order.append(f"{observation.agent} begins")
        await asyncio.sleep(0)
        order.append(f"{observation.agent} ends")
        return answers(observation)

    moot.play("?", plain, max_rounds=1)
    assert order == ["0 begins", "0 ends", "1 begins", "1 ends", "2 begins", "2 ends"]
    order.clear()
    moot.play("?", waiting, max_rounds=1)
    assert order == ["0 begins", "1 begins", "2 begins", "0 ends", "1 ends", "2 ends"]


def test_a_speaker_per_seat_and_judges_without_one() -> None:
    def mumbles(observation: Observation) -> str:
        return "mumble"

    def judge(observation: Observation) -> str:
        assert observation.agent == 3 and observation.messages[-1]["role"] == "user"
        return "<evaluation>Fine.</evaluation><comparison>Agent 2 > Agent 0</comparison>"

    played = moot.play(Question("What is 3 + 4?", "7"), [answers, mumbles, answers], judges=[judge])
    assert [turn.failed for turn in played.turns] == [False, True, False] * 2
    assert [turn.fields for turn in played.jury] == [{"evaluation": "Fine.", "comparison": "Agent 2 > Agent 0"}]


def test_it_works_where_a_loop_is_running_as_in_a_notebook() -> None:
    async def cell() -> int:
        return len(moot.play("?", answers).turns)

    assert asyncio.run(cell()) == 6


def test_mistakes_of_a_speaker_are_loud() -> None:
    with pytest.raises(moot.ConfigError, match="one function or one per seat, got 2 for 3 agents"):
        moot.play("?", [answers, answers])
    with pytest.raises(TypeError, match="a speaker must return a string or Said, and 'nothing' returned None"):

        def nothing(observation: Observation) -> None: ...

        moot.play("?", nothing)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        moot.play("?", lambda observation: str(1 / 0))


# Scoring


def prefers_high(seen: Observation) -> str:
    """Agent 0 says 8, the others 7; everybody prefers the higher number of the other two."""
    vote = "Agent {} > Agent {}".format(*sorted(seen.eligible, reverse=True)) if len(seen.eligible) == 2 else "N/A"
    return text(vote, f"\\boxed{{{7 if seen.agent else 8}}}")


PLAYED = moot.play(Question("What is 3 + 4?", "7"), prefers_high)


def test_a_debate_is_scored_with_grades_outcome_and_advantages() -> None:
    """Votes 2 > 1, 2 > 0, 1 > 0 about round 1: for and against 0:2, 1:1 and 2:0, so -1, 0 and 1. Nobody judges round 2."""
    scored = moot.score(PLAYED)
    assert scored.debate is PLAYED
    assert scored.outcome and (scored.outcome.winner, scored.outcome.means) == (2, (-0.5, 0.0, 0.5))
    assert scored.grades and scored.grades.correct == (False, True, True) * 2
    assert scored.advantages.streams["generator"] == ((-1.0, 0.0), (0.0, 0.0), (1.0, 0.0))  # type: ignore[union-attr]


def test_another_protocol_a_batch_and_a_function_as_reward() -> None:
    one, two = moot.score([PLAYED, PLAYED], moot.V2.with_choices(reward="win_rate", advantage="normalize_batch"))
    assert one.scores == two.scores and one.scores.rewards == (0.0, 0.5, 1.0)  # type: ignore[union-attr]
    assert moot.score(PLAYED, reward=lambda debate: [3.0, 0.0, 0.0]).advantages == Advantages.per_agent(
        (2.0, -1.0, -1.0)
    )
    assert moot.score(moot.score(PLAYED), reward=lambda debate: [0.0, 0.0, 3.0]).outcome.winner == 2  # type: ignore[union-attr]
    assert moot.score([]) == []
    with pytest.raises(moot.ConfigError, match="two_numbers"):

        def two_numbers(debate: moot.Debate) -> list[float]:
            return [1.0, 2.0]

        moot.score(PLAYED, reward=two_numbers)
    with pytest.raises(moot.ConfigError, match=r"the engine lost cannot be scored \(gone\); leave it out"):
        moot.score(moot.PlayedDebate(PLAYED, error="gone"))


def test_datums_of_texts_are_those_of_the_sampled_tokens_but_for_what_only_a_sampler_knows() -> None:
    engine = ScriptedEngine(style="well_formed", seed=3)
    rendering = Rendering(engine.tokenizer)
    fresh = [moot.Debate(Question("What is 3 + 4?", "7"), 3, 2, moot.V2.with_choices(closing_ballot=True).rules)]
    (sampled,) = moot.score(asyncio.run(rollout(fresh, engine, rendering, SamplingParams(3000), tempered=False)))
    spoken = moot.score(sampled.debate)
    with pytest.raises(moot.ConfigError, match="texts and no tokens; name a tokenizer"):
        moot.datums(spoken)
    known, encoded = moot.datums(sampled), moot.datums([spoken], engine.tokenizer)
    assert len(known) == len(encoded) == 3 and any(datum.advantages.any() for datum in known)
    for a, b in zip(known, encoded, strict=True):
        for name in ("tokens", "targets", "advantages", "mask"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        assert a.logprobs.any() and not b.logprobs.any()
    with pytest.raises(moot.ConfigError, match="datums need advantages; score the debate first"):
        moot.datums(moot.PlayedDebate(PLAYED))


def test_datums_of_a_debate_that_was_aborted() -> None:
    played = debate(v1(), [["", "0 > 0", FAILED]])
    assert len(moot.datums(moot.score(played, moot.V1), ScriptedEngine().tokenizer)) == 3


# Training

SMALL = moot.config(
    engine="scripted", warm_questions=0, batch_size=2, num_train_datapoints=4, max_tokens=1500, eval_questions=2
)


def test_training_from_a_configuration_gives_a_run_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = []
    run = moot.train(SMALL, tmp_path / "run", watch=rows.append)
    assert [(row["step"], row["phase"]) for row in rows] == [
        (0, "eval"),
        (1, "self_play"),
        (2, "self_play"),
        (2, "eval"),
    ]
    assert run.metrics() == rows and run.steps() == [1, 2]
    assert capfd.readouterr() == ("", "")


def test_a_run_is_continued_and_other_settings_are_refused(tmp_path: Path) -> None:
    class Enough(Exception): ...

    def once(row: dict[str, Any]) -> None:
        if row["step"] == 1:
            raise Enough

    with pytest.raises(Enough):
        moot.train(SMALL, tmp_path / "run", watch=once)
    with pytest.raises(moot.ConfigError, match=r"was started with other settings \(seed 0 -> 1\); name another folder"):
        moot.train(replace(SMALL, seed=1), tmp_path / "run")
    run, whole = moot.train(SMALL, str(tmp_path / "run")), moot.train(SMALL, tmp_path / "whole")
    texts = [
        [(tmp_path / name / "debates" / f"00000{step}.jsonl").read_bytes() for step in (1, 2)]
        for name in ("run", "whole")
    ]
    assert run.steps() == whole.steps() == [1, 2] and texts[0] == texts[1]


# Runs


def test_a_run_has_its_configuration_metrics_and_debates(tmp_path: Path) -> None:
    record(tmp_path / "run", [[PLAYED, LOST, PLAYED], [PLAYED] * 3], engine="scripted")
    run = moot.Run(str(tmp_path / "run"))
    assert run.config["model"]["engine"] == "scripted" and run.steps() == [1, 2]
    assert [row["phase"] for row in run.metrics()] == ["self_play", "self_play"]
    played = list(run.debates())
    assert [each.name for each in played if isinstance(each, moot.PlayedDebate)] == [
        f"{step}/{n}" for step in (1, 2) for n in range(3)
    ]
    assert [each.error for each in played] == [None, "EngineError: the server went away", None, None, None, None]  # type: ignore[union-attr]
    assert len(list(run.debates([2]))) == 3


def test_its_metrics_are_a_table_where_pandas_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    run = record(tmp_path / "run", [[PLAYED], [PLAYED]])
    run.append_metrics({"step": 2, "phase": "eval", "trust/winner_correct": 0.5})
    table = run.frame()
    assert list(table["step"]) == [1, 2, 2] and table["trust/winner_correct"].dtype.kind == "f"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        moot.ConfigError, match="frame needs pandas, which is not installed; run: pip install pandas, or take metrics"
    ):
        run.frame()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(moot.ConfigError, match=r"is not a run: it has no run\.json"):
        moot.Run(tmp_path)


def test_settings_go_by_the_names_of_the_command() -> None:
    config = moot.config("math", learning_rate=1e-5, shuffle_labels=True, reward="win_rate", seed=4)
    assert (config.optim.learning_rate, config.seed, config.debate.max_rounds) == (
        1e-5,
        4,
        moot.PRESETS["math"].debate.max_rounds,
    )
    assert config.protocol.rules.shuffle_labels and config.protocol.scoring.reward == "win_rate"
    with pytest.raises(moot.ConfigError, match="there is no setting 'learning_rat'; did you mean learning_rate"):
        moot.config(learning_rat=1)
    with pytest.raises(moot.ConfigError, match="preset must be one of demo, majority"):
        moot.config("maths")


def test_a_preset_that_is_not_there_is_answered_with_the_one_that_was_probably_meant_first() -> None:
    with pytest.raises(
        moot.ConfigError,
        match=r"^did you mean math\? preset must be one of demo, majority, .*, got 'maths': demo \(SmolLM2",
    ):
        moot.config("maths")
    with pytest.raises(
        moot.ConfigError, match=r"^preset must be one of demo, majority, .*, got 'nope': demo \(SmolLM2"
    ):
        moot.config("nope")
    with pytest.raises(moot.ConfigError, match=r"^did you mean advocates\? preset must be one of .*, got 'advocate'"):
        defaults(["--preset", "advocate"])


# Looking


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(name == "style" for name, _ in attributes)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_notebook_shows_a_debate_and_nothing_it_says_is_markup() -> None:
    evil = '<script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J\u202e'
    played = moot.play(
        Question(evil, evil), lambda seen: text("N/A", evil) if seen.agent else f"mumble {evil}", max_rounds=1
    )
    page = Tags()
    page.feed(played._repr_html_())
    assert page.tags <= {"div", "p", "b", "table", "tr", "th", "td", "small", "br", "i"}
    assert page.words.count("<script>alert(1)</script>") == 2 + 3
    assert "\\u001b[2J\\u202e" in page.words and "\x1b" not in page.words
    assert "Agent 2" in page.words and "Round 1" in page.words and "failed: no <solution> in the text" in page.words


def test_ballots_judges_and_an_empty_debate_are_shown_too() -> None:
    played = debate(v2(closing_ballot=True), [["", FAILED, ""], ["1 > 2", "", ""]])
    assert "Round 2" in played._repr_html_()
    assert "Nobody has spoken." in moot.Debate(Question("?"), rules=v1().rules)._repr_html_()
