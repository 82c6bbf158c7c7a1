"""Several ways to judge, asked about the same answers: each check once, kept line by line, and then measured."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moot.debate.checks import Ballot, Check, Pair, Rules, Show, approval, drawn_pairs, over_rules, scores_in_pairs
from moot.debate.plain import plain_answers
from moot.debate.play import gather_or_raise
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.rewards import plurality
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from moot.evaluate.play import EvalWatcher
from moot.evaluate.store import AnswerStore, Record, SampleKey, question_key
from moot.judges.asking import Asked, Judge, texts_digest
from moot.judges.lines import written
from moot.judges.measures import Difference, Judged, Measures, difference, measure
from moot.rl.metrics import mean
from moot.runs.validate import MOST_TOKENS
from moot.tasks.answers import grade_all
from moot.tasks.task import Task
from moot.tokens.speaker import turn_seed
from moot.util.files import digest
from moot.util.safe_text import counted

VERDICTS = "verdicts"


@dataclass(frozen=True)
class Answered:
    """A question and the answers that every judge is asked about."""

    question: Question
    solutions: tuple[str, ...]
    answers: tuple[str | None, ...]
    correct: tuple[bool, ...]
    classes: tuple[int | None, ...]
    """Which of them are the same."""
    rules: tuple[str, ...] = ()
    """What the question asks for, where the task says it."""
    finals: tuple[str | None, ...] = ()
    """The final answers as a judge is shown them, where that is not as they were read."""

    @property
    def counting_fails(self) -> bool:
        most = plurality(self.classes)
        return most is None or not self.correct[self.classes.index(most)]

    def shown(self, show: Show) -> tuple[str | None, ...]:
        """None for what no judge is shown: an empty solution, or where only the final answer is shown, none."""
        texts = self.solutions if show == "solution" else self.finals or self.answers
        return tuple(text if text and text.strip() else None for text in texts)


def graded(answers: Mapping[Question, Sequence[str]], task: Task) -> list[Answered]:
    """Answers in text, read and checked by the task."""
    debates = [plain_answers(question, texts) for question, texts in answers.items()]
    solutions = [tuple(turn.solution for turn in debate.turns) for debate in debates]
    grades = grade_all(debates, task.equal, task.extract, task.check)
    columns = zip(answers, solutions, grades, strict=True)
    rules = [task.rules_of(question) if task.rules else () for question in answers]
    return [
        Answered(
            question, texts, found.answers, found.correct, found.same, own, tuple(map(task.as_shown, found.answers))
        )
        for (question, texts, found), own in zip(columns, rules, strict=True)
    ]


@dataclass(frozen=True)
class Way:
    """One way to judge, the number of checks apart."""

    judge: str
    ballot: Ballot = "approval"
    show: Show = "solution"
    prompts: Prompts = DEFAULT
    texts: str = ""
    """Where its texts come from; empty for the defaults."""
    rules: Rules = "together"
    """Of approval."""


@dataclass(frozen=True)
class TrialConfig:
    checks: tuple[int, ...] = (4,)
    """Of approval. The most of them are asked for; fewer are the first of these."""
    opponents: int = 2
    """Of pairs: how many others an answer meets at most."""
    max_tokens: int = 256
    """Longest thinking."""
    temperature: float = 1.0
    """Of the thinking; the verdict's probability is always that at temperature 1."""
    seed: int = 0
    concurrency: int = 256


@dataclass(frozen=True)
class TrialRow:
    way: Way
    checks: int
    measures: Measures
    best_minus: Difference | None = None
    """The best way minus this one; None of the best, and where they have no pair in common."""
    fewer: str = ""
    """What it could not score, and why; empty where it scored every answer."""

    def __str__(self) -> str:
        return ", ".join(self.parts)

    @property
    def parts(self) -> list[str]:
        """Of its name."""
        ballot = f"approval ×{self.checks}" if self.way.ballot == "approval" else self.way.ballot
        over = "" if self.way.rules == "together" else f"{self.way.rules} of the rules"
        return list(filter(None, (self.way.judge, ballot, self.way.show, over, self.way.texts)))

    def as_dict(self) -> dict[str, Any]:
        way = {
            "judge": self.way.judge,
            "ballot": self.way.ballot,
            "show": self.way.show,
            "rules": self.way.rules,
            "prompts": self.way.texts or "default",
        }
        behind = self.best_minus and self.best_minus.as_dict()
        return {
            **way, "checks": self.checks, **self.measures.as_dict(), "best_minus": behind, "fewer": self.fewer,
        }  # fmt: skip


