"""The page in the dark, in a narrow window, read by a machine, and while a run is written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.accessible import findings
from support.browsing import resize, scheme
from support.making import command, surroundings
from support.paging import record, turn, write_run, write_step
from support.viewing import (
    TRAIN,
    all_text,
    one_text,
    press,
    rows_shown,
    until,
    visiting,
)

pytestmark = pytest.mark.slow


# Light, dark, narrow


def test_it_follows_the_system_into_the_dark_and_a_choice_outlasts_a_reload(driver: Any, url: str) -> None:
    def brightness() -> int:
        colour = driver.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        return sum(map(int, re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()))

    driver.get(url)
    until(lambda: brightness() > 600)
    scheme(driver, "dark")
    until(lambda: brightness() < 150)
    until(lambda: driver.find_element("id", "theme")).click()
    until(lambda: brightness() > 600)
    driver.get(url)
    until(lambda: brightness() > 600)
    driver.execute_script("localStorage.clear()")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "?view=debates&run=real",
        "?view=rescore&run=real",
        "?view=debate&run=real&debate=8.1",
        "?view=debate&run=real&debate=8.1&shade=advantage",
    ],
)
def test_nothing_sticks_out_of_a_narrow_window(driver: Any, url: str, address: str) -> None:
    resize(driver, 380, 800)
    driver.get(url + address)
    until(lambda: driver.find_elements("css selector", ".chart, tr[data-place], .turn, table.rescored"))
    wide = driver.execute_script(
        "return [...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > 381).map(e => e.tagName + '.' + e.className + '#' + e.textContent.slice(0, 40) + '@' + Math.round(e.getBoundingClientRect().right)).slice(0, 12)"
    )
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 380, wide


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(driver: Any, url: str, colours: str, width: int) -> None:
    resize(driver, width, 900)
    scheme(driver, colours)
    debate = "?view=debate&run=real&debate=8.1"
    for address in ("", "?view=debates&run=real", debate, f"{debate}&shade=advantage", "?view=rescore&run=real"):
        driver.get(url + address)
        until(
            lambda: driver.find_elements("css selector", "table.trust tbody tr, tr[data-place], .turn, table.rescored")
        )
        assert findings(driver) == [], address


def test_the_table_of_runs_fits_a_narrow_window(driver: Any, url: str) -> None:
    resize(driver, 400, 800)
    driver.get(url)
    until(lambda: driver.find_elements("css selector", "table.trust tbody tr"))
    for table in ("table.runs", "table.trust"):
        right = driver.execute_script(
            "return Math.max(...[...document.querySelectorAll(arguments[0] + ' *')].map((node) => node.getBoundingClientRect().right))",
            table,
        )
        assert right <= 400, table


def test_a_narrow_list_of_debates_says_which_number_is_the_answer(driver: Any, url: str) -> None:
    resize(driver, 400, 800)
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: driver.find_elements("css selector", "table.debates td.answer"))
    named = "return getComputedStyle(document.querySelector('table.debates td.answer'), '::before').content"
    assert driver.execute_script(named) == '"answer "'


# While a run is written


def test_a_run_that_is_being_written_is_followed(driver: Any, place: Path) -> None:
    run = place / "live" / "going"
    run.parent.mkdir()
    long = TRAIN.replace("--num-train-datapoints 96", "--num-train-datapoints 40000")
    with (
        subprocess.Popen(
            command("train", *long.split(), "--run", run),
            env=surroundings(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as trainer,
        visiting(driver, place / "live", cache=place / "cache") as url,
    ):
        try:
            driver.get(url)
            seen: set[str] = set()
            until(
                lambda: seen.update(all_text(driver, "td.progress")) or len(seen) >= 3,
                "three states of the same page",
                60,
            )
            driver.get(f"{url}?view=debates&run=going")
            first = until(lambda: rows_shown(driver))[0]
            until(lambda: rows_shown(driver)[0] != first, "newer debates come in by themselves", 30)
            assert trainer.poll() is None
        finally:
            trainer.terminate()
            trainer.wait(30)


def test_new_debates_do_not_move_a_list_that_somebody_reads(driver: Any, place: Path) -> None:
    run = write_run(place / "read" / "quiet", {1: [record(), record()]})
    with visiting(driver, run, cache=place / "cache") as url:
        driver.get(f"{url}?view=debates&run=quiet")
        until(lambda: rows_shown(driver) == ["1.0", "1.1"])
        press(driver, "j")
        write_step(run, 2, [record(turn(0), question="And this?")])
        button = until(lambda: next(b for b in driver.find_elements("css selector", ".fresh") if b.is_displayed()))
        assert rows_shown(driver) == ["1.0", "1.1"]
        button.click()
        until(lambda: rows_shown(driver) == ["2.0", "1.0", "1.1"])


def test_a_step_that_is_played_again_replaces_what_it_said(driver: Any, place: Path) -> None:
    run = write_run(place / "again" / "resumed", {1: [record()], 2: [record(question="Gone soon?")]})
    with visiting(driver, run, cache=place / "cache") as url:
        driver.get(f"{url}?view=debates&run=resumed")
        until(lambda: "Gone soon?" in all_text(driver, "td.question"))
        write_step(run, 2, [record(question="Here instead?")])
        until(
            lambda: (
                "Here instead?" in all_text(driver, "td.question")
                and "Gone soon?" not in all_text(driver, "td.question")
            )
        )
        driver.get(f"{url}?view=debates&run=resumed&q=soon")
        until(lambda: one_text(driver, "#found").startswith("0 debates"))
