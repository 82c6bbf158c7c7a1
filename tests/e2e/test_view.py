"""The page as a reader uses it: runs side by side, and their debates found; a real run, the real command, a real browser."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.browsing import resize
from support.paging import record, turn, write_run
from support.viewing import (
    all_text,
    one_text,
    press,
    records,
    rows_shown,
    settled,
    until,
    visiting,
)

pytestmark = pytest.mark.slow


# Runs side by side


def test_runs_stand_side_by_side_with_their_alarms_in_words_and_every_metric(driver: Any, url: str, runs: Path) -> None:
    driver.get(url)
    names = until(lambda: len(all_text(driver, "td.run a")) == 2 and all_text(driver, "td.run a"))
    assert sorted(names) == ["by-hand", "real"]
    assert "Votes look like coin tosses" in one_text(driver, ".alarm h3")
    assert "What to do:" in one_text(driver, ".alarm")
    assert "Judge accuracy" in "\n".join(until(lambda: all_text(driver, "table.trust tbody th")))
    measured = set()
    for line in (runs / "real" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        phase = "eval" if row["phase"] == "eval" else "train"
        measured |= {
            f"{phase} {key}" for key, value in row.items() if key not in ("step", "phase") and value is not None
        }
    assert len(measured) > 60
    shown = driver.execute_script("return [...document.querySelectorAll('.chart')].map((chart) => chart.dataset.id)")
    assert measured <= set(shown)
    until(
        lambda: driver.find_elements("css selector", ".key .chart canvas"),
        "the key curves are drawn at once, above the panel",
    )
    assert not driver.find_elements("css selector", ".others .chart canvas")  # nobody has opened them
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    assert driver.execute_script(top, ".curves") < driver.execute_script(top, ".alarms")


def test_a_metric_is_found_by_its_name_or_what_it_means_and_the_link_keeps_it(driver: Any, url: str) -> None:
    driver.get(url)
    field = until(lambda: driver.find_element("css selector", ".curves input[type=search]"))
    until(lambda: driver.find_elements("css selector", ".chart"))
    field.send_keys("gradient clipping")
    until(lambda: all_text(driver, ".chart:not([hidden]) figcaption > span:first-child") == ["optim/grad_norm"])
    assert "find=gradient+clipping" in driver.current_url
    driver.get(driver.current_url)
    until(lambda: all_text(driver, ".chart:not([hidden]) figcaption > span:first-child") == ["optim/grad_norm"])
    driver.execute_script("document.querySelector('.curves').scrollIntoView()")
    until(lambda: driver.find_elements("css selector", ".chart:not([hidden]) canvas"))


def test_a_run_that_is_not_ticked_leaves_the_curves(driver: Any, url: str) -> None:
    driver.get(f"{url}?find=env/all/reward/total")
    until(lambda: driver.find_elements("css selector", ".chart:not([hidden])"))
    driver.execute_script("document.querySelector('.curves').scrollIntoView()")
    values = ".chart:not([hidden]) .values .swatch"
    until(lambda: len(driver.find_elements("css selector", values)) == 2)
    driver.execute_script("document.querySelector('input[aria-label=\"Show real\"]').click()")
    until(lambda: len(driver.find_elements("css selector", values)) == 1)
    until(
        lambda: one_text(driver, ".chart:not([hidden]) .values").startswith("0.300"),
        "the last value of the run by hand",
    )
    assert "run=by-hand" in driver.current_url and "run=real" not in driver.current_url


def test_the_page_claims_no_more_than_its_intervals_say(driver: Any, url: str) -> None:
    driver.get(f"{url}?run=real")
    first = one_text(driver, "table.trust tbody tr:first-child td")
    assert re.fullmatch(r"\d+%\s\[\d+%, \d+%\]\s+not distinguishable from guessing \(50%\)", first)  # as the alarm says
    titles = all_text(driver, ".key .chart figcaption > span:first-child")
    assert titles[0] == "Judge accuracy" and len(titles) == len(set(titles)) + 1 == 5
    assert titles.count("Accuracy: arithmetic") == 2  # in training and held out, which a chip tells apart
    assert "--reward-mix 0.3" in all_text(driver, ".alarm code")
    readings = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; import('/static/glossary.js').then(({TRUST}) => done(arguments[0].map("
        "([low, high]) => TRUST['trust/judge_accuracy'].read(0.49, {low, high})[0])))",
        [[0.41, 0.57], [0.40, 0.49], [0.51, 0.7], [None, None]],
    )
    assert readings == ["unsure", "bad", "good", "plain"]


def test_where_most_turns_are_cut_no_harder_questions_are_advised(driver: Any, place: Path) -> None:
    """Of four turns 92% are cut: that they hold one answer says nothing of the questions."""
    for name, cut in (("cut", 0.92), ("whole", 0.02)):
        row = {"turns/cut": cut, "trust/answer_diversity": 0.34, "trust/plurality_share": 0.95}
        write_run(place / "lengths" / name, {}, [{"step": 1, "phase": "self_play", **row}])
    with visiting(driver, place / "lengths", cache=place / "cache") as url:
        driver.get(f"{url}?run=whole")
        until(lambda: "mostly one answer" in one_text(driver, "table.trust"))
        assert "harder questions" in one_text(driver, "table.trust")
        driver.get(f"{url}?run=cut")
        told = "92% of turns were cut; raise --max-tokens; diversity says little"
        until(lambda: told in one_text(driver, "table.trust"))
        assert "92% of turns were cut; raise --max-tokens; agreement says little" in one_text(driver, "table.trust")
        assert "mostly one answer" not in one_text(driver, "table.trust")
        assert "harder questions" not in one_text(driver, "table.trust")


def test_runs_of_one_recipe_stand_together_and_are_ticked_together(driver: Any, place: Path) -> None:
    for seed, reward in ((0, 1.0), (1, 2.0), (2, 6.0)):
        run = write_run(
            place / "seeds" / f"s{seed}", {}, [{"step": 1, "phase": "self_play", "env/all/reward/total": reward}]
        )
        header = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**header, "config": {**header["config"], "seed": seed}}))
    with visiting(driver, place / "seeds", cache=place / "cache") as url:
        driver.get(url)
        together = one_text(driver, "tr.seeds")
        assert "3 seeds: 0, 1, 2" in together and "+3.00 +1.00 to +6.00" in together
        driver.execute_script("document.querySelector('tr.seeds input').click()")
        until(lambda: "run=" not in driver.current_url)
        driver.execute_script("document.querySelector('tr.seeds input').click()")
        until(lambda: driver.current_url.count("run=") == 3)


def test_green_is_only_what_was_measured_and_a_run_without_votes_has_no_rows_about_them(
    driver: Any, place: Path
) -> None:
    steps = [
        {
            "step": step,
            "phase": "self_play",
            "trust/plurality_share": 0.5,
            "trust/judge_accuracy": None,
            "trust/winner_correct": 1.0,
        }
        for step in (1, 2)
    ]
    run = write_run(place / "kinds" / "majority", {}, steps)
    header = json.loads((run / "run.json").read_text())
    header["config"]["protocol"]["reward"] = "majority"
    (run / "run.json").write_text(json.dumps(header))
    write_run(
        place / "kinds" / "quiet",
        {},
        [{"step": 1, "phase": "self_play", "trust/judge_accuracy": None, "alarm/random_noise": 0.0}],
    )
    said = "<solution>7</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
    turns = [{"round": 1, "agent": agent, "text": said} for agent in range(3)]
    (place / "kinds" / "file.jsonl").write_text(
        json.dumps({"question": "q", "answer": "7", "num_agents": 3, "turns": turns}) + "\n"
    )
    with visiting(driver, place / "kinds", cache=place / "cache") as url:

        def calm(run: str) -> tuple[str, bool]:
            driver.get(f"{url}?run={run}")
            text = one_text(driver, ".calm")
            return text, bool(driver.find_elements("css selector", ".calm:not(.unsure)"))

        assert calm("file.jsonl") == (
            "Alarms are not computed for files of debates: they watch training.",
            False,
        )
        # What a training might do about it, and curves of one point, help nobody here; no vote will come.
        names = until(lambda: all_text(driver, "table.trust tbody th"))
        assert [name.split("\n")[0] for name in names] == ["Answer diversity", "Agreement"]
        assert not driver.find_elements("css selector", ".remedy")
        assert "Nothing to measure" not in one_text(driver, "main")
        assert not driver.find_element("css selector", ".charts, .curves").is_displayed()
        assert "3 agents × 1 round\n" in one_text(driver, "main") + "\n"
        driver.get(f"{url}?view=debate&run=file.jsonl&debate=1.0")
        until(lambda: "All answers are paid alike: nothing is learned from them." in one_text(driver, "main"))
        assert "votes won–lost" not in one_text(driver, "main")
        assert calm("quiet") == ("No alarm rings. Watched: votes look like coin tosses.", True)
        partly = "No alarm rings in quiet; the others have not been measured. Watched: votes look like coin tosses."
        assert calm("quiet&run=majority") == (partly, False)
        assert until(lambda: all_text(driver, "table.trust td.quiet")) == [
            "has no votes",
            *["nothing to measure yet"] * 2,
        ]
        driver.get(f"{url}?run=majority")
        names = until(lambda: all_text(driver, "table.trust tbody th"))
        assert len(names) == 1 and names[0].startswith("Agreement")


# Debates: filters, search, links


def test_filters_leave_what_the_records_say(driver: Any, url: str, runs: Path) -> None:
    known = records(runs / "real")
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: one_text(driver, "#found").startswith(f"{len(known)} debates"))
    failed = sum(any("failure" in turn for turn in each["turns"]) for each in known.values())
    from selenium.webdriver.support.select import Select

    Select(driver.find_element("name", "failed")).select_by_value("no")
    until(lambda: one_text(driver, "#found").startswith(f"{len(known) - failed} debate"))
    none = {
        f"{step}.{number}"
        for (step, number), each in known.items()
        if not any("failure" in turn for turn in each["turns"])
    }
    assert set(settled(driver)) == none and 0 < len(none) < 50
    assert "failed=no" in driver.current_url

    driver.get(f"{url}?view=debates&run=real&from=5&to=6&disagree=yes")
    last = {
        place: {t["agent"]: t["answer"] for t in each["turns"] if "failure" not in t} for place, each in known.items()
    }
    differ = {f"{s}.{n}" for (s, n), held in last.items() if s in (5, 6) and len(set(held.values())) > 1}
    until(lambda: set(settled(driver)) == differ)


def test_an_alarm_leads_to_the_debates_of_the_steps_at_which_it_rang(driver: Any, url: str, runs: Path) -> None:
    driver.get(f"{url}?run=real")
    until(lambda: driver.find_element("css selector", ".alarm a")).click()
    rows = [json.loads(line) for line in (runs / "real" / "metrics.jsonl").read_text().splitlines()]
    rang = {row["step"] for row in rows if row.get("alarm/random_noise")}
    assert 0 < len(rang) < 12
    until(lambda: one_text(driver, "#found").startswith(f"{8 * len(rang)} debates"))
    assert {int(place.split(".")[0]) for place in settled(driver)} <= rang


def test_search_finds_what_was_said_and_enter_opens_it(driver: Any, url: str, runs: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    known = records(runs / "real")
    text = known[7, 2]["question"]["text"]
    driver.get(f"{url}?view=debates&run=real")
    settled(driver)
    press(driver, "/")
    press(driver, text)
    expected = {f"{s}.{n}" for (s, n), each in known.items() if text in each["question"]["text"]}
    until(lambda: set(settled(driver)) >= expected and len(rows_shown(driver)) < 20)
    press(driver, Keys.ESCAPE, "j", Keys.ENTER)
    heading = until(lambda: one_text(driver, ".question-box h1"))
    assert heading in {each["question"]["text"] for each in known.values()}
    assert "q=What" in driver.current_url  # the way back is in the link
    press(driver, Keys.ESCAPE)
    until(lambda: driver.find_element("name", "q").get_attribute("value") == text)


def test_what_evaluations_played_is_listed_and_a_question_is_followed_from_step_to_step(
    driver: Any, url: str, runs: Path
) -> None:
    from selenium.webdriver.support.select import Select

    steps = sorted(int(file.stem) for file in (runs / "real" / "held_out").glob("*.jsonl"))
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: len(rows_shown(driver)) == 50)
    Select(driver.find_element("name", "set")).select_by_value("held_out")
    until(lambda: one_text(driver, "#found").startswith(f"{8 * len(steps)} debates"))
    driver.get(f"{url}?view=debate&run=real&set=held_out&debate=0.3")
    assert "held out, after step 0" in one_text(driver, ".crumbs")
    until(lambda: driver.find_element("partial link text", f"this question in {len(steps)} debates")).click()
    until(lambda: rows_shown(driver) == [f"{step}.3" for step in steps])


def sort_by(driver: Any, name: str) -> None:
    """In one step: the head may be drawn anew at any time."""
    script = "[...document.querySelectorAll('button.sort')].find((b) => b.textContent.startsWith(arguments[0])).click()"
    driver.execute_script(script, name)


def test_the_list_sorts_by_its_columns_and_is_a_file_on_request(driver: Any, url: str, runs: Path) -> None:
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: len(rows_shown(driver)) == 50)
    shares = "table.debates td[data-column=agreement]"

    def shown() -> list[int]:
        return [int(text.rstrip("%")) for text in all_text(driver, shares) if text != "–"]

    def press_head(name: str) -> None:
        sort_by(driver, name)

    press_head("Agreement")
    until(lambda: "sort=agreement" in driver.current_url and shown() == sorted(shown(), reverse=True))
    press_head("Agreement")
    until(lambda: "sort=-agreement" in driver.current_url and shown() == sorted(shown()))
    assert driver.find_element("css selector", "th[aria-sort=ascending]").text.startswith("Agreement")
    table = driver.execute_async_script(
        "const done = arguments[0]; fetch(document.querySelector('a.save').href).then((answer) => answer.text()).then(done)"
    )
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == len(records(runs / "real")) and rows[0]["question"].startswith("What is")
    assert [f"{row['step']}.{row['number']}" for row in rows[:50]] == rows_shown(driver)


def test_runs_sort_by_a_column_and_their_table_is_a_file(driver: Any, url: str) -> None:
    driver.get(url)
    until(lambda: len(all_text(driver, "td.run a")) == 2)
    for order in (["real", "by-hand"], ["by-hand", "real"]):
        sort_by(driver, "Run")
        until(lambda order=order: all_text(driver, "td.run a") == order)
    assert "order=-name" in driver.current_url
    driver.execute_script(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#'; }"
    )
    driver.find_element("css selector", "button.save").click()
    saved = until(lambda: driver.execute_script("return window.saved"))
    assert next(row["Reward"] for row in csv.DictReader(saved.splitlines())) == "+0.20"


def test_five_agents_fit_a_laptop(driver: Any, place: Path) -> None:
    agents = 5
    said = record(*(turn(agent) for agent in range(agents)), num_agents=agents)
    nothing = {"generator": [[0.0]] * agents, "judge": [[0.0]] * agents}
    run = write_run(place / "five" / "agents", {1: [{**said, "rewards": nothing, "advantages": nothing, "votes": []}]})
    with visiting(driver, run, cache=place / "cache") as url:
        resize(driver, 1280, 800)
        driver.get(f"{url}?view=debate&run=agents&debate=1.0")
        until(lambda: len(driver.find_elements("css selector", ".turn")) == agents)
        row = driver.find_element("css selector", ".turns")
        assert row.get_property("scrollWidth") <= row.get_property("clientWidth")


def test_the_list_goes_on_as_far_as_one_reads(driver: Any, url: str, runs: Path) -> None:
    resize(driver, 1280, 400)
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: len(rows_shown(driver)) == 50)
    driver.execute_script("scrollTo(0, document.body.scrollHeight)")
    until(lambda: len(rows_shown(driver)) == 96)
    assert rows_shown(driver) == [f"{step}.{number}" for step in range(14, 2, -1) for number in range(8)]
