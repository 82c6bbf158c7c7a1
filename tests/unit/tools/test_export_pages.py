"""Debates as one HTML file: everything is shown, and nothing that a model wrote is more than text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.debate.checks import Check
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.runs.select import pick_debates
from moot.settings.presets import PRESETS
from moot.tools.export import card, figures, pages, sets
from moot.util.safe_text import plain
from support.making import FAILED, debate, spoken, text, v1, v2
from support.recorded import LOST, judged, record
from unit.tools.test_export import ANSWERS, NO_VOTE, ONE_VOTE, saved

# HTML

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<a href='javascript:alert(1)'>go</a>",
    "</div></section></article></main></body></html><iframe src=https://example.com></iframe>",
    "<!-- <style>*{display:none}</style> --> ]]> <svg/onload=alert(1)>",
    "&lt;script&gt; &#x3c;script&#x3e;",
    "\x1b[2J\x07\x00 \u202egnp.exe\u2066 \ud83d lone",
    "</title><meta http-equiv=refresh content=0;url=//example.com>",
]


class Reader(HTMLParser):
    """What a browser would make of the file: its tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read_page(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


ALLOWED = {
    "details", "summary", "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "nav", "ol", "li", "a", "span", "main", "article", "div",
    "section", "header", "strong", "br", "table", "tr", "th", "td",
}  # fmt: skip


def check_harmless(page: str) -> Reader:
    page.encode()  # no half characters
    reader = read_page(page)
    assert set(reader.tags) <= ALLOWED
    assert {name for name, _ in reader.attributes} <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "id",
        "href",
        "aria-label",
        "scope",
    }
    assert all(re.fullmatch("#d[0-9]+", value or "") for name, value in reader.attributes if name == "href")
    assert [value for name, value in reader.attributes if name == "http-equiv"] == ["Content-Security-Policy"]
    policy = next(value for name, value in reader.attributes if name == "content")
    assert policy is not None and policy.startswith("default-src 'none'") and "script" not in policy
    return reader


def hostile_debate(words: str) -> Debate:
    said = [(0, words), (1, text(solution=words, evaluation=words)), (2, text(solution=words))]
    again = [(0, text("Agent 1 > Agent 2", words)), (1, words), (2, text(words, words))]
    asked = re.sub("[\ud800-\udfff]", "", words)  # a question with half a character cannot be recorded
    return replace(spoken([said, again], v2(), 3), question=Question(asked, asked))


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_text_stays_text(tmp_path: Path, words: str) -> None:
    debates = saved(tmp_path / "run", hostile_debate(words), LOST)
    debates[1] = replace(debates[1], error=words)
    page = "".join(pages.page(debates, title=words, about=words))
    reader = check_harmless(page)
    # One debate, one lost one; two rounds of three turns: the words opened nothing of their own.
    assert (reader.tags.count("article"), reader.tags.count("section"), reader.tags.count("a")) == (2, 6, 2)
    shown = "".join(reader.words)
    assert shown.count(plain(words).strip()) >= 8
    assert not re.search("[\x00-\x08\x1b\u202e\u2066\ud800-\udfff]", shown)


@given(st.text(alphabet=st.sampled_from("<>&\"'/=abc -!\n\x00\ud800\u202e"), max_size=60))
def test_no_text_at_all_opens_a_tag(words: str) -> None:
    reader = read_page(f"<p>{pages.text(words)}</p>")
    assert (reader.tags, reader.attributes) == (["p"], [])


def test_a_megabyte_in_one_line_is_kept_whole(tmp_path: Path) -> None:
    debates = saved(tmp_path / "run", spoken([[(0, "<" * 1_000_000), (1, text()), (2, text())]], v2(), 3))
    assert sum(word.count("<") for word in check_harmless("".join(pages.page(debates, "t"))).words) >= 1_000_000


def test_a_page_says_who_won_and_why_a_turn_did_not_count(tmp_path: Path) -> None:
    won, level = saved(
        tmp_path / "run",
        debate(v2(), [["", FAILED, ""], ["", "0 > 2", ""]], ANSWERS, "5"),
        debate(v2(), NO_VOTE, ANSWERS),
    )
    shown = " ".join("".join(read_page("".join(pages.page([won, level], "t"))).words).split())
    assert (
        "Agent 0 won by the highest mean reward (generator_judge: Agent 0 +0.50, Agent 1 -0.50, Agent 2 -0.50)."
        in shown
    )
    assert "could not be read no <solution> in the text." in shown
    assert "generator: reward +1.00, advantage +1.00" in shown
    assert "Nobody won: no vote was cast" in shown
    assert "No votes were cast." in shown


