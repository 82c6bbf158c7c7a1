"""The texts that agents and judges read, from one file that a user may replace. What is filled into them is decided in
prompts.py.

The file is TOML: tables of named texts. Words in braces are places to fill in; which ones a text may name is fixed by
the default text's table below, so that a misspelled place is an error at the start and not a brace in front of a model.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from moot.errors import ConfigError
from moot.util.disk import read_file

NEEDED = ("question", "rule", "answers", "choices", "position", "positions")
"""Places that a text may not lose: without them nobody knows what is asked, what was said, or what to choose from."""
AGAIN = ("asked.solve", "asked.solve_open")
"""Texts that repeat the question, which round 1 has asked: they may leave it out."""
_PLACE = re.compile(r"\{([a-z_]+)\}")
_MEANT = re.compile(r"(?<![A-Za-z0-9}^_])\{([A-Za-z_]{3,})\}")
"""What looks like a place; what stands behind a letter, as in \\boxed{answer}, is mathematics."""


@dataclass(frozen=True)
class Prompts:
    """All texts, by `table.name`."""

    texts: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(self.digest)

    def say(self, name: str, /, **values: object) -> str:
        """A text with its places filled in. What is filled in is not looked at again, so an agent's braces stay
        braces."""
        return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), self.texts[name]).strip()

    @property
    def digest(self) -> str:
        """The same for the same texts: what was sampled under other texts must not be taken for a sample of these."""
        listed = sorted(self.texts.items())
        return hashlib.sha256("\x1f".join(f"{name}\x1e{text}" for name, text in listed).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        """The names of the texts that are not the defaults: what is said where two runs differ."""
        changed = [name for name, text in self.texts.items() if DEFAULT.texts[name] != text]
        return (
            f"{', '.join(changed[:3])}{', …' if len(changed) > 3 else ''} ({self.digest})"
            if changed
            else f"default ({self.digest})"
        )

    def as_dict(self) -> dict[str, object]:
        """As a run records it: all texts, so that it can be continued when the defaults are others."""
        return {"digest": self.digest, "texts": dict(self.texts)}

    @classmethod
    def from_dict(cls, recorded: object) -> Prompts:
        """As a run has them. What stands in a file may be anything; a run that was played without a place stays one."""
        texts = recorded.get("texts") if isinstance(recorded, Mapping) else None
        if not isinstance(texts, Mapping):
            raise ConfigError(f"prompts of a run must be texts by name, got {recorded!r:.60}")
        return DEFAULT.with_texts(texts, "the run's prompts")

    def with_texts(self, changes: Mapping[str, object], where: str, source: str | None = None) -> Prompts:
        """`source` is the file that somebody wrote: each of its texts must have the places it needs, and no other."""
        texts = {name: _checked(name, text, where) for name, text in changes.items()}
        for name, text in texts.items() if source is not None else ():
            _check_places(name, text, where, source or "")
        return Prompts({**self.texts, **texts})


def _checked(name: str, text: object, where: str) -> str:
    if name not in DEFAULT.texts:
        raise ConfigError(f"{where} has a text {name!r}, which nobody reads; the texts are {', '.join(DEFAULT.texts)}")
    if not isinstance(text, str):
        raise ConfigError(f"{where}: {name} must be a text, got {text!r:.60}")
    if half := re.search("[\ud800-\udfff]", text):
        raise ConfigError(f"{where}: {name} holds half a character ({half[0]!r}), which cannot be read; write it anew")
    return text


def _check_places(name: str, text: str, where: str, source: str) -> None:
    allowed = set(_PLACE.findall(DEFAULT.texts[name]))
    used = set(_PLACE.findall(text))
    has = f"it has {', '.join(f'{{{place}}}' for place in sorted(allowed)) or 'no places'}"
    if unknown := sorted(((used & PLACES) | set(_MEANT.findall(text))) - allowed):
        near = get_close_matches(unknown[0].lower(), sorted(allowed), 1)
        meant = f", did you mean {{{near[0]}}}?" if near else "; for a brace that is to stay, put a space into it"
        place = f"{{{unknown[0]}}}"
        raise ConfigError(f"{where}{_line(source, name, place)}: {name} cannot use {place}; {has}{meant}")
    for place in NEEDED:
        if place in allowed - used and not (place == "question" and name in AGAIN):
            raise ConfigError(f"{where}{_line(source, name)}: {name} lacks {{{place}}}, which is filled in; {has}")


def _line(source: str, name: str, sought: str = "") -> str:
    """Where that text begins in the file, or where it has what is sought; nothing where it cannot be told."""
    table, _, own = name.partition(".")
    current, begun = "", False
    for number, line in enumerate(source.splitlines(), 1):
        if head := re.match(r"\s*\[(\w+)\]\s*(?:#.*)?$", line):
            current = head[1]
        begun |= current == table and re.match(rf"""\s*["']?{own}["']?\s*=""", line) is not None
        if begun and sought in line:
            return f", line {number}"
    return ""


def _flat(tables: Mapping[str, object], where: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for table, texts in tables.items():
        if not isinstance(texts, Mapping):
            raise ConfigError(f"{where}: {table!r} must be a table of texts such as [asked], got {texts!r:.60}")
        flat |= {f"{table}.{name}": text for name, text in texts.items()}
    return flat


def default_file() -> str:
    """The file of default texts as it is shipped, comments included."""
    return files("moot.debate").joinpath("prompts.toml").read_text(encoding="utf-8")


def toml_of(prompts: Prompts) -> str:
    """The texts as a file that `load_prompts` reads to the same texts."""
    lines: list[str] = []
    table = ""
    for name, text in prompts.texts.items():
        head, _, own = name.partition(".")
        if head != table:
            table = head
            lines += ["", f"[{head}]"] if lines else [f"[{head}]"]
        lines.append(f'{own} = """\n{_escaped(text)}"""')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """For a TOML string of several lines: backslashes, quotes and what is not to be seen."""
    special = {"\\": "\\\\", '"': '\\"'}
    return "".join(
        special.get(c) or (c if c in "\n\t" or (ord(c) >= 32 and ord(c) != 127) else f"\\u{ord(c):04x}") for c in text
    )


DEFAULT = Prompts(
    {name: str(text) for name, text in _flat(tomllib.loads(default_file()), "the default prompts").items()}
)
PLACES = frozenset(place for text in DEFAULT.texts.values() for place in _PLACE.findall(text))
"""Everything that can be filled in somewhere."""


@cache
def load_prompts(path: str) -> Prompts:
    """A user's file over the defaults."""
    try:
        source = read_file(Path(path).expanduser()).decode()
        given = tomllib.loads(source)
    except OSError as error:
        raise ConfigError(
            f"prompts {path!r} cannot be read: {error.strerror or error}; write one with: moot prompts > FILE"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"prompts {path!r} is not TOML: {error}") from None
    return DEFAULT.with_texts(_flat(given, f"prompts {path!r}"), f"prompts {path!r}", source)
