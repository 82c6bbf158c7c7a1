"""How the page over a run of 100,000 debates, and over 200 small runs, feels: what a reader waits for, measured inside a real browser.

    python bench/view.py                     100,000 debates, about a gigabyte under the temporary folder, removed afterwards
    python bench/view.py --debates 2000 --runs 20    smaller
    python bench/view.py --run DIR           a run you have; nothing is written into it

A few hundred debates are played on the scripted engine and written as every run is; the large run repeats them under questions and
words of their own, so that its files are what `moot train` writes. Times are from the request to the frame in which the result can
be seen, each the middle of five; the first ones are with no index at all, as on a first visit. The small runs, of 24 debates each,
are one run under other settings, three seeds of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browsing import binaries, browser, missing, serving, signed_in

PER_STEP, POOL = 16, 24

# Waits for the frame after `done` first holds; answers with the milliseconds since `start`.
WATCH = """
const [action, done, finished] = arguments;
const start = performance.now();
new Function(action)();
const ready = new Function("return " + done);
(function look() { ready() ? requestAnimationFrame(() => setTimeout(() => finished(performance.now() - start))) : setTimeout(look, 1); })();
"""


def make_run(place: Path, debates: int) -> Path:
    """The pool's step files again and again: questions and a word of their own, tokens shared as hard links."""
    pool = place / "pool"
    options = f"--engine scripted --num-agents 3 --max-rounds 3 --max-tokens 2000 --batch-size {PER_STEP} --warm-questions 0 --eval-every 0"
    count = f"--num-train-datapoints {PER_STEP * POOL}"
    subprocess.run(
        [sys.executable, "-m", "moot", "train", *options.split(), *count.split(), "--run", str(pool)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    run = place / "large"
    (run / "debates").mkdir(parents=True)
    header = json.loads((pool / "run.json").read_text())
    header["config"]["optim"]["num_train_datapoints"] = debates
    (run / "run.json").write_text(json.dumps(header))
    rows = [json.loads(line) for line in (pool / "metrics.jsonl").read_text().splitlines()]
    files = [sorted((pool / "debates").glob(f"*.{kind}")) for kind in ("jsonl", "npz")]
    lines = [file.read_bytes().splitlines() for file in files[0]]
    marker = b'"text": "What is '
    with (run / "metrics.jsonl").open("w") as metrics:
        for step in range(1, -(-debates // PER_STEP) + 1):
            source = step % POOL
            wanted = min(PER_STEP, debates - (step - 1) * PER_STEP)
            said = [
                line.replace(
                    marker,
                    f'"text": "Question {step}-{i}, word{(step * PER_STEP + i) * 7919 % debates}: what is '.encode(),
                    1,
                )
                for i, line in enumerate(lines[source][:wanted])
            ]
            (run / "debates" / f"{step:06d}.jsonl").write_bytes(b"\n".join(said) + b"\n")
            os.link(files[1][source], run / "debates" / f"{step:06d}.npz")
            metrics.write(json.dumps({**rows[source % len(rows)], "step": step}) + "\n")
    return run


def make_runs(place: Path, count: int) -> Path:
    pool = place / "small"
    options = "--engine scripted --num-agents 3 --max-rounds 2 --max-tokens 2000 --batch-size 4 --warm-questions 0 --eval-every 3 --num-train-datapoints 24"
    subprocess.run(
        [sys.executable, "-m", "moot", "train", *options.split(), "--run", str(pool)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    header = json.loads((pool / "run.json").read_text())
    for number in range(count):
        run = place / "many" / f"run-{number:03d}"
        shutil.copytree(pool, run, ignore=shutil.ignore_patterns("checkpoints"))
        header["config"]["seed"], header["config"]["optim"]["learning_rate"] = number % 3, 1e-6 * (1 + number // 3)
        (run / "run.json").write_text(json.dumps(header))
    return place / "many"


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return json.load(answer)


def show(what: str, milliseconds: float, note: str = "") -> None:
    print(f"  {what:<58}{milliseconds:>9,.0f} ms  {note}", flush=True)


def first_paint(driver: Any, url: str, done: str) -> tuple[float, float]:
    """First contentful paint, and the moment `done` holds, both since the navigation began."""
    driver.get("about:blank")
    driver.get(url)
    full = driver.execute_async_script(WATCH.replace("performance.now() - start", "performance.now()"), "", done)
    paint = driver.execute_script("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    return paint if paint is not None else float("nan"), full


def middle(measure: Any, times: int = 5) -> float:
    return statistics.median(measure(i) for i in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debates", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=200, help="small runs side by side; 0 for none")
    parser.add_argument("--run", type=Path)
    chosen = parser.parse_args()
    if binaries() is None:
        sys.exit(f"bench/view.py: {missing()[0]}")
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as folder:
        place = Path(folder)
        started = time.perf_counter()
        run = chosen.run or make_run(place, chosen.debates)
        files = list((run / "debates").glob("*.jsonl"))
        size = sum(file.stat().st_size for file in files)
        took = time.perf_counter() - started
        print(
            f"{run.name}: {len(files):,} steps, {size / 1e6:,.0f} MB of text, made in {took:.0f} s; {os.cpu_count()} cores"
        )
        with serving(run, cache=place / "cache") as address, browser(place / "profile") as driver:
            driver.set_script_timeout(300)
            measure(driver, address, run.name, place)
        if chosen.runs:
            many, began = make_runs(place, chosen.runs), time.perf_counter()
            with serving(many, cache=place / "cache") as address:
                print(f"{chosen.runs} runs side by side:")
                show("from the command to its address", 1000 * (time.perf_counter() - began))
                with browser(place / "profile") as driver:
                    driver.set_script_timeout(300)
                    measure_many(driver, address, chosen.runs)


def measure_many(driver: Any, address: str, count: int) -> None:
    url, token = signed_in(driver, address), address.partition("?")[2]
    rows = f"document.querySelectorAll('table.runs td.age').length >= {count}"
    show("runs: all rows on the screen, for the first time", first_paint(driver, url, rows)[1])
    show("runs: first paint", middle(lambda _: first_paint(driver, url, rows)[0]))
    show("runs: all rows on the screen", middle(lambda _: first_paint(driver, url, rows)[1]))

    def answered(_: int) -> float:
        began = time.perf_counter()
        assert len(asked(f"{url}api/runs?{token}")["runs"]) == count
        return 1000 * (time.perf_counter() - began)

    driver.get("about:blank")
    show("runs: the server's answer", middle(answered))


def measure(driver: Any, address: str, run: str, place: Path) -> None:
    url, token = signed_in(driver, address), address.partition("?")[2]
    driver.get("about:blank")
    query = f"{url}?view=debates&run={run}"
    rows = "document.querySelectorAll('tr[data-place]').length >= 50"
    # Curves are drawn when one scrolls to them, so the page is told to.
    scrolled = "(document.querySelector('.curves').scrollIntoView(), document.querySelector('.chart canvas'))"
    chart = f"document.querySelector('.spark polyline') && {scrolled}"

    print("First visit, nothing indexed:")
    began = time.perf_counter()
    paint, full = first_paint(driver, query, rows)
    show("debates: first paint", paint)
    show("debates: the newest fifty on the screen", full)
    paint, full = first_paint(driver, f"{url}?run={run}", chart)
    show("runs: first paint", paint)
    show("runs: trust panel and first curves on the screen", full)
    state: dict[str, Any] = {}
    while not state or state["filed"] < state["steps"]:
        state = asked(f"{url}api/debates?run={run}&limit=1&{token}")["index"]
        time.sleep(0.2)
    show("every debate can be filtered after", 1000 * (time.perf_counter() - began))
    while state["words"] < state["steps"]:
        state = asked(f"{url}api/debates?run={run}&limit=1&{token}")["index"]
        time.sleep(0.5)
    index = sum(file.stat().st_size for file in (place / "cache").rglob("*") if file.is_file())
    show("every word can be searched after", 1000 * (time.perf_counter() - began), f"(index {index / 1e6:,.0f} MB)")

    print("Afterwards:")
    show("debates: first paint", middle(lambda _: first_paint(driver, query, rows)[0]))
    show("debates: the newest fifty on the screen", middle(lambda _: first_paint(driver, query, rows)[1]))
    show(
        "runs: trust panel and first curves on the screen",
        middle(lambda _: first_paint(driver, f"{url}?run={run}", chart)[1]),
    )
    first_paint(driver, query, rows)
    for what, name, values in (
        ("filter: some right, some wrong", "correct", ("mixed", "")),
        ("filter: failed turns", "failed", ("yes", "")),
        ("filter: an alarm rang", "alarm", ("random_noise", "")),
        ("filter: votes say nothing (few or none)", "signal", ("no", "")),
        ("sort: most agreement first", "sort", ("agreement", "")),
    ):
        show(what, middle(lambda i, n=name, v=values: changed(driver, n, v[i % 2], "change")))
    driver.execute_script("document.querySelector('.clear')?.click()")
    total = asked(f"{url}api/debates?run={run}&limit=1&{token}")["counts"]["debates"]
    words = [f"word{i * 37 % total}" for i in range(5)]
    show(
        "search: a word that one debate has",
        middle(lambda i: changed(driver, "q", words[i], "input")),
        "(250 of them the pause after typing)",
    )
    show(
        "search: a word that nearly all have",
        middle(lambda i: changed(driver, "q", ["answer", "solution"][i % 2], "input")),
        "(likewise)",
    )
    driver.get(query)
    driver.execute_async_script(WATCH, "", rows)
    driver.execute_script("document.querySelector('tr[data-place] a').click()")
    title = "document.querySelector('.turn') && !document.querySelector('.crumbs .waiting')"
    driver.execute_async_script(WATCH, "", title)
    click = "document.querySelector('.crumbs a.step:last-child').click()"
    show("the next debate", middle(lambda _: driver.execute_async_script(WATCH, click, title)))
    shade = "document.querySelectorAll('.tools .switch button')[arguments[0]].click()"
    show(
        "credit shading of a debate",
        middle(
            lambda i: driver.execute_async_script(
                WATCH,
                shade.replace("arguments[0]", str(1 - i % 2)),
                "document.querySelectorAll('.tokens').length " + (">" if i % 2 == 0 else "==") + " 0",
            )
        ),
    )
    heap = driver.execute_script("return performance.memory?.usedJSHeapSize ?? 0")
    print(
        f"  the page holds {heap / 1e6:.0f} MB; console: {[entry['message'][:200] for entry in driver.get_log('browser')] or 'silent'}"
    )


def changed(driver: Any, name: str, value: str, event: str) -> float:
    """Sets a filter and waits for the list and the counts that answer it."""
    action = f"""
      window.before = document.querySelector('table.debates tbody').firstElementChild;
      const field = document.querySelector('[name={name}]');
      field.value = {json.dumps(value)};
      field.dispatchEvent(new Event('{event}', {{bubbles: true}}));
    """
    return float(
        driver.execute_async_script(
            WATCH, action, "document.querySelector('table.debates tbody').firstElementChild !== window.before"
        )
    )


if __name__ == "__main__":
    main()
