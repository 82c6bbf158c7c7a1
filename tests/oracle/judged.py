"""How good a judge is, and what a judge that learns is paid, written a second time from the words of the specification.

Exact fractions to the end. A question is a list of answers, each (right, score, length), the score a text or None.
"""

from fractions import Fraction

HALF = Fraction(1, 2)


def mixed(questions):
    """Those with right and wrong answers among the ones that were judged."""
    judged = [[(right, Fraction(s), length) for right, s, length in answers if s is not None] for answers in questions]
    return [answers for answers in judged if {right for right, _, _ in answers} == {True, False}]


def pairs(questions):
    """(how far apart, what it is worth) of each right and wrong answer of one question."""
    found = []
    for answers in mixed(questions):
        for right, s, _ in answers:
            for other, t, _ in answers:
                if right and not other:
                    found.append((abs(s - t), Fraction(1) if s > t else HALF if s == t else Fraction(0)))
    return found


def precision(questions, coverage):
    """Over the share with the largest difference, rounded up to whole pairs; of level ones at its border each counts in
    part."""
    found = pairs(questions)
    wanted = -(-Fraction(coverage) * len(found) // 1)
    if not wanted:
        return None
    total, left = Fraction(0), wanted
    for size in sorted({size for size, _ in found}, reverse=True):
        level = [worth for own, worth in found if own == size]
        taken = min(left, Fraction(len(level)))
        total += taken * sum(level) / len(level)
        left -= taken
    return total / wanted


def j(questions):
    """Right answers with s above one half minus wrong ones."""
    shares = []
    for kind in (True, False):
        own = [s > HALF for answers in mixed(questions) for right, s, _ in answers if right is kind]
        if not own:
            return None
        shares.append(Fraction(sum(own), len(own)))
    return shares[0] - shares[1]


def length(questions):
    """The correlation of score and length, each less its question's mean, over all questions at once."""
    rows = []
    for answers in mixed(questions):
        middle = [sum(Fraction(row[column]) for row in answers) / len(answers) for column in (1, 2)]
        rows += [(s - middle[0], size - middle[1]) for _, s, size in answers]
    both, scores, sizes = (
        sum(a * b for a, b in own) for own in (rows, [(s, s) for s, _ in rows], [(n, n) for _, n in rows])
    )
    return None if not scores or not sizes else float(both) / float(scores * sizes) ** 0.5


def orders(questions):
    """Of pairs: (right, p_AB, p_BA) of a pair whose first answer is right, or wrong, or None where both are the same.
    The share that prefer the right one order by order, and the share whose preference changes with the order."""
    preferred, flips = [], []
    for first_right, one, other in questions:
        p, q = Fraction(one), 1 - Fraction(other)  # for the first answer, shown first and shown second
        flips.append((p > HALF) != (q > HALF) or (p < HALF) != (q < HALF))
        if first_right is not None:
            for value in (p, q):
                favours = value if first_right else 1 - value
                preferred.append(Fraction(1) if favours > HALF else HALF if favours == HALF else Fraction(0))
    share = sum(preferred) / len(preferred) if preferred else None
    return share, Fraction(sum(flips), len(flips)) if flips else None


def labels(kinds):
    """By the majority: which answers are to be approved, where the plurality holds at least half of all answers. Those
    without an answer are not judged."""
    counts = {kind: kinds.count(kind) for kind in kinds if kind is not None}
    most = max(counts.values(), default=0)
    if not counts or 2 * most < len(kinds):
        return {}
    plurality = next(kind for kind in kinds if kind is not None and counts[kind] == most)
    return {place: kind == plurality for place, kind in enumerate(kinds) if kind is not None}


def paid(approve, yes):
    """What a drawn verdict is paid on average: 1 with the chance of a Yes where that is right, else with that of a No."""
    said = {True: Fraction(yes), False: 1 - Fraction(yes)}
    return sum(chance * (1 if word is approve else 0) for word, chance in said.items())


def advantages(approve, pays):
    """Either class is centred apart, and both weigh the same: all of a class together half of the batch."""
    classes = {kind: [pay for pay, own in zip(pays, approve, strict=True) if own is kind] for kind in (True, False)}
    if not classes[True] or not classes[False]:
        return [Fraction(0)] * len(pays)
    return [
        (pay - sum(classes[kind]) / len(classes[kind])) * Fraction(len(pays), 2) / len(classes[kind])
        for pay, kind in zip(pays, approve, strict=True)
    ]
