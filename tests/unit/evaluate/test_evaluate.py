"""Whole evaluations on speakers whose every word is scripted, so that the right table is known by hand."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import Ints, Sample, SamplingParams
from moot.engine.scripted import ByteTokenizer
from moot.errors import ConfigError
from moot.evaluate import EvalConfig, Report, ReportRow, evaluate
from moot.evaluate.store import question_key
from moot.rl.rollout import Player
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import turn_seed
from support.making import lines, text

TOKENIZER = ByteTokenizer()
RENDERING = Rendering(TOKENIZER)
QUESTIONS = tuple(Question(f"What is {i} + 0?", str(i), id=str(i), instruction="Box it.") for i in range(4))
TASK = Task("sums", lambda i: QUESTIONS[i], QUESTIONS)
CONFIG = EvalConfig(modes=("direct",), num_agents=3, max_rounds=2, max_tokens=4000)
WRONG = "99"

Says = Callable[[int, int | None, int, SamplingParams], str]
"""(question, seat or None for a plain answer, round, parameters) -> the whole response."""


class Scripted:
    """A sampler that reads who it is and what is asked, and says what the script says."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self.calls: list[tuple[int, int | None, int]] = []

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        told = TOKENIZER.decode(np.asarray(prompt).tolist())
        question, seat, round = read(told)
        self.calls.append((question, seat, round))
        await asyncio.sleep(0)
        said = self._says(question, seat, round, params)
        ids = np.asarray([*TOKENIZER.encode(said), TOKENIZER.eos_token_id], dtype=np.int32)
        return [Sample(ids, np.zeros(len(ids), dtype=np.float32), "stop")]

    async def compute_logprobs(
        self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0
    ) -> np.ndarray:
        raise NotImplementedError


def read(told: str) -> tuple[int, int | None, int]:
    asked = re.search(r"What is (\d+) \+ 0\?", told)
    who = re.search(r"You are Agent (\d+)", told)
    rounds = re.findall(r"Round (\d+) of", told)
    assert asked
    return int(asked[1]), int(who[1]) if who else None, int(rounds[-1]) if rounds else 0


def turn(right: bool, question: int, comparison: str = "", wrong: str = WRONG) -> str:
    return text(lines(comparison), f"\\boxed{{{question if right else wrong}}}")


def run(sampler: object, config: EvalConfig, **options: object) -> Report:
    return asyncio.run(asyncio.wait_for(evaluate(Player(sampler, RENDERING), TASK, config, **options), 60))  # type: ignore[arg-type]


def value(row: ReportRow, metric: str) -> float | None:
    found = row.metrics[metric]
    return None if found is None else found["value"]


def numbered(config: EvalConfig, count: int = 16) -> dict[int, tuple[int, int]]:
    """Which plain answer a seed belongs to: (question, number)."""
    return {
        turn_seed(config.seed, "answer", question_key(question), number): (i, number)
        for i, question in enumerate(QUESTIONS)
        for number in range(count)
    }


# Plain answers


def plain(config: EvalConfig, right: Callable[[int, int], bool], wrong: str = WRONG) -> Scripted:
    """Answer `number` to question `i` is right or not as told; wrong ones are alike."""
    known = numbered(config)

    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        i, number = known[params.seed or 0]
        assert (i, seat, round) == (question, None, 0)
        return f"It is \\boxed{{{question if right(i, number) else wrong}}}"

    return Scripted(says)


def test_direct_is_the_first_of_votes_answers_and_the_plurality_wins() -> None:
    """Right answers of 5: question 0: none; 1: the first two; 2: the last four; 3: all."""
    rights = {0: (), 1: (0, 1), 2: (1, 2, 3, 4), 3: (0, 1, 2, 3, 4)}
    config = replace(CONFIG, modes=("direct", "vote"), k=5)
    sampler = plain(config, lambda i, number: number in rights[i])
    direct, vote = run(sampler, config).rows
    assert (direct.name, direct.k, vote.name, vote.k) == ("direct", 1, "vote@5", 5)
    assert direct.by_question["accuracy"] == {
        question_key(q): (right, 1.0) for q, right in zip(QUESTIONS, (0, 1, 0, 1), strict=True)
    }
    assert value(direct, "accuracy") == 0.5
    assert value(vote, "accuracy") == value(vote, "cons@k") == 0.5
    assert [share[0] for share in vote.by_question["cons@k"].values()] == [0, 0, 1, 1]
    assert value(vote, "avg@k") == value(vote, "correct") == pytest.approx((0 + 2 + 4 + 5) / 20)
    assert (value(vote, "pass@k"), value(vote, "format")) == (0.75, 1.0)
    assert len(sampler.calls) == 20, "direct's answers are among them"
    assert vote.difference is not None
    assert (vote.difference["value"], vote.difference["p"], vote.difference["versus"]) == (0.0, 1.0, "direct")


