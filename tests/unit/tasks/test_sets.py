"""Published sets and files of questions: what becomes of a row, and which questions are held out."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from moot.errors import ConfigError
from moot.tasks import TASKS, Task, load, load_trained
from moot.tasks import rows as rows_module
from moot.tasks.answers import boxed
from moot.tasks.graders import LETTER, STEPS
from moot.tasks.sets import warn_once
from moot.tasks.spec import Spec
from moot.training.parts.curriculum import Curriculum

HERE = Path(__file__).parent / "fixtures"
GSM8K = f"gsm8k:train={HERE}/gsm8k_train.jsonl,test={HERE}/gsm8k_test.jsonl"
MATH = f"train={HERE}/math_train.jsonl,test={HERE}/math500.jsonl"


def epoch(task: Task, size: int) -> list[str]:
    return sorted(task.train(i).text for i in range(size))


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("text", "name", "words", "settings"),
    [
        ("arithmetic", "arithmetic", (), {}),
        ("math:algebra,geometry,level=1-3", "math", ("algebra", "geometry"), {"level": "1-3"}),
        ("gsm8k:train=/a/b.jsonl,test=/a/c.jsonl", "gsm8k", (), {"train": "/a/b.jsonl", "test": "/a/c.jsonl"}),
        ("reasoning-gym:chain_sum,max_digits=3", "reasoning-gym", ("chain_sum",), {"max_digits": "3"}),
        ("/a/b.jsonl", "/a/b.jsonl", (), {}),
        ("b.jsonl:question=q,grader=/m/g.py:f", "b.jsonl", (), {"question": "q", "grader": "/m/g.py:f"}),
        ("a:b/c.jsonl", "a", ("b/c.jsonl",), {}),
        ("C.d:/x.txt", "C.d:/x.txt", (), {}),
        ("prompts.txt", "prompts.txt", (), {}),
    ],
)
def test_how_a_task_is_spelled(text: str, name: str, words: tuple[str, ...], settings: dict[str, str]) -> None:
    assert Spec.read(text) == Spec(text, name, words, settings)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("arithmetic", "arithmetic"),
        ("arithmetic:operands=3,digits=1", "arithmetic:operands=3,digits=1"),
        (GSM8K, "gsm8k"),
        (f"{GSM8K},held_out=test,grader=exact", "gsm8k:held_out=test"),
        (f"math:algebra,level=1-5,{MATH}", "math:algebra,level=1-5"),
        (f"aime24:test={HERE}/aime24.jsonl", "aime24"),
        (f"{HERE}/aime24.jsonl", "aime24"),
    ],
)
def test_what_results_go_by(name: str, label: str) -> None:
    assert load(name).name == label


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "nope",
            f"task must be one of {', '.join(TASKS)}, a .jsonl, .csv or .txt file, or path.py:function, got 'nope'",
        ),
        ("arithmetic:hard", "'hard' means nothing here"),
        ("arithmetic:size=3", "there is no setting 'size'; there are operands, digits, operators"),
        ("arithmetic:operands=two", "operands must be a whole number, got 'two'"),
        ("arithmetic:operands=2,operands=3", "operands is given twice"),
        ("absent.jsonl", "there is no such file"),
        ("gsm8k:train=absent.jsonl", "'absent.jsonl': there is no such file"),
        (f"math:alchemy,{MATH}", "there is no subject 'alchemy'; there are algebra, counting-and-probability"),
        (f"math:level=6,{MATH}", "level must be 1 to 5, or a range as 1-3, got '6'"),
        (f"math:level=3-1,{MATH}", "level must be 1 to 5"),
        (f"gsm8k:train={HERE}/gsm8k_train.jsonl,held_out=test", "held_out=test needs a test split"),
        (f"gsm8k:test={HERE}/gsm8k_test.jsonl,held_out=validation", "held_out=validation needs a training split"),
        (f"{GSM8K},held_out=all", "held_out must be validation or test, got 'all'"),
        (f"{GSM8K},grader=guess", "grader must be one of exact, number, text, choice, math"),
    ],
)
def test_what_cannot_be_loaded_says_why(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(name)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_gsm8k_from_files() -> None:
    """Of ten training questions two are the validation slice; the test file is not read for training."""
    task = load(GSM8K)
    assert len(task.held_out) == 2
    held = {question.text for question in task.held_out}
    first, second = epoch(task, 8), sorted(task.train(8 + i).text for i in range(8))
    assert first == second
    assert len(set(first)) == 8
    assert not held & set(first)
    assert [task.train(i).text for i in range(8)] != [task.train(8 + i).text for i in range(8)]
    by_text = {q.text: q for q in [*task.held_out, *(task.train(i) for i in range(8))]}
    house = next(q for text, q in by_text.items() if "house" in text)
    assert house.answer == "147,500"
    assert task.equal("147500", house.answer)
    assert not task.equal("147501", house.answer)
    assert house.instruction == STEPS
    assert task.solution is not None and task.near_miss is not None
    solution = task.solution(house)
    assert solution == "It costs 150000-2500=$147,500.\nThe answer is \\boxed{147,500}."
    assert "<<" not in "".join(task.solution(q) for q in by_text.values())
    assert all(boxed(task.solution(q)) == q.answer for q in by_text.values())
    assert not any(task.equal(task.near_miss(q, i), q.answer or "") for q in by_text.values() for i in range(5))


def test_the_test_split_is_for_the_last_measurement() -> None:
    task = load(f"{GSM8K},held_out=test")
    assert sorted(q.answer or "" for q in task.held_out) == ["2,200", "36"]
    assert len(epoch(task, 10)) == 10
    assert len(load(f"{GSM8K},held_out=test", held_out=1).held_out) == 1


def test_what_is_held_out_does_not_depend_on_the_seed_or_the_number(tmp_path: Path) -> None:
    """Otherwise one run's test question would be another's training question."""
    path = write(tmp_path / "many.jsonl", [{"question": f"What is {i} + 1?", "answer": i + 1} for i in range(200)])
    held = {q.text for q in load(str(path), seed=0, held_out=1000).held_out}
    assert len(held) == 40
    for seed in range(5):
        task = load(str(path), seed=seed, held_out=7)
        assert len(task.held_out) == 7
        assert {q.text for q in task.held_out} <= held
        assert not {task.train(i).text for i in range(160)} & held
    assert [q.id for q in load(str(path), 1).held_out] == [q.id for q in load(str(path), 1).held_out]
    assert [q.id for q in load(str(path), 1).held_out] != [q.id for q in load(str(path), 2).held_out]


def test_copies_of_a_question_stay_on_one_side(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": f"What is {i % 20} + 1?" + " " * (i // 20), "answer": i % 20 + 1} for i in range(100)
    ]
    task = load(str(write(tmp_path / "twice.jsonl", rows)), held_out=1000)
    held = {" ".join(q.text.split()) for q in task.held_out}
    assert held
    assert not held & {" ".join(task.train(i).text.split()) for i in range(100 - len(task.held_out))}


def test_math_says_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()  # another test may have read the file
    with caplog.at_level(logging.WARNING, "moot"):
        task = load(f"math:{MATH}")
    assert task.notes == ("1 of the 12 train questions of math have no answer and are left out",)
    assert [record.message for record in caplog.records if record.name == "moot"] == list(task.notes)
    assert len({task.train(i).text for i in range(9)}) == 9
    assert task.splits is not None
    assert {name: len(questions) for name, questions in task.splits().items()} == {"train": 11, "test": 3}


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ("algebra", 2),
        ("counting-and-probability", 2),
        ("Counting_and_Probability", 2),
        ("algebra,geometry", 4),
        ("level=1", 3),
        ("level=1-2", 6),
        ("algebra,level=2", 1),
    ],
)
def test_math_by_subject_and_level(chosen: str, count: int) -> None:
    """Rows 0 to 11: row i is of subject i mod 7 and level i mod 5 + 1; row 8, of no level, has no answer."""
    task = load(f"math:{chosen},train={HERE}/math_train.jsonl")
    assert task.splits is not None
    assert len(task.splits()["train"]) == count - (chosen in ("algebra", "algebra,geometry"))


def test_math_without_answers_takes_them_from_the_boxes() -> None:
    task = load(f"math:prealgebra,train={HERE}/math_hub.jsonl")
    assert task.train(0).answer == "2"
    assert task.solution is not None
    assert task.solution(task.train(0)) == "It is $\\boxed{2}$."


def test_aime_is_a_test_set() -> None:
    task = load(f"aime24:test={HERE}/aime24.jsonl")
    assert sorted(q.answer or "" for q in task.held_out) == ["026", "999"]
    assert task.equal("26", "026")
    with pytest.raises(ConfigError, match="aime24 has only a test split"):
        task.train(0)


def test_longwriter_is_open_ended() -> None:
    task = load(f"longwriter:train={HERE}/longwriter.jsonl")
    assert task.open_ended
    assert len(task.held_out) == 1
    assert task.train(0).answer is None
    assert task.train(0).instruction == ""
    assert task.solution is None


def test_longwriter_conversations(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": f"Write about {i}."} for i in range(1)] + [
        {"role": "assistant", "content": "…"}
    ]
    task = load(f"longwriter:train={write(tmp_path / 'talk.jsonl', [{'messages': talk}])}")
    assert task.train(0).text == "Write about 0."


def test_a_file_with_fields_of_its_own(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"q": f"{i} or {i + 1}?", "target": "AB"[i % 2], "why": f"Because \\boxed{{{'AB'[i % 2]}}}."} for i in range(10)
    ]
    path = write(tmp_path / "mine.jsonl", rows)
    task = load(f"{path}:question=q,answer=target,solution=why,grader=choice")
    asked = task.train(0)
    assert task.name == "mine"
    assert asked.instruction == LETTER
    assert task.equal(f"({asked.answer})", asked.answer or "")
    assert task.solution is not None
    assert task.solution(asked).startswith("Because")
    with pytest.raises(
        ConfigError, match="line 1: needs the field question or problem or prompt; it has q, target, why"
    ):
        load(str(path))
    with pytest.raises(ConfigError, match="line 1: needs the field x"):
        load(f"{path}:question=q,answer=x")


def test_a_file_of_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("".join(f"Write about {i}.\n\n" for i in range(10)))
    task = load(str(tmp_path / "prompts.txt"))
    assert (task.open_ended, len(task.held_out), task.train(0).answer) == (True, 2, None)
    task = load(str(write(tmp_path / "prompts.jsonl", [{"prompt": f"Write about {i}."} for i in range(10)])))
    assert (task.open_ended, len(task.held_out), task.train(0).answer) == (True, 2, None)


def test_one_answer_is_enough_to_expect_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "holes.jsonl", [{"question": "a?", "answer": "1"}, {"question": "b?", "anwser": "2"}])
    with pytest.raises(ConfigError, match="line 2: needs the field answer; it has question, anwser"):
        load(str(path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no questions"),
        (b"\n\n", "holds no questions"),
        (b"{", "line 1: not JSON"),
        (b"[1]", "line 1: needs an object"),
        (b'{"question": ["a"], "answer": "1"}', "line 1: question must be text or a number, got list"),
        (b'{"question": "a", "answer": true}', "line 1: answer must be text or a number, got bool"),
        (b'{"question": "", "answer": "1"}', "row 1 has an empty question"),
        (b'{"question": "a", "answer": ""}', "the train split holds no questions"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(str(tmp_path / "bad.jsonl"))
    assert complaint in str(error.value)


def test_a_json_list_is_a_file_of_rows_too(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"question": f"{i}?", "answer": i} for i in range(5)]))
    assert len(load(str(tmp_path / "list.json")).held_out) == 1


def test_a_users_own_task(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from moot.tasks import Task\nfrom moot.debate.types import Question\n"
        "def task(seed, held_out):\n"
        "    return Task('mine', lambda i: Question(f'{i} + {seed}?', str(i + seed)), [Question('1 + 1?', '2')] * held_out)\n"
        "def nothing(seed, held_out):\n    return None\n"
    )
    task = load(f"{tmp_path}/mine.py:task", seed=3, held_out=2)
    assert (task.name, task.train(4).answer, len(task.held_out)) == ("mine", "7", 2)
    with pytest.raises(ConfigError, match=r"must return a moot\.tasks\.Task, got NoneType"):
        load(f"{tmp_path}/mine.py:nothing")


class FakeHub:
    """Stands in for the package datasets: the rows of the fixtures, by hub id and split."""

    def __init__(self, rows: dict[tuple[str, str], str]) -> None:
        self._rows = rows

    def load_dataset(self, hub: str, config: str | None, split: str) -> list[dict[str, object]]:
        if (hub, split) not in self._rows:
            raise ConnectionError("no route to\nhost")
        return [json.loads(line) for line in (HERE / self._rows[hub, split]).read_text().splitlines()]


def test_sets_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    published = {("openai/gsm8k", "train"): "gsm8k_train.jsonl", ("HuggingFaceH4/aime_2024", "train"): "aime24.jsonl"}
    monkeypatch.setitem(sys.modules, "datasets", FakeHub(published))
    assert len(load("gsm8k").held_out) == 2
    assert len(load("aime24").held_out) == 2
    with pytest.raises(ConfigError) as error:
        load("gsm8k:held_out=test")
    assert str(error.value) == (
        "task gsm8k: openai/gsm8k (test) cannot be fetched (ConnectionError: no route to host); "
        "give files instead: gsm8k:train=FILE.jsonl,test=FILE.jsonl"
    )


def test_without_the_package_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("gsm8k", "math", "aime24", "longwriter"):
        with pytest.raises(ConfigError, match=r"pip install 'moot\[data\]', or give files instead"):
            load(name)


def test_a_row_says_where_it_stands() -> None:
    assert rows_module.read(HERE / "aime24.jsonl")[0][0].endswith("aime24.jsonl, line 1")


# A curriculum.

AIME = f"aime24:test={HERE}/aime24.jsonl"


def test_a_curriculum_that_reaches_a_test_set_is_refused_at_once() -> None:
    """Not hours later, when the run gets there."""
    with pytest.raises(ConfigError, match=r"task aime24 has only a test split.*aime24:train=FILE"):
        load_trained([GSM8K, f"math:{MATH}", AIME], load(AIME))


def test_a_curriculum_reaches_aime_with_the_problems_of_other_years(tmp_path: Path) -> None:
    """Two of the three problems are new; the third is held out by what is evaluated on, and not trained on."""
    measured = load(AIME)
    rows = [{"problem": f"Problem {i}?", "answer": str(i)} for i in range(2)] + [
        {"problem": measured.held_out[0].text, "answer": "7"}
    ]
    past = tmp_path / "past.jsonl"
    past.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages = load_trained([GSM8K, f"aime24:train={past},test={HERE}/aime24.jsonl"], measured)
    assert [stage.name for stage in stages] == ["gsm8k", "aime24"]
    assert {stages[1].train(i).text for i in range(20)} == {"Problem 0?", "Problem 1?"}
    assert stages[1].notes == ("1 questions of aime24 are held out elsewhere and not trained on",)


def test_a_curriculum_reaches_aime_with_the_years_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    published = {
        ("HuggingFaceH4/aime_2024", "train"): "aime24.jsonl",
        ("di-zhang-fdu/AIME_1983_2024", "train"): "aime_past.jsonl",
    }
    monkeypatch.setitem(sys.modules, "datasets", FakeHub(published))
    stages = load_trained([GSM8K, "aime24:past"], load("aime24"))
    assert [stage.name for stage in stages] == ["gsm8k", "aime24:past"]
    assert {stages[1].train(i).answer for i in range(20)} == {"19", "23"}  # of 1983 and 2023; that of 2024 is tested on
    with pytest.raises(ConfigError, match=r"'future' means nothing here; there is past"):
        load("aime24:future")


def test_two_slices_of_one_set_share_no_question_that_is_trained_on_and_measured(tmp_path: Path) -> None:
    """Of 100 easy and 400 hard questions, the easy ones alone hold out 20 and all together 100: those of the 20 that are not among
    the 100 would be trained on."""
    rows = [{"problem": f"Problem {i}?", "answer": str(i), "level": f"Level {1 if i < 100 else 5}"} for i in range(500)]
    file = tmp_path / "math.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    everything, easy = f"math:train={file}", f"math:train={file},level=1"
    for measured, stage in ((load(everything, held_out=500), easy), (load(easy, held_out=500), everything)):
        (trained,) = load_trained([stage], measured, held_out=500)
        assert not {q.text for q in measured.held_out} & {trained.train(i).text for i in range(1000)}


def test_a_curriculum_needs_answers_to_know_when_to_continue() -> None:
    prompts = f"longwriter:train={HERE}/longwriter.jsonl"
    open_ended, known = load_trained([prompts, GSM8K], load(GSM8K))
    by_accuracy, by_steps = (Curriculum(Curriculum.Settings((prompts, GSM8K), at)) for at in (0.7, 50))
    with pytest.raises(
        ConfigError,
        match="task longwriter has no right answers, so nothing decides when to continue to gsm8k; put it last",
    ):
        by_accuracy.check_tasks([open_ended, known])
    by_accuracy.check_tasks([known, open_ended])
    by_steps.check_tasks([open_ended, known])


def test_without_a_curriculum_the_task_itself_must_have_questions() -> None:
    task = load(GSM8K)
    assert load_trained([], task) == [task]
    with pytest.raises(ConfigError, match=r"^task aime24 has only a test split"):
        load_trained([], load(AIME))


def test_a_file_whose_answers_have_another_name_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "planets.jsonl", [{"prompt": f"Planet {i}?", "target": f"P{i}"} for i in range(5)])
    (note,) = load(str(file), 0).notes
    assert note.endswith(f"if target is the answer, name it as in {file}:answer=target") and note in caplog.text
    assert load(f"{file}:answer=target", 0).notes == ()
    assert load(str(write(tmp_path / "prompts.jsonl", [{"prompt": "Write a poem."}] * 2)), 0).notes == ()
