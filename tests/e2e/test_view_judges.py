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
