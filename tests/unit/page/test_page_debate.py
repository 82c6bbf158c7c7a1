"""One debate for a reader: places in the text, votes, lines that did not count, and tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.debate.labels import labels_for
from moot.debate.protocols import V2
from moot.debate.types import Question
from moot.page.debate import _Places, shown
from moot.page.filters import where
from moot.page.index import Index
from support.making import lines, text
from support.paging import failed, record, turn, write_run, write_tokens


def seen(tmp_path: Path, *records: dict[str, Any], number: int = 0, tokens: bool = True) -> dict[str, Any]:
    found = shown(write_run(tmp_path / "run", {1: records}, tokens=tokens), 1, number)
    assert found is not None
    return found


def test_a_section_stands_where_a_browser_counts_it(tmp_path: Path) -> None:
    said = "𝔸😀 <solution>é𝔹</solution><evaluation>x</evaluation><comparison>N/A</comparison>"
    one = turn(0, text=said, fields={"solution": "é𝔹", "evaluation": "x", "comparison": "N/A"})
    (solution, *_) = seen(tmp_path, record(one, turn(1), turn(2)))["turns"][0]["sections"]
    units = said.encode("utf-16-le")
    assert units[2 * solution["begin"] : 2 * solution["end"]].decode("utf-16-le") == "<solution>é𝔹</solution>"
    assert solution["stream"] == "generator"


@given(st.text(st.characters(exclude_categories=())), st.integers(-2, 100))
def test_places_are_counted_as_utf16(said: str, place: int) -> None:
    before = said[: max(place, 0)]
    assert _Places(said).utf16(place) == len(before.encode("utf-16-le", "surrogatepass")) // 2


def test_each_line_of_a_comparison_says_what_became_of_it(tmp_path: Path) -> None:
    comparison = "\n".join(
        [
            lines("1 > 2"),
            lines("2 > 1"),
            lines("0 > 1"),
            lines("1 = 1"),
            lines("1 > 9"),
            "I like Agent 1",
            "N/A",
            lines("1 > 3"),
        ]
    )
    judge = turn(0, round=2, comparison=comparison, text=text(comparison))
    votes = [{"turn": 3, "left_turn": 2, "right_turn": 1, "verdict": ">"}]
    debate = record(turn(0), turn(1), turn(2), judge, votes=votes, num_agents=4)
    debate["rewards"] = debate["advantages"] = {
        "generator": [[0.5, 0.25], [1.0], [0.0], []],
        "judge": [[0.0, -1.0], [0.0], [0.0], []],
    }
    found = seen(tmp_path, debate)
    fates = [line["fate"] for line in found["turns"][3]["lines"]]
    assert fates == ["superseded", "vote", "self", "same", "unknown", "unreadable", "silent", "unseen"]
    assert found["votes"] == [
        {
            "turn": 3,
            "round": 2,
            "author": 0,
            "verdict": ">",
            "counts": True,
            "left": {"agent": 2, "round": 1},
            "right": {"agent": 1, "round": 1},
        }
    ]
    assert found["turns"][3]["rewards"] == {"generator": 0.25, "judge": -1.0}
    # What the page says of each agent is the outcome's: (0.5 + 0.25) / 2, and one vote from agent 1 to agent 2.
    assert list(found["means"]) == [0.375, 1.0, 0.0, None]
    assert (list(found["won"]), list(found["lost"]), found["winner"]) == ([0, 0, 1, 0], [0, 1, 0, 0], 1)


def test_a_closing_ballot_is_all_judging_and_no_answer(tmp_path: Path) -> None:
    said = "<evaluation>Fine.</evaluation><comparison>Agent 1 > Agent 2</comparison>"
    ballot = {
        "round": 2,
        "agent": 0,
        "text": said,
        "fields": {"evaluation": "Fine.", "comparison": "Agent 1 > Agent 2"},
        "ballot": True,
    }
    votes = [{"turn": 3, "left_turn": 1, "right_turn": 2, "verdict": ">"}]
    found = seen(tmp_path, record(turn(0, "7", True), turn(1), turn(2), ballot, votes=votes))["turns"][3]
    assert found["ballot"] and [section["stream"] for section in found["sections"]] == ["judge", "judge"]
    assert [line["fate"] for line in found["lines"]] == ["vote"]
    index = Index(tmp_path / "run", tmp_path / "cache")
    index.fill()
    assert index.page(where({}, lambda _: []), None, 1)[0]["correct"] == 1 / 3  # the ballot took nobody's answer away


@pytest.mark.parametrize("counts", [True, False])
def test_judges_without_a_seat_are_numbered_behind_the_agents(tmp_path: Path, counts: bool) -> None:
    said = "<evaluation>Fine.</evaluation><comparison>Agent 1 > Agent 2</comparison>"
    cast = {"left_turn": 1, "right_turn": 2, "verdict": ">"}
    judge = {"text": said, "fields": {"evaluation": "Fine.", "comparison": "Agent 1 > Agent 2"}, "votes": [cast]}
    silent = {"text": "no idea", "failure": "no <evaluation> in the text", "votes": []}
    among = [{"turn": None, "judge": 1, **cast}] if counts else []
    protocol = {**record()["protocol"], "voters": "both" if counts else "agents"}
    found = seen(tmp_path, record(jury=[silent, judge], jury_counts=counts, votes=among, protocol=protocol))
    (vote,) = found["votes"]
    assert (vote["author"], vote["turn"], vote["round"], vote["counts"]) == (4, None, None, counts)
    assert [each["agent"] for each in found["jury"]] == [3, 4] and found["jury_counts"] is counts
    assert found["jury"][0]["failure"] == "no <evaluation> in the text" and [
        line["fate"] for line in found["jury"][1]["lines"]
    ] == ["vote"]


def check(value: float, *turns: int, thinking: str = "Hm.") -> dict[str, Any]:
    return {"turns": list(turns), "judge": 0, "value": value, "by": "probability", "tokens": 3, "thinking": thinking}


def test_checks_stand_with_their_thinking_and_the_score_they_give_each_answer(tmp_path: Path) -> None:
    """Approval takes the mean of 0.9 and 0.5; of pairs, turn 1 beats turn 0 by ½ · (0.8 + 1 − 0.4)."""
    zeros = {"generator": [[0.0]] * 3}
    checked = {"rewards": zeros, "advantages": zeros, "votes": []}
    alone = record(
        protocol={**V2.as_dict(), "reward": "approval:checks=2"},
        checks=[check(0.9, 0, thinking="So <it> is."), check(0.5, 0), check(0.2, 1), check(0.2, 1)],
        **checked,
    )
    paired = record(
        protocol={**V2.as_dict(), "reward": "pairs"}, checks=[check(0.8, 1, 0), check(0.4, 0, 1)], **checked
    )
    too_few = {**alone, "checks": alone["checks"][:1]}
    found = seen(tmp_path, alone, paired, too_few)
    assert [(each["turns"], each["value"]) for each in found["checks"]][:2] == [((0,), 0.9), ((0,), 0.5)]
    assert found["checks"][0]["thinking"] == "So <it> is."
    assert found["scores_by_turn"] == {0: [0.7], 1: [0.2]}, "nothing of turn 2 could be shown"
    assert shown(tmp_path / "run", 1, 1)["scores_by_turn"] == {0: [pytest.approx(0.3)], 1: [pytest.approx(0.7)]}  # type: ignore[index]
    found = shown(tmp_path / "run", 1, 2)
    assert found is not None and found["scores_by_turn"] == {} and len(found["checks"]) == 1


def test_shuffled_labels_are_read_as_their_author_meant_them(tmp_path: Path) -> None:
    question = Question("What is 3 + 4?", id="q")
    labels = labels_for(question, 0, 3)
    others = [f"Agent {labels[1]} > Agent {labels[2]}", f"Agent {labels[0]} > Agent {labels[1]}"]
    judge = turn(0, round=2, comparison="\n".join(others), text=text("\n".join(others)))
    votes = [{"turn": 3, "left_turn": 1, "right_turn": 2, "verdict": ">"}]
    debate = record(turn(0), turn(1), turn(2), judge, votes=votes, protocol={**V2.as_dict(), "shuffle_labels": True})
    found = seen(tmp_path, debate)["turns"]
    assert [line["fate"] for line in found[3]["lines"]] == ["vote", "self"]
    assert found[3].get("labels", [0, 1, 2]) == list(labels)
    assert any("labels" in each for each in found)


def test_a_reward_by_agent_is_a_stream_of_its_own(tmp_path: Path) -> None:
    votes = [{"turn": 0, "left": 1, "right": 2, "verdict": "="}]
    found = seen(
        tmp_path,
        record(votes=votes, rewards=[0.5, 0.25, 0.0], returns=[0.5, 0.25, -1.0], advantages=[0.25, 0.0, -0.25]),
    )
    assert [each["rewards"] for each in found["turns"]] == [{"agent": 0.5}, {"agent": 0.25}, {"agent": 0.0}]
    assert found["turns"][2]["advantages"] == {"agent": -0.25} and found["turns"][2]["returns"] == {"agent": -1.0}
    assert found["votes"][0]["left"] == {"agent": 1, "round": None}


def test_a_turn_has_its_own_tokens(tmp_path: Path) -> None:
    first, second = (
        record(turn(0), failed(1, said="12345"), turn(2)),
        record(failed(0, said=""), failed(1, said="ab𝔸"), turn(2)),
    )
    found = seen(tmp_path, first, second, number=1)
    before = sum(len(each["text"]) // 4 + 1 + (len(each["text"]) % 4 > 0) for each in first["turns"])
    empty, short, _ = found["turns"]
    assert empty["tokens"] == {
        "starts": [0],
        "ids": [before],
        "logprobs": [round(-before / 1000, 5)],
        "advantages": [0.5],
    }
    assert short["tokens"]["starts"] == [0, 4]  # three characters, the last of them two to a browser
    assert short["temperature"] == 0.5
    before_it = shown(tmp_path / "run", 1, 0)
    assert (
        before_it is not None
        and before_it["turns"][0]["tokens"]["ids"][0] == 0
        and len(before_it["turns"][1]["tokens"]["ids"]) == 3
    )
    assert short["failure"] == "no <solution> in the text" and "sections" not in short


@pytest.mark.parametrize("damage", ["none", "rubbish", "bomb", "pickle", "missing array"])
def test_tokens_that_cannot_be_read_leave_the_debate_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr("moot.page.debate.LARGEST", 100_000)
    run = write_run(tmp_path / "run", {1: [record()]}, tokens=False)
    file = run / "debates" / "000001.npz"
    match damage:
        case "rubbish":
            file.write_bytes(b"PK rubbish")
        case "bomb":
            np.savez_compressed(file, debate=np.zeros(25_001, dtype=np.int32))
        case "pickle":
            np.savez(file, debate=np.array([{}], dtype=object))
        case "missing array":
            np.savez(file, debate=np.zeros(1, dtype=np.int32))
    found = shown(run, 1, 0)
    assert found is not None and len(found["turns"]) == 3 and "tokens" not in found["turns"][0]
    assert (found["tokens_error"] is None) == (damage == "none")
    assert damage != "bomb" or "would unpack to more than" in found["tokens_error"]


def test_tokens_written_anew_are_read_anew(tmp_path: Path) -> None:
    assert (
        len(seen(tmp_path, record())["turns"][0]["tokens"]["ids"]) == (len(turn(0, correct=True)["text"]) + 3) // 4 + 1
    )
    debate = record(failed(0, said="abcd"), turn(1), turn(2))
    write_tokens(tmp_path / "run" / "debates" / "000001.npz", [debate])
    found = shown(tmp_path / "run", 1, 0)
    assert found is not None and found["turns"][0]["tokens"]["ids"] == [0, 1]


def test_what_is_not_there_or_no_record_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [record()]})
    assert shown(run, 1, 1) is None and shown(run, 2, 0) is None
    (run / "debates" / "000002.jsonl").write_bytes(b'nonsense\n{"question": 1}\n')
    assert "broken" in (shown(run, 2, 0) or {}) and "broken" in (shown(run, 2, 1) or {})


WORDS = st.text(st.characters(exclude_categories=()), max_size=5)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.sampled_from([[], {}, [[1]], 10**9, -1])
)


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Every place in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, each in inner for rest in paths(each))]


@given(st.data())
def test_a_record_with_anything_anywhere_is_shown_or_called_broken(data: st.DataObject) -> None:
    judge = turn(0, round=2, comparison="Agent 1 > Agent 2")
    jury = [
        {"text": "<evaluation>x</evaluation><comparison>N/A</comparison>", "fields": {"comparison": "N/A"}, "votes": []}
    ]
    votes = [{"turn": 3, "left_turn": 1, "right_turn": 2, "verdict": ">"}]
    whole: Any = json.loads(
        json.dumps(record(turn(0), turn(1), failed(2), judge, votes=votes, jury=jury, jury_counts=False))
    )
    *way, last = data.draw(st.sampled_from(paths(whole)[1:]))
    place = whole
    for key in way:
        place = place[key]
    place[last] = data.draw(JUNK)
    with TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", {}, tokens=False)
        (run / "debates" / "000001.jsonl").write_text(json.dumps(whole) + "\n")
        found = shown(run, 1, 0)
        assert found is not None
        json.dumps(found)
        index = Index(run, Path(folder) / "cache")
        index.fill()
        assert index.trouble is None and len(index.page(where({}, lambda _: []), None, 10)) == 1


def test_a_huge_turn_is_cut_and_says_how_long_it_was(tmp_path: Path) -> None:
    found = seen(tmp_path, record(failed(0, said="x" * 2_000_005), turn(1), turn(2)), tokens=False)
    assert len(found["turns"][0]["text"]) == 2_000_000 and found["turns"][0]["length"] == 2_000_005


def test_where_sections_are_asked_for_every_tag_is_something_that_nobody_sampled(tmp_path: Path) -> None:
    """The end token stands where its section ends; the tags and N/A's behind it are no part of it."""
    said = text("N/A", "7")
    debate = record(turn(0, "7", text=said), turn(1), turn(2), protocol={**V2.as_dict(), "sections": "asked"})
    run = write_run(tmp_path / "run", {1: [debate]})
    begin, end = said.index("7"), said.index("</solution>")
    with np.load(run / "debates" / "000001.npz") as found:
        arrays = dict(found)
    first = slice(0, int(arrays["offsets"][1]))
    arrays["starts"][first] = [begin, *[end] * (first.stop - 1)]
    np.savez(run / "debates" / "000001.npz", **arrays)
    shown_debate = shown(run, 1, 0)
    assert shown_debate is not None and shown_debate["tokens_error"] is None
    tokens = shown_debate["turns"][0]["tokens"]
    tags = [match.start() for match in re.finditer("</?[a-z]+>", said)]
    put = [start for start, inserted in zip(tokens["starts"], tokens["inserted"], strict=True) if inserted]
    assert put == tags and len(tags) == 6
    after = [inserted for start, inserted in zip(tokens["starts"], tokens["inserted"], strict=True) if start == end]
    assert after == [False] * (first.stop - 1) + [True]  # the end token, and only then the tag
