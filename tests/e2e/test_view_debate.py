"""One debate on the page: votes, tokens, mathematics, programs, and what another reward would have said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moot.debate.protocols import V2
from moot.evaluate.report import Report, ReportRow
from support.accessible import findings
from support.making import command, surroundings
from support.paging import record, turn, write_run
from support.viewing import (
    TRAIN,
    all_text,
    one_text,
    press,
    records,
    rows_shown,
    until,
    visiting,
)

pytestmark = pytest.mark.slow


# One debate


def test_a_debate_shows_its_votes_as_they_were_cast(driver: Any, url: str, runs: Path) -> None:
    def voted_in(each: dict[str, Any]) -> set[int]:
        return {each["turns"][vote["turn"]]["round"] for vote in each["votes"]}

    found = records(runs / "real").items()
    (step, number), each = next(
        (place, each) for place, each in found if voted_in(each) == {2, 3} and each["winner"] is not None
    )
    driver.get(f"{url}?view=debate&run=real&debate={step}.{number}")
    until(lambda: driver.find_elements("css selector", ".turn"))
    assert one_text(driver, ".question-box h1") == each["question"]["text"]
    assert one_text(driver, ".truth") == each["question"]["answer"]
    assert len(driver.find_elements("css selector", ".turn")) == len(each["turns"]) == 12
    assert "Methodical Analyst" in one_text(driver, ".turn .persona")
    assert f"Agent {each['winner']} ★" in one_text(driver, ".standing tr.winner th")
    for round in (2, 3):
        cast = [
            vote for vote in each["votes"] if each["turns"][vote["turn"]]["round"] == round and vote["verdict"] == ">"
        ]
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
        k = next(
            k
            for k in range(len(arrays["turn"]))
            if arrays["debate"][k] == 1 and "failure" not in each["turns"][arrays["turn"][k]]
        )
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
    (step, number), each = next(
        (place, each) for place, each in sorted(records(runs / "real").items()) if "failure" in each["turns"][0]
    )
    driver.get(f"{url}?view=debate&run=real&debate={step}.{number}")
    told = one_text(driver, ".turn.failed .failure")
    assert each["turns"][0]["failure"] in told
    assert "it earns −1" in told and "no vote can be about it" in told


def test_credit_is_drawn_on_what_was_sampled_and_a_cut_turn_is_explained_in_its_own_mode(
    driver: Any, place: Path
) -> None:
    run = place / "asked" / "run"
    options = "--engine scripted --sections asked --batch-size 4 --num-train-datapoints 8 --max-tokens 2000 --warm-questions 0 --eval-every 0"
    done = subprocess.run(
        command("train", *options.split(), "--run", run),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    taught = 0
    with visiting(driver, run, cache=place / "cache") as url:
        for number in range(4):
            driver.get(f"{url}?view=debate&run=run&debate=2.{number}&shade=advantage")
            until(lambda: driver.find_elements("css selector", ".turn .tokens"))
            tinted = driver.execute_script(
                "return [...document.querySelectorAll('.tokens span')].filter((s) => /plus|minus/.test(s.className))"
                ".map((s) => s.textContent)"
            )
            assert [text for text in tinted if "</solution>" in text] == []  # tags are put there; nobody is taught them
            taught += len(tinted)
        assert taught > 0
        why = driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; import('/static/glossary.js').then(({failure}) => done(['asked', 'sampled'].map("
            "(sections) => failure(arguments[0], {sections}).why)))",
            "the solution was cut at its token limit",
        )
    assert why == ["The solution reached its token limit before it was finished, so --max-tokens may be too small."] * 2


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
        [
            "It costs $5 and $6.",
            "so $x=1$.",
            r"\[a\] and \(b\)",
            r"is \boxed{\frac{1}{2}}!",
            r"\boxed{never",
            "$$",
            "$$x$$",
        ],
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
        *(said(agent, code, n) for n, code in ((1, before), (2, after)) for agent in range(3)),
        answer="# tests of f\nassert f(2)",
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
    done = subprocess.run(
        command("train", *options.split(), "--run", run),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    each = records(run)[9, 0]
    with visiting(driver, run, cache=place / "cache") as url:
        driver.get(f"{url}?view=debate&run=run&debate=9.0")
        assert until(lambda: all_text(driver, ".round h2")) == [
            "Round 1",
            "Round 2",
            "Closing ballot",
            "A judge without a seat",
        ]
        assert len(driver.find_elements("css selector", ".turn")) == len(each["turns"]) + 1
        assert driver.find_elements("css selector", ".renamed")
        votes = [
            sum(int(t.split()[0]) for t in all_text(driver, f".round:nth-of-type({n}) .matrix caption"))
            for n in range(1, 8)
        ]
        assert sum(votes) == len(each["votes"])


def test_what_an_evaluation_found_stands_with_its_interval(driver: Any, url: str, runs: Path) -> None:
    number = {"value": 0.625, "low": 0.5, "high": 0.75}
    below = {"value": -0.05, "low": -0.1, "high": 0.0, "p": 0.0002}
    rows = [
        ReportRow("direct", 1, 64, 0, 41.6, {"accuracy": number}),
        ReportRow("<b>debate</b>", 3, 64, 0, 80.0, {"accuracy": None}, below),
        ReportRow("wins", 1, 64, 0, 41.6, {"accuracy": number}),
    ]
    Report({"judge": "big@http://node"}, rows, {}).save(runs / "by-hand" / "evals" / "held out" / "report.json")
    driver.get(f"{url}?run=by-hand")
    until(lambda: len(all_text(driver, "table.evals tbody tr")) == 3)
    assert "wins by big@http://node" in " ".join(all_text(driver, "table.evals tbody tr:nth-child(3)")[0].split())
    first, second = (
        [" ".join(cell.split()) for cell in all_text(driver, f"table.evals tbody tr:nth-child({n}) > *")]
        for n in (1, 2)
    )
    assert first == ["by-hand held out", "direct", "62.5 [50.0, 75.0]", "–", "–", "–", "–", "–", "64", "42"]
    assert second == ["", "<b>debate</b>", "–", "−5.0 [−10.0, 0.0]", "<0.001", "–", "–", "–", "64", "80"]


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
    choice = driver.find_element("name", "reward")
    assert choice.value_of_css_property("max-width") == "none", "as trained (generator_judge) is read whole"
    Select(choice).select_by_value("win_rate")
    assert told["changed"] > 0
    until(lambda: f"{told['changed']} debates would have another winner" in all_text(driver, "main h2"))
    mean = all_text(driver, "table.rescored tbody tr:first-child td")
    assert [float(cell.replace("−", "-")) for cell in mean[:2]] == pytest.approx(
        [told["before"]["reward_mean"], told["after"]["reward_mean"]], abs=6e-4
    )
    assert all_text(driver, "table.changes tbody a") == [
        f"{each['step']}.{each['number']}" for each in told["changes"][:100]
    ]
    assert "reward=win_rate" in driver.current_url


def test_what_judges_thought_of_an_answer_stands_beside_it(driver: Any, place: Path) -> None:
    zeros = {"generator": [[0.0]] * 3}
    told = {"judge": 0, "by": "probability", "tokens": 3}
    checks = [{**told, "turns": [turn], "value": 0.75, "thinking": f"Because {turn}."} for turn in (0, 1, 2)]
    protocol = {**V2.as_dict(), "reward": "approval:checks=1"}
    debate = record(protocol=protocol, checks=checks, rewards=zeros, advantages=zeros, votes=[])
    run = write_run(place / "checked" / "run", {1: [debate]})
    with visiting(driver, run, cache=place / "cache") as url:
        driver.get(f"{url}?view=debate&run=run&debate=1.0")
        assert until(lambda: all_text(driver, ".checks summary")) == ["score 0.75 1 check"] * 3
        driver.execute_script("document.querySelector('.checks').open = true")
        assert one_text(driver, ".checks[open] .part").split("\n") == ["YES BY 75%", "Because 0."]
        assert "judges without a seat checked the answers" in one_text(driver, ".novotes")
