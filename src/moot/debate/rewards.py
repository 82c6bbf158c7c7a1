"""Peer votes to rewards.

No ground truth is found here: graders live in tasks/, and hand in `Grades` where answers are known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Question, Vote
from moot.debate.voters import count_agents, count_responses
from moot.debate.votes import ballots as ballots
from moot.debate.votes import by_pair, clear_consensus
from moot.debate.votes import comparisons as comparisons

FORMAT_PENALTY = -0.5
FAILED = -1.0


@dataclass(frozen=True)
class Grades:
    """What a grader found in each turn of a debate, in the order of the turns."""

    answers: tuple[str | None, ...]
    """The final answer, None where there is none (a failed turn, nothing to grade)."""
    correct: tuple[bool, ...]
    same: tuple[int | None, ...]
    """Turns with equal answers carry the same number, None where there is no answer."""
    given_up: int = 0
    """Comparisons that took too long: their answers count as different, unless they are written alike."""
    labelled: tuple[bool, ...] | None = None
    """Whether each turn's answer equals the question's label; None where it has none."""
    checked: bool = False
    """Whether a task's checker said what is correct, so that no right answer need be known."""

    def known(self, question: Question) -> bool:
        """Whether `correct` means something."""
        return self.checked or question.answer is not None


@dataclass(frozen=True)
class AgentScores:
    """One reward an agent, for the debate as a whole."""

    rewards: tuple[float, ...]
    returns: tuple[float, ...]
    """The reward, minus 1 for each failed turn."""
    valid: int = 0
    malformed: int = 0
    votes: tuple[Vote, ...] = ()
    """By agent: those that the reward is made of."""
    lowest: float = 0.0
    """The least that the votes can give, where 1 is the most: -1 for win_minus_loss."""


@dataclass(frozen=True)
class Stream:
    """One kind of reward, per agent and step."""

    values: tuple[tuple[float, ...], ...]
    """What is reported."""
    to_center: tuple[tuple[float | None, ...], ...]
    """What an estimator subtracts a baseline from; None for a step that takes no part and has advantage 0 before `added`."""
    added: tuple[tuple[float, ...], ...]
    """Penalties, added after centring."""
    weight: float = 1.0
    lowest: float = 0.0
    """The least that a turn can get before penalties, where 1 is the most: -1 for answers under generator_judge."""
    discount: float = 0.0
    """What a turn is given of the next turn's reward of the same agent."""

    @property
    def to_go(self) -> tuple[tuple[float | None, ...], ...]:
        """What an estimator works on, with what the agent's later turns got. Penalties stay where they were earned."""
        return tuple(reward_to_go(row, self.discount) for row in self.to_center) if self.discount else self.to_center


@dataclass(frozen=True)
class StepScores:
    """Rewards by step. Streams: `generator` and `judge`, `generator` alone for `truth` and `majority`, or `step` for a user's own."""

    streams: dict[str, Stream]
    stream_of: Mapping[str, str] = field(default_factory=lambda: Scoring().stream_of)
    """Which stream pays for the tokens of a section. The stream `step` pays for all of them."""
    votes: tuple[Vote, ...] = ()
    """By turn index: which response was preferred to which."""
    lines_invalid: int = 0
    missing_comparisons: int = 0
    ballots: frozenset[tuple[int, int]] = frozenset()
    """Agent and step of each ballot that could be read: nothing was generated in it, so means of generator rewards leave it out."""


Scores = AgentScores | StepScores


def reward_to_go(row: Sequence[float | None], discount: float) -> tuple[float | None, ...]:
    """Each turn's own reward plus `discount` times the next one's sum. One without a signal is 0, and takes part if a later one has one."""
    sums: list[float | None] = []
    later: float | None = None
    for own in reversed(row):
        later = None if own is None and later is None else (own or 0.0) + discount * (later or 0.0)
        sums.append(later)
    return tuple(reversed(sums))


def has_signal(scores: Scores) -> bool:
    """Whether the votes say anything: some step takes part in centring, or the agents' returns differ. Where each turn is paid for its own
    answer every one takes part, and their rewards must differ."""
    if isinstance(scores, AgentScores):
        return len(set(scores.returns)) > 1
    values = {value for stream in scores.streams.values() for row in stream.to_center for value in row if value is not None}
    return len(values) > 1 if "comparison" not in scores.stream_of else bool(values)


