"""A debate and what came of it, as one value; and that value on disk.

played.py   PlayedDebate: the value that flows from self-play through scoring and training to the page
codec.py    a played debate as JSON, and back; the only place that knows its names
seen.py     what an agent saw before it spoke
shape.py    whether a record is a debate at all
arrays.py   a step's tokens as arrays, and back
run.py      a run's folder: configuration, metrics, debates, checkpoints
aside.py    what is out of the way
lock.py     one process per run
files.py    lines of JSON
"""

from moot.runs.prompt_of_turn import seen
from moot.runs.record import Damaged
from moot.runs.run import Run
from moot.tokens.played import PlayedDebate
from moot.util.disk import write_atomically

__all__ = ["Damaged", "PlayedDebate", "Run", "seen", "write_atomically"]
