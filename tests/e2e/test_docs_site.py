"""The docs as a reader opens them from a folder, without a server or a network: the switch of colours, and the search."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.accessible import findings
from support.browsing import binaries, browser, missing, scheme

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_the_switch_of_colours_and_the_search_work_in_pages_opened_from_a_folder(tmp_path: Path) -> None:
    if binaries() is None:
        why, held_against = missing()
        pytest.fail(why) if held_against else pytest.skip(why)
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)], cwd=ROOT, check=True)
    with browser(tmp_path / "profile") as driver:
        driver.set_script_timeout(30)
        scheme(driver, "light")
        for page in ("index.html", "trust.html"):
            driver.get((site / page).as_uri())
            colours = []
            for mode in ("dark", "light"):
                driver.execute_script("document.querySelector(`[data-bs-theme-value=${arguments[0]}]`).click()", mode)
                colours.append(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
                assert findings(driver) == [], (page, mode)
            assert len(set(colours)) == 2
        driver.execute_script("document.querySelector('[data-bs-target=\"#mkdocs_search_modal\"]').click()")
        field = driver.find_element("id", "mkdocs-search-query")
        driver.execute_script(
            "arguments[0].value = 'judge accuracy'; arguments[0].dispatchEvent(new Event('input'))", field
        )
        end = time.monotonic() + 10
        while (
            not (found := driver.find_elements("css selector", "#mkdocs-search-results a")) and time.monotonic() < end
        ):
            time.sleep(0.05)
        pages = [each.get_attribute("href").rpartition("/")[2] for each in found]
        assert any(page.startswith("trust.html") for page in pages), pages
        assert [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
