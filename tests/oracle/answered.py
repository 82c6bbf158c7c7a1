"""Debates with answers, made up at random: for the rewards that look at answers, for judges without a seat, for several debates of a question.

answered_files(count, seed)     lists of line objects that share reward and estimator; some of their questions come twice
turn_texts(count, seed)         texts of turns, readable or not, with places at which tokens begin
"""

import random
from collections.abc import Iterator

from transcripts import ruined, tidy_line, without_gaps, written

NAMES = ["solution", "evaluation", "comparison"]
ANSWERS = ["7", "7", "7.0", "8", "8", "9", "-3", "0.5"]
REWARDS = ["truth", "majority", "truth_last", "majority_last", "generator_judge", "generator_judge", "generator_judge"]


def solution(rng):
    how = rng.random()
    if how < 0.1:
        return "I do not know."
    if how < 0.2:
        return f"First \\boxed{{{rng.choice(ANSWERS)}}}, no: \\boxed{{{rng.choice(ANSWERS)}}}."
    return f"It is \\boxed{{{rng.choice(ANSWERS)}}}."


def comparison(rng, agents):
    pairs = [(a, b) for a in agents for b in agents if a < b]
    rng.shuffle(pairs)
    lines = []
    for pair in pairs[: rng.choice([0, 1, 2, 3, 6])]:
        left, right = pair if rng.random() < 0.6 else pair[::-1]
        lines.append(tidy_line(rng, left, ">" if rng.random() < 0.8 else "=", right))
    return "\n".join(lines) or "N/A"


def turn_text(rng, agents, author):
    others = [agent for agent in range(agents) if agent != author]
    made = [["solution", solution(rng)], ["evaluation", "Fine."], ["comparison", comparison(rng, others)]]
    text = written(rng, made, "tidy")
    return ruined(rng, made, NAMES, "tidy") if rng.random() < 0.12 else text


def ballot_text(rng, agents):
    text = f"<evaluation>Well.</evaluation><comparison>{comparison(rng, range(agents))}</comparison>"
    return "nothing" if rng.random() < 0.1 else text


def second_ballot(rng, text, agents):
    """The same ballot as one who knows the agents the other way round would write it; now and then another one."""
    if rng.random() < 0.2:
        return ballot_text(rng, agents)
    lines = []
    for line in text.split("\n"):
        for old in range(agents):
            line = line.replace(f"Agent {old} ", f"Agent <{agents - 1 - old}> ").replace(
                f"Agent {old}<", f"Agent <{agents - 1 - old}><"
            )
            if line.endswith(f"Agent {old}"):
                line = line.removesuffix(f"Agent {old}") + f"Agent <{agents - 1 - old}>"
        for new in range(agents):
            line = line.replace(f"<{new}>", str(new))
        if rng.random() < 0.3:
            line = line.replace(" > ", " = ")
        lines.append(line)
    return "\n".join(lines)


def debate(rng, question, shared):
    agents = rng.choice([3, 3, 4, 5])
    turns = [
        {"round": number, "agent": agent, "text": turn_text(rng, agents, agent)}
        for number in range(1, rng.choice([2, 3, 3, 4]))
        for agent in range(agents)
        if rng.random() > 0.05
    ]
    line = {
        "question": question,
        "num_agents": agents,
        "turns": without_gaps(turns),
        "answer": rng.choice(["7", "8", 7]),
    }
    own = dict(shared)
    if shared["reward"] == "generator_judge":
        own |= {
            "voters": rng.choice(["both", "agents", "judges"]),
            "both_orders": rng.random() < 0.5,
        }
        own |= {"judge_consensus": rng.choice(["all", "leave_one_out"]), "lambda_judge": rng.choice([1, 2])}
        if rng.random() < 0.8:
            first = [ballot_text(rng, agents) for _ in range(rng.choice([1, 2]))]
            texts = (
                [text for each in first for text in (each, second_ballot(rng, each, agents))]
                if own["both_orders"]
                else first
            )
            line["jury"] = [{"text": text} for text in texts]
    elif shared["reward"] in ("truth", "majority"):
        own |= {"reward_mix": rng.choice([0, 0, 0.5]), "correct_bonus": rng.choice([0, 0, 0.25])}
    line["protocol"] = own
    return line


def answered_files(count: int, seed: int) -> Iterator[list[dict]]:
    rng = random.Random(seed)
    for _ in range(count):
        shared = {"reward": rng.choice(REWARDS)}
        estimators = ["center_group", "center_seat", "normalize_batch"]
        estimators += [] if shared["reward"].endswith("_last") else ["center_round"]
        if rng.random() < 0.7:
            shared["advantage"] = rng.choice(estimators)
        yield [debate(rng, f"Question {rng.randrange(3)}", shared) for _ in range(rng.choice([1, 2, 4, 6]))]


def turn_texts(count: int, seed: int) -> Iterator[tuple[str, list[int]]]:
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(["", "", "So: "]) + turn_text(rng, 4, 0) + rng.choice(["", "", " That is all."])
        yield text, sorted(rng.sample(range(len(text)), min(len(text), rng.randrange(1, 40))))