def test_ballots_and_outside_judges_are_shown_by_seats(tmp_path: Path) -> None:
    protocol = v2(closing_ballot=True, shuffle_labels=True)
    labels = judged(protocol).labels(0)
    assert labels[1] != 1  # otherwise there would be nothing to put right
    (each,) = saved(tmp_path / "run", judged(protocol, words="<script>alert(1)</script>"))
    page = "".join(pages.page([each], "t"))
    shown = " ".join("".join(check_harmless(page).words).split())
    assert "Closing ballot" in shown and "Judges without a seat, whose votes count" in shown
    assert shown.count("Agent 1 is right.") == 1 and shown.count("Agent 2 is right.") == 2
    assert "here all are called by their seats" in shown
    # Three answers and no more are right or wrong.
    assert shown.count("right answer") + shown.count("wrong answer") == 3


def test_the_vote_table_of_agents(tmp_path: Path) -> None:
    (each,) = saved(tmp_path / "run", debate(v1(), [["", "", "0 > 1; 0 = 1"]], None))
    page = "".join(pages.page([each], "t"))
    assert "<tr><th scope=row>Agent 0</th><td>–</td><td>1</td><td>0</td></tr>" in page
    assert "1 votes called two answers equally good" in page


def test_debates_are_chosen_by_name_in_the_order_given(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE)] * 3, [debate(v2(), ONE_VOTE)] * 30])
    assert [each.name for each in pick_debates(run, ["2/29", "1/0"], [1, 2], [])] == ["2/29", "1/0"]
    assert [each.name for each in pick_debates(run, [], [1, 2], [])][:2] == ["2/0", "2/1"]
    assert len(pick_debates(run, [], [1, 2], [])) == 20
    assert [each.name for each in pick_debates(run, [], [1, 2], [], most=32)][:3] == ["1/0", "1/1", "2/0"]
    with pytest.raises(ConfigError, match="has no debate 1/3 that can be read"):
        pick_debates(run, ["1/3"], [1, 2], [])
    with pytest.raises(ConfigError, match="must be named STEP/NUMBER, like 12/3, got"):
        pick_debates(run, ["../x"], [1, 2], [])


@pytest.mark.parametrize(
    ("reward", "checks", "told"),
    [
        (
            "approval:checks=1",
            [Check(0.9, "It <adds> up.", turns=(0,)), Check(0.2, "Off by one.", turns=(1,))],
            ["1 check by judges without a seat", "Yes by 90%", "It <adds> up.", "Yes by 20%"],
        ),
        (
            "pairs",
            [Check(0.9, "A.", turns=(0, 1)), Check(0.3, "B.", turns=(1, 0))],
            ["2 checks by judges without a seat", "Preferred to Agent 1 by 90%, shown first",
             "Preferred to Agent 1 by 70%, shown second", "Preferred to Agent 0 by 10%, shown second"],
        ),
    ],
)  # fmt: skip
def test_what_judges_who_check_answers_said_stands_with_each_answer(
    reward: str, checks: list[Check], told: list[str], tmp_path: Path
) -> None:
    played = replace(debate(v2(reward=reward), [["", "", FAILED]], [["7", "8", None]], "7"), checks=tuple(checks))
    shown = "".join(check_harmless("".join(pages.page(saved(tmp_path / "run", played), "t"))).words)
    assert all(words in shown for words in told)
    assert "No votes were cast" not in shown


def test_preferences_by_checks_are_those_that_are_sure(tmp_path: Path) -> None:
    answers, said = [["7", "8", "9", None]], [["", "", "", FAILED]]
    scores = {0: 0.9, 1: 0.2, 2: 0.6}
    approvals = tuple(Check(value, turns=(turn,)) for turn, value in scores.items())
    met = {(0, 1): 0.85, (0, 2): 0.5, (1, 2): 0.4}  # p_AB, and 1 - p_BA
    pairs = tuple(
        Check(value, turns=turns) for (a, b), p in met.items() for turns, value in (((a, b), p), ((b, a), 1 - p))
    )

    def preferred(reward: str, checks: tuple[Check, ...], name: str) -> list[tuple[str, str]]:
        played = replace(debate(v2(reward=reward), said, answers, "7"), checks=checks)
        (each,) = saved(tmp_path / name, played)
        rows = sets.voted_pairs(each)
        return [(row["chosen"][0]["content"][-2], row["rejected"][0]["content"][-2]) for row in rows]

    assert preferred("approval:checks=1", approvals, "all") == [("7", "8"), ("9", "8")]
    assert preferred("approved:checks=1", approvals, "sure") == [("7", "8")], "0.6 is within the margin"
    assert preferred("pairs", pairs, "pairs") == [("7", "8"), ("9", "8")]
    assert preferred("pairs:vote_margin=0.5", pairs, "margin") == [("7", "8")]


def test_the_judges_column_of_a_card_and_its_curve_are_those_of_checks() -> None:
    row = {"step": 1, "phase": "self_play", "trust/judge_accuracy": None, "trust/judge_pair_accuracy": 0.75}
    (panel,) = [panel for panel in figures.CURVES if panel.name == "judge_accuracy"]
    assert panel.value(row) == 0.75
    told = "\n".join(card._during(PRESETS["demo"], [{**row, "phase": "eval", "test/valid_turns": 1.0}]))
    assert "| 1 | – | 100.0% | 75.0% |" in told
