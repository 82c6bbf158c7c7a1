"""A second, independent scorer of debates, to check the real one against.

Written from the words of the specification alone, in the slowest and plainest way: characters are read one by one,
votes are counted by looping over all votes again for every question asked, numbers are exact fractions until the end.
Nothing here is shared with the code it checks. README.md lists every place where the specification left a choice.

    score_line(obj)     what `moot score --json` prints for one debate, without "line"
    score_file(lines)   what it prints for a whole file, with "line"; bad lines are left out
    bad_lines(lines)    the numbers and reasons of the lines that were left out
"""

import json
import math
from fractions import Fraction

# ---------------------------------------------------------------- the protocol

FIVE = ["solution", "evaluation", "comparison", "consensus", "consensus_reason"]
THREE = ["solution", "evaluation", "comparison"]

V1 = {
    "schedule": "sequential",
    "contract": "five_tag",
    "visible": ["solution", "evaluation", "comparison", "consensus_reason"],
    "layout": "rebuilt",
    "history_rounds": -1,
    "max_chars_per_field": 2000,
    "on_parse_failure": "abort",
    "reward": "win_rate",
    "one_ballot_per_pair": False,
    # The table has a dash here; a line may still ask for generator_judge, and then these are what v2 says.
    "judge_consensus": "all",
    "enable_format_penalty": True,
    "lambda_gen": 1,
    "lambda_judge": 1,
    "advantage": "center_group",
    "personas": False,
    "literal": False,
}
V2 = {
    "schedule": "parallel",
    "contract": "three_tag",
    "visible": ["solution", "evaluation"],
    "layout": "growing",
    "history_rounds": -1,
    "max_chars_per_field": 2000,
    "on_parse_failure": "continue",
    "reward": "generator_judge",
    "one_ballot_per_pair": True,
    "judge_consensus": "all",
    "enable_format_penalty": True,
    "lambda_gen": 1,
    "lambda_judge": 1,
    "advantage": "center_group",
    "personas": True,
    "literal": False,
}
V2_LITERAL = {**V2, "literal": True, "one_ballot_per_pair": False}
PRESETS = {"v1": V1, "v2": V2, "v2_literal": V2_LITERAL}

REWARDS = ["win_rate", "win_minus_loss", "generator_judge"]
WORDS = {
    "schedule": ["sequential", "parallel"],
    "contract": ["five_tag", "three_tag"],
    "layout": ["rebuilt", "growing"],
    "on_parse_failure": ["abort", "continue"],
    "reward": REWARDS,
    "judge_consensus": ["all", "leave_one_out"],
    "advantage": ["center_group", "center_round", "center_seat", "normalize_batch"],
}


class BadLine(Exception):
    """This line is not a debate that can be scored; the message says why."""


def demand(condition, reason):
    if not condition:
        raise BadLine(reason)


def is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)  # true is not a number in JSON


def is_number(value):
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def protocol_of(obj, preset, reward):
    """The preset, then the line's own choices over it, then the command line's reward over both."""
    protocol = dict(PRESETS[preset])
    own = obj.get("protocol", {})
    demand(isinstance(own, dict), "protocol must be an object")
    for key, value in own.items():
        demand(key in protocol, f"unknown protocol choice {key!r}")
        if key in WORDS:
            demand(value in WORDS[key], f"{key} cannot be {value!r}")
        elif key in ("history_rounds", "max_chars_per_field"):
            lowest = -1 if key == "history_rounds" else 0
            demand(is_int(value) and value >= lowest, f"{key} must be a whole number from {lowest} up")
        elif key in ("lambda_gen", "lambda_judge"):
            demand(is_number(value) and value >= 0, f"{key} must be a number from 0 up")
        elif key == "visible":
            demand(isinstance(value, list) and all(name in FIVE for name in value), "visible must be a list of fields")
        else:
            demand(isinstance(value, bool), f"{key} must be true or false")
        protocol[key] = value
    if reward is not None:
        protocol["reward"] = reward
    per_step = protocol["reward"] == "generator_judge"
    demand(per_step or protocol["advantage"] != "center_round", "center_round needs a reward per step")
    return protocol


