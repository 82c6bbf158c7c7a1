"""What came to the specification later: rewards by answers, whose votes count, debates of one question, and who pays for an evaluation.

As oracle.py, from words alone: the specification's, and where it is silent docs/rewards.md, docs/protocols.md and docs/formats.md. Answers
stand in a \\boxed{} and are numbers, because how other answers are read belongs to a task.

    score_lines(lines)      what `moot score --json` prints for these lines, without "line"; advantages over all of them
    credit(...)             the advantage of each token of a turn
"""

from fractions import Fraction

import oracle

BY_TURN = ("truth", "majority")
BY_LAST = ("truth_last", "majority_last")
LATER = {
    "voters": "both",
    "both_orders": False,
    "reward_mix": 0,
    "correct_bonus": 0,
    "evaluation_credit": "generator",
}


def protocol_of(obj):
    """All lines here are of v2; `advantage` auto is center_round for rewards by turn and center_group for the others."""
    own = obj.get("protocol", {})
    protocol = {**oracle.V2, **LATER, **own}
    if "advantage" not in own:
        protocol["advantage"] = "center_round" if protocol["reward"] in BY_TURN else "center_group"
    return protocol


# ---------------------------------------------------------------- answers


def answer_of(turn):
    """The number in the last \\boxed{}; None where there is none, or the turn failed."""
    if turn["fields"] is None:
        return None
    found = None
    pieces = turn["fields"]["solution"].split("\\boxed{")
    for piece in pieces[1:]:
        if "}" in piece:
            found = Fraction(piece[: piece.index("}")])
    return found


def plurality(held):
    """Of (agent, answer) pairs: the answer most hold; of those level, the one that the lowest-numbered agent holds."""
    best = None
    for _, answer in sorted(held):
        count = sum(1 for _, other in held if other == answer)
        if best is None or count > best[0]:
            best = (count, answer)
    return None if best is None else best[1]


def rewards_by_turn(turns, protocol, right):
    steps = []
    for turn in turns:
        own = answer_of(turn)
        if protocol["reward"] == "truth":
            wanted = right
        else:
            said = [(other["agent"], answer_of(other)) for other in turns if other["round"] == turn["round"]]
            wanted = plurality([pair for pair in said if pair[1] is not None])
        if turn["fields"] is None:
            value = Fraction(-1)
        else:
            value = Fraction(int(own is not None and own == wanted))
            correct = int(own is not None and own == right)
            mix, bonus = Fraction(protocol["reward_mix"]), Fraction(protocol["correct_bonus"])
            value = (1 - mix) * value + mix * correct + bonus * correct
        steps.append({"agent": turn["agent"], "round": turn["round"], "value": value, "signal": True})
    return steps


def rewards_by_last_answer(turns, num_agents, protocol, right):
    last = []
    for agent in range(num_agents):
        parsed = [turn for turn in turns if turn["agent"] == agent and turn["fields"] is not None]
        last.append(answer_of(parsed[-1]) if parsed else None)
    wanted = right
    if protocol["reward"] == "majority_last":
        wanted = plurality([(agent, answer) for agent, answer in enumerate(last) if answer is not None])
    return [Fraction(int(answer is not None and answer == wanted)) for answer in last]


# ---------------------------------------------------------------- whose votes count


def ballot(turns, text, num_agents, author, mirrored):
    """The votes of one ballot of a judge without a seat: about each agent's newest parsed response, one word on each pair."""
    fields, _ = oracle.parse_sections(text, ["evaluation", "comparison"])
    if fields is None:
        return []
    newest = {turn["agent"]: (turn["agent"], turn["step"]) for turn in turns if turn["fields"] is not None}
    votes = []
    for line in fields["comparison"].split("\n"):
        found = oracle.extract(line)
        if found is None:
            continue
        left, operator, right = found
        if mirrored:  # the second time the last agent is number 0
            left, right = num_agents - 1 - left, num_agents - 1 - right
        if left != right and left in newest and right in newest:
            votes.append(
                {"author": author, "step": None, "left": newest[left], "operator": operator, "right": newest[right]}
            )
    return votes


def same_word(vote, other):
    straight = (vote["left"], vote["right"]) == (other["left"], other["right"])
    crossed = (vote["left"], vote["right"]) == (other["right"], other["left"])
    if vote["operator"] != other["operator"]:
        return False
    return straight or (crossed and vote["operator"] == "=")


