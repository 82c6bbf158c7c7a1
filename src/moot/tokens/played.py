"""The one value for a played debate: what was said, by which tokens, what the grader and the votes made of it, and
where it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from moot.debate.outcome import Outcome
from moot.debate.rewards import Grades, Reward, Scores, last_parsed, score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote
from moot.debate.votes import Ballots, ballots, clear_consensus
from moot.tokens.turn import Advantages, SampledTurn, credits

if TYPE_CHECKING:
    from moot.engine.protocol import Floats


@dataclass(frozen=True, eq=False)
class PlayedDebate:
    """A debate and all that is known about it; what is not known yet is missing."""

    debate: Debate
    sampled: tuple[SampledTurn, ...] = ()
    """In the order of the debate's turns; empty where nobody kept them."""
    heard: tuple[SampledTurn, ...] = ()
    """In the order of its jury. Counted, never trained on."""
    error: str | None = None
    """The engine failed: nobody's fault in the debate, so it is recorded, counted and never scored."""
    scoring: Scoring = field(default_factory=Scoring)
    """How its votes are counted."""
    grades: Grades | None = None
    """None where nobody graded the answers."""
    scores: Scores | None = None
    """None where it was never scored."""
    advantages: Advantages | None = None
    credits: tuple[Floats, ...] = ()
    """What each token was taught, where that is more than its advantage: of every turn."""
    step: int | None = None
    """The training step it belongs to, where it is saved in a run."""
    number: int | None = None
    """Its place in the step, or its line in a file."""

    def __repr__(self) -> str:
        """Short, and made of nothing that is computed: `asyncio.run` writes out its task's result when it puts the
        signal handler back."""
        return f"Played{self.debate!r}"

    @property
    def name(self) -> str:
        """How a saved debate is called on a command line: its step and its number in it."""
        return f"{self.step}/{self.number}"

    def scored(self, scoring: Scoring, grades: Grades | None, reward: Reward | None = None) -> PlayedDebate:
        """With its scores under `scoring`; `reward` is a user's own, where `scoring` names one."""
        scores = score(self.debate, scoring, grades, reward)
        return replace(self, scoring=scoring, grades=grades, scores=scores, advantages=None, credits=())

    def token_credits(self) -> Sequence[Floats]:
        """What each token was taught: of every turn; nothing where it has no advantages."""
        if self.credits or self.advantages is None:
            return self.credits
        return credits(self.debate, self.sampled, self.advantages)

    # Answers

    @property
    def answer_known(self) -> bool:
        """Whether the right answer is known, and the answers are graded."""
        return self.grades is not None and self.grades.known(self.debate.question)

    def correct(self, turn: int | None) -> bool:
        """Whether that turn's answer is right; no turn has none."""
        return turn is not None and self.grades is not None and self.grades.correct[turn]

    def winner_is_right(self) -> bool | None:
        """Whether the winner's last answer is right; None where nobody won, or nobody knows."""
        if self.winner is None or not self.answer_known:
            return None
        return self.correct(last_parsed(self.debate)[self.winner])

    # Votes

    @property
    def jury_tokens(self) -> int:
        """What judges without a seat sampled for it, as far as anybody says."""
        return sum(turn.count for turn in self.heard) + sum(check.tokens or 0 for check in self.debate.checks or ())

    @property
    def winner(self) -> int | None:
        """None where nobody won, and where it was never scored."""
        return None if self.outcome is None else self.outcome.winner

    @cached_property
    def outcome(self) -> Outcome | None:
        """By the rewards it has."""
        return None if self.scores is None else Outcome.of(self.debate, self.scores, self.scoring)

    @cached_property
    def ballots(self) -> Ballots:
        """What its comparison sections came to, whatever reward is paid."""
        return ballots(self.debate, self.scoring)

    @property
    def believed(self) -> int | None:
        """Of two advocates, the one whose position the judge found right; None where nothing was decided."""
        better = clear_consensus(self.ballots.outside) if self.debate.rules.needs_judge else None
        return None if better is None else self.debate.turns[better].agent

    def peer_votes(self) -> list[Vote]:
        """Those about responses by which the debate is measured: the agents' own, unless its rules say otherwise."""
        return self.debate.rules.measured(self.ballots.votes)

    def decided_votes(self) -> list[Vote]:
        """Those of them that prefer one."""
        return [vote for vote in self.peer_votes() if vote.verdict == ">"]
