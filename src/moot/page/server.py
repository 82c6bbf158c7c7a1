"""What may be asked of the page's server: each question a method, each answer JSON."""

from __future__ import annotations

import hashlib
import json
import math
import mimetypes
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moot.errors import ConfigError
from moot.page import debate as debates
from moot.page.about import about
from moot.page.csv_table import as_csv
from moot.page.filters import Refused, Where, where, whole
from moot.page.guard import Guard
from moot.page.index import COLUMNS, Index, Part
from moot.page.judging import Trials
from moot.page.order import order_of
from moot.page.rescoring import rescored
from moot.page.runs import AXES, Metrics, Outside, Runs, Series, Watched, thinned
from moot.page.trust import measured
from moot.rl.alarms import ALARMS
from moot.rl.trust_help import PANEL

STATIC = Path(__file__).parent / "static"
MOST = 200
"""Debates in one answer."""


def make_app(runs: Runs, cache: Path, trials: Trials = Trials(())) -> Guard:
    """`cache` is where indexes go. Who asks must know the guard's token."""
    page = _Page(runs, cache, trials)
    questions = [name for name in vars(_Page) if not name.startswith("_")]
    routes = [
        *(Route(f"/api/{name}", _json(getattr(page, name))) for name in questions),
        *(Route(path, _file(content, kind)) for path, content, kind in _static()),
    ]
    return Guard(Starlette(routes=routes))


class NotThere(Exception):
    """Nothing has that name; the message says what."""


# Answers