def check_line(obj):
    """Missing or unknown keys, wrong types and ranges; the whole line is checked, also turns that will not be read."""
    demand(isinstance(obj, dict), "not an object")
    for key in ("question", "num_agents", "turns"):
        demand(key in obj, f"missing key {key!r}")
    for key in obj:
        demand(key in ("question", "num_agents", "turns", "protocol", "answer"), f"unknown key {key!r}")
    demand(isinstance(obj["question"], str), "question must be a string")
    demand(is_int(obj["num_agents"]) and obj["num_agents"] >= 1, "num_agents must be a whole number from 1 up")
    demand(isinstance(obj["turns"], list), "turns must be a list")
    if "answer" in obj:
        demand(isinstance(obj["answer"], str) or is_number(obj["answer"]), "answer must be a string or a number")
    newest_round = 1
    spoken = []
    for turn in obj["turns"]:
        demand(isinstance(turn, dict) and sorted(turn) == ["agent", "round", "text"], "a turn has round, agent, text")
        demand(is_int(turn["round"]) and turn["round"] >= 1, "round must be a whole number from 1 up")
        demand(is_int(turn["agent"]) and 0 <= turn["agent"] < obj["num_agents"], "agent out of range")
        demand(isinstance(turn["text"], str), "text must be a string")
        demand(turn["round"] >= newest_round, "rounds never decrease")
        demand((turn["round"], turn["agent"]) not in spoken, "an agent speaks at most once a round")
        newest_round = turn["round"]
        spoken.append((turn["round"], turn["agent"]))


# ---------------------------------------------------------------- text to sections


def small(character):
    """Lower case for A to Z only: tags are ASCII, and other alphabets must not fold into them."""
    if "A" <= character <= "Z":
        return chr(ord(character) + 32)
    return character


def stands_at(text, at, word):
    """Does `word` (given in lower case) stand in the text at this place, in any case?"""
    if at + len(word) > len(text):
        return False
    for offset in range(len(word)):
        if small(text[at + offset]) != word[offset]:
            return False
    return True


def without_think_markers(text):
    kept = []
    at = 0
    while at < len(text):
        if stands_at(text, at, "<think>"):
            at += len("<think>")
        elif stands_at(text, at, "</think>"):
            at += len("</think>")
        else:
            kept.append(text[at])
            at += 1
    return "".join(kept)


def contract_tags(text, names):
    """Every contract tag from left to right: (is it an opening one, its name, where it starts, where it ends)."""
    found = []
    for at in range(len(text)):
        if text[at] != "<":
            continue
        for name in names:
            if stands_at(text, at, "<" + name + ">"):
                found.append((True, name, at, at + len(name) + 2))
            if stands_at(text, at, "</" + name + ">"):
                found.append((False, name, at, at + len(name) + 3))
    return found


def parse_sections(text, names):
    """(fields, None) or (None, reason), for a text read once from its first contract tag."""
    text = without_think_markers(text)
    tags = contract_tags(text, names)
    expected = []
    for name in names:
        expected.append((True, name))
        expected.append((False, name))
    fields = {}
    content_start = None
    for place, (opening, name) in enumerate(expected):
        last = place == len(expected) - 1
        if place < len(tags):
            tag_opening, tag_name, start, end = tags[place]
            if (tag_opening, tag_name) != (opening, name):
                return None, f"expected {'<' if opening else '</'}{name}>, found another tag"
            if opening:
                content_start = end
            else:
                fields[name] = text[content_start:start].strip()
        elif last:
            fields[name] = text[content_start:].strip()  # only the last closing tag may be missing
        else:
            return None, f"missing {'<' if opening else '</'}{name}>"
    if "consensus" in names:
        word = "".join(small(character) for character in fields["consensus"])
        if word not in ("yes", "no"):
            return None, "consensus is neither YES nor NO"
    return fields, None


def parse(text, contract):
    names = FIVE if contract == "five_tag" else THREE
    after_thinking = None
    for at in range(len(text)):
        if stands_at(text, at, "</think>"):
            after_thinking = at + len("</think>")
    if after_thinking is not None:
        fields, reason = parse_sections(text[after_thinking:], names)
        if fields is not None:
            return fields, None
    return parse_sections(text, names)


# ---------------------------------------------------------------- comparison lines

DIGITS = "0123456789"
EMPHASIS = "*_`"