def test_the_plain_prompt_holds_the_question_and_its_instruction_and_no_contract() -> None:
    seen: list[str] = []

    class Listens(Scripted):
        async def sample(
            self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1
        ) -> list[Sample]:
            seen.append(TOKENIZER.decode(np.asarray(prompt).tolist()))
            return await super().sample(prompt, params, num_samples)

    run(Listens(lambda question, *_: str(question)), CONFIG)
    assert seen[0] == "<|im_start|>user\nWhat is 0 + 0?\n\nBox it.<|im_end|>\n<|im_start|>assistant\n"


def test_what_is_thought_is_not_the_answer_and_no_answer_is_wrong() -> None:
    said = {
        0: "<think>\\boxed{7}</think> so \\boxed{0}",
        1: "<THINK>\\boxed{1}</THINK> so 7",
        2: "no idea",
        3: "\\boxed{3}",
    }
    (row,) = run(Scripted(lambda question, *_: said[question]), CONFIG).rows
    assert [share[0] for share in row.by_question["accuracy"].values()] == [1, 0, 0, 1]
    assert value(row, "format") == 0.75


def test_plain_answers_are_sampled_at_the_average_of_the_seats_temperatures() -> None:
    found: set[float] = set()

    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        found.add(params.temperature)
        return "1"

    run(Scripted(says), CONFIG)
    assert sorted(found) == pytest.approx([(0.6 + 1.0 + 0.9) / 3])
    found.clear()
    run(Scripted(says), replace(CONFIG, temperature=0.0))
    assert found == {0.0}


def test_questions_whose_answer_is_not_known_are_sampled_and_not_graded() -> None:
    task = replace(TASK, held_out=(Question("What is 1 + 0?"),))
    report = asyncio.run(evaluate(Player(Scripted(lambda *_: "\\boxed{1}"), RENDERING), task, CONFIG))
    (row,) = report.rows
    assert row.questions == 1 and "accuracy" not in row.metrics
    assert value(row, "format") == 1.0


# Debates


def test_debate_averages_over_agents_and_debate_vote_gives_the_groups_answer() -> None:
    """Agent a is right on question i if a < i. On question 1 all three answers differ, so the votes decide, and they prefer Agent 0.

    Votes of round 2 are about round 1: Agent 0 sees {1, 2}, Agent 1 sees {0, 2}, Agent 2 sees {0, 1}; all prefer the lower number.
    """

    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        assert seat is not None
        a, b = (other for other in range(3) if other != seat)
        return turn(seat < question, question, f"{a} > {b}" if round == 2 else "", wrong=f"9{seat}")

    report = run(Scripted(says), replace(CONFIG, modes=("debate", "debate+vote")))
    debate, group = report.rows
    assert value(debate, "accuracy") == value(debate, "avg@k") == pytest.approx((0 + 1 + 2 + 3) / 12)
    assert value(debate, "pass@k") == 0.75
    assert value(group, "accuracy") == 0.75, "on question 1 a tie of three, and the votes prefer Agent 0, who is right"
    assert value(debate, "winner") == 0.75
    # Right against wrong: question 1: (0,2) and (0,1) prefer 0, right; question 2: (1,2) and (0,2), right; the others have none.
    assert list(debate.by_question["judge"].values()) == [(0, 0), (2, 2), (2, 2), (0, 0)]
    assert value(debate, "comparisons") == value(debate, "valid_turns") == 1.0
    assert report.trust["trust/judge_accuracy"] == 1.0
    assert group.difference is not None and group.difference["value"] == pytest.approx(0.25)
    assert debate.tokens == group.tokens > 0


def test_a_tie_goes_to_the_answer_the_votes_prefer_not_to_the_lowest_number() -> None:
    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        assert seat is not None
        a, b = (other for other in range(3) if other != seat)
        return turn(seat == 2, question, f"{b} > {a}" if round == 2 else "", wrong=f"9{seat}")

    debate, group = run(Scripted(says), replace(CONFIG, modes=("debate", "debate+vote"))).rows
    assert value(group, "accuracy") == 1.0
    assert value(debate, "cons@k") == 0.0, "by the rule of the training metrics a tie goes to Agent 0, who is wrong"


def test_a_plurality_beats_the_votes() -> None:
    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        assert seat is not None
        a, b = (other for other in range(3) if other != seat)
        return turn(seat != 0, question, f"{a} > {b}" if round == 2 else "")

    debate, group = run(Scripted(says), replace(CONFIG, modes=("debate", "debate+vote"))).rows
    assert (value(group, "accuracy"), value(debate, "winner")) == (1.0, 0.0)


def test_an_unreadable_turn_counts_as_one_that_gave_no_vote() -> None:
    """Agent 0 cannot be read. The two others have one to judge and so cannot vote, though they were meant to."""

    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        return "nothing of use" if seat == 0 else turn(True, question)

    (row,) = run(Scripted(says), replace(CONFIG, modes=("debate",))).rows
    assert list(row.by_question["comparisons"].values()) == [(0, 3)] * 4
    assert value(row, "valid_turns") == pytest.approx(2 / 3)
    assert value(row, "accuracy") == pytest.approx(2 / 3)


