"""`moot ask` as a user's shell starts it, against a server on a real socket that speaks well, badly, or not at all."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from support.asking import Answer, ChatServer, broken_off, chunk, here, saying, scripted
from support.making import command, moot, surroundings
from support.making import text as turn_text

QUESTION = "What is 3 + 4?"
TAGS = ("--sections", "sampled")
"""One request per turn is easier to script; what people get by default is tested at the end."""


def ask(
    server: ChatServer, *arguments: object, question: str | None = QUESTION, **more: Any
) -> subprocess.CompletedProcess[str]:
    named = [] if question is None else [question]
    return here(*named, "--engine", "openai", "--base-url", server.url, "--model", "m", *arguments, **more)


def record(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def voting(number: int, body: dict[str, Any]) -> Answer:
    """Agent 0 and 1 answer 7, Agent 2 answers 8; in round 2 whoever can prefers the lower number."""
    system, newest = body["messages"][0]["content"], body["messages"][-1]["content"]
    me = int(re.search(r"You are Agent (\d)", system)[1])  # type: ignore[index]
    others = [agent for agent in range(3) if agent != me]
    lines = f"Agent {others[0]} > Agent {others[1]}" if "<comparison> with one line per pair" in newest else "N/A"
    return saying(turn_text(lines, f"It is \\boxed{{{8 if me == 2 else 7}}}.").removesuffix("</comparison>"))


# The whole way


def test_a_debate_is_shown_turn_by_turn_and_ends_with_answer_votes_agreement_tokens_and_cost() -> None:
    with ChatServer(voting) as server:
        done = moot(
            "ask", QUESTION, "--engine", "openai", "--base-url", server.url, "--model", "m", *TAGS, "--price-in", 1, "--price-out", 5,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [f"Round {r} · Agent {a}" in done.stdout for r in (1, 2) for a in range(3)] == [True] * 6
    assert "Devil's Advocate" in done.stdout
    # Round 2: 1 > 2 by Agent 0, 0 > 2 by Agent 1, 0 > 1 by Agent 2.
    rows = {line.split()[1]: line.split() for line in done.stdout.splitlines() if re.match(r"Agent \d  ", line)}
    assert [rows[agent][3:5] for agent in "012"] == [["7", "2–0"], ["7", "1–1"], ["8", "0–2"]]
    assert "Agent 0 won: 2 of 3 decided votes (3 votes)." in done.stdout
    assert "Agreement: 2 of 3 hold “7”." in done.stdout
    assert "Answer: 7" in done.stdout
    # Six turns of 100 tokens read at 1 and 10 written at 5 a million: 600 + 300 millionths.
    assert "Tokens: 600 read, 60 written. Cost: 0.0009 (by the prices given)." in done.stdout


def test_json_holds_everything_and_nothing_else_is_printed() -> None:
    with ChatServer(voting) as server:
        done = ask(server, "--json")
    found = record(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert found["ended"] == "done" and found["error"] is None
    assert (found["answer"], found["winner_answer"], found["winner"], found["level_with"]) == ("7", "7", 0, [])
    assert found["answers"] == ["7", "7", "8"] and abs(found["agreement"] - 2 / 3) < 1e-12
    assert [(v["round"], v["author"], v["left"], v["right"]) for v in found["votes"]] == [
        (2, 0, 1, 2),
        (2, 1, 0, 2),
        (2, 2, 0, 1),
    ]
    # Round 1: won 2 of 2, 1 of 2, 0 of 2 is +1, 0, -1; round 2 is not judged and is 0.
    assert found["rewards"] == [0.5, 0.0, -0.5]
    assert found["tokens"] == {"read": 600, "written": 60, "turns_without_count": 0}
    assert found["cost"] is None
    assert len(found["turns"]) == 6 and all(turn["text"].endswith("</comparison>") for turn in found["turns"])


def test_a_price_nobody_gave_is_unknown_and_so_is_one_for_tokens_nobody_counted() -> None:
    with ChatServer(voting) as server:
        assert "Cost: unknown (give --price-in and --price-out" in ask(server).stdout
    with ChatServer(lambda number, body: saying(scripted(body), usage=None)) as server:
        done = ask(server, "--price-in", 1, "--price-out", 5)
    assert (
        "Tokens: 0 read, 0 written, and 6 turns whose server did not say. Cost: unknown (not every turn's"
        in done.stdout
    )


def test_a_closing_ballot_judges_the_last_answers() -> None:
    """One round and a ballot: 1 > 2, 0 > 2, 0 > 1 are about the answers of that round."""

    def answer(number: int, body: dict[str, Any]) -> Answer:
        status, headers, pieces = voting(number, body)
        ballot = "closing ballot." in body["messages"][-1]["content"]
        whole = b"".join(pieces)
        return status, headers, [whole] if not ballot else saying(VOTE.format(*_others(body)))[2]

    with ChatServer(answer) as server:
        found = record(ask(server, "--json", "--rounds", 1, "--closing-ballot"))
    assert len(found["turns"]) == 6 and [turn.get("failure") for turn in found["turns"]] == [None] * 6
    assert found["rewards"] == [1.0, 0.0, -1.0] and found["answer"] == "7" and found["answers"] == ["7", "7", "8"]


VOTE = "<evaluation>Fine.</evaluation><comparison>Agent {} > Agent {}"


def _others(body: dict[str, Any]) -> list[int]:
    me = int(re.search(r"You are Agent (\d)", body["messages"][0]["content"])[1])  # type: ignore[index]
    return [agent for agent in range(3) if agent != me]


def test_a_judge_without_a_seat_scores_the_answers_and_the_highest_score_is_the_answer(tmp_path: Path) -> None:
    """Two of three say 7; the judge says Yes to 8 alone, which is surer than the margin."""

    def judge(number: int, body: dict[str, Any]) -> Answer:
        eight = "boxed{8}" in body["messages"][0]["content"]
        return saying("Hm." if len(body["messages"]) == 1 else "Yes" if eight else "No")

    with ChatServer(voting) as server, ChatServer(judge) as other, ChatServer(lambda *_: (500, {}, [])) as dead:
        by = ("--judge", f"j@{other.url}", "--ballot", "approval:checks=2,vote_margin=0.9")
        found = record(ask(server, "--json", *TAGS, *by))
        assert (found["answer"], found["scores"]) == ("8", [0.0, 0.0, 1.0])
        assert found["settings"]["ballot"] == by[-1] and found["winner_answer"] == "7"
        assert len(other.requests) == 8, "two texts, two checks, a thought and a word each"
        shown = ask(server, *TAGS, *by).stdout
        assert "Answer: 8" in shown and "The winner by votes holds another: “7”." in shown
        assert "The judge wrote 80 tokens more; what it cost is not in this." in shown
        rows = {line.split()[1]: line.split() for line in shown.splitlines() if re.match(r"Agent \d  ", line)}
        assert [rows[agent][-1] for agent in "012"] == ["0.00", "0.00", "1.00"]
        gone = ask(server, *TAGS, "--judge", f"j@{dead.url}", "--retries", 0)
        assert gone.returncode == 1 and "Answer: 7" in gone.stdout
        assert "the judge has not scored every answer, so the answer is the plurality's" in gone.stderr
        wrong = ask(server, "--ballot", "lines", "--judge", "base")
        assert wrong.returncode == 2 and "ballot must be approval or pairs" in wrong.stderr
        nobody = ask(server, "--ballot", "pairs")
        assert (
            nobody.returncode == 2 and "ballot pairs is how a judge is asked; name one, as in --judge" in nobody.stderr
        )
        other_way = ask(server, "--judge", "base", "--checks", 4).stderr
        assert "it belongs to the ballot: use --ballot approval:checks=8" in other_way


def test_where_winner_and_plurality_differ_both_are_shown() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        me = int(re.search(r"You are Agent (\d)", body["messages"][0]["content"])[1])  # type: ignore[index]
        votes = "Agent 2 > Agent 0" if me == 1 else "Agent 2 > Agent 1" if me == 0 else "N/A"
        lines = votes if "<comparison> with one line per pair" in body["messages"][-1]["content"] else "N/A"
        return saying(turn_text(lines, f"\\boxed{{{8 if me == 2 else 7}}}"))

    with ChatServer(answer) as server:
        done = ask(server)
    assert "Agent 2 won: 2 of 2 decided votes" in done.stdout
    assert "Answer: 7" in done.stdout and "The winner by votes holds another: “8”." in done.stdout


def test_other_models_sit_in_other_seats_and_each_key_goes_to_its_own_server() -> None:
    keys = {"OPENAI_API_KEY": "common-key", "OPENAI_API_KEY_2": "second-key"}
    with ChatServer() as common, ChatServer() as first, ChatServer() as second:
        seats = (
            "--seat",
            f"1=one@{first.url}",
            "--seat",
            f"2=org/two@v1@{second.url}",
            "--price-in",
            1,
            "--price-out",
            1,
        )
        done = ask(common, *seats, environment=keys)
    assert done.returncode == 0, done.stderr
    assert [{body["model"] for body in server.requests} for server in (common, first, second)] == [
        {"m"},
        {"one"},
        {"org/two@v1"},
    ]
    assert [set(server.keys) for server in (common, first, second)] == [
        {"Bearer common-key"},
        {None},
        {"Bearer second-key"},
    ]
    assert [len(server.requests) for server in (common, first, second)] == [2, 2, 2]
    assert "unknown (the prices are those of --model, and other models sit in seats 1, 2)" in done.stdout


def test_a_seat_of_a_scripted_debate_may_be_at_a_server() -> None:
    with ChatServer() as server:
        done = here(QUESTION, "--engine", "scripted", "--seed", 2, "--seat", f"1=m@{server.url}", "--json")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 2 and len(record(done)["turns"]) == 6


def test_the_first_protocol_speaks_in_turn() -> None:
    with ChatServer() as server:
        done = ask(server, "--protocol", "v1", "--rounds", 1, "--temperature", 0.3, "--max-tokens", 77)
    assert done.returncode == 0, done.stderr
    assert [body["stop"] for body in server.requests] == [["</consensus_reason>"]] * 3
    assert {(body["temperature"], body["max_tokens"]) for body in server.requests} == {(0.3, 77)}
    assert "consensus_reason" in done.stdout


def test_it_needs_neither_torch_nor_transformers() -> None:
    script = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "peft", "renderers", "tinker"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from moot.cli import main
sys.exit(main())
"""
    with ChatServer() as server:
        arguments = ["ask", QUESTION, "--engine", "openai", "--base-url", server.url, "--model", "m", *TAGS]
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=surroundings(), timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert "Answer:" in done.stdout


