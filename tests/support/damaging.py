"""Run folders that are not as moot left them: one seeded damage after the other."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD: list[Any] = [
    None, True, -1, 0, 10**30, 1.5, float("inf"), float("nan"), "", "?", "x" * 5000, "\ud800", [], {}, [[]], {"a": {}}, "../..", 10**12,
]  # fmt: skip
ODD_LINES = [
    b"123", b"{}", b"null", b"[]", b'""', b"{", b"[" * 5000, b"\xff\xfe", b'{"step": 1e999, "phase": "self_play"}', b'{"step": "1"}',
]  # fmt: skip
ODD_NAMES = [
    "debates/odd name.jsonl", "debates/१२.jsonl", "debates/99999999999999999999.jsonl", "debates/000007.jsonl", "debates/1.jsonl",
    "checkpoints/000999", "checkpoints/²", "checkpoints/000002/state.json/x", "evals/x/report.json", "metrics.jsonl.tmp", "aside",
]  # fmt: skip


def damage(run: Path, seed: int) -> str:
    """Damages one to three things, and says which."""
    chance = random.Random(f"damage {seed}")
    return "; ".join(chance.choice(KINDS)(run, chance) for _ in range(chance.randint(1, 3)))


def _file(run: Path, chance: random.Random) -> Path | None:
    files = sorted(file for file in run.rglob("*") if file.is_file())
    return chance.choice(files) if files else None


def flip_bytes(run: Path, chance: random.Random) -> str:
    if (file := _file(run, chance)) is None or not (content := bytearray(file.read_bytes())):
        return "nothing to flip"
    for _ in range(chance.choice([1, 3, 30])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file.write_bytes(content)
    return f"flipped bytes of {file.name}"


def cut(run: Path, chance: random.Random) -> str:
    if (file := _file(run, chance)) is None:
        return "nothing to cut"
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content) + 1)])
    return f"cut {file.name}"


def cut_lines(run: Path, chance: random.Random) -> str:
    files = sorted(file for file in run.rglob("*.jsonl") if file.is_file())
    if not files:
        return "no lines to cut"
    file = chance.choice(files)
    lines = file.read_bytes().split(b"\n")
    lines[chance.randrange(len(lines))] = chance.choice(ODD_LINES)
    file.write_bytes(b"\n".join(lines))
    return f"replaced a line of {file.name}"


def remove(run: Path, chance: random.Random) -> str:
    places = sorted(place for place in run.rglob("*") if place != run)
    if not places:
        return "nothing to remove"
    place = chance.choice(places)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    return f"removed {place.name}"


def add(run: Path, chance: random.Random) -> str:
    name = chance.choice(ODD_NAMES)
    place = run / name
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if "999" in name and "checkpoints" in name:
            place.mkdir(exist_ok=True)
        elif not place.exists():
            place.write_bytes(chance.choice([b"", b"{}\n", b"not json\n"]))
    except OSError:
        return "nothing added"
    return f"added {name}"


def odd_value(run: Path, chance: random.Random) -> str:
    """Puts an odd value somewhere in a file of JSON, or takes a part out."""
    files = sorted(file for file in [*run.rglob("*.json"), *run.rglob("*.jsonl")] if file.is_file())
    if not files:
        return "no JSON"
    file = chance.choice(files)
    lines = file.read_text(errors="replace").split("\n") if file.suffix == ".jsonl" else [file.read_text(errors="replace")]
    i = chance.randrange(len(lines))
    try:
        content = json.loads(lines[i])
    except (ValueError, RecursionError):
        return "no JSON there"
    places = list(_places(content))
    if not places:
        return "nothing in it"
    owner, key = chance.choice(places)
    if isinstance(owner, dict) and chance.random() < 0.3:
        del owner[key]
    elif isinstance(owner, dict) and chance.random() < 0.2:
        owner["of_a_newer_version"] = 1
    else:
        owner[key] = chance.choice(ODD)
    lines[i] = json.dumps(content)
    file.write_text("\n".join(lines))
    return f"{file.name}: {key} is odd"


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(part)


def swap_kinds(run: Path, chance: random.Random) -> str:
    """A folder where a file was, or the other way round."""
    places = sorted(place for place in run.rglob("*") if place != run)
    if not places:
        return "nothing to swap"
    place = chance.choice(places)
    if place.is_dir():
        shutil.rmtree(place)
        place.write_text("a file")
    else:
        place.unlink()
        place.mkdir()
    return f"swapped {place.name}"


KINDS: list[Callable[[Path, random.Random], str]] = [flip_bytes, cut, cut_lines, remove, add, odd_value, odd_value, odd_value, swap_kinds]
