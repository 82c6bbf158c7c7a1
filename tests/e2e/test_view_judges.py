"""What `moot judge` measured, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.cli.main import main
from support.accessible import findings
from support.browsing import resize, scheme
from support.paging import write_run
from support.viewing import all_text, one_text, until, visiting

pytestmark = pytest.mark.slow

SEVENS = '''
from dataclasses import replace
from moot.tasks import load

def task(seed=0, held_out=0):
    """The script answers 7 most often, so that is what is right."""
    given = load("arithmetic", seed, held_out)
    right = [replace(question, answer="7") for question in given.held_out]
    return replace(given, train=lambda i: replace(given.train(i), answer="7"), held_out=right)
'''


@pytest.fixture(scope="module")
def judged(place: Path) -> Path:
    """One answer is hostile, and is a file's own."""
    rows = [
        {
            "question": f"{i} + 1?",
            "answer": i + 1,
            "answers": [f"\\boxed{{{i + 1}}}", "<img src=x onerror=alert(1)> \\boxed{99}"],
        }
        for i in range(6)
    ]
    (place / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = place / "judges" / "scripted"
    asked = "--ballots approval lines --checks 1 2 --engine scripted --questions 6"
    assert main(["judge", *asked.split(), "--answers", str(place / "answers.jsonl"), "--out", str(out)]) == 0
    return out


def test_each_way_to_judge_has_a_bar_and_each_verdict_its_thinking(driver: Any, judged: Path, place: Path) -> None:
    report = json.loads((judged / "report.json").read_text())
    with visiting(driver, judged, cache=place / "cache") as url:
        driver.get(url)
        assert one_text(driver, ".advice") == report["advice"]
        assert len(until(lambda: driver.find_elements("css selector", ".bars figure:first-child rect"))) == 3
        assert len(driver.find_elements("css selector", ".bars figure:last-child rect")) == 2  # lines approve nothing
        best = report["rows"][0]["pair_accuracy"]
        told = f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}]"
        assert all_text(driver, "table.judges tbody td")[0] == told
        minus = report["rows"][1]["best_minus"]
        heads = all_text(driver, "table.judges thead th")
        cells = all_text(driver, "table.judges tbody tr:nth-child(2) > *")
        told = f"{minus['value']:.2f} [{minus['low']:.2f}, {minus['high']:.2f}]".replace("-", "−")
        assert cells[heads.index("Best minus this")].replace("-", "−") == told
        until(lambda: len(driver.find_elements("css selector", "details.asked")) == 6)
        driver.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        asked = [json.loads(line) for line in (judged / "asked.jsonl").read_text().splitlines()]
        first = driver.find_element("css selector", "details.asked")
        assert "✗" in first.text and first.text.count("YES BY") == 4
        said = {verdict["thinking"] for way in asked[0]["ways"] for verdict in way["verdicts"] if verdict["thinking"]}
        assert any(words in first.text for words in said if "\\" not in words)
        assert "<img src=x" in first.text and not driver.find_elements("css selector", "main img")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious_among_judges(
    driver: Any, judged: Path, place: Path, colours: str, width: int
) -> None:
    run = write_run(place / f"beside-{colours}-{width}", {})
    with visiting(driver, judged, run, cache=place / "cache") as url:
        resize(driver, width, 900)
        scheme(driver, colours)
        driver.get(url)
        until(lambda: driver.find_elements("partial link text", "Judges"))
        driver.get(f"{url}?view=judges")
        until(lambda: driver.find_elements("css selector", "details.asked"))
        driver.execute_script("document.querySelector('details.asked').open = true")
        assert findings(driver) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_run_paid_by_checks_shows_how_good_its_judge_is_and_nothing_of_votes(driver: Any, place: Path) -> None:
    (place / "sevens.py").write_text(SEVENS)
    options = "--engine scripted --reward pairs --max-rounds 1 --num-agents 4 --max-tokens 400 --num-train-datapoints 8"
    few = f"{options} --batch-size 4 --warm-questions 0 --eval-every 0 --task {place / 'sevens.py'}:task"
    assert main(["train", *few.split(), "--run", str(place / "checked" / "run")]) == 0
    with visiting(driver, place / "checked", cache=place / "cache") as url:
        driver.get(url)
        cells = '[data-column="Judge accuracy"]'
        assert "%" in until(lambda: next((text for text in all_text(driver, cells) if text not in ("", "–")), ""))
        assert all_text(driver, ".key .chart figcaption > span:first-child")[0] == "Judge's pair accuracy"
        driver.get(f"{url}?run=run")
        rows = until(lambda: all_text(driver, "table.trust tbody th"))
        assert any(row.startswith("Judge's pair accuracy") for row in rows)
        assert not any("votes" in row or row.startswith("Judge's J") for row in rows)
        assert "Nothing to measure yet" not in driver.find_element("css selector", "main").text