def outside_votes(obj, turns, protocol):
    texts = [each["text"] for each in obj.get("jury", [])]
    agents = obj["num_agents"]
    if not protocol["both_orders"]:
        return [vote for judge, text in enumerate(texts) for vote in ballot(turns, text, agents, agents + judge, False)]
    votes = []
    for judge in range(len(texts) // 2):
        first = ballot(turns, texts[2 * judge], agents, agents + judge, False)
        second = ballot(turns, texts[2 * judge + 1], agents, agents + judge, True)
        votes += [vote for vote in first if any(same_word(vote, other) for other in second)]
    return votes


def chooser(obj, turns, protocol):
    def choose(votes_of):
        if protocol["voters"] == "judges":
            votes_of = [[] for _ in votes_of]
        return votes_of, ([] if protocol["voters"] == "agents" else outside_votes(obj, turns, protocol))

    return choose


# ---------------------------------------------------------------- lines


def debate_of(obj):
    protocol = protocol_of(obj)
    num_agents = obj["num_agents"]
    turns = oracle.read_turns(obj, protocol)
    right = Fraction(obj["answer"]) if "answer" in obj else None
    kind = {"estimator": protocol["advantage"], "question": obj["question"]}
    debate = {"protocol": protocol, "num_agents": num_agents, "obj": obj}
    if protocol["reward"] in BY_TURN:
        debate["streams"] = [{**kind, "kind": "generator", "values": rewards_by_turn(turns, protocol, right)}]
        debate["counts"] = {
            "votes": 0,
            "lines_invalid": 0,
            "missing_comparisons": 0,
            "failures": oracle.failures_of(turns),
        }
    elif protocol["reward"] in BY_LAST:
        rewards = rewards_by_last_answer(turns, num_agents, protocol, right)
        failed = [
            sum(1 for turn in turns if turn["agent"] == agent and turn["fields"] is None) for agent in range(num_agents)
        ]
        returns = [reward - count for reward, count in zip(rewards, failed, strict=True)]
        values = [
            {"agent": agent, "round": None, "value": value, "signal": True} for agent, value in enumerate(returns)
        ]
        debate["streams"] = [{**kind, "kind": "return", "values": values}]
        debate["counts"] = {
            "valid": 0,
            "malformed": 0,
            "failures": oracle.failures_of(turns),
            "rewards": rewards,
            "returns": returns,
        }
    else:
        if protocol["voters"] == "judges":
            protocol = {**protocol, "enable_format_penalty": False}  # what is not counted is not missed either
        debate["counts"], debate["steps"] = oracle.generator_judge(
            turns, num_agents, protocol, chooser(obj, turns, protocol)
        )
        debate["streams"] = [{**stream, **kind} for stream in oracle.streams_of_steps(debate["steps"], protocol)]
    return debate


def score_lines(lines: list[dict]) -> list[dict]:
    """The lines of one file, which share reward and estimator."""
    debates = [debate_of(obj) for obj in lines]
    oracle.center_all([stream for debate in debates for stream in debate["streams"]])
    printed = []
    for debate in debates:
        reward = debate["protocol"]["reward"]
        if reward in BY_TURN:
            (stream,) = debate["streams"]
            rows = {"generator": "value", "generator_advantages": "centred"}
            lists = {
                name: oracle.per_agent(stream["values"], [item[key] for item in stream["values"]], debate["num_agents"])
                for name, key in rows.items()
            }
            printed.append({**debate["counts"], **lists})
        else:
            printed.append(oracle.print_returns(debate) if reward in BY_LAST else oracle.print_steps(debate))
    return printed


# ---------------------------------------------------------------- tokens


def credit(text: str, starts: list[int], advantages: dict[str, float], protocol: dict) -> list[float]:
    """The advantage of each token of a turn, by the character in which it begins. `advantages` has the step's, by stream."""
    reward = protocol["reward"]
    fields, _ = oracle.parse(text, "three_tag")
    if fields is None:
        return [advantages["generator"]] * len(starts)
    pays = {"solution": "generator"}
    if reward not in BY_TURN:
        pays |= {"comparison": "judge", "evaluation": protocol["evaluation_credit"]}
    tags = oracle.contract_tags(text, oracle.THREE)
    thought = max((at for at in range(len(text)) if oracle.stands_at(text, at, "</think>")), default=0)
    if oracle.parse_sections(text[thought:], oracle.THREE)[0] is not None:
        tags = [tag for tag in tags if tag[2] >= thought]  # only what follows the thinking was read
    tags = tags[: 2 * len(oracle.THREE)]
    values = []
    for start in starts:
        value = 0.0
        for place in range(0, len(tags), 2):
            _, name, begin, _ = tags[place]
            last = place + 2 >= len(tags)
            end = None if last else tags[place + 1][3]  # the last section has all that follows it
            if begin <= start and (end is None or start < end):
                value = advantages.get(pays.get(name), 0.0)
        values.append(value)
    return values
