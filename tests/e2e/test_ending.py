"""How a command ends: a reader that goes away, a TERM, an option that is nearly right; and what a file gets of the progress."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.making import command, moot, surroundings


def test_a_reader_that_goes_away_ends_the_command_in_peace(tmp_path: Path) -> None:
    """`moot demo | head -1`: the pipe is closed after the first line, long before the last."""
    started = subprocess.Popen(
        command("demo", "--debates", "3"),
        cwd=tmp_path,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdout is not None and started.stderr is not None
    started.stdout.close()
    assert (started.wait(timeout=60), started.stderr.read()) == (0, b"")
    started.stderr.close()


def test_a_file_gets_no_bars_and_no_folded_lines(tmp_path: Path) -> None:
    done = moot("demo", "--debates", "3", cwd=tmp_path)
    assert done.returncode == 0 and "━" not in done.stdout
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("3 debates, ")]
    assert said.endswith("of them trained.") and len(said) > 80


def test_the_demo_begins_with_the_question_and_goes_round_by_round(tmp_path: Path) -> None:
    lines = [line for line in moot("demo", "--debates", "3", cwd=tmp_path).stdout.splitlines() if line]
    assert not any("could not be read" in line for line in lines)
    assert lines[0].startswith("Question: What is ")
    assert [line for line in lines if line.startswith("Round ")] == ["Round 1", "Round 2", "Round 3"]
    assert lines.index("Round 3") < next(i for i, line in enumerate(lines) if "votes won" in line)


def test_ctrl_c_is_heard_at_once_where_the_work_takes_long_to_end() -> None:
    """The work ends only when the line is out: it must come before the end."""
    program = (
        "import asyncio, os, signal, sys\nfrom moot.cli import ending\n\n"
        "said = []\ntell = ending.complain\nending.complain = lambda text: (tell(text), said.append(text))\n\n"
        "async def work():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    try:\n        await asyncio.sleep(60)\n"
        "    finally:\n"
        "        while not said:\n            await asyncio.sleep(0.01)\n\n"
        "try:\n    ending.interruptible(work())\nexcept KeyboardInterrupt:\n    print('ended', len(said))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("ended 1\n", "moot: stopping after this pass\n")


BUSY = """
import asyncio, os, signal, threading, time
from moot.cli import ending

ending.UNHEARD_S = {unheard_s}

def send(name):
    os.kill(os.getpid(), signal.Signals['SIG' + name])

async def one():
    try:
        send('{first}')
        if '{second}':
            threading.Timer({after_s}, send, ['{second}']).start()
        begun = time.monotonic()
        while time.monotonic() < begun + {busy_s}:
            pass
        await asyncio.sleep(60)
    finally:
        print('closed after', 'a while' if time.monotonic() < begun + {busy_s} else 'the work')

async def work():
    async with asyncio.TaskGroup() as group:
        group.create_task(one())
        group.create_task(asyncio.sleep(60))

with ending.terminated_as_interrupted():
    try:
        ending.interruptible(work())
    except KeyboardInterrupt:
        print('ended')
"""


@pytest.mark.parametrize(
    ("first", "second", "unheard_s"), [("TERM", "", 0.5), ("INT", "", 0.5), ("TERM", "INT", 600), ("INT", "TERM", 600)]
)
def test_work_that_never_pauses_is_broken_off(first: str, second: str, unheard_s: float) -> None:
    """By a second signal, or some time after the first; what it holds is closed all the same."""
    program = BUSY.format(first=first, second=second, after_s=0.5, unheard_s=unheard_s, busy_s=600)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("closed after a while\nended\n", "")


def test_two_signals_at_once_are_one_and_tear_nothing() -> None:
    """A terminal sends Ctrl-C to a command, and so may the program that started it."""
    program = BUSY.format(first="INT", second="INT", after_s=0, unheard_s=600, busy_s=1)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("closed after the work\nended\n", "")


def test_a_second_ctrl_c_does_not_wait_for_what_is_being_closed() -> None:
    program = (
        "import asyncio, os, signal\nfrom moot.cli import ending\n\n"
        "async def work():\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT)\n        await asyncio.sleep(60)\n"
        "    finally:\n        os.kill(os.getpid(), signal.SIGINT)\n        await asyncio.sleep(60)\n\n"
        "try:\n    ending.interruptible(work())\nexcept KeyboardInterrupt:\n    print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_term_ends_a_command_without_a_loop_as_ctrl_c_does(tmp_path: Path) -> None:
    """`moot score -` waits for its input; TERM finds it there."""
    started = subprocess.Popen(
        command("score", "-"),
        cwd=tmp_path,
        env=surroundings(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while "read" not in Path(f"/proc/{started.pid}/wchan").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    assert started.communicate(timeout=60) == (b"", b"moot: interrupted\n")
    assert started.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["trian"], "there is no command 'trian'; did you mean train?"),
        (["eval", "--question", "4"], "did you mean --questions?"),
        (["train", "--learning-rate", "-1"], "moot: learning_rate must be 0 or more, got -1.0 (moot train --help)"),
        (["demo", "--style", "slopy"], "did you mean sloppy?"),
        (["train", "--reward", "truht"], "did you mean truth?"),
        (["train", "--learning-rat", "1"], "did you mean --learning-rate?"),
    ],
)
def test_an_option_that_is_nearly_right_gets_the_right_one(tmp_path: Path, arguments: list[str], meant: str) -> None:
    done = moot(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and meant in done.stderr and done.stderr.count("\n") == 1