class Trial:
    """`identities` tell judges apart that have one name, so that a kept verdict is never taken for another's."""

    def __init__(
        self, answered: Sequence[Answered], judges: Mapping[str, Judge], identities: Mapping[str, str],
        config: TrialConfig, verdicts: AnswerStore, watcher: EvalWatcher = EvalWatcher(), everything: bool = False,
    ) -> None:  # fmt: skip
        # Where all answers are right, or all are wrong, there is nothing to measure, and nobody is asked; with
        # `everything` the scores themselves are wanted.
        self._answered = [solved for solved in answered if everything or len(set(solved.correct)) == 2]
        self._judges, self._identities = judges, identities
        self._config, self._verdicts, self._watch = config, verdicts, watcher
        self._gate = asyncio.Semaphore(config.concurrency)

    async def ask(self, ways: Sequence[Way]) -> None:
        """Everything that is not known yet, of all ways at once. What an engine fails at is asked another time."""
        wanted = self._wanted(ways)
        missing = self.missing(ways)
        self._watch.planned(VERDICTS, len(wanted), len(wanted) - len(missing))
        for way in ways:
            if any(place.settings == self._settings(way) for place in missing):
                self._verdicts.note(self._settings(way), self._meaning(way))
        await gather_or_raise(
            self._one(place, self._judges[way.judge], asked) for place, (way, asked) in missing.items()
        )

    def missing(self, ways: Sequence[Way]) -> dict[SampleKey, tuple[Way, Asked]]:
        """What is not known yet, or was lost to the engine."""
        return {place: asked for place, asked in self._wanted(ways).items() if self._verdicts.get(place) is None}

    def _wanted(self, ways: Sequence[Way]) -> dict[SampleKey, tuple[Way, Asked]]:
        checks = ((way, self._checks(way, answered)) for way in ways for answered in self._answered)
        return {place: (way, asked) for way, places in checks for place, asked, _ in places}

    def rows(self, ways: Sequence[Way]) -> list[TrialRow]:
        """The best first; those that could not be measured last."""
        counts = {way: sorted(set(self._config.checks)) if way.ballot == "approval" else [1] for way in ways}
        judged = {
            (way, checks): [self._judged(way, answered, checks) for answered in self._answered]
            for way in ways
            for checks in counts[way]
        }
        seed = self._config.seed
        rows = [
            TrialRow(way, checks, measure(own, way.ballot, seed), fewer=self._fewer(way, own))
            for (way, checks), own in judged.items()
        ]
        rows.sort(key=lambda row: -row.measures.pair_accuracy.value if row.measures.pair_accuracy else 1.0)
        best, *others = rows
        own = judged[best.way, best.checks]
        return [
            best,
            *(replace(row, best_minus=difference(own, judged[row.way, row.checks], seed)) for row in others),
        ]

    def scores(self, way: Way, checks: int) -> dict[Question, tuple[float | None, ...]]:
        """Of every answer; None where it could not be shown, or the engine failed."""
        return {answered.question: self._judged(way, answered, checks).scores for answered in self._answered}

    def listing(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Question by question what was shown and what each judge made of it, with its thinking, for people to read."""
        for answered in self._answered:
            rows = zip(answered.solutions, answered.answers, answered.correct, strict=True)
            yield {
                "question": answered.question.text,
                "known": answered.question.answer,
                "answers": [{"text": text, "answer": answer, "correct": right} for text, answer, right in rows],
                "ways": [self._told(way, answered) for way in ways],
            }

    def _told(self, way: Way, answered: Answered) -> dict[str, Any]:
        checks = max(self._config.checks) if way.ballot == "approval" else 1
        verdicts = [
            {"about": about, "rule": asked.rule, **record}
            for place, asked, about in self._checks(way, answered)
            if (record := self._verdicts.get(place)) is not None
        ]
        dull = ("settings", "question", "number")
        return {
            "way": str(TrialRow(way, checks, measure([]))),
            "scores": self._judged(way, answered, checks).scores,
            "verdicts": [{name: value for name, value in record.items() if name not in dull} for record in verdicts],
        }

    def _fewer(self, way: Way, judged: Sequence[Judged]) -> str:
        missing = (
            self._why(way, answered, i)
            for answered, own in zip(self._answered, judged, strict=True)
            for i, score in enumerate(own.scores)
            if score is None
        )
        why = " and ".join(dict.fromkeys(filter(None, missing)))
        scored = [len(own.scores_of(True)) * len(own.scores_of(False)) for own in judged]
        pairs = sum(own.correct.count(True) * own.correct.count(False) for own in judged)
        questions = f"{sum(map(bool, scored))} of {counted(len(judged), 'question')}"
        told = f"{questions}, {sum(scored)} of {counted(pairs, 'pair')}{', because ' * bool(why)}{why}"
        return told if sum(scored) < pairs else ""

    def _why(self, way: Way, answered: Answered, i: int) -> str | None:
        """Why an answer has no score; None where another answer is the reason."""
        shown, classes, opponents = answered.shown(way.show), answered.classes, self._config.opponents
        if shown[i] is None:
            return f"an {'empty answer' if way.show == 'solution' else 'answer without a final one'} is not shown"
        about = [place for place, _, places in self._checks(way, answered) if i in places]
        if any(self._verdicts.get(place) is None for place in about):
            return "the engine failed at verdicts"
        if way.ballot == "lines":
            return "the judge's lines compare too few answers"
        if way.ballot == "approval":
            return "questions have no rules"
        others = [j for j, text in enumerate(shown) if text is not None and classes[j] != classes[i]]
        return f"--opponents {opponents} draws {counted(opponents, 'other answer')} for each" if others else None

    # What is asked

    def _meaning(self, way: Way) -> dict[str, Any]:
        config = self._config
        each_rule = way.rules != "together"
        texts = texts_digest(way.prompts, way.ballot, way.show, each_rule)
        asked = {"ballot": way.ballot, "show": way.show, "texts": texts, **({"each_rule": True} if each_rule else {})}
        sampled = {"seed": config.seed, "max_tokens": config.max_tokens, "temperature": config.temperature}
        return {"judge": self._identities[way.judge], **asked, **sampled}

    def _settings(self, way: Way) -> str:
        return digest(self._meaning(way))

    def _place(self, way: Way, answered: Answered, texts: Sequence[str], number: int) -> SampleKey:
        """By what is shown: an answer that several gave in the same words is asked about once."""
        return SampleKey(self._settings(way), digest([question_key(answered.question), *texts]), number)

    def _pairs(self, way: Way, answered: Answered) -> list[tuple[int, int]]:
        seed = f"{self._config.seed}/{question_key(answered.question)}"
        is_shown = [text is not None for text in answered.shown(way.show)]
        return drawn_pairs(answered.classes, is_shown, self._config.opponents, seed)

    def _checks(self, way: Way, answered: Answered) -> Iterator[tuple[SampleKey, Asked, list[int]]]:
        """With the numbers of the answers that each is about."""
        shown, most = answered.shown(way.show), max(self._config.checks)
        readable = [i for i, text in enumerate(shown) if text is not None]
        asked: list[tuple[list[int], str, int]]
        asked = [([i], rule, most) for i in readable for rule in _rules(way, answered)]
        if way.ballot == "pairs":
            asked = [(order, "", 1) for i, j in self._pairs(way, answered) for order in ([i, j], [j, i])]
        elif way.ballot == "lines":
            asked = [(readable, "", 1)] if len(readable) > 1 else []
        for about, rule, checks in asked:
            texts = tuple(shown[i] or "" for i in about)
            for number in range(checks):
                yield (
                    self._place(way, answered, (*texts, *filter(None, (rule,))), number),
                    Asked(answered.question, texts, way.ballot, way.show, way.prompts, rule),
                    about,
                )

    async def _one(self, place: SampleKey, judge: Judge, asked: Asked) -> None:
        config = self._config
        async with self._gate:
            seed = turn_seed(config.seed, place.settings, place.question, place.number)
            params = SamplingParams(config.max_tokens, config.temperature, seed=seed)
            try:
                if asked.ballot == "lines":
                    record = await written(judge, asked, params)
                else:
                    record = _kept(await judge.check(asked, params))
            except EngineError as error:
                self._watch.sampled(VERDICTS, 0, str(error))
                return
        self._verdicts.add(place, record)
        self._watch.sampled(VERDICTS, record["tokens"] or 0, None)

    # What came of it

    def written(self, way: Way) -> int | None:
        """Tokens that the judge wrote, each verdict once; None where a server did not say."""
        places = {place for answered in self._answered for place, *_ in self._checks(way, answered)}
        found = [record["tokens"] for place in places if (record := self._verdicts.get(place)) is not None]
        return None if None in found else sum(found)

    def unread(self, ways: Sequence[Way]) -> float | None:
        """The share of the verdicts in one word that could not be read; None where there are none."""
        places = {place for way in ways for answered in self._answered for place, *_ in self._checks(way, answered)}
        records = [record for place in places if "value" in (record := self._verdicts.get(place) or {})]
        return mean(float(Check(record["value"], by=record["by"]).unread) for record in records)

    def _judged(self, way: Way, answered: Answered, checks: int) -> Judged:
        shown, pairs = answered.shown(way.show), list[Pair]()
        records: list[Record] = []
        scores: list[float | None]
        if way.ballot == "pairs":
            for i, j in self._pairs(way, answered):
                orders = [self._verdicts.get(self._place(way, answered, texts, 0)) for texts in _orders(shown, i, j)]
                kept = [record for record in orders if record is not None]
                if len(kept) == 2:
                    pairs.append(Pair(i, j, kept[0]["value"], kept[1]["value"]))
                    records += kept
            scores = [approval(scores_in_pairs(pairs, i)) for i in range(len(shown))]
        elif way.ballot == "lines":
            ballots = (self._verdicts.get(place) for place, *_ in self._checks(way, answered))
            records = [ballot for ballot in ballots if ballot is not None]
            paid = iter(records[0]["scores"] if records else ())
            scores = [None if text is None else next(paid, None) for text in shown]
        else:
            checked = [self._checked(way, answered, text, checks) for text in shown]
            scores = [_over_rules(own, way.rules) for own in checked]
            records = [record for own in checked for of_rule in own for record in of_rule]
        tokens = [record["tokens"] for record in records]
        spent = None if None in tokens else sum(tokens)
        lengths = tuple(map(len, answered.solutions))
        return Judged(answered.correct, tuple(scores), lengths, answered.counting_fails, spent, tuple(pairs))

    def _checked(self, way: Way, answered: Answered, text: str | None, checks: int) -> list[list[Record]]:
        """By rule, the first checks of an answer; none where one of them is missing, so that every score is of so
        many."""
        kept: list[list[Record]] = []
        for rule in () if text is None else _rules(way, answered):
            texts = (text or "", *filter(None, (rule,)))
            records = [self._verdicts.get(self._place(way, answered, texts, number)) for number in range(checks)]
            kept.append([record for record in records if record is not None])
        return kept if all(len(own) == checks for own in kept) else []


def check_verdict(record: Any) -> None:
    """TypeError or KeyError for what is no verdict, whoever wrote the file."""
    values, least = (record["scores"], -1) if "scores" in record else ([record["value"]], 0)
    numbers = all(isinstance(value, int | float) and least <= value <= 1 for value in values)
    tokens = record["tokens"]
    if not numbers or not (tokens is None or (isinstance(tokens, int) and 0 <= tokens < MOST_TOKENS)):
        raise TypeError(f"no verdict: {record!r:.60}")


def _rules(way: Way, answered: Answered) -> Sequence[str]:
    """One, without a word, where a question is asked about as a whole."""
    return ("",) if way.rules == "together" else answered.rules


def _over_rules(by_rule: Sequence[Sequence[Record]], rules: Rules) -> float | None:
    means = [approval([record["value"] for record in own]) for own in by_rule]
    return over_rules([mean for mean in means if mean is not None], rules) if means else None


def _orders(shown: Sequence[str | None], i: int, j: int) -> list[tuple[str, ...]]:
    one, other = shown[i] or "", shown[j] or ""
    return [(one, other), (other, one)]


def _kept(check: Check) -> Record:
    return {"value": check.value, "thinking": check.thinking, "tokens": check.tokens, "by": check.by}
