"""Out of the way, and still there: what a restart, or a return to an older checkpoint, takes out of a run."""

from __future__ import annotations

from pathlib import Path

from moot.runs.lock import HELD, NAME


def new_aside(run: Path) -> Path:
    """The next folder under the run's `aside`: 001, 002, …"""
    folder = run / "aside"
    folder.mkdir(exist_ok=True)
    taken = [int(place.name) for place in folder.iterdir() if place.name.isascii() and place.name.isdigit()]
    place = folder / f"{max(taken, default=0) + 1:03d}"
    place.mkdir()
    return place


def set_aside(run: Path) -> Path:
    """Moves all of a run, damaged or not, into a folder of its own under `aside`, where it is still a run; answers with
    that folder."""
    aside = new_aside(run)
    # run.json last: until then a kill leaves a run that says what is missing.
    for file in sorted(run.iterdir(), key=lambda file: file.name == "run.json"):
        if file.name not in ("aside", NAME, HELD):
            file.rename(aside / file.name)
    return aside