Reward = Callable[[Debate, Scoring, Grades | None], Scores]


# Per agent: over the whole debate


def win_rate(votes: Sequence[Vote], num_agents: int) -> list[float]:
    """Share of peer votes each agent won; ties count half, no votes gives 0."""
    won, seen = [0.0] * num_agents, [0.0] * num_agents
    for vote in votes:
        seen[vote.left] += vote.weight
        seen[vote.right] += vote.weight
        won[vote.left] += vote.weight * (1.0 if vote.verdict == ">" else 0.5)
        won[vote.right] += vote.weight * (0.0 if vote.verdict == ">" else 0.5)
    return [w / n if n else 0.0 for w, n in zip(won, seen, strict=True)]


def win_minus_loss(votes: Sequence[Vote], num_agents: int) -> list[float]:
    """Votes won minus votes lost, as a share of all votes about the agent, ties included; no votes gives 0."""
    score, seen = [0.0] * num_agents, [0.0] * num_agents
    for vote in votes:
        seen[vote.left] += vote.weight
        seen[vote.right] += vote.weight
        if vote.verdict == ">":
            score[vote.left] += vote.weight
            score[vote.right] -= vote.weight
    return [s / n if n else 0.0 for s, n in zip(score, seen, strict=True)]


def _by_agent(rule: Callable[[Sequence[Vote], int], list[float]]) -> Reward:
    def reward(debate: Debate, scoring: Scoring, grades: Grades | None) -> AgentScores:
        cast, malformed = comparisons(debate, scoring)
        valid = count_agents(debate, cast, scoring, None if grades is None else grades.same)
        scores = agent_scores(debate, rule(valid, debate.num_agents), len(valid), malformed)
        return replace(scores, votes=tuple(valid), lowest=-1.0 if scoring.reward == "win_minus_loss" else 0.0)

    return reward


def agent_scores(debate: Debate, rewards: Sequence[float], valid: int = 0, malformed: int = 0) -> AgentScores:
    failed = Counter(turn.agent for turn in debate.turns if turn.failed)
    returns = tuple(r + FAILED * failed[agent] for agent, r in enumerate(rewards))
    return AgentScores(tuple(rewards), returns, valid, malformed)


def truth_last(debate: Debate, scoring: Scoring, grades: Grades | None) -> AgentScores:
    """1 for a right last answer, otherwise 0. A baseline, not a peer reward."""
    correct = _need(debate, grades, f"reward {scoring.reward}").correct
    return agent_scores(debate, [float(i is not None and correct[i]) for i in last_parsed(debate)])


def majority_last(debate: Debate, scoring: Scoring, grades: Grades | None) -> AgentScores:
    """1 for holding the debate's plurality answer, otherwise 0. A baseline that needs a grader but no ground truth."""
    graded = _need_grader(grades, scoring)
    if graded.labelled is not None:
        return agent_scores(debate, [float(i is not None and graded.labelled[i]) for i in last_parsed(debate)])
    held = held_answers(debate, graded)
    most = plurality(held)
    return agent_scores(debate, [float(most is not None and answer == most) for answer in held])


def last_parsed(debate: Debate) -> list[int | None]:
    """For each agent, the turn that holds its answer."""
    answers = debate.answers()
    return [answers.get(agent) for agent in range(debate.num_agents)]


def held_answers(debate: Debate, grades: Grades | None) -> list[int | None]:
    """For each agent, the kind of answer it ended with: equal answers are one kind. None where it has none, or nobody compared them."""
    return [None if i is None or grades is None else grades.same[i] for i in last_parsed(debate)]


def plurality(held: Sequence[int | None]) -> int | None:
    """The answer most agents hold; ties go to the lowest-numbered agent holding one."""
    counts = Counter(answer for answer in held if answer is not None)
    return max(counts, key=lambda answer: counts[answer]) if counts else None


# Per step: each turn by its own answer


def truth(debate: Debate, scoring: Scoring, grades: Grades | None) -> StepScores:
    """1 for a turn with a right answer, 0 for another, -1 for a failed one."""
    correct = _need(debate, grades, f"reward {scoring.reward}").correct
    return _by_turn(debate, scoring, [float(right) for right in correct])


