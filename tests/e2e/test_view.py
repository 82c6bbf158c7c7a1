"""The page as a reader uses it: a real run, the real command, a real browser."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.accessible import findings
from support.browsing import binaries, browser, missing, resize, scheme, serving
from support.making import command, surroundings
from support.paging import record, turn, write_run, write_step

pytestmark = pytest.mark.slow

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
        command("train", *TRAIN.split(), "--run", place / "runs" / "real"), env=surroundings(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [{"step": step, "phase": "self_play", "env/all/reward/total": step / 10, "odd/one": None} for step in (1, 2, 3)]
    write_run(place / "runs" / "by-hand", {1: [record()], 2: [record(question="What is $x^2$ at 3?")]}, rows)
    return place / "runs"


@pytest.fixture(scope="module")
def url(runs: Path, place: Path, driver: Any) -> Iterator[str]:
    with serving(runs, cache=place / "cache") as address:
        yield address


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
    with serving(*runs, cache=cache) as url:
        try:
            yield url
        finally:
            driver.get("about:blank")


def until(found: Callable[[], Any], what: str = "", seconds: float = 15) -> Any:
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
    return driver.execute_script("return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText.trim())", selector)


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
    return driver.execute_script("return [...document.querySelectorAll('tr[data-place]')].map((row) => row.dataset.place)")


def settled(driver: Any) -> list[str]:
    """All rows of a list that is short enough to be there at once, when the index is through."""
    until(lambda: all_text(driver, "#found") and all_text(driver, "#found .waiting") == [""], "the index is through")
    return rows_shown(driver)


# Runs side by side


def test_runs_stand_side_by_side_with_their_alarms_in_words_and_every_metric(driver: Any, url: str, runs: Path) -> None:
    driver.get(url)
    names = until(lambda: len(all_text(driver, "td.run a")) == 2 and all_text(driver, "td.run a"))
    assert sorted(names) == ["by-hand", "real"]
    assert "Votes look like coin tosses" in one_text(driver, ".alarm h3")
    assert "What to do:" in one_text(driver, ".alarm")
    assert "Judges prefer right answers" in "\n".join(until(lambda: all_text(driver, "table.trust tbody th")))
    measured = set()
    for line in (runs / "real" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        phase = "eval" if row["phase"] == "eval" else "train"
        measured |= {f"{phase} {key}" for key, value in row.items() if key not in ("step", "phase") and value is not None}
    assert len(measured) > 60
    shown = driver.execute_script("return [...document.querySelectorAll('.chart')].map((chart) => chart.dataset.id)")
    assert measured <= set(shown)
    assert not driver.find_elements("css selector", ".chart canvas")  # nobody has scrolled to them
    driver.execute_script("document.querySelector('.charts').scrollIntoView()")
    until(lambda: driver.find_elements("css selector", ".chart canvas"), "a curve is drawn")


def test_a_metric_is_found_by_its_name_or_what_it_means_and_the_link_keeps_it(driver: Any, url: str) -> None:
    driver.get(url)
    field = until(lambda: driver.find_element("css selector", ".curves input[type=search]"))
    until(lambda: driver.find_elements("css selector", ".chart"))
    field.send_keys("gradient clipping")
    until(lambda: all_text(driver, ".chart:not([hidden]) figcaption span") == ["optim/grad_norm"])
    assert "find=gradient+clipping" in driver.current_url
    driver.get(driver.current_url)
    until(lambda: all_text(driver, ".chart:not([hidden]) figcaption span") == ["optim/grad_norm"])
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
    until(lambda: one_text(driver, ".chart:not([hidden]) .values").startswith("0.300"), "the last value of the run by hand")
    assert "run=by-hand" in driver.current_url and "run=real" not in driver.current_url


def test_the_page_claims_no_more_than_its_intervals_say(driver: Any, url: str) -> None:
    driver.get(f"{url}?run=real")
    first = one_text(driver, "table.trust tbody tr:first-child td")
    assert re.fullmatch(r"\d+%\s\[\d+%, \d+%\]\s+cannot be told from guessing \(50%\)", first)  # as the alarm says
    assert "Judges prefer right answers" in all_text(driver, ".key .chart figcaption span")[0]
    assert len(all_text(driver, ".key .chart")) == 5
    assert "--reward-mix 0.3" in all_text(driver, ".alarm code")
    readings = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; import('/static/glossary.js').then(({TRUST}) => done(arguments[0].map("
        "([low, high]) => TRUST['trust/judge_accuracy'].read(0.49, {low, high})[0])))",
        [[0.41, 0.57], [0.40, 0.49], [0.51, 0.7], [None, None]],
    )
    assert readings == ["fair", "bad", "good", "plain"]


def test_runs_of_one_recipe_stand_together_and_are_ticked_together(driver: Any, place: Path) -> None:
    for seed, reward in ((0, 1.0), (1, 2.0), (2, 6.0)):
        run = write_run(place / "seeds" / f"s{seed}", {}, [{"step": 1, "phase": "self_play", "env/all/reward/total": reward}])
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


# Debates: filters, search, links


def test_filters_leave_what_the_records_say(driver: Any, url: str, runs: Path) -> None:
    known = records(runs / "real")
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: one_text(driver, "#found").startswith(f"{len(known)} debates"))
    failed = sum(any("failure" in turn for turn in each["turns"]) for each in known.values())
    from selenium.webdriver.support.select import Select

    Select(driver.find_element("name", "failed")).select_by_value("no")
    until(lambda: one_text(driver, "#found").startswith(f"{len(known) - failed} debate"))
    none = {f"{step}.{number}" for (step, number), each in known.items() if not any("failure" in turn for turn in each["turns"])}
    assert set(settled(driver)) == none and 0 < len(none) < 50
    assert "failed=no" in driver.current_url

    driver.get(f"{url}?view=debates&run=real&from=5&to=6&disagree=yes")
    last = {place: {t["agent"]: t["answer"] for t in each["turns"] if "failure" not in t} for place, each in known.items()}
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


def test_what_evaluations_played_is_listed_and_a_question_is_followed_from_step_to_step(driver: Any, url: str, runs: Path) -> None:
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


def test_the_list_goes_on_as_far_as_one_reads(driver: Any, url: str, runs: Path) -> None:
    resize(driver, 1280, 400)
    driver.get(f"{url}?view=debates&run=real")
    until(lambda: len(rows_shown(driver)) == 50)
    driver.execute_script("scrollTo(0, document.body.scrollHeight)")
    until(lambda: len(rows_shown(driver)) == 96)
    assert rows_shown(driver) == [f"{step}.{number}" for step in range(14, 2, -1) for number in range(8)]


# One debate


def test_a_debate_shows_its_votes_as_they_were_cast(driver: Any, url: str, runs: Path) -> None:
    def voted_in(each: dict[str, Any]) -> set[int]:
        return {each["turns"][vote["turn"]]["round"] for vote in each["votes"]}

    found = records(runs / "real").items()
    (step, number), each = next((place, each) for place, each in found if voted_in(each) == {2, 3} and each["winner"] is not None)
    driver.get(f"{url}?view=debate&run=real&debate={step}.{number}")
    until(lambda: driver.find_elements("css selector", ".turn"))
    assert one_text(driver, ".question-box h1") == each["question"]["text"]
    assert one_text(driver, ".truth") == each["question"]["answer"]
    assert len(driver.find_elements("css selector", ".turn")) == len(each["turns"]) == 12
    assert "Methodical Analyst" in one_text(driver, ".turn .persona")
    assert f"Agent {each['winner']} ★" in one_text(driver, ".standing tr.winner th")
    for round in (2, 3):
        cast = [vote for vote in each["votes"] if each["turns"][vote["turn"]]["round"] == round and vote["verdict"] == ">"]
        beat = np.zeros((4, 4), dtype=int)
        for vote in cast:
            beat[each["turns"][vote["left_turn"]]["agent"], each["turns"][vote["right_turn"]]["agent"]] += 1
        cells = driver.execute_script(
            "return [...document.querySelectorAll('.round')[arguments[0]].querySelectorAll('.matrix tbody tr')]"
            ".map((row) => [...row.querySelectorAll('td')].map((cell) => parseInt(cell.firstChild?.textContent) || 0))",
            round - 1,
        )
        assert cells == beat.tolist()
    assert "won with a mean reward of" in one_text(driver, ".why")


def test_hovering_a_token_tells_its_stream_reward_advantage_and_logprob(driver: Any, url: str, runs: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    each = records(runs / "real")[8, 1]
    with np.load(runs / "real" / "debates" / "000008.npz") as arrays:
        k = next(k for k in range(len(arrays["turn"])) if arrays["debate"][k] == 1 and "failure" not in each["turns"][arrays["turn"][k]])
        begin = arrays["offsets"][k]
        advantage, logprob = float(arrays["advantages"][begin + 3]), float(arrays["logprobs"][begin + 3])
        which = int(arrays["turn"][k])
    agent = each["turns"][which]["agent"]
    step = sum(t["agent"] == agent for t in each["turns"][:which])
    reward = each["rewards"]["generator"][agent][step]
    driver.get(f"{url}?view=debate&run=real&debate=8.1")
    until(lambda: driver.find_elements("css selector", ".turn"))
    assert not driver.find_elements("css selector", ".tokens")
    press(driver, "c")
    until(lambda: driver.find_elements("css selector", ".tokens"))
    assert "shade=advantage" in driver.current_url
    token = driver.find_elements("css selector", ".turn")[which].find_elements("css selector", ".tokens span")[3]
    ActionChains(driver).move_to_element(token).perform()
    told = dict(zip(*(until(lambda tag=tag: all_text(driver, f"#tip {tag}")) for tag in ("dt", "dd")), strict=True))
    assert told["section"] == "solution" and told["stream"] == "answers (generator)"
    assert float(told["advantage"].replace("−", "-")) == pytest.approx(advantage, abs=6e-4)
    assert float(told["reward"].replace("−", "-")) == pytest.approx(reward, abs=6e-4)
    assert float(told["logprob"].split()[0].replace("−", "-")) == pytest.approx(logprob, abs=6e-4)
    tints = driver.execute_script(
        "return [...new Set([...document.querySelectorAll('.tokens span')].map((s) => getComputedStyle(s).backgroundColor))].length"
    )
    assert tints >= 3  # for, against, and neither


def test_a_turn_that_could_not_be_read_says_why_and_what_it_costs(driver: Any, url: str, runs: Path) -> None:
    (step, number), each = next((place, each) for place, each in sorted(records(runs / "real").items()) if "failure" in each["turns"][0])
    driver.get(f"{url}?view=debate&run=real&debate={step}.{number}")
    told = one_text(driver, ".turn.failed .failure")
    assert each["turns"][0]["failure"] in told
    assert "it earns −1" in told and "no vote can be about it" in told


def test_keys_lead_through_debates_and_back(driver: Any, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    driver.get(f"{url}?view=debates&run=real")
    until(lambda: len(rows_shown(driver)) >= 50)
    press(driver, "j", "j", "k", "j", Keys.ENTER)
    until(lambda: "debate=14.1" in driver.current_url and all_text(driver, ".turn"))
    press(driver, "j")
    until(lambda: "debate=14.2" in driver.current_url and all_text(driver, ".turn"))
    press(driver, "k")
    until(lambda: "debate=14.1" in driver.current_url and all_text(driver, ".turn"))
    press(driver, "?")
    assert "next, previous" in one_text(driver, "dialog")
    press(driver, "?", Keys.ESCAPE)
    until(lambda: "view=debates" in driver.current_url and rows_shown(driver))
    press(driver, "g", "r")
    until(lambda: driver.find_elements("css selector", "table.runs"))


def test_mathematics_is_typeset_and_what_is_none_stays_text(driver: Any, url: str) -> None:
    driver.get(f"{url}?view=debate&run=by-hand&debate=2.0")
    assert until(lambda: driver.find_elements("css selector", ".question-box h1 .katex"))
    pieces = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; import('/static/maths.js').then(({pieces}) => done(arguments[0].map((text) =>"
        " pieces(text).map((piece) => piece.tex ?? piece.text))))",
        ["It costs $5 and $6.", "so $x=1$.", r"\[a\] and \(b\)", r"is \boxed{\frac{1}{2}}!", r"\boxed{never", "$$", "$$x$$"],
    )
    assert pieces == [
        ["It costs $5 and $6."],
        ["so ", "x=1", "."],
        ["a", " and ", "b"],
        ["is ", r"\boxed{\frac{1}{2}}", "!"],
        [r"\boxed{never"],
        ["$$"],
        ["x"],
    ]


def test_programs_are_highlighted_and_set_against_the_round_before(driver: Any, place: Path) -> None:
    before, after = "def f(n):\n    # two\n    return n // 2", "def f(n):\n    # two\n    return n % 2 == 0"

    def said(agent: int, code: str, round: int) -> dict[str, Any]:
        solution = f"So:\n```python\n{code}\n```"
        made = turn(agent, code, round == 2, round)
        return {**made, "fields": {**made["fields"], "solution": solution}}

    debate = record(
        *(said(agent, code, n) for n, code in ((1, before), (2, after)) for agent in range(3)), answer="# tests of f\nassert f(2)"
    )
    with visiting(driver, write_run(place / "code" / "run", {1: [debate]}), cache=place / "cache") as url:
        driver.get(f"{url}?view=debate&run=run&debate=1.0")
        assert one_text(driver, ".turn .answer") == "3 lines ✗"
        assert all_text(driver, ".turn:first-child .code .k-word")[:2] == ["def", "return"]
        assert one_text(driver, ".changes summary") == "Changes since round 1: 1 line added, 1 removed"
        driver.execute_script("document.querySelector('.changes').open = true")
        lines = [" ".join(line.split()) for line in all_text(driver, ".turn .changes .line")[:4]]
        assert lines == ["def f(n):", "# two", "- return n // 2", "+ return n % 2 == 0"]
        assert findings(driver) == []


def test_ballots_outside_judges_and_shuffled_labels_are_told_apart(driver: Any, place: Path) -> None:
    run = place / "remedied" / "run"
    options = f"{TRAIN} --max-rounds 2 --shuffle-labels --closing-ballot --judge base"
    done = subprocess.run(command("train", *options.split(), "--run", run), env=surroundings(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    each = records(run)[9, 0]
    with visiting(driver, run, cache=place / "cache") as url:
        driver.get(f"{url}?view=debate&run=run&debate=9.0")
        assert until(lambda: all_text(driver, ".round h2")) == ["Round 1", "Round 2", "Closing ballot", "A judge without a seat"]
        assert len(driver.find_elements("css selector", ".turn")) == len(each["turns"]) + 1
        assert driver.find_elements("css selector", ".renamed")
        votes = [sum(int(t.split()[0]) for t in all_text(driver, f".round:nth-of-type({n}) .matrix caption")) for n in range(1, 8)]
        assert sum(votes) == len(each["votes"])


def test_what_an_evaluation_found_stands_with_its_interval(driver: Any, url: str, runs: Path) -> None:
    number = {"value": 0.625, "low": 0.5, "high": 0.75}
    rows = [
        {"name": "direct", "k": 1, "questions": 64, "failed": 0, "tokens": 41.6, "metrics": {"accuracy": number}, "difference": None},
        {"name": "<b>debate</b>", "metrics": {"accuracy": None}, "difference": {"value": -0.05, "low": -0.1, "high": 0.0, "p": 0.0002}},
    ]
    (runs / "by-hand" / "evals" / "held out").mkdir(parents=True, exist_ok=True)
    (runs / "by-hand" / "evals" / "held out" / "report.json").write_text(json.dumps({"format": 1, "rows": rows}))
    driver.get(f"{url}?run=by-hand")
    until(lambda: len(all_text(driver, "table.evals tbody tr")) == 2)
    first, second = ([" ".join(cell.split()) for cell in all_text(driver, f"table.evals tbody tr:nth-child({n}) > *")] for n in (1, 2))
    assert first == ["by-hand held out", "direct", "62.5 [50.0, 75.0]", "–", "–", "–", "–", "–", "64", "42"]
    assert second == ["", "<b>debate</b>", "–", "−5.0 [−10.0, 0.0]", "<0.001", "–", "–", "–", "–", "–"]


def test_another_reward_shows_what_the_command_says(driver: Any, url: str, runs: Path) -> None:
    from selenium.webdriver.support.select import Select

    told = json.loads(
        subprocess.run(
            command("rescore", runs / "real", "--reward", "win_rate", "--json"),
            env=surroundings(),
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
    )
    driver.get(f"{url}?view=rescore&run=real")
    until(lambda: "Every debate keeps its winner" in all_text(driver, "main h2"))
    Select(driver.find_element("name", "reward")).select_by_value("win_rate")
    assert told["changed"] > 0
    until(lambda: f"{told['changed']} debates would have another winner" in all_text(driver, "main h2"))
    mean = all_text(driver, "table.rescored tbody tr:first-child td")
    assert [float(cell.replace("−", "-")) for cell in mean[:2]] == pytest.approx(
        [told["before"]["reward_mean"], told["after"]["reward_mean"]], abs=6e-4
    )
    assert all_text(driver, "table.changes tbody a") == [f"{each['step']}.{each['number']}" for each in told["changes"][:100]]
    assert "reward=win_rate" in driver.current_url


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
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(driver: Any, url: str, colours: str, width: int) -> None:
    resize(driver, width, 900)
    scheme(driver, colours)
    debate = "?view=debate&run=real&debate=8.1"
    for address in ("", "?view=debates&run=real", debate, f"{debate}&shade=advantage", "?view=rescore&run=real"):
        driver.get(url + address)
        until(lambda: driver.find_elements("css selector", "table.trust tbody tr, tr[data-place], .turn, table.rescored"))
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


# While a run is written


def test_a_run_that_is_being_written_is_followed(driver: Any, place: Path) -> None:
    run = place / "live" / "going"
    run.parent.mkdir()
    long = TRAIN.replace("--num-train-datapoints 96", "--num-train-datapoints 40000")
    with (
        subprocess.Popen(
            command("train", *long.split(), "--run", run), env=surroundings(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as trainer,
        visiting(driver, place / "live", cache=place / "cache") as url,
    ):
        try:
            driver.get(url)
            seen: set[str] = set()
            until(lambda: seen.update(all_text(driver, "td.progress")) or len(seen) >= 3, "three states of the same page", 60)
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
        until(lambda: "Here instead?" in all_text(driver, "td.question") and "Gone soon?" not in all_text(driver, "td.question"))
        driver.get(f"{url}?view=debates&run=resumed&q=soon")
        until(lambda: one_text(driver, "#found").startswith("0 debates"))


def test_forecasts_are_drawn_against_what_came_and_stand_beside_each_agent(tmp_path: Path, driver: Any) -> None:
    """Agent 0 won. Of 70 and 72, said by agents 0 and 1, one came true: one point at 71. Agent 2's word cannot be read."""
    said = (("70", 0.7, 0.16), ("72", 0.72, -0.27), ("no idea", None, -0.75))
    forecasts = [{"agent": i, "about": "win", "text": t, "chance": p, "advantage": a} for i, (t, p, a) in enumerate(said)]
    told = record(forecasts=forecasts, protocol={**record()["protocol"], "forecast": "win"})
    row = {"step": 1, "phase": "self_play", "forecast/win_brier": 0.3, "forecast/readable": 2 / 3}
    run = write_run(tmp_path / "runs" / "forecasts", {1: [told]}, [row])
    with visiting(driver, run, cache=tmp_path / "cache") as url:
        driver.get(url)
        picture = until(lambda: driver.find_element("css selector", ".reliability svg"))
        assert picture.get_attribute("aria-label") == "Forecasts of winning, forecasts: said 71%, came true 50% of 2"
        assert "of 2 forecasts" in one_text(driver, ".reliability figcaption")
        assert findings(driver) == []
        driver.get(f"{url}?view=debate&run=forecasts&debate=1.0")
        cells = until(lambda: all_text(driver, ".standing tbody td:nth-last-child(2)"))
        assert cells == ["70%", "72%", "unreadable"]
