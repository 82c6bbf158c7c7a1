"""`moot eval`, `moot compare` and `moot check` as a user types them, on the scripted engine.

Mostly in this process, because a command of its own takes seconds to start; what needs a process (the first test, an interrupt) has one.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from moot.cli import main
from support.asking import ChatServer, saying
from support.making import command, moot, surroundings, text

SCRIPTED = ["--engine", "scripted", "--max-tokens", "2000"]
SMALL = [
    *SCRIPTED,
    "--batch-size",
    "2",
    "--num-train-datapoints",
    "2",
    "--warm-questions",
    "2",
    "--eval-questions",
    "2",
]
ALL = ["--modes", "direct", "vote", "debate", "debate+vote", "opponents"]


def here(where: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(where), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
    return subprocess.CompletedProcess(list(arguments), status, out.getvalue(), error.getvalue())


def evaluate(where: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return here(where, "eval", *arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds under peer votes, one under truth."""
    where = tmp_path_factory.mktemp("trained")
    for name, options in {
        "peer-seed0": [],
        "peer-seed1": ["--seed", "1"],
        "truth-seed0": ["--reward", "truth"],
    }.items():
        # Only where turns can fail does truth differ between agents that are never right.
        done = here(where, "train", *SMALL, "--sections", "sampled", "--run", name, *options)
        assert done.returncode == 0, done.stdout + done.stderr
    return where


