"""The remote engine: any server that speaks the Tinker API, through the `tinker` SDK.

Public names:

    RemoteEngine     the Trainer; `RemoteEngine.create(model=..., base_url=...)` connects, looks the server over and
                     makes one
    RemoteSampler    what `snapshot()` gives
    Findings         what the start-up checks found

How it is built, from the bottom:

    units.py     our datums to the SDK's, in such units that every server takes the same step
    calls.py     single calls, with what servers are particular about
    wire.py      what happens to a request on a bad line: what may be sent again, and what may not
    ledger.py    training calls in their order, and what to do when one is lost: restore the saved state and replay
    probe.py     what this server can do, asked with small questions rather than assumed
    engine.py    the verbs

Left out: images and sound, losses of the caller's own, tempered training.
"""

from moot.engine.remote.engine import RemoteEngine, RemoteSampler
from moot.engine.remote.probe import Findings

__all__ = ["Findings", "RemoteEngine", "RemoteSampler"]
