"""Debates made up at random, to run two scorers over: tidy ones, sloppy ones and hostile ones.

    transcripts(count, seed)        (preset, line object) pairs, each to be scored alone
    transcript_files(count, seed)   (preset, reward or None, lines) triples: whole files, with blank and bad lines

The same seed gives the same debates. What the specification leaves open is left out, so that a difference between two
scorers is a mistake in one of them; `ambiguous=True` adds it (the list is in README.md).
"""

import json
import random
from collections.abc import Iterator

THREE = ["solution", "evaluation", "comparison"]
FIVE = ["solution", "evaluation", "comparison", "consensus", "consensus_reason"]

# White space that is not a line feed: all of it is spacing inside a line and is stripped at the ends of a section.
SPACES = [" ", "  ", "\t", "\u00a0", "\u2003", "\u3000", "\x0b", "\x0c", "\r", "\u2028", "\x85", "\x1c"]
# Looks like spacing or like a digit and is neither.
NOT_SPACES = ["\u200b", "\ufeff", "\u2060"]
NOT_DIGITS = ["٣", "１", "२", "²", "Ⅳ", "①", "𝟙"]

PROSE = [
    "The answer is \\boxed{4}.",
    "x < y and y > z, so x = 3",
    "Line one\nline two\n\nline four",
    "```python\nprint('hi')\n```",
    "Agent 0 > Agent 1",  # a comparison outside `comparison` is only prose
    "İstanbul, ǅ, ß: letters whose lower case has another length",
    "&lt;solution&gt; and <b>bold</b> and <solutions> and <solution/>",
    "emoji 🦉 and a zero \x00 and a lone \ud800 surrogate",
    "$$\\sum_{i<j} a_i = b_j$$",
    "N/A",
    "",
    "   ",
]


def cased(rng, word):
    how = rng.randrange(4)
    if how == 0:
        return word.upper()
    if how == 1:
        return word.capitalize()
    if how == 2:
        return "".join(rng.choice([letter.lower(), letter.upper()]) for letter in word)
    return word


# ---------------------------------------------------------------- comparison lines


def spacing(rng, wild):
    if not wild:
        return " "
    return "".join(rng.choice([" ", " ", " ", rng.choice(SPACES)]) for _ in range(rng.randrange(3)))


def number(rng, agent, wild):
    if not wild:
        return str(agent)
    how = rng.random()
    if how < 0.05:
        return "0" * rng.choice([1, 2, 5000]) + str(agent)
    return str(agent)


def tidy_line(rng, left, operator, right):
    return f"Agent {left} {operator} Agent {right}"


def decorated_line(rng, left, operator, right):
    """Still in the contract, with every liberty it grants."""

    def emphasis():
        return "".join(rng.choice("*_`") for _ in range(rng.choice([0, 0, 1, 2, 3])))

    def name(agent):
        return cased(rng, "agent") + spacing(rng, True) + number(rng, agent, True)

    def dressed(agent):
        if rng.random() < 0.5:
            mark = rng.choice(["*", "**", "_", "__", "`", "***", "**_"])
            return mark + name(agent) + mark[::-1]
        return emphasis() + name(agent) + emphasis()

    marker = rng.choice(["", "", "- ", "* ", "• ", "1. ", "1) ", "12. ", "3)", "-", "*", "•", "7.", "-\t"])
    tail = rng.choice(
        [
            "", "", "", ".", ": clearer", " because x = 3", " (Agent 2 is worse)", ", though 2 > 1", " >", " = ", " <",
            " > Agents", " > agentic", " since a<b", " — Agent", " > (Agent 0)", " Agent 1 Agent 2", " => better", " != \"Agent 1\"",
            "; see Agent 3 >", " > 'Agent 2'", " with gap > Agent two",
        ]
    )  # fmt: skip
    line = (
        spacing(rng, True)
        + marker
        + dressed(left)
        + spacing(rng, True)
        + operator
        + spacing(rng, True)
        + dressed(right)
    )
    # A tail that starts with a digit would make the number longer.
    return line + tail + rng.choice(["", "", " ", "\r", "\t"])


