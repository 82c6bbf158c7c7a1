"""Rewards by judges who check answers, written a second time from the documentation alone.

A debate here is rows: for each turn (agent, round, whether it failed), and checks as (turns, judge, value).
"""

from math import log


def rule_scores(turns, checks, count, rules):
    """`checks` has a fourth column: the rule that each is about."""
    scores = {}
    for place, (_, _, failed) in enumerate(turns):
        if failed:
            continue
        own = [row for row in checks if row[0] == (place,)]
        means = [
            approval_scores(turns, [row[:3] for row in own if row[3] == rule], count)[place][0]
            for rule in sorted({row[3] for row in own})
        ]
        scores[place] = [] if not means else [sorted(means)[0] if rules == "least" else sum(means) / len(means)]
    return scores


def approval_scores(turns, checks, count):
    scores = {}
    for place, (_, _, failed) in enumerate(turns):
        if failed:
            continue
        values = []
        for judge in sorted({judge for about, judge, _ in checks if about == (place,)}):
            values += [value for about, whose, value in checks if about == (place,) and whose == judge][:count]
        scores[place] = [sum(values) / len(values)] if values else []
    return scores


def pair_scores(turns, checks):
    scores = {place: [] for place, (_, _, failed) in enumerate(turns) if not failed}
    for a in range(len(turns)):
        for b in range(a + 1, len(turns)):
            one = [value for about, _, value in checks if about == (a, b)]
            other = [value for about, _, value in checks if about == (b, a)]
            if one and other:
                s = 0.5 * (sum(one) / len(one) + 1 - sum(other) / len(other))
                scores[a].append(s)
                scores[b].append(1 - s)
    return scores


def values(turns, scores, margin):
    """2s - 1 over what is sure enough; None without a signal, and for a failed turn."""
    paid = []
    for place, (_, _, failed) in enumerate(turns):
        sure = [2 * s - 1 for s in ([] if failed else scores[place]) if abs(2 * s - 1) >= margin - 1e-9]
        paid.append(sum(sure) / len(sure) if sure else None)
    return paid


def advantages(turns, paid):
    """The mean over what has a signal, then -1 for failed turns."""
    known = [value for value in paid if value is not None]
    middle = sum(known) / len(known) if known else 0.0
    return [
        -1.0 if failed else 0.0 if value is None else value - middle
        for (_, _, failed), value in zip(turns, paid, strict=True)
    ]


def approved(turns, scores, margin):
    """1 or 0, less the mean of the round."""
    paid = [
        0.0 if failed or not scores[i] else float(scores[i][0] > 0.5 + 1e-9 and 2 * scores[i][0] - 1 >= margin - 1e-9)
        for i, (_, _, failed) in enumerate(turns)
    ]
    means = {}
    for which in {round for _, round, _ in turns}:
        own = [value for value, (_, round, _) in zip(paid, turns, strict=True) if round == which]
        means[which] = sum(own) / len(own)
    return paid, [value - means[round] for value, (_, round, _) in zip(paid, turns, strict=True)]


def weighted(turns, kinds, scores, j):
    """1 for the answer with the most votes of its round, less the round's mean; -1 for a failed turn, centred too."""
    p, rounds = (1 + j) / 2, {round for _, round, _ in turns}
    most = {}
    for which in rounds:
        own = sorted((agent, i) for i, (agent, round, _) in enumerate(turns) if round == which and kinds[i] is not None)
        sums = {}
        for _, i in own:
            s = scores[i][0] if scores[i] else 0.0
            evidence = s * (log(p) - log(1 - p)) - (1 - s) * (log(p) - log(1 - p))
            sums[kinds[i]] = sums.get(kinds[i], 0) + 1 + evidence
        best = max(sums.values(), default=None)
        most[which] = next((kinds[i] for _, i in own if abs(sums[kinds[i]] - best) < 1e-9), None)
    paid = [
        -1.0 if failed else float(kinds[i] is not None and kinds[i] == most[round])
        for i, (_, round, failed) in enumerate(turns)
    ]
    means = {}
    for which in rounds:
        own = [value for value, (_, round, _) in zip(paid, turns, strict=True) if round == which]
        means[which] = sum(own) / len(own)
    return paid, [value - means[round] for value, (_, round, _) in zip(paid, turns, strict=True)]