# Trouble


def test_a_rate_limit_is_waited_out() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        return (
            (429, {"Retry-After": "1"}, [b'{"error": {"message": "slow down"}}'])
            if number < 2
            else saying(scripted(body))
        )

    with ChatServer(answer) as server:
        began = time.monotonic()
        done = ask(server, "--rounds", 1)
        assert time.monotonic() - began >= 1.0
    assert done.returncode == 0, done.stderr
    assert "answered 429, too many requests (slow down); asking again in" in done.stdout
    assert len(server.requests) == 5
    assert "2 tries were thrown away and are not counted" in done.stdout


def test_half_an_answer_is_no_turn_and_the_whole_one_that_follows_is() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        if number == 0:
            return 200, {"Content-Type": "text/event-stream"}, broken_off(chunk("<solution>HALF"))
        return saying(scripted(body))

    with ChatServer(answer) as server:
        found = record(ask(server, "--json"))
    assert found["ended"] == "done" and found["asked_again"] == 1
    assert len(found["turns"]) == 6 and not any("HALF" in turn["text"] for turn in found["turns"])


class Dying(ChatServer):
    """Answers so many requests, begins the next, and is gone."""

    def __init__(self, lives: int) -> None:
        super().__init__(self._answer)
        self._lives = lives

    def _answer(self, number: int, body: dict[str, Any]) -> Answer:
        if number < self._lives:
            return saying(scripted(body))
        if number == self._lives:
            return 200, {"Content-Type": "text/event-stream"}, self._die()
        return 200, {"Content-Type": "text/event-stream"}, self._wait()

    def _die(self) -> Iterable[bytes]:
        yield chunk("<solution>HALF")
        threading.Thread(target=self.stop).start()
        time.sleep(0.5)
        raise ConnectionResetError

    def _wait(self) -> Iterable[bytes]:
        time.sleep(1.0)
        raise ConnectionResetError


