"""Model text is hostile. Whatever it says, the page shows it as text, runs nothing, sends nothing, and keeps its shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moot.debate.protocols import V2
from support.paging import failed, record, turn, write_run
from support.viewing import all_text, one_text, until, visiting

pytestmark = pytest.mark.slow

# A model that repeats itself writes these; no browser lays them out.
NESTED = (
    (r"\frac{1}{", "}", 150),
    (r"\sqrt{", "}", 150),
    ("x^{", "}", 300),
    (r"\sqrt[", "]{x}", 150),
    (r"\boxed{", "}", 250),
)
ATTACKS = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 2'>",
    "<svg onload=window.hurt=3><animate onbegin=window.hurt=3>",
    "<a href='javascript:window.hurt=4' id=bait>click</a>",
    "</div></article></main><iframe srcdoc='<script>parent.hurt=5</script>'></iframe>",
    "<style>* { display: none !important }</style><link rel=stylesheet href=//example.invalid/x.css>",
    "<form action=//example.invalid><button id=bait>go</button></form><meta http-equiv=refresh content='0;url=//example.invalid'>",
    "{{constructor.constructor('window.hurt=6')()}} ${window.hurt=7} `${window.hurt=8}`",
    r"$\href{javascript:window.hurt=9}{x}$ $\url{javascript:window.hurt=9}$ $\includegraphics{//example.invalid/x.png}$",
    r"$\htmlClass{bait}{x}$ $\htmlData{k=1}{x}$ $\htmlStyle{position:fixed;inset:0}{x}$ $\rule{99999em}{99999em}$ \boxed{\def\a{\a\a}\a}",
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x00\x08\x7f\x9b31m",
    "half a pair: \ud800 and \udc00, turned \u202eecnatsni rof\u202c, zero\u200bwidth\ufeff, Z̸̢̛͔a̷̢͘l̴͓̈́g̶̰̔o̵̡͝" + "\u0301" * 300,
    "x" * 1_000_000,
    "$" * 5000 + "\\(" * 5000 + "\\boxed{" * 5000,
    "<solution>" * 3000,
    " ".join(f"$${before * deep}x{after * deep}$$" for before, after, deep in NESTED) + r" and $\frac{1}{2}$",
]


def hostile(attack: str) -> dict[str, Any]:
    """The attack wherever a run can hold text."""
    nasty = turn(
        0,
        attack[:500],
        True,
        fields={"solution": attack, "evaluation": attack, "comparison": f"{attack}\nAgent 1 > Agent 2"},
    )
    nasty["text"] = (
        f"{attack}<solution>{attack}</solution><evaluation>{attack}</evaluation><comparison>{attack}\nAgent 1 > Agent 2</comparison>"
    )
    quiet = failed(1, said=attack)
    quiet["failure"] = attack[:2000]
    votes = [{"turn": 0, "left_turn": 1, "right_turn": 2, "verdict": ">"}]
    protocol = {**V2.as_dict(), "reward": attack[:500]}
    return record(nasty, quiet, turn(2), question=attack, answer=attack[:500], votes=votes, protocol=protocol)


@pytest.fixture(scope="module")
def url(place: Path, driver: Any) -> Iterator[str]:
    metrics: list[dict[str, Any]] = [
        {
            "step": 1,
            "phase": "<img src=x onerror=window.hurt=10>",
            "<script>window.hurt=11</script>": 1.0,
            "x": float("nan"),
        },
        {"step": 1, "phase": "self_play", "<img src=x onerror=window.hurt=12>": 1.0, "alarm/random_noise": 1.0},
    ]
    # A debate that the engine lost is never scored.
    told = {
        name: value
        for name, value in record().items()
        if name not in ("rewards", "advantages", "votes", "winner", "signal")
    }
    lost = {**told, "turns": [], "error": ATTACKS[0] * 50}
    folder = place / "hostile" / "<img src=x onerror=window.hurt=13>"
    run = write_run(folder, {1: [hostile(attack) for attack in ATTACKS] + [lost]}, metrics)
    header = json.loads((run / "run.json").read_text())
    header["config"]["model"]["model"] = ATTACKS[1]
    (run / "run.json").write_text(json.dumps(header))
    # Records that are none: not JSON, not an object, and objects of another shape.
    (run / "debates" / "000002.jsonl").write_bytes(
        b'{"turns": \n[1, 2]\n{"question": 3}\n{"question": {"text": "t", "answer": 1}, "turns": [{}], "num_agents": 0}\n'
    )
    with visiting(driver, place / "hostile", cache=place / "cache") as address:
        yield address


NAME = "<img src=x onerror=window.hurt=13>"


def unharmed(browser: Any, url: str) -> None:
    assert browser.execute_script("return window.hurt") is None
    assert browser.execute_script("return document.title").endswith("moot")
    assert browser.current_url.startswith(url)
    kinds = ("script", "img", "iframe", "form:not(.filters)", "style", "link", "meta", "[onerror]", "[onload]", "#bait")
    assert (
        browser.execute_script(
            "return document.querySelectorAll(arguments[0]).length", ", ".join(f"main {kind}" for kind in kinds)
        )
        == 0
    )
    links = browser.execute_script("return [...document.querySelectorAll('a')].map((a) => a.href)")
    assert all(link.startswith(url) for link in links)
    asked = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(name.startswith(url) for name in asked)
    width = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert browser.execute_script("return getComputedStyle(document.querySelector('header#top')).display") == "flex"
    refused = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert refused == []  # it never came as far as the policy


@pytest.mark.parametrize("number", range(len(ATTACKS)))
@pytest.mark.parametrize("shade", ["", "advantage"])
def test_a_hostile_debate_is_only_text(driver: Any, url: str, number: int, shade: str) -> None:
    from urllib.parse import quote

    driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=1.{number}&shade={shade}")
    until(lambda: len(driver.find_elements("css selector", ".turn")) == 3)
    unharmed(driver, url)
    edges = driver.execute_script(
        "return [...document.querySelectorAll('.turn')]"
        ".map((turn) => [turn.scrollWidth - turn.clientWidth, turn.getBoundingClientRect().right - innerWidth])"
    )
    assert all(inner <= 1 and outer <= 0 for inner, outer in edges)


def test_escapes_and_halves_are_shown_by_their_number(driver: Any, url: str) -> None:
    from urllib.parse import quote

    driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=1.10")
    said = one_text(driver, ".turn .part.solution .said")
    assert "\\u001b]0;owned\\u0007\\u001b[2J" in said and "\\u0000\\u0008\\u007f\\u009b31m" in said
    driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=1.11")
    said = one_text(driver, ".turn .part.solution .said")
    assert "half a pair: \\ud800 and \\udc00" in said and "\\u202eecnatsni rof\\u202c" in said


def test_a_megabyte_comes_in_parts_and_all_of_it_can_be_had(driver: Any, url: str) -> None:
    from urllib.parse import quote

    driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=1.12")
    length = "return document.querySelector('.turn .part.solution .said').textContent.length"
    until(lambda: driver.execute_script(length) == 20_000)
    more = driver.find_element("css selector", ".turn .part.solution button.more")
    assert more.text == "Show 100,000 of 980,000 more characters"
    for _ in range(10):
        driver.execute_script("document.querySelector('.turn .part.solution button.more').click()")
    assert driver.execute_script(length) == 1_000_000
    unharmed(driver, url)


def test_formulas_nested_so_deep_that_a_browser_dies_of_them_stay_as_they_were_written(driver: Any, url: str) -> None:
    from urllib.parse import quote

    driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=1.{len(ATTACKS) - 1}")
    said = one_text(driver, ".turn .part.solution .said")
    assert r"\frac{1}{\frac{1}{" in said and r"\sqrt{\sqrt{" in said and "x^{x^{" in said
    assert (
        driver.execute_script("return document.querySelectorAll('.turn .part.solution .said .maths .mfrac').length")
        == 1
    )


def test_lists_runs_and_broken_records_hold_too(driver: Any, url: str) -> None:
    from urllib.parse import quote

    driver.get(url)
    until(lambda: driver.find_elements("css selector", ".chart canvas"))
    assert NAME in all_text(driver, "td.run a")
    unharmed(driver, url)
    driver.get(f"{url}?view=debates&run={quote(NAME)}")
    until(lambda: len(driver.find_elements("css selector", "tr[data-place]")) == len(ATTACKS) + 5)
    unharmed(driver, url)
    assert all_text(driver, "tr[data-place] .chip.bad").count("unreadable record") == 4
    for number in range(4):
        driver.get(f"{url}?view=debate&run={quote(NAME)}&debate=2.{number}")
        assert one_text(driver, "main h1") == "This record cannot be read"
        unharmed(driver, url)


def test_should_markup_ever_get_in_the_policy_still_runs_none_of_it(driver: Any, url: str) -> None:
    driver.get(url)
    until(lambda: driver.find_elements("css selector", "table.runs"))
    refused = driver.execute_script(
        "try { document.body.innerHTML = '<b>x</b>'; return false } catch (error) { return error instanceof TypeError }"
    )
    assert refused
    handler = "try { document.body.setAttribute('onclick', 'window.hurt = 1'); return false } catch (error) { return error instanceof TypeError }"
    assert driver.execute_script(handler)
    driver.execute_async_script(
        "const done = arguments[0]; const bad = document.createElement('a'); bad.href = 'javascript:window.hurt = 1';"
        "document.body.append(bad); bad.click(); setTimeout(done, 300)"
    )
    assert driver.execute_script("return window.hurt") is None
    outside = "const done = arguments[0]; fetch('http://127.0.0.1:1/').then(() => done('sent'), (error) => done(String(error)))"
    assert "Failed to fetch" in driver.execute_async_script(outside)
    assert any("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))