def broken_line(rng, others, num_agents, author):
    """A line that gives no vote, or one about somebody who cannot be voted on."""
    a, b, c = (rng.choice(others or [0]) for _ in range(3))
    far = rng.choice([num_agents, num_agents + 1, 99, "9" * 30, "9" * 5000, "1" + "0" * 5000])
    odd = rng.choice(NOT_DIGITS)
    return rng.choice(
        [
            f"Agent {a} < Agent {b}",
            f"Agent {a} >= Agent {b}",
            f"Agent {a} == Agent {b}",
            f"Agent {a} => Agent {b}",
            f"Agent {a} >> Agent {b}",
            f"Agent {a} -> Agent {b}",
            f"Agent {a} > Agent {b} > Agent {c}",
            f"Agent {a} > Agent {b} = **Agent {c}**",
            f"Agent {a}>Agent {b}>=`agent{c}`",
            f"Agent {a} > Agent {b}, Agent {b} > Agent {c}",
            f"Agent {a} > Agent {b}\rAgent {b} = Agent {c}",
            f"Agent {a} > Agent {b} and so on < _*_ AGENT\t{c}",
            f"Agent {a} > Agent {far}",
            f"Agent {far} = Agent {b}",
            f"Agent {far} > Agent {far}",
            f"Agent {a} > Agent {a}",
            f"Agent {author} > Agent {a}",
            f"Agent {a} = Agent {author} (that is me)",
            f"Agent {author} > Agent {far}",
            f"Agent {author} > Agent {author}",
            f"I think Agent {a} > Agent {b}",
            f"> Agent {a} > Agent {b}",
            f"+ Agent {a} > Agent {b}",
            f"(1) Agent {a} > Agent {b}",
            f"1: Agent {a} > Agent {b}",
            f"- - Agent {a} > Agent {b}",
            f"# Agent {a} > Agent {b}",
            f"**1. Agent {a} > Agent {b}**",
            f"Agent {odd} > Agent {b}",
            f"Agent {a} > Agent {odd}",
            f"Agent -{a} > Agent {b}",
            f"Agent #{a} > Agent {b}",
            f"Agent {a} > {b}",
            f"{a} > {b}",
            f"Agents {a} > Agent {b}",
            f"Agent {a} is better than Agent {b}",
            f"Agent {a} &gt; Agent {b}",
            f"Agent {a} ＞ Agent {b}",
            f"Agent {a} {rng.choice(NOT_SPACES)}> Agent {b}",
            f"{rng.choice(NOT_SPACES)}Agent {a} > Agent {b}",
            f"Agent >{a} Agent {b}",
            "Agent > Agent",
            "Agent",
            "-",
            "***",
            "> " * 20,
            "Agent 0 " * 20,
            "none",
            "N/A, I cannot say",
            "- N/A",
        ]
    )


def quiet_line(rng):
    """Lines that are no attempt at a vote and are not counted."""
    return rng.choice(
        ["", "   ", "\t", "\r", "\u00a0", "```", "```text", "```xml", " ``` ", "N/A", "n/a", "N/a.", " n/A. ", "N/A\r"]
    )


def open_line(rng, a, b):
    """Lines about which the specification can be read in two ways."""
    return rng.choice(
        [
            f"Agent **{a}** > Agent **{b}**",
            f"**Agent** {a} > Agent {b}",
            f"Agent_{a} > Agent_{b}",
            f"**Agent {a}** **>** **Agent {b}**",
            f"** ** Agent {a} > Agent {b}",
            f"Agent {a} > Agent {b}٣",
            f"Agent {a} > Agent {b}x",
            f"٣. Agent {a} > Agent {b}",
            f"Agent {a} > Agent {b} > Agent *2*",
            "~~~",
            "``` some words",
            "**N/A**",
        ]
    )


