"""`moot`: picks the command, and turns what went wrong into one clear line."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
from types import ModuleType
from typing import Any, NoReturn

from moot import __version__
from moot.cli.ending import Ended, complain, disk_is_full, terminated_as_interrupted
from moot.errors import ConfigError

# A command's module is imported when it is asked for: `moot score` must not wait for what `moot train` needs.
COMMANDS = {
    "demo": ("demo:Demo", "Play scripted debates, score them, and show how: no model, no downloads, seconds."),
    "train": ("train:Train", "Train a model by debate on this machine: self-play, peer votes, policy gradient."),
    "eval": ("evaluate:Eval", "Evaluate a run or a model: alone, by vote, in debate, against others; with intervals."),
    "compare": ("compare:Compare", "Put runs and seeds side by side: one table with paired intervals, one figure."),
    "check": ("check:Check", "Before training: is the model good enough at the task, the contract and judging?"),
    "judge": ("judge:JudgeCommand", "Before training: which judge, asked how, tells right answers from wrong ones?"),
    "ask": ("ask:Ask", "Debate a question now, with a local model, a checkpoint, or any OpenAI-compatible server."),
    "label": (
        "label:LabelCommand",
        "Answer a file of questions: the answer that most agents give, how far to trust it.",
    ),
    "prompts": ("prompts:ShowPrompts", "Print every text that agents read, as a file to edit for --prompts."),
    "data": (
        "data:Data",
        "Check a task's data: right answers pass their grader, wrong ones fail, no split overlaps.",
    ),
    "view": ("view:View", "Look at runs in a browser: curves, alarms, debates, votes, and what each token was taught."),
    "score": ("score:Score", "Score transcripts of debates: rewards and advantages from the votes in them."),
    "rescore": ("rescore:Rescore", "What a run's votes would have taught under another reward, ballot or estimator."),
    "export": ("export:Export", "Export a run's adapter, model, training sets, debates as a page, and figures."),
    "completion": ("completion:Completion", "Print a script that lets bash or zsh complete commands and options."),
}

_HELP = """usage: moot COMMAND [OPTIONS]

Train language models by debate: copies of one model argue, vote on each other, and the votes are the reward.

commands:
{commands}

moot COMMAND --help lists the options of a command, --help-all the rare ones too. moot --version prints the version.
"""


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 something in the input was bad, 2 wrong usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot spell a character shows its number
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # a log wants no bars of other packages, drawn again and again
    try:
        try:
            with terminated_as_interrupted():
                return _run(arguments)
        finally:
            sys.stdout.flush()  # here, where a reader that went away is caught, and not at exit
    except Ended as end:
        return _complain(str(end), end.status)
    except ConfigError as error:
        return _complain(str(error), 2)
    except FileNotFoundError as error:
        return _complain(f"{error.filename}: no such file; check the path", 2)
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        return _complain(f"{error.filename}: {(error.strerror or 'cannot be read').lower()}", 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # The reader (head, less) went away. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if disk_is_full(error):
            return _complain(f"the disk is full ({error.filename}); make room and try again", 1)
        if error.errno is None or error.filename is None:
            raise  # of no file: ours, or a library's
        return _complain(f"{error.filename}: {(error.strerror or 'cannot be used').lower()}", 1)


def _run(arguments: list[str]) -> int:
    match arguments:
        case [] | ["-h" | "--help" | "help"]:
            width = max(map(len, COMMANDS))
            lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
            sys.stdout.write(_HELP.format(commands="\n".join(lines)))
            return 0 if arguments else 2
        case ["--version" | "-V"]:
            print(f"moot {__version__}")
            return 0
        case [name, *rest] if name in COMMANDS:
            command = _parse(name, rest)
            return int(command.run())
        case [name, *_]:
            from moot.debate.typed_fields import near

            others = f"; there are {', '.join(COMMANDS)}"
            raise ConfigError(f"there is no command {name!r}{near(name, COMMANDS) or others} (moot --help)")
    raise AssertionError("every list of arguments is one of the above")


def load(name: str) -> tuple[ModuleType, Any]:
    """A command's module and its class."""
    module, attribute = COMMANDS[name][0].split(":")
    loaded = importlib.import_module(f"moot.cli.{module}")
    return loaded, getattr(loaded, attribute)


def _parse(name: str, arguments: list[str]) -> Any:
    import tyro

    from moot.cli.registry import REGISTRY
    from moot.cli.short_help import SHORT, short_help, whole_help
    from moot.cli.spelling import respelled

    loaded, kind = load(name)
    whole = "--help-all" in arguments
    if whole and name not in SHORT:
        arguments = ["--help"]  # which is all of it
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments = respelled(arguments, name) if name in SHORT else arguments
            arguments = loaded.respelled(arguments) if hasattr(loaded, "respelled") else arguments
            default = loaded.defaults(arguments) if hasattr(loaded, "defaults") else None
            if name in SHORT and {"-h", "--help", "--help-all"} & set(arguments):
                sys.stdout.write((whole_help if whole else short_help)(name, kind, default))
                raise SystemExit(0)
            return tyro.cli(kind, prog=f"moot {name}", args=arguments, default=default, registry=REGISTRY)
    except SystemExit as stop:
        if stop.code:
            _usage_error(complaint.getvalue(), name)
        raise


def _usage_error(box: str, name: str) -> NoReturn:
    """tyro draws a box of paragraphs: what went wrong, and perhaps the options that were meant.

    The box is what it promises to draw; its hook for errors is private, and may change with any release.
    """
    from moot.debate.typed_fields import near

    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()]
    paragraphs: list[list[str]] = [[]]
    for line in lines[1:]:
        if line.startswith("─"):
            paragraphs.append([])
        elif line:
            paragraphs[-1].append(line)
    wrong = re.sub(r"^Error parsing [\w.]+: ", "", " ".join(paragraphs[0]).rstrip(".")) or "wrong usage"
    hints = [line for part in paragraphs if part[:1] == ["Perhaps you meant:"] for line in part]
    meant = [line.split()[0].rstrip(",") for line in hints if line.startswith("--")]
    either = " or ".join(filter(None, (", ".join(meant[:3][:-1]), *meant[:3][-1:])))
    hint = f"; did you mean {either}?" if meant else ""
    if choice := re.search(r"invalid choice '(.*?)' .*Expected one of \((.*)\)", wrong):
        hint = near(choice[1], re.findall("'(.*?)'", choice[2]))
    raise ConfigError(f"{wrong}{hint} (moot {name} --help)")


def _complain(message: str, status: int) -> int:
    complain(message)
    return status
