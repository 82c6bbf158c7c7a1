"""A run on disk.

record.py           a played debate as JSON, and back; the only place that knows its names
prompt_of_turn.py   what an agent saw before it spoke
validate.py         whether a record is a debate at all
arrays.py           a step's tokens as arrays, and back
run.py              a run's folder: configuration, metrics, debates, checkpoints, what is set aside
lock.py             one process per run
select.py           steps and debates by their names
"""

from moot.runs.prompt_of_turn import seen
from moot.runs.record import Damaged
from moot.runs.run import Run
from moot.tokens.played import PlayedDebate
from moot.util.disk import write_atomically

__all__ = ["Damaged", "PlayedDebate", "Run", "seen", "write_atomically"]
