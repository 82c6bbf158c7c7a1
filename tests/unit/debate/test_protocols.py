"""A protocol is a class in one file: everybody else asks it questions, and nobody which one it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import moot
from moot.debate.protocol import RULES, register
from moot.debate.protocols import PRESETS, V2
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.runs import PlayedDebate
from moot.settings.presets import find_preset
from moot.settings.train import TrainConfig


@dataclass(frozen=True)
class Duel(Rules):
    """Two agents who solve and read only the question, again and again; a judge decides."""

    positions = "duel"
    seats = 2
    peers_vote = False

    def own_request(
        self, debate: Debate, agent: int, labels: Sequence[int], first: bool, blocks: Sequence[str], heard: bool
    ) -> str:
        return f"Solve it as number {labels[agent]}: {debate.question.text}"

    def check_training(self, scoring: Scoring, num_agents: int, judge: str) -> None:
        self.check_agents(num_agents)
        if not judge:
            raise ConfigError("a duel needs a judge; use --judge base")


@pytest.fixture
def duel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.debate.protocol.RULES", RULES.copy())
    monkeypatch.setitem(RULES, register(Duel).positions, Duel)


@pytest.mark.usefixtures("duel")
def test_a_protocol_of_one_class_trains_and_its_debates_are_read_again(tmp_path: Path) -> None:
    demo = find_preset("demo")
    small = replace(
        demo,
        model=replace(demo.model, engine="scripted"),
        optim=replace(demo.optim, batch_size=2, num_train_datapoints=2),
        warm_questions=0,
        eval_every=0,
    )
    config = small.under(V2.with_choices(positions="duel", sections="asked", personas=False, reward="win_rate"))
    assert (config.debate.num_agents, config.recipe.judge) == (2, "base")
    run = moot.train(config, tmp_path / "run")
    for played in run.debates():
        assert isinstance(played, PlayedDebate) and type(played.debate.rules) is Duel
        assert played.debate.observe(1).newest.content == f"Solve it as number 1: {played.debate.question.text}"
    assert TrainConfig.from_dict(run.config) == config
    with pytest.raises(ConfigError, match="num_agents must be 2 with positions duel, got 3"):
        replace(config, debate=replace(config.debate, num_agents=3))


def test_unknown_positions_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="positions must be none or assigned, got 'given'"):
        V2.with_choices(positions="given")
    assert (
        PRESETS["advocates"].with_choices(positions="none", sections="sampled").rules
        == V2.with_choices(personas=False).rules
    )


def test_nobody_outside_asks_which_protocol_it_is() -> None:
    source = Path(moot.__file__).parent
    own = source / "debate" / "protocols"
    asks = re.compile(r"positions (?:==|!=)|isinstance\([^)]*\b(?:Advocates|Rules)\b|import Advocates")
    found = [file for file in source.rglob("*.py") if own not in file.parents and asks.search(file.read_text())]
    assert found == []
