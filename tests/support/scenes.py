"""A reader of prompts for servers of the tests: who speaks and what is asked for, by the default texts' own words."""

from __future__ import annotations

import re

from moot.engine.protocol import Scene

_WHO = re.compile(r"(?:You are Agent (\d+)\. )?(\d+) agents(?: \(Agent 0 to Agent \d+\))? answer\b")
_SEAT = re.compile(r"You are Agent (\d+)\.(?: What Agent \1 said above is your own\.)?")
"""Where layout shared says it, after all that every agent reads."""
_WHOM = re.compile(r"in exactly these names: ((?:Agent \d+(?: and |; )?)+)")
_TAG_LEFT_OPEN = re.compile(r"<(solution|evaluation|comparison|consensus|consensus_reason)>\n\Z")
_REQUESTS = {
    "comparison": re.compile(r"\ANow (?:compare these answers|decide which)"),
    "evaluation": re.compile(r"^(?:Check|Read) the .+ of Agent|^Nobody else has given", re.M),
    "consensus": re.compile(r"\ADo all agents"),
    "consensus_reason": re.compile(r"\ASay why in one sentence"),
}
"""How a prompt asks for one section, in its newest message; the plain question asks for a solution."""


_USER = re.compile(r"<\|im_start\|>user\n|<｜User｜>|\[INST\] ?")
"""Where a user's message begins, in the chat formats that the script is tried with."""


def read_scene(prompt: str) -> Scene:
    who = _WHO.search(prompt)
    tagged = who is not None or "You are a judge." in prompt
    newest = prompt
    for begin in _USER.finditer(prompt):
        newest = prompt[begin.end() :]
    seats = list(_SEAT.finditer(newest))
    if seats:
        newest = newest[seats[-1].end() :]
    # In tags, what to write now stands at the end; otherwise the message is the request, and what follows it is the
    # chat format's.
    request = newest[newest.rfind("Round ") :] if tagged else newest.partition("<|im_end|>")[0]
    whom = _WHOM.search(request) if tagged else None
    section = ""
    if left_open := _TAG_LEFT_OPEN.search(prompt):
        section = left_open[1]
    elif not tagged:
        section = next((name for name, asks in _REQUESTS.items() if asks.search(request)), "solution")
    named = whom[1] if whom else request if section in ("evaluation", "comparison") and not tagged else ""
    return Scene(
        agent=int(who[1]) if who and who[1] else int(seats[-1][1]) if seats else -1,
        eligible=tuple(sorted({int(i) for i in re.findall(r"Agent (\d{1,9})\b", named)})),
        contract="five_tag" if "<consensus_reason>" in prompt else "three_tag",
        section=section,
    )
