"""What agents are told: the system text, what they see of each other, windows, and where a conversation goes on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.parsing import CONTRACTS, FURTHER
from moot.debate.prompt_texts import DEFAULT, Prompts, default_file, load_prompts, toml_of
from moot.debate.prompts import PERSONAS, system_text
from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Message, Observation, Question, Said
from moot.errors import ConfigError
from support.making import FAILED, text, v1, v2

N = 3


def mark(kind: str, round: int, agent: int) -> str:
    """A word that stands for one section of one turn, so that a test can look for it."""
    return f"{kind}-r{round}a{agent}-end"


def response(protocol: Protocol, round: int, agent: int) -> str:
    content = {name: mark(name, round, agent) for name in CONTRACTS[protocol.rules.contract]} | {"consensus": "NO"}
    return "\n".join(f"<{name}>{content[name]}</{name}>" for name in CONTRACTS[protocol.rules.contract])


def played(
    protocol: Protocol,
    turns: int,
    max_rounds: int = 6,
    failed: frozenset[tuple[int, int]] = frozenset(),
    num_agents: int = N,
) -> Debate:
    """The debate after this many turns, in which every section is a mark."""
    state = Debate(
        Question("What is 3 + 4?", "7", instruction="Put the answer in a box."), num_agents, max_rounds, protocol.rules
    )
    while len(state.turns) < turns:
        round = state.next_round
        state = state.advance(
            {a: Said(FAILED if (round, a) in failed else response(protocol, round, a)) for a in state.next_speakers}
        )
    return state


def whole(observation: Observation) -> str:
    return "\n".join(message.content for message in observation.conversation())


def rounds_seen(state: Debate, agent: int, other: int) -> list[int]:
    """Rounds of which the agent is shown the other's solution; for itself, in whatever form."""
    said = whole(state.observe(agent))
    return [round for round in range(1, 7) if mark("solution", round, other) in said]


# The system text


@pytest.mark.parametrize(
    "protocol",
    [v1(), v2(), v2(layout="rebuilt"), v2(layout="shared"), v1(layout="growing", on_parse_failure="continue")],
)
def test_the_system_text_of_a_seat_never_changes(protocol: Protocol) -> None:
    texts = []
    for turns in range(0, 3 * N + 1, N):
        state = played(protocol, turns)
        observation = state.observe(1)
        first, *rest = observation.conversation()
        assert first.role == "system"
        assert all(message.role != "system" for message in rest)
        texts.append(first.content)
    assert len(set(texts)) == 1
    assert texts[0] == system_text(protocol.rules, 1, N)


@pytest.mark.parametrize("protocol", [v1(), v2()])
@pytest.mark.parametrize("agent", range(N))
def test_the_contract_is_stated_and_self_comparison_forbidden(protocol: Protocol, agent: int) -> None:
    said = system_text(protocol.rules, agent, N)
    names = CONTRACTS[protocol.rules.contract]
    places = [said.index(f"<{name}>") for name in names] + [said.index(f"</{name}>") for name in names]
    assert sorted(places[: len(names)]) == places[: len(names)]
    assert ("<consensus>" in said) == (protocol.rules.contract == "five_tag")
    assert f"You are Agent {agent}." in said
    assert "the better one first, with > between them, or = if they are equally good" in said
    assert "Agent A" not in said, "a small model takes a letter for a name"
    assert f"Compare the other agents only: a line that names Agent {agent} is thrown away." in said
    assert "Evaluate first, then compare." in said, "reason before judging"


def test_every_further_section_has_its_texts() -> None:
    wanted = {f"{table}.{name}" for name in FURTHER for table in ("asked", "tagged")}
    assert wanted <= set(DEFAULT.texts)
    examples = "".join(text for name, text in DEFAULT.texts.items() if name.startswith("tagged.example_"))
    assert [name for name in FURTHER if f"<{name}>" not in examples] == []


def test_the_ground_truth_is_never_shown() -> None:
    state = Debate(Question("What is 3 + 4?", "the-right-answer-7"), N, 2, v2().rules)
    assert "the-right-answer-7" not in whole(state.observe(0))


# Personas


def test_personas_and_their_temperatures_cycle_past_five() -> None:
    state = Debate(Question("q"), 7, 1, v2().rules)
    temperatures = [state.observe(agent).temperature for agent in range(7)]
    assert temperatures == [0.6, 1.0, 0.9, 1.0, 0.8, 0.6, 1.0]
    names = [
        "Methodical Analyst",
        "Creative Problem-Solver",
        "Devil's Advocate",
        "Synthesizer",
        "First Principles Thinker",
    ]
    assert [persona.name for persona in PERSONAS] == names
    for agent in range(7):
        assert f"You are the {names[agent % 5]}." in system_text(v2().rules, agent, 7)
        assert sum(name in system_text(v2().rules, agent, 7) for name in names) == 1