def majority(debate: Debate, scoring: Scoring, grades: Grades | None) -> StepScores:
    """1 for a turn that holds the plurality answer of its round, 0 for another, -1 for a failed one. Looks at no ground truth,
    as in TTRL (arXiv 2504.16084).

    Where the question has a label from elsewhere, that is the answer to hold.
    """
    graded = _need_grader(grades, scoring)
    if graded.labelled is not None:
        return _by_turn(debate, scoring, [float(equal) for equal in graded.labelled])
    same = graded.same
    rounds: dict[int, list[int]] = defaultdict(list)
    for i, turn in sorted(enumerate(debate.turns), key=lambda each: each[1].agent):
        if turn.answers:
            rounds[turn.round].append(i)
    most = {round: plurality([same[i] for i in members]) for round, members in rounds.items()}
    return _by_turn(debate, scoring, [float(s is not None and s == most.get(t.round)) for t, s in zip(debate.turns, same, strict=True)])


def _by_turn(debate: Debate, scoring: Scoring, values: Sequence[float]) -> StepScores:
    """One stream. A ballot holds no answer and takes no part; a failed turn does, as in any other reward that is centred plainly."""

    def reward(i: int) -> float | None:
        turn = debate.turns[i]
        return FAILED if turn.failed else None if turn.ballot else values[i]

    steps = debate.steps()
    to_center = tuple(tuple(reward(i) for i in own) for own in steps)
    reported = tuple(tuple(value or 0.0 for value in row) for row in to_center)
    nothing = tuple(tuple(0.0 for _ in row) for row in to_center)
    judging = frozenset((agent, step) for agent, row in enumerate(to_center) for step, value in enumerate(row) if value is None)
    return StepScores({"generator": Stream(reported, to_center, nothing)}, scoring.stream_of, ballots=judging)


# Per step: solver and judge apart


def generator_judge(debate: Debate, scoring: Scoring, grades: Grades | None) -> StepScores:
    literal = scoring.literal
    cast = ballots(debate, scoring)
    votes = count_responses(debate, cast.votes, scoring, None if grades is None else grades.same)

    won: dict[int, float] = defaultdict(float)
    lost: dict[int, float] = defaultdict(float)
    jury_of = by_pair(votes)
    for vote in votes:
        if vote.verdict == ">":
            won[vote.left] += vote.weight
            lost[vote.right] += vote.weight

    def ballot(i: int) -> bool:
        return debate.turns[i].ballot and not debate.turns[i].failed

    def generator(i: int) -> float:
        if debate.turns[i].failed:
            return FAILED
        if ballot(i):
            return 0.0
        seen = won[i] + lost[i]
        return 2 * won[i] / seen - 1 if seen else (-1.0 if literal else 0.0)

    aligned: dict[int, list[float]] = defaultdict(list)
    for vote in votes:
        if vote.turn < 0:
            continue  # an outside judge has a voice in the consensus, and no seat to be rewarded in
        jury = jury_of[vote.pair]
        if scoring.judge_consensus == "leave_one_out":
            jury = [other for other in jury if other.author != vote.author]
        if (better := clear_consensus(jury)) is not None:
            aligned[vote.turn].append(1.0 if vote.verdict == ">" and vote.left == better else -1.0)

    steps = debate.steps()
    # Where agents' votes do not count nobody is asked to cast any.
    penalty = dict.fromkeys(cast.abstained, FORMAT_PENALTY) if scoring.enable_format_penalty and scoring.agents_count else {}
    alignment = {i: sum(marks) / len(marks) for i, marks in aligned.items()}

    def table(cell: Callable[[int], Any]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(cell(i) for i in turns) for turns in steps)

    judge_values = table(lambda i: alignment.get(i, 0.0) + penalty.get(i, 0.0))
    generator_values = table(generator)
    if literal:
        nothing = table(lambda i: 0.0)
        streams = {
            # Nothing was generated in a ballot, so there is nothing that could go unvoted.
            "generator": Stream(
                generator_values,
                table(lambda i: None if ballot(i) else generator(i)),
                nothing,
                scoring.lambda_gen,
                lowest=-1.0,
            ),
            "judge": Stream(judge_values, judge_values, nothing, scoring.lambda_judge),
        }
    else:
        streams = {
            "generator": Stream(
                generator_values,
                table(lambda i: generator(i) if won[i] + lost[i] else None),
                table(lambda i: FAILED if debate.turns[i].failed else 0.0),
                scoring.lambda_gen,
                lowest=-1.0,
            ),
            "judge": Stream(judge_values, table(alignment.get), table(lambda i: penalty.get(i, 0.0)), scoring.lambda_judge),
        }
    judging = frozenset((a, step) for a, own in enumerate(steps) for step, i in enumerate(own) if ballot(i))
    return StepScores(streams, scoring.stream_of, votes, cast.lines_invalid, len(penalty), judging)