def _json(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """A plain function, so that Starlette runs it in a thread: it reads files."""

    def respond(request: Request) -> Response:
        try:
            try:
                found = answer(request)
            except sqlite3.DatabaseError:
                # Asked once more, it has the index made again, if that is what was wrong.
                found = answer(request)
            if isinstance(found, Response):
                return found
            text, status = _as_json(found), 200
        except tuple(_STATUS) as error:
            kind = next(kind for kind in _STATUS if isinstance(error, kind))
            text, status = _as_json({"error": _SAID.get(kind, "{}").format(error)}), _STATUS[kind]
        return Response(text, status, {"cache-control": "no-store"}, "application/json")

    return respond


_STATUS: dict[type[Exception], int] = {
    NotThere: 404,
    Refused: 400,
    ConfigError: 400,
    Outside: 403,
    RecursionError: 400,
    sqlite3.DatabaseError: 503,
}
_SAID: dict[type[Exception], str] = {
    RecursionError: "what this run holds is nested too deep to be shown",
    sqlite3.DatabaseError: "the index cannot be read just now ({}); it is being made again",
}


def _as_json(body: Any) -> str:
    """ASCII only: half a surrogate has no UTF-8, but it has an escape."""
    return json.dumps(_finite(body), allow_nan=False)


def _finite(value: Any) -> Any:
    """A record may hold NaN, which is not JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _static() -> list[tuple[str, bytes, str]]:
    """The files by name, read once: there is no path to escape from."""
    kinds = {".js": "text/javascript", ".woff2": "font/woff2"}
    files = []
    for file in sorted(STATIC.rglob("*")):
        if file.is_file():
            name = file.relative_to(STATIC).as_posix()
            kind = kinds.get(file.suffix) or mimetypes.guess_type(name)[0] or "text/plain"
            files.append(("/" if name == "index.html" else f"/static/{name}", file.read_bytes(), kind))
    return files


def _file(content: bytes, kind: str) -> Callable[[Request], Response]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    def respond(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, 200, headers, kind)

    return respond


class _Page:
    """The questions the page asks: each public method answers under /api/ and its name."""

    def __init__(self, runs: Runs, cache: Path, trials: Trials) -> None:
        self._runs, self._cache, self._trials = runs, cache, trials
        self._indexes: dict[tuple[Path, Part], Index] = {}
        self._filling: dict[tuple[Path, Part], threading.Thread] = {}
        self._lock = threading.Lock()

    def runs(self, request: Request) -> Any:
        rows = []
        for run in self._runs.all().values():
            summary = run.summary()
            index = self._indexes.get((run.path, "debates"))
            rows.append({**summary, "debates": None if index is None else vars(index.progress)})
        places = [str(place) for place in self._runs.places]
        return {"runs": rows, "places": places, "judges": list(self._trials.all())}

    def metrics(self, request: Request) -> Any:
        return {
            run.name: run.ask(lambda m: {"rows": m.rows, "step": m.step, "phases": m.keys()})
            for run in self._named(request)
        }

    def curves(self, request: Request) -> Any:
        points = min(5000, max(10, whole("points", request.query_params.get("points", "800"))))
        asked, axis = request.query_params, request.query_params.get("x", "step")
        if axis != "step" and axis not in AXES:
            raise Refused(f"x must be step, {' or '.join(AXES)}, got {axis[:40]!r}")
        phase, keys = asked.get("phase", "train"), asked.getlist("key")[:200]

        def curve(metrics: Metrics, series: Series) -> Any:
            """Steps and values, and where they stand on the axis if that is another one."""
            thin = thinned(series, points)
            return thin if axis == "step" else (*thin, metrics.along(axis, thin))

        def curves(metrics: Metrics) -> Any:
            columns = metrics.series.get(phase, {})
            return {key: curve(metrics, columns[key]) for key in keys if key in columns}

        return {run.name: run.ask(curves) for run in self._named(request)}

    def about(self, request: Request) -> Any:
        return about(self._run(request))

    def config(self, request: Request) -> Any:
        run = self._run(request)
        return {"name": run.name, "path": str(run.path), "header": run.header()}

    def trust(self, request: Request) -> Any:
        return {run.name: measured(run.path, run.ask(lambda m: m.step)) for run in self._named(request)}

    def evals(self, request: Request) -> Any:
        return {run.name: run.evals() for run in self._named(request)}

    def words(self, request: Request) -> Any:
        """What the trust panel and the alarms mean, in the words the loop uses too."""
        return {key: vars(meaning) for key, meaning in (PANEL | ALARMS).items()}

    def rescore(self, request: Request) -> Any:
        return rescored(self._run(request).path, dict(request.query_params))

    def judges(self, request: Request) -> Any:
        """What `moot judge` reported, folder by folder."""
        return self._trials.reports()

    def verdicts(self, request: Request) -> Any:
        name, begin = (request.query_params.get(key, "") for key in ("judge", "begin"))
        found = self._trials.questions(name, whole("begin", begin or "0"))
        if found is None:
            raise NotThere(f"there is no folder {name[:200]!r} of moot judge here")
        return found

    def debates(self, request: Request) -> Any:
        asked = request.query_params
        run = self._run(request)
        index = self._index(run, _part(request), wait=0.5)
        chosen = self._where(run, index, request)
        limit = min(MOST, max(1, whole("limit", asked.get("limit", "50"))))
        after = _place("after", asked["after"]) if asked.get("after") else None
        rows = index.page(chosen, after, limit + 1, order_of(asked))
        more = rows[limit - 1] if len(rows) > limit else None
        return {
            "rows": rows[:limit],
            "next": None if more is None else f"{more['step']}.{more['number']}",
            "counts": index.counts(chosen) if after is None and asked.get("counts") != "no" else None,
            "index": {**vars(index.progress), "searchable": index.searchable, "trouble": index.trouble},
        }

    def table(self, request: Request) -> Any:
        """The list of debates as a file, all that the filters leave."""
        run = self._run(request)
        index = self._index(run, _part(request), wait=0.5)
        rows = index.page(self._where(run, index, request), None, -1, order_of(request.query_params))
        name = re.sub(r"[^\w.-]+", "-", run.name, flags=re.ASCII)
        saved = {"content-disposition": f'attachment; filename="{name}-debates.csv"', "cache-control": "no-store"}
        return Response(as_csv(COLUMNS, rows), 200, saved, "text/csv")

    def debate(self, request: Request) -> Any:
        asked, (run, here, index) = request.query_params, self._pointed_at(request)
        shown = debates.shown(run.path, *here, index.place(*here), index.part)
        if shown is None:
            raise NotThere(f"{run.name} has no debate {here[1]} at step {here[0]}; it may not be written yet")
        chosen = self._where(run, index, request)
        order = order_of(asked)
        before, after = index.before(chosen, here, order), index.page(chosen, here, 1, order)
        return {
            **shown,
            "run": run.name,
            "previous": None if before is None else f"{before[0]}.{before[1]}",
            "next": f"{after[0]['step']}.{after[0]['number']}" if after else None,
            "same": index.counts(where({"same": asked.get("debate", "")}, lambda _: []))["debates"],
            "alarms": []
            if index.part == "held_out"
            else run.ask(lambda m: [alarm for alarm in ALARMS if here[0] in m.ringing(alarm.removeprefix("alarm/"))]),
        }

    def seen(self, request: Request) -> Any:
        """What the agent of a turn saw: long, so it is asked for when somebody wants to read it."""
        run, here, index = self._pointed_at(request)
        turn = whole("turn", request.query_params.get("turn", ""))
        messages = debates.seen_in(run.path, *here, turn, run.prompts(), index.place(*here), index.part)
        if messages is None:
            raise NotThere(f"{run.name} has no such turn that can be read")
        return {"messages": messages}

    # What they share

    def _run(self, request: Request) -> Watched:
        name = request.query_params.get("run", "")
        run = self._runs.get(name)
        if run is None:
            raise NotThere(
                f"there is no run {name[:200]!r} here; there are {', '.join(list(self._runs.all())[:10]) or 'none'}"
            )
        return run

    def _pointed_at(self, request: Request) -> tuple[Watched, tuple[int, int], Index]:
        """The debate that a link names: its run, its step and number, and the index that knows where it is."""
        run = self._run(request)
        return run, _place("debate", request.query_params.get("debate", "")), self._index(run, _part(request), wait=0.1)

    def _named(self, request: Request) -> list[Watched]:
        runs = self._runs.all()
        return [runs[name] for name in request.query_params.getlist("run")[:50] if name in runs]

    def _where(self, run: Watched, index: Index, request: Request) -> Where:
        def ringing(alarm: str) -> list[int]:
            if alarm != "any" and f"alarm/{alarm}" not in ALARMS:
                raise Refused(
                    f"alarm must be any, {', '.join(a.removeprefix('alarm/') for a in ALARMS)}, got {alarm[:40]!r}"
                )
            return run.ask(lambda metrics: metrics.ringing(alarm))

        return where(dict(request.query_params), ringing, index.searchable)

    def _index(self, run: Watched, part: Part, wait: float) -> Index:
        """The run's index, being brought up to date beside us; a short wait lets a small run be there at once."""
        with self._lock:
            index = self._indexes.setdefault((run.path, part), Index(run.path, self._cache, part))
            worker = self._filling.get((run.path, part))
            if worker is None or not worker.is_alive():
                worker = threading.Thread(target=index.fill, name="index", daemon=True)
                self._filling[run.path, part] = worker
                worker.start()
        until = time.monotonic() + wait
        while worker.is_alive() and time.monotonic() < until:
            worker.join(0.01)
            progress = index.progress
            # The newest come first: a large run has its first page long before it has all.
            if progress.filed and (progress.filed == progress.steps or progress.filed * 4 >= MOST):
                break
        return index


def _part(request: Request) -> Part:
    return "held_out" if request.query_params.get("set") == "held_out" else "debates"


def _place(name: str, text: str) -> tuple[int, int]:
    step, _, number = text.partition(".")
    return whole(f"{name}'s step", step), whole(f"{name}'s number", number)
