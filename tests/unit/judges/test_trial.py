"""`moot judge` as one types it: planted judges are measured as what they are, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from moot.cli import judge as command
from moot.cli.main import main
from moot.debate.checks import Check
from moot.debate.play import Speak
from moot.debate.types import Observation, Said
from moot.engine import scripted
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from moot.judges.asking import Asked
from support.asking import ChatServer, saying
from support.dying import dies_after

COUNT = 40
Say = Callable[[Asked], float]


class Planted:
    """A judge that says what it is told to; it counts what it is asked."""

    def __init__(self, say: Say, most: int = 1 << 30) -> None:
        self._say, self._most = say, most
        self.asked = Counter[tuple[Any, ...]]()

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        if self.asked.total() >= self._most:
            raise RuntimeError("cut off")
        self.asked[asked.question.text, asked.answers, asked.show, params.seed] += 1
        return Check(self._say(asked), "thinking", 10 * len(asked.answers))

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        """Prefers the lower number, which is right, in seven of ten questions, and else the higher one."""
        assert limits["evaluation"] == params.max_tokens

        async def speak(observation: Observation) -> Said:
            (number,) = re.findall(r"Which number is (\d+)\?", observation.conversation()[0].content)
            pairs = [pair if int(number) % 10 < 7 else pair[::-1] for pair in combinations(observation.eligible, 2)]
            return Said(
                "\n".join(f"Agent {a} > Agent {b}" for a, b in pairs) if observation.section == "comparison" else "Hm."
            )

        return speak


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two right and two wrong answers to each question, of lengths that have nothing to do with it."""
    monkeypatch.chdir(tmp_path)
    rows, rng = [], random.Random(1)
    for i in range(COUNT):
        texts = [f"{'so ' * rng.randint(1, 20)}\\boxed{{{i + j // 2}}}" for j in range(4)]
        rows.append({"question": f"Which number is {i}?", "answer": i, "answers": texts})
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def is_right(asked: Asked, place: int) -> bool:
    return (
        asked.answers[place] == asked.question.answer or f"\\boxed{{{asked.question.answer}}}" in asked.answers[place]
    )


def right_in(share: float) -> Say:
    """In exactly this share of the questions."""

    def say(asked: Asked) -> float:
        knows = int(asked.question.answer or 0) % 10 < 10 * share
        return 0.8 if is_right(asked, 0) == knows else 0.3

    return say


def measured(
    say: Say | Planted, monkeypatch: pytest.MonkeyPatch, answers: Path, *options: str, out: str = "out"
) -> dict[str, dict[str, Any]]:
    """The rows of the report, by ballot and number of checks."""
    planted = say if isinstance(say, Planted) else Planted(say)
    monkeypatch.setattr(command, "judge_of", lambda guest: planted)
    assert main(["judge", "--engine", "scripted", "--answers", str(answers), "--out", out, *options]) == 0
    report = json.loads(Path(out, "report.json").read_text())
    return {f"{row['ballot']} {row['checks']}": row for row in report["rows"]}


