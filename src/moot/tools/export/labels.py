"""Labels as a training set: the questions of a file that `moot label` wrote, each with a solution that ends in its
label.

supervised     {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}], "row": 12}
"""

from __future__ import annotations

from pathlib import Path

from moot.errors import ConfigError
from moot.tasks.files import QUESTION, is_label, is_trusted
from moot.tasks.rows import Raw, read
from moot.tools.asked import asked_record
from moot.tools.export import sets
from moot.tools.export.places import new_file
from moot.tools.export.sets import LeftOut, Row, Written


def export_labels(file: Path, target: Path, only_right: bool = False) -> Written:
    """The labels that are trusted, or of these the ones that are known to be right."""
    rows = read(file) if file.suffix in (".jsonl", ".csv") else []
    if not rows or not all(is_label(raw) for _, raw in rows):
        raise ConfigError(f"{file} is neither a run's folder nor a file of labels; moot label writes one")
    with new_file(target) as made:
        numbered = enumerate((raw for _, raw in rows), 1)
        return sets.write(numbered, lambda label: [{**_supervised(label[1], only_right), "row": label[0]}], made)


def _supervised(raw: Raw, only_right: bool) -> Row:
    if not is_trusted(raw):
        raise LeftOut("the label is not trusted")
    if only_right and str(raw.get("right")).lower() != "true":
        raise LeftOut("the label is not known to be right")
    record = asked_record(raw)
    question = str(next(raw[name] for name in QUESTION if name in raw))
    instruction = str(record["settings"]["instruction"]) if record else ""
    asked = "\n\n".join(filter(None, (question, instruction)))
    # What the best holder of the label wrote; where rows have lost that, the label alone.
    said = str(raw.get("solution") or f"\\boxed{{{raw['answer']}}}")
    return {
        "prompt": [{"role": "user", "content": asked}],
        "completion": [{"role": "assistant", "content": said}],
    }
