"""The texts that agents and judges read, from one file that a user may replace. What is filled into them is decided in prompts.py.

The file is TOML: tables of named texts. Words in braces are places to fill in; which ones a text may name is fixed by the default
text's table below, so that a misspelled place is an error at the start and not a brace in front of a model.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from moot.debate.types import ConfigError

PLACES = frozenset(
    {"question", "instruction", "answers", "names", "work", "choices", "pairs", "agent", "num_agents", "last", "persona", "sections"}
    | {"round", "rounds", "rest", "character", "style", "position", "rival", "other", "positions"}
)
"""Everything that can be filled in somewhere."""
LATER = ("advocates.", "both.forecast_")
"""Texts that came later than digests were first kept, and that other debates do not read: as they are shipped, they change no digest."""
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Prompts:
    """All texts, by `table.name`."""

    texts: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(self.digest)

    def say(self, name: str, /, **values: object) -> str:
        """A text with its places filled in. What is filled in is not looked at again, so an agent's braces stay braces."""
        return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), self.texts[name]).strip()

    @property
    def digest(self) -> str:
        """The same for the same texts: what was sampled under other texts must not be taken for a sample of these."""
        later = {name for name, text in self.texts.items() if name.startswith(LATER) and DEFAULT.texts[name] == text}
        return _digest({name: text for name, text in self.texts.items() if name not in later})

    def digest_of(self, start: str) -> str:
        """Of the texts whose names begin so."""
        return _digest({name: text for name, text in self.texts.items() if name.startswith(start)})

    def __str__(self) -> str:
        """The names of the texts that are not the defaults: what is said where two runs differ."""
        changed = [name for name, text in self.texts.items() if DEFAULT.texts[name] != text]
        return f"{', '.join(changed[:3])}{', …' if len(changed) > 3 else ''} ({self.digest})" if changed else f"default ({self.digest})"

    def as_dict(self) -> dict[str, object]:
        """As a run records it: all texts, so that it can be continued when the defaults are others."""
        return {"digest": self.digest, "texts": dict(self.texts)}

    @classmethod
    def from_dict(cls, recorded: object) -> Prompts:
        """As a run has them. What stands in a file may be anything."""
        texts = recorded.get("texts") if isinstance(recorded, Mapping) else None
        if not isinstance(texts, Mapping):
            raise ConfigError(f"prompts of a run must be texts by name, got {recorded!r:.60}")
        return DEFAULT.with_texts(texts, "the run's prompts")

    def with_texts(self, changes: Mapping[str, object], where: str) -> Prompts:
        return Prompts({**self.texts, **{name: _checked(name, text, where) for name, text in changes.items()}})


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256("\x1f".join(f"{name}\x1e{text}" for name, text in sorted(texts.items())).encode()).hexdigest()[:16]


def _checked(name: str, text: object, where: str) -> str:
    if name not in DEFAULT.texts:
        raise ConfigError(f"{where} has a text {name!r}, which nobody reads; the texts are {', '.join(DEFAULT.texts)}")
    if not isinstance(text, str):
        raise ConfigError(f"{where}: {name} must be a text, got {text!r:.60}")
    if half := re.search("[\ud800-\udfff]", text):
        raise ConfigError(f"{where}: {name} holds half a character ({half[0]!r}), which cannot be read; write it anew")
    allowed = set(_PLACE.findall(DEFAULT.texts[name])) & PLACES
    if unknown := (set(_PLACE.findall(text)) & PLACES) - allowed:
        places = ", ".join(f"{{{place}}}" for place in sorted(allowed)) or "no places"
        raise ConfigError(f"{where}: {name} cannot use {{{sorted(unknown)[0]}}}; it has {places}")
    return text


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
    return "".join(special.get(c) or (c if c in "\n\t" or (ord(c) >= 32 and ord(c) != 127) else f"\\u{ord(c):04x}") for c in text)


DEFAULT = Prompts({name: str(text) for name, text in _flat(tomllib.loads(default_file()), "the default prompts").items()})


@cache
def load_prompts(path: str) -> Prompts:
    """A user's file over the defaults."""
    try:
        given = tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"prompts {path!r} cannot be read: {error.strerror or error}; write one with: moot prompts > FILE") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"prompts {path!r} is not TOML: {error}") from None
    return DEFAULT.with_texts(_flat(given, f"prompts {path!r}"), f"prompts {path!r}")