def skip_spacing(line, at):
    while at < len(line) and line[at].isspace():
        at += 1
    return at


def skip_spacing_and_emphasis(line, at):
    while at < len(line) and (line[at].isspace() or line[at] in EMPHASIS):
        at += 1
    return at


def read_name(line, at):
    """`Agent 12` at this place gives (12, where it ends); anything else (None, at)."""
    if not stands_at(line, at, "agent"):
        return None, at
    start = skip_spacing(line, at + len("agent"))
    end = start
    value = 0
    while end < len(line) and line[end] in DIGITS:
        value = min(value * 10 + DIGITS.index(line[end]), 10**9)  # far out of range is all we need to know
        end += 1
    if end == start:
        return None, at
    return value, end


def skip_list_marker(line, at):
    if at < len(line) and line[at] in "-*•":
        return at + 1
    end = at
    while end < len(line) and line[end] in DIGITS:
        end += 1
    if end > at and end < len(line) and line[end] in ".)":
        return end + 1
    return at


def extract(line):
    """(left, operator, right) of an extracted comparison, or None."""
    at = skip_spacing(line, 0)
    at = skip_list_marker(line, at)
    at = skip_spacing_and_emphasis(line, at)
    left, at = read_name(line, at)
    if left is None:
        return None
    at = skip_spacing_and_emphasis(line, at)
    if at == len(line) or line[at] not in ">=":
        return None
    operator = line[at]
    at = skip_spacing_and_emphasis(line, at + 1)
    right, at = read_name(line, at)
    if right is None:
        return None
    # A chain, or a second comparison: an operator directly before an Agent number in what follows.
    while at < len(line):
        if line[at] in "><=":
            another, _ = read_name(line, skip_spacing_and_emphasis(line, at + 1))
            if another is not None:
                return None
        at += 1
    return left, operator, right


def says_nothing(line):
    """Blank, only a Markdown fence, or N/A: such a line is not a failed attempt at a vote."""
    line = line.strip()
    if line == "":
        return True
    if stands_at(line, 0, "n/a") and line[3:] in ("", "."):
        return True
    for mark in "`~":
        run = 0
        while run < len(line) and line[run] == mark:
            run += 1
        rest = line[run:].strip()
        # After the marks at most the name of a language: one word and no further marks.
        if run >= 3 and mark not in rest and not any(character.isspace() for character in rest):
            return True
    return False


# ---------------------------------------------------------------- turns, what each author was shown, votes


def read_turns(obj, protocol):
    """The turns that are read, as dictionaries; a failed turn has fields None."""
    turns = []
    steps_so_far = [0] * obj["num_agents"]
    for raw in obj["turns"]:
        fields, reason = parse(raw["text"], protocol["contract"])
        agent = raw["agent"]
        turns.append(
            {"round": raw["round"], "agent": agent, "step": steps_so_far[agent], "fields": fields, "reason": reason}
        )
        steps_so_far[agent] += 1
        if fields is None and protocol["on_parse_failure"] == "abort":
            break
    return turns


def was_shown(earlier, turn, protocol):
    """Was an earlier turn of the debate shown to the author of this one?"""
    window = protocol["history_rounds"]
    if window == 0:
        return False
    if earlier["round"] == turn["round"]:
        return protocol["schedule"] == "sequential"
    return window == -1 or turn["round"] - earlier["round"] <= window


def newest_shown(turns, place, protocol):
    """For each eligible agent of the turn at this place, the newest parsed response that its author was shown."""
    turn = turns[place]
    newest = {}
    for earlier in turns[:place]:
        if earlier["agent"] == turn["agent"] or earlier["fields"] is None:
            continue
        if was_shown(earlier, turn, protocol):
            newest[earlier["agent"]] = (earlier["agent"], earlier["step"])
    return newest


def comparisons(turn, num_agents):
    """The extracted comparisons of a parsed turn that do not name its author: (valid ones, malformed ones)."""
    valid = []
    malformed = []
    for line in turn["fields"]["comparison"].split("\n"):
        found = extract(line)
        if found is None:
            continue
        left, _, right = found
        if turn["agent"] in (left, right):
            continue
        if left >= num_agents or right >= num_agents or left == right:
            malformed.append(found)
        else:
            valid.append(found)
    return valid, malformed


