"""`moot ask` on a terminal: words are seen as they come, and hostile ones do no harm."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Iterable
from typing import Any

from e2e.test_ask_cli import QUESTION, TAGS, ask, record
from support.asking import Answer, ChatServer, chunk, saying
from support.making import command, surroundings
from support.making import text as turn_text

# Hostile text on a terminal


HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[31m\x9b5n \u202egnp.exe \x08\x08\r\x00 [red]markup[/red] \ud800"


def on_a_terminal(server: ChatServer, *arguments: object) -> tuple[int, str]:
    """The exit status and every byte that a terminal would have got."""
    given = command(
        "ask",
        QUESTION,
        "--engine",
        "openai",
        "--base-url",
        server.url,
        "--model",
        f"m{HOSTILE[:20]}",
        *TAGS,
        *arguments,
    )
    main, other = pty.openpty()
    environment = {**surroundings({"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"})}
    process = subprocess.Popen(
        [part.replace("\0", "") for part in given], stdin=other, stdout=other, stderr=other, env=environment
    )
    os.close(other)
    raw = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        raw += piece
    os.close(main)
    return process.wait(timeout=30), raw.decode()


# What rich itself writes: colours, moving up, clearing a line, hiding and showing the cursor.
OURS = re.compile(r"\x1b\[[0-9;]*m|\r?\x1b\[(?:[0-9]*A|2K)|\x1b\[\?25[lh]")


def test_hostile_text_moves_no_cursor_rings_no_bell_and_sets_no_title() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        sections = turn_text("N/A", f"It is {HOSTILE} \\boxed{{{HOSTILE}}}", evaluation=HOSTILE).removesuffix(
            "</comparison>"
        )
        status, headers, pieces = saying(sections if number % 3 else HOSTILE)

        def slowly() -> Iterable[bytes]:
            for piece in pieces:
                time.sleep(0.1)  # so that what is half said is drawn as well
                yield piece

        return status, headers, slowly()

    with ChatServer(answer) as server:
        status, shown = on_a_terminal(server)
    assert status == 0, shown
    left = OURS.sub("", shown)
    assert [
        hex(ord(char)) for char in left if (ord(char) < 32 and char not in "\r\n\t") or 127 <= ord(char) < 160
    ] == []
    assert not {"\u202e", "\ud800"} & set(left)
    assert [
        left[i - 20 : i + 20] for i in range(len(left)) if left[i] == "\r" and left[i + 1 : i + 2] not in ("\r", "\n")
    ] == []
    assert "[red]markup[/red]" in left
    assert "\\u001b]0;PWNED\\u0007" in left.replace("\r\n", "")


def test_words_are_seen_on_a_terminal_before_the_turn_is_whole() -> None:
    seen = threading.Event()

    def answer(number: int, body: dict[str, Any]) -> Answer:
        def pieces() -> Iterable[bytes]:
            yield chunk("<solution>EARLY")
            seen.wait(1.5)
            yield chunk(" and \\boxed{7}</solution><evaluation>N/A</evaluation><comparison>N/A", "stop", (1, 1))

        return 200, {"Content-Type": "text/event-stream"}, pieces()

    with ChatServer(answer) as server:
        status, shown = on_a_terminal(server, "--rounds", 1)
    assert status == 0, shown
    plain = OURS.sub("", shown)
    assert plain.index("<solution>EARLY") < plain.index("EARLY and")
    # All three at once: the second seat is on the screen before the first is done.
    assert plain.index("Agent 2") < plain.index("EARLY and")


def test_a_megabyte_on_one_line_is_a_turn_and_is_not_poured_over_the_terminal() -> None:
    with ChatServer(lambda number, body: saying(turn_text("N/A", "x" * 1_000_000 + "\\boxed{7}"))) as server:
        status, shown = on_a_terminal(server, "--rounds", 1, "--agents", 2)
        found = record(ask(server, "--rounds", 1, "--agents", 1, "--json"))
    assert status == 0
    assert len(shown) < 300_000 and "more characters)" in shown
    assert len(found["turns"][0]["text"]) > 1_000_000 and found["answer"] == "7"
