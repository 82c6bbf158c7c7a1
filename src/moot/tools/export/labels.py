"""Labels as a training set: the questions of a file that `moot label` wrote, each with a solution that ends in its
label.

supervised     {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}], "row": 12}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from moot.errors import ConfigError
from moot.tasks.files import QUESTION, is_label, is_trusted
from moot.tasks.rows import Raw, read
from moot.tools.asked import asked_record
from moot.tools.export.places import new_file
from moot.tools.export.sets import LONE, LeftOut, Row, Written


def export_labels(file: Path, target: Path, only_right: bool = False) -> Written:
    """The labels that are trusted, or of these the ones that are known to be right."""
    rows = read(file) if file.suffix in (".jsonl", ".csv") else []
    if not rows or not all(is_label(raw) for _, raw in rows):
        raise ConfigError(f"{file} is neither a run's folder nor a file of labels; moot label writes one")
    written = Written(left_out=Counter())
    with new_file(target) as made:
        for number, (_, raw) in enumerate(rows, 1):
            try:
                for row in _supervised(raw, only_right):
                    text = json.dumps({**row, "row": number}, ensure_ascii=False)
                    made.write(LONE.sub("\ufffd", text).encode() + b"\n")
                    written.rows += 1
            except LeftOut as reason:
                written.left_out[str(reason)] += 1
    return written


def _supervised(raw: Raw, only_right: bool) -> Iterator[Row]:
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
    yield {
        "prompt": [{"role": "user", "content": asked}],
        "completion": [{"role": "assistant", "content": said}],
    }
