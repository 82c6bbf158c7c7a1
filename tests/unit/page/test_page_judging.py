"""What `moot judge` wrote, as the page reads it: other people's files among it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from moot.cli.main import main
from moot.errors import ConfigError
from support.requesting import ask

pytest.importorskip("starlette")

from moot.page.judging import MOST, Trials, is_trial
from moot.page.runs import Runs
from moot.page.server import make_app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two right and two wrong answers to each of three questions, judged in two ways."""
    rows = [
        {
            "question": f"{i} + 1?",
            "answer": i + 1,
            "answers": [f"So \\boxed{{{i + 1 + j // 2}}}{'.' * j}" for j in range(4)],
        }
        for i in range(3)
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "judges" / "one"
    asked = "--ballots approval pairs --checks 1 2 --engine scripted --questions 3 --opponents 1"
    assert main(["judge", *asked.split(), "--answers", str(tmp_path / "answers.jsonl"), "--out", str(out)]) == 0
    return out


def test_a_folder_of_judges_is_found_by_itself_and_among_others(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "judges" / "empty").mkdir()
    assert list(Trials([folder]).all()) == list(Trials([folder.parent]).all()) == ["one"]
    report = json.loads((folder / "report.json").read_text())
    assert Trials([folder.parent]).reports() == {"one": report}
    assert Trials([tmp_path]).all() == {}


def test_every_verdict_stands_beside_its_answer_with_the_thinking_and_the_score(folder: Path) -> None:
    found = Trials([folder]).questions("one", 0)
    assert found is not None and found["next"] is None and len(found["rows"]) == 3
    row = next(each for each in found["rows"] if each["question"] == "1 + 1?")
    assert row["known"] == "2" and [answer["correct"] for answer in row["answers"]] == [True, True, False, False]
    ways = {way["way"]: way for way in row["ways"]}
    assert list(ways) == ["base, approval ×2, solution", "base, pairs, solution"]
    single = ways["base, approval ×2, solution"]
    assert [verdict["about"] for verdict in single["verdicts"]] == [[0], [0], [1], [1], [2], [2], [3], [3]]
    own = [verdict["value"] for verdict in single["verdicts"] if verdict["about"] == [2]]
    assert single["scores"][2] == pytest.approx(sum(own) / 2)
    kept = (folder / "verdicts.jsonl").read_text()
    assert all(json.dumps(verdict["thinking"])[1:-1] in kept for verdict in single["verdicts"])
    about = [tuple(verdict["about"]) for verdict in ways["base, pairs, solution"]["verdicts"]]
    assert about and all((j, i) in about for i, j in about)  # both orders


def test_a_damaged_line_costs_its_own_place_and_what_is_no_report_is_passed_by(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "asked.jsonl").read_text().splitlines()
    endless = lines[0].replace('"scores": [', f'"scores": [{10**400}, ', 1)
    (folder / "asked.jsonl").write_text(
        "\n".join([lines[0], "[1", '{"question": 3}', endless, *lines[1:] * MOST]) + "\n"
    )
    trials = Trials([folder])
    first, rest = trials.questions("one", 0), trials.questions("one", MOST)
    assert first is not None and rest is not None
    assert ["broken" in row for row in first["rows"][:5]] == [False, True, True, True, False]
    assert first["next"] == MOST and len(rest["rows"]) == MOST
    assert trials.questions("two", 0) is None
    for said in ("[]", "{", '{"rows": [{"mode": "vote"}]}', '{"rows": 3}'):
        (tmp_path / "report.json").write_text(said)
        assert not is_trial(tmp_path)
    (folder / "asked.jsonl").unlink()
    (folder / "asked.jsonl").symlink_to(tmp_path / "answers.jsonl")  # leads out of the folder
    assert trials.questions("one", 0) == {"rows": [], "next": None}


def test_verdicts_of_any_size_are_refused_and_long_ones_come_a_few_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, file = Trials([folder]), folder / "asked.jsonl"
    monkeypatch.setattr("moot.page.judging.MOST_BYTES", 10)
    begins = [0, 1, 2]
    found = [trials.questions("one", begin) for begin in begins]
    assert [(len(part["rows"]), part["next"]) for part in found if part] == [(1, 1), (1, 2), (1, None)]
    os.truncate(file, 200 * 2**30)
    with pytest.raises(ConfigError, match=r"asked\.jsonl has 214,748,364,800 bytes, and at most"):
        trials.questions("one", 3000)


@pytest.mark.parametrize(
    ("damage", "trouble"),
    [
        ("deep", "it is nested more than 100 deep"),
        ("words", "it holds no rows of judges"),
        ("cut", "not JSON"),
    ],
)
def test_a_damaged_report_says_so_in_its_own_place_and_hides_no_other(folder: Path, damage: str, trouble: str) -> None:
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    text = (other / "report.json").read_text()
    deep = json.dumps({**json.loads(text), "extra": json.loads("[" * 700 + "]" * 700)})
    words = json.dumps({"rows": ["pair_accuracy and ballot"]})
    (other / "report.json").write_text({"deep": deep, "words": words, "cut": text[:-9]}[damage])
    answer = ask(make_app(Runs([]), folder.parent / "cache", Trials([folder.parent])), "/api/judges")
    assert answer.status == 200
    reports = json.loads(answer.body)
    assert reports["one"] == json.loads(text)
    assert list(reports) == ["one", "other"] and reports["other"]["rows"] == []
    assert reports["other"]["trouble"].startswith(f"report.json cannot be read: {trouble}")
