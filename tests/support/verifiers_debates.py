"""What verifiers makes of moot's debates, in an environment of its own: `test_integrations.py` compares it with moot's own.

Its own episodes, agents, renderer and traces; only the inference server is scripted. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import verifiers.v1 as vf
from aiohttp import web

from moot.debate.types import Message
from moot.integrations.hosted import rendering_of
from support.hosted_model import QUESTIONS, SETTINGS, documented, reply


class Server:
    """What prime-rl's trainer talks to: tokens in, tokens and logprobs out."""

    def __init__(self, folder: str) -> None:
        self.folder, self.refuses = folder, False

    async def generate(self, request: web.Request) -> web.Response:
        if self.refuses:
            return web.json_response({"error": {"message": "the server is gone"}}, status=500)
        tokens, logprobs, reason = reply(self.folder, (await request.json())["token_ids"])
        content = [
            {"token": f"token_id:{token}", "logprob": logprob} for token, logprob in zip(tokens, logprobs, strict=True)
        ]
        return web.json_response(
            {"choices": [{"token_ids": tokens, "finish_reason": reason, "logprobs": {"content": content}}]}
        )

    async def chat(self, request: web.Request) -> web.Response:
        rendering = rendering_of(self.folder, "qwen3")
        messages = [Message(each["role"], each["content"]) for each in (await request.json())["messages"]]
        tokens, _, reason = reply(self.folder, rendering.prompt(messages).tolist())
        said, _ = rendering.said(np.asarray(tokens, dtype=np.int32))
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": reason}
        return web.json_response(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}
        )

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/inference/v1/generate", self.generate)
        app.router.add_post("/v1/chat/completions", self.chat)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def environment(name: str, folder: str = "") -> Any:
    setting = SETTINGS[name]
    settings = {
        "taskset": {"id": "moot-debate", "questions": setting.task, "count": QUESTIONS},
        "protocol": setting.protocol, "choices": dict(setting.choices), "tokenizer": folder, "renderer": "qwen3",
    }  # fmt: skip
    return vf.load_environment(vf.resolve_env_config(settings))


def context(folder: str, url: str) -> vf.ModelContext:
    renderer = {"name": "qwen3", "enable_thinking": False, "thinking_retention": "all"}
    client = vf.TrainClientConfig(base_url=url, api_key_var="NO_KEY", renderer=renderer, renderer_model_name=folder)
    return vf.ModelContext(model="scripted", client=client)


async def as_documented(url: str) -> dict[str, Any]:
    """The page's command against the scripted server, and its configuration read."""
    (command,) = documented("verifiers", "sh")
    arguments = shlex.split(command.replace("\\\n", " ").replace("http://localhost:8000/v1", url))
    arguments[0] = str(Path(sys.executable).with_name(arguments[0]))
    with tempfile.TemporaryDirectory() as out:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            "--no-rich",
            "-o",
            out,
            "--run.name",
            "run",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()[-2000:]
        episodes = [json.loads(line) for line in (Path(out) / "run" / "traces.jsonl").read_text().splitlines()]
    (settings,) = documented("verifiers", "toml")
    (source,) = tomllib.loads(settings)["orchestrator"]["train"]["source"]
    rewards = {
        each["task"]["data"]["idx"]: {
            t["task"]["data"]["seat"]: t["rewards"]["debate"]["score"] for t in each["traces"]
        }
        for each in episodes
    }
    return {
        "rewards": [[rewards[idx][seat] for seat in range(3)] for idx in range(len(rewards))],
        "configured": vf.resolve_env_config(source["env"]).model_dump(mode="json")["choices"],
    }


def as_lists(trace: Any) -> dict[str, Any]:
    return {
        "seat": trace.task.data.seat,
        "reward": trace.reward,
        "metrics": trace.metrics,
        "branches": [
            {
                "token_ids": each.token_ids,
                "mask": each.sampled_mask,
                "logprobs": each.logprobs,
                "advantages": each.advantages,
            }
            for each in trace.branches
        ],
    }


async def main(folder: str) -> dict[str, Any]:
    server = Server(folder)
    runner, url = await server.start()
    found: dict[str, Any] = {}
    try:
        for name in SETTINGS:
            env = environment(name, folder)
            async with env.serving():
                episodes = [await env.run_episode(task, context(folder, url)) for task in env.taskset]
            assert all(each.ok for each in episodes), [each.errors for each in episodes]
            # As it goes over the wire to a trainer.
            episodes = [vf.WireEpisode.model_validate(each.model_dump(mode="python")) for each in episodes]
            found[name] = [[as_lists(trace) for trace in each.traces] for each in episodes]
        env = environment("per turn")
        task = next(iter(env.taskset))
        async with env.serving():
            plain = await env.run_episode(task, context(folder, url))
            found["without a tokenizer"] = [as_lists(trace) for trace in plain.traces]
            server.refuses = True
            lost = await env.run_episode(task, context(folder, url))
            found["lost"] = {"ok": lost.ok, "errors": [each.message for each in lost.errors]}
        server.refuses = False
        found["documented"] = await as_documented(url)
    finally:
        await runner.cleanup()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
