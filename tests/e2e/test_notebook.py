"""The notebook `recipes/tour.ipynb`: executed from the first cell to the last, in a kernel of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "recipes" / "tour.ipynb"


def shown_in(cells: list[Any]) -> list[tuple[str, list[str]]]:
    """Of each output: what is printed, and the kinds in which it is shown. Pictures and addresses in memory differ from run to run."""
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return [("".join(output.get("text", "")), sorted(output.get("data", {}))) for output in outputs]


def test_it_is_kept_with_outputs_of_this_order_and_every_cell_is_python() -> None:
    """Who looks at it on the web runs nothing."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        compile("".join(cell["source"]), NOTEBOOK.name, "exec")
    assert sum("text/html" in kinds for _, kinds in shown_in(cells)) == 3
    assert not any(word in NOTEBOOK.read_text() for word in ("/home/", "/tmp/", "Traceback"))


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
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "this interpreter", "language": "python"})
    )
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="here", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds: list[Any] = [set(output.get("data", {})) for output in shown]
    assert sum("text/html" in kind for kind in kinds) == 3, "two debates and one table"
    assert sum("image/png" in kind for kind in kinds) == 1
    printed = "".join(output.get("text", "") for output in shown)
    assert "winner: 2 with mean rewards (-0.5, 0.0, 0.5)" in printed
    assert (tmp_path / "runs" / "tour" / "run.json").is_file()
    kept = json.loads(NOTEBOOK.read_text())["cells"]
    assert shown_in(kept) == shown_in(notebook.cells), "the outputs that are kept are out of date: execute it anew"
