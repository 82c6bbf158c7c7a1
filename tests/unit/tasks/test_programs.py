"""Programs as answers: found in a solution, told right by their tests and equal by what they do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import load, load_trained, programs
from moot.tasks.answers import answer_in, grade
from moot.tasks.check import check, gather
from moot.tasks.programs import EqualPrograms, Problem, last_program
from moot.tasks.sandbox import Limits, require
from support.making import debate, v2

try:
    require()
except ConfigError as error:
    pytest.skip(f"programs were NOT run: {error}", allow_module_level=True)

DOUBLE = Problem(
    'import math\n\ndef double(x):\n    """Twice x.\n\n    >>> double(2)\n    4\n    >>> double(0)\n    0\n    """\n',
    "double",
    "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1.5) == -3.0\n",
    "def double(x):\n    return 2 * x",
)
CLIP = Problem(
    "def clip(x, top):\n    ...\n",
    "clip",
    "assert clip(3, 2) == 2\nassert clip(1, 2) == 1\nassert clip([1], 2) is None",
)
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(programs, "LIMITS", Limits(seconds=1, wall_seconds=12.0))  # one of them never ends
    EQUAL = EqualPrograms([DOUBLE, CLIP])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Here it is.\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1"),
        (
            "```python\ndef f():\n    return 1\n```\nor better\n```py\ndef f():\n    return 2\n```",
            "def f():\n    return 2",
        ),
        # An example of its use is not the program.
        ("```python\ndef f():\n    return 1\n```\nUse it:\n```\nprint(f())\n```", "def f():\n    return 1"),
        # Cut off before the fence was closed.
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("I would write\nimport math\ndef f():\n    return 1\n", "import math\ndef f():\n    return 1"),
        ("no program at all", None),
        ("", None),
    ],
)
def test_the_program_in_a_solution(text: str, expected: str | None) -> None:
    assert last_program(text) == expected
    assert answer_in(text, last_program) == expected


def test_the_inputs_are_those_of_the_prompt_or_else_those_of_the_tests() -> None:
    assert DOUBLE.calls == ("double(2)", "double(0)")
    assert CLIP.calls == ("clip(3, 2)", "clip(1, 2)", "clip([1], 2)")


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        ("def double(x):\n    return x + x", True),
        ("def double(x):\n    return x * 2 if x > 0 else 0", False),
        ("double = lambda x: 2 * x", True),
        # The prompt's imports are there, and its function may be continued.
        ("def double(x):\n    return math.fsum([x, x])", True),
        ("    return 2 * x", True),
        ("def other(x):\n    return 2 * x", False),
        ("def double(x", False),
        ("while True: pass", False),
        ("x" * 60_000, False),
    ],
)
def test_a_program_is_right_if_it_passes_its_tests(program: str, passes: bool) -> None:
    assert EQUAL.check(Question("Double.", DOUBLE.tests), program) is passes


def test_programs_are_equal_if_they_do_the_same_on_the_inputs_shown() -> None:
    """The third differs from the others only at -1.5, which the prompt does not show."""
    one, other, third = (
        "def double(x):\n    return x + x",
        "def double(y): return 2 * y",
        "def double(x):\n    return x * 2 if x > 0 else 0",
    )
    assert EQUAL(one, other) and EQUAL(one, third)
    assert not EQUAL(one, "def double(x):\n    return 4")


def test_programs_that_only_fail_are_equal_to_nothing_else() -> None:
    assert not EQUAL("def double(x):\n    raise ValueError", "def double(x):\n    raise  ValueError")
    assert not EQUAL("def double(x", "def double(x,")
    assert EQUAL("def double(x", "def double(x")


def test_a_debate_over_programs() -> None:
    """Right and wrong go by the tests, equal by the inputs shown: turns 0, 1 and 2 are one answer, of which two are right."""
    programs = [
        "def double(x):\n    return x + x",
        "def double(y): return 2 * y",
        "def double(x): return x * 2 if x > 0 else 0",
        None,
    ]
    grades = grade(debate(v2(), [[""] * 4], answers=[programs], truth=DOUBLE.tests), EQUAL, last_program, EQUAL.check)
    assert grades.same == (0, 0, 0, None)
    assert grades.correct == (True, True, False, False)


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows(count: int) -> list[dict[str, object]]:
    return [
        {
            "prompt": f"def add{i}(x):\n    # adds {i}\n",
            "entry_point": f"add{i}",
            "tests": [f"assert add{i}(1) == {i + 1}", f"assert add{i}(2) == {i + 2}"],
            "solution": f"def add{i}(x):\n    return x + {i}",
        }
        for i in range(count)
    ]


def test_a_file_of_problems_is_a_task(tmp_path: Path) -> None:
    """Ten problems, of which a fifth is held out. Their solutions pass and broken ones do not."""
    task = load(f"code:{write(tmp_path / 'adding.jsonl', rows(10))}")
    assert (task.name, len(task.held_out), len(task.training)) == ("adding", 2, 8)
    assert "```python" in task.held_out[0].instruction
    assert task.near_miss is None
    report = check(task, gather(task, 0))
    assert report.good, report.as_json()
    assert (report.splits["train"].graded, report.splits["train"].failing) == (10, ())


def test_data_that_is_wrong_is_found_out(tmp_path: Path) -> None:
    """The first solution is wrong; the tests of the second accept everything."""
    wrong = rows(2)
    wrong[0]["solution"] = "def add0(x):\n    return x + 5"
    wrong[1]["tests"] = "add1(1)"
    task = load(f"code:{write(tmp_path / 'wrong.jsonl', wrong)}")
    train = check(task, gather(task, 0)).splits["train"]
    assert [t.id for t in train.failing] == ["train-1"]
    assert [t.id for t in train.passing] == ["train-2"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entry_point": "not a name"}, "entry_point must be the name of a function, got 'not a name'"),
        ({"tests": ""}, "tests is empty"),
        ({"prompt": None}, "prompt is empty"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(f"code:{write(tmp_path / 'a.jsonl', [{**rows(1)[0], **change}])}")


def test_humaneval_is_for_testing_only(tmp_path: Path) -> None:
    row = {
        "task_id": "HumanEval/0",
        "prompt": DOUBLE.prompt,
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
    }
    task = load(f"humaneval:test={write(tmp_path / 'h.jsonl', [{**row, 'test': DOUBLE.tests}])}")
    assert check(task, gather(task, 0)).good
    with pytest.raises(ConfigError, match="humaneval has only a test split"):
        load_trained([], task)


def test_code_without_a_file_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"name one file, as in code:problems.jsonl"):
        load("code")
