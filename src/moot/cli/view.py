"""`moot view`: the page over runs, on this machine and for whoever started it."""

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
from moot.errors import ConfigError
from moot.util.safe_text import counted

EXAMPLE = Path(__file__).parents[1] / "page" / "example"


@dataclass(frozen=True)
class View:
    """Look at runs in a browser: curves, alarms, and every debate with its votes and what each token was taught.

    The page is served to this machine alone and only reads; it follows runs that are being written. Stop it with
    Ctrl-C.
    The address that is printed holds a token: without it, nobody else on this machine sees anything.
    From elsewhere: ssh -L 8717:127.0.0.1:8717 HOST, then open the printed address.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN ...]")] = (Path("runs"),)
    """Runs, files of debates (what `moot demo` and `moot label` write, anything `moot score` reads), what `moot judge`
    wrote, or folders with any of them."""
    example: bool = False
    """Show a small run that comes with moot: 20 steps of SmolLM2 on arithmetic. Nothing needs to be trained first."""
    port: int = 8717
    """Port of the page. If it is taken, the next free one; with 0, any free one."""
    open: bool = False
    """Open it in the browser."""

    def run(self) -> int:
        try:
            from moot.page.index import cache_folder, tidy
            from moot.page.judging import Trials
            from moot.page.runs import Runs
            from moot.page.server import make_app
            from moot.page.serving import Server
            from moot.page.transcripts import Transcripts, read_debates
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the page needs {error.name}, which is not installed; run: pip install 'moot[view]'"
            ) from None
        if self.example and self.runs != (Path("runs"),):
            raise ConfigError("--example shows the run that comes with moot and no other; leave it out, or the runs")
        places = (EXAMPLE,) if self.example else self.runs
        for place in places:
            if not place.exists():
                raise ConfigError(f"{place}: there is no such folder; name a run, a folder of runs, or --example")
            if not place.is_dir() and (not place.is_file() or next(read_debates(place), None) is None):
                raise ConfigError(f"{place} is a file; name a run's folder, or a folder of runs")
        console = Terminal()
        # Ctrl-C is how one leaves; a closed terminal or TERM, like it, takes the scratch folder along.
        with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="moot-view-") as scratch:
            transcripts = Transcripts(places, Path(scratch))
            runs = Runs((*(place for place in places if place.is_dir()), Path(scratch)), transcripts.refresh)
            trials = Trials(places)
            judged = trials.reports()
            summaries = [run.summary() for run in runs.all().values()]
            cache = cache_folder(Path(scratch) / ".index")
            tidy(cache)
            listening, app = listen(self.port), make_app(runs, cache, trials)
            # The number, for a name may lead elsewhere: somebody else may listen on the same port of ::1.
            where = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={app.token}"

            def ready() -> None:
                judges = f", {counted(len(judged), 'measurement')} of judges" if judged else ""
                known = f"{counted(len(summaries), 'run')}{judges}. New ones turn up by themselves."
                console.say(known if summaries or judged else _NONE)
                for summary in summaries:
                    if summary["trouble"]:
                        console.say(f"{summary['name']}: {summary['trouble']}", "yellow")
                for name, report in judged.items():
                    if report and "trouble" in report:
                        console.say(f"{name}: {report['trouble']}", "yellow")
                console.say(f"Look at them: {where}   (Ctrl-C stops)", "green")
                if self.open:
                    webbrowser.open(where)

            Server(app, ready).run(sockets=[listening])
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
    raise ConfigError(
        f"port {port} and the 19 after it are taken or not allowed; name another with --port, or any with --port 0"
    )
