"""The map that the linter enforces knows every module."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_module_stands_in_a_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(each["layers"] for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    placed = [name.strip() for layer in layers for name in re.split("[|:]", layer)]
    assert len(placed) == len(set(placed))
    files = [file.relative_to(ROOT / "src").with_suffix("") for file in sorted((ROOT / "src" / "moot").rglob("*.py"))]
    modules = [".".join(file.parts) for file in files if file.name != "__init__"]
    assert len(modules) > 100
    assert [
        name for name in modules if not any(name == layer or name.startswith(f"{layer}.") for layer in placed)
    ] == []
    assert [
        layer for layer in placed if not any(name == layer or name.startswith(f"{layer}.") for name in modules)
    ] == []


def test_the_house_keeps_its_numbers() -> None:
    """Those that `scripts/counts` prints and that may not grow; it measures the help too, with the Python it has."""
    printed = subprocess.run([sys.executable, ROOT / "scripts" / "counts"], capture_output=True, text=True, check=True)
    numbers = dict(re.findall(r"(?m)^(.+?) {2,}(\d+)$", printed.stdout))
    most = {
        "settings of a training run": 60,
        "lines of moot train --help": 80,
        "lines wider than 120 columns": 0,
        "modules at the top of src/moot": 5,
        "import layers": 10,
        "branches on assigned positions outside advocates": 0,
        "tests of an engine's name outside engine/ and cli/": 0,
        "isinstance on the shape of scores": 0,
        "variables called each": 0,
    }
    assert set(most) <= set(numbers), printed.stdout
    assert {name: numbers[name] for name, limit in most.items() if int(numbers[name]) > limit} == {}


def test_both_walks_name_files_and_functions_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text[text.index("## One step") : text.index("## Habits")]
    words = set(re.findall(r"`([\w./]+)`", walks))
    files = {word for word in words if word.endswith((".py", ".js", "/"))}
    assert len(files) > 40 and len(words - files) > 50
    there = [str(file.relative_to(ROOT / "src" / "moot")) for file in (ROOT / "src" / "moot").rglob("*")]
    assert [file for file in files if not any(f"/{place}".endswith(f"/{file.rstrip('/')}") for place in there)] == []
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src" / "moot").rglob("*.py"))
    names = {word.rpartition(".")[2] for word in words - files}
    assert [name for name in names if not re.search(rf"(?:def|class) {name}\b|^    {name}: ", code, re.M)] == []
