"""What an agent saw can be rebuilt from the record, word for word, however the debate was played."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.cli import main
from moot.debate.play import play
from moot.debate.prompt_texts import DEFAULT
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.runs import PlayedDebate
from moot.runs.prompt_of_turn import seen
from moot.runs.record import from_record, to_record
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, TrainConfig
from support.making import text, v1, v2

ALL = [
    v2(),
    v1(),
    v2(schedule="sequential"),
    v2(closing_ballot=True, schedule="sequential"),
    v2(closing_ballot=True, shuffle_labels=True),
    v2(layout="rebuilt"),
    v2(layout="shared", closing_ballot=True),
    v2(visible=("solution",), history_rounds=1, layout="rebuilt"),
    v1(layout="growing", personas=True),
]


def played_and_heard(debate: Debate) -> tuple[PlayedDebate, dict[tuple[int, int, bool], Any]]:
    heard: dict[tuple[int, int, bool], Any] = {}

    async def speak(observation: Observation) -> Said:
        heard[observation.round, observation.agent, observation.contract == "ballot"] = observation.conversation()
        others = [f"Agent {observation.labels[other]}" for other in observation.eligible]
        line = " > ".join(others[:2]) if len(others) > 1 else "N/A"
        if observation.agent == 1 and observation.round == 2:
            return Said("mumble")
        said = text(line, f"By {observation.agent} in {observation.round}: \\boxed{{7}}.")
        more = (
            "\n<consensus>NO</consensus>\n<consensus_reason>Because.</consensus_reason>"
            if observation.contract == "five_tag"
            else ""
        )
        return Said(said + more)

    return PlayedDebate(asyncio.run(play(debate, speak))), heard


def assert_all_seen(debate: Debate) -> int:
    played, heard = played_and_heard(debate)
    read = from_record(json.loads(json.dumps(to_record(played))))
    ballots = {key for key in heard if key[2]}
    for i, turn in enumerate(read.debate.turns):
        key = (turn.round, turn.agent, bool(ballots) and turn.ballot)
        assert seen(read, i) == heard[key], (i, key)
    return len(read.debate.turns)


@pytest.mark.parametrize("protocol", ALL)
def test_each_turns_conversation_is_rebuilt_word_for_word(protocol: Any) -> None:
    assert assert_all_seen(Debate(Question("What is 3 + 4?", "7"), 3, 2, protocol.rules)) >= 4


@pytest.mark.parametrize("ballot", [False, True])
def test_also_where_rounds_were_added_or_left_out_because_of_the_answers(ballot: bool) -> None:
    asked = Question("What is 3 + 4?", "7")
    rules = v2(closing_ballot=ballot).rules
    more = Debate(asked, 3, 1, rules, settled=lambda last: last[-1].round == 3, extra_rounds=4)
    fewer = Debate(asked, 3, 5, rules, settled=lambda last: True, stop_when_settled=True)
    assert (assert_all_seen(more), assert_all_seen(fewer)) == ((12, 6) if ballot else (9, 3))


CONFIG = TrainConfig(
    model=ModelConfig(engine="scripted", deterministic=True),
    debate=DebateConfig(num_agents=3, max_rounds=2, max_tokens=2000),
    optim=OptimConfig(batch_size=1, num_train_datapoints=2),
    eval_every=0,
)


def test_the_export_has_it(tmp_path: Path) -> None:
    plain = moot.train(CONFIG, tmp_path / "plain")
    assert "seen" not in next(plain.records(1))["turns"][0]
    assert main(["export", str(plain.path), "--transcripts"]) == 0
    lines = (plain.path / "export" / "transcripts.jsonl").read_text().splitlines()
    exported = [json.loads(line) for line in lines]
    assert [(each["step"], each["number"]) for each in exported] == [(1, 0), (2, 0)]
    roles = [message["role"] for message in exported[0]["turns"][0]["seen"]]
    assert (roles[0], roles[-1]) == ("system", "user")


def test_a_run_with_prompts_of_its_own_is_rebuilt_in_those(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from moot.page.runs import Runs
    from moot.page.server import make_app
    from support.requesting import ask

    own = DEFAULT.with_texts(
        {"asked.question": "Inspect this: {question}", "tagged.question": "Inspect this: {question}"}, "a test", ""
    )
    run = moot.train(replace(CONFIG, prompts=own), tmp_path / "run")
    (played,) = run.debates([1])
    assert isinstance(played, PlayedDebate)
    turns = range(len(played.debate.turns))
    rebuilt = [[{"role": each.role, "content": each.content} for each in seen(played, i)] for i in turns]
    assert any("Inspect this: " in message["content"] for message in rebuilt[0])
    assert main(["export", str(run.path), "--transcripts"]) == 0
    exported = json.loads((run.path / "export" / "transcripts.jsonl").read_text().splitlines()[0])
    assert [turn["seen"] for turn in exported["turns"]] == rebuilt
    page = make_app(Runs([run.path]), tmp_path / "cache")
    assert [ask(page, f"/api/seen?run=run&debate=1.0&turn={i}").json["messages"] for i in turns] == rebuilt


def test_the_page_gives_what_a_turn_saw_and_404_for_a_turn_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from moot.page.runs import Runs
    from moot.page.server import make_app
    from support.requesting import ask

    run = moot.train(CONFIG, tmp_path / "run")
    page = make_app(Runs([run.path]), tmp_path / "cache")
    (played,) = run.debates([1])
    assert isinstance(played, PlayedDebate)
    shown = ask(page, "/api/seen?run=run&debate=1.0&turn=4").json["messages"]
    assert shown == [{"role": message.role, "content": message.content} for message in seen(played, 4)]
    assert ask(page, "/api/seen?run=run&debate=1.0&turn=99").status == 404
    assert ask(page, "/api/seen?run=run&debate=1.0&turn=x").status == 400