def within(interval: dict[str, float], value: float) -> bool:
    return bool(interval["low"] <= value <= interval["high"] and interval["low"] < interval["high"])


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_a_judge_that_is_right_so_often_is_measured_as_that(
    share: float, answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = measured(right_in(share), monkeypatch, answers, "--ballots", "approval", "pairs", "--checks", "1", "2")
    for row in rows.values():
        assert row["questions"] == COUNT and row["pairs"] == 4 * COUNT
        assert row["pair_accuracy"]["value"] == pytest.approx(share) and within(row["pair_accuracy"], share)
    for checks in (1, 2):
        row = rows[f"approval {checks}"]
        assert row["j"]["value"] == pytest.approx(2 * share - 1) and within(row["j"], 2 * share - 1)
        assert row["cost"]["value"] == 10 * checks and row["order_flips"] is None
        assert within(row["length"], 0.0)
    assert (
        rows["pairs 1"]["one_order"]["value"] == pytest.approx(share) and rows["pairs 1"]["order_flips"]["value"] == 0
    )
    assert rows["pairs 1"]["j"] is None


@pytest.mark.parametrize(("by", "told"), [("word", True), ("probability", False)])
def test_verdicts_that_cannot_be_read_are_told_with_the_remedy(
    by: Any, told: bool, answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mumbles(Planted):
        async def check(self, asked: Asked, params: SamplingParams) -> Check:
            return replace(await super().check(asked, params), by=by)

    unread = "50% of the verdicts of base say neither word, or both, and count as ½; give more --evaluation-tokens"
    measured(Mumbles(lambda asked: 0.5 if is_right(asked, 0) else 1.0), monkeypatch, answers)
    assert (unread in " ".join(capsys.readouterr().out.split())) is told


def test_a_judge_of_single_rules_is_measured_by_their_mean_and_by_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows whether the value is right and always believes that the numbers are the given ones. Of four answers to
    a question one is right, one has another value and two another number: by the value alone 2 of 3 pairs are level."""
    monkeypatch.chdir(tmp_path)
    texts = [r"\boxed{2 * 3 * 4}", r"\boxed{2 + 3 + 4}", r"\boxed{3 * 8}", r"\boxed{4 * 6}"]
    rows = []
    for extra in range(10):  # not read by the task: it makes questions of one kind differ
        asked = "Use the numbers 2, 3 and 4 and the operations +, -, * and / to make 24. Each number must be used once."
        rows.append({"question": f"{asked} ({extra})", "answers": texts})
    Path("answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked_about = Counter[str]()

    def say(asked: Asked) -> float:
        asked_about[asked.rule.split()[0] if asked.rule else ""] += 1
        return 0.3 if "value" in asked.rule and "+" in asked.answers[0] else 0.8

    options = ("--task", "countdown", "--show", "answer", "--checks", "1", "--rules", "together", "mean", "least")
    planted = Planted(say)
    monkeypatch.setattr(command, "judge_of", lambda guest: planted)
    for _ in range(2):  # the second asks nothing
        assert main(["judge", "--engine", "scripted", "--answers", "answers.jsonl", "--out", "out", *options]) == 0
    report = json.loads(Path("out", "report.json").read_text())
    by_rules = {row["rules"]: row for row in report["rows"]}
    assert asked_about.total() == 10 * 4 * 3, "each of two rules once, whichever way they are counted"
    assert by_rules["together"]["pair_accuracy"]["value"] == 0.5 and by_rules["together"]["j"]["value"] == 0
    for over in ("mean", "least"):
        assert by_rules[over]["pair_accuracy"]["value"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert by_rules["mean"]["j"]["value"] == 0, "½ · (0.8 + 0.3) is above ½"
    assert by_rules["least"]["j"]["value"] == pytest.approx(1 - 2 / 3)
    told = json.loads(Path("out", "asked.jsonl").read_text().splitlines()[0])["ways"]
    assert [way["way"] for way in told] == [
        "base, approval ×1, answer", "base, approval ×1, answer, mean of the rules",
        "base, approval ×1, answer, least of the rules",
    ]  # fmt: skip
    assert {verdict["rule"] for verdict in told[2]["verdicts"]} == {
        "The final expression uses each of the numbers 2, 3 and 4 exactly once, and no other number.",
        "The value of the final expression is 24.",
    }


def test_the_way_to_train_with_a_judge_names_no_model_that_cannot_be_trained(
    answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge of a chat server, which says Yes to right answers alone; nobody answers, so nobody else is asked."""

    def judge(number: int, body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        asked, answered = re.search(r"Which number is (\d+)", text), re.search(r"boxed\{(\d+)\}", text)
        assert asked and answered
        return saying("Yes" if asked[1] == answered[1] else "No")

    with ChatServer(judge) as server:
        chat = ("--engine", "openai", "--base-url", server.url, "--model", "m", "--judges", "base", "--checks", "1")
        assert main(["judge", "--answers", str(answers), *chat]) == 0
        assert json.loads(Path("judges/m-arithmetic/report.json").read_text())["options"].endswith(
            f"--judge m@{server.url}"
        )
    last = capsys.readouterr().out.strip().splitlines()[-1]
    train = "moot train --task arithmetic --reward approval:checks=1"
    assert last == f"Train with it: {train} --judge m@{server.url}"


def test_a_judge_that_always_says_the_first_is_told_by_its_flips(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = measured(lambda asked: 0.9, monkeypatch, answers, "--ballots", "pairs")["pairs 1"]
    assert row["order_flips"]["value"] == 1.0 and row["one_order"]["value"] == row["pair_accuracy"]["value"] == 0.5


def test_a_judge_that_likes_long_answers_is_told_by_its_correlation(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = measured(lambda asked: len(asked.answers[0]) / 100, monkeypatch, answers, "--checks", "1")["approval 1"]
    assert row["length"]["value"] > 0.99 and within(row["pair_accuracy"], 0.5)


def test_ways_are_compared_in_pairs_on_what_both_have_and_what_one_lacks_is_told_with_the_reason(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right and two wrong answers to each question. Each meets one other: where the wrong ones meet, nothing is
    measured. Approval is right in six of ten questions, pairs in three of these: neither is sure to beat a coin."""
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    for number, row in enumerate(rows):
        row["answers"] = [f"\\boxed{{{number + i}}}" for i in range(3)]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def say(asked: Asked) -> float:
        return right_in(0.6 if len(asked.answers) == 1 else 0.3)(asked)

    options = ("--ballots", "approval", "pairs", "--checks", "1", "--opponents", "1")
    found = measured(say, monkeypatch, answers, *options)
    best, other = found["approval 1"], found["pairs 1"]
    count = other["questions"]
    assert count < COUNT and best["questions"] == COUNT and best["best_minus"] is None and best["fewer"] == ""
    told = f"{count} of 40 questions, {count} of 80 pairs, because --opponents 1 draws 1 other answer for each"
    assert other["fewer"] == told

    asked = [json.loads(line) for line in Path("out/asked.jsonl").read_text().splitlines()]
    met = [int(row["known"]) % 10 for row in asked if row["ways"][1]["scores"][0] is not None]
    minus = other["best_minus"]
    assert minus["questions"] == minus["pairs"] == count == len(met)
    assert minus["value"] == pytest.approx((sum(i < 6 for i in met) - sum(i < 3 for i in met)) / count)
    assert 0 < minus["low"] < minus["value"] < minus["high"]
    both = f"Pair accuracy of approval ×1 minus pairs, on the {count} questions that both have: "
    sentence = both + "{value:+.2f} [{low:+.2f}, {high:+.2f}].".format(**minus)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"base, pairs, solution: {told}." in shown
    assert "No way is clearly better than a coin; the best is base, approval ×1" in shown and sentence in shown


def test_an_answer_that_cannot_be_shown_is_the_reason_for_fewer_pairs(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    rows[0]["answers"][3] = "no answer at all"
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    row = measured(right_in(0.7), monkeypatch, answers, "--show", "answer", "--checks", "1")["approval 1"]
    told = "40 of 40 questions, 158 of 160 pairs, because an answer without a final one is not shown"
    assert row["fewer"] == told


def test_a_log_says_how_many_verdicts_there_are_and_how_long_the_rest_takes(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moot.cli.console.QUIET_S", 0.02)
    monkeypatch.setattr("moot.cli.console.MOST_QUIET_S", 0.02)

    class Slow(Planted):
        async def check(self, asked: Asked, params: SamplingParams) -> Check:
            await asyncio.sleep(0.005)
            return await super().check(asked, params)

    measured(Slow(right_in(0.7)), monkeypatch, answers, "--checks", "1", "--concurrency", "1")
    assert re.search(r"^\d+ of 155 verdicts, about 0:00:\d\d left$", capsys.readouterr().out, re.MULTILINE)


def test_a_judge_that_writes_lines_is_measured_by_its_votes(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = measured(lambda asked: 0.5, monkeypatch, answers, "--ballots", "lines")["lines 1"]
    assert row["pair_accuracy"]["value"] == pytest.approx(0.7) and within(row["pair_accuracy"], 0.7)
    assert row["j"] is None and row["order_flips"] is None and row["cost"] is None
    kept = [json.loads(line) for line in Path("out/verdicts.jsonl").read_text().splitlines()]
    # Of four answers the first is preferred to three others, the next one to two of three, …: 2 · for / (for + against) − 1.
    assert kept[1]["scores"] == pytest.approx([1, 1 / 3, -1 / 3, -1])
    again = measured(lambda asked: 0.5, monkeypatch, answers, "--ballots", "lines")["lines 1"]
    assert again == row and len(Path("out/verdicts.jsonl").read_text().splitlines()) == len(kept) == 1 + COUNT


def test_where_counting_fails_is_looked_at_apart(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    for number, row in enumerate(rows):
        row["answers"].append(
            row["answers"][3 if number % 2 else 0]
        )  # a wrong answer, or a right one, has the most votes
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def right_where_counting_is(asked: Asked) -> float:
        return float(is_right(asked, 0) == (int(asked.question.answer or 0) % 2 == 0))

    row = measured(right_where_counting_is, monkeypatch, answers, "--checks", "1")["approval 1"]
    assert row["counting_fails"]["value"] == 0.0 and row["pair_accuracy"]["value"] == pytest.approx(0.5)


def test_what_was_cut_off_goes_on_and_nothing_is_asked_twice(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--ballots", "approval", "pairs", "--checks", "1", "3", "--show", "solution", "answer")
    whole = Planted(right_in(0.7))
    expected = measured(whole, monkeypatch, answers, *options, out="whole")
    wanted = Path("whole/report.json").read_bytes()
    assert set(whole.asked.values()) == {1}

    dying = Planted(right_in(0.7), most=100)
    with pytest.raises(RuntimeError, match="cut off"):
        measured(dying, monkeypatch, answers, *options)
    kept = Path("out/verdicts.jsonl")
    assert not Path("out/report.json").exists()
    with kept.open("ab") as file:
        file.write(b'{"settings": "torn')  # by a kill in the middle of a line
    rest = Planted(right_in(0.7))
    assert measured(rest, monkeypatch, answers, *options) == expected
    assert Path("out/report.json").read_bytes() == wanted
    assert dying.asked.total() + rest.asked.total() == whole.asked.total() and not dying.asked & rest.asked

    # Fewer checks are the first of those that there are.
    none = Planted(right_in(0.7), most=0)
    assert measured(none, monkeypatch, answers, "--checks", "2")["approval 2"]["pair_accuracy"][
        "value"
    ] == pytest.approx(0.7)


def test_a_kept_line_that_is_no_verdict_is_asked_for_again(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = measured(right_in(0.7), monkeypatch, answers, "--checks", "1")
    kept = Path("out/verdicts.jsonl")
    wrong = [("value", 7.0), ("value", "0.8"), ("value", None), ("tokens", -1), ("tokens", "10"), ("tokens", 10**400)]
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    for line, (name, value) in zip(lines[1:], wrong, strict=False):
        line[name] = value
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = Planted(right_in(0.7))
    assert measured(again, monkeypatch, answers, "--checks", "1") == expected and again.asked.total() == len(wrong)


def test_nobody_is_asked_where_all_answers_are_right_or_all_are_wrong(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    rows[0]["answers"], rows[1]["answers"] = rows[0]["answers"][:2], rows[1]["answers"][2:]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    planted = Planted(right_in(0.5))
    assert measured(planted, monkeypatch, answers, "--checks", "1")["approval 1"]["questions"] == COUNT - 2
    assert not {"Which number is 0?", "Which number is 1?"} & {question for question, *_ in planted.asked}


def test_an_answer_that_several_gave_in_the_same_words_is_asked_about_once(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(lambda asked: 0.5)
    measured(planted, monkeypatch, answers, "--show", "answer", "--checks", "3")
    assert planted.asked.total() == COUNT * 2 * 3
    first = json.loads(Path("out/asked.jsonl").read_text().splitlines()[0])
    about = [verdict["about"] for verdict in first["ways"][0]["verdicts"]]
    assert about == [[i] for i in range(4) for _ in range(3)], "and stands with each of them"


def test_what_an_engine_fails_at_is_left_out_said_and_tried_again(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(asked: Asked) -> float:
        if asked.question.answer == "3":
            raise EngineError("no answer from the server")
        return right_in(0.9)(asked)

    row = measured(fails, monkeypatch, answers, "--checks", "2")["approval 2"]
    assert row["questions"] == COUNT - 1
    assert row["fewer"] == "39 of 40 questions, 156 of 160 pairs, because the engine failed at verdicts"
    assert "8 answers or debates were lost to the engine (no answer from the server)" in " ".join(
        capsys.readouterr().out.split()
    )
    again = Planted(right_in(0.9))
    assert measured(again, monkeypatch, answers, "--checks", "2")["approval 2"]["questions"] == COUNT
    assert again.asked.total() == 8


# Answers that are sampled, by the scripted engine from beginning to end


@pytest.fixture
def sevens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Questions whose answer is 7, which the script gives most often; `moot judge` about them."""
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"What is 7 plus {i} minus {i}?", "answer": "7"} for i in range(80)]
    Path("sevens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scripted_judge = [
        "judge",
        "--engine",
        "scripted",
        "--task",
        "sevens.jsonl",
        "--questions",
        "8",
        "--max-tokens",
        "2000",
    ]
    return [*scripted_judge, "--ballots", "approval", "pairs", "lines", "--checks", "1", "2"]


def test_answers_are_sampled_once_and_every_way_is_shown_best_first(
    sevens: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(sevens) == 0
    shown = capsys.readouterr().out
    for word in (
        "base, approval ×1, solution",
        "base, approval ×2, solution",
        "base, lines, solution",
        "order flips",
        "interval",
    ):
        assert word in shown, word
    folder = Path("judges/scripted-sevens")
    answers, verdicts = ((folder / name).read_bytes() for name in ("answers.jsonl", "verdicts.jsonl"))
    report = (folder / "report.json").read_bytes()
    rows = json.loads(report)["rows"]
    values = [row["pair_accuracy"]["value"] for row in rows]
    assert len(rows) == 4 and values == sorted(values, reverse=True)

    assert main([*sevens, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(report)
    assert (folder / "answers.jsonl").read_bytes() == answers and (folder / "verdicts.jsonl").read_bytes() == verdicts

    # A kill in the middle of a line of each: the rest is done again, and the report is the same.
    for name, content in (("answers.jsonl", answers), ("verdicts.jsonl", verdicts)):
        (folder / name).write_bytes(content[: len(content) // 2])
    assert main(sevens) == 0 and (folder / "report.json").read_bytes() == report


@pytest.mark.parametrize("calls", [5, 90])
def test_an_engine_that_is_cut_off_among_answers_or_verdicts(
    calls: int, sevens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*sevens, "--out", "whole"]) == 0
    with monkeypatch.context() as patched:
        patched.setattr(scripted, "ScriptedEngine", dies_after(calls))
        with pytest.raises(RuntimeError, match="cut off"):
            main([*sevens, "--out", "out"])
    assert main([*sevens, "--out", "out"]) == 0
    assert Path("out/report.json").read_bytes() == Path("whole/report.json").read_bytes()

    def lines(folder: str) -> list[str]:
        rows = (json.loads(line) for line in Path(folder, "verdicts.jsonl").read_text().splitlines())
        return sorted(json.dumps(row) for row in rows if "by" in row)

    assert lines("out") == lines("whole"), "each verdict once"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--checks", "0"], "checks must be numbers from 1 up, got 0"),
        (["--k", "0"], "k must be at least 1, got 0"),
        (["--prompts", "nowhere.toml"], "prompts 'nowhere.toml' cannot be read"),
        (["--answers", "nowhere.jsonl"], "answers 'nowhere.jsonl' cannot be read"),
        (["--answers", "bad.jsonl"], "line 2: must be"),
        (["--answers", "unknown.jsonl"], "questions without a known answer"),
        (["--ballots", "guess"], "--ballots"),
        (["--judges", "nobody"], "judges: the script plays with base, a run (RUN@STEP, RUN@best, RUN@judge) or"),
        (["--judges", "base", "m@http://127.0.0.1:9/v1"], "judge m@http://127.0.0.1:9/v1 cannot be reached"),
        (["--temperature", "-1"], "temperature must be 0 or more, got -1.0"),
        (["--rules", "mean"], "task arithmetic does not say which rules its questions have"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"question": "Q", "answer": 1, "answers": ["1"]}
    Path("bad.jsonl").write_text(json.dumps(good) + '\n{"question": "Q", "answers": "1"}\n')
    Path("unknown.jsonl").write_text(json.dumps({"question": "Q", "answers": ["1"]}) + "\n")
    assert main(["judge", "--engine", "scripted", "--questions", "2", *options]) == 2
    assert complaint in capsys.readouterr().err