# With ground truth


def mix_truth(scores: Scores, debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """`(1 - mix) * peer + mix * correct`, plus `bonus` where correct, on the reward's own scale."""
    mix, bonus = scoring.reward_mix, scoring.correct_bonus
    if not mix and not bonus:
        return scores
    correct = _need(debate, grades, "reward_mix and correct_bonus").correct
    if isinstance(scores, AgentScores):
        rewards = [
            reward if i is None else _mixed(reward, correct[i], scores.lowest, mix, bonus)
            for reward, i in zip(scores.rewards, last_parsed(debate), strict=True)
        ]
        return replace(scores, rewards=tuple(rewards), returns=agent_scores(debate, rewards).returns)
    if "generator" not in scores.streams:
        raise ConfigError(f"reward_mix needs win_rate, win_minus_loss or generator_judge, got reward {scoring.reward!r}")

    stream = scores.streams["generator"]
    values, to_center = [], []
    for turns, old_values, old_to_center in zip(debate.steps(), stream.values, stream.to_center, strict=True):
        row, row_to_center = list(old_values), list(old_to_center)
        for step, i in enumerate(turns):
            if not debate.turns[i].answers:
                continue
            row[step] = _mixed(row[step], correct[i], stream.lowest, mix, bonus)
            if mix or correct[i] or row_to_center[step] is not None:
                row_to_center[step] = row[step]
        values.append(tuple(row))
        to_center.append(tuple(row_to_center))
    return replace(scores, streams={**scores.streams, "generator": replace(stream, values=tuple(values), to_center=tuple(to_center))})


def _mixed(peer: float, correct: bool, low: float, mix: float, bonus: float) -> float:
    return (1 - mix) * peer + mix * (1.0 if correct else low) + (bonus if correct else 0.0)


def _need(debate: Debate, grades: Grades | None, what: str) -> Grades:
    if grades is None or not grades.known(debate.question):
        raise ConfigError(f"{what} needs a question with a known answer, and this one has none; give it one, or use majority or votes")
    return grades


def _need_grader(grades: Grades | None, scoring: Scoring) -> Grades:
    if grades is None:
        raise ConfigError(f"reward {scoring.reward} needs a task with a grader, which decides whether answers are equal; name one")
    return grades


# Choosing one


REWARDS: dict[str, Reward] = {
    "win_rate": _by_agent(win_rate),
    "win_minus_loss": _by_agent(win_minus_loss),
    "generator_judge": generator_judge,
    "truth": truth,
    "majority": majority,
    "truth_last": truth_last,
    "majority_last": majority_last,
}
NEED_GRADES = frozenset({"truth", "majority", "truth_last", "majority_last"})
"""The rewards that look at graded answers. The others, and a user's own, are given None where nobody else needs them."""


def score(debate: Debate, scoring: Scoring, grades: Grades | None = None, reward: Reward | None = None) -> Scores:
    """What a debate comes to: the reward that `scoring` names (or `reward`, where that is a user's own), with truth mixed in."""
    if reward is None and scoring.reward not in REWARDS:
        raise ConfigError(f"reward must be one of {', '.join(REWARDS)}, got {scoring.reward!r}; a file's function is handed in")
    paid = mix_truth((reward or REWARDS[scoring.reward])(debate, scoring, grades), debate, scoring, grades)
    if not scoring.discount:
        return paid
    if isinstance(paid, AgentScores):
        raise ConfigError(f"discount needs rewards per turn, and {scoring.reward} is per agent; leave discount out")
    return replace(paid, streams={name: replace(stream, discount=scoring.discount) for name, stream in paid.streams.items()})
