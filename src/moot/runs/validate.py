"""Whether a record is a debate at all: each part of the kind it must be, and lists as long as there are agents and
turns.

What reads records further on relies on it, so a damaged line is found here, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from moot.errors import ConfigError

MOST, MOST_TOKENS = 1000, 1 << 40
"""Agents or rounds, and tokens: a larger number is no count, and one of hundreds of digits cannot be divided."""
_NOTHING = type(None)
_WORDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", bool: "true or false"}
_WORDS[_NOTHING] = "null"
_OF_TURNS = {"answer": (str, _NOTHING), "correct": (bool,), "same": (int, _NOTHING), "failure": (str,), "stop": (str,)}


def check_shape(record: Any) -> None:
    """ConfigError that names the first part that is wrong."""
    _kind("the record", record, dict)
    question = _part(record, "question", dict)
    _part(question, "text", str)
    _part(question, "answer", str, _NOTHING)
    for side in _optional(question, "sides", list):
        _kind("sides", side, str)
    agents = _part(record, "num_agents", int)
    for name, value in (("num_agents", agents), ("max_rounds", _part(record, "max_rounds", int))):
        if not 1 <= value <= MOST:
            raise ConfigError(f"{name} must lie in 1 to {MOST}, got {value}")
    _part(record, "protocol", dict)
    if record.get("error") is not None:
        _part(record, "error", str)
    taken: Counter[int] = Counter()
    for turn in _part(record, "turns", list):
        _turn(turn)
        if not 0 <= _part(turn, "agent", int) < agents:
            raise ConfigError(f"agent must lie in 0 to {agents - 1}, got {turn['agent']}")
        taken[turn["agent"]] += 1
    for judge in _optional(record, "jury", list):
        _turn({"round": 1, **_kind("jury", judge, dict)})
    _checks(record)
    for vote in _optional(record, "votes", list):
        if (verdict := _kind("votes", vote, dict).get("verdict")) not in (">", "="):
            raise ConfigError(f"verdict must be > or =, got {verdict!r}")
    for name in ("rewards", "returns", "advantages"):
        if record.get(name) is not None:
            _rewards(name, record[name], [taken[agent] for agent in range(agents)])


def check_said(record: Any) -> None:
    """ConfigError where what an evaluation kept is neither a plain answer nor a debate."""
    _tokens(_part(_kind("the record", record, dict), "tokens", int))
    if "turns" not in record:
        _part(record, "text", str)
        _part(record, "stop", str)
        return
    for turn in _part(record, "turns", list):
        _turn(turn)
        _part(turn, "agent", int)
        _part(turn, "stop", str)
    for judge in _optional(record, "jury", list):
        _turn({"round": 1, **_kind("jury", judge, dict)})
    _checks(record)


def _checks(record: Mapping[str, Any]) -> None:
    turns = len(record["turns"])
    for check in _optional(record, "checks", list):
        about = _part(_kind("checks", check, dict), "turns", list)
        if not 1 <= len(about) <= 2 or not all(type(turn) is int and 0 <= turn < turns for turn in about):
            raise ConfigError(f"a check is about one or two of the {turns} turns, got {about!r:.80}")
        _numbers("value", [_part(check, "value", int, float)], 1)
        if not 0 <= check["value"] <= 1 or _part(check, "judge", int) < 0:
            raise ConfigError(f"a check's value must lie in 0 to 1 and its judge from 0 up, got {check!r:.80}")
        _part(check, "thinking", str)
        _kind("rule", check.get("rule", ""), str)
        _tokens(_part(check, "tokens", int, _NOTHING))
        if check.get("by") not in ("probability", "word"):
            raise ConfigError(f"a check is by probability or by word, got {check.get('by')!r:.80}")


def _tokens(count: int | None) -> None:
    if count is not None and not 0 <= count < MOST_TOKENS:
        raise ConfigError(f"tokens must lie in 0 to {MOST_TOKENS:,}, got {count!r:.80}")


def _turn(turn: Any) -> None:
    _kind("turns", turn, dict)
    _part(turn, "text", str)
    _part(turn, "round", int)
    for name in _OF_TURNS.keys() & turn.keys():
        _part(turn, name, *_OF_TURNS[name])
    for name, section in _optional(turn, "fields", dict).items():
        _kind(f"fields {name}", section, str)


def _rewards(name: str, given: Any, turns: list[int]) -> None:
    if isinstance(given, Mapping):
        for stream, rows in given.items():
            _long(f"{name} {stream}", rows, len(turns))
            for row, count in zip(rows, turns, strict=True):
                _numbers(f"{name} {stream}", row, count)
    else:
        _numbers(name, given, len(turns))


def _numbers(name: str, given: Any, count: int) -> None:
    if all(type(number) is float for number in _long(name, given, count)):
        return  # nearly always, and a page checks thousands
    for number in given:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{name} must be numbers, got {number!r:.80}")


def _long(name: str, given: Any, count: int) -> list[Any]:
    if len(_kind(name, given, list)) != count:
        raise ConfigError(f"{name} must have {count} entries, got {len(given)}")
    return given  # type: ignore[no-any-return]


def _part(owner: Mapping[str, Any], name: str, *kinds: type) -> Any:
    if name not in owner:
        raise ConfigError(f"{name} is missing")
    return _kind(name, owner[name], *kinds)


def _optional(owner: Mapping[str, Any], name: str, kind: type) -> Any:
    return kind() if owner.get(name) is None else _kind(name, owner[name], kind)


def _kind(name: str, value: Any, *kinds: type) -> Any:
    if type(value) in kinds:
        return value
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ConfigError(f"{name} must be {' or '.join(_WORDS[kind] for kind in kinds)}, got {value!r:.80}")
    return value
