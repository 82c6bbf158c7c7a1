"""Run folders that are not as moot left them: one seeded damage after the other, by accident and by intent."""

import hashlib
import io
import json
import os
import random
import shutil
import socket
import zipfile
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
    outside(run)
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
    lines = (
        file.read_text(errors="replace").split("\n") if file.suffix == ".jsonl" else [file.read_text(errors="replace")]
    )
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


# By intent: what somebody puts into a folder before he hands it on

WRITTEN = [
    "lock", "lock.held", "run.json", "metrics.jsonl", "metrics.jsonl.tmp", "run.json.tmp", "visits.jsonl", "labels.jsonl", "debates",
    "held_out", "checkpoints", "evals", "aside", "export", "debates/000003.jsonl", "held_out/000000.json", "checkpoints/000003",
    "checkpoints/000003/state.json", "checkpoints/000003/scripted.json", "checkpoints/000004.tmp", "evals/countdown-step3",
    "evals/countdown-step3/answers.jsonl", "evals/countdown-step3/report.json", "evals/countdown-step3/report.md",
    "evals/countdown-step3/report.json.tmp", "judge", "judge/steps.jsonl", "judge/held_out.jsonl", "judge/serving.json", "judge/000001",
    "loggers.json", "tensorboard",
]  # fmt: skip
COUNTED_REWARDS = ["approval:checks", "approved:checks", "pairs:opponents", "weighted_majority:checks"]
COUNTED_PARTS = [
    "frozen_labels:samples", "judge_training:exercises", "judge_training:checks", "judge_training:held_out", "judge_training:answers",
    "judge_filter:checks", "program_votes:programs", "hard_agents:agents", "easy_agents:agents", "rounds_as_needed:extra_rounds",
]  # fmt: skip
HUGE = ["1" + "0" * 30, "1" + "0" * 400, "-1" + "0" * 400, "1e999", "1" + "0" * 5000, "NaN"]


