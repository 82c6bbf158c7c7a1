"""The real command in processes of its own: what it prints, what it refuses and how, and what text from a model cannot make it do."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.making import FAILED, command, lines, moot, surroundings, text

FOUR_VOTES = [["", "", ""], ["1 > 2", "0 > 2; 0 = 2", "0 > 1"]]


def line(rounds: list[list[str]] | None = None, contract: str = "three_tag", **more: Any) -> str:
    """One debate as a line of a file, from the shorthand of `making`."""
    turns = [
        {"round": number, "agent": agent, "text": said if said == FAILED else text(lines(said), contract=contract)}
        for number, row in enumerate(rounds or FOUR_VOTES, 1)
        for agent, said in enumerate(row)
    ]
    return json.dumps(
        {"question": "What is 3 + 4?", "num_agents": len((rounds or FOUR_VOTES)[0]), "turns": turns, **more}
    )


def one_clear_line(done: subprocess.CompletedProcess[str], *says: str) -> None:
    """Wrong usage: status 2, one line on standard error that says what is wrong, nothing else anywhere."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("moot: ")
    assert done.stderr.count("\n") == 1
    assert [word for word in says if word not in done.stderr] == []


# Help


def test_help_names_every_command() -> None:
    done = moot("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: moot COMMAND" in done.stdout
    assert "  score  " in done.stdout
    assert "  demo " in done.stdout
    assert moot("-h").stdout == moot("help").stdout == done.stdout


def test_nothing_asked_for_is_wrong_usage_with_the_help() -> None:
    done = moot()
    assert done.returncode == 2
    assert "usage: moot COMMAND" in done.stdout


def test_help_of_score_names_every_option() -> None:
    done = moot("score", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(
        option in done.stdout
        for option in ("FILE", "--protocol", "--reward", "--json", "v2_literal", "path.py:function")
    )


def test_version() -> None:
    done = moot("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("moot ")


# The demo, and scoring what it wrote


def test_demo_then_score(tmp_path: Path) -> None:
    done = moot("demo", "--debates", 6, "--seed", 3, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 debates, 72 turns" in done.stdout
    transcripts = tmp_path / "runs" / "demo.jsonl"
    assert len(transcripts.read_text().splitlines()) == 6
    table = moot("score", transcripts)
    assert (table.returncode, table.stderr) == (0, "")
    assert [f"Line {number}: What is" in table.stdout for number in range(1, 8)] == [True] * 6 + [False]
    scored = moot("score", transcripts, "--json")
    assert scored.returncode == 0
    assert [json.loads(each)["line"] for each in scored.stdout.splitlines()] == [1, 2, 3, 4, 5, 6]
    again = moot("demo", "--debates", 6, "--seed", 3, "--out", tmp_path / "again.jsonl", cwd=tmp_path)
    assert again.returncode == 0
    assert (tmp_path / "again.jsonl").read_text() == transcripts.read_text()


@pytest.mark.parametrize("protocol", ["v1", "v2_literal"])
def test_demo_in_other_protocols(tmp_path: Path, protocol: str) -> None:
    done = moot("demo", "--debates", 3, "--protocol", protocol, "--agents", 3, "--rounds", 2, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    scored = moot("score", tmp_path / "runs" / "demo.jsonl", "--protocol", protocol, "--json")
    assert scored.returncode == 0
    assert len(scored.stdout.splitlines()) == 3


def test_the_demo_notes_few_judges_and_not_many(tmp_path: Path) -> None:
    few = moot("demo", "--debates", 1, "--agents", 3, cwd=tmp_path)
    assert "one possible judge" in few.stdout
    assert "Use --num-agents 5 or more." in few.stdout and "--judge-consensus" not in few.stdout, (
        "demo has no such option"
    )
    assert "possible judge" not in moot("demo", "--debates", 1, "--agents", 5, cwd=tmp_path).stdout


# The table


def test_the_table_shows_votes_winner_and_reasons_of_failures() -> None:
    """Agent 0 wins 2 votes, Agent 2 loses 1 (its `>` against 0 was taken back for a tie) and fails in round 3."""
    done = moot("score", "-", given=line([*FOUR_VOTES, ["", "", FAILED]]))
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row.split("  ")[0].strip(): row.split()[-3:] for row in done.stdout.splitlines() if "  " in row.strip()}
    assert "Line 1: What is 3 + 4?" in done.stdout
    # Votes of round 2 are about round 1: 0 > 1; 1 > 2; and 0 = 2, Agent 1's last word.
    assert rows["round 1, votes won–lost"] == ["1–0", "1–1", "0–1"]
    assert rows["round 2, votes won–lost"] == ["0–0", "0–0", "0–0"]
    assert rows["round 3, votes won–lost"] == ["0–0", "0–0", "failed"]
    # Generator rewards 1, 0, 0; 0, 0, 0; -1, 0, -1.
    assert rows["generator reward, mean of turns"] == ["+0.333", "+0.000", "-0.667"]
    assert "Agent 0 won (1 votes won, 0 lost)." in done.stdout
    assert "round 3, Agent 2 failed: no <solution> in the text" in done.stdout


def test_the_table_of_a_reward_by_agent() -> None:
    """0 > 1 and 1 > 2 and 0 > 2 and 0 = 2: win rates 2.5/3, 1/2, 0.5/3, mean 1/2."""
    done = moot("score", "-", "--reward", "win_rate", given=line())
    rows = {row.split("  ")[0].strip(): row.split()[-3:] for row in done.stdout.splitlines() if "  " in row.strip()}
    assert rows["return"] == ["+0.833", "+0.500", "+0.167"]
    assert rows["advantage"] == ["+0.333", "+0.000", "-0.333"]
    assert "Agent 0 won (2 votes won, 0 lost)." in done.stdout


def test_a_debate_without_votes_has_no_winner() -> None:
    assert "No votes were cast: nobody won." in moot("score", "-", given=line([["", "", ""]])).stdout


def test_ties_are_votes() -> None:
    done = moot("score", "-", given=line([["", "", ""], ["1 = 2", "0 = 2", "0 = 1"]]))
    assert "No votes were cast" not in done.stdout


def test_those_who_are_level_are_not_credited_with_each_others_votes() -> None:
    """0 and 1 have one vote won and one lost, 2 and 3 none at all; all four rewards are 0."""
    done = moot("score", "-", given=line([[""] * 4, ["", "", "0 > 1", "1 > 0"]]))
    assert "1 votes won, 1 lost each" not in " ".join(done.stdout.split())


# JSON

STEPS = [
    "line", "votes", "lines_invalid", "missing_comparisons", "failures", "generator", "judge", "generator_advantages", "judge_advantages",
]  # fmt: skip
AGENTS = ["line", "valid", "malformed", "failures", "rewards", "returns", "advantages"]


def test_json_by_step() -> None:
    done = moot("score", "-", "--json", given=line([*FOUR_VOTES, ["", "", FAILED]]))
    found = json.loads(done.stdout)
    assert list(found) == STEPS
    assert found["votes"] == 3
    assert found["failures"] == [[3, 2, "no <solution> in the text"]]
    assert [len(row) for row in found["generator"]] == [3, 3, 3]
    assert found["generator"] == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, -1.0]]


@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
def test_json_by_agent(reward: str) -> None:
    done = moot("score", "-", "--json", "--reward", reward, given=line())
    found = json.loads(done.stdout)
    assert list(found) == AGENTS
    assert (found["valid"], found["malformed"], found["failures"]) == (4, 0, [])
    assert [len(found[key]) for key in AGENTS[-3:]] == [3, 3, 3]


def test_the_protocol_option_is_the_base_of_every_line() -> None:
    given = line() + "\n" + line(protocol={"literal": False}) + "\n"
    literal, plain = (
        json.loads(each)
        for each in moot("score", "-", "--json", "--protocol", "v2_literal", given=given).stdout.splitlines()
    )
    assert literal["generator"][0] == [1.0, -1.0]
    assert plain["generator"][0] == [1.0, 0.0]
    default = json.loads(moot("score", "-", "--json", given=line()).stdout)
    assert default == json.loads(moot("score", "-", "--json", "--protocol", "v2", given=line()).stdout)


# Bad lines

GOOD = json.loads(line())
BAD: list[tuple[str, str]] = [
    ("not json", "not JSON"),
    ("[1, 2]", "must be an object"),
    ("{}", "missing key"),
    (json.dumps({**GOOD, "extra": 1}), "unknown key extra"),
    (json.dumps({**GOOD, "question": 3}), "question must be a string"),
    (json.dumps({**GOOD, "num_agents": 0}), "num_agents must be at least 1, got 0"),
    (json.dumps({**GOOD, "num_agents": 2}), "turns[2].agent must be below num_agents 2, got 2"),
    (json.dumps({**GOOD, "turns": GOOD["turns"][::-1]}), "must not decrease"),
    (json.dumps({**GOOD, "turns": GOOD["turns"][:1] * 2}), "speaks twice"),
    (json.dumps({**GOOD, "turns": [{"round": 1, "agent": 0}]}), "round, agent and text"),
    (json.dumps({**GOOD, "answer": [7]}), "answer must be a string or a number"),
    (json.dumps({**GOOD, "protocol": {"schedule": "random"}}), "schedule must be sequential or parallel"),
    (json.dumps({**GOOD, "protocol": {"colour": "red"}}), "no choice 'colour'"),
    (json.dumps({**GOOD, "protocol": {"reward": "best"}}), "reward must be one of"),
    (
        json.dumps({**GOOD, "protocol": {"reward": "win_rate", "advantage": "center_round"}}),
        "center_round needs rewards per turn",
    ),
    (json.dumps({**GOOD, "protocol": {"reward": "truth"}}), "known answer"),
]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_every_kind_of_bad_line_is_reported_with_its_number_and_the_others_are_scored(
    tmp_path: Path, options: list[str]
) -> None:
    """Good and bad lines in turn, with a blank one after each pair: good ones are 1, 4, 7, ..., bad ones 2, 5, 8, ..."""
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(f"{line()}\n{bad}\n\n" for bad, _ in BAD))
    done = moot("score", path, *options)
    assert done.returncode == 1
    reports = done.stderr.splitlines()
    assert len(reports) == len(BAD)
    for number, (report, (_, says)) in enumerate(zip(reports, BAD, strict=True)):
        assert report.startswith(f"line {3 * number + 2}: ")
        assert says in report
    good = [3 * number + 1 for number in range(len(BAD))]
    if options:
        assert [json.loads(each)["line"] for each in done.stdout.splitlines()] == good
    else:
        assert [
            int(each.split()[1].rstrip(":")) for each in done.stdout.splitlines() if each.startswith("Line ")
        ] == good


def test_bytes_that_are_no_text_are_a_bad_line() -> None:
    done = moot("score", "-", "--json", given=b"\xff\xfe{}\n" + line().encode() + b"\n")
    assert done.returncode == 1
    assert done.stderr.startswith("line 1: ")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["line"] == 2


def test_what_other_programs_write_is_read() -> None:
    """A byte order mark, carriage returns, Unicode's own line separators inside a string, no line feed at the end."""
    odd = line().replace("What is", "What \u2028\u0085is")
    done = moot("score", "-", "--json", given="\ufeff" + odd + "\r\n\r\n" + line())
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(each)["line"] for each in done.stdout.splitlines()] == [1, 3]


