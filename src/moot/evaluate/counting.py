"""What is counted in each question. The definitions are those of the training metrics; here they stay apart by
question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from moot.debate.rewards import Grades, held_answers, last_parsed
from moot.debate.rules import candidates
from moot.debate.scoring import Scoring
from moot.debate.sections import is_filled
from moot.debate.state import Debate
from moot.debate.types import Parsed
from moot.rl.judge_trust import judged
from moot.rl.metrics import answer_metrics
from moot.rl.trust import Share, judge_accuracy
from moot.tokens.played import PlayedDebate


@dataclass(frozen=True)
class QuestionCounts:
    """What one mode came to on one question."""

    shares: dict[str, Share] = field(default_factory=dict)
    """By the name of the metric; one whose denominator does not apply is left out."""
    tokens: int = 0
    """Generated, by everybody whose tokens are known."""
    debates: tuple[PlayedDebate, ...] = ()
    """The debates, for the trust panel."""


def count_answers(debate: Debate, grades: Grades) -> dict[str, Share]:
    """format, correct, pass@k, avg@k and cons@k of final answers; only format where the right answer is not known."""
    last = last_parsed(debate)
    if not grades.known(debate.question):
        return {"format": (sum(i is not None and grades.answers[i] is not None for i in last) / len(last), 1.0)}
    metrics = answer_metrics([debate], [grades], "", "")
    return {name.removeprefix("_/"): (value, 1.0) for name, value in metrics.items() if value is not None}


def scored_by_peers(debate: Debate, scoring: Scoring, grades: Grades) -> PlayedDebate:
    """Scored by its votes, also where training uses something else: a reward that knows the truth would make every
    winner right."""
    return PlayedDebate(debate).scored(scoring.peers_alone(), grades)


def count_debate(played: PlayedDebate) -> dict[str, Share]:
    debate, grades = played.debate, played.grades
    assert grades is not None
    shares = count_answers(debate, grades) | _count_turns(played)
    if played.answer_known:
        right = played.winner_is_right()
        shares["winner"] = (float(bool(right)), float(right is not None))
        shares["group"] = (float(_group_is_right(played)), 1.0)
        checked = judged(played)
        shares["judge"] = (checked.wins, checked.pairs) if played.scoring.rule.checked else judge_accuracy([played])
        shares |= _count_first_round(debate, grades)
    return shares


def count_verdicts(debates: Sequence[PlayedDebate], seats: Sequence[int | None]) -> dict[str, Share]:
    """What the judge of advocates made of a question's debates. No verdict is not right. `seats` are the policy's, None
    where it argues for both sides or for none: where it argues for one, how often it is believed."""
    decided = [played for played in debates if played.believed is not None]
    shares = {"decided": (float(len(decided)), float(len(debates)))}
    if debates[0].answer_known:
        right = float(sum(_believes_the_truth(played) for played in decided))
        shares |= {"correct": (right, float(len(debates))), "judge": (right, float(len(decided)))}
    believed = [
        played.believed == seat
        for played, seat in zip(debates, seats, strict=True)
        if seat is not None and played.believed is not None
    ]
    if any(seat is not None for seat in seats):
        shares["preferred"] = (float(sum(believed)), float(len(believed)))
    arguments = [turn for played in debates for turn in played.debate.turns if turn.failed or is_filled(turn)]
    return {**shares, "valid_turns": (float(sum(not turn.failed for turn in arguments)), float(len(arguments)))}


def _believes_the_truth(played: PlayedDebate) -> bool:
    return played.correct(
        next(i for i, turn in enumerate(played.debate.turns) if turn.answers and turn.agent == played.believed)
    )


def _count_first_round(debate: Debate, grades: Grades) -> dict[str, Share]:
    """Round 1 and its plurality: what the rounds after it have to beat, at the cost of less. Nothing where there is
    only one round."""
    first = [i for i, turn in enumerate(debate.turns) if turn.round == 1]
    if len(first) == len(debate.turns):
        return {}
    alone = replace(debate, turns=tuple(debate.turns[i] for i in first))
    answers, correct, same = (
        tuple(column[i] for i in first) for column in (grades.answers, grades.correct, grades.same)
    )
    shown = replace(grades, answers=answers, correct=correct, same=same)  # type: ignore[arg-type]
    metrics = answer_metrics([alone], [shown], "", "")
    return {"round_1": (metrics["_/avg@k"] or 0.0, 1.0), "round_1_plurality": (metrics["_/cons@k"] or 0.0, 1.0)}


def count_against(debates: Sequence[tuple[int, PlayedDebate]], own: Debate, own_grades: Grades) -> dict[str, Share]:
    """Debates with others, as (the policy's seat, debate): what the policy answered, how it judged, and who preferred
    it."""
    shares = count_answers(own, own_grades)
    if own_grades.known(own.question):
        others = [
            played.correct(i)
            for seat, played in debates
            for agent, i in enumerate(last_parsed(played.debate))
            if agent != seat
        ]
        shares["opponents"] = (float(sum(others)), float(len(others)))
        shares["judge"] = judge_accuracy((played for _, played in debates), (seat for seat, _ in debates))
    between = [
        played.debate.turns[vote.left].agent == seat
        for seat, played in debates
        for vote in played.decided_votes()
        if seat in (played.debate.turns[vote.left].agent, played.debate.turns[vote.right].agent)
    ]
    shares["preferred"] = (float(sum(between)), float(len(between)))
    return shares


def own_answers(played: Sequence[tuple[int, Debate]]) -> Debate:
    """The policy's last answer in each debate, side by side, as if they were one debate's agents."""
    first = played[0][1]
    last = [(number, debate, last_parsed(debate)[seat]) for number, (seat, debate) in enumerate(played)]
    turns = tuple(replace(debate.turns[i], round=1, agent=number) for number, debate, i in last if i is not None)
    return Debate(first.question, len(played), 1, first.rules, turns)


def _count_turns(played: PlayedDebate) -> dict[str, Share]:
    """Turns that can be read, and those that gave a vote: of those that should compare, where an unreadable turn gave
    none, and of the readable ones that could."""
    debate = played.debate
    readable = tuple(replace(turn, parsed=Parsed({}, {})) for turn in debate.turns)
    should = [i for i, others in enumerate(candidates(debate.rules, readable)) if len(others) >= 2]
    voted = {vote.turn for vote in played.ballots.votes}
    return {
        "valid_turns": (float(sum(not turn.failed for turn in debate.turns)), float(len(debate.turns))),
        "comparisons": (float(sum(i in voted for i in should)), float(len(should))),
        "turns_with_vote": (float(played.ballots.did_vote), float(played.ballots.could_vote)),
    }


def _group_is_right(played: PlayedDebate) -> bool:
    """The plurality of the final answers; where several are held equally often, the one whose holder the peers' votes
    prefer."""
    if played.grades is None or played.outcome is None:
        return False
    last, held, standing = last_parsed(played.debate), held_answers(played.debate, played.grades), played.outcome.means
    counts = Counter(answer for answer in held if answer is not None)
    if not counts:
        return False
    most = max(counts.values())
    holders = [agent for agent, answer in enumerate(held) if answer is not None and counts[answer] == most]
    return played.correct(last[max(holders, key=lambda agent: (standing[agent] or 0.0, -agent))])