def votes_of_turn(turns, place, num_agents, protocol):
    """The votes of one turn, and how many of its lines gave none."""
    turn = turns[place]
    if turn["fields"] is None:
        return [], 0
    newest = newest_shown(turns, place, protocol)
    votes = []
    for left, operator, right in comparisons(turn, num_agents)[0]:
        if left in newest and right in newest:
            votes.append(
                {
                    "author": turn["agent"],
                    "step": turn["step"],
                    "left": newest[left],
                    "operator": operator,
                    "right": newest[right],
                }
            )
    lines_that_speak = 0
    for line in turn["fields"]["comparison"].split("\n"):
        # A line such as "```Agent0>Agent1" looks like a fence and votes all the same.
        if extract(line) is not None or not says_nothing(line):
            lines_that_speak += 1
    invalid = lines_that_speak - len(votes)  # counted before ballots: a superseded line is not an invalid one
    if protocol["one_ballot_per_pair"]:
        kept = []
        for number, vote in enumerate(votes):
            later = votes[number + 1 :]
            if not any({vote["left"], vote["right"]} == {other["left"], other["right"]} for other in later):
                kept.append(vote)
        votes = kept
    return votes, invalid


# ---------------------------------------------------------------- rewards


def failures_of(turns):
    return [[turn["round"], turn["agent"], turn["reason"]] for turn in turns if turn["fields"] is None]


def pairwise_rewards(turns, num_agents, mode):
    """win_rate or win_minus_loss: (what is printed so far, returns per agent)."""
    valid = []
    malformed = 0
    for turn in turns:
        if turn["fields"] is None:
            continue
        good, bad = comparisons(turn, num_agents)
        malformed += len(bad)
        for left, operator, right in good:
            valid.append((turn["agent"], left, operator, right))
    rewards = []
    for agent in range(num_agents):
        score = Fraction(0)
        number = 0
        for author, left, operator, right in valid:
            if author == agent or agent not in (left, right):
                continue
            number += 1
            if mode == "win_rate":
                if operator == "=":
                    score += Fraction(1, 2)
                elif agent == left:
                    score += 1
            elif operator == ">":
                score += 1 if agent == left else -1
        rewards.append(score / number if number > 0 else Fraction(0))
    returns = []
    for agent in range(num_agents):
        failed = sum(1 for turn in turns if turn["agent"] == agent and turn["fields"] is None)
        returns.append(rewards[agent] - failed)
    printed = {
        "valid": len(valid),
        "malformed": malformed,
        "failures": failures_of(turns),
        "rewards": rewards,
        "returns": returns,
    }
    return printed, returns


def consensus(pair, votes):
    """The better response of a pair of responses, or None for a tie."""
    first, second = pair
    for_first = sum(1 for vote in votes if vote["operator"] == ">" and (vote["left"], vote["right"]) == (first, second))
    for_second = sum(
        1 for vote in votes if vote["operator"] == ">" and (vote["left"], vote["right"]) == (second, first)
    )
    if for_first > for_second:
        return first
    if for_second > for_first:
        return second
    return None