def outside(run: Path) -> Path:
    """Files of the user, beside the run: whatever a command does, they stay as they are."""
    folder = run.parent / "outside"
    if not folder.exists():
        for name in (
            "thesis.tex",
            "notes/000009.jsonl",
            "notes/000009/state.json",
            "notes/answers.jsonl",
            "notes/report.md",
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("years of work\n")
        (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').write('ran')\ndef f(*a, **k): ...\n")
    return folder


def _cleared(run: Path, chance: random.Random) -> Path:
    """A part of the run, no longer there."""
    place = run / chance.choice(WRITTEN)
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def link(run: Path, chance: random.Random) -> str:
    try:
        place = _cleared(run, chance)
        to = chance.choice(
            [outside(run) / "thesis.tex", outside(run) / "notes", outside(run) / "none", place, run / "run.json", run]
        )
        place.symlink_to(to)
    except OSError:  # another damage took the folder it would stand in
        return "nothing linked"
    return f"{place.relative_to(run)} is a link to {to.name}"


def pipe(run: Path, chance: random.Random) -> str:
    try:
        place = _cleared(run, chance)
        if chance.random() < 0.8:
            os.mkfifo(place)
        else:
            folder = os.open(place.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(
                    f"/proc/self/fd/{folder}/{place.name}"
                )  # because a socket's path may have few characters
            os.close(folder)
    except OSError:
        return "no pipe"
    return f"{place.relative_to(run)} is a pipe or a socket"


def sparse(run: Path, chance: random.Random) -> str:
    if (file := _file(run, chance)) is None:
        return "nothing to stretch"
    os.truncate(file, 3 * 2**30)
    return f"{file.name} has 3 GiB"


def line_ends(run: Path, chance: random.Random) -> str:
    files = sorted(file for file in run.rglob("*.jsonl") if file.is_file())
    if not files:
        return "no lines"
    file, end = chance.choice(files), chance.choice([b"\r", b"", b" ", b"\n\n", b"\r\n", b"\x00"])
    file.write_bytes(file.read_bytes().replace(b"\n", end))
    return f"the lines of {file.name} end in {end!r}"


def in_text(run: Path, chance: random.Random) -> str:
    """A number without measure, or brackets without end, somewhere in the text of a file of JSON."""
    files = sorted(file for file in [*run.rglob("*.json"), *run.rglob("*.jsonl")] if file.is_file())
    if not files:
        return "no JSON"
    file = chance.choice(files)
    content = file.read_text(errors="replace")
    depth = chance.choice([900, 5000, 100_000])
    new = chance.choice([*HUGE, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
    values = [place for place, sign in enumerate(content) if sign == ":"]
    if not values:
        return "nothing in it"
    at = chance.choice(values) + 1
    end = next((k for k in range(at, len(content)) if content[k] in ",}"), len(content))
    file.write_text(content[:at] + new + content[end:])
    return f"{file.name} has {new[:8]}… at {at}"


def sealed(run: Path, chance: random.Random) -> str:
    """An odd value in what a checkpoint remembers, under a seal that fits."""
    files = sorted(file for file in run.rglob("state.json") if file.is_file())
    try:
        file = chance.choice(files)
        body = json.loads(json.loads(file.read_text())["body"])
        owner, key = chance.choice(list(_places(body)))
        owner[key] = chance.choice(ODD)
        text = json.dumps(body)
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return "no state"
    file.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}))
    return f"{file.parent.name}: {key} is odd under its seal"


def code(run: Path, chance: random.Random) -> str:
    """The name of a file of code, wherever a word stands."""
    files = sorted(file for file in run.rglob("*.json") if file.is_file())
    try:
        file = chance.choice(files)
        content = json.loads(file.read_text())
        owner, key = chance.choice([(owner, key) for owner, key in _places(content) if isinstance(owner[key], str)])
    except (IndexError, ValueError, RecursionError):  # another damage nested it
        return "no words"
    owner[key] = f"{outside(run) / 'evil.py'}:f"
    file.write_text(json.dumps(content))
    return f"{file.name}: {key} names code"


def too_many(run: Path, chance: random.Random) -> str:
    """A count that is a number like others, and more than anybody waits for."""
    try:
        header = json.loads((run / "run.json").read_text())
        config, number = header["config"], chance.choice([10_001, 10**6, 10**9 - 1])
        match chance.choice(["eval_questions", "reward", "part"]):
            case "eval_questions":
                config["eval_questions"] = number
            case "reward":
                config["protocol"]["reward"] = chance.choice(COUNTED_REWARDS) + f"={number}"
            case _:
                config["parts"] = [chance.choice(COUNTED_PARTS) + f"={number}"]
        (run / "run.json").write_text(json.dumps(header))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "no settings"
    return f"run.json asks for {number} of something"


def odd_arrays(run: Path, chance: random.Random) -> str:
    import numpy as np

    files = sorted(file for file in run.rglob("*.npz") if file.is_file())
    try:
        file = chance.choice(files)
        with np.load(file) as given:
            arrays = dict(given)
    except (IndexError, ValueError, OSError, EOFError, zipfile.BadZipFile):
        return "no arrays"
    name = chance.choice(sorted(arrays))
    odd = [
        np.array("text"),
        np.zeros((3, 2)),
        np.array(["a", "b"]),
        np.zeros(0),
        np.array(10**12),
        -arrays[name].astype(float),
    ]
    arrays[name] = chance.choice(odd)
    written = io.BytesIO()
    np.savez(written, **arrays)
    file.write_bytes(written.getvalue())
    return f"{file.name}: {name} is odd"


KINDS: list[Callable[[Path, random.Random], str]] = [
    flip_bytes, cut, cut_lines, remove, add, odd_value, odd_value, odd_value, swap_kinds,
    link, link, pipe, pipe, sparse, line_ends, in_text, in_text, sealed, code, odd_arrays, too_many,
]  # fmt: skip
