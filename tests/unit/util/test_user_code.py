"""A user's own Python: found, or refused with the part that is wrong; and what its reward may return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moot.debate.protocols import V2
from moot.debate.rewards import as_reward
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, advantages
from moot.util.user_code import load
from support.making import FAILED, debate, near, v2


def test_a_function_is_found_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(x):\n    return 2 * x\n")
    assert load(f"{tmp_path}/mine.py:twice", "reward")(21) == 42


def test_a_colon_in_a_folders_name_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "mine.py").write_text("def one():\n    return 1\n")
    assert load(f"{folder}/mine.py:one", "reward")() == 1


def test_a_script_that_names_itself_is_told_to_guard_what_starts_it(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    start = f"from moot.util.user_code import load\nload({str(script)!r} + ':f', 'reward')\n"
    script.write_text(f"def f():\n    return 1\n\n{start}")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"starts this again; put what starts it under if __name__"):
            load(f"{script}:f", "reward")
    script.write_text("def f():\n    return 1\n")
    assert load(f"{script}:f", "reward")() == 1


def test_dataclasses_and_imports_of_its_own_work(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass Weights:\n    a: int = 3\n\ndef f():\n    return Weights().a\n"
    )
    assert load(f"{tmp_path}/mine.py:f", "reward")() == 3


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nothing", "path.py:function, got 'nothing'"),
        (":f", "got ':f'"),
        ("{folder}/mine.py:", "path.py:function"),
        ("{folder}/absent.py:f", "there is no file"),
        ("{folder}:f", "there is no file"),
        ("{folder}/mine.py:absent", "has no function 'absent'"),
        ("{folder}/mine.py:number", "has no function 'number'"),
        ("{folder}/mine.txt:f", "is not a Python file"),
        ("{folder}/broken.py:f", "fails when it is loaded: SyntaxError"),
        ("{folder}/angry.py:f", "fails when it is loaded: ZeroDivisionError"),
    ],
)
def test_a_wrong_reference_says_which_part_is_wrong(tmp_path: Path, reference: str, says: str) -> None:
    (tmp_path / "mine.py").write_text("number = 3\n")
    (tmp_path / "mine.txt").write_text("def f(): pass\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "angry.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as error:
        load(reference.format(folder=tmp_path), "reward")
    assert says in str(error.value)
    assert "reward" in str(error.value)


def test_what_fails_in_a_users_function_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    """Wherever it is called from: training, `moot score`, `moot rescore`."""
    (tmp_path / "mine.py").write_text("def inner(x):\n    return 1 / x\n\n\ndef f(x):\n    return inner(x)\n")
    with pytest.raises(ConfigError) as error:
        load(f"{tmp_path}/mine.py:f", "reward")(0)
    assert (
        str(error.value)
        == f"reward '{tmp_path}/mine.py:f' fails: ZeroDivisionError: division by zero ({tmp_path}/mine.py:2)"
    )


# What a reward may return

SCORING = V2.scoring
PLAYED = debate(v2(), [["", FAILED, ""], ["", "", ""]])


def test_a_number_an_agent() -> None:
    """3, 1, 2 with Agent 1's failure: returns 3, 0, 2, mean 5/3."""
    scores = as_reward(lambda played: [3, True, 2.0], "mine.py:f")(PLAYED, SCORING, None)
    assert scores.per == "agent"
    near((scores.rewards, scores.returns), ([3, 1, 2], [3, 0, 2]))
    (found,) = advantages([(PLAYED, scores)], ESTIMATORS["center_group"])
    assert found.per == "agent"
    near(found.values, [4 / 3, -5 / 3, 1 / 3])


def test_a_number_a_step() -> None:
    """Six steps, 1 to 6, mean 3.5; no penalty is added to what a user decides."""
    scores = as_reward(lambda played: ((1, 2), [3, 4], [5, 6]), "mine.py:f")(PLAYED, SCORING, None)
    assert scores.per == "turn"
    (found,) = advantages([(PLAYED, scores)], ESTIMATORS["center_group"])
    assert found.per == "turn"
    near(found.streams["step"], [[-2.5, -1.5], [-0.5, 0.5], [1.5, 2.5]])


def test_it_is_given_the_debate() -> None:
    seen: list[Debate] = []

    def reward(played: Debate) -> list[float]:
        seen.append(played)
        return [float(len(steps)) for steps in played.turns_by_agent()]

    as_reward(reward, "mine.py:f")(PLAYED, SCORING, None)
    assert seen == [PLAYED]


@pytest.mark.parametrize(
    "returned",
    [
        [1.0, 2.0],
        [1.0, 2.0, 3.0, 4.0],
        [[1.0], [2.0, 3.0], [4.0, 5.0]],
        None,
        3.0,
        [1.0, [2.0, 3.0], [4.0, 5.0]],
        ["a", "b", "c"],
        ["ab", "cd", "ef"],
        [None, None, None],
        [float("nan"), 0.0, 0.0],
        [[0.0, 0.0], [float("inf"), 0.0], [0.0, 0.0]],
    ],
    ids=str,
)
def test_anything_else_is_refused_with_the_functions_name(returned: Any) -> None:
    """Too few, too many, a step missing, nothing, one number, both shapes at once, words, and numbers that would spoil every weight."""
    reward: Callable[..., Any] = as_reward(lambda played: returned, "mine.py:f")
    with pytest.raises(ConfigError, match=r"mine\.py:f must return"):
        reward(PLAYED, SCORING, None)
