"""`moot rescore` and `moot export` as a user types them, on a run of the scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.cli.main import main
from support.making import moot

TRAIN = [
    "train", "--engine", "scripted", "--batch-size", "3", "--num-train-datapoints", "6", "--warm-questions", "2", "--eval-questions", "2",
    "--max-tokens", "2000",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "scripted"
    done = moot(*TRAIN, "--run", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_scoring_once_more_as_trained_changes_nothing(run: Path) -> None:
    done = moot("rescore", run)
    assert done.returncode == 0, done.stderr
    assert "Every advantage is as it was saved." in done.stdout
    assert "The winner changes in 0 of 6 debates (0.0%)." in done.stdout


def test_the_same_holds_with_parts_that_change_debates_and_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [
        "--closing-ballot", "--shuffle-labels", "--reward-mix", "0.5", "--judge", "base", "--advantage", "center_seat",
        "--with", "truth_schedule", "--with", "hard_agents:agents=4",
        "--with", "rounds_as_needed:stop_when_settled=yes,extra_rounds=1",
    ]  # fmt: skip
    assert main([*TRAIN, "--run", str(tmp_path / "run"), *parts]) == 0
    assert main(["rescore", str(tmp_path / "run")]) == 0
    assert "Every advantage is as it was saved." in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), "--supervised", "--preferences", "--html"]) == 0
    assert "Closing ballot" in (tmp_path / "run" / "export" / "debates.html").read_text()


def test_another_reward_as_a_table_as_json_and_as_markdown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def say(*options: str) -> str:
        assert main(["rescore", str(run), "--reward", "win_rate", *options]) == 0
        return capsys.readouterr().out

    people, page, found = say("--show", "1"), say("--markdown"), json.loads(say("--json"))
    assert found["choices"] == {"reward": ["generator_judge", "win_rate"]}
    assert found["after"]["debates"] == 6 and found["changed"] == len(found["changes"])
    assert f"The winner changes in {found['changed']} of 6 debates" in people
    assert "with reward win_rate for generator_judge" in " ".join(people.split())
    assert "| reward of an agent, mean |" in page


def test_a_preset_counts_votes_its_own_way(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(run), "--protocol", "v2_literal", "--lambda-judge", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["choices"] == {
        "one_ballot_per_pair": [True, False],
        "judge_consensus": ["leave_one_out", "all"],
        "lambda_judge": [1.0, 0.5],
        "literal": [False, True],
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--contract", "five_tag"],
            "contract cannot be changed afterwards: it decides which sections agents were asked to write",
        ),
        (["--no-personas"], "personas cannot be changed afterwards"),
        (["--history-rounds=2"], "history_rounds cannot be changed afterwards"),
        (["--reward", "applause"], "reward must be one of win_rate"),
        (["--steps", "7-9"], "steps 7-9 has no debates"),
        (["--steps", "many"], "steps must be a number or a range like 10-20, got 'many'"),
        (["--show", "-1"], "show must be 0 or more, got -1"),
        (["--flavour", "mint"], "--flavour"),
    ],
)
def test_rescore_refuses_in_one_line(
    run: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", str(run), *arguments]) == 2
    said = capsys.readouterr().err
    assert complaint in said and len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["rescore", "export"])
def test_what_is_not_a_run_or_is_of_a_newer_format_is_refused_in_one_line(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal() -> str:
        assert main([command, str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1
        return said

    assert "is not a run: it has no run.json" in refusal()
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "config": {}}))
    assert "is a run of format 2, and this moot reads format 1" in refusal()
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "config": {}}))
    assert "no debates yet" in refusal()


def test_everything_that_can_be_exported_is_and_is_not_written_twice(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    done = moot("export", run, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "scripted engine, which has no weights to export" in words
    for name in ("supervised.jsonl", "preferences.jsonl", "debates.html", "figures/curves.png", "figures/curves.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert f"{tmp_path / 'out' / 'debates.html'} 6 debates to read" in words
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err
    assert main(["export", str(run), "--html", "--out", str(tmp_path / "out"), "--force"]) == 0
    assert not (run / "export").exists()


def test_several_runs_are_for_figures_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["export", str(run), str(run), "--figures", "--out", str(tmp_path / "out")]) == 0
    assert "of 2 runs" in capsys.readouterr().out
    assert main(["export", str(run), str(run), "--html", "--out", str(tmp_path / "out")]) == 2
    assert "html takes one run, got 2" in capsys.readouterr().err
    assert main(["export", str(run), str(run), "--figures"]) == 2
    assert "several runs need --out" in capsys.readouterr().err
    assert main(["export"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_chosen_debates_go_into_the_page(run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), "--html", "--debates", "3/2", "2/0", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "debates.html").read_text()
    assert page.index("Debate 3/2") < page.index("Debate 2/0") and page.count("<article") == 2
