"""The map that the linter enforces knows every module."""

from __future__ import annotations

import re
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
