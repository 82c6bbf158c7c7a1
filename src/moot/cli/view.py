"""`moot view`: the page over runs, on this machine only."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from moot.cli.console import Terminal
from moot.debate.types import ConfigError
from moot.terminal import counted


@dataclass(frozen=True)
class View:
    """Look at runs in a browser: curves, alarms, and every debate with its votes and what each token was taught.

    The page is served to this machine alone and only reads; it follows runs that are being written. Stop it with Ctrl-C.
    From elsewhere: ssh -L 8717:localhost:8717 HOST, then open http://localhost:8717.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN ...]")] = (Path("runs"),)
    """Runs, files of debates (what `moot demo` and `moot ask` write, anything `moot score` reads), or folders with either."""
    port: int = 8717
    """Port of the page. If it is taken, the next free one; with 0, any free one."""
    open: bool = False
    """Open it in the browser."""

    def run(self) -> int:
        try:
            import uvicorn

            from moot.page.index import cache_folder, tidy
            from moot.page.runs import Runs
            from moot.page.server import make_app
            from moot.page.transcripts import Transcripts, read_debates
        except ModuleNotFoundError as error:
            raise ConfigError(f"the page needs {error.name}, which is not installed; run: pip install 'moot[view]'") from None
        for place in self.runs:
            if not place.exists():
                raise ConfigError(f"{place}: there is no such folder; name a run, or a folder of runs")
            if place.is_file() and next(read_debates(place), None) is None:
                raise ConfigError(f"{place} is a file; name a run's folder, or a folder of runs")
        made = tempfile.TemporaryDirectory(prefix="moot-view-")
        transcripts = Transcripts(self.runs, Path(made.name))
        runs = Runs((*(place for place in self.runs if place.is_dir()), Path(made.name)), transcripts.refresh)
        count = len(runs.all())
        cache = cache_folder()
        tidy(cache)
        listening = listen(self.port)
        where = f"http://localhost:{listening.getsockname()[1]}/"
        console = Terminal()
        open_it = self.open

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                """Said once the server answers, and leaves quietly on Ctrl-C: whoever reads the address may use it, or stop at once."""
                await super().startup(sockets=sockets)
                console.say(f"{counted(count, 'run')}. New ones turn up by themselves." if count else _NONE)
                console.say(f"Look at them: {where}   (Ctrl-C stops)", "green")
                if open_it:
                    webbrowser.open(where)

        server = Server(uvicorn.Config(make_app(runs, cache), log_level="error", access_log=False, server_header=False, lifespan="off"))
        with made, contextlib.suppress(KeyboardInterrupt):  # which is how one leaves
            server.run(sockets=[listening])
        return 0


_NONE = "No run here yet (a run is a folder with a run.json). It will turn up when it is made."


def listen(port: int) -> socket.socket:
    """Loopback only. A taken port is somebody's page already: take one of the next."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port must be between 0 and 65535, got {port}; 8717 is usual")
    for candidate in range(port, min(port + 20, 65536)) if port else [0]:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", candidate))
            listening.listen(128)
        except OSError:
            listening.close()
            continue
        return listening
    raise ConfigError(f"port {port} and the 19 after it are taken or not allowed; name another with --port, or any with --port 0")