def test_without_personas_everyone_is_alike_at_temperature_1() -> None:
    state = Debate(Question("q"), 7, 1, v1().rules)
    assert {state.observe(agent).temperature for agent in range(7)} == {1.0}
    assert not any(persona.name in system_text(v1().rules, 0, 7) for persona in PERSONAS)


# What is seen of the others


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [
        (("solution", "evaluation"), ("comparison", "consensus_reason")),
        (("solution", "evaluation", "comparison", "consensus_reason"), ()),
        (("comparison",), ("solution", "evaluation", "consensus_reason")),
        ((), ("solution", "evaluation", "comparison", "consensus_reason")),
    ],
)
@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
def test_only_visible_fields_of_others_are_shown(
    visible: tuple[str, ...], hidden: tuple[str, ...], layout: str
) -> None:
    state = played(v1(visible=visible, layout=layout), N)
    said = whole(state.observe(0))
    assert all(mark(name, 1, 2) in said for name in visible)
    assert not any(mark(name, 1, 2) in said for name in hidden)


def test_the_consensus_word_itself_is_hidden_by_v1_and_reviews_are_blind_in_v2() -> None:
    assert "consensus: NO" not in whole(played(v1(), N).observe(0))
    assert "comparison-r1a1" not in whole(played(v2(), N).observe(0))


@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
@pytest.mark.parametrize("limit", [0, 1, 10, 2000])
def test_every_shown_field_of_another_is_clipped(layout: str, limit: int) -> None:
    protocol = v2(layout=layout, max_chars_per_field=limit)
    state = Debate(Question("q"), N, 2, protocol.rules)
    state = state.advance({agent: Said(text(solution="s" * 3000, evaluation="e" * 9)) for agent in range(N)})
    blocks = state.observe(0).newest.content.split("\n\n")
    (block,) = [block for block in blocks if block.startswith("[Agent 1, round 1]")]
    assert block == f"[Agent 1, round 1]\nsolution: {'s' * limit}\nevaluation: {'e' * min(limit, 9)}"


def test_own_turns_are_clipped_and_filtered_in_rebuilt_and_stand_as_they_are_in_growing() -> None:
    raw = "Sure!\n" + text(comparison="Agent 1 > Agent 2", solution="s" * 3000)
    for layout in ("rebuilt", "growing"):
        state = Debate(Question("q"), N, 2, v2(layout=layout).rules).advance({agent: Said(raw) for agent in range(N)})
        conversation = state.observe(0).conversation()
        own = [message.content for message in conversation if message.role == "assistant"]
        if layout == "growing":
            assert own[1:] == [raw], "the first is the example of the form"
            assert "Agent 98 > Agent 99" in own[0]
        else:
            assert own == []
            assert [message.role for message in conversation] == ["system", "user"]
            assert f"[Agent 0 (you), round 1]\nsolution: {'s' * 2000}\nevaluation: Fine." in conversation[1].content
            assert "s" * 2001 not in conversation[1].content


@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
def test_a_failed_turn_is_shown_as_no_valid_response(layout: str) -> None:
    state = played(v2(layout=layout), N, failed=frozenset({(1, 1)}))
    said = state.observe(0).newest.content
    assert "[Agent 1, round 1]\ngave no valid response." in said
    assert FAILED not in whole(state.observe(0))
    assert state.observe(0).eligible == (2,)


def test_whoever_failed_is_told_so_once() -> None:
    state = played(v2(), 2 * N, failed=frozenset({(1, 1)}))
    first, second = played(v2(), N, failed=frozenset({(1, 1)})), state
    assert "could not be read" in first.observe(1).newest.content
    assert "could not be read" not in first.observe(0).newest.content
    assert "could not be read" not in second.observe(1).newest.content


def test_the_question_and_how_to_answer_it_stand_in_the_conversation_once() -> None:
    for protocol in (v1(), v2()):
        for turns in (0, N, 2 * N):
            said = whole(played(protocol, turns).observe(0))
            assert said.count("Question:\nWhat is 3 + 4?") == 1
            assert said.count("Put the answer in a box.") == 1


def test_the_newest_message_tells_the_round() -> None:
    assert "Round 2 of 6." in played(v2(), N).observe(0).newest.content
    assert played(v2(), N).observe(0).round == 2


def test_eligible_ids_are_named_exactly() -> None:
    """Five agents, 2 and 4 failed: Agent 0 is to compare 1 and 3, and no other number is offered."""
    state = played(v2(), 5, failed=frozenset({(1, 2), (1, 4)}), num_agents=5)
    last = state.observe(0).newest.content.split("\n\n")[-1]
    assert "<comparison> with one line per pair, in exactly these names: Agent 1 and Agent 3 </comparison>" in last
    assert state.observe(0).eligible == (1, 3)
    assert not any(f"Agent {absent}" in last for absent in (0, 2, 4))