def generator_judge(turns, num_agents, protocol, choose=None):
    """(counts that are printed, one record per step in speaking order).

    `choose` says which of the votes count, and what judges without a seat add: see later.py.
    """
    votes_of = []
    lines_invalid = 0
    for place in range(len(turns)):
        votes, invalid = votes_of_turn(turns, place, num_agents, protocol)
        votes_of.append(votes)
        lines_invalid += invalid
    voted = [len(votes) > 0 for votes in votes_of]
    outside = []
    if choose is not None:
        votes_of, outside = choose(votes_of)
    all_votes = [vote for votes in votes_of for vote in votes] + outside

    steps = []
    missing = 0
    for place, turn in enumerate(turns):
        me = (turn["agent"], turn["step"])
        failed = turn["fields"] is None

        preferred = sum(1 for vote in all_votes if vote["operator"] == ">" and vote["left"] == me)
        rejected = sum(1 for vote in all_votes if vote["operator"] == ">" and vote["right"] == me)
        judged = preferred + rejected > 0
        if failed:
            generator = Fraction(-1)
        elif judged:
            generator = 2 * Fraction(preferred, preferred + rejected) - 1
        elif protocol["literal"]:
            generator = Fraction(-1)
        else:
            generator = Fraction(0)

        agreements = []
        for vote in votes_of[place]:
            counted = all_votes
            if protocol["judge_consensus"] == "leave_one_out":
                counted = [other for other in all_votes if other["author"] != turn["agent"]]
            better = consensus((vote["left"], vote["right"]), counted)
            if better is not None:
                agreements.append(1 if vote["operator"] == ">" and vote["left"] == better else -1)
        alignment = Fraction(sum(agreements), len(agreements)) if agreements else Fraction(0)

        if protocol["literal"]:
            deserves_penalty = place >= 2 and not voted[place]
        else:
            eligible = len(newest_shown(turns, place, protocol))
            deserves_penalty = not failed and eligible >= 2 and not voted[place]
        penalty = Fraction(0)
        if protocol["enable_format_penalty"] and deserves_penalty:
            penalty = Fraction(-1, 2)
            missing += 1

        steps.append(
            {
                "agent": turn["agent"],
                "round": turn["round"],
                "failed": failed,
                "generator": generator,
                "generator_signal": judged,
                "alignment": alignment,
                "judge_signal": len(agreements) > 0,
                "penalty": penalty,
            }
        )
    counts = {
        "votes": len(all_votes),
        "lines_invalid": lines_invalid,
        "missing_comparisons": missing,
        "failures": failures_of(turns),
    }
    return counts, steps


# ---------------------------------------------------------------- advantages


def mean(values):
    return sum(values, Fraction(0)) / len(values)


def mean_and_deviation(streams, kind):
    """Mean and population standard deviation of one kind of value over the batch."""
    batch = [
        item["value"]
        for stream in streams
        if stream["kind"] == kind and stream["estimator"] == "normalize_batch"
        for item in stream["values"]
        if item["signal"]
    ]
    middle = mean(batch)
    return middle, math.sqrt(mean([(value - middle) ** 2 for value in batch]))


def center_all(streams):
    """Centre the values of many debates, in order.

    Each stream is one debate's values of one kind: {"kind", "estimator", "values"}, and each value
    {"agent", "round", "value", "signal"}. Only values with a signal take part; the others get 0.
    The answer lies in the same places, as numbers under "centred".
    """
    seat_means = {}
    batches = {}
    for stream in streams:
        part = [item for item in stream["values"] if item["signal"]]
        for item in stream["values"]:
            item["centred"] = Fraction(0)
        if stream["estimator"] == "center_group":
            for item in part:
                item["centred"] = item["value"] - mean([other["value"] for other in part])
        elif stream["estimator"] == "center_round":
            for item in part:
                item["centred"] = item["value"] - mean(
                    [other["value"] for other in part if other["round"] == item["round"]]
                )
        elif stream["estimator"] == "center_seat":
            for item in part:
                item["centred"] = item["value"] - seat_means.get((stream["kind"], item["agent"]), Fraction(0))
            for seat in {item["agent"] for item in part}:
                old = seat_means.get((stream["kind"], seat), Fraction(0))
                here = mean([item["value"] for item in part if item["agent"] == seat])
                seat_means[stream["kind"], seat] = Fraction(95, 100) * old + Fraction(5, 100) * here
        elif stream["estimator"] == "normalize_batch":
            if part:
                if stream["kind"] not in batches:
                    batches[stream["kind"]] = mean_and_deviation(streams, stream["kind"])
                middle, deviation = batches[stream["kind"]]
                for item in part:
                    item["centred"] = float(item["value"] - middle) / (deviation + 1e-8)


def streams_of_steps(steps, protocol):
    generator = []
    judge = []
    for step in steps:
        where = {"agent": step["agent"], "round": step["round"]}
        if protocol["literal"]:
            # Every step takes part, and penalties are centred with the rest.
            generator.append({**where, "value": step["generator"], "signal": True})
            judge.append({**where, "value": step["alignment"] + step["penalty"], "signal": True})
        else:
            generator.append({**where, "value": step["generator"], "signal": step["generator_signal"]})
            judge.append({**where, "value": step["alignment"], "signal": step["judge_signal"]})
    estimator = protocol["advantage"]
    return [
        {"kind": "generator", "estimator": estimator, "values": generator},
        {"kind": "judge", "estimator": estimator, "values": judge},
    ]


