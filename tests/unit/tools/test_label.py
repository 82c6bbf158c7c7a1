"""What a label is, when to trust it, and what reads it afterwards; each table can be checked by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from moot.cli.main import main
from moot.debate.plain import plain_answers
from moot.debate.protocols import preset
from moot.debate.types import Question
from moot.runs import PlayedDebate
from moot.tasks import load
from moot.tools.ask import group_answer
from moot.tools.label import Label, calibrate, cautious, label_of, labelled_rows, read_sheet
from moot.tools.transcripts import BadLine, score
from moot.util.intervals import wilson
from support.labelling import GSM8K, recorded
from support.making import debate, v2


def given(confidence: float, right: bool | None) -> Label:
    return Label("7", confidence, None, 0.0, None, "It is \\boxed{7}.", right)


def many(confidence: float, right: int, wrong: int) -> list[Label]:
    return [given(confidence, True)] * right + [given(confidence, False)] * wrong


# What a label is


def test_a_label_is_the_plurality_with_its_share_and_that_of_the_next() -> None:
    played = debate(v2(), [[""] * 5], [["7", "8", "8", "7", "9"]], truth="8")
    label = label_of(group_answer(PlayedDebate(played, scoring=played.scoring)), known=True)
    assert (label.answer, label.share, label.runner_up, label.runner_up_share) == ("7", 0.4, "8", 0.4)
    assert (label.right, label.score, label.confidence) == (False, None, 0.4), "a tie goes to the lowest number"


def test_a_question_that_nobody_answered_has_no_label_and_is_never_trusted() -> None:
    played = debate(v2(), [[""] * 3], [["\\emph{a}"] * 3])
    label = label_of(group_answer(PlayedDebate(played, scoring=played.scoring)), known=False)
    assert (label.answer, label.share, label.confidence, label.right) == (None, 0.0, 0.0, None)
    assert not label.trusted(0.0)


def test_rows_keep_what_they_have_and_a_name_that_is_ours_is_kept_as_given(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(
        '{"task": "Why?", "key": 3, "prompt": "p", "share": 1}\n{"task": "How?", "key": ""}\n'
    )
    sheet = read_sheet(f"{tmp_path}/q.jsonl:question=task,answer=key")
    assert (sheet.texts, dict(sheet.known)) == (("Why?", "How?"), {"why?": "3"})
    first, second = labelled_rows(
        sheet, {"why?": given(0.9, True), "how?": given(0.5, None)}, {"why?": {}, "how?": {}}, 0.6
    )
    assert (first["question"], first["task"], first["prompt"], first["key"]) == ("Why?", "Why?", "p", 3)
    assert (first["given_share"], first["share"], first["given_answer"], first["answer"]) == (1, 0.9, "3", "7")
    assert (first["trusted"], second["trusted"], second["right"]) == (True, False, None)


# When to trust it


def test_the_lowest_threshold_that_reaches_the_precision_is_taken() -> None:
    """From 1.0 on 50 of 50, from 0.8 on 98 of 100, from 0.6 on 128 of 150; each as if one more were known and wrong."""
    labels = many(1.0, 50, 0) + many(0.8, 48, 2) + many(0.6, 30, 20)
    found = calibrate(labels, 0.95, 0.6)
    assert found.kept is not None
    assert (found.kept.threshold, found.kept.rows, found.kept.right) == (0.8, 100, 98)
    assert cautious(found.kept) == 98 / 101
    assert [(each.confidence, each.right, each.of) for each in found.bins] == [
        (pytest.approx(0.6), 30, 50),
        (pytest.approx(0.8), 48, 50),
        (1.0, 50, 50),
    ]
    assert calibrate(labels, 0.98, 0.6).kept.threshold == 1.0  # type: ignore[union-attr]


def test_what_cannot_be_reached_is_said_and_a_few_lucky_rows_do_not_reach_it() -> None:
    assert calibrate(many(0.9, 80, 20), 0.95, 0.6).kept is None
    assert calibrate(many(1.0, 18, 0), 0.95, 0.6).kept is None, "18 of 18 may be luck: 18 of 19 is below 0.95"
    assert calibrate(many(1.0, 19, 0), 0.95, 0.6).kept is not None
    found = calibrate(many(1.0, 18, 0) + many(0.5, 1, 9), 0.95, 0.6)
    assert found.kept is None and found.best is not None and (found.best.threshold, found.best.rows) == (1.0, 18)


def simulated(seed: int, count: int, answers: int = 8) -> list[Label]:
    """Questions of any difficulty, answered by a model that is right as often as each allows; wrong answers differ."""
    rng, labels = random.Random(seed), []
    for _ in range(count):
        chance = rng.betavariate(1.2, 0.8)
        said = ["right" if rng.random() < chance else f"wrong {rng.randrange(3)}" for _ in range(answers)]
        best = max(dict.fromkeys(said), key=said.count)
        labels.append(given(said.count(best) / answers, best == "right"))
    return labels


def test_the_precision_asked_for_is_reached_on_rows_that_were_held_out() -> None:
    """100 times: a threshold from 300 known rows, and its precision on 2,000 others (a simulation). That lies in the interval
    that was told at least 9 times in 10, and on average it is what was asked for."""
    inside, precisions = 0, list[float]()
    for seed in range(100):
        found = calibrate(simulated(seed, 300), 0.95, 0.6)
        assert found.kept is not None
        told = found.kept.as_dict()
        others = [label for label in simulated(1000 + seed, 2000) if label.trusted(found.kept.threshold)]
        precisions.append(sum(label.right is True for label in others) / len(others))
        inside += told["low"] <= precisions[-1] <= told["high"]
    assert inside >= 90
    assert sum(precisions) / len(precisions) >= 0.95


def labels_of(file: Path) -> list[Label]:
    labels = []
    for row in recorded(file):
        said = ["" if answer is None else f"\\boxed{{{answer}}}" for answer in row["said"]]
        played = plain_answers(Question(row["question"], row["answer"]), said)
        labels.append(label_of(group_answer(PlayedDebate(played, scoring=preset("v2").scoring)), known=True))
    return labels


@pytest.mark.parametrize(
    ("file", "refused", "reached"),
    [
        # 300 sums of four kinds, each answered eight times by SmolLM2 (135M): `moot label sums.jsonl --k 8 --grader number
        # --instruction "Answer with the number alone." --max-tokens 16 --temperature 0.7`. It is right in 5% of what one in
        # eight says and in 3 of 4 where most agree.
        (Path(__file__).parent / "fixtures/smollm2_sums.jsonl", 0.95, 0.5),
        (GSM8K, 0.995, 0.95),
    ],
    ids=["smollm2", "gpt"],
)
def test_what_real_models_cannot_reach_is_refused_and_what_they_can_holds_on_rows_held_out(
    file: Path, refused: float, reached: float
) -> None:
    """By half of the questions, drawn 100 times: the other half keep what was asked for on average, and miss it by more than
    chance (their own 95% interval) at most 5 times."""
    labels, missed, precisions = labels_of(file), 0, list[float]()
    for seed in range(100):
        drawn, half = random.Random(seed).sample(labels, len(labels)), len(labels) // 2
        assert calibrate(drawn[:half], refused, 0.6).kept is None
        if (kept := calibrate(drawn[:half], reached, 0.6).kept) is None:
            continue
        others = [label for label in drawn[half:] if label.trusted(kept.threshold)]
        right = sum(label.right is True for label in others)
        precisions.append(right / len(others))
        missed += wilson(right, len(others))[1] < reached
    assert len(precisions) >= 90 and missed <= 5
    assert sum(precisions) / len(precisions) >= reached


# Who reads it


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve sums by the script: some labels are trusted, and half of the answers are known."""
    place = tmp_path_factory.mktemp("labels")
    rows = [{"question": f"What is {n} + 2?", "id": n, **({"answer": n + 2} if n % 2 else {})} for n in range(12)]
    (place / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--engine", "scripted", "--k", "5", "--grader", "number", "--threshold", "0.6"]
    for name in ("l.jsonl", "l.csv"):
        assert main(["label", str(place / "q.jsonl"), *options, "--out", str(place / name)]) == 0
    return place


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_labels_are_a_task_of_those_that_are_trusted(labels: Path, caplog: pytest.LogCaptureFixture) -> None:
    trusted = [row for row in rows_of(labels / "l.jsonl") if row["trusted"]]
    assert 0 < len(trusted) < 12
    for name in ("l.jsonl", "l.csv"):
        task = load(str(labels / name))
        asked = {(question.text, question.answer) for question in [*task.training, *task.held_out]}
        assert asked == {(row["question"], row["answer"]) for row in trusted}
        assert f"{12 - len(trusted)} of the 12 labels of {labels / name} are not trusted and left out" in caplog.text
    everything = load(f"{labels / 'l.jsonl'}:trusted=no")
    answered = sum(row["answer"] is not None for row in rows_of(labels / "l.jsonl"))
    assert len([*everything.training, *everything.held_out]) == answered


def test_labels_that_are_held_out_are_told_from_known_answers(labels: Path) -> None:
    (labels / "known.jsonl").write_text('{"question": "What is 3 + 4?", "answer": "7"}\n')
    right = f"the answers of {labels / 'l.jsonl'} are labels, so right means: agrees with the label"
    told = f"{right}; {labels / 'l.jsonl'}:test=FILE,held_out=test measures by known answers"
    assert told in load(f"{labels / 'l.jsonl'}:test={labels / 'known.jsonl'}").notes
    measured = load(f"{labels / 'l.jsonl'}:test={labels / 'known.jsonl'},held_out=test")
    assert [question.answer for question in measured.held_out] == ["7"]
    assert right in measured.notes and told not in measured.notes, "in training right is still by the labels"


def test_what_is_left_out_of_labels_is_told_once_though_the_file_is_read_twice(
    labels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_of(labels / "l.jsonl")
    rows[0]["answer"] = None
    (labels / "twice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):
        load(f"{labels / 'twice.jsonl'}:trusted=no")
    silent = sum(row["answer"] is None for row in rows)
    assert caplog.text.count(f"{silent} of the 12 train questions of twice have no answer and are left out") == 1
    assert caplog.text.count("right means: agrees with the label") == 1


def test_export_makes_a_supervised_set_of_those_that_are_trusted(
    labels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(labels / "l.jsonl")
    trusted = [row for row in rows if row["trusted"]]
    assert main(["export", str(labels / "l.jsonl"), "--out", str(labels / "set")]) == 0
    assert f"{12 - len(trusted)} left out: the label is not trusted" in capsys.readouterr().out
    made = rows_of(labels / "set/supervised.jsonl")
    assert [rows[row["row"] - 1] for row in made] == trusted
    assert [row["completion"][0]["content"] for row in made] == [row["solution"] for row in trusted]
    instruction = trusted[0]["debate"]["settings"]["instruction"]
    assert made[0]["prompt"] == [{"role": "user", "content": f"{trusted[0]['question']}\n\n{instruction}"}]
    assert main(["export", str(labels / "l.csv"), "--out", str(labels / "right"), "--only-right"]) in (0, 1)
    kept = sum(row["trusted"] and row["right"] is True for row in rows)
    assert len(rows_of(labels / "right/supervised.jsonl")) == kept


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "l.jsonl", "--adapter"], "a file of labels makes one set"),
        (["export", "q.jsonl"], "q.jsonl is neither a run's folder nor a file of labels"),
        (["rescore", "q.jsonl"], "q.jsonl holds no debates; name a run, or a .jsonl file that moot label wrote"),
        (["train", "--task", "none.jsonl"], "none.jsonl: no label is trusted"),
    ],
)
def test_what_labels_are_not_for_is_one_line(
    arguments: list[str], says: str, labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(labels)
    none = [json.dumps({**row, "trusted": False}) + "\n" for row in rows_of(labels / "l.jsonl")]
    (labels / "none.jsonl").write_text("".join(none))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1, error


def test_score_reads_labels_and_compares_answers_as_they_were_compared(labels: Path) -> None:
    lines = (labels / "l.jsonl").read_text().splitlines()
    scored = list(score(lines, preset("v2"), "majority"))
    for row, each in zip(rows_of(labels / "l.jsonl"), scored, strict=True):
        assert isinstance(each, PlayedDebate) and each.scores is not None
        paid = [reward > 0 for (reward,) in next(iter(each.scores.streams.values())).values]
        assert sum(paid) == round(row["share"] * 5)
    row = json.loads(lines[0])
    del row["debate"]["settings"]["protocol"]
    (bad,) = score([json.dumps(row)], preset("v2"))
    assert isinstance(bad, BadLine) and "as moot label writes it, but damaged" in bad.reason


def test_rescore_reads_labels_as_it_reads_a_run(labels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five answers, nobody votes, and one of the sixty cannot be read and costs 1: the majority pays those who give the
    label."""
    assert main(["rescore", str(labels / "l.jsonl"), "--reward", "majority", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shares = [row["share"] for row in rows_of(labels / "l.jsonl")]
    assert found["run"] == str(labels / "l.jsonl") and found["after"]["debates"] == 12
    assert found["before"]["reward_mean"] == pytest.approx(-1 / 60)
    assert found["after"]["reward_mean"] == pytest.approx(sum(shares) / 12 - 1 / 60)


def test_code_that_a_record_names_is_not_run(tmp_path: Path) -> None:
    from moot.tools.asked import IN_BOX, asked_grading

    (tmp_path / "mine.py").write_text("raise SystemExit('run')\n")
    assert asked_grading({"grader": f"{tmp_path}/mine.py:f", "equal": ""}) is IN_BOX