# Windows. Who sees which rounds of whom when about to speak in round 4, by layout and schedule.
SEEN = {-1: [1, 2, 3], 0: [], 1: [3], 2: [2, 3], 5: [1, 2, 3]}


@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
@pytest.mark.parametrize("history", SEEN)
def test_history_in_a_parallel_debate(history: int, layout: str) -> None:
    state = played(v2(history_rounds=history, layout=layout), 3 * N)
    for agent in range(N):
        for other in range(N):
            assert rounds_seen(state, agent, other) == SEEN[history]


@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
@pytest.mark.parametrize("history", SEEN)
def test_history_in_a_sequential_debate(history: int, layout: str) -> None:
    """Agent 1 speaks in round 4 after Agent 0: of Agent 0 it sees the current round too, unless history is 0."""
    state = played(v1(history_rounds=history, layout=layout), 3 * N + 1)
    assert state.next_speakers == (1,)
    now = [] if history == 0 else [4]
    assert [rounds_seen(state, 1, other) for other in range(N)] == [SEEN[history] + now, SEEN[history], SEEN[history]]


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("history", [-1, 0, 1, 2])
def test_nothing_is_told_twice_in_a_growing_conversation(schedule: str, history: int) -> None:
    for turns in range(4 * N) if schedule == "sequential" else range(0, 4 * N, N):
        state = played(v2(history_rounds=history, schedule=schedule), turns)
        for agent in state.next_speakers:
            said = whole(state.observe(agent))
            assert all(said.count(mark("solution", turn.round, turn.agent)) <= 1 for turn in state.turns)


def test_a_growing_message_brings_what_the_others_said_since() -> None:
    """Sequential: before its second turn Agent 1 hears of Agent 2 in round 1 and Agent 0 in round 2, and of nothing it has heard before."""
    state = played(v2(schedule="sequential"), N + 1)
    said = state.observe(1).newest.content
    assert [said.find(mark("solution", *turn)) >= 0 for turn in [(1, 0), (1, 1), (1, 2), (2, 0)]] == [
        False,
        False,
        True,
        True,
    ]


# Where a conversation goes on

EXTENDS = {
    -1: [False, True, True, True, True],
    0: [False] * 5,
    1: [False, True, False, False, False],
    2: [False, True, True, False, False],
}


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("history", EXTENDS)
def test_growing_goes_on_until_the_window_drops_a_round(history: int, schedule: str) -> None:
    """Rounds 1 to 5 of Agent 2."""
    before = [round * N for round in range(5)] if schedule == "parallel" else [round * N + 2 for round in range(5)]
    found = [played(v2(history_rounds=history, schedule=schedule), turns).observe(2).extends for turns in before]
    assert found == EXTENDS[history]


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("history", EXTENDS)
def test_rebuilt_never_goes_on(history: int, schedule: str) -> None:
    for turns in range(0, 4 * N, N):
        observation = played(v2(history_rounds=history, schedule=schedule, layout="rebuilt"), turns).observe(0)
        assert not observation.extends
        assert observation.own_turns == ()
        assert [message.role for message in observation.conversation()] == ["system", "user"]


@settings(max_examples=150)
@given(
    st.sampled_from(["parallel", "sequential"]),
    st.sampled_from(["growing", "rebuilt", "shared"]),
    st.sampled_from([-1, 0, 1, 2, 3]),
    st.sets(st.tuples(st.integers(1, 4), st.integers(0, N - 1)), max_size=5),
)
def test_a_conversation_that_goes_on_is_the_last_one_the_turn_and_the_newest_message(
    schedule: str, layout: str, history: int, failed: set[tuple[int, int]]
) -> None:
    protocol = v2(schedule=schedule, layout=layout, history_rounds=history)
    state = Debate(Question("q"), N, 4, protocol.rules)
    last: dict[int, tuple[Message, ...]] = {}
    while not state.done:
        said = {}
        for agent in state.next_speakers:
            observation = state.observe(agent)
            conversation = observation.conversation()
            assert conversation[-1] == observation.newest
            assert conversation[-1].role == "user"
            own = [message.content for message in conversation if message.role == "assistant"]
            if layout != "rebuilt":
                own = own[1:]  # the first is the example of the form
            assert own == [state.turns[i].text for i in observation.own_turns]
            assert all(state.turns[i].agent == agent for i in observation.own_turns)
            if observation.extends:
                mine = next(turn for turn in reversed(state.turns) if turn.agent == agent)
                assert conversation == (*last[agent], Message("assistant", mine.text), observation.newest)
            last[agent] = conversation
            round = state.next_round
            said[agent] = Said(FAILED if (round, agent) in failed else response(protocol, round, agent))
        state = state.advance(said)


# One prefix for all


