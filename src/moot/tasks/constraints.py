"""Constraints: a short text under two or three rules that a program can check. Open-ended: no two texts are the same,
so no majority exists. `constraints:rules=unseen` has other kinds of rules: train on the ones, measure on the others.

A question says its rules in fixed sentences, and the checker reads them there. Whether a text is about its topic, no
program can tell.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.answer_classes import ByKey
from moot.tasks.constraint_topics import FIRST_WORDS, LAST_WORDS, TOPICS, WORDS
from moot.tasks.spec import Spec
from moot.tasks.task import Task, distinct

LONGEST = 20_000
"""Characters of a text that is checked at all."""
MARKS = {"comma": ",", "question mark": "?", "exclamation mark": "!"}
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s|$)")


def words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def sentences(text: str) -> int:
    """Pieces with a word in them, between full stops and other ends of sentences that a space or the end follows."""
    return sum(bool(_WORD.search(piece)) for piece in _SENTENCE_END.split(text))


def paragraphs(text: str) -> int:
    return len([piece for piece in re.split(r"\n\s*\n", text) if piece.strip()])


@dataclass(frozen=True)
class Rule:
    """A kind of rule. Its sentence has one gap, or none."""

    sentence: str
    drawn: Callable[[random.Random], object]
    """What is put in the gap."""
    holds: Callable[[str, str], bool]
    """(a text, what stands in the gap) -> whether the text keeps it."""
    about: str = ""
    """Two rules about the same thing are never asked for at once."""

    def read(self, sentence: str) -> str | None:
        before, _, after = self.sentence.partition("{}")
        if before == sentence and not after:
            return ""
        fits = "{}" in self.sentence and sentence.startswith(before) and sentence.endswith(after)
        return sentence[len(before) : len(sentence) - len(after)] if fits else None


SEEN: dict[str, Rule] = {
    "at_least": Rule(
        "Use at least {} words.",
        lambda rng: rng.randrange(20, 61, 5),
        lambda text, gap: len(words(text)) >= int(gap),
    ),
    "sentences": Rule(
        "Write exactly {} sentences.",
        lambda rng: rng.randint(2, 6),
        lambda text, gap: sentences(text) == int(gap),
        about="form",
    ),
    "bullets": Rule(
        "Write exactly {} bullet points, each on a line that begins with a dash and a space.",
        lambda rng: rng.randint(2, 6),
        lambda text, gap: sum(line.startswith("- ") for line in lines(text)) == int(gap),
        about="form",
    ),
    "contains": Rule(
        "Use the words {}.",
        lambda rng: " and ".join(rng.sample(WORDS, 2)),
        lambda text, gap: {*gap.split(" and ")} <= {*words(text)},
    ),
    "no_letter": Rule(
        "Do not use the letter {}.",
        lambda rng: rng.choice("bcdfgkmpvwy"),
        lambda text, gap: gap not in text.casefold(),
    ),
    "lower_case": Rule("Write everything in lower case.", lambda rng: "", lambda text, gap: text == text.lower()),
}
UNSEEN: dict[str, Rule] = {
    "at_most": Rule(
        "Use at most {} words.",
        lambda rng: rng.randrange(15, 41, 5),
        lambda text, gap: len(words(text)) <= int(gap),
    ),
    "paragraphs": Rule(
        "Write exactly {} paragraphs, with an empty line between them.",
        lambda rng: rng.randint(2, 4),
        lambda text, gap: paragraphs(text) == int(gap),
    ),
    "line_start": Rule(
        "Begin every line with the sign {}",
        lambda rng: rng.choice(">*+#~"),
        lambda text, gap: all(line.startswith(gap) for line in lines(text)),
        about="start",
    ),
    "first_word": Rule(
        "Begin with the word {}.",
        lambda rng: rng.choice(FIRST_WORDS),
        lambda text, gap: words(text)[:1] == [gap],
        about="start",
    ),
    "last_words": Rule(
        "End with the words {}.",
        lambda rng: rng.choice(LAST_WORDS),
        lambda text, gap: words(text)[-len(gap.split()) :] == gap.split(),
    ),
    "no_mark": Rule(
        "Do not use any {}.",
        lambda rng: rng.choice(list(MARKS)),
        lambda text, gap: MARKS[gap] not in text,
    ),
}
KINDS = {"seen": SEEN, "unseen": UNSEEN}
SHORTEST = 10
"""Words of a text that is one: a rule alone, say of a letter to leave out, could be kept by a single word."""
_HEAD = f"Write a short text about {{}}, of {SHORTEST} words or more. Keep all of these rules:"
_HEADED = re.compile(_HEAD.partition(".")[0].replace("{}", ".+") + r"\.")
_TAIL = "Write the text alone, without a comment before or after it."


@dataclass(frozen=True)
class ConstraintSettings:
    rules: str = "seen"
    """seen, or unseen: two lists that share no kind of rule."""

    def __post_init__(self) -> None:
        if self.rules not in KINDS:
            raise ConfigError(f"rules must be one of {', '.join(KINDS)}, got {self.rules!r}")


def question(seed: object, split: str, number: int, settings: ConstraintSettings = ConstraintSettings()) -> Question:
    """Every sixth topic is held out; training has the others, so the two never meet."""
    rng = random.Random(f"{seed}/{split}/{number}/{settings.rules}")
    topics = [topic for i, topic in enumerate(TOPICS) if (i % 6 == 0) == (split == "held_out")]
    rules = _drawn(list(KINDS[settings.rules].values()), rng)
    text = "\n".join([_HEAD.format(rng.choice(topics)), *(f"- {sentence}" for sentence in rules), _TAIL])
    return Question(text, id=f"{split}-{number}")  # without an instruction: prompts then speak of no right answer


def _drawn(kinds: Sequence[Rule], rng: random.Random) -> list[str]:
    """Rules that can be kept together."""
    while True:
        rules = rng.sample(kinds, rng.choice([2, 3]))
        gaps = {rule.sentence: str(rule.drawn(rng)) for rule in rules}
        abouts = [rule.about for rule in rules if rule.about]
        letter, asked_for = gaps.get(SEEN["no_letter"].sentence), gaps.get(SEEN["contains"].sentence, "").split(" and ")
        if len({*abouts}) == len(abouts) and not (letter and any(letter in word for word in asked_for)):
            return [sentence.format(gap) for sentence, gap in gaps.items()]


@lru_cache(maxsize=1000)
def rules_of(text: str) -> dict[str, tuple[Rule, str]]:
    """The rules in a question's text: each sentence, with its kind and what stands in its gap."""
    rules: dict[str, tuple[Rule, str]] = {}
    for line in text.splitlines():
        if line.startswith("- "):
            sentence = line.removeprefix("- ")
            kinds = [*SEEN.values(), *UNSEEN.values()]
            readings = [(rule, gap) for rule in kinds if (gap := rule.read(sentence)) is not None]
            if not readings:
                raise ConfigError(f"task constraints: {sentence!r} is no rule of this task; ask one of its questions")
            rules[sentence] = readings[0]
    if not rules:
        raise ConfigError(f"task constraints: a question must list its rules in lines behind '- ', got {text[:80]!r}")
    return rules


def rules(question: Question) -> list[str]:
    """For a judge: what is asked for at the beginning, though no program can tell the topic, and then the rules."""
    head = _HEADED.match(question.text)
    return [*([head[0]] if head else []), *rules_of(question.text)]


def checks(question: Question, answer: str) -> dict[str, bool]:
    """Each rule, as the question says it, and whether the text keeps it. A text that is too short keeps none."""
    text = answer.strip()
    readable = len(text) <= LONGEST and len(words(text)) >= SHORTEST
    return {sentence: readable and rule.holds(text, gap) for sentence, (rule, gap) in rules_of(question.text).items()}


def check(question: Question, answer: str) -> bool:
    return all(checks(question, answer).values())


equal = ByKey(str.strip)


def extract(solution: str) -> str | None:
    """The whole of it."""
    return solution.strip() or None


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    settings = spec.fill(ConstraintSettings)
    held = distinct((question(seed, "held_out", i, settings) for i in range(10 * held_out)), held_out)
    train = partial(question, seed, "train", settings=settings)
    return Task(spec.label, train, held, equal, extract, check=check, rules=rules)
