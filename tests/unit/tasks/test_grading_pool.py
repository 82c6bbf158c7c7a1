"""Comparisons that happen elsewhere: limits hold, nothing is left behind, and every caller gets its own verdict."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moot.errors import ConfigError
from moot.tasks import math_pool as pool_module
from moot.tasks.answers import grade, grade_all, grade_all_async
from moot.tasks.math_equality import EqualMathematics
from moot.tasks.math_pool import Pool
from support.making import debate, v2

pytest.importorskip("math_verify", reason="math-verify is not installed: the grading pool was not tested")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(workers=2, seconds=1)
    yield made
    made.close()


def test_two_ways_to_write_a_half(pool: Pool) -> None:
    assert pool.ask("\\frac{1}{2}", "0.5") == "equal"
    assert pool.ask("\\frac{1}{2}", "0.6") == "different"
    assert pool.ask("hello \\", "0.6") in ("different", "unreadable")


def test_an_answer_that_never_ends_costs_its_time_and_no_more(pool: Pool) -> None:
    before = pool.ask("1", "2")
    assert pool.ask("9^{9^{9^{9}}}", "\\frac{1}{2}") in ("time", "memory", "different", "unreadable")
    assert pool.ask("(10^{9})!", "\\frac{1}{2}") in ("time", "memory", "different", "unreadable")
    assert (before, pool.ask("\\frac{2}{4}", "0.5")) == ("different", "equal")


def test_a_worker_that_is_killed_is_replaced(pool: Pool) -> None:
    pool.ask("1", "2")
    killed = len(pool._all)
    for worker in list(pool._all):
        os.killpg(worker._process.pid, 9)
    outcomes = [pool.ask("\\frac{2}{4}", "0.5") for _ in range(4)]
    assert outcomes == ["lost"] * killed + ["equal"] * (4 - killed)


def test_a_reply_that_nobody_waited_for_is_not_the_next_ones() -> None:
    """Ctrl-C while a half is compared with a half; then a third with a half."""
    lonely = Pool(workers=1)
    try:
        assert lonely.ask("\\frac{1}{2}", "0.6") == "different"
        (worker,) = lonely._all

        def interrupted(patience: float) -> tuple[bytes, float]:
            raise KeyboardInterrupt

        worker._reply = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            lonely.ask("\\frac{1}{2}", "0.5")
        del worker._reply
        assert lonely.ask("\\frac{1}{3}", "0.5") == "different"
        assert worker not in lonely._all
    finally:
        lonely.close()


def test_every_thread_gets_its_own_verdict(pool: Pool) -> None:
    """Thread i asks whether i/1000 is k/1000: only where i = k."""
    pairs = [(f"\\frac{{{i}}}{{1000}}", f"{k / 1000}") for i in range(100, 120) for k in range(100, 110)]
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda pair: pool.ask(*pair), pairs))
    assert [o == "equal" for o in outcomes] == [i == k for i in range(100, 120) for k in range(100, 110)]
    assert len(pool._all) <= 2


def test_time_and_memory_are_told_apart() -> None:
    quick = Pool(workers=1, seconds=0.3)
    try:
        assert quick.ask("\\sum_{k=1}^{300000} \\frac{1}{k^k}", "\\frac{1}{2}") == "time"
        assert quick.ask("\\frac{2}{4}", "0.5") == "equal"
    finally:
        quick.close()


def test_memory_is_limited() -> None:
    """With just enough for a half, a set of 200 numbers is too much; afterwards a half is still a half."""
    long = f"\\{{{','.join(map(str, range(200)))}\\}}"
    outcomes = []
    for megabytes in range(40, 200, 4):  # what an interpreter takes of its own depends on its version
        small = Pool(workers=1, seconds=10, megabytes=megabytes)
        try:
            if small.ask("\\frac{2}{4}", "0.5") == "equal":
                outcomes = [small.ask(long, "0.5"), small.ask("\\frac{2}{4}", "0.5")]
                break
        finally:
            small.close()
    assert outcomes == ["memory", "equal"]


def test_a_missing_library_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(pool_module, "_WORKER", pool_module._WORKER.with_name("no_such_worker.py"))
    with pytest.raises(ConfigError, match=r"pip install 'moot\[data\]'"):
        Pool(workers=1).ask("1", "2")


def _alive(group: int) -> list[str]:
    """Processes of a group that have not ended. One that has may stand in the table until somebody asks for it."""
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line for line in listed if line.split()[0] == str(group) and not line.split()[1].startswith("Z")]


def test_nothing_is_left_behind() -> None:
    """A program that ends, even by an exception, takes its workers with it."""
    program = "from moot.tasks.math_pool import Pool; p = Pool(1); p.ask('x', 'y'); print([w._process.pid for w in p._all][0], flush=True); 1 / 0"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "ZeroDivisionError" in done.stderr
    assert _alive(int(done.stdout)) == []


def test_a_program_that_is_killed_leaves_nothing_behind_either() -> None:
    program = (
        "import time; from moot.tasks.math_pool import Pool; p = Pool(1); p.ask('x', 'y'); "
        "print([w._process.pid for w in p._all][0], flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        group = int(running.stdout.readline())
        assert _alive(group)
        running.kill()
    for _ in range(200):
        if not _alive(group):
            break
        time.sleep(0.1)
    assert _alive(group) == []


def test_a_closed_pool_starts_again_when_it_is_asked() -> None:
    restarted = Pool(workers=1)
    assert restarted.ask("\\frac{2}{4}", "0.5") == "equal"
    restarted.close()
    assert restarted.ask("\\frac{2}{4}", "0.5") == "equal"
    restarted.close()
    assert not restarted._all


def test_a_verdict_is_remembered() -> None:
    class Counting(Pool):
        asked = 0

        def compare(self, given: str, right: str, seconds: float) -> pool_module.Comparison:
            self.asked += 1
            return pool_module.Comparison("equal", 0.01)

    counting = Counting(workers=1)
    equal = EqualMathematics(counting)
    assert [equal("\\frac{2}{4}", "0.5") for _ in range(3)] == [True, True, True]
    assert counting.asked == 1
    assert equal("7", "8") is False
    assert equal("7", "7") is True
    assert counting.asked == 1


def test_many_debates_are_graded_as_one_by_one(pool: Pool) -> None:
    equal = EqualMathematics(pool)
    played = [
        debate(v2(), [["", "", ""]], answers=[[f"\\boxed{{\\frac{{{i}}}{{4}}}}", "0.5", None]], truth="\\frac{1}{2}")
        for i in range(8)
    ]
    alone = [grade(each, equal) for each in played]
    assert [each.correct for each in alone] == [(i == 2, True, False) for i in range(8)]
    assert [each.same for each in alone] == [(0, 0 if i == 2 else 1, None) for i in range(8)]
    assert grade_all(played, EqualMathematics(pool)) == alone
    assert asyncio.run(grade_all_async(played, EqualMathematics(pool))) == alone


def test_the_event_loop_goes_on_meanwhile(pool: Pool) -> None:
    """A grader that takes a second leaves the loop free to tick."""

    async def main() -> int:
        ticks = 0
        hard = debate(
            v2(),
            [["", "", ""]],
            answers=[["\\boxed{\\sum_{k=1}^{300000} \\frac{1}{k^k}}", "1", "2"]],
            truth="\\frac{1}{2}",
        )
        work = asyncio.create_task(grade_all_async([hard], EqualMathematics(pool)))
        while not work.done():
            await asyncio.sleep(0.02)
            ticks += 1
        assert (await work)[0].correct == (False, False, False)
        return ticks

    assert asyncio.run(main()) > 10


def _grade_hostile(count: int, seconds: float) -> None:
    script = Path(__file__).with_name("grade_hostile.py")
    done = subprocess.run(
        [sys.executable, str(script), str(count), str(seconds)], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["verdicts"] == count
    assert results["works"] is True
    # Each at most its own limit, as the kernel counts it, whatever else the machine does; starting two workers takes the rest.
    assert results["processor_seconds"] < count * seconds + 60
    assert results["largest_mb"] < 512
    assert "lost" not in results["outcomes"]


@pytest.mark.slow
def test_60_hostile_answers_from_threads_and_async_code() -> None:
    _grade_hostile(60, seconds=0.2)


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_1000_hostile_answers_from_threads_and_async_code() -> None:
    _grade_hostile(1000, seconds=1)
