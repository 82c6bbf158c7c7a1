"""Numbers that each viewer knows the agents by.

A judge may lean to whoever has the lower number, and training would make seats of that. With `shuffle_labels` every
viewer has a numbering of its own, and the leaning falls on everybody alike. The numbering follows from the question and
the viewer, so a debate that was written down can be read again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from moot.debate.parsing import agent_number
from moot.debate.types import Line, Parsed, Question


def labels_for(question: Question, viewer: int, num_agents: int) -> tuple[int, ...]:
    """The number under which `viewer` knows each agent, itself included; entry i is agent i's."""
    return _labels(question.id, question.text, viewer, num_agents)


@lru_cache(maxsize=4096)
def _labels(id: str, text: str, viewer: int, num_agents: int) -> tuple[int, ...]:
    # Sorting by hashes gives the same order on every machine and Python, which `random.shuffle` does not promise.
    key = hashlib.sha256(json.dumps([id, text, viewer]).encode()).digest()
    return tuple(sorted(range(num_agents), key=lambda i: hashlib.sha256(key + i.to_bytes(4, "big")).digest()))


def agents_behind(labels: Sequence[int]) -> list[int]:
    """The other way round: entry k is the agent whose label is k."""
    agents = [0] * len(labels)
    for agent, label in enumerate(labels):
        agents[label] = agent
    return agents


def with_agents(parsed: Parsed, labels: Sequence[int]) -> Parsed:
    """The comparison lines about agents, not labels. A number nobody has stays what it is; so do the sections'
    texts."""
    behind = agents_behind(labels)

    def real(label: int) -> int:
        return behind[label] if 0 <= label < len(behind) else label

    def mapped(line: Line) -> Line:
        return replace(line, left=real(line.left), right=real(line.right)) if line.kind == "comparison" else line

    return replace(parsed, lines=tuple(map(mapped, parsed.lines)))


# `Agent 2`, `agent2`, `Agent **2**`, `Agent #2`; after the plural also a list: `Agents 0, 1 and 2`.
# Possessive throughout, and each try begins at a word of its own: linear whatever the text.
_GAP = r"[\s*_`#]*+"
_MORE = rf"(?:\s*+(?:,\s*+(?:(?:and|or)\b)?+|(?:and|or|vs)\b\.?+|[&/]){_GAP}[0-9]++)*+"
_NAMED = re.compile(rf"(?<![^\W_])agent(?:{_GAP}[0-9]++|s\b{_GAP}[0-9]++{_MORE})", re.I)
_NUMBER = re.compile(r"[0-9]++")


def relabelled(text: str, author: Sequence[int], viewer: Sequence[int]) -> str:
    """What an author wrote about agents by its own labels, in the viewer's. A number nobody has stays what it is."""
    if author == viewer:
        return text
    viewers_label = [viewer[agent] for agent in agents_behind(author)]

    def number(match: re.Match[str]) -> str:
        label = agent_number(match[0])
        return str(viewers_label[label]) if label < len(viewers_label) else match[0]

    return _NAMED.sub(lambda match: _NUMBER.sub(number, match[0]), text)