def per_agent(steps, values, num_agents):
    """One list per agent, in the order in which it spoke."""
    lists = [[] for _ in range(num_agents)]
    for step, value in zip(steps, values, strict=True):
        lists[step["agent"]].append(float(value))
    return lists


def print_steps(debate):
    counts, steps, protocol, num_agents = debate["counts"], debate["steps"], debate["protocol"], debate["num_agents"]
    generator_stream, judge_stream = debate["streams"]
    generator_advantages = []
    judge_advantages = []
    for step, generator, judge in zip(steps, generator_stream["values"], judge_stream["values"], strict=True):
        generator_advantage = generator["centred"]
        judge_advantage = judge["centred"]
        if not protocol["literal"]:
            if step["failed"]:
                generator_advantage = -1
            judge_advantage += step["penalty"]
        generator_advantages.append(float(generator_advantage) * protocol["lambda_gen"])
        judge_advantages.append(float(judge_advantage) * protocol["lambda_judge"])
    return {
        **counts,
        "generator": per_agent(steps, [step["generator"] for step in steps], num_agents),
        "judge": per_agent(steps, [step["alignment"] + step["penalty"] for step in steps], num_agents),
        "generator_advantages": per_agent(steps, generator_advantages, num_agents),
        "judge_advantages": per_agent(steps, judge_advantages, num_agents),
    }


def print_returns(debate):
    printed = dict(debate["counts"])
    printed["rewards"] = [float(value) for value in printed["rewards"]]
    printed["returns"] = [float(value) for value in printed["returns"]]
    printed["advantages"] = [float(item["centred"]) for item in debate["streams"][0]["values"]]
    return printed


# ---------------------------------------------------------------- lines and files


def judge_debate(obj, preset, reward):
    """Everything about one debate that does not depend on the other lines of its file."""
    check_line(obj)
    protocol = protocol_of(obj, preset, reward)
    num_agents = obj["num_agents"]
    turns = read_turns(obj, protocol)
    debate = {"protocol": protocol, "num_agents": num_agents}
    if protocol["reward"] == "generator_judge":
        debate["counts"], debate["steps"] = generator_judge(turns, num_agents, protocol)
        debate["streams"] = streams_of_steps(debate["steps"], protocol)
    else:
        debate["counts"], returns = pairwise_rewards(turns, num_agents, protocol["reward"])
        values = [
            {"agent": agent, "round": None, "value": returns[agent], "signal": True} for agent in range(num_agents)
        ]
        debate["streams"] = [{"kind": "return", "estimator": protocol["advantage"], "values": values}]
    return debate


def print_debates(debates):
    center_all([stream for debate in debates for stream in debate["streams"]])
    printed = []
    for debate in debates:
        per_step = debate["protocol"]["reward"] == "generator_judge"
        printed.append(print_steps(debate) if per_step else print_returns(debate))
    return printed


def not_json(word):
    raise ValueError(f"{word} is not JSON")


def read_lines(lines, preset, reward):
    """(number, debate) of the good lines, (number, reason) of the bad ones; blank lines are numbered and skipped."""
    good = []
    bad = []
    for number, line in enumerate(lines, start=1):
        if line.strip() == "":
            continue
        try:
            obj = json.loads(line, parse_constant=not_json)
            good.append((number, judge_debate(obj, preset, reward)))
        except (ValueError, RecursionError) as problem:
            bad.append((number, f"not JSON: {problem}"))
        except BadLine as problem:
            bad.append((number, str(problem)))
    return good, bad


def score_line(obj: dict, preset: str = "v2", reward: str | None = None) -> dict:
    """What `moot score --json` prints for a file with this one line, without "line". Raises BadLine."""
    return print_debates([judge_debate(obj, preset, reward)])[0]


def score_file(lines: list[str], preset: str = "v2", reward: str | None = None) -> list[dict]:
    """What `moot score --json` prints for these lines: one object per good line, in order."""
    good, _ = read_lines(lines, preset, reward)
    printed = print_debates([debate for _, debate in good])
    return [{"line": number, **one} for (number, _), one in zip(good, printed, strict=True)]


def bad_lines(lines: list[str], preset: str = "v2", reward: str | None = None) -> list[tuple[int, str]]:
    return read_lines(lines, preset, reward)[1]