def comparison(rng, author, num_agents, spoken, style, ambiguous):
    others = [agent for agent in range(num_agents) if agent != author]
    likely = [agent for agent in others if agent in spoken]
    lines = []
    if len(likely) < 2 and rng.random() < 0.7:
        lines.append(rng.choice(["N/A", "N/A", "n/a.", ""]))
    elif rng.random() < (0.08 if style == "tidy" else 0.15):
        lines.append(rng.choice(["N/A", "", "n/a."]))
    else:
        pool = likely if len(likely) >= 2 and rng.random() < 0.9 else others
        pairs = [(a, b) for a in pool for b in pool if a < b]
        rng.shuffle(pairs)
        for a, b in pairs[: rng.choice([1, 2, 3, 3, 6])]:
            # Lower numbers win a little more often, so that a clear consensus is common.
            left, right = (a, b) if rng.random() < 0.65 else (b, a)
            operator = ">" if rng.random() < 0.8 else "="
            write = tidy_line if style == "tidy" or rng.random() < 0.5 else decorated_line
            lines.append(write(rng, left, operator, right))
            if style != "tidy" and rng.random() < 0.15:  # the same pair again, perhaps with another word on it
                again = rng.choice(
                    [(left, operator, right), (right, operator, left), (left, "=", right), (left, ">", right)]
                )
                lines.append(decorated_line(rng, *again))
    if style != "tidy":
        for _ in range(rng.choice([0, 0, 1, 2]) if style == "sloppy" else rng.choice([0, 1, 3])):
            extra = quiet_line(rng) if rng.random() < 0.4 else broken_line(rng, others, num_agents, author)
            lines.insert(rng.randrange(len(lines) + 1), extra)
    if ambiguous and len(others) >= 2 and rng.random() < 0.3:
        lines.insert(rng.randrange(len(lines) + 1), open_line(rng, *rng.sample(others, 2)))
    return rng.choice(["\n", "\n", "\r\n"] if style != "tidy" else ["\n"]).join(lines)


# ---------------------------------------------------------------- responses


def sections(rng, names, author, num_agents, spoken, style, ambiguous):
    made = []
    for name in names:
        if name == "comparison":
            content = comparison(rng, author, num_agents, spoken, style, ambiguous)
        elif name == "consensus":
            content = rng.choice(["YES", "NO", "yes", "No", " yEs \n"])
        else:
            content = rng.choice(PROSE) if style != "tidy" else f"Some {name} from {author}."
        made.append([name, content])
    return made


def tag(rng, name, style, closing=False):
    return ("</" if closing else "<") + (name if style == "tidy" else cased(rng, name)) + ">"


def written(rng, made, style):
    parts = []
    for name, content in made:
        pad = "" if style == "tidy" else rng.choice(["", "\n", " ", "\r\n", "\u3000"])
        between = "\n" if style == "tidy" else rng.choice(["", "\n", "\n\n", " and then ", "\n```\n", "<br>", "</b>"])
        parts.append(tag(rng, name, style) + pad + content + pad + tag(rng, name, style, closing=True) + between)
    return "".join(parts)


def wrapped(rng, text, names):
    """Liberties that the parser must grant: what is inside is still read."""
    whole = "".join(f"<{name}>elsewhere</{name}>" for name in names)
    how = rng.randrange(16)
    if how == 0:
        return "```xml\n" + text + "\n```"
    if how == 1:
        return "Sure! Here it is:\n\n" + text + "\n\nHope that helps."
    if how == 2:
        return "<think>let me see</think>\n" + text
    if how == 3:
        return "<THINK>first I write <solution>4</solution> and <comparison></Think>" + text
    if how == 4:
        return "<think>a</think> b <think>" + whole + "</think>" + text
    if how == 5:
        return "<think>" + text  # never closed
    if how == 6:
        return "<think>" + text + "</think>"  # all of it is inside: the tail fails, the whole is read
    if how == 7:
        return text + "\nPS: </think>"
    if how == 8:
        return text + whole  # what follows the last closing tag is not read
    if how == 9:
        return text + "<solution><comparison></evaluation> rubbish"
    if how == 10:
        return "<solution attr='1'> </solution > < solution > <solution/> " + text
    if how == 11:
        return "<think></think>\n\n" + text
    if how == 12:
        return whole + "</THINK>" + text  # two good answers: the one after the thinking counts
    if how == 13:
        return text + "</think>" + whole.replace("elsewhere", "YES")
    if how == 14:
        return "<thinking>not a marker</thinking>" + text
    return "\ufeff" + text


def cut_last_tag(text, last):
    """Without its last closing tag: still good."""
    lowered = text.lower()
    place = lowered.rfind("</" + last + ">") if len(lowered) == len(text) else -1
    return text[:place] if place >= 0 else text


def marked_inside(rng, made):
    """Thinking markers inside a section: they vanish, what is between them stays."""
    section = rng.choice(made)
    marker = rng.choice(["<think>", "</think>", "<Think>", "</THINK>"])
    lines = section[1].split("\n")
    if section[0] != "consensus":
        place = rng.randrange(len(lines))
        lines[place] = rng.choice([marker + lines[place], lines[place] + marker, "<think>" + lines[place] + "</think>"])
        section[1] = "\n".join(lines)
    return made


