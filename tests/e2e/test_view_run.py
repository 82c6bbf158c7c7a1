"""A run's own page in a real browser: curves, trust, evaluations, settings, and where it comes from."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from support.accessible import findings
from support.browsing import resize, scheme
from support.paging import write_run
from support.viewing import all_text, one_text, until, visiting

pytestmark = pytest.mark.slow

KEEP = """
URL.createObjectURL = (blob) => {
  blob.arrayBuffer().then((bytes) => { window.saved = btoa(String.fromCharCode(...new Uint8Array(bytes))); });
  return "#";
};
"""


def saved(driver: Any, button: str) -> bytes:
    """What a button saves; the browser itself would ask where to."""
    driver.execute_script("window.saved = null;" + KEEP)
    driver.execute_script("arguments[0].click()", driver.find_element("css selector", button))
    return base64.b64decode(until(lambda: driver.execute_script("return window.saved")))


def top(driver: Any, selector: str) -> float:
    place: float = driver.execute_script(
        "return document.querySelector(arguments[0]).getBoundingClientRect().top", selector
    )
    return place


def test_a_run_has_a_page_of_its_own_with_what_it_changes_and_where_it_comes_from(
    driver: Any, url: str, runs: Path
) -> None:
    driver.get(url)
    until(lambda: "real" in all_text(driver, "td.run a"))
    # Found and clicked in one go: the table may be drawn anew at any time.
    driver.execute_script(
        "[...document.querySelectorAll('td.run a')].find((link) => link.innerText === 'real').click()"
    )
    until(lambda: "view=run&run=real" in driver.current_url and driver.find_elements("css selector", ".made dd"))
    until(lambda: driver.find_elements("css selector", "table.trust tbody tr"))
    assert top(driver, ".curves") < top(driver, "table.trust") < top(driver, "table.config") < top(driver, ".made")
    made = json.loads((runs / "real" / "run.json").read_text())["made_by"]
    told = dict(zip(all_text(driver, ".made dt"), all_text(driver, ".made dd"), strict=True))
    assert told["Command"] == made["command"] and "--num-agents 4" in told["Command"]
    assert told["Host"] == made["host"] and told["Version"].startswith("moot ")
    assert {"Started", "Duration", "Sampled", "Folder"} <= told.keys()
    rows = dict(
        zip(
            all_text(driver, "table.config tbody th"),
            all_text(driver, "table.config tbody td:nth-child(2)"),
            strict=True,
        )
    )
    assert rows["debate.max_rounds"] == "3" and "optim.learning_rate" not in rows and len(rows) < 20
    driver.find_element("css selector", "input[aria-label='Find a setting']").send_keys("learning_rate")
    until(lambda: "optim.learning_rate" in all_text(driver, "table.config tbody th"))
    # What was never measured has no row.
    assert "nothing to measure yet" not in all_text(driver, "table.trust td")
    assert not [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def test_curves_are_drawn_along_tokens_or_time_and_saved(driver: Any, url: str, runs: Path) -> None:
    driver.get(f"{url}?view=run&run=real&x=tokens&log=yes")
    chart = "figure[data-key='env/all/ac_tokens_per_turn']"
    until(lambda: driver.find_elements("css selector", "input[type=search]"))
    driver.execute_script("document.querySelector('input[type=search]').scrollIntoView()")
    until(lambda: driver.find_elements("css selector", ".key .chart canvas"))
    driver.find_element("css selector", "input[aria-label='Find a metric']").send_keys("ac_tokens_per_turn")
    until(lambda: driver.find_elements("css selector", f"{chart} canvas"))
    rows = list(csv.DictReader(saved(driver, f"{chart} button[title$='CSV file']").decode().splitlines()))
    told = [json.loads(line) for line in (runs / "real" / "metrics.jsonl").read_text().splitlines()]
    played = [row for row in told if row["phase"] == "self_play"]
    assert [float(row["env/all/ac_tokens_per_turn"]) for row in rows] == [
        row["env/all/ac_tokens_per_turn"] for row in played
    ]
    assert float(rows[-1]["tokens"]) == sum(row["tokens/sampled"] for row in played)
    assert saved(driver, f"{chart} button[title$='picture']").startswith(b"\x89PNG")
    assert "x=tokens" in driver.current_url


def test_seeds_of_one_run_are_a_line_with_a_band_and_apart_on_request(driver: Any, place: Path) -> None:
    for seed, value in ((0, 0.2), (1, 0.6)):
        steps = [{"step": step, "phase": "self_play", "parse_error": value * step} for step in (1, 2)]
        run = write_run(place / "bands" / f"s{seed}", {}, steps)
        header = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**header, "config": {**header["config"], "seed": seed}}))
    with visiting(driver, place / "bands", cache=place / "cache") as url:
        driver.get(f"{url}?run=s0&run=s1")
        values = "figure[data-key='parse_error'] .values"
        until(lambda: one_text(driver, values).split() == ["0.800", "2", "seeds", "last"], "the mean of 0.4 and 1.2")
        driver.execute_script(
            "[...document.querySelectorAll('.curves label')].find((label) => label.innerText.includes('band')).querySelector('input').click()"
        )
        until(lambda: one_text(driver, values).split() == ["0.400", "1.200", "last"])
        assert "seeds=apart" in driver.current_url


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious_on_a_runs_page(driver: Any, url: str, colours: str, width: int) -> None:
    resize(driver, width, 900)
    scheme(driver, colours)
    driver.get(f"{url}?view=run&run=real")
    until(lambda: driver.find_elements("css selector", "table.trust tbody tr, .made dd"))
    assert findings(driver) == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
