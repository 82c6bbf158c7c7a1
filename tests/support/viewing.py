"""What tests of the page in a real browser share: the runs they look at, the browser, and how to wait for it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import binaries, browser, missing, resize, scheme, serving, signed_in
from support.making import command, surroundings
from support.paging import record, write_run

TRAIN = (
    "--engine scripted --sections sampled --personas --batch-size 8 --num-train-datapoints 96 --num-agents 4 --max-rounds 3 "
    "--max-tokens 2000 --warm-questions 4"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("view")


@pytest.fixture(scope="module")
def driver(place: Path) -> Iterator[Any]:
    if binaries() is None:
        why, held_against = missing()
        pytest.fail(why) if held_against else pytest.skip(why)
    with browser(place / "profile") as found:
        found.set_script_timeout(30)
        yield found


@pytest.fixture(scope="module")
def runs(place: Path) -> Path:
    """One run that `moot train` made, and one written by hand."""
    done = subprocess.run(
        command("train", *TRAIN.split(), "--run", place / "runs" / "real"),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        {"step": step, "phase": "self_play", "env/all/reward/total": step / 10, "odd/one": None} for step in (1, 2, 3)
    ]
    write_run(place / "runs" / "by-hand", {1: [record()], 2: [record(question="What is $x^2$ at 3?")]}, rows)
    return place / "runs"


@pytest.fixture(scope="module")
def url(runs: Path, place: Path, driver: Any) -> Iterator[str]:
    with serving(runs, cache=place / "cache") as address:
        yield signed_in(driver, address)


@pytest.fixture(autouse=True)
def console(driver: Any) -> Iterator[None]:
    """Nothing may go wrong unseen: an error or a refused script in the console fails the test that caused it."""
    resize(driver, 1280, 900)
    scheme(driver, "light")
    driver.get_log("browser")
    yield
    said = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert said == []


@contextlib.contextmanager
def visiting(driver: Any, *runs: Path, cache: Path) -> Iterator[str]:
    """A page of one's own, left before its server goes."""
    with serving(*runs, cache=cache) as address:
        try:
            yield signed_in(driver, address)
        finally:
            driver.get("about:blank")


def until(found: Callable[[], Any], what: str = "", seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if value := found():
                return value
        except Exception:  # a node that was drawn anew meanwhile
            pass
        time.sleep(0.03)
    raise AssertionError(f"did not come true in {seconds} s: {what or found}")


def all_text(driver: Any, selector: str) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText.trim())", selector
    )


def one_text(driver: Any, selector: str) -> str:
    return until(lambda: all_text(driver, selector), selector)[0]


def press(driver: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def records(run: Path) -> dict[tuple[int, int], dict[str, Any]]:
    found = {}
    for file in (run / "debates").glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            each = json.loads(line)
            found[int(file.stem), each["number"]] = each
    return found


def rows_shown(driver: Any) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll('tr[data-place]')].map((row) => row.dataset.place)"
    )


def settled(driver: Any) -> list[str]:
    """All rows of a list that is short enough to be there at once, when the index is through."""
    until(lambda: all_text(driver, "#found") and all_text(driver, "#found .waiting") == [""], "the index is through")
    return rows_shown(driver)
