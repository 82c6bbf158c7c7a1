"""A protocol is a class in one file: everybody else asks it questions, and nobody which one it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

import moot
from moot.cli.main import main
from moot.debate.protocol import RULES, register
from moot.debate.protocols import PRESETS, V2
from moot.debate.rules import Lack, Rules
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.page.trust import measured
from moot.runs import PlayedDebate
from moot.settings.presets import find_preset
from moot.settings.train import TrainConfig
from moot.training.parts import find_parts


@dataclass(frozen=True)
class Duel(Rules):
    """Two agents who solve and read only the question, again and again; a judge decides."""

    positions = "duel"
    seats = 2
    peers_vote = False
    lacks: ClassVar[Mapping[Lack, str]] = {
        "votes": "those of a duel do not",
        "agreement": "each reads itself alone",
        "solving": "nobody shows how to duel",
    }

    def own_request(
        self, debate: Debate, agent: int, labels: Sequence[int], first: bool, blocks: Sequence[str], heard: bool
    ) -> str:
        return f"Solve it as number {labels[agent]}: {debate.question.text}"

    def check_training(self, scoring: Scoring, num_agents: int, judge: str) -> None:
        self.check_agents(num_agents)
        if not judge:
            raise ConfigError("a duel needs a judge; use --judge base")


def duelling() -> TrainConfig:
    demo = find_preset("demo")
    small = replace(
        demo,
        model=replace(demo.model, engine="scripted"),
        debate=replace(demo.debate, evaluation_tokens=200),
        optim=replace(demo.optim, batch_size=2, num_train_datapoints=2),
        warm_questions=0,
        eval_every=0,
    )
    return small.under(V2.with_choices(positions="duel", sections="asked", personas=False, reward="win_rate"))


@pytest.fixture
def duel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.debate.protocol.RULES", RULES.copy())
    monkeypatch.setitem(RULES, register(Duel).positions, Duel)


@pytest.mark.usefixtures("duel")
def test_a_protocol_of_one_class_trains_and_its_debates_are_read_again(tmp_path: Path) -> None:
    config = duelling()
    assert (config.debate.num_agents, config.recipe.judge) == (2, "base")
    run = moot.train(config, tmp_path / "run")
    for played in run.debates():
        assert isinstance(played, PlayedDebate) and type(played.debate.rules) is Duel
        assert played.debate.observe(1).newest.content == f"Solve it as number 1: {played.debate.question.text}"
    assert TrainConfig.from_dict(run.config) == config
    with pytest.raises(ConfigError, match="num_agents must be 2 with positions duel, got 3"):
        replace(config, debate=replace(config.debate, num_agents=3))


@pytest.mark.usefixtures("duel")
def test_its_debates_are_scored_evaluated_and_trusted_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody but the class knows that its judge decides: its votes are what is measured, and none stand beside them."""
    run = moot.train(duelling(), tmp_path / "run")
    debates = [played for played in run.debates() if isinstance(played, PlayedDebate)]
    again = moot.score([played.debate for played in debates], duelling().protocol)
    assert [played.scores for played in again] == [played.scores for played in debates]
    assert all(played.peer_votes() == list(played.ballots.outside) for played in debates)

    rows = [row for row in run.metrics() if row["phase"] == "self_play"]
    panel = measured(run.path, None)["panel"]
    assert not any("outside" in key for key in [*rows[0], *panel])
    assert panel["trust/judges_per_pair"]["of"] == sum(played.believed is not None for played in debates) > 0

    main(["eval", str(run.path), "--modes", "debate", "--questions", "2", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert {"decided", "correct"} <= {*row["metrics"]}, "what the judge made of it"
    assert main(["check", str(run.path)]) == 2
    assert "measures how agents vote, and those of a duel do not" in capsys.readouterr().err


@pytest.mark.usefixtures("duel")
def test_what_its_debates_lack_is_refused_with_its_own_reason() -> None:
    with pytest.raises(ConfigError, match="rounds_as_needed must be left out with positions duel: each reads itself"):
        find_parts(replace(duelling(), parts=("rounds_as_needed:extra_rounds=1",)))
    with pytest.raises(ConfigError, match="warm_questions must be left out with positions duel, got 4: nobody shows"):
        replace(duelling(), warm_questions=4)


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
