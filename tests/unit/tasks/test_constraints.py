"""Texts under rules: each rule by hand, that rules can be kept together, and what is held out is never trained on."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.cli import main
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import load, load_trained
from moot.tasks.constraint_topics import TOPICS
from moot.tasks.constraints import KINDS, SEEN, SHORTEST, UNSEEN, check, checks, equal, rules_of

TEN = "one two three four five six seven eight nine ten"


def ask(*rules: str) -> Question:
    return Question("\n".join(["Write a short text about bread.", *(f"- {rule}" for rule in rules)]))


BULLETS = "Write exactly {} bullet points, each on a line that begins with a dash and a space."
PARAGRAPHS = "Write exactly 2 paragraphs, with an empty line between them."
# Worked by hand: the rule, a text, whether it keeps it.
GOLDEN = [
    ("Use at least 11 words.", TEN, False),
    ("Use at least 11 words.", f"{TEN} eleven", True),
    ("Use at least 11 words.", f"{TEN} - * ...", False),  # signs are no words
    ("Use at most 10 words.", TEN, True),
    ("Use at most 10 words.", f"{TEN} it's", False),
    ("Write exactly 2 sentences.", f"{TEN}. And so on!", True),
    ("Write exactly 2 sentences.", f"{TEN}. And so on", True),  # the last one without its full stop
    ("Write exactly 2 sentences.", f"{TEN} at 3.50 each...", False),  # one
    ("Write exactly 2 sentences.", f'"{TEN}." He left.', True),
    ("Write exactly 2 sentences.", f"{TEN}. A. B.", False),
    (BULLETS.format(2), f"- {TEN}\n- two", True),
    (BULLETS.format(2), f"Here:\n- {TEN}\n  - two", True),
    (BULLETS.format(2), f"- {TEN}\n* two", False),
    (BULLETS.format(2), f"-{TEN}\n- two", False),
    ("Use the words river and stone.", f"{TEN} River, stone.", True),
    ("Use the words river and stone.", f"{TEN} rivers stone", False),
    ("Do not use the letter k.", TEN, True),
    ("Do not use the letter k.", f"{TEN} Kite", False),
    ("Write everything in lower case.", f"{TEN}, 11!", True),
    ("Write everything in lower case.", f"{TEN} I", False),
    (PARAGRAPHS, f"{TEN}\n\nmore", True),
    (PARAGRAPHS, f"{TEN}\n \n\n\nmore\n\n", True),
    (PARAGRAPHS, f"{TEN}\nmore", False),
    ("Begin every line with the sign >", f"> {TEN}\n\n>more", True),
    ("Begin every line with the sign >", f"> {TEN}\nmore", False),
    ("Begin with the word today.", f"Today, {TEN}", True),
    ("Begin with the word today.", f"Todays {TEN}", False),
    ("End with the words in the end.", f"{TEN} In the end!", True),
    ("End with the words in the end.", f"{TEN} in the end of it", False),
    ("Do not use any comma.", TEN, True),
    ("Do not use any comma.", f"{TEN}, well", False),
    ("Do not use any question mark.", f"{TEN}?", False),
    ("Do not use any exclamation mark.", f"{TEN}!", False),
    ("Do not use the letter k.", "one two three", False),  # too short for a text
    ("Do not use the letter k.", "", False),
]


@pytest.mark.parametrize(("rule", "text", "kept"), GOLDEN)
def test_rules_worked_by_hand(rule: str, text: str, kept: bool) -> None:
    assert checks(ask(rule), text) == {rule: kept}
    assert check(ask(rule), text) is kept


@pytest.mark.parametrize("rules", ["seen", "unseen"])
def test_a_judge_may_be_asked_about_the_beginning_and_each_rule_alone(rules: str) -> None:
    task = load(f"constraints:rules={rules}")
    for number in range(50):
        question = task.train(number)
        head, *listed = task.rules_of(question)
        assert question.text.startswith(f"{head} Keep all of these rules:\n") and head.endswith("of 10 words or more.")
        assert listed == [*checks(question, "")]


def test_every_kind_is_worked_by_hand() -> None:
    assert not SEEN.keys() & UNSEEN.keys()
    worked = {id(rule) for sentence, _, _ in GOLDEN for rule, _ in rules_of(ask(sentence).text).values()}
    assert worked == {id(rule) for kinds in KINDS.values() for rule in kinds.values()}


def test_right_is_what_keeps_all_rules() -> None:
    question = ask("Do not use the letter k.", "Use at least 11 words.")
    assert checks(question, TEN) == {"Do not use the letter k.": True, "Use at least 11 words.": False}
    assert not check(question, TEN) and check(question, f"{TEN} eleven")
    assert equal(TEN, f" {TEN}\n") and not equal(TEN, TEN.upper())


def written(question: Question) -> str:
    """A dull text that keeps all rules of a question: what a rule asks for, and `a a a` for the rest."""
    said = " ".join(rules_of(question.text))

    def gap(pattern: str, otherwise: str = "") -> str:
        match = re.search(pattern, said)
        return match[1] if match else otherwise

    pieces = int(gap(r"exactly (\d+)", "1"))
    count = max(SHORTEST, int(gap(r"at least (\d+)", "0")))
    held = [*gap(r"the words (\w+ and \w+)\.").replace(" and ", " ").split(), gap(r"with the word (\w+)")]
    head, tail = held.pop(), gap(r"End with the words ([a-z ]+)\.")
    filler = count - len([*held, *head.split(), *tail.split()])
    words = [*head.split(), *held, *["a"] * max(filler, pieces)]
    start = "- " if "bullet" in said else gap(r"sign (\S)")
    joint = "\n\n" if "paragraphs" in said else "\n" if "bullet" in said else ". "
    parts = [" ".join(words[: len(words) - pieces + 1]), *words[len(words) - pieces + 1 :]]
    parts[-1] = f"{parts[-1]} {tail}".strip()
    return joint.join(f"{start}{part}" for part in parts)


@pytest.mark.parametrize("rules", KINDS)
def test_rules_can_be_kept_together(rules: str) -> None:
    task = load(f"constraints:rules={rules}", seed=5)
    for question in [*(task.train(i) for i in range(500)), *task.held_out]:
        read = rules_of(question.text)
        assert len(read) in (2, 3) and all(rule in KINDS[rules].values() for rule, _ in read.values())
        assert task.right(question, written(question)), (question.text, written(question))
        assert task.gradable(question) and question.answer is None
        assert not task.right(question, "?")


@pytest.mark.parametrize("rules", KINDS)
def test_held_out_topics_are_not_trained_on(rules: str) -> None:
    def topics(questions: list[Question]) -> set[str]:
        return {re.findall("about (.+), of", question.text)[0] for question in questions}

    task = load(f"constraints:rules={rules}", seed=1)
    trained = [task.train(i) for i in range(300)]
    assert len(set(TOPICS)) == len(TOPICS) == 60
    assert len(topics(trained)) > 40 and not topics(trained) & topics([*task.held_out])
    assert not topics(trained) & topics([*load("constraints", seed=2).held_out])
    assert len({question.text for question in task.held_out}) == len(task.held_out) == 64
    assert trained == [load(f"constraints:rules={rules}", seed=1).train(i) for i in range(300)]


def test_the_kinds_that_are_measured_need_not_be_those_that_are_trained_on() -> None:
    measured = load("constraints:rules=unseen")
    (stage,) = load_trained(["constraints"], measured)

    def kinds(questions: Iterable[Question]) -> set[int]:
        return {id(rule) for question in questions for rule, _ in rules_of(question.text).values()}

    trained = kinds(stage.train(i) for i in range(50))
    assert trained and kinds(measured.held_out) and not trained & kinds(measured.held_out)


@settings(max_examples=30)
@given(st.text(max_size=300))
def test_any_text_is_checked_without_an_error(text: str) -> None:
    for rule, _, _ in GOLDEN:
        check(ask(rule), text)


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="rules must be one of seen, unseen, got 'all'"):
        load("constraints:rules=all")
    with pytest.raises(ConfigError, match=r"'Be nice\.' is no rule of this task"):
        check(ask("Be nice."), TEN)
    with pytest.raises(ConfigError, match="a question must list its rules"):
        check(Question("What is 1 + 1?"), TEN)


def test_the_data_check_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "constraints", "--questions", "50"]) == 0
    assert main(["data", "check", "constraints:rules=unseen", "--questions", "50"]) == 0
    assert capsys.readouterr().out.count("Nothing found; right answers were not tried.") == 2
