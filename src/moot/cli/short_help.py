"""The help of a command with many options: on two screens those that most people set, or all of them by topic.

An option's text is the docstring of its setting, as the whole help has it; nothing is written twice.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any

WIDTH = 80


@dataclass(frozen=True)
class Short:
    """What the short help of a command shows."""

    examples: tuple[tuple[str, str], ...]
    """What each is for, and the command."""
    options: str
    """The essential ones, in this order."""
    presets: bool = False


_SIZE = "model task reward num-agents max-rounds"
SHORT = {
    "train": Short(
        (
            ("The demo, minutes on two cores:", "moot train"),
            (
                "The measured result, GSM8K from 53% to 62% right without a label, on one GPU:",
                "moot train --preset majority --num-train-datapoints 100000 --max-sampled-tokens 2200000 --run "
                "runs/majority",
            ),
            (
                "Your own questions, a folder or hub id as the model:",
                "moot train --preset majority --task questions.jsonl --model FOLDER --run runs/mine",
            ),
        ),
        f"{_SIZE} batch-size num-train-datapoints learning-rate temperature max-tokens run seed with",
        presets=True,
    ),
    "check": Short(
        (
            ("The demo's model and task:", "moot check"),
            ("Before the measured result:", "moot check --preset majority --questions 100"),
            ("Your own questions:", "moot check --preset majority --task questions.jsonl --model FOLDER"),
        ),
        f"RUN {_SIZE} temperature max-tokens questions out seed with",
        presets=True,
    ),
    "eval": Short(
        (
            ("A run, and the model before it was trained:", "moot eval runs/mine"),
            ("", "moot eval runs/mine --step 0"),
            (
                "As the measured result was:",
                "moot eval runs/majority --task gsm8k:held_out=test --modes direct vote --k 4 --questions 400 "
                "--temperature 0.8",
            ),
            ("A model without a run:", "moot eval --model FOLDER --task questions.jsonl"),
        ),
        "RUN model step task modes k questions num-agents max-rounds temperature max-tokens seed out",
    ),
}


def short_help(name: str, kind: type, default: Any) -> str:
    """The help of the command `name`, which reads its options into `kind`."""
    short, parser = SHORT[name], _parser(kind, default)
    actions = {(action.option_strings or [action.metavar])[0].strip("-[]"): action for action in parser._actions}
    options = {_head(actions[option]): _text(actions[option].help, 170) for option in short.options.split()}
    usage = f"usage: moot {name} {'[RUN] ' if 'RUN' in actions else ''}[OPTIONS]"
    return "\n".join(
        [
            *(usage, "", *textwrap.wrap(_text(parser.description or "", 270), WIDTH), "", "examples:"),
            *(line for words, command in short.examples for line in _example(words, command)),
            *(("", "--preset NAME, where the other defaults come from:", *_presets()) if short.presets else ()),
            *("", "the options that most people set:", *_aligned(options, 26)),
            *("", f"All options: moot {name} --help-all", ""),
        ]
    )


def whole_help(name: str, kind: type, default: Any) -> str:
    """Every option. A topic is what a dataclass of settings is called where it is a field; the parts of training and
    other spellings follow."""
    from moot.cli.spelling import other_spellings
    from moot.training.parts import about

    topics: dict[str, dict[str, str]] = {}
    for group in _parser(kind, default)._action_groups:
        options = topics.setdefault(group.description or "The command", {})
        named = (action for action in group._group_actions if action.dest != "help")
        options.update({_head(action): " ".join(action.help.split()) for action in named})
    lines = [f"usage: moot {name} [OPTIONS]"]
    for topic, options in topics.items():
        lines += ["", f"{topic.removesuffix('.').lower()}:", *_aligned(options, 26)]
    parts = [] if name == "eval" else ["", "parts, for --with:", *_aligned(about(), 20)]
    spellings = {**other_spellings(name), "--help": "the short list", "--help-all": "this one"}
    return "\n".join([*lines, *parts, "", "other spellings:", *_aligned(spellings, 20), ""])


def _parser(kind: type, default: Any) -> Any:
    import tyro

    from moot.cli.registry import REGISTRY

    return tyro.extras.get_parser(kind, default=default, registry=REGISTRY)


def _presets() -> list[str]:
    from moot.settings.presets import ABOUT

    return _aligned(ABOUT, 13)


def _example(words: str, command: str) -> list[str]:
    """An option stays on one line with its value, and what is printed can be copied into a shell."""
    whole = re.sub(r" (?!--)", "\0", command)  # no place to break a line
    lines = textwrap.wrap(whole, WIDTH - 6, break_on_hyphens=False, initial_indent="    ", subsequent_indent=" " * 8)
    return [*([f"  {words}"] if words else []), *" \\\n".join(lines).replace("\0", " ").splitlines()]


def _head(action: Any) -> str:
    given = action.option_strings
    option = ", ".join(given if any(name.startswith("--no-") for name in given) else given[:1])
    return " ".join(filter(None, (option, action.metavar)))


def _text(text: str, most: int) -> str:
    """Its first sentence, the next ones while there is room, and the default."""
    words, default, value = " ".join(text.split()).partition(" (default: ")
    first, *others = re.split(r"(?<=\.) (?=[A-Za-z-])", words)
    for sentence in others:
        if len(first) + len(sentence) >= most:
            break
        first += f" {sentence}"
    return first + default + value


def _aligned(rows: dict[str, str], width: int) -> list[str]:
    """Names on the left, their texts on the right; a name that is too long has a line of its own."""
    lines = []
    for name, text in rows.items():
        head, *others = textwrap.wrap(text, WIDTH - width, break_on_hyphens=False)
        if len(name) > width - 4:
            lines.append(f"  {name}")
            name = ""
        lines += [f"  {name}".ljust(width) + head, *(" " * width + line for line in others)]
    return lines
