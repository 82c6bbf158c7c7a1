"""Runs on disk made from debates in shorthand, scored as training scores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moot.debate.protocols import V2, Protocol
from moot.debate.rewards import Reward
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Question, Said
from moot.rl.advantages import ESTIMATORS, SeatMeans, with_advantages
from moot.runs import PlayedDebate, Run
from moot.tasks.answers import grade
from support.making import Tabled, text

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
    recipe: dict[str, Any] | None = None,
) -> Run:
    """A run whose step 1, 2, ... holds these debates."""
    protocol = protocol.with_choices(reward_mix=mix, correct_bonus=bonus)
    config: dict[str, Any] = {
        "protocol": protocol.as_dict(),
        "model": {"model": "tiny", "engine": engine},
        "recipe": recipe or {},
    }
    run, seats = Run.create(path, config, {"moot": "test"}), SeatMeans()
    scoring = protocol.scoring
    own = (rewards or {}).get(scoring.reward)
    for number, debates in enumerate(steps, 1):
        played = [PlayedDebate(debate) for debate in debates if debate is not LOST]
        scored = [each.scored(counted(each.debate, scoring), grade(each.debate), own) for each in played]
        taught = iter(with_advantages(scored, ESTIMATORS[scoring.estimator], seats))
        lost = PlayedDebate(LOST, error="EngineError: the server went away", scoring=scoring)
        run.write_debates(number, [lost if debate is LOST else next(taught) for debate in debates])
        run.append_metrics({"step": number, "phase": "self_play"})
    return run


def counted(debate: Debate, scoring: Scoring) -> Scoring:
    """With outside judges as the debate has them."""
    return replace(scoring, voters=debate.scoring.voters) if isinstance(debate, Tabled) else scoring


def judged(protocol: Protocol, jury_counts: bool = True, words: str = "Fine.") -> Tabled:
    """One round of three answers, a closing ballot in which agent 0 prefers agent 1 to agent 2, and an outside judge who sees it
    the other way round; all by the author's own labels."""
    scoring = replace(protocol.scoring, voters="both" if jury_counts else "agents")
    empty = Tabled(Question("What is 3 + 4?", "7", id="q"), 3, 1, protocol.rules, scoring=scoring)
    answers = tuple(
        empty.read(1, agent, Said(text(solution=f"\\boxed{{{5 + agent}}}", evaluation=words))) for agent in range(3)
    )

    def ballot(author: int, better: int, worse: int) -> Said:
        labels = empty.labels(author)
        line = f"Agent {labels[better]} > Agent {labels[worse]}"
        return Said(
            f"<evaluation>Agent {labels[better]} is right. {words}</evaluation>\n<comparison>{line}</comparison>"
        )

    nothing = Said("<evaluation>N/A</evaluation>\n<comparison>N/A</comparison>")
    closing = (
        empty.read(2, 0, ballot(0, 1, 2), ballot=True),
        *(empty.read(2, agent, nothing, ballot=True) for agent in (1, 2)),
    )
    turns = (*answers, *closing) if protocol.rules.closing_ballot else answers
    return replace(empty, turns=turns).heard([ballot(3, 2, 1), ballot(4, 2, 1)])  # type: ignore[return-value]
