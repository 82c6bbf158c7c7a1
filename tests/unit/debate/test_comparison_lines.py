"""Lines of a comparison section, one by one: what is a comparison, what is nothing, what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from moot.debate.parsing import OUT_OF_RANGE, comparison_lines
from moot.debate.types import Line


def only(text: str) -> Line:
    (line,) = comparison_lines(text)
    return line


@pytest.mark.parametrize(
    ("text", "left", "verdict", "right"),
    [
        ("Agent 0 > Agent 1", 0, ">", 1),
        ("Agent 0 = Agent 1", 0, "=", 1),
        ("agent0>AGENT1", 0, ">", 1),
        ("  Agent\t0\u00a0>\u3000Agent 1\r", 0, ">", 1),
        ("- Agent 0 > Agent 1", 0, ">", 1),
        ("* Agent 0 > Agent 1", 0, ">", 1),
        ("• Agent 0 > Agent 1", 0, ">", 1),
        ("1. Agent 0 > Agent 1", 0, ">", 1),
        ("12) Agent 0 > Agent 1", 0, ">", 1),
        ("-Agent 0 > Agent 1", 0, ">", 1),
        ("**Agent 0** > **Agent 1**", 0, ">", 1),
        ("- **Agent 0** = _Agent 1_", 0, "=", 1),
        ("`Agent 0 > Agent 1`", 0, ">", 1),
        ("***Agent 0***>__Agent 1__", 0, ">", 1),
        ("**Agent 0 > Agent 1**", 0, ">", 1),
        ("Agent 0 > Agent 1 because it is shorter", 0, ">", 1),
        ("Agent 0 > Agent 1: x = 3, y < 4", 0, ">", 1),
        ("Agent 0 > Agent 1 (Agent 2 is worse)", 0, ">", 1),
        ("Agent 0 > Agent 1, Agent 2 is out", 0, ">", 1),
        ("Agent 0 > Agent 1 > (Agent 2)", 0, ">", 1),
        ("Agent 0 > Agent 1 >", 0, ">", 1),
        ("Agent 0 > Agent 1 > Agents", 0, ">", 1),
        ("Agent 0 > Agent 1.", 0, ">", 1),
        # Not yet malformed: that depends on who is there.
        ("Agent 7 > Agent 7", 7, ">", 7),
        ("Agent 007 > Agent 01", 7, ">", 1),
        (f"Agent {'0' * 5000}3 > Agent 1", 3, ">", 1),
        ("Agent 999999999 > Agent 1", 999_999_999, ">", 1),
        ("Agent 1000000000 > Agent 1", OUT_OF_RANGE, ">", 1),
        (f"Agent 1 = Agent {'9' * 5000}", 1, "=", OUT_OF_RANGE),
    ],
)
def test_comparisons(text: str, left: int, verdict: str, right: int) -> None:
    assert only(text) == Line("comparison", left, right, verdict)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        # Other signs are not in the contract.
        "Agent 0 < Agent 1", "Agent 0 >= Agent 1", "Agent 0 == Agent 1", "Agent 0 => Agent 1", "Agent 0 >> Agent 1", "Agent 0 -> Agent 1",
        "Agent 0 ＞ Agent 1", "Agent 0 &gt; Agent 1",
        # Chains and pairs.
        "Agent 0 > Agent 1 > Agent 2", "Agent 0 = Agent 1 = Agent 2", "Agent 0 > Agent 1 < Agent 2", "Agent 0>Agent 1>=`agent2`",
        "Agent 0 > Agent 1, Agent 1 > Agent 2", "Agent 0 > Agent 1 and so on = ** Agent 2", "Agent 0 > Agent 1\rAgent 1 > Agent 2",
        # Something before it that is neither marker nor emphasis.
        "I think Agent 0 > Agent 1", "> Agent 0 > Agent 1", "+ Agent 0 > Agent 1", "- - Agent 0 > Agent 1", "1: Agent 0 > Agent 1",
        "(1) Agent 0 > Agent 1", "# Agent 0 > Agent 1", "**1. Agent 0 > Agent 1**", "\u200bAgent 0 > Agent 1",
        # Names that are none.
        "Agent > Agent", "Agent 0 > 1", "0 > 1", "Agents 0 > Agent 1", "Agent -1 > Agent 0", "Agent #0 > Agent 1", "Agent ٣ > Agent 1",
        "Agent 0 > Agent １", "Agent zero > Agent one", "Agent **0** > Agent 1", "Agent_0 > Agent_1", "A 0 > A 1",
        "Agent 0 is better than Agent 1", "Agent 0 \u200b> Agent 1",
        # Words.
        "none", "N/A, I cannot say", "- N/A", "**N/A**", "NA", "n / a", "-", "***", "``", "``` two words", "```a`", "---",
    ],
)  # fmt: skip
def test_lines_that_say_something_else(text: str) -> None:
    assert only(text) == Line("other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "\t\r",
        "\u3000",
        "N/A",
        "n/a",
        "N/a.",
        " n/A. ",
        "```",
        "```text",
        "``` xml ",
        "````",
        "~~~",
        "~~~python",
        "N/A\r",
    ],
)
def test_lines_that_say_nothing(text: str) -> None:
    assert only(text) == Line("silent")


def test_lines_are_split_at_line_feeds_alone() -> None:
    """A carriage return, a form feed and Unicode's separators are spacing inside a line."""
    kinds = [line.kind for line in comparison_lines("Agent 0 > Agent 1\r\nN/A\x0b\u2028\n\x85\x0cAgent 1 = Agent 0\n")]
    assert kinds == ["comparison", "silent", "comparison", "silent"]


PIECES = ["Agent", "agent", " 0", " 1", "12", ">", "=", "<", " ", "\t", "*", "**", "_", "`", "```", "~~~", "-", "•", "1.", "2)", "N/A", ".",
          "x", "(", "\u00a0", "\u200b", "٣", "Agent 0", "Agent 1 ", " > ", "Agent 0 > Agent 1"]  # fmt: skip


@settings(max_examples=1500)
@given(
    st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
        st.text(max_size=30).map(lambda text: text.replace("\n", "")),
    )
)
def test_the_oracle_reads_lines_the_same_way(text: str) -> None:
    line, expected = only(text), oracle.extract(text)
    if expected is not None:
        assert (line.kind, line.left, line.verdict, line.right) == ("comparison", *expected)
    else:
        assert line.kind == ("silent" if oracle.says_nothing(text) else "other")