def test_a_server_that_dies_in_round_two_leaves_round_one_and_a_clear_end() -> None:
    server = Dying(4)
    server.__enter__()
    done = ask(server, "--retries", 1)
    assert done.returncode == 1
    assert [f"Round 1 · Agent {agent}" in done.stdout for agent in range(3)] == [True] * 3
    assert done.stdout.count("Round 2 · ") == 1 and "HALF" not in done.stdout
    assert "Answer:" not in done.stdout
    assert done.stderr.startswith(f"moot: the debate broke off in round 2: {server.url} cannot be reached")
    assert "2 times in a row. The 4 turns said in full are above. See that the server runs" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_a_dying_server_said_in_full_is_in_the_record_and_there_is_no_verdict() -> None:
    server = Dying(4)
    server.__enter__()
    done = ask(server, "--retries", 1, "--json")
    found = record(done)
    assert done.returncode == 1 and found["ended"] == "failed" and "cannot be reached" in found["error"]
    assert [turn["round"] for turn in found["turns"]] == [1, 1, 1, 2]
    assert "winner" not in found and "answer" not in found


def test_nobody_there_is_one_clear_line() -> None:
    with ChatServer() as server:
        pass
    done = ask(server, "--retries", 0)
    assert done.returncode == 1
    assert done.stderr.startswith(f"moot: the debate broke off in round 1: {server.url} cannot be reached")
    assert "Nothing had been said in full" in done.stderr and done.stderr.count("\n") == 1


