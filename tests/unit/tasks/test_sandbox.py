"""Programs in a sandbox: what they may not do, that limits hold, and that nothing of them is left."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile_programs import KINDS, hostile

from moot.errors import ConfigError
from moot.tasks import load, sandbox
from moot.tasks.sandbox import Limits, Ran, Sandbox, _run, available

LIMITS = Limits(seconds=1, wall_seconds=3.0, megabytes=256, processes=6, file_megabytes=2)
GOOD = "def double(x):\n    return 2 * x"
TESTS = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate('a') == 'aa'"


def _works(box: Sandbox) -> bool:
    return _run(box, "", "", "", ["1 + 1"], Limits(wall_seconds=60.0)).values == ("2",)


WORKING = [box for box in available() if _works(box)]
pytestmark = pytest.mark.skipif(
    not WORKING, reason="neither bubblewrap nor user namespaces work here: the sandbox was NOT tested"
)


@pytest.fixture(params=WORKING, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Sandbox:
    return request.param  # type: ignore[no-any-return]


def ran(box: Sandbox, program: str, tests: str = "", calls: tuple[str, ...] = ()) -> Ran:
    return _run(box, program, tests, "double", calls, LIMITS)


def test_a_program_that_passes_its_tests(box: Sandbox) -> None:
    assert ran(box, GOOD, TESTS, ("double(3)", "double(None)")) == Ran("passed", "", ("6", "raises TypeError"))


def test_one_that_does_not(box: Sandbox) -> None:
    assert ran(box, "def double(x):\n    return x + 2", TESTS).outcome == "failed"
    assert ran(box, "def other(x): ...", TESTS) == Ran("failed", "KeyError: 'double'")
    assert ran(box, "def double(x", TESTS).message.startswith("SyntaxError")


def test_tests_that_assert_by_themselves(box: Sandbox) -> None:
    assert ran(box, GOOD, "assert double(2) == 4").passed
    assert ran(box, GOOD, "assert double(2) == 5") == Ran("failed", "AssertionError: ")


def test_a_program_that_ends_early_has_not_passed(box: Sandbox) -> None:
    for end in ("import os; os._exit(0)", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 9)"):
        assert not ran(box, f"{GOOD}\n{end}", TESTS).passed


def test_a_program_cannot_put_its_own_checks_in_place_of_the_tests(box: Sandbox) -> None:
    wrong = "def double(x):\n    return 0\n"
    for trick in (
        "import builtins\nbuiltins.exec = lambda *a: None",
        "import json, builtins\njson.dumps = lambda *a, **k: '[\"\", []]'\nbuiltins.abs = lambda x: 0",
        "def check(candidate): ...",
    ):
        assert (
            ran(box, wrong + trick, "def check(candidate):\n    assert abs(candidate(2) - 4) < 1e-6").outcome
            == "failed"
        )


def test_what_a_program_sees(box: Sandbox) -> None:
    """The standard library, an empty folder, no variable that we set, and no process but its own."""
    calls = (
        "sorted(os.listdir('/scratch'))",
        "os.environ.get('PATH')",
        "os.path.exists('/etc')",
        "os.path.exists('/proc')",
    )
    assert ran(box, "import os, statistics", calls=calls) == Ran("passed", "", ("[]", "None", "False", "False"))


def test_time_and_memory_are_told_apart(box: Sandbox) -> None:
    assert ran(box, "while True: pass").outcome == "time"
    assert ran(box, "import time\ntime.sleep(60)").outcome == "time"
    assert ran(box, "x = [0] * 10 ** 9").outcome == "memory"


def test_a_program_that_floods_or_closes_what_it_answers_on_is_ended(box: Sandbox) -> None:
    flood = "import os\nwhile True:\n    for d in range(3, 64):\n        try: os.write(d, bytes(60000))\n        except OSError: pass"
    close = "import os\nos.closerange(3, 64)\nwhile True: pass"
    assert ran(box, flood) == Ran("crashed", "it answered with something else than a verdict")
    assert ran(box, close).outcome == "time"


def test_without_a_sandbox_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: [Sandbox("bubblewrap", lambda limits: ["/bin/false"])])
    sandbox._sandbox.cache_clear()
    file = tmp_path / "code.jsonl"
    file.write_text('{"prompt": "def f(): ...", "entry_point": "f", "tests": "assert f() == 1"}\n')
    try:
        with pytest.raises(
            ConfigError, match=r"install bubblewrap .*user namespaces.*\(bubblewrap: it ended with status 1"
        ):
            sandbox.run("1")
        with pytest.raises(ConfigError, match="install bubblewrap"):
            load(f"code:{file}")
    finally:
        sandbox._sandbox.cache_clear()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    """A file with a secret, a port that somebody listens on, and a key among the environment variables."""
    canary = tmp_path / "canary"
    canary.write_text("secret")
    tmp_path.chmod(0o755)
    canary.chmod(0o666)
    monkeypatch.setenv("API_KEY", "sk-" + "x" * 40)
    # An address of its own: what other tests left running may still call a port of 127.0.0.1 that was theirs before.
    with socket.create_server(("127.0.0.9", 0)) as server:
        server.setblocking(False)
        yield canary, server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()
    assert canary.read_text() == "secret"


def left_behind(worker: str = "/worker.py") -> list[str]:
    # ww: else a variable of the terminal's cuts the lines before the name.
    listed = subprocess.run(["ps", "-ewwo", "pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if worker in line and not line.split()[1].startswith("Z")]


def nobody_is_left(worker: str = "/worker.py") -> bool:
    for _ in range(200):  # the kernel takes a moment to end a namespace
        if not left_behind(worker):
            return True
        time.sleep(0.1)
    return False


def _hostile(box: Sandbox, programs: list[str]) -> None:
    """Three at a time, each ten of them followed by one that must still pass."""
    mixed = [
        each
        for number, program in enumerate(programs, 1)
        for each in ([program, GOOD] if number % 10 == 0 else [program])
    ]

    def one(program: str) -> Ran:
        return ran(box, program, TESTS) if program is GOOD else ran(box, program, calls=("escaped",))

    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(one, mixed))
    for program, result in zip(mixed, results, strict=True):
        if program is GOOD:
            assert result.passed, result
        else:
            assert not result.passed or result.values in (("False",), ("[]",), ("raises NameError",)), (
                program[:300],
                result,
            )
    assert nobody_is_left(), left_behind()


@pytest.mark.timeout(600)
def test_one_hostile_program_of_each_kind_neither_escapes_nor_stays(outside: tuple[Path, int]) -> None:
    quick = [i for i, kind in enumerate(KINDS) if "while True" not in kind(0) and "sleep(600)" not in kind(0)]
    programs = hostile(len(KINDS), str(outside[0]), outside[1])
    _hostile(WORKING[0], [programs[i] for i in quick])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_200_hostile_programs_neither_escape_nor_stay(box: Sandbox, outside: tuple[Path, int]) -> None:
    _hostile(box, hostile(200, str(outside[0]), outside[1]))


@pytest.mark.slow
def test_somebody_who_is_not_root_has_the_same_sandboxes(box: Sandbox) -> None:
    """User namespaces are for those who are not root; the tests may be run by root."""
    if os.getuid() != 0 or not Path("/usr/bin/setpriv").exists():
        pytest.skip("only root can become somebody else")
    home = Path(sandbox.__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(home)!r}); from moot.tasks.sandbox import *; from moot.tasks.sandbox import _run; "
        f"box = next(b for b in available() if b.name == {box.name!r}); print(_run(box, 'import os', '', '', ['os.getuid()'], Limits()))"
    )
    command = [
        "/usr/bin/setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr or "SyntaxError" in done.stderr:
        pytest.skip("this checkout, or an interpreter that can read it, is root's alone")
    assert "values=('65534',)" in done.stdout, done.stderr
