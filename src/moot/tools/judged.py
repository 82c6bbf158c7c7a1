"""Answers that were just given are scored by a judge without a seat: for `moot ask` and `moot label`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moot.debate.checks import is_vote
from moot.debate.prompt_texts import Prompts
from moot.debate.reward import Reward, reward_named
from moot.errors import ConfigError, EngineError
from moot.evaluate.play import EvalWatcher
from moot.evaluate.store import AnswerStore
from moot.judges.asking import Judge
from moot.tools.ask import AskedDebate, GroupAnswer
from moot.tools.judge import Answered, Trial, TrialConfig, Way

BALLOTS = ("approval", "pairs")


def ballot_named(text: str) -> Reward:
    """How a judge is asked, in the words in which training names its rewards: approval:checks=4, or pairs."""
    if text.partition(":")[0] not in BALLOTS:
        raise ConfigError(f"ballot must be approval or pairs, as in approval:checks=4,show=answer, got {text!r}")
    reward = reward_named(text)
    if reward.each_rule:
        raise ConfigError(f"ballot {text}: a question asked here has no rules to ask about alone; use rules=together")
    return reward


@dataclass(frozen=True)
class Judging:
    """Who scores answers, and how it is asked."""

    name: str
    judge: Judge
    identity: str
    ballot: Reward
    prompts: Prompts
    max_tokens: int
    """Longest thinking."""
    seed: int

    async def scored(
        self, done: Sequence[AskedDebate], groups: Sequence[GroupAnswer], verdicts: AnswerStore, watcher: EvalWatcher
    ) -> tuple[list[GroupAnswer], str]:
        """Every answer with its score, and what is to be told of the cost. What is in `verdicts` is not asked again.
        Raises EngineError where a verdict is missing."""
        asks, questions = self.ballot.asks, [asked.debate.question for asked in done]
        shown = [
            Answered(question, tuple(text or "" for text in group.solutions), group.held, group.right, group.kinds)
            for question, group in zip(questions, groups, strict=True)
        ]
        way = Way(self.name, self.ballot.ballot, asks["show"], self.prompts)
        checks, opponents = asks.get("checks", 1), asks.get("opponents", 2)
        config = TrialConfig((checks,), opponents, max_tokens=self.max_tokens, seed=self.seed)
        identities = {self.name: self.identity}
        trial = Trial(shown, {self.name: self.judge}, identities, config, verdicts, watcher, everything=True)
        await trial.ask([way])
        if trial.missing([way]):
            raise EngineError("the judge has not scored every answer")
        scores = trial.scores(way, checks)
        written = trial.written(way)
        told = "The judge's tokens were not told" if written is None else f"The judge wrote {written:,} tokens more"
        return [
            replace(group, scores=tuple(map(self._sure, scores[question])))
            for question, group in zip(questions, groups, strict=True)
        ], f"{told}; what it cost is not in this."

    def _sure(self, score: float | None) -> float | None:
        """A score within the margin is none."""
        return score if score is not None and is_vote(score, self.ballot.settings.vote_margin) else None
