"""A small server that speaks the Tinker API in JSON: exact, deterministic, standard library and numpy.

Its model is a table: the logits of the next token are a row for the token before it, fixed at random, plus a trained part that starts
at 0. So gradients can be written down, and every answer depends on weights, request and seed alone. What real servers differ in is an
option: how losses are added up, whether gradients are clipped, whether samplers keep their weights, whether requests are numbered.

    cd tests && python -m support.simulated_server --port 8124 --latency 0.05
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.simulated_model import Failed, Manners, Model, Table

JSON = "application/json"


@dataclass
class Server:
    manners: Manners = field(default_factory=Manners)
    models: dict[str, Model] = field(default_factory=dict)
    states: dict[str, Model] = field(default_factory=dict)
    samplers: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    sessions: dict[str, str | None] = field(default_factory=dict)
    results: dict[str, tuple[float, int, Any]] = field(default_factory=dict)
    seen: dict[Any, dict[str, Any]] = field(default_factory=dict)
    applied: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Every forward_backward and optim_step, with its model, when it began and when it ended: what was really done."""
    count: int = 0

    def __post_init__(self) -> None:
        self.table = Table(self.manners)

    def restart(self) -> None:
        """As a process that died and came back: saved states stay, all else is gone."""
        self.models.clear()
        self.sessions.clear()
        self.results.clear()

    def sample(self, body: dict[str, Any]) -> dict[str, Any]:
        path = self.sessions.get(body["sampling_session_id"], "?")
        if path == "?":
            raise Failed(404, "Sampling session not found")
        if path is None:
            trained = np.zeros_like(self.table.fixed)
        else:
            owner, trained = self.samplers[path]
            if owner not in self.models:
                raise Failed(400, f"Model {owner} not loaded")
            if not self.manners.frozen_samplers:
                model = self.models[owner]
                if model.loaded != path:
                    model.loaded, model.trained = path, trained.copy()
                trained = model.trained
        prompt = [t for chunk in body["prompt"]["chunks"] for t in chunk["tokens"]]
        given, sequences = body["sampling_params"], []
        stop = given.get("stop") or []
        kinds = {"strings" if isinstance(each, str) else "ids" for each in stop}
        if not kinds <= set(self.manners.stops):
            raise Failed(422, f"stop must be {self.manners.stops}")
        for number in range(body.get("num_samples") or 1):
            chance = np.random.default_rng([(given.get("seed") or 0) + number, len(prompt)])
            sequences.append(self.table.say(trained, prompt, given, chance))
        answer: dict[str, Any] = {"sequences": sequences, "type": "sample"}
        if body.get("prompt_logprobs"):
            rows = self.table.rows(trained, prompt[:-1])
            answer["prompt_logprobs"] = [None, *rows[np.arange(len(prompt) - 1), prompt[1:]].tolist()]
            if top := body.get("topk_prompt_logprobs"):
                best = np.argsort(-rows, axis=1)[:, :top].tolist()
                told = [
                    [(token, float(row[token])) for token in of_row] for row, of_row in zip(rows, best, strict=True)
                ]
                answer["topk_prompt_logprobs"] = [None, *told]
        return answer

    # -- the protocol -----------------------------------------------------------------------------------------------------------------

    def later(self, work: Callable[[], Any]) -> dict[str, Any]:
        """Done now, told after the latency."""
        self.count += 1
        number = str(self.count)
        try:
            status, answer = 200, work()
        except Failed as error:
            status, answer = error.status, {"detail": error.detail}
        self.results[number] = (time.monotonic() + self.manners.latency_s, status, answer)
        return {"future_id": number, "request_id": number, "status": "pending"}

    def _model(self, body: dict[str, Any]) -> Model:
        if body["model_id"] not in self.models:
            raise Failed(400, f"Model {body['model_id']} not loaded")
        return self.models[body["model_id"]]

    def _once(self, name: str, body: dict[str, Any], work: Callable[[], Any]) -> dict[str, Any]:
        key = (name, body["model_id"], body.get("seq_id"))
        if self.manners.numbered and key in self.seen:
            return self.seen[key]

        def noted() -> Any:
            began = time.monotonic()
            answer = work()
            self.applied.append((name, body["model_id"], began, time.monotonic()))
            return answer

        self.seen[key] = self.later(noted)
        return self.seen[key]

    def answer(self, path: str, body: Any) -> Any:
        match path.removeprefix("/api/v1/"):
            case "healthz":
                return {"status": "ok"}
            case "client/config":
                return {"pjwt_auth_enabled": False}
            case "create_session":
                self.count += 1
                self.sessions[f"session-{self.count}"] = None
                return {"session_id": f"session-{self.count}", "type": "create_session"}
            case "session_heartbeat":
                return {"type": "session_heartbeat"}
            case "get_server_capabilities":
                about = {"model_name": "table", **({"max_context_length": 4096} if self.manners.tells_context else {})}
                return {"supported_models": [about]}
            case "create_model":
                if body["session_id"] not in self.sessions:
                    raise Failed(404, "Session not found")
                name = f"model-{self.count + 1}"
                nothing = np.zeros_like(self.table.fixed)

                def make() -> dict[str, Any]:
                    self.models[name] = Model(nothing.copy(), nothing.copy(), nothing.copy())
                    return {"model_id": name, "type": "create_model"}

                return self.later(make)
            case "unload_model":
                self.models.pop(body["model_id"], None)
                return self.later(lambda: {"model_id": body["model_id"], "type": "unload_model"})
            case "forward":
                return self.later(
                    lambda: self.table.model_pass(body["forward_input"], self._model(body), backward=False)
                )
            case "forward_backward" as name:
                return self._once(
                    name,
                    body,
                    lambda: self.table.model_pass(body["forward_backward_input"], self._model(body), backward=True),
                )
            case "optim_step" as name:
                return self._once(name, body, lambda: self.table.step(self._model(body), body["adam_params"]))
            case "save_weights":
                path = f"tinker://{body['model_id']}/weights/{body['path']}"
                if path in self.states:
                    raise Failed(409, "already exists")

                def save() -> dict[str, Any]:
                    now = self._model(body)
                    self.states[path] = Model(now.trained.copy(), now.first.copy(), now.second.copy(), now.steps)
                    return {"path": path, "type": "save_weights"}

                return self.later(save)
            case "load_weights":

                def load() -> dict[str, Any]:
                    if body["path"] not in self.states:
                        raise Failed(404, f"Checkpoint not found: {body['path']}")
                    saved, now = self.states[body["path"]], self._model(body)
                    now.trained, now.first, now.second, now.steps = (
                        saved.trained.copy(),
                        saved.first.copy(),
                        saved.second.copy(),
                        saved.steps,
                    )
                    if not body.get("optimizer"):
                        now.first, now.second, now.steps = np.zeros_like(now.first), np.zeros_like(now.second), 0
                    return {"path": body["path"], "type": "load_weights"}

                return self.later(load)
            case "save_weights_for_sampler":
                unnamed = body.get("path") is None  # a sampling session is wanted, and no file
                path = f"tinker://{body['model_id']}/sampler_weights/{f'unnamed-{self.count}' if unnamed else body['path']}"
                if path in self.samplers:
                    raise Failed(409, "already exists")

                def keep() -> dict[str, Any]:
                    self.samplers[path] = (body["model_id"], self._model(body).trained.copy())
                    if unnamed:
                        self.sessions[path] = path
                    return {
                        "path": None if unnamed else path,
                        "sampling_session_id": path,
                        "type": "save_weights_for_sampler",
                    }

                return self.later(keep)
            case "create_sampling_session":
                if body["session_id"] not in self.sessions:
                    raise Failed(404, "Session not found")
                self.count += 1
                self.sessions[f"sampling-{self.count}"] = body.get("model_path")
                return {"sampling_session_id": f"sampling-{self.count}", "type": "create_sampling_session"}
            case "asample":
                names = [f"sequence-{self.count + 1}-{number}" for number in range(body.get("num_samples") or 1)]
                return {**self.later(lambda: self.sample(body)), "sample_sequence_ids": names}
            case "applied":
                return self.applied
            case "telemetry":
                return {"status": "accepted"}
        raise Failed(404, f"no such place: {path}")

    async def respond(self, path: str, raw: bytes, kind: str, accepted: str) -> tuple[int, bytes, str]:
        """Status, body, and its kind."""
        if "protobuf" in kind:
            if not self.manners.protobuf:
                return 500, b"Internal Server Error", "text/plain"
            from support.simulated_proto import read_model_pass

            name, body = read_model_pass(raw)
            path = f"/api/v1/{name}"
        else:
            body = json.loads(raw) if raw else {}
        try:
            if path.endswith("/retrieve_future"):
                if body["request_id"] not in self.results:
                    raise Failed(404, "Future not found")
                due, status, found = self.results[body["request_id"]]
                if (left := due - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                if "protobuf" in accepted and self.manners.protobuf and status == 200:
                    from support.simulated_proto import write_result

                    if (packed := write_result(found)) is not None:
                        return 200, packed, "application/x-protobuf"
                return status, json.dumps(found).encode(), JSON
            return 200, json.dumps(self.answer(path, body)).encode(), JSON
        except Failed as error:
            return error.status, json.dumps({"detail": error.detail}).encode(), JSON

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                status, content, kind = await self.respond(
                    head[0].split(" ")[1].partition("?")[0],
                    raw,
                    headers.get("content-type", ""),
                    headers.get("accept", ""),
                )
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def start(server: Server, port: int = 0) -> tuple[asyncio.Server, int]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port, limit=1 << 26, backlog=4096)
    return listening, int(listening.sockets[0].getsockname()[1])


@contextlib.contextmanager
def serving(server: Server, faults: float = 0.0, seed: int = 0, **options: Any) -> Iterator[tuple[str, Any]]:
    """In a thread of its own, behind a bad line if wanted: the address, and the proxy or None."""
    from support.fault_proxy import FaultProxy, end_all_tasks

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> tuple[int, Any]:
        _, port = await start(server)
        if not faults:
            return port, None
        proxy = FaultProxy(port, faults, seed, **options)
        return await proxy.start(), proxy

    port, proxy = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield f"http://127.0.0.1:{port}", proxy
    finally:
        asyncio.run_coroutine_threadsafe(end_all_tasks(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--canned", help="a JSON file: a list of turns, each a list of token ids")
    given = parser.parse_args()
    canned: tuple[tuple[int, ...], ...] = ()
    if given.canned:
        with open(given.canned) as file:  # noqa: PTH123, ASYNC230
            canned = tuple(map(tuple, json.load(file)))
    listening, port = await start(
        Server(Manners(vocabulary=given.vocabulary, latency_s=given.latency, canned=canned)), given.port
    )
    print(port, flush=True)
    async with listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
