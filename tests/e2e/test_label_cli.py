"""`moot label` as a user's shell starts it, against a server on a real socket: nothing lost, nothing asked twice."""

from __future__ import annotations

import csv
import errno
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moot.cli import main
from moot.players.memory import Replies
from moot.runs.lock import RunLock
from support.asking import ChatServer, saying
from support.labelling import GSM8K, RecordedModels, SimulatedModel, recorded, sum_in
from support.making import command, surroundings

MODELS = 6
"""Of the recording."""


def at(server: ChatServer, file: object, *more: object) -> list[str]:
    return ["label", str(file), "--engine", "openai", "--base-url", server.url, "--model", "m", *map(str, more)]


def questions(path: Path, count: int, known: range = range(0)) -> Path:
    """`What is n + 7?`, with ids, and with the answer where it is known."""
    rows = [
        {"id": f"row-{n}", "question": f"What is {n} + 7?", **({"answer": n + 7} if n in known else {})}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def asked_before(work: Path) -> int:
    """Replies that are whole in the file."""
    file = work / "replies.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_five_hundred_questions_killed_twice_lose_nothing_ask_nothing_twice_and_keep_the_precision_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GSM8K as real models answered it. A kill can take at most the requests that were under way: 8 questions of 6 answers;
    what had been written is never asked again. By the known answers of every second question 95% is reached, and so it is
    on the other half, whose answers are not given, within the interval that was told."""
    rows, out, work = recorded(GSM8K), tmp_path / "l.jsonl", tmp_path / "l-work"
    given = [
        {"question": row["question"], **({} if n % 2 else {"answer": row["answer"]})} for n, row in enumerate(rows)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    answers = len(rows) * MODELS
    with RecordedModels() as server:
        seats = [part for seat in range(1, MODELS) for part in ("--seat", f"{seat}={seat}")]
        asking = ["label", str(tmp_path / "q.jsonl"), "--engine", "openai", "--base-url", server.url, "--model", "0"]
        asking += [*seats, "--k", str(MODELS), "--out", str(out), "--grader", "number", "--precision"]
        for enough in (0.2, 0.6):
            process = subprocess.Popen(
                command(*asking, "0.95"), env=surroundings(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while asked_before(work) < enough * answers:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
            process.wait()
            assert not out.exists()
        assert main([*asking, "0.95"]) == 0
        requests, different = len(server.requests), len(server.asked)
        assert different == answers, "every answer was asked for"
        assert requests - different <= 2 * 8 * MODELS, "only what was under way at a kill is asked again"
        assert len({line["asked"] for line in lines(work / "replies.jsonl")}) == answers
        told, labelled = json.loads((work / "report.json").read_text())["calibration"]["kept"], lines(out)
        held_out = [pair for pair in list(zip(labelled, rows, strict=True))[1::2] if pair[0]["trusted"]]
        right = sum(label["answer"] == row["answer"] for label, row in held_out) / len(held_out)
        assert len(held_out) > 125 and right >= 0.95 and told["low"] <= right <= told["high"]
        assert main([*asking, "0.995"]) == 1
        assert "Precision 99.5% is not reached" in capsys.readouterr().out
        assert not any(row["trusted"] for row in lines(out))
        assert len(server.requests) == requests, "all is answered: nothing is asked"
    assert [row["question"] for row in labelled] == [row["question"] for row in rows]
    assert all(len(row["debate"]["turns"]) == MODELS for row in labelled)
    assert (work / "reliability.svg").exists()


def test_what_was_written_before_a_kill_is_not_asked_again(tmp_path: Path) -> None:
    """Counted one by one: each reply in the file when the command was killed has been asked for exactly once at the end."""
    file, out = questions(tmp_path / "q.jsonl", 60), tmp_path / "l.jsonl"
    with SimulatedModel() as server:
        given = command(*at(server, file, "--k", 3, "--rounds", 2, "--out", out, "--concurrency", 2))
        process = subprocess.Popen(given, env=surroundings(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while asked_before(tmp_path / "l-work") < 100:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        time.sleep(0.5)  # the server may still be answering
        kept, asked = asked_before(tmp_path / "l-work"), len(server.requests)
        assert main(at(server, file, "--k", 3, "--rounds", 2, "--out", out, "--concurrency", 2)) == 0
        # Round 1 is a request each, round 2 three: 3 * (1 + 3) for each question.
        assert len(server.requests) - asked == 60 * 12 - kept


def test_a_debate_in_tokens_continues_in_the_middle_and_comes_out_the_same(tmp_path: Path) -> None:
    """The file of replies is cut in the middle of a line, as a kill may leave it: what is asked anew is asked with the same
    seed, and all labels are as they were."""
    file, out, replies = questions(tmp_path / "q.jsonl", 4), tmp_path / "l.jsonl", tmp_path / "l-work/replies.jsonl"
    given = ["label", str(file), "--engine", "scripted", "--k", "3", "--rounds", "2", "--out", str(out)]
    assert main(given) == 0
    first, kept = out.read_text(), replies.read_bytes()
    replies.write_bytes(kept[: len(kept) // 2])
    whole = asked_before(replies.parent)
    assert main(given) == 0
    seconds = [[{**row, "debate": {**row["debate"], "seconds": 0}} for row in map(json.loads, text.splitlines())]
               for text in (first, out.read_text())]  # fmt: skip
    assert seconds[0] == seconds[1]
    again = [line for line in replies.read_bytes().split(b"\n") if line.endswith(b"}")]
    assert len(again) == kept.count(b"\n") and 0 < whole < len(again)


def test_more_answers_later_and_a_longer_file_ask_only_what_is_new(tmp_path: Path) -> None:
    with SimulatedModel() as server:
        assert main(at(server, questions(tmp_path / "q.jsonl", 5), "--k", 2, "--out", tmp_path / "l.jsonl")) == 0
        assert len(server.requests) == 10
        assert main(at(server, questions(tmp_path / "q.jsonl", 5), "--k", 5, "--out", tmp_path / "l.jsonl")) == 0
        assert len(server.requests) == 25
        assert main(at(server, questions(tmp_path / "q.jsonl", 7), "--k", 5, "--out", tmp_path / "l.jsonl")) == 0
        assert len(server.requests) == 35
        assert main(at(server, tmp_path / "q.jsonl", "--k", 5, "--out", tmp_path / "l.jsonl", "--threshold", 1)) == 0
        assert len(server.requests) == 35


def test_replies_of_other_settings_are_not_told_as_answers_to_this_command_and_labels_that_are_replaced_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six replies of model m, two to each question, say nothing of model n; to m with three answers they are six of nine."""
    file, out = questions(tmp_path / "q.jsonl", 3, known=range(3)), tmp_path / "l.jsonl"
    with SimulatedModel() as server:
        assert main(at(server, file, "--k", 2, "--out", out)) == 0
        assert "from before" not in (said := capsys.readouterr().out) and "replaced" not in said
        assert main(["n" if word == "m" else word for word in at(server, file, "--k", 1, "--out", out)]) == 0
        said, asked = capsys.readouterr().out, len(server.requests)
        assert "again: 0. Of other settings or questions, kept and not used: 6.\n" in said and asked == 9
        assert "made with other settings (model m, now n; agents 2, now 1). They will be replaced" in said
        assert main(at(server, file, "--k", 3, "--out", out)) == 0
        said = capsys.readouterr().out
        assert "not asked for again: 6. Of other settings or questions, kept and not used: 3.\n" in said
        assert len(server.requests) == asked + 3
        assert main(at(server, file, "--k", 3, "--out", out)) == 0
        said = capsys.readouterr().out
        assert (
            "not asked for again: 9. Of other settings or questions, kept and not used: 3.\n" in said
            and "replaced" not in said
        )
        assert len(server.requests) == asked + 3


def test_replies_of_a_later_round_are_counted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two questions of two agents and two rounds in tokens; then one question more. What follows from what was said is found."""
    given = ["--engine", "scripted", "--k", "2", "--rounds", "2", "--out", str(tmp_path / "l.jsonl")]
    assert main(["label", str(questions(tmp_path / "q.jsonl", 2)), *given]) == 0
    whole = asked_before(tmp_path / "l-work")
    assert main(["label", str(questions(tmp_path / "q.jsonl", 3)), *given]) == 0
    assert f"Replies here from before, not asked for again: {whole}.\n" in capsys.readouterr().out
    assert whole < asked_before(tmp_path / "l-work")


def test_without_known_answers_no_picture_of_other_labels_is_left(tmp_path: Path) -> None:
    out, work = tmp_path / "l.jsonl", tmp_path / "l-work"
    with SimulatedModel() as server:
        assert main(at(server, questions(tmp_path / "q.jsonl", 3, known=range(3)), "--k", 2, "--out", out)) == 0
        for suffix in ("png", "svg"):
            (work / f"reliability.{suffix}").touch()  # whether or not matplotlib is here
        assert main(at(server, questions(tmp_path / "q.jsonl", 3), "--k", 2, "--out", out)) == 0
    assert not list(work.glob("reliability.*"))


def test_rows_keep_their_fields_in_csv_too_and_a_known_answer_stands_beside_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.csv").write_text('nr,question,answer\n7,"What is 2 + 7?",9\n8,What is 3 + 7?,\n')
    with ChatServer(lambda number, body: saying(f"\\boxed{{{sum_in(body['messages'][0]['content'])}}}")) as server:
        assert main(at(server, tmp_path / "q.csv", "--k", 2, "--out", tmp_path / "l.csv")) == 0
    with (tmp_path / "l.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["nr"], first["given_answer"], first["answer"], first["right"]) == ("7", "9", "9", "true")
    assert (second["nr"], second["given_answer"], second["answer"], second["right"]) == ("8", "", "10", "")
    assert first["trusted"] == "true" and first["share"] == "1.0" and "debate" not in first
    said = capsys.readouterr().out
    assert "2 questions, 2 answers each: 4 requests, about" in said and "2 labelled: 2 trusted" in said


def test_the_cost_is_told_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SimulatedModel() as server:
        price = ("--price-in", 1, "--price-out", 10)
        assert main(at(server, questions(tmp_path / "q.jsonl", 3), "--out", tmp_path / "l.jsonl", *price)) == 0
    said = capsys.readouterr().out
    assert (
        "3 questions, 8 answers each: 24 requests" in said and "at most 12,288 written, cost at most about 0.12" in said
    )
    # 24 requests of 100 tokens read at 1 and 10 written at 10 a million: 2,400 + 2,400 millionths.
    assert "2,400 tokens read, 240 written, cost 0.0048." in said


def test_a_log_is_told_how_far_it_is_and_how_much_is_left_but_not_by_what_was_here_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eleven seconds pass between any two questions, so each has a line. The three of before say nothing of the time left,
    and after the last there is none."""
    now = iter(range(0, 10_000, 11))
    monkeypatch.setattr("moot.cli.label.time", SimpleNamespace(monotonic=lambda: next(now)))
    more = ("--k", 2, "--concurrency", 1, "--out", tmp_path / "l.jsonl")
    with SimulatedModel() as server:
        assert main(at(server, questions(tmp_path / "q.jsonl", 3), *more)) == 0
        capsys.readouterr()
        assert main(at(server, questions(tmp_path / "q.jsonl", 6), *more)) == 0
    told = [text for text in capsys.readouterr().out.splitlines() if " of 6 questions, " in text]
    assert [bool(re.search(r" written, about \d:\d\d:\d\d left$", text)) for text in told] == [False] * 3 + [
        True
    ] * 2 + [False]


def test_a_server_that_dies_leaves_labels_for_what_it_answered_and_the_rest_for_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, more = questions(tmp_path / "q.jsonl", 12), ("--k", 2, "--concurrency", 1, "--retries", 0)

    def dies(number: int, body: dict[str, Any]) -> Any:
        return saying("\\boxed{1}") if number < 6 else (500, {}, [b'{"error": {"message": "gone"}}'])

    with ChatServer(dies) as server:
        assert main([*at(server, file, *more), "--out", str(tmp_path / "l.jsonl")]) == 1
        assert len(server.requests) <= 6 + 3 * 2, "after three failures in a row the rest is left alone"
    assert "9 questions got no answer" in capsys.readouterr().err
    assert len(lines(tmp_path / "l.jsonl")) == 3
    with ChatServer(lambda number, body: saying("\\boxed{2}")) as server:
        assert main([*at(server, file, *more), "--out", str(tmp_path / "l.jsonl")]) == 0
        assert len(server.requests) == 9 * 2
    assert [row["answer"] for row in lines(tmp_path / "l.jsonl")] == ["1"] * 3 + ["2"] * 9


def test_a_server_that_answers_nothing_leaves_the_labels_of_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = questions(tmp_path / "q.jsonl", 2), tmp_path / "l.jsonl"
    with ChatServer(lambda number, body: saying("\\boxed{1}")) as server:
        assert main([*at(server, file, "--k", 2), "--out", str(out)]) == 0
    before = out.read_text()
    with ChatServer(lambda number, body: (500, {}, [b'{"error": {"message": "gone"}}'])) as server:
        assert main([*at(server, file, "--k", 2, "--seed", 1, "--retries", 0), "--out", str(out)]) == 1
    assert "2 questions got no answer" in capsys.readouterr().err
    assert out.read_text() == before


def test_answers_that_were_cut_at_their_limit_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of four, which holds no answer then."""
    with ChatServer(lambda number, body: saying("\\boxed{1}", "length" if number == 0 else "stop")) as server:
        more = ("--k", 4, "--max-tokens", 40, "--grader", "number", "--out", tmp_path / "l.jsonl")
        assert main(at(server, questions(tmp_path / "q.jsonl", 1), *more)) == 0
    assert "1 of 4 answers were cut at --max-tokens 40 and count as none; give them more." in capsys.readouterr().out


def test_where_most_answers_are_cut_it_is_told_on_the_way_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first ten of forty are whole: of twenty half are cut, of twenty-one more than half."""
    with ChatServer(lambda number, body: saying("\\boxed{1}", "length" if number >= 10 else "stop")) as server:
        more = ("--k", 4, "--max-tokens", 20, "--concurrency", 1, "--out", tmp_path / "l.jsonl")
        assert main(at(server, questions(tmp_path / "q.jsonl", 10), *more)) == 0
    told = (
        "52% of the answers so far were cut at --max-tokens 20 and count as none; stop with Ctrl-C and give them more, "
    )
    told += "as in --max-tokens 64 (they are then asked anew)."
    said = capsys.readouterr().out
    assert said.count(told) == said.count("so far were cut") == 1
    assert said.index(told) < said.index("30 of 40 answers were cut at --max-tokens 20")
    assert "moot eval grades plain answers that were cut too" in said


def test_the_help_says_where_labels_go(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["label", "--help"])
    assert "the current folder, wherever QUESTIONS" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_ctrl_c_says_that_nothing_is_lost(tmp_path: Path) -> None:
    def slow(number: int, body: dict[str, Any]) -> Any:
        time.sleep(0.0 if number < 5 else 30.0)
        return saying("\\boxed{1}")

    with ChatServer(slow) as server:
        given = command(*at(server, questions(tmp_path / "q.jsonl", 9), "--k", 2, "--out", tmp_path / "l.jsonl"))
        process = subprocess.Popen(given, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while asked_before(tmp_path / "l-work") < 5:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == "moot: interrupted. Nothing that was answered is lost; the same command continues.\n"
    assert asked_before(tmp_path / "l-work") == 5


def test_two_at_once_do_not_ask_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "l-work").mkdir()
    with SimulatedModel() as server, RunLock() as lock:
        lock.take(tmp_path / "l-work")
        assert main(at(server, questions(tmp_path / "q.jsonl", 3), "--out", tmp_path / "l.jsonl")) == 2
        assert not server.requests
    assert "l-work is in use by process" in (error := capsys.readouterr().err)
    assert "name another file with --out" in error


def test_a_full_disk_is_one_clear_line_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, file = Replies.add, questions(tmp_path / "q.jsonl", 9)

    def full(self: Replies, row: Any) -> None:
        if asked_before(tmp_path / "l-work") == 6:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        write(self, row)

    with SimulatedModel() as server:
        given = at(server, file, "--k", 2, "--concurrency", 1, "--out", tmp_path / "l.jsonl")
        with monkeypatch.context() as patched:
            patched.setattr(Replies, "add", full)
            assert main(given) == 1
        error = capsys.readouterr().err
        assert "the disk is full" in error and error.count("\n") == 1 and asked_before(tmp_path / "l-work") == 6
        assert main(given) == 0
        # The seventh was answered and could not be kept, and an eighth may have been on its way then.
        assert len(server.asked) == 18 and sorted(server.asked.values())[:16] == [1] * 16


def test_a_judge_scores_every_answer_and_the_highest_score_is_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three say 1, and the judge says Yes to 2 alone. The second time nothing is asked. What the judge wrote, ten
    tokens a reply, is told apart: its price is not known."""

    def judge(number: int, body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        if len(body["messages"]) == 1:
            return saying("It fits." if "\\boxed{2}" in text else "It does not fit.")
        return saying("Yes" if "\\boxed{2}" in text else "No")

    with (
        ChatServer(lambda number, body: saying(f"\\boxed{{{1 + (number % 3 == 2)}}}")) as server,
        ChatServer(judge) as other,
    ):
        given = at(server, questions(tmp_path / "q.jsonl", 1), "--k", 3, "--out", tmp_path / "l.jsonl")
        judged = (*given, "--judge", f"j@{other.url}", "--ballot", "approval:checks=1")
        assert main([*judged, "--concurrency", "1", "--price-in", "1", "--price-out", "1"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "up to 6 times; the same words are judged once. What it costs comes on top." in said
        assert "cost 0.00033. The judge wrote 40 tokens more; what it cost is not in this." in said
        asked = len(server.requests), len(other.requests)
        assert asked == (3, 4), "two different solutions are judged, with a thought and a word each"
        assert main(list(judged)) == 0
        assert (len(server.requests), len(other.requests)) == asked
    (row,) = lines(tmp_path / "l.jsonl")
    assert (row["answer"], row["share"], row["score"], row["confidence"]) == ("2", 0.3333, 1.0, 1.0)
    assert (row["runner_up"], row["runner_up_share"]) == ("1", 0.6667)


def test_a_judge_of_pairs_reads_two_answers_in_both_orders_and_where_all_agree_nobody_is_asked(tmp_path: Path) -> None:
    """Of 1, 2 and 1 the judge prefers 2, wherever it stands. 2 meets one opponent, so one 1 has 0 and the other meets nobody."""

    def judge(number: int, body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        return saying("Hm." if len(body["messages"]) == 1 else "A" if "[A]\n2" in text else "B")

    with (
        ChatServer(lambda number, body: saying(f"{number} \\boxed{{{1 + (number % 3 == 1)}}}")) as server,
        ChatServer(lambda number, body: saying("\\boxed{1}")) as agreeing,
        ChatServer(judge) as other,
    ):
        by = ("--k", 3, "--concurrency", 1, "--judge", f"j@{other.url}", "--ballot", "pairs:opponents=1,show=answer")
        file = questions(tmp_path / "q.jsonl", 1)
        assert main(at(server, file, *by, "--out", tmp_path / "l.jsonl")) == 0
        asked = len(other.requests)
        assert asked == 4, "the same two words are judged once: two orders, a thought and a word each"
        assert main(at(agreeing, file, *by, "--out", tmp_path / "a.jsonl")) == 0
        assert len(other.requests) == asked
    ((row,), (agreed,)) = lines(tmp_path / "l.jsonl"), lines(tmp_path / "a.jsonl")
    assert (row["answer"], row["share"], row["score"]) == ("2", 0.3333, 1.0)
    scores = row["debate"]["scores"]
    assert scores.count(1.0) == scores.count(0.0) == scores.count(None) == 1
    assert row["debate"]["settings"]["ballot"].startswith("pairs")
    assert (agreed["answer"], agreed["score"], agreed["confidence"]) == ("1", None, 1.0)


def test_a_grader_makes_a_half_one_answer(tmp_path: Path) -> None:
    written = ("\\boxed{1/2}", "\\boxed{0.5}", "The answer is \\frac{1}{2}, so \\boxed{\\frac{1}{2}}.", "\\boxed{3}")
    for grader, share in ((), 0.25), (("--grader", "number"), 0.75):
        with ChatServer(lambda number, body: saying(written[number % 4])) as server:
            out = tmp_path / f"{len(grader)}.jsonl"
            assert main(at(server, questions(tmp_path / "q.jsonl", 1), "--k", 4, "--out", out, *grader)) == 0
        assert lines(out)[0]["share"] == share


@pytest.mark.parametrize(
    ("name", "text", "more", "says"),
    [
        ("q.jsonl", "", (), "q.jsonl holds no questions"),
        ("q.csv", "", (), "q.csv holds no questions"),
        ("q.jsonl", '{"q": "a", "a": 1}\n', (), "line 1: needs the field question or problem or prompt; it has q, a; name yours"),
        ("q.csv", "What is 2 + 2?\nWhat is 3 + 3?\n", (), "the first line must name the columns, one of them question"),
        ("q.csv", "question\na,b\n", (), "q.csv, line 2: has more cells than the first line names"),
        ("q.jsonl", '{"question": ""}\n', (), "q.jsonl, line 1: the question is empty"),
        ("q.jsonl", '{"question": "a"}\nplain\n', (), "q.jsonl, line 2: not JSON"),
        ("q.jsonl", '{"question": "a"}\n', ("--grader", "nummber"), "grader must be one of exact, number"),
        ("q.jsonl", '{"question": "a"}\n', ("--precision", "0.95"), "precision needs rows whose answers are known"),
        ("q.jsonl", '{"question": "a"}\n', ("--precision", "95"), "precision must be above 0 and below 1, got 95.0"),
        ("q.jsonl", '{"question": "a"}\n', ("--threshold", "2"), "threshold must lie between 0 and 1, got 2.0"),
        ("q.jsonl", '{"question": "a"}\n', ("--known", "other.jsonl"), "shares no question with q.jsonl"),
        ("q.jsonl", '{"question": "a"}\n', ("--known", "bare.jsonl"), "--known bare.jsonl: no row has an answer"),
        ("q.jsonl", '{"question": "a"}\n', ("--out", "l.txt"), "out must end in .jsonl or .csv, got 'l.txt'"),
        ("q.jsonl", '{"question": "a"}\n', ("--out", "q.jsonl"), "out must not be q.jsonl, which is read"),
        ("q.jsonl", '{"question": "a"}\n', ("--out", "bare.jsonl"), "out bare.jsonl is there and not from this command"),
        ("q.jsonl", '{"question": "a"}\n', ("--k", "0"), "num-answers must be at least 1, got 0"),
        ("q.md", "a\n", (), "q.md must be a file that ends in .jsonl, .json, .csv, .txt"),
        ("q.jsonl", '{"question": "a", "answer": 1}\n{"question": "a", "answer": 2}\n', (), "stands there before with the answer '1'"),
    ],
)  # fmt: skip
def test_what_a_newcomers_file_lacks_is_one_line(
    name: str, text: str, more: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    (tmp_path / "other.jsonl").write_text('{"question": "b", "answer": 1}\n')
    (tmp_path / "bare.jsonl").write_text('{"question": "a"}\n')
    assert main(["label", name, "--engine", "scripted", *more]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1, error


def test_rows_that_repeat_a_question_are_asked_once_and_share_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.txt").write_text("What is 1 + 7?\nWhat is  1 + 7?\n")
    with SimulatedModel() as server:
        assert main(at(server, tmp_path / "q.txt", "--k", 2, "--out", tmp_path / "l.jsonl")) == 0
        assert len(server.requests) == 2
    first, second = lines(tmp_path / "l.jsonl")
    assert first["answer"] == second["answer"]
    assert "1 of 2 rows repeat a question; it is asked once, and they share its label." in capsys.readouterr().out


def test_the_help_has_three_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["label", "--help"])
    assert capsys.readouterr().out.count("moot label q") + 1 == 3


@pytest.mark.parametrize("part", ["", "replies.jsonl", "lock", "report.json"])
def test_a_link_among_what_was_kept_is_refused_and_nothing_outside_changes(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside, work = tmp_path / "outside", tmp_path / "l-work"
    outside.mkdir()
    (outside / "notes").write_text("years of work\n")
    if part:
        work.mkdir()
    (work / part).symlink_to(outside / "notes" if part else outside)
    asking = ["label", str(questions(tmp_path / "q.jsonl", 1)), "--engine", "scripted", "--k", "2", "--out"]
    assert main([*asking, str(tmp_path / "l.jsonl")]) == 2
    assert f"{work / part} is a link" in capsys.readouterr().err
    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("notes", "years of work\n")]
