"""The notebook `recipes/tour.ipynb`: executed from the first cell to the last, in a kernel of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "recipes" / "tour.ipynb"


def test_it_is_kept_without_outputs_and_every_cell_is_python() -> None:
    """Outputs would be out of date with the next change, and nobody would see it."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            compile("".join(cell["source"]), NOTEBOOK.name, "exec")


@pytest.mark.slow
def test_it_runs_and_shows_a_debate_a_table_and_a_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    kernel = tmp_path / "jupyter" / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "this interpreter", "language": "python"}))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="here", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds: list[Any] = [set(output.get("data", {})) for output in shown]
    assert sum("text/html" in kind for kind in kinds) == 3, "two debates and one table"
    assert sum("image/png" in kind for kind in kinds) == 1
    printed = "".join(output.get("text", "") for output in shown)
    assert "winner: 2 with mean rewards (-0.5, 0.0, 0.5)" in printed
    assert (tmp_path / "runs" / "tour" / "run.json").is_file()
