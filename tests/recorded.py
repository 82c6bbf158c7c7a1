"""Runs on disk made from debates in shorthand, scored as training scores them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moot.debate.protocol import V2, Protocol
from moot.debate.rewards import REWARDS, Reward, mix_truth
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.records import Played, Run
from moot.rl.advantages import ESTIMATORS, SeatMeans, advantages
from moot.rl.rollout import Rollout
from moot.tasks.answers import grade

LOST = Debate(Question("What is 1 + 1?", "2"))
"""Stands for a debate that the engine lost."""


def record(
    path: Path,
    steps: Sequence[Sequence[Debate]],
    protocol: Protocol = V2,
    mix: float = 0.0,
    bonus: float = 0.0,
    rewards: dict[str, Reward] | None = None,
    engine: str = "local",
) -> Run:
    """A run whose step 1, 2, ... holds these debates."""
    config: dict[str, Any] = {
        "protocol": protocol.as_dict(),
        "debate": {"reward_mix": mix, "correct_bonus": bonus},
        "model": {"model": "tiny", "engine": engine},
    }
    run, seats = Run.create(path, config, {"moot": "test"}), SeatMeans()
    known = {**REWARDS, **(rewards or {})}
    for number, debates in enumerate(steps, 1):
        played = [debate for debate in debates if debate is not LOST]
        grades = [grade(debate) for debate in played]
        scores = [
            mix_truth(known[protocol.reward](debate, found), debate, found, mix, bonus)
            for debate, found in zip(played, grades, strict=True)
        ]
        values = advantages(zip(played, scores, strict=True), ESTIMATORS[protocol.advantage], seats)
        found = iter(zip(played, scores, grades, values, strict=True))
        lost = Played(Rollout(LOST, error="EngineError: the server went away"))
        run.write_debates(number, [lost if debate is LOST else _played(*next(found)) for debate in debates])
        run.append_metrics({"step": number, "phase": "self_play"})
    return run


def _played(debate: Debate, *found: Any) -> Played:
    return Played(Rollout(debate), *found)