def test_a_model_is_evaluated_in_every_mode_and_the_same_command_again_goes_on(tmp_path: Path) -> None:
    done = moot("eval", *SCRIPTED, "--questions", "6", *ALL, "--k", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("direct", "vote@3", "debate+vote", "against base", "minus direct", "votes", "winner", "6 questions"):
        assert word in done.stdout, word
    folder = tmp_path / "evals/scripted-arithmetic"
    report, answers = (folder / "report.json").read_text(), (folder / "answers.jsonl").read_bytes()
    rows = json.loads(report)["rows"]
    assert [row["name"] for row in rows] == ["direct", "vote@3", "debate", "debate+vote", "against base"]
    assert all(
        row["questions"] == 6 and 0 <= row["metrics"]["accuracy"]["low"] <= row["metrics"]["accuracy"]["high"] <= 1
        for row in rows
    )

    again = evaluate(tmp_path, *SCRIPTED, "--questions", "6", *ALL, "--k", "3")
    assert again.returncode == 0
    assert (folder / "answers.jsonl").read_bytes() == answers, "nothing was sampled again"
    assert (folder / "report.json").read_text() == report

    # A kill in the middle of a line: the rest is done again, and the report is the same.
    (folder / "answers.jsonl").write_bytes(answers[: len(answers) // 2])
    assert evaluate(tmp_path, *SCRIPTED, "--questions", "6", *ALL, "--k", "3").returncode == 0
    assert (folder / "report.json").read_text() == report


def test_a_report_of_other_settings_is_kept_and_the_new_one_is_named_after_what_differs(tmp_path: Path) -> None:
    short = [*SCRIPTED, "--questions", "2", "--modes", "direct"]
    first = evaluate(tmp_path, *short)
    assert "The scripted engine on arithmetic: 2 questions, debates of 3 agents and 2 rounds" in first.stdout
    report = tmp_path / "evals/scripted-arithmetic/report.json"
    before = report.read_bytes()
    other = evaluate(tmp_path, *short, "--max-tokens", "1500")
    assert other.returncode == 0 and "has other settings and is kept" in other.stdout
    assert report.read_bytes() == before
    beside = tmp_path / "evals/scripted-arithmetic,max_tokens=1500/report.json"
    assert json.loads(beside.read_text())["settings"]["max_tokens"] == 1500
    assert evaluate(tmp_path, *short, "--max-tokens", "1500").returncode == 0
    assert sorted(path.name for path in (tmp_path / "evals").iterdir()) == [
        "scripted-arithmetic",
        "scripted-arithmetic,max_tokens=1500",
    ]


def test_json_and_markdown_are_all_that_is_printed(tmp_path: Path) -> None:
    done = evaluate(tmp_path, *SCRIPTED, "--questions", "2", "--modes", "direct", "--json")
    assert json.loads(done.stdout)["settings"]["questions"] == 2
    table = evaluate(tmp_path, *SCRIPTED, "--questions", "2", "--modes", "direct", "--markdown").stdout
    assert table.startswith("| mode | k | accuracy |") and table.count("\n") == 3


def test_a_runs_checkpoint_is_evaluated_with_its_own_settings(trained: Path) -> None:
    done = evaluate(
        trained,
        "peer-seed0",
        "--questions",
        "3",
        "--modes",
        "debate",
        "opponents",
        "--opponents",
        "base",
        "truth-seed0@2",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((trained / "peer-seed0/evals/arithmetic-step2/report.json").read_text())
    assert [row["name"] for row in report["rows"]] == ["debate", "against base", "against truth-seed0@2"]
    assert (report["settings"]["step"], report["settings"]["max_tokens"]) == (2, 2000)
    before = evaluate(trained, "peer-seed0", "--step", "0", "--questions", "3", "--modes", "direct")
    assert before.returncode == 0 and (trained / "peer-seed0/evals/arithmetic-step0/report.json").exists()
    assert "Minus the model before training" not in before.stdout
    after = evaluate(trained, "peer-seed0", "--questions", "3", "--modes", "direct").stdout
    told = after.partition("Minus the model before training: moot ")[2].split()
    assert told[2:4] == ["--evals", "arithmetic-step0"] and told[4].startswith("arithmetic-step2")
    assert "minus" in here(trained, *told, "--no-figure").stdout
    # The other way round, and of enough questions for an interval: the same difference.
    last = [
        evaluate(trained, "truth-seed0", *step, "--questions", "8", "--modes", "direct").stdout.splitlines()[-1]
        for step in ((), ("--step", "0"), ())
    ]
    assert "Minus" not in last[0] and last[1] == last[2]
    told_points, _, table = last[1].partition(". As a table: moot compare truth-seed0 --evals ")
    assert re.fullmatch(r"Minus the model before training: direct [+-]\d+\.\d points \[.*\]", told_points)
    assert table == "arithmetic-step0 arithmetic-step2"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "nowhere is not a run: it has no run.json"),
        (["--modes", "guess"], "--modes"),
        (["--questions", "0"], "questions must be at least 1, got 0"),
        (["--k", "0"], "k must be at least 1, got 0"),
        (["--step", "3"], "step 3 is a run's; name the run"),
        (["--engine", "steam"], "engine must be local or tinker or scripted"),
        (["--match-tokens", "--modes", "direct", "vote"], "modes must name vote and debate"),
        (["--task", "nope"], "nope"),
        (["--modes", "opponents", "--opponents", "nobody"], "got 'nobody', which is no run"),
    ],
)
def test_a_wrong_value_gets_one_line_that_names_it(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = evaluate(tmp_path, *SCRIPTED, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert complaint in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "evals").exists()


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(trained: Path) -> None:
    done = evaluate(trained, "peer-seed0", "--step", "7", "--modes", "direct")
    assert done.returncode == 2
    assert "peer-seed0 has no checkpoint of step 7; it has 2, 1" in done.stderr


def test_runs_are_compared_in_one_table_and_one_figure(trained: Path) -> None:
    for run in ("peer-seed0", "peer-seed1", "truth-seed0"):
        assert (
            evaluate(trained, run, "--questions", "4", "--modes", "direct", "debate", "--name", "held-out").returncode
            == 0
        )
    done = here(trained, "compare", "peer-seed0", "peer-seed1", "truth-seed0", "--evals", "held-out", "--out", "side")
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = json.loads((trained / "side/compare.json").read_text())
    assert [(row["mode"], row["group"], row["seeds"], row["questions"]) for row in numbers["evaluations"]] == [
        ("direct", "peer", 2, 4),
        ("direct", "truth", 1, 4),
        ("debate", "peer", 2, 4),
        ("debate", "truth", 1, 4),
    ]
    assert numbers["evaluations"][1]["difference"]["versus"] == "peer"
    assert (trained / "side/curves.png").read_bytes().startswith(b"\x89PNG")
    assert "\\toprule" in (trained / "side/table.tex").read_text()
    printed = here(
        trained,
        "compare",
        "peer-seed0",
        "truth-seed0",
        "--evals",
        "held-out",
        "--no-figure",
        "--out",
        "b",
        "--markdown",
    )
    assert printed.stdout.count("| direct | ") == 2 and not (trained / "b/curves.png").exists()


def test_compare_prints_its_table_without_matplotlib(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = here(tmp_path, "compare", trained / "peer-seed0", trained / "truth-seed0")
    assert done.returncode == 0, done.stderr
    assert "right answers, training" in done.stdout and "no figure: figures need matplotlib" in done.stdout
    assert (tmp_path / "compare/table.md").exists() and not (tmp_path / "compare/curves.png").exists()


def test_compare_says_what_is_missing(trained: Path, tmp_path: Path) -> None:
    done = here(tmp_path, "compare", trained / "truth-seed0", "--evals", "none", "--no-figure")
    words = " ".join(done.stdout.split())
    assert (
        done.returncode == 0
        and "No saved evaluation: " in words
        and "truth-seed0. Make one with: moot eval RUN" in words
    )
    assert here(tmp_path, "compare", tmp_path / "nothing").returncode == 2


def test_check_measures_the_list_and_fails_with_the_remedy(tmp_path: Path) -> None:
    done = here(tmp_path, "check", *SCRIPTED, "--questions", "60")
    assert done.returncode == 1, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "valid comparisons" in words and "> 20% no-go" in words and "--warm-questions" in words
    found = json.loads(here(tmp_path, "check", *SCRIPTED, "--questions", "60", "--json").stdout)
    assert [check["above"] for check in found["checks"]] == [0.05, 0.8, 0.2, 0.5]
    assert {check["says"] for check in found["checks"]} <= {"go", "caution", "no-go"}
    assert [check["check"] for check in found["contract"]] == [
        "accuracy in round 1",
        "accuracy in the last round",
        "cost of the contract: round 1 minus direct",
        "last round minus round 1",
        "valid turns",
        "majority minus mean, round 1",
        "tokens of a turn, of a plain answer's",
    ]
    assert found["failed"] and all(
        check["measured"]["low"] <= check["measured"]["value"] for check in found["checks"] if check["measured"]
    )


def test_check_says_nothing_of_votes_where_nobody_votes_and_nobody_is_paid_by_them(tmp_path: Path) -> None:
    options = ("--preset", "majority", "--task", "arithmetic", *SCRIPTED, "--questions", "4", "--json")
    found = json.loads(here(tmp_path, "check", *options).stdout)
    assert [check["check"] for check in found["checks"]] == ["direct accuracy", "one agent right"]


def test_check_takes_a_run_and_wants_it_first(trained: Path) -> None:
    done = here(trained, "check", "peer-seed0", "--questions", "4")
    assert done.returncode in (0, 1) and "peer-seed0/evals/arithmetic-step2/answers.jsonl" in " ".join(
        done.stdout.split()
    ).replace("\n", "")
    wrong = here(trained, "check", "--questions", "4", "peer-seed0")
    assert wrong.returncode == 2 and "the run must come first" in wrong.stderr


def test_help_tells_every_option(tmp_path: Path) -> None:
    for name, words in {
        "eval": ("RUN", "--match-tokens", "--opponents"),
        "compare": ("RUNS", "--evals"),
        "check": ("--questions",),
    }.items():
        done = here(tmp_path, name, "--help-all")
        assert (done.returncode, done.stderr) == (0, "")
        assert all(word in done.stdout for word in words)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_answered(tmp_path: Path, number: signal.Signals) -> None:
    """Enough debates that the scripted engine is still at it; then the interrupt, and the same command ends the work."""
    arguments = ["eval", *SCRIPTED, "--questions", "150", "--modes", "direct", "debate", "--concurrency", "4"]
    started = subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    answers = tmp_path / "evals/scripted-arithmetic/answers.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not answers.exists() or answers.read_bytes().count(b"\n") < 5):
        time.sleep(0.01)
    started.send_signal(number)
    out, error = started.communicate(timeout=60)
    assert started.returncode == 130, out + error
    assert error == b"moot: interrupted. What was answered is kept; the same command continues from there.\n"
    kept = answers.read_bytes()
    assert kept.endswith(b"\n") and 5 <= kept.count(b"\n") < 302
    assert moot(*arguments, cwd=tmp_path).returncode == 0
    assert answers.read_bytes().startswith(kept)


class Server(http.server.BaseHTTPRequestHandler):
    """A chat server that always gives the same turn."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        type(self).asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        said = {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text(solution="\\boxed{7}")},
                    "finish_reason": "stop",
                }
            ]
        }
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
def test_a_chat_server_takes_the_seats_that_the_policy_does_not(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"tiny@http://127.0.0.1:{server.server_address[1]}/v1"
        done = evaluate(
            tmp_path,
            *SCRIPTED,
            "--sections",
            "sampled",
            "--questions",
            "2",
            "--modes",
            "opponents",
            "--opponents",
            name,
        )
        server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    # Two questions, three debates each, two seats in each of them, two rounds.
    assert len(Server.asked) == 2 * 3 * 2 * 2
    assert {request["model"] for request in Server.asked} == {"tiny"}
    report = json.loads((tmp_path / "evals/scripted-arithmetic/report.json").read_text())
    assert report["rows"][0]["name"] == f"against {name}" and report["rows"][0]["questions"] == 2


def test_other_texts_are_named_by_their_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[asked]\nquestion = "Sums, please: {question} {instruction}"\n')
    done = evaluate(
        tmp_path,
        *SCRIPTED,
        "--sections",
        "asked",
        "--questions",
        "2",
        "--modes",
        "direct",
        "--prompts",
        "mine.toml",
        "--json",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "prompts:" not in evaluate(tmp_path, "--help-all").stdout  # a file, not a subcommand
    refused = evaluate(tmp_path, *SCRIPTED, "--prompts", "nowhere.toml")
    assert refused.returncode == 2 and "nowhere.toml" in refused.stderr


def test_an_outside_judge_tells_wins_against_the_start_with_their_interval_after_training_and_in_eval(
    tmp_path: Path,
) -> None:
    """It always says A, so every pair whose texts differ is level, and its verdict flips; others are not asked about."""
    rows = [{"question": f"Write a line about {n}."} for n in range(40)]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ChatServer(lambda *_: saying("A")) as server:
        judge = f"big@{server.url}"
        trained = here(
            tmp_path,
            "train",
            *SMALL,
            "--task",
            "lines.jsonl",
            "--eval-questions",
            "8",
            "--warm-questions",
            "0",
            "--run",
            "run",
            "--judge",
            judge,
        )
        assert f"of 8 questions, judged by {judge} in both orders" in trained.stdout
        before = len(server.requests)
        shown = here(tmp_path, "eval", "run", "--judge", judge, "--questions", "8", "--json")
        assert shown.returncode == 0 and len(server.requests) > before
        report = json.loads(shown.stdout)
        assert report["settings"]["judge"] == judge
        (wins,) = [row for row in report["rows"] if row["name"] == "wins"]
        accuracy = wins["metrics"]["accuracy"]
        assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
        table = here(tmp_path, "eval", "run", "--judge", judge, "--questions", "8")
        assert f"judged by {judge}" in " ".join(table.stdout.split())
