"""A run's own page in a real browser: curves, trust, evaluations, settings, and where it comes from."""

from __future__ import annotations

import base64
import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.accessible import findings
from support.browsing import resize, scheme
from support.making import command, surroundings
from support.paging import write_run
from support.viewing import all_text, one_text, settled, until, visiting

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


def test_a_run_without_votes_is_asked_for_its_health_and_a_file_for_its_agreement(driver: Any, place: Path) -> None:
    here = place / "payers"
    # What an older moot wrote: 0 for votes that nobody cast.
    rows = {"alarm/degenerate_consensus": 0.0, "alarm/random_noise": 0.0, "trust/judges_per_pair": None}
    write_run(here / "majority", {}, [{"step": 1, "phase": "self_play", "trust/plurality_share": 0.5, **rows}])
    header = json.loads((here / "majority" / "run.json").read_text())
    header["config"]["protocol"]["reward"] = "majority"
    header["config"]["model"] = {"engine": "scripted", "model": "Qwen/Qwen3-8B"}
    (here / "majority" / "run.json").write_text(json.dumps(header))
    said = "<solution>mumble</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
    turns = [{"round": 1, "agent": agent, "text": said} for agent in range(3)]
    (here / "file.jsonl").write_text(json.dumps({"question": "q", "num_agents": 3, "turns": turns}) + "\n")
    heads = "section h2"
    with visiting(driver, here, cache=place / "cache") as url:
        for view in ("", "view=run&"):
            driver.get(f"{url}?{view}run=majority")
            until(lambda: "Is training healthy?" in all_text(driver, heads))
            assert one_text(driver, ".calm") == "No alarm rings. Watched: everyone says the same."
            assert "votes look like coin tosses" in one_text(driver, ".alarms .quiet")
            assert "scripted engine" in one_text(driver, "main") and "Qwen" not in one_text(driver, "main")
        driver.get(f"{url}?view=run&run=file.jsonl")
        until(
            lambda: (
                "Do the answers agree?" in all_text(driver, heads)
                and driver.find_elements(*("css selector", ".made dd"))
            )
        )
        assert all_text(driver, ".made dd") == [str(here / "file.jsonl")]
        until(lambda: all_text(driver, "table.trust .reading") == ["nobody gave an answer that can be compared"] * 2)
        assert not driver.find_element("css selector", ".curves").is_displayed()
        assert not driver.find_element("css selector", "table.config").is_displayed()


def test_labels_are_paid_nothing_so_no_signal_is_missing(driver: Any, place: Path) -> None:
    (place / "questions.jsonl").write_text('{"question": "What is 3 + 4?"}\n{"question": "What is 5 + 4?"}\n')
    options = "--engine scripted --k 3 --max-tokens 2000 --grader number"
    out = place / "labels" / "labels.jsonl"
    asked = command("label", place / "questions.jsonl", *options.split(), "--out", out)
    subprocess.run(asked, env=surroundings(), check=True, capture_output=True, timeout=120)
    with visiting(driver, out, cache=place / "cache") as url:
        driver.get(f"{url}?view=debates&run=labels.jsonl")
        settled(driver)
        assert len(all_text(driver, "tr[data-place]")) == 2
        assert "no signal" not in one_text(driver, "main") and "votes say nothing" not in one_text(driver, "#found")


def test_an_axis_tells_its_ticks_apart_and_no_share_leaves_its_bounds(driver: Any, url: str) -> None:
    driver.get(url)
    told = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; Promise.all([import('/static/series.js'), import('/static/glossary.js')]).then("
        "([{range, ticks}, {isShare}]) => done([arguments[0].map(ticks), arguments[1].map((one) => range(...one)), arguments[2].map(isShare)]))",
        [
            [0.0085, 0.009, 0.0095, 0.01],
            [0, 0.25, 0.5],
            [1000, 1020, 1040],
            [8e-5, 1e-4, 1.2e-4],
            [500, 1000, None],
            [3],
        ],
        [[0, 0, [0, 1]], [0.5, 0.98, [0, 1]], [0, 0, [-9, 9]]],
        [
            "train_sums/correct",
            "test_gsm8k/correct",
            "parse_error",
            "trust/judge_accuracy",
            "optim/loss",
            "trust/judge_j",
        ],
    )
    assert told[0] == [
        ["0.0085", "0.009", "0.0095", "0.01"],
        ["0", "0.25", "0.5"],
        ["1k", "1.02k", "1.04k"],
        ["8e-5", "1e-4", "1.2e-4"],
        ["500", "1k", ""],
        ["3"],
    ]
    assert told[1][0] == [0, 1] and told[1][1][1] == 1 and told[1][2] == [-1, 1]
    assert told[2] == [True] * 4 + [False] * 2


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
