"""`moot view` as a user types it: where it listens, how it ends, what it says when something is off."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from moot.cli.view import EXAMPLE, listen
from moot.errors import ConfigError
from support.browsing import serving
from support.making import moot, surroundings
from support.paging import record, write_run


def test_help_says_what_it_shows_and_to_whom() -> None:
    done = moot("view", "--help")
    words = " ".join(done.stdout.replace("│", " ").split())
    assert done.returncode == 0 and "served to this machine alone and only reads" in words
    assert "--port" in words and "--open" in words


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "nowhere: there is no such folder; name a run, a folder of runs, or --example"),
        (
            ["nowhere", "--example"],
            "--example shows the run that comes with moot and no other; leave it out, or the runs",
        ),
        ([], "runs: there is no such folder; name a run, a folder of runs, or --example"),
        (["notes.txt"], "notes.txt is a file; name a run's folder, or a folder of runs"),
        ([".", "--port", "70000"], "port must be between 0 and 65535, got 70000; 8717 is usual"),
    ],
)
def test_a_wrong_value_gets_one_line_that_names_it(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    done = moot("view", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr == f"moot: {complaint}\n"


def test_a_missing_package_is_named_with_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'starlette'\", name='starlette')"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = moot("view", tmp_path, environment={"PYTHONPATH": path})
    assert (
        done.returncode == 2
        and "the page needs starlette, which is not installed; run: pip install 'moot[view]'" in done.stderr
    )


def test_the_example_needs_no_run_and_is_left_as_it_was(tmp_path: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in EXAMPLE.rglob("*")}

    before = state()
    with serving("--example", cache=tmp_path / "cache") as address:
        page, _, token = address.partition("?")
        for question in ("runs?", "trust?run=example&", "debate?run=example&debate=20.0&", "about?run=example&"):
            with urlopen(f"{page}api/{question}{token}") as answer:
                assert answer.status == 200
    assert state() == before


def test_it_listens_on_this_machine_alone_and_moves_on_where_a_port_is_taken() -> None:
    with listen(0) as first:
        address, port = first.getsockname()
        assert address == "127.0.0.1"
        if port < 65000:
            with listen(port) as second:
                assert port < second.getsockname()[1] < port + 20
    with pytest.raises(ConfigError, match="port must be between"):
        listen(-1)


@pytest.mark.slow
def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", {1: [record()]})
    command = [sys.executable, "-u", "-m", "moot", "view", "--port", "0"]
    environment = surroundings({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "1 run. New ones turn up by themselves.\n"
        assert "http://127.0.0.1:" in server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.stdout.read() == ""
        assert server.wait(20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_takes_the_scratch_folder_along(tmp_path: Path, number: signal.Signals) -> None:
    write_run(tmp_path / "runs" / "a", {1: [record()]})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-u", "-m", "moot", "view", "--port", "0"]
    environment = surroundings({"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(scratch)})
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        assert [server.stdout.readline() for _ in range(2)][1].startswith("Look at them: ")
        assert [each.name.startswith("moot-view-") for each in scratch.iterdir()] == [True]
        server.send_signal(number)
        assert server.stdout.read() == "" and server.wait(30) == 0
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        ("GET / HTTP/1.1", "localhost", b"403"),
        ("GET /api/runs HTTP/1.1", "localhost", b"403"),
        ("GET /?TOKEN HTTP/1.1", "localhost", b"303"),
        ("GET /api/runs?TOKEN HTTP/1.1", "localhost", b"200"),
        ("GET /static/../../../../../../etc/passwd?TOKEN HTTP/1.1", "localhost", b"404"),
        ("GET /static/..%2f..%2f..%2fetc/passwd?TOKEN HTTP/1.1", "localhost", b"404"),
        ("GET http://example.com/ HTTP/1.1", "example.com", b"403"),
        ("GET / HTTP/1.1", "example.com", b"403"),
        ("GET / HTTP/1.0", "", b"403"),
        ("POST /api/runs HTTP/1.1", "localhost", b"405"),
        ("DELETE / HTTP/1.1", "localhost", b"405"),
        ("nonsense", "localhost", b"400"),
    ],
)
def test_what_comes_over_the_wire_is_refused_as_it_should_be(
    tmp_path: Path, request_line: str, host: str, status: bytes
) -> None:
    run = write_run(tmp_path / "a", {1: [record()]})
    with serving(run, cache=tmp_path / "cache") as url:
        port, request_line = urlsplit(url).port, request_line.replace("TOKEN", urlsplit(url).query)
        with socket.create_connection(("127.0.0.1", port), 10) as wire:
            wire.sendall(
                f"{request_line}\r\n{f'Host: {host}' if host else 'X: y'}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b""
            while part := wire.recv(65536):
                answer += part
        assert answer.split(b" ")[1] == status and b"root:" not in answer


@pytest.mark.slow
def test_another_machine_cannot_reach_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; only asks which address it would send from
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = probe.getsockname()[0]
    run = write_run(tmp_path / "a", {1: [record()]})
    with serving(run, cache=tmp_path / "cache") as url, pytest.raises(OSError):
        socket.create_connection((own, urlsplit(url).port), 5)