def start(server: ChatServer, *arguments: object) -> subprocess.Popen[str]:
    given = command("ask", QUESTION, "--engine", "openai", "--base-url", server.url, "--model", "m", *TAGS, *arguments)
    return subprocess.Popen(given, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_with_what_there_is() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        if number < 3:
            return saying(scripted(body))

        def forever() -> Iterable[bytes]:
            while True:
                time.sleep(0.2)
                yield chunk("<solution>HALF")

        return 200, {"Content-Type": "text/event-stream"}, forever()

    with ChatServer(answer) as server:
        process = start(server, "--json")
        while len(server.requests) < 6:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    found = json.loads(output)
    assert found["ended"] == "interrupted" and len(found["turns"]) == 3
    assert errors == "moot: interrupted in round 2; the 3 turns said in full are above\n"


# The scripted engine, and questions nobody votes on


def test_a_script_can_be_asked_and_the_same_seed_gives_the_same_debate(tmp_path: Path) -> None:
    first, second, third = (
        here(QUESTION, "--engine", "scripted", "--seed", seed, "--json", cwd=tmp_path) for seed in (5, 5, 6)
    )
    assert first.returncode == 0, first.stderr
    assert record(first)["turns"] == record(second)["turns"] != record(third)["turns"]


def test_two_agents_cannot_vote_and_are_told_so() -> None:
    with ChatServer() as server:
        done = ask(server, "--agents", 2)
    assert "Note: with fewer than 3 agents nobody can vote" in done.stdout
    assert "Nobody won: nobody could vote. The answer is the plurality's." in done.stdout


def test_a_model_that_keeps_to_no_form_is_shown_and_told() -> None:
    with ChatServer(lambda number, body: saying("I think it is 7.")) as server:
        done = ask(server)
    assert done.returncode == 0
    assert "I think it is 7." in done.stdout and "could not be read: no <solution> in the text" in done.stdout
    assert "No turn could be read: this model does not keep to the form." in done.stdout
    assert "Answer: none" in done.stdout


def test_an_essay_has_no_boxed_answer_and_the_winners_words_are_the_answer() -> None:
    with ChatServer(lambda number, body: saying(turn_text("N/A", "Because 1945 is past."))) as server:
        found = record(ask(server, "--json", "--rounds", 1))
    assert found["answer"] is None and found["winner_answer"] is None and found["agreement"] == 0


# Sections that are asked for one by one


def test_each_section_is_its_own_exchange_and_the_record_holds_whole_turns() -> None:
    """Round 1 is the plain question; in round 2 each of three judges two others before it solves again: three exchanges."""
    with ChatServer() as server:
        found = record(ask(server, "--sections", "asked", "--json"))
    assert found["ended"] == "done" and len(found["turns"]) == 6
    assert [turn.get("failure") for turn in found["turns"]] == [None] * 6
    assert all(turn["text"].startswith("<solution>") for turn in found["turns"])
    assert len(server.requests) == 3 + 3 * 3 and not any("stop" in body for body in server.requests)
    assert found["tokens"] == {"read": 1200, "written": 120, "turns_without_count": 0}
    assert found["settings"]["sections"] == "asked"


def test_without_a_word_about_sections_each_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with ChatServer() as server:
        given = [
            "ask",
            QUESTION,
            "--engine",
            "openai",
            "--base-url",
            server.url,
            "--model",
            "m",
            "--json",
            "--no-personas",
        ]
        assert main(given) == 0
        assert len(server.requests) == 3 + 3 * 3
        assert [message["role"] for message in server.requests[0]["messages"]] == ["user"], (
            "round 1 is the plain question"
        )
        assert json.loads(capsys.readouterr().out)["settings"]["sections"] == "asked"
        assert main([*given, "--protocol", "v1", "--rounds", "1"]) == 0
        assert "<solution>" in server.requests[-1]["messages"][0]["content"], "v1 keeps its tags"
