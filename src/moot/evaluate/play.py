"""`evaluate`: samples what the modes need and is not there yet, all at once, grades it, and makes a report of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moot.debate.plain import plain_answers
from moot.debate.play import gather_or_raise
from moot.debate.protocols.advocates import silent
from moot.debate.rewards import Grades
from moot.debate.state import Debate
from moot.debate.types import Message, Question
from moot.engine.protocol import SamplingParams
from moot.errors import ConfigError, EngineError
from moot.evaluate.counting import (
    QuestionCounts,
    count_against,
    count_answers,
    count_debate,
    count_verdicts,
    own_answers,
    scored_by_peers,
)
from moot.evaluate.modes import HEADLINE, KINDS, EvalConfig, all_needs, needs, opponent_in
from moot.evaluate.report import Report, ReportRow, make_row
from moot.evaluate.store import AnswerStore, Record, SampleKey, cut, debate_of, debate_record, question_key
from moot.evaluate.wins import VERDICT, Contest, count_wins, verdict
from moot.judges.checking import checking
from moot.rl.rollout import Guest, Player, TextPlayer, rollout
from moot.rl.trust import panel
from moot.tasks.answers import grade_all, settled_by
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.tokens.speaker import turn_seed
from moot.util.files import digest


class EvalWatcher:
    """Who looks on; this one does nothing about it."""

    def planned(self, kind: str, total: int, done: int) -> None: ...
    def sampled(self, kind: str, tokens: int, error: str | None) -> None: ...
    def note(self, text: str) -> None: ...


async def evaluate(
    policy: Player | TextPlayer,
    task: Task,
    config: EvalConfig,
    questions: Sequence[Question] | None = None,
    *,
    opponents: Mapping[str, Guest] | None = None,
    judge: Guest | None = None,
    contest: Contest | None = None,
    answers: AnswerStore | None = None,
    watcher: EvalWatcher = EvalWatcher(),
    played: Callable[[str, PlayedDebate], None] = lambda kind, rollout: None,
    graded: Callable[[list[PlayedDebate]], None] = lambda debates: None,
) -> Report:
    """The modes of `config` on `questions` (all held-out ones if not given). What `answers` already holds is not
    sampled again.

    `judge` decides between advocates, or checks answers where the reward is made of checks; without one the policy
    does. `contest` is for mode wins. `played` is handed each debate as it ends, with its kind (as in
    `EvalConfig.settings`), also one that the engine lost; `graded` is handed those of kind `debate` when all are over,
    with their scores.
    """
    distinct = {question_key(question): question for question in (task.held_out if questions is None else questions)}
    if not distinct:
        raise ConfigError(f"task {task.name} has no held-out questions to evaluate on")
    guests = dict(opponents or {})
    config = replace(config, opponents={name: config.opponents.get(name, name) for name in guests})
    if "opponents" in config.modes and not guests:
        raise ConfigError("mode opponents needs somebody to play against; name them with opponents")
    if "wins" in config.modes and contest is None:
        raise ConfigError("mode wins compares a run with what it started from; name a run, at a step after 0")
    kept = AnswerStore() if answers is None else answers
    work = _Work(policy, config, task, distinct, guests, judge or policy, kept, watcher, played, contest)

    k = config.k
    if config.match_tokens:
        # One answer each is needed in any case, and tells what an answer costs.
        await work.sample(all_needs(config, [mode for mode in config.modes if mode != "vote"], 1) | {"answer": 1})
        k = work.matching_k()
        watcher.note(f"vote takes k = {k}: as many answers as generate the tokens of one debate")
    await work.sample(all_needs(config, config.modes, k))
    if "wins" in config.modes:  # when both have answered
        await work.sample({VERDICT: 2})
    report, debates = await asyncio.to_thread(_report, work, k)
    graded(debates)
    return report


@dataclass
class _Work:
    """The samples of one evaluation: which are there, and how the others are made."""

    policy: Player | TextPlayer
    config: EvalConfig
    task: Task
    questions: Mapping[str, Question]
    opponents: Mapping[str, Guest]
    judge: Guest
    answers: AnswerStore
    watch: EvalWatcher
    played: Callable[[str, PlayedDebate], None]
    contest: Contest | None = None

    def __post_init__(self) -> None:
        self._gate = asyncio.Semaphore(self.config.concurrency)
        self._digests: dict[str, str] = {}

    def debate(self, question: Question) -> Debate:
        config, task = self.config, self.task
        return Debate(
            question,
            config.num_agents,
            config.max_rounds,
            config.protocol.rules,
            settled=settled_by(task.equal, task.extract),
            stop_when_settled=config.stop_when_settled,
            extra_rounds=config.extra_rounds,
            prompts=config.prompts,
        )

    def place(self, kind: str, key: str, number: int) -> SampleKey:
        if kind not in self._digests:
            self._digests[kind] = digest(self.config.settings(kind))
        return SampleKey(self._digests[kind], key, number)

    def records(self, kind: str, key: str, count: int) -> list[Record] | None:
        """None where one is missing, because the engine failed."""
        kept = [self.answers.get(self.place(kind, key, number)) for number in range(count)]
        return [record for record in kept if record is not None] if None not in kept else None

    async def sample(self, wanted: Mapping[str, int]) -> None:
        """Everything that is missing, of all kinds at once, so that the engine always has enough to do."""
        todo: list[tuple[str, str, int]] = []
        for kind, count in wanted.items():
            pieces = [(kind, key, number) for key in self.questions for number in range(count)]
            missing = [piece for piece in pieces if self.answers.get(self.place(*piece)) is None]
            self.watch.planned(kind, len(pieces), len(pieces) - len(missing))
            if missing:
                self.answers.note(self._digests[kind], self.config.settings(kind))
            todo += missing
        # Debates first: they take the longest, and answers fill the gaps.
        todo.sort(key=lambda piece: piece[0] == "answer")
        await gather_or_raise(self._one(*piece) for piece in todo)

    async def _one(self, kind: str, key: str, number: int) -> None:
        async with self._gate:
            seed = turn_seed(self.config.seed, kind, key, number)
            try:
                record = await self._made(kind, key, number, seed)
            except EngineError as error:
                # Not kept: the next run tries again.
                self.watch.sampled(kind, 0, str(error))
                return
        self.answers.add(self.place(kind, key, number), record)
        self.watch.sampled(kind, record["tokens"], None)

    async def _made(self, kind: str, key: str, number: int, seed: int) -> Record:
        question = self.questions[key]
        if kind == "answer":
            return await self._answer(self.policy, question, seed)
        if self.contest is not None and kind == "start":
            return await self._answer(self.contest.start, question, seed)
        if self.contest is not None and kind == VERDICT:
            ours, theirs = (self.records(of, key, 1) for of in ("answer", "start"))
            if ours is None or theirs is None:
                raise EngineError("one of the two answers is missing")
            params = SamplingParams(self.config.evaluation_tokens, 1.0, seed=seed)
            return await verdict(self.contest.judge, question, ours[0], theirs[0], number, params, self.config.prompts)
        return await self._debate(kind, question, number, seed)

    async def _answer(self, who: Player | TextPlayer, question: Question, seed: int) -> Record:
        params = SamplingParams(self.config.max_tokens, self.config.answer_temperature, seed=seed)
        answer = await who.answer([Message("user", question.plain)], params)
        return {"text": answer.text, "stop": answer.stop_reason, "tokens": answer.tokens}

    async def _debate(self, kind: str, question: Question, number: int, seed: int) -> Record:
        policy, config = self.policy, self.config

        def seats(_: int, seat: int) -> Guest | None:
            if kind == "judge" or (kind == "consultancy" and seat != number):
                return silent
            if kind in KINDS or seat == number:
                return None if isinstance(policy, Player) else policy
            return self.opponents[opponent_in(kind)]

        (done,) = await rollout(
            # One round of silence is as good as several.
            [replace(self.debate(question), max_rounds=1) if kind == "judge" else self.debate(question)],
            policy.sampler if isinstance(policy, Player) else None,
            policy.rendering if isinstance(policy, Player) else None,
            SamplingParams(config.max_tokens),
            tempered=config.tempered,
            seed=seed,
            seats=seats,
            judges=(lambda _: [self.judge]) if config.needs_judge else None,
            checking=checking(config.protocol.scoring.rule, lambda _: self.task, config.evaluation_tokens, seed),
            limits=config.limits,
        )
        self.played(kind, done)
        if done.error is not None:
            raise EngineError(done.error)
        return debate_record(done)

    def matching_k(self) -> int:
        def spent(kind: str) -> float:
            tokens = [records[0]["tokens"] for key in self.questions if (records := self.records(kind, key, 1))]
            return sum(tokens) / len(tokens) if tokens else 0.0

        return max(1, round(spent("debate") / max(1.0, spent("answer"))))


# From samples to rows


def _report(work: _Work, k: int) -> tuple[Report, list[PlayedDebate]]:
    config = work.config
    rows: list[ReportRow] = []
    counted: dict[tuple[str, int], dict[str, QuestionCounts]] = {}
    for mode in config.modes:
        if mode == "wins":
            won = _wins(work)
            rows.append(make_row(mode, 1, HEADLINE[mode], won, len(work.questions) - len(won), None, config.seed))
            continue
        for need in needs(config, mode, k):
            sampled = (need.kind, need.count)
            if sampled not in counted:  # debate and debate+vote look at the same debates
                records = {
                    key: kept
                    for key in work.questions
                    if (kept := work.records(need.kind, key, need.count)) is not None
                }
                counted[sampled] = {
                    key: _with_cut(counts, records[key]) for key, counts in _count(work, need.kind, records).items()
                }
            counts = counted[sampled]
            name = {"vote": f"vote@{k}", "opponents": need.kind}.get(mode, mode)
            answers = config.num_agents if need.kind == "debate" else need.count
            first = rows[0] if rows and rows[0].name != "wins" else None
            rows.append(
                make_row(name, answers, HEADLINE[mode], counts, len(work.questions) - len(counts), first, config.seed)
            )
    debates = [played for one in counted.get(("debate", 1), {}).values() for played in one.debates]
    return Report(_settings(config, work.task, k, work.questions), rows, panel(debates) if debates else {}), debates


def _wins(work: _Work) -> dict[str, QuestionCounts]:
    """By question, where both have answered and the judge has said its word in both orders."""
    counts = {}
    for key in work.questions:
        ours, theirs, said = (
            work.records(kind, key, count) for kind, count in (("answer", 1), ("start", 1), (VERDICT, 2))
        )
        if ours and theirs and said:
            counts[key] = count_wins(ours[0], theirs[0], (said[0], said[1]))
    return counts


def _with_cut(counted: QuestionCounts, records: Sequence[Record]) -> QuestionCounts:
    ends, turns = zip(*(cut(record) for record in records), strict=True)
    return replace(counted, shares={**counted.shares, "cut": (sum(ends), sum(turns))})


def _count(work: _Work, kind: str, records: Mapping[str, list[Record]]) -> dict[str, QuestionCounts]:
    task = work.task
    tokens = {key: sum(record["tokens"] for record in own) for key, own in records.items()}
    if kind == "answer":
        answers = {
            key: plain_answers(work.questions[key], [record["text"] for record in own]) for key, own in records.items()
        }
        graded = zip(answers.items(), _graded(list(answers.values()), task), strict=True)
        return {key: QuestionCounts(count_answers(answer, grades), tokens[key]) for (key, answer), grades in graded}
    debates = [debate_of(record, work.debate(work.questions[key])) for key, own in records.items() for record in own]
    scoring = work.config.protocol.scoring
    scored = iter(
        [
            scored_by_peers(debate, scoring, grades)
            for debate, grades in zip(debates, _graded(debates, task), strict=True)
        ]
    )
    played = {key: tuple(next(scored) for _ in own) for key, own in records.items()}
    if work.config.protocol.rules.needs_judge:
        # Where the policy argues for one side, it has the seat of the debate's number.
        seats = [None] if kind in ("debate", "judge") else [0, 1]
        return {
            key: QuestionCounts(count_verdicts(debates, seats), tokens[key], debates) for key, debates in played.items()
        }
    if kind == "debate":
        return {key: QuestionCounts(count_debate(debates[0]), tokens[key], debates) for key, debates in played.items()}
    seated = {key: list(enumerate(debates)) for key, debates in played.items()}
    policys = [own_answers([(seat, debate.debate) for seat, debate in own]) for own in seated.values()]
    return {
        key: QuestionCounts(count_against(seated[key], answer, grades), tokens[key], played[key])
        for key, answer, grades in zip(seated, policys, _graded(policys, task), strict=True)
    }


def _graded(debates: Sequence[Debate], task: Task) -> list[Grades]:
    return grade_all(debates, task.equal, task.extract, task.check)


def _settings(config: EvalConfig, task: Task, k: int, questions: Mapping[str, Question]) -> dict[str, Any]:
    return {
        "task": task.name,
        "questions": len(questions),
        "modes": list(config.modes),
        "k": k,
        **{name: getattr(config, name) for name in ("match_tokens", "seed", "num_agents", "max_rounds", "max_tokens")},
        "temperature": config.answer_temperature,
        "protocol": config.protocol.as_dict(),
        "prompts": config.prompts.digest,
        **{name: getattr(config, name) for name in ("stop_when_settled", "extra_rounds", "policy")},
        "opponents": dict(config.opponents),
        **({"judge": config.judge or config.policy} if config.needs_judge or "wins" in config.modes else {}),
    }
