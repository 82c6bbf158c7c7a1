"""How a task is spelled: `name`, `name:word,setting=value,…`, or a file, `questions.jsonl:setting=value,…`.

Nothing in it needs quoting in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from moot.debate.typed_fields import fill_fields
from moot.errors import ConfigError

_FILE = re.compile(r"(.+?\.(?:jsonl|json|csv|txt))(?::(.*))?", re.S)

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Spec:
    text: str
    """As it was written, for messages."""
    name: str
    """What stands before the colon: a task's name, or a file."""
    words: tuple[str, ...] = ()
    """What stands after it without a value: subjects, the name of a generator."""
    settings: Mapping[str, str] | None = None

    @classmethod
    def read(cls, text: str) -> Spec:
        file = _FILE.fullmatch(text)
        name, rest = text.partition(":")[::2]
        if file and ("/" in name or "." in name):
            name, rest = file[1], file[2] or ""
        words: list[str] = []
        settings: dict[str, str] = {}
        for piece in filter(None, map(str.strip, rest.split(","))):
            key, equals, value = piece.partition("=")
            if not equals:
                words.append(piece)
            elif key in settings:
                raise ConfigError(f"task {text!r}: {key} is given twice; leave one of them out")
            else:
                settings[key] = value
        return cls(text, name, tuple(words), settings)

    @property
    def label(self) -> str:
        """What results go by: the same for the same questions, wherever their files are."""
        elsewhere = ("train", "test", "grader", "equal")
        settings = {key: value for key, value in (self.settings or {}).items() if key not in elsewhere}
        said = [*self.words, *(f"{key}={value}" for key, value in settings.items())]
        return f"{self.name}:{','.join(said)}" if said else self.name

    @property
    def names_grader(self) -> bool:
        """Whether it says how answers are to be compared."""
        return not {"grader", "equal"}.isdisjoint(self.settings or {})

    def fill(self, kind: type[Kind]) -> Kind:
        """The settings as `kind`, a dataclass of defaults. An error lists the names it knows."""
        return fill_fields(kind(), self.settings or {}, f"task {self.text!r}")

    def no_words(self) -> None:
        if self.words:
            way_out = "write settings as name=value, with commas between"
            raise ConfigError(f"task {self.text!r}: {self.words[0]!r} means nothing here; {way_out}")