def ruined(rng, made, names, style):
    """Mostly parse failures, with a few texts that only look like one."""
    made = [list(section) for section in made]
    how = rng.randrange(17)
    if how == 0:
        del made[rng.randrange(len(made))]
    elif how == 1:
        rng.shuffle(made)
    elif how == 2:
        made.insert(rng.randrange(len(made) + 1), list(rng.choice(made)))
    elif how == 3:
        section = rng.choice(made)
        section[1] = f"<{rng.choice(names)}>" + section[1]
    elif how == 4:
        section = rng.choice(made)
        section[1] = section[1] + f"</{rng.choice(names)}>"
    elif how == 5:
        inner = rng.choice(names)
        section = rng.choice(made)
        section[1] = f"a <{inner}>nested</{inner}> b"
    elif how == 6:
        return rng.choice(
            [
                "",
                " ",
                "\n",
                "I do not know.",
                "<",
                "<<<<",
                "</",
                "<solution",
                "```",
                "\x00",
                "<think>",
                "</think>",
                "<" * 3000,
                "</think>" * 300,
            ]
        )
    elif how == 7:
        return "I will use <solution> first. " + written(rng, made, style)
    elif how == 8:
        return "</" + rng.choice(names) + ">" + written(rng, made, style)
    text = written(rng, made, style)
    if how == 9:  # a tag lost
        pieces = text.split("</")
        place = rng.randrange(1, len(pieces))
        return "</".join(pieces[:place]) + "".join(pieces[place:])
    if how == 10:  # a cut-off response
        return text[: rng.randrange(len(text))]
    if how == 11:  # attributes or spacing in a real tag
        name = rng.choice(names)
        return text.replace(f"<{name}>", f"<{name} id='1'>").replace(f"</{name}>", f"</{name} >")
    if how == 12 and "consensus" in names:
        for section in made:
            if section[0] == "consensus":
                section[1] = rng.choice(
                    ["MAYBE", "", "YES.", "**YES**", "Y E S", "YES NO", "yeſ", "<think>YES</think>"]
                )
        return written(rng, made, style)
    if how == 13:
        return text.replace("<", "&lt;")
    if how == 14:  # letters that fold into ASCII ones in some case tables, and are not them
        return text.replace("solution", "ſolution")
    if how == 15:
        return "<think>" + text.replace("<comparison>", "") + "</think>" + text[: len(text) // 2]
    if how == 16:
        return "<think>x</think>" + text[: len(text) // 2] + "</think>" + written(rng, made, style)
    return text


def response(rng, names, author, num_agents, spoken, style, ambiguous):
    made = sections(rng, names, author, num_agents, spoken, style, ambiguous)
    if style == "tidy":
        text = written(rng, made, style)
        return cut_last_tag(text, names[-1]) if rng.random() < 0.2 else text
    if rng.random() < (0.04 if style == "sloppy" else 0.3):
        return ruined(rng, made, names, style)
    if rng.random() < 0.1:
        made = marked_inside(rng, made)
    text = written(rng, made, style)
    if rng.random() < 0.2:
        text = cut_last_tag(text, names[-1])
    elif rng.random() < 0.5:
        text = wrapped(rng, text, names)
    if ambiguous and rng.random() < 0.1:
        text = rng.choice([text.replace("<solution>", "<solu<think>tion>"), text.replace("<think>", "<th<think>ink>")])
    return text


# ---------------------------------------------------------------- debates


def overrides(rng, preset, ambiguous):
    """A line's own choices; none at all for many lines."""
    options = {
        "schedule": ["sequential", "parallel"],
        "contract": ["five_tag", "three_tag"],
        "visible": [
            ["solution"],
            ["solution", "evaluation"],
            ["solution", "evaluation", "comparison", "consensus_reason"],
        ],
        "layout": ["rebuilt", "growing"],
        "history_rounds": [-1, 0, 1, 1, 2, 2],
        "max_chars_per_field": [1, 10, 2000],
        "on_parse_failure": ["abort", "continue", "continue"],
        "reward": ["win_rate", "win_minus_loss", "generator_judge", "generator_judge"],
        "one_ballot_per_pair": [True, False],
        "judge_consensus": ["all", "leave_one_out", "leave_one_out"],
        "enable_format_penalty": [True, False],
        "lambda_gen": [0, 1, 0.5, 2.0],
        "lambda_judge": [0, 1, 1.5, 3],
        "advantage": ["center_group", "center_round", "center_seat", "normalize_batch"],
        "personas": [True, False],
        "literal": [True, False],
    }
    if ambiguous:
        options["max_chars_per_field"].append(0)
        options["visible"].append([])
    chosen = {}
    if rng.random() < 0.75:
        for key in rng.sample(sorted(options), rng.choice([1, 2, 4, 7, len(options)])):
            chosen[key] = rng.choice(options[key])
    return chosen


def setting(chosen, preset, key):
    first = {"schedule": "sequential", "contract": "five_tag", "on_parse_failure": "abort", "reward": "win_rate"}
    second = {
        "schedule": "parallel",
        "contract": "three_tag",
        "on_parse_failure": "continue",
        "reward": "generator_judge",
    }
    return chosen.get(key, (first if preset == "v1" else second)[key])


def debate(rng, preset, chosen, ambiguous):
    style = rng.choices(["tidy", "sloppy", "hostile"], [3, 4, 3])[0]
    names = FIVE if setting(chosen, preset, "contract") == "five_tag" else THREE
    parallel = setting(chosen, preset, "schedule") == "parallel"
    abort = setting(chosen, preset, "on_parse_failure") == "abort"
    num_agents = rng.choices([1, 2, 3, 4, 5, 6, 7], [3, 4, 35, 25, 15, 10, 8])[0]
    rounds = rng.choices([1, 2, 3, 4], [1, 4, 4, 2])[0]
    skipping = rng.choice([0, 0, 0, 0.1, 0.3])
    # A sequential debate has one order only, and in a parallel round that is aborted, file order and agent order could
    # disagree about what counts; so out of order is left open there.
    shuffled = rng.random() < 0.15 and (ambiguous or (parallel and not abort))
    turns = []
    spoken = set()
    for round_number in range(1, rounds + 1):
        order = [agent for agent in range(num_agents) if rng.random() >= skipping]
        if shuffled:
            rng.shuffle(order)
        said = []
        for agent in order:
            text = response(rng, names, agent, num_agents, spoken, style, ambiguous)
            turns.append({"round": round_number, "agent": agent, "text": text})
            said.append(agent)
            if not parallel:
                spoken.add(agent)
        spoken.update(said)
    if rng.random() < 0.1 and turns:  # an early stop
        turns = turns[: rng.randrange(len(turns) + 1)]
    if not ambiguous:
        turns = without_gaps(turns)
    elif rng.random() < 0.1:
        turns = [{**turn, "round": turn["round"] * 2} for turn in turns]
    line = {"question": rng.choice(PROSE), "num_agents": num_agents, "turns": turns}
    if chosen:
        line["protocol"] = chosen
    if rng.random() < 0.2:
        line["answer"] = rng.choice(["4", "", 4, 2.5, -1])
    return line


def without_gaps(turns):
    """Rounds in which nobody spoke are closed up: how a window counts them is left open."""
    seen = []
    for turn in turns:
        if turn["round"] not in seen:
            seen.append(turn["round"])
    return [{**turn, "round": seen.index(turn["round"]) + 1} for turn in turns]


def any_preset(rng):
    return rng.choices(["v1", "v2", "v2_literal"], [3, 5, 2])[0]


def transcripts(count: int, seed: int, ambiguous: bool = False) -> Iterator[tuple[str, dict]]:
    """(preset, line object) pairs. Every line is a good one, to be scored as a file of its own."""
    rng = random.Random(seed)
    for _ in range(count):
        preset = any_preset(rng)
        chosen = overrides(rng, preset, ambiguous)
        if setting(chosen, preset, "reward") != "generator_judge" and chosen.get("advantage") == "center_round":
            del chosen["advantage"]  # a configuration error
        yield preset, debate(rng, preset, chosen, ambiguous)


# ---------------------------------------------------------------- files

GOOD = {
    "question": "q",
    "num_agents": 3,
    "turns": [{"round": 1, "agent": 0, "text": "x"}, {"round": 2, "agent": 1, "text": "y"}],
}


def bad_line(rng):
    """A line that must be reported and left out."""

    def with_turn(**change):
        return {**GOOD, "turns": [{**GOOD["turns"][0], **change}]}

    first = GOOD["turns"][0]
    broken = rng.choice(
        [
            "not json", "{", '{"question": "q"', "[]", "3", "null", '"text"', "{} {}",
            {}, {**GOOD, "extra": 1}, {key: GOOD[key] for key in ("question", "turns")}, {key: GOOD[key] for key in ("num_agents", "turns")},
            {key: GOOD[key] for key in ("question", "num_agents")}, {**GOOD, "question": 3}, {**GOOD, "question": None},
            {**GOOD, "num_agents": "3"}, {**GOOD, "num_agents": 0}, {**GOOD, "num_agents": -1}, {**GOOD, "num_agents": True},
            {**GOOD, "num_agents": 2.5}, {**GOOD, "turns": {}}, {**GOOD, "turns": "x"}, {**GOOD, "turns": [3]}, {**GOOD, "turns": [{}]},
            with_turn(round=0), with_turn(round="1"), with_turn(round=-1), with_turn(agent=3), with_turn(agent=-1), with_turn(agent="0"),
            with_turn(agent=None), with_turn(text=None), with_turn(text=["x"]), with_turn(extra=1), with_turn(agent=10**30),
            {**GOOD, "turns": [{"round": 1, "agent": 0}]}, {**GOOD, "turns": [first, first]},
            {**GOOD, "turns": GOOD["turns"][::-1]}, {**GOOD, "answer": None}, {**GOOD, "answer": [4]}, {**GOOD, "answer": True},
            {**GOOD, "protocol": "v1"}, {**GOOD, "protocol": {"unknown": 1}}, {**GOOD, "protocol": {"schedule": "random"}},
            {**GOOD, "protocol": {"contract": 5}}, {**GOOD, "protocol": {"history_rounds": -2}}, {**GOOD, "protocol": {"history_rounds": "1"}},
            {**GOOD, "protocol": {"history_rounds": True}}, {**GOOD, "protocol": {"literal": "yes"}}, {**GOOD, "protocol": {"lambda_gen": "1"}},
            {**GOOD, "protocol": {"one_ballot_per_pair": 1}}, {**GOOD, "protocol": {"judge_consensus": "some"}},
            {**GOOD, "protocol": {"advantage": "center"}}, {**GOOD, "protocol": {"advantage": ["center_group"]}}, {**GOOD, "protocol": {"visible": "solution"}},
            {**GOOD, "protocol": {"max_chars_per_field": 1.5}}, {**GOOD, "protocol": {"layout": None}}, {**GOOD, "protocol": []},
        ]
    )  # fmt: skip
    return broken if isinstance(broken, str) else json.dumps(broken)


def transcript_files(count: int, seed: int, ambiguous: bool = False) -> Iterator[tuple[str, str | None, list[str]]]:
    """(preset, reward for the command line or None, lines) triples.

    The lines of one file share their reward, their estimator and `literal`, because what a running mean or a batch is
    when these change from line to line is left open. The other choices change freely.
    """
    rng = random.Random(seed)
    for _ in range(count):
        preset = any_preset(rng)
        reward = rng.choice([None, None, "win_rate", "win_minus_loss", "generator_judge"])
        shared = {"reward": rng.choice(["win_rate", "win_minus_loss", "generator_judge", "generator_judge"])}
        if rng.random() < 0.3:
            shared = {}
        in_force = reward or setting(shared, preset, "reward")
        estimators = ["center_group", "center_seat", "center_seat", "normalize_batch", "normalize_batch"]
        if in_force == "generator_judge":
            estimators.append("center_round")
        if rng.random() < 0.9:
            shared["advantage"] = rng.choice(estimators)
        if rng.random() < 0.3:
            shared["literal"] = rng.random() < 0.5
        lines = []
        for _ in range(rng.choice([1, 2, 4, 8, 16])):
            how = rng.random()
            if how < 0.06:
                lines.append(rng.choice(["", "  ", "\t"]))
            elif how < 0.18:
                lines.append(bad_line(rng))
            else:
                own = overrides(rng, preset, ambiguous)
                for key in ("reward", "advantage", "literal"):
                    own.pop(key, None)
                lines.append(json.dumps(debate(rng, preset, {**own, **shared}, ambiguous)))
        yield preset, reward, lines
