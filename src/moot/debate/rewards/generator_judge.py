"""The reward per turn that pays answers and judging apart: two streams, each centred by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from moot.debate.reward import Reward, register
from moot.debate.rewards.making import FAILED, ballots_read, by_agent, paid_stream
from moot.debate.scores import SECTIONS, Grades, Scores, Stream
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote
from moot.debate.vote_filter import counting
from moot.debate.votes import ballots, by_pair, clear_consensus

FORMAT_PENALTY = -0.5


def generator_judge(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """Answers by the votes about them, judging by how well a turn's votes agree with the consensus."""
    cast = ballots(debate, scoring)
    votes = counting(cast.votes, scoring)
    # Where agents' votes do not count nobody is asked to cast any.
    penalised = cast.abstained if scoring.enable_format_penalty and scoring.agents_count else ()
    judging = _judge(debate, votes, dict.fromkeys(penalised, FORMAT_PENALTY), scoring)
    return Scores(
        {"generator": _generator(debate, votes, scoring), "judge": judging},
        scoring.stream_of,
        votes=votes,
        lines_invalid=cast.lines_invalid,
        missing_comparisons=len(penalised),
        ballots=ballots_read(debate),
    )


def _generator(debate: Debate, votes: Sequence[Vote], scoring: Scoring) -> Stream:
    won: dict[int, float] = defaultdict(float)
    lost: dict[int, float] = defaultdict(float)
    for vote in votes:
        if vote.verdict == ">":
            won[vote.left] += 1
            lost[vote.right] += 1

    def by_votes(i: int) -> float | None:
        seen = won[i] + lost[i]
        return 2 * won[i] / seen - 1 if seen else None

    def literal(i: int) -> float | None:
        """To the letter of the source, what nobody voted for is rejected. Nothing was generated in a ballot, so
        nothing goes unvoted."""
        turn = debate.turns[i]
        if turn.failed:
            return FAILED
        return None if turn.ballot else -1.0 if (paid := by_votes(i)) is None else paid

    to_center = by_agent(debate, literal if scoring.literal else by_votes)
    penalties = by_agent(debate, lambda i: FAILED if debate.turns[i].failed and not scoring.literal else 0.0)
    return paid_stream(to_center, penalties, scoring.lambda_gen, scoring.rule.lowest)


def _judge(debate: Debate, votes: Sequence[Vote], penalty: dict[int, float], scoring: Scoring) -> Stream:
    aligned = _alignment(votes, scoring)
    if scoring.literal:
        to_center = by_agent(debate, lambda i: aligned.get(i, 0.0) + penalty.get(i, 0.0))
        return paid_stream(to_center, by_agent(debate, lambda i: 0.0), scoring.lambda_judge)
    return paid_stream(
        by_agent(debate, aligned.get), by_agent(debate, lambda i: penalty.get(i, 0.0)), scoring.lambda_judge
    )


def _alignment(votes: Sequence[Vote], scoring: Scoring) -> dict[int, float]:
    """For each turn with a vote whose pair has a clear consensus: the mean of 1 where it agrees and -1 where it does
    not."""
    marks: dict[int, list[float]] = defaultdict(list)
    jury_of = by_pair(votes)
    for vote in votes:
        if vote.turn < 0:
            continue  # an outside judge has a voice in the consensus, and no seat to be rewarded in
        jury = jury_of[vote.pair]
        if scoring.judge_consensus == "leave_one_out":
            jury = [other for other in jury if other.author != vote.author]
        if (better := clear_consensus(jury)) is not None:
            marks[vote.turn].append(1.0 if vote.verdict == ">" and vote.left == better else -1.0)
    return {turn: sum(own) / len(own) for turn, own in marks.items()}


register(Reward("generator_judge", generator_judge, per="turn", from_votes=True, sections=SECTIONS, lowest=-1.0))
