"""Training calls in their order, and what to do when one is lost.

The server applies calls in the order they were made, and most of the time that is all. When a call fails, or nobody can
tell whether it was applied, the model on the server is in doubt: its gradient may lack a part, or hold one twice. Then
it is given up. A new one is made from the last saved state, and every call since then is made again, in order. So each
call counts once, whatever the line did; the caller, who waits for a result, only waits longer.

The ledger therefore keeps the calls since the last saved state. The training loop saves at each step, so that is one
step's datums.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from moot.engine.handover import LoopThread
from moot.engine.pending import Pending, settle
from moot.engine.protocol import in_words
from moot.engine.remote.wire import UNCERTAIN, pause
from moot.errors import EngineError

T = TypeVar("T")
Given = TypeVar("Given")
Work = Callable[[Given], Coroutine[Any, Any, Any]]

Send = Callable[[Any], Awaitable[Any]]
"""Takes the SDK's training client, makes the call at once and answers with what to wait for."""
CLOSED = "the remote engine is closed"
MOST_REPLAYS = 12
"""In a row, without a single call going through in between."""
SAME_FAULT = 3
"""A call that fails so often in the same words is at fault itself."""


@dataclass(eq=False)
class Call:
    name: str
    send: Send
    lasting: bool
    """Changes weights or gradient, and so is made again after a restore."""
    saved_at: Callable[[Any], str] | None = None
    """For a call after which the server holds a saved state equal to the model's: from its result to the path."""
    future: Future[Any] = field(default_factory=Future)
    task: asyncio.Task[Any] | None = None
    faults: list[str] = field(default_factory=list)