def test_the_debates_of_a_run_are_sent_to_rescore(tmp_path: Path) -> None:
    (tmp_path / "run/debates").mkdir(parents=True)
    (tmp_path / "run/run.json").write_text("{}")
    (tmp_path / "run/debates/000001.jsonl").write_text("{}\n")
    for file in ("run", "run/debates/000001.jsonl"):
        done = moot("score", file, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{file} belongs to a run" in done.stderr and done.stderr.endswith("moot rescore run\n")


def test_several_debates_are_added_up_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "three.jsonl").write_text(f"{line()}\n{line()}\nnonsense\n")
    done = moot("score", tmp_path / "three.jsonl")
    total = done.stdout.splitlines()[-1]
    assert total.startswith("2 debates: ") and total.endswith("; 1 line could not be scored.")


def test_an_empty_file_is_nothing_to_score(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    done = moot("score", tmp_path / "empty.jsonl")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"moot: {tmp_path}/empty.jsonl holds no debates: there is nothing to score\n"


def test_a_report_is_one_line_whatever_is_in_it() -> None:
    """A key that spells a report of its own would otherwise be taken for one."""
    done = moot("score", "-", given=json.dumps({**GOOD, "a\nline 9: forged\r": 1}))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("line 1: ")


@pytest.mark.parametrize("num_agents", [10**12, 10**30])
def test_more_agents_than_memory_is_a_bad_line(num_agents: int) -> None:
    """In a process that may have two gigabytes, so that the test ends well either way."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    given = json.dumps({"question": "q", "num_agents": num_agents, "turns": []}) + "\n" + line() + "\n"
    done = subprocess.run(
        command("score", "-", "--json"),
        input=given.encode(),
        capture_output=True,
        env=surroundings(),
        preexec_fn=limit,
        timeout=120,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"line 1: ")
    assert json.loads(done.stdout)["line"] == 2


# Wrong usage


def test_wrong_usage_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(line())
    good = tmp_path / "good.jsonl"
    one_clear_line(moot("debate"), "no command 'debate'", "demo", "score")
    one_clear_line(moot("score"), "FILE", "moot score --help")
    one_clear_line(moot("score", good, "--nope"), "--nope", "moot score --help")
    one_clear_line(moot("score", good, good), "moot score --help")
    one_clear_line(moot("score", good, "--protocol", "v9"), "'v9'", "v2_literal")
    one_clear_line(moot("score", good, "--reward", "best"), "'best'", "win_rate")
    one_clear_line(moot("score", good, "--reward", "absent.py:f"), "there is no file absent.py")
    one_clear_line(moot("score", tmp_path / "absent.jsonl"), "absent.jsonl", "no such file")
    one_clear_line(moot("score", tmp_path), "is a directory")
    one_clear_line(moot("demo", "--debates", 0), "must be at least 1, got 0")
    one_clear_line(moot("demo", "--debates", "many"), "--debates", "'many'")
    one_clear_line(moot("demo", "--style", "rude"), "'rude'", "hostile")


# A user's own reward


def test_a_users_own_reward(tmp_path: Path) -> None:
    """Turns taken, doubled: 4 each."""
    (tmp_path / "mine.py").write_text(
        "def doubled(debate):\n    return [2 * len(steps) for steps in debate.turns_by_agent()]\n"
    )
    done = moot("score", "-", "--json", "--reward", f"{tmp_path}/mine.py:doubled", given=line())
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rewards"] == [4.0, 4.0, 4.0]
    relative = moot("score", "-", "--json", "--reward", "mine.py:doubled", given=line(), cwd=tmp_path)
    assert relative.stdout == done.stdout


def test_a_users_reward_by_step(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def rounds(debate):\n    return [[debate.turns[i].round for i in row] for row in debate.turns_by_agent()]\n"
    )
    done = moot("score", "-", "--json", "--reward", "mine.py:rounds", given=line(), cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["step"] == [[1.0, 2.0]] * 3
    assert found["step_advantages"] == [[-0.5, 0.5]] * 3


@pytest.mark.parametrize("key", ["reward", "advantage"])
def test_a_transcript_cannot_name_python_to_run(tmp_path: Path, key: str) -> None:
    (tmp_path / "evil.py").write_text(
        "import pathlib\npathlib.Path('was_here').touch()\n\ndef f(*a):\n    return [0, 0, 0]\n"
    )
    named = ["evil.py:f", f"{tmp_path}/evil.py:f", "evil:f", "os:system", "evil.py", "evil.f"]
    given = "\n".join(line(protocol={key: name}) for name in named)
    for options in ([], ["--json"], ["--protocol", "v1"]):
        done = moot("score", "-", *options, given=given, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.count("\n") == len(named)
        assert not (tmp_path / "was_here").exists()
    # Not even the file the user did name on the command line.
    (tmp_path / "mine.py").write_text("def f(debate):\n    return [0] * debate.num_agents\n")
    done = moot("score", "-", "--reward", "mine.py:f", given=line(protocol={"advantage": "mine.py:f"}), cwd=tmp_path)
    assert done.returncode == 1
