"""What the server refuses, and what it sends with every answer. Requests are put together by hand: a client would tidy them up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.paging import record, turn, write_run, write_step
from support.requesting import ask

pytest.importorskip("starlette")

from moot.debate.protocols import V2
from moot.page.rescoring import OF_CHECKS, offered
from moot.page.runs import Runs
from moot.page.server import STATIC, make_app
from moot.rl.alarms import ALARMS
from moot.rl.trust_help import PANEL


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        {"step": 1, "phase": "self_play", "x": 1.0, "alarm/random_noise": 1.0},
        {"step": 2, "phase": "self_play", "x": 2.0, "alarm/random_noise": 0.0},
        {"step": 2, "phase": "eval", "x": float("nan")},
    ]
    steps = {
        1: [record(question="One?"), record(turn(0), turn(1), turn(2, "half \ud800 pair"))],
        2: [record(question="Two?")],
    }
    return write_run(tmp_path / "runs" / "a run", steps, rows)


@pytest.fixture
def app(run: Path, tmp_path: Path) -> Any:
    return make_app(Runs([tmp_path / "runs"]), tmp_path / "cache")


# Who may ask


@pytest.mark.parametrize("host", ["localhost", "localhost:8717", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8717", "[::1]"])
def test_this_machine_s_own_names_are_answered(app: Any, host: str) -> None:
    assert ask(app, "/", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "example.com",
        "localhost.example.com",
        "example.com:8717",
        "127.0.0.1.example.com",
        "127.0.0.2",
        "0.0.0.0:8717",
        "169.254.169.254",
        "localhost:8717@example.com",
        "localhost:",
        "localhost:x",
        "[::1",
        "[::1]x",
        "::1",
        "localhost\nexample.com",
        "example.com\nlocalhost",
        "xn--localhost",
    ],
)
def test_any_other_name_in_host_is_refused(app: Any, host: str | None) -> None:
    for target in ("/", "/api/runs", "/static/main.js"):
        answer = ask(app, target, host=host)
        assert answer.status == 403 and b"answers only to localhost" in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PROPFIND"])
def test_it_can_only_be_looked_at(app: Any, method: str) -> None:
    answer = ask(app, "/api/runs", method)
    assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD"


def test_head_is_get_without_a_body_and_a_websocket_is_closed(app: Any) -> None:
    assert ask(app, "/api/runs", "HEAD").status == 200
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({"type": "websocket", "path": "/", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_another_site_may_link_here_and_not_read_from_here(app: Any) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(app, "/api/runs", sec_fetch_site=site, sec_fetch_mode="no-cors").status == 403
        assert ask(app, "/", sec_fetch_site=site, sec_fetch_mode="navigate").status == 200
    assert ask(app, "/api/runs", sec_fetch_site="same-origin", sec_fetch_mode="cors").status == 200


@pytest.mark.parametrize("target", ["/", "/api/runs", "/static/main.js", "/nowhere", "/api/debate?run=none"])
def test_every_answer_says_that_nothing_but_ours_may_run(app: Any, target: str) -> None:
    headers = ask(app, target).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert ask(app, target, host="example.com").headers["content-security-policy"] == policy


# Who knows the token


@pytest.mark.parametrize(
    "target", ["/", "/api/runs", "/api/debate?run=a%20run&debate=1.0", "/static/main.js", "/nowhere"]
)
@pytest.mark.parametrize(
    "cookie", ["", "moot-8717=", "moot-8717=wrong", "other=TOKEN", "moot-8717=TOKE", "moot-8717=\xe9", "=;=;"]
)
def test_whoever_does_not_know_the_token_is_told_where_it_stands(app: Any, target: str, cookie: str) -> None:
    cookie = cookie.replace("TOKEN", app.token).replace("TOKE", app.token[:-1])
    for given in ("", "token=wrong", "token=", "token=%E2%82%AC", "Token=" + app.token):
        answer = ask(app, f"{target}{'&' if '?' in target else '?'}{given}", cookie=cookie)
        assert answer.status == 403 and app.token not in str(answer.headers)
        assert b"open the address that moot view printed, with its token" in answer.body


def test_the_printed_address_is_exchanged_for_a_cookie_and_one_that_can_be_shown(app: Any) -> None:
    first = ask(app, f"/?view=debates&run=a%20run&token={app.token}", host="127.0.0.1:8719", cookie="")
    assert (first.status, first.headers["location"]) == (303, "/?view=debates&run=a+run")
    assert first.headers["set-cookie"] == f"moot-8719={app.token}; Path=/; HttpOnly; SameSite=Lax"
    assert ask(app, "/", cookie=f"theme=dark; moot-8718=another; moot-8719={app.token}").status == 200
    assert ask(app, f"/?token={app.token}", cookie="").headers["location"] == "/"


def test_a_program_may_send_the_token_with_every_question(app: Any) -> None:
    assert ask(app, f"/api/runs?token={app.token}", cookie="").json["runs"][0]["name"] == "a run"
    other = make_app(Runs([]), Path("nowhere"))
    assert len(app.token) >= 32 and other.token != app.token


# Where they may look


@pytest.mark.parametrize(
    "target",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "//etc/passwd",
        "/static//etc/passwd",
        "/static/",
        "/static",
        "/../../etc/passwd",
        "/static/..\\server.py",
        "/static/main.js%00.css",
        "/index.html",
        "/api/runs/",
        "/API/runs",
        "/static/main.js/",
    ],
)
def test_there_is_nothing_outside_what_is_served(app: Any, target: str) -> None:
    assert ask(app, target).status in (404, 307) and b"import" not in ask(app, target).body


@pytest.mark.parametrize(
    "name", ["..", "../secret", "a run/../../secret", "/etc", "%2e%2e", "a run/", "", ".", "a%20run%00"]
)
def test_a_run_is_named_not_reached(app: Any, tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "secret", {1: [record(question="Secret?")]})
    for what in ("debates", "debate", "config"):
        answer = ask(app, f"/api/{what}?run={name}&debate=1.0")
        assert answer.status == 404 and b"Secret" not in answer.body
    assert ask(app, f"/api/metrics?run={name}").json == {}


def test_a_link_inside_a_run_leads_nowhere(app: Any, run: Path, tmp_path: Path) -> None:
    secret = write_run(
        tmp_path / "secret", {1: [record(question="Secret?")]}, [{"step": 1, "phase": "self_play", "secret": 1}]
    )
    for name in ("debates/000001.jsonl", "debates/000001.npz", "metrics.jsonl", "run.json"):
        (run / name).unlink()
        (run / name).symlink_to(secret / name)
    for target in (
        "runs",
        "metrics?run=a%20run",
        "debates?run=a%20run",
        "debate?run=a%20run&debate=1.0",
        "config?run=a%20run",
        "rescore?run=a%20run",
    ):
        answer = ask(app, f"/api/{target}")
        assert b"Secret" not in answer.body and b"made up" not in answer.body
    assert ask(app, "/api/metrics?run=a%20run").json["a run"]["rows"] == 0


@pytest.mark.parametrize("step", ["-1", "1e3", "0x1", "1_0", "９", "../1", "1.1", "", "99999999999999999999"])
def test_a_place_is_two_whole_numbers(app: Any, step: str) -> None:
    answer = ask(app, f"/api/debate?run=a%20run&debate={step}.0")
    assert answer.status == 400 and "must be a whole number" in answer.json["error"]


# What they get


def test_half_a_surrogate_and_what_is_no_number_arrive_as_json(app: Any) -> None:
    answer = ask(app, "/api/debate?run=a%20run&debate=1.1")
    assert answer.body.isascii() and b"\\ud800" in answer.body
    assert answer.json["turns"][2]["answer"] == "half \ud800 pair"
    assert ask(app, "/api/metrics?run=a%20run").json["a run"]["phases"]["eval"]["x"]["n"] == 0
    assert ask(app, "/api/curves?run=a%20run&phase=eval&key=x").json == {"a run": {"x": [[2.0], [None]]}}


def test_numbers_that_are_none_do_not_break_an_answer(app: Any, run: Path) -> None:
    strange = record(rewards=[1, float("nan"), float("inf")], advantages=[1, float("nan"), 0])
    write_step(run, 3, [strange])
    answer = ask(app, "/api/debate?run=a%20run&debate=3.0")
    assert answer.status == 200 and answer.json["rewards"] == [1, None, None]


def test_a_list_comes_in_pages_with_its_counts_once(app: Any) -> None:
    first = ask(app, "/api/debates?run=a%20run&limit=2").json
    assert [(row["step"], row["number"]) for row in first["rows"]] == [(2, 0), (1, 0)]
    assert first["next"] == "1.0" and first["counts"]["debates"] == 3
    second = ask(app, f"/api/debates?run=a%20run&limit=2&after={first['next']}").json
    assert [(row["step"], row["number"]) for row in second["rows"]] == [(1, 1)]
    assert second["next"] is None and second["counts"] is None
    assert ask(app, "/api/debates?run=a%20run&limit=1&counts=no").json["counts"] is None


def test_an_alarm_chooses_the_steps_at_which_it_rang(app: Any) -> None:
    rows = ask(app, "/api/debates?run=a%20run&alarm=random_noise").json["rows"]
    assert [(row["step"], row["number"]) for row in rows] == [(1, 0), (1, 1)]
    answer = ask(app, "/api/debates?run=a%20run&alarm=fire")
    assert answer.status == 400 and "alarm must be any, degenerate_consensus" in answer.json["error"]


def test_a_debate_knows_its_neighbours_under_the_same_filters(app: Any) -> None:
    middle = ask(app, "/api/debate?run=a%20run&debate=1.0").json
    assert (middle["previous"], middle["next"], middle["alarms"]) == ("2.0", "1.1", ["alarm/random_noise"])
    alone = ask(app, "/api/debate?run=a%20run&debate=2.0&q=two").json
    assert (alone["previous"], alone["next"], alone["alarms"]) == (None, None, [])
    turned = ask(app, "/api/debate?run=a%20run&debate=1.1&sort=oldest").json
    assert (turned["previous"], turned["next"]) == ("1.0", "2.0")
    missing = ask(app, "/api/debate?run=a%20run&debate=9.0")
    assert missing.status == 404 and "a run has no debate 0 at step 9" in missing.json["error"]


# What if


def test_another_reward_counts_the_same_votes(app: Any, run: Path) -> None:
    answer = ask(app, "/api/rescore?run=a%20run&reward=truth").json
    assert answer["found"]["choices"] == {"reward": ["generator_judge", "truth"]}
    assert answer["found"]["before"]["debates"] == answer["found"]["after"]["debates"] == 3
    # In two of the three debates agent 0 alone is right, in the third nobody is: 2 of 9 answers.
    assert answer["found"]["after"]["reward_mean"] == pytest.approx(2 / 9)
    assert answer["steps"] == [1, 2] and answer["of"] == 2 and answer["trained"]["reward"] == "generator_judge"
    assert ask(app, "/api/rescore?run=a%20run&reward=truth&from=2").json["steps"] == [2, 2]
    assert ask(app, "/api/rescore?run=a%20run&from=9").json["found"] is None


def test_the_margin_and_the_checks_of_a_run_by_judges_are_chosen_again(tmp_path: Path) -> None:
    """Two checks each: 0.9 and 0.7, 0.4 and 0.2, 0.5 and 0.7. 2s - 1 is 0.6, -0.4 and 0.2; of the first checks alone 0.8,
    -0.2 and 0; and where 0.3 is the margin, 0.6, -0.4 and nothing."""
    values = [(0.9, 0.7), (0.4, 0.2), (0.5, 0.7)]
    checks = [
        {"turns": [turn], "judge": 0, "value": value, "by": "probability", "tokens": 7, "thinking": "Hm."}
        for turn, own in enumerate(values)
        for value in own
    ]
    protocol, told = {**V2.as_dict(), "reward": "approval:checks=2"}, [[0.6], [-0.4], [0.2]]
    rows = {"rewards": {"generator": told}, "advantages": {"generator": told}, "votes": [], "signal": True}
    saved = record(turn(0), turn(1), turn(2), protocol=protocol, checks=checks, max_rounds=1, **rows)
    run = write_run(tmp_path / "runs" / "judged", {1: [saved]}, [])
    header = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**header, "config": {**header["config"], "protocol": protocol}}))
    app = make_app(Runs([tmp_path / "runs"]), tmp_path / "cache")

    def counted(asked: str) -> tuple[Any, Any]:
        answer = ask(app, f"/api/rescore?run=judged{asked}")
        assert answer.status == 200, answer.json
        return answer.json["found"]["after"]["reward"], answer.json["found"]["after"]["reward_mean"]

    assert ask(app, "/api/rescore?run=judged").json["numbers"] == ["reward_mix", *OF_CHECKS]
    assert counted("") == ("approval:checks=2", pytest.approx(0.4 / 3))
    assert counted("&checks=1")[1] == pytest.approx(0.6 / 3)
    assert counted("&vote_margin=0.3")[1] == pytest.approx(0.2 / 3)
    assert counted("&reward=approved") == ("approved:checks=2,show=solution", pytest.approx(1 / 3))
    assert counted("&reward=approved&vote_margin=0")[1] == pytest.approx(2 / 3)
    assert counted("&reward=truth")[0] == "truth", "what has no checks takes no settings of them"
    for wrong in ("&checks=3", "&checks=x", "&vote_margin=2", "&reward=pairs", "&checks=1,show=answer"):
        assert ask(app, f"/api/rescore?run=judged{wrong}").status == 400


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("reward=evil.py:f", "reward must be one of win_rate"),
        ("advantage=evil.py:f", "advantage must be one of center_group"),
        ("literal=maybe", "literal must be one of yes, no"),
        ("reward_mix=nan", "reward_mix must be a number, got 'nan'"),
        ("reward_mix=2", "reward_mix must be between 0 and 1"),
        ("from=x", "from must be a whole number"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_by_name(app: Any, asked: str, complaint: str) -> None:
    answer = ask(app, f"/api/rescore?run=a%20run&{asked}")
    assert answer.status == 400 and complaint in answer.json["error"]


@pytest.mark.parametrize("name", ["reward", "advantage"])
def test_a_file_that_a_run_names_is_never_run(app: Any, run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(*_): return [0, 0, 0]\n")
    header = json.loads((run / "run.json").read_text())
    header["config"]["protocol"][name] = f"{tmp_path / 'evil.py'}:f"
    (run / "run.json").write_text(json.dumps(header))
    answer = ask(app, "/api/rescore?run=a%20run")
    assert answer.status == 400 and "which the page does not run" in answer.json["error"]
    assert ask(app, f"/api/rescore?run=a%20run&{name}={'truth' if name == 'reward' else 'center_group'}").status == 200
    assert not (tmp_path / "ran").exists()


def test_a_file_is_sent_once_and_then_only_asked_after(app: Any) -> None:
    first = ask(app, "/static/main.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = ask(app, "/static/main.js", if_none_match=first.headers["etag"])
    assert again.status == 304 and again.body == b""


def test_the_page_has_the_words_of_the_training_loop_and_a_name_for_each(app: Any) -> None:
    words = ask(app, "/api/words").json
    assert words["alarm/random_noise"] == vars(ALARMS["alarm/random_noise"])
    named = ask(app, "/static/glossary.js").body.decode()
    assert set(words) == {*PANEL, *ALARMS} and all(f'"{key}": {{' in named for key in PANEL)
    assert all(words[key]["name"] and words[key]["rings"] for key in ALARMS)


def test_the_page_asks_for_nothing_that_is_not_here(app: Any) -> None:
    """Every address in the page's own files is one of ours: no network is needed."""
    static = Path(__file__).resolve().parents[3] / "src" / "moot" / "page" / "static"
    page = (static / "index.html").read_text()
    import re

    for address in re.findall(r'(?:href|src)="([^"]+)"', page):
        assert address.startswith("/static/") and ask(app, address).status == 200
    for file in static.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', file.read_text()):
            assert ask(app, f"/static/{name}").status == 200
            assert f'href="/static/{name}"' in page  # fetched at once, not when its importer has been read
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org)|eval\(", file.read_text()
        )
    fonts = re.findall(r"url\(([^)]+)\)", (static / "vendor/katex/katex.min.css").read_text())
    assert len(fonts) == 20 and all(ask(app, f"/static/vendor/katex/{font}").status == 200 for font in fonts)


def test_every_choice_that_can_be_counted_again_has_a_label_on_the_page() -> None:
    labels = (STATIC / "rescore.js").read_text()
    assert [name for name in (*offered(), *OF_CHECKS) if f"  {name}: " not in labels] == []