def common(texts: list[str]) -> str:
    end = next(
        (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1), min(map(len, texts))
    )
    return texts[0][:end]


@pytest.mark.parametrize("sections", ["sampled", "given", "asked"])
@pytest.mark.parametrize("turns", [0, N, 2 * N, 3 * N])
def test_with_layout_shared_only_the_end_differs_between_seats(sections: str, turns: int) -> None:
    """Whatever was said stands before it, also the failed turn of Agent 1; the persona, the number and the complaint come after."""
    state = played(
        v2(layout="shared", sections=sections, closing_ballot=True), turns, max_rounds=3, failed=frozenset({(1, 1)})
    )
    prompts = [whole(state.observe(agent)) for agent in range(N)]
    begin = "You are Agent" if turns or sections != "asked" else "You are the"
    prefix, ends = common(prompts), [prompt.rpartition(begin)[2] for prompt in prompts]
    assert all(len(prompt) - len(prefix) <= len(end) for prompt, end in zip(prompts, ends, strict=True))
    assert all(mark("solution", turn.round, turn.agent) in prefix for turn in state.turns if not turn.failed)
    assert ("gave no valid response" in prefix) == (turns > 0)
    for agent, end in enumerate(ends):
        assert PERSONAS[agent].name in end
        assert end.startswith(f" {agent}." if turns or sections != "asked" else " ")
        assert (f"What Agent {agent} said above is your own." in end) == (turns > 0)
        assert ("Your last" in end) == (turns == N and agent == 1)
        assert not any(persona.name in prefix for persona in PERSONAS)


def test_with_layout_shared_a_round_begins_with_all_that_the_round_before_was_shown() -> None:
    texts = [whole(played(v2(layout="shared"), turns).observe(0)) for turns in (N, 2 * N, 3 * N)]
    for before, after in pairwise(texts):
        shown = before.rpartition("You are Agent")[0]
        assert after.startswith(shown)


def test_with_layout_shared_and_asked_sections_round_1_is_the_plain_question_without_personas() -> None:
    state = Debate(
        Question("What is 3 + 4?", "7", instruction="Box it."),
        N,
        2,
        v2(layout="shared", sections="asked", personas=False).rules,
    )
    assert {state.observe(agent).conversation() for agent in range(N)} == {
        (Message("user", "What is 3 + 4?\n\nBox it."),)
    }


def test_half_a_character_in_a_text_is_refused_by_the_texts_name() -> None:
    recorded = DEFAULT.as_dict()
    texts = {**DEFAULT.texts, "asked.ballot": "Vote now\ud800"}
    with pytest.raises(ConfigError, match=r"the run's prompts: asked\.ballot holds half a character \('\\ud800'\)"):
        Prompts.from_dict({**recorded, "texts": texts})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ("{question}", "{qestion}"),
            "line 10: asked.question cannot use {qestion}; it has {instruction}, {question}, did you mean",
        ),
        (
            ("{question}\n\n{inst", "{inst"),
            "line 9: asked.question lacks {question}, which is filled in; it has {instruction}, {question}",
        ),
        (
            ("{answers}", "{Answers}"),
            "line 17: asked.others cannot use {Answers}; it has {answers}, did you mean {answers}?",
        ),
        (("{answers}", ""), "line 14: asked.others lacks {answers}, which is filled in; it has {answers}"),
        (
            ("of {names} step", "of {problem} step"),
            "line 26: asked.evaluate cannot use {problem}; it has {names}, {work}; for a brace",
        ),
        (
            ("of {names} step", "of {choices} step"),
            "line 26: asked.evaluate cannot use {choices}; it has {names}, {work}; for a brace",
        ),
    ],
)
def test_a_place_that_is_misspelt_or_missing_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(default_file().replace(*change, 1))
    with pytest.raises(ConfigError) as refused:
        load_prompts(str(file))
    assert f"prompts {str(file)!r}, {complaint}" in str(refused.value)


def test_a_brace_that_is_mathematics_or_has_a_space_stays_and_so_does_a_text_without_what_it_can_spare(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        "[asked]\nsolve = 'Again. Write \\boxed{answer} for { answer }, or the set {a}, {b}; x_{max}.'\nquestion = '{question}'\n"
    )
    assert load_prompts(str(file)).texts["asked.solve"].startswith("Again. Write \\boxed{answer} for { answer }")


def test_a_run_that_was_played_without_a_place_can_still_be_read() -> None:
    texts = {**DEFAULT.texts, "asked.question": "{qestion}"}
    assert Prompts.from_dict({"texts": texts}).texts["asked.question"] == "{qestion}"


def test_the_default_file_passes_as_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(default_file())
    assert load_prompts(str(file)) == DEFAULT
    file = tmp_path / "printed.toml"
    file.write_text(toml_of(DEFAULT))
    assert load_prompts(str(file)) == DEFAULT