def test_a_winner_is_chosen_by_votes_also_where_training_rewards_the_truth() -> None:
    def says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        assert seat is not None
        a, b = (other for other in range(3) if other != seat)
        return turn(seat == 2, question, f"{a} > {b}" if round == 2 else "")

    protocol = CONFIG.protocol.with_choices({"reward": "truth"})
    (row,) = run(Scripted(says), replace(CONFIG, modes=("debate",), protocol=protocol)).rows
    assert value(row, "winner") == 0.0


# Fixed opponents


def lower(seat: int) -> str:
    a, b = (other for other in range(3) if other != seat)
    return f"{a} > {b}"


def higher(seat: int) -> str:
    a, b = (other for other in range(3) if other != seat)
    return f"{b} > {a}"


def policy_says(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
    """Right in the first `question` seats. Prefers the lower number on even questions, the higher one on odd ones."""
    assert seat is not None
    votes = lower(seat) if question % 2 == 0 else higher(seat)
    return turn(seat < question, question, votes if round == 2 else "")


class Others:
    """Right in seat s on questions above s; always prefers the lower number. Speaks in text alone."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[int, int, int]] = Counter()

    async def __call__(self, observation: Observation) -> Said:
        seat, question = (
            observation.agent,
            read("\n".join(message.content for message in observation.conversation()))[0],
        )
        self.calls[question, seat, observation.round] += 1
        return Said(turn(question > seat, question, lower(seat) if observation.round == 2 else ""))


AGAINST = replace(CONFIG, modes=("opponents",))


def check_table(row: ReportRow) -> None:
    """All numbers by hand, for four questions, three debates each."""
    assert (row.name, row.k, row.questions) == ("against them", 3, 4)
    # The policy's own answers, seats 0 to 2: question 0: 000, 1: 100, 2: 110, 3: 111.
    assert [share[0] for share in row.by_question["accuracy"].values()] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert value(row, "accuracy") == value(row, "avg@k") == pytest.approx(0.5)
    assert value(row, "pass@k") == 0.75
    assert [share[0] for share in row.by_question["cons@k"].values()] == [0, 0, 1, 1]
    # The others: each seat is theirs in two of three debates; on question i the seats below i are right.
    assert list(row.by_question["opponents"].values()) == [(0, 6), (2, 6), (4, 6), (6, 6)]
    # Votes between policy and others are the others': both prefer it in seat 0, one in seat 1, none in seat 2.
    assert list(row.by_question["preferred"].values()) == [(3, 6)] * 4
    # Its own votes between a right and a wrong opponent. Question 1: {0,2} from seat 1 and {0,1} from seat 2, and it prefers the higher:
    # none right. Question 2: {1,2} from seat 0 and {0,2} from seat 1, and it prefers the lower: both right.
    assert list(row.by_question["judge"].values()) == [(0, 0), (0, 2), (2, 2), (0, 0)]
    assert value(row, "judge") == 0.5


def test_against_speakers_in_text_alone_the_table_is_the_one_worked_out_by_hand() -> None:
    others, policy = Others(), Scripted(policy_says)
    (row,) = run(policy, AGAINST, opponents={"them": others}).rows
    check_table(row)
    seats = Counter(policy.calls)
    assert seats == Counter({(q, seat, r): 1 for q in range(4) for seat in range(3) for r in (1, 2)}), (
        "each seat once a question"
    )
    assert others.calls == Counter({(q, seat, r): 2 for q in range(4) for seat in range(3) for r in (1, 2)})


def test_against_another_model_the_table_is_the_same_and_its_tokens_count() -> None:
    def others(question: int, seat: int | None, round: int, params: SamplingParams) -> str:
        assert seat is not None
        return turn(question > seat, question, lower(seat) if round == 2 else "")

    policy, them = Scripted(policy_says), Scripted(others)
    (row,) = run(policy, AGAINST, opponents={"them": Player(them, RENDERING, learns=False)}).rows
    check_table(row)
    assert Counter(them.calls) == Counter({(q, seat, r): 2 for q in range(4) for seat in range(3) for r in (1, 2)})
    (alone,) = run(Scripted(policy_says), AGAINST, opponents={"them": Others()}).rows
    assert row.tokens == pytest.approx(3 * alone.tokens, rel=0.05)


def test_several_opponents_make_several_rows_and_playing_oneself_is_even() -> None:
    me = Scripted(policy_says)
    report = run(me, AGAINST, opponents={"them": Others(), "itself": Player(me, RENDERING, learns=False)})
    assert [row.name for row in report.rows] == ["against them", "against itself"]
    itself = report.rows[1]
    assert value(itself, "accuracy") == value(itself, "opponents") == pytest.approx(0.5)


def test_mode_opponents_without_any_is_refused() -> None:
    with pytest.raises(ConfigError, match="mode opponents needs somebody to play against"):
        run(Scripted(policy_says), AGAINST)
