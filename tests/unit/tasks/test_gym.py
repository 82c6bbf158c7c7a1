"""reasoning-gym's generators as tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from moot.errors import ConfigError
from moot.tasks import load
from moot.tasks.gym import _value, harmless

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: its tasks were not tested")


def test_chain_sums_within_their_digits() -> None:
    task = load("reasoning-gym:chain_sum,min_digits=2,max_digits=2,min_terms=3,max_terms=3", seed=5, held_out=10)
    trained = [task.train(i) for i in range(50)]
    for asked in [*trained, *task.held_out]:
        expression = asked.text.split(":")[1].removesuffix("=").strip()
        terms = expression.split()
        assert len(terms) == 5
        assert all(10 <= int(term) <= 99 for term in terms[::2])
        assert eval(expression) == int(asked.answer or "")
    assert task.name == "reasoning-gym:chain_sum,min_digits=2,max_digits=2,min_terms=3,max_terms=3"
    assert len({q.text for q in trained}) == 50
    assert trained == [task.train(i) for i in range(50)]


def test_what_is_held_out_is_never_trained_on() -> None:
    """One digit and two terms: few questions, so that they would meet if they could."""
    name = "reasoning-gym:chain_sum,min_digits=1,max_digits=1,min_terms=2,max_terms=2"
    first = load(name, seed=0)
    trained = {first.train(i).text for i in range(150)}
    for seed in (0, 1):
        held = {q.text for q in load(name, seed, held_out=10).held_out}
        assert held
        assert not held & trained


def test_seeds_give_different_questions() -> None:
    one, two = (load("reasoning-gym:chain_sum", seed) for seed in (0, 1))
    assert not {one.train(i).text for i in range(20)} & {two.train(i).text for i in range(20)}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("3", int | None, 3),
        ("0.5", float, 0.5),
        ("yes", bool, True),
        ("no", bool, False),
        ("b", str, "b"),
        ("b", Literal["a", "b"], "b"),
    ],
)
def test_settings_are_read_by_their_kind(text: str, kind: object, value: object) -> None:
    assert _value(text, kind, "here") == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [("x", int), ("2.5", int), ("maybe", bool), ("c", Literal["a", "b"]), ("a", list[str]), ("1", tuple[int, int])],
)
def test_settings_of_another_kind_are_refused(text: str, kind: object) -> None:
    with pytest.raises(ConfigError, match=f"here must be .*, got '{text}'"):
        _value(text, kind, "here")


def test_only_the_exact_answer_counts() -> None:
    """Its own score would give part of the credit for text that contains the answer."""
    task = load("reasoning-gym:spell_backward", held_out=4)
    asked = task.train(0)
    right = asked.answer or ""
    assert task.equal(right, right)
    assert not task.equal(f"{right} {right}", right)
    assert not task.equal(right.upper(), right)
    assert task.extract(f"Let me see.\nThe answer is {right}") == right
    assert task.near_miss is not None
    assert not task.equal(task.near_miss(asked, 0), right)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("reasoning-gym", "name one generator, as in reasoning-gym:chain_sum"),
        ("reasoning-gym:chain_sums", "has no generator 'chain_sums'; there are chain_sum"),
        ("reasoning-gym:chain_sum,size=3", "there is no setting 'size'; there are min_terms, max_terms"),
        ("reasoning-gym:chain_sum,min_terms=x", "min_terms must be int, got 'x'"),
        ("reasoning-gym:chain_sum,min_terms=9,max_terms=3", "max_terms must be >= min_terms"),
    ],
)
def test_what_cannot_be_loaded_says_why(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(name)
    assert complaint in str(error.value)


def test_right_is_what_the_generator_itself_scores_with_one() -> None:
    """Countdown has several right answers. They are not the same answer, and part of the credit is none."""
    task = load("reasoning-gym:countdown", held_out=2)
    asked = task.train(0)
    known = asked.answer or ""
    assert task.right(asked, known) and task.right(asked, f"({known})") and not task.equal(f"({known})", known)
    assert not task.right(asked, f"{known} + 1") and not task.right(asked, "7") and not task.right(asked, "?")


def test_a_generator_without_a_single_answer_is_graded_by_its_score() -> None:
    task = load("reasoning-gym:propositional_logic", held_out=2)
    asked = task.held_out[0]
    assert asked.answer is None and task.gradable(asked) and task.solution is None and not task.right(asked, "?")


def test_an_answer_is_not_run(tmp_path: Path) -> None:
    """The package hands answers to `eval` and to sympy, which does the same."""
    mark = tmp_path / "executed"
    codes = ", ".join(f"(chr)({ord(letter)})" for letter in "x")
    for generator in ("countdown", "n_queens", "string_insertion"):
        task = load(f"reasoning-gym:{generator}", held_out=1)
        for answer in (
            f"open('{mark}', 'w')",
            f"[open('{mark}', 'w')]",
            f"__import__('pathlib').Path('{mark}').touch()",
        ):
            assert not task.right(task.train(0), answer)
    assert not mark.exists()
    for answer in (f"(exec)({codes})", "sin('exec' '(1)')", "[x.__class__]", "(lambda: 1)()", "\uff45val(1)"):
        assert not harmless(answer), answer
    for answer in ("6*(98 - 54) - 34", "sin(x)**2 + C", "[['Q', '_'], ['_', 'Q']]", "(P ∧ Q)"):
        assert harmless(answer), answer