class ReplayLog:
    """The thread in which everything remote happens. `connect` gives a training client, restored from a path."""

    def __init__(self, connect: Work[str | None], discard: Work[Any], timeout_s: float) -> None:
        self._connect, self._discard, self.timeout_s = connect, discard, timeout_s
        self._log: list[Call] = []
        self._saved: str | None = None
        self.client: Any = None
        self.generation = 0
        self._replays_in_a_row = 0
        self._broken: str | None = None
        self.replays = 0
        self._thread = LoopThread("moot-remote")
        self._ready = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        """A task of the ledger's own: a call or a sampler that finds the model gone may be cancelled, and all the
        others wait for it."""

    # For the engine, from any thread

    @property
    def closed(self) -> bool:
        return self._thread.closed

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """In the ledger's thread, outside the order of calls. Not cancelled with whoever waits for it."""
        return self._thread.run(work)

    def start(self, client: Any, saved: str | None) -> None:
        """From here on calls are made to this client, whose state is the saved one."""

        async def begin() -> None:
            self.client, self._saved = client, saved
            self._ready.set()

        self.run(begin()).result()

    def call(
        self, name: str, send: Send, *, lasting: bool, saved_at: Callable[[Any], str] | None = None
    ) -> Pending[Any]:
        if self._broken:
            raise EngineError(self._broken)
        made = Call(name, send, lasting, saved_at)
        self._thread.post(partial(self._enter, made), made.future)
        return Pending(made.future)

    def close(self) -> None:
        """What is not done fails. May be called twice."""

        async def farewell() -> None:
            self._abandon_tasks()
            if self.client is not None:
                await asyncio.wait_for(self._discard(self.client), self.timeout_s)

        self._thread.close(farewell, CLOSED, "the remote engine was closed before this was done")

    # In the ledger's thread

    async def renew(self, reason: str, generation: int) -> None:
        """The model is gone, says a sampler. Nothing is done if it was renewed since."""
        if generation == self.generation and self._ready.is_set():
            self._recover(reason)
        await self._ready.wait()
        if self._broken:
            raise EngineError(self._broken)

    def _enter(self, call: Call) -> None:
        """Gives it its place. While a model is brought back, it is made with the replay."""
        if self._broken:
            settle(call.future, EngineError(self._broken))
            return
        self._log.append(call)
        if self._ready.is_set():
            self._submit(call)

    def _submit(self, call: Call) -> None:
        try:
            answer = call.send(self.client)
        except Exception as error:  # it did not leave this machine
            self._forget(call, EngineError(f"{call.name} could not be sent: {in_words(error)}"))
            return
        call.task = asyncio.create_task(self._watch(call, self.generation, answer))
        if asyncio.iscoroutine(answer):
            call.task.add_done_callback(lambda _: answer.close())  # for one that is cancelled before its first step

    async def _watch(self, call: Call, generation: int, answer: Awaitable[Any]) -> None:
        reason = ""
        try:
            value = await asyncio.wait_for(answer, self.timeout_s)
        except TimeoutError:
            reason = f"no result within {self.timeout_s:.0f} s"
        except asyncio.CancelledError:
            if generation != self.generation:
                raise
            reason = "the SDK cancelled it"  # nobody here did
        except Exception as error:  # the SDK raises many kinds; each means that the call is in doubt
            reason = in_words(error)
        if generation != self.generation:
            return  # given up for a replay, which settles the call
        if reason:
            await self._failed(call, reason)
        else:
            self._replays_in_a_row = 0
            settle(call.future, value)
            self._cut()

    def _cut(self) -> None:
        """Forgets what a saved state holds, up to the first call that is not answered yet."""
        done = 0
        for number, call in enumerate(self._log):
            if not call.future.done():
                break
            if call.saved_at is not None and call.future.exception() is None:
                done, self._saved = number + 1, call.saved_at(call.future.result())
        del self._log[:done]

    async def _failed(self, call: Call, reason: str) -> None:
        call.faults.append(reason)
        if len(call.faults) > MOST_REPLAYS:
            self._give_up(f"{call.name}: {reason}")
            return
        latest = [_plain(fault) for fault in call.faults[-SAME_FAULT:]]
        if len(latest) == SAME_FAULT and len(set(latest)) == 1 and str(UNCERTAIN) not in reason:
            self._forget(call, EngineError(f"{call.name} failed: {reason}"))
            if call.lasting:
                self._recover(reason)
            return
        later = self._log[self._log.index(call) + 1 :] if call in self._log else []
        if not call.lasting and not any(other.lasting for other in later):
            # It changed nothing and nothing has changed since: it can simply be made again.
            generation = self.generation
            await asyncio.sleep(pause(len(call.faults)))
            if generation == self.generation:
                self._submit(call)
            return
        self._recover(f"{call.name}: {reason}")

    def _forget(self, call: Call, error: Exception) -> None:
        if call in self._log:
            self._log.remove(call)
        settle(call.future, error)

    def _recover(self, reason: str) -> None:
        """A new model from the saved state, and all calls since then again."""
        if self._broken:
            return
        self._abandon_tasks()
        self._ready.clear()
        self._replays_in_a_row += 1
        old, self.client = self.client, None
        self._recovery = asyncio.create_task(self._restore(old, reason))
        self._recovery.add_done_callback(self._recovered)

    def _abandon_tasks(self) -> None:
        self.generation += 1
        for call in self._log:
            if call.task is not None and call.task is not asyncio.current_task():
                call.task.cancel()

    async def _restore(self, old: Any, reason: str) -> None:
        while self._replays_in_a_row <= MOST_REPLAYS:
            try:
                async with asyncio.timeout(self.timeout_s):
                    if old is not None:
                        gone, old = old, None
                        await self._discard(gone)
                    client = await self._connect(self._saved)
                break
            except (Exception, asyncio.CancelledError) as error:
                # The server may be down for a while, and the SDK cancel what it began.
                if self.closed:
                    raise
                reason = in_words(error)
                self._replays_in_a_row += 1
                await asyncio.sleep(pause(self._replays_in_a_row))
        else:
            self._give_up(reason)
            return
        self.replays += 1
        self.client = client
        for call in list(self._log):
            if call.lasting or not call.future.done():
                self._submit(call)
        self._ready.set()

    def _recovered(self, recovery: asyncio.Task[None]) -> None:
        """Whatever it came to, nobody goes on waiting for it."""
        if recovery is self._recovery and not self._ready.is_set() and not self.closed:
            error = asyncio.CancelledError("it was cancelled") if recovery.cancelled() else recovery.exception()
            self._give_up(in_words(error or EngineError("no reason")))

    def _give_up(self, reason: str) -> None:
        where = f"; its last saved state is {self._saved}" if self._saved else ""
        self._broken = f"the server could not be brought back after {MOST_REPLAYS} tries ({reason}){where}"
        for call in self._log:
            settle(call.future, EngineError(self._broken))
        self._ready.set()


def _plain(reason: str) -> str:
    """Without the numbers of requests and models, which differ each time."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", reason)
