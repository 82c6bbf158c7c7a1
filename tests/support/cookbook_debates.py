"""What the tinker-cookbook makes of moot's debates, in an environment of its own: `test_integrations.py` compares it with moot's own.

Its own rollouts, advantages and datums; only the model is scripted. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import chz
import tinker
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl import train
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout

from moot.integrations.cookbook_env import DebateDatasetBuilder
from moot.integrations.hosted import rendering_of
from support.hosted_model import QUESTIONS, SETTINGS, documented, reply
from support.making import text
from support.simulated_server import Manners, Server, serving


class Policy(TokenCompleter):
    def __init__(self, folder: str, fails_at: int = -1) -> None:
        self.folder, self.calls, self.fails_at = folder, 0, fails_at

    async def __call__(
        self, model_input: tinker.ModelInput, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        self.calls += 1
        if self.calls == self.fails_at:
            raise ConnectionError("the server is gone")
        tokens, logprobs, reason = reply(self.folder, model_input.to_ints())
        assert (tokens[-1] in stop) == (reason == "stop")
        return TokensWithLogprobs(tokens, logprobs, reason)


def as_lists(datum: tinker.Datum) -> dict[str, Any]:
    inputs = {name: values.to_torch().tolist() for name, values in datum.loss_fn_inputs.items()}
    return {"tokens": datum.model_input.to_ints(), "targets": inputs.pop("target_tokens"), **inputs}


async def debates(folder: str, name: str) -> list[dict[str, Any]]:
    setting = SETTINGS[name]
    builder = DebateDatasetBuilder(
        model_name=folder, renderer="qwen3", num_batches=1, batch_size=QUESTIONS,
        protocol=setting.protocol, choices=dict(setting.choices),
    )  # fmt: skip
    training, held_out = await builder()
    assert (len(training), len(held_out or ())) == (1, -(-64 // QUESTIONS))
    found = []
    for each in training.get_batch(0):
        group_builder: Any = pickle.loads(pickle.dumps(each))
        group = await do_group_rollout(group_builder, Policy(folder))
        data, _ = assemble_training_data([group], compute_advantages([group]))
        found.append(
            {
                "seats": group.get_total_rewards(),
                "turns": [[transition.reward for transition in each.transitions] for each in group.trajectories_G],
                "metrics": group.metrics_G,
                "host": [as_lists(datum) for datum in data],
                "moot": [as_lists(datum) for datum in group_builder.datums(group)],
            }
        )
    return found


async def failures(folder: str) -> dict[str, str]:
    """A seat whose sampling fails ends the whole group, whatever the strategy, and nobody waits for it."""
    training, _ = await DebateDatasetBuilder(model_name=folder, renderer="qwen3", num_batches=1, batch_size=1)()
    said = {}
    for name, strategy in (("fail fast", None), ("retry", RetryOnFailure(max_retries=3))):
        (builder,) = training.get_batch(0)
        try:
            await do_group_rollout(builder, Policy(folder, fails_at=5), strategy=strategy)
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
        group = await do_group_rollout(builder, Policy(folder))  # the builder can be used again
        assert len(group.trajectories_G) == 3
    return said


async def as_documented(folder: str) -> dict[str, Any]:
    """The page's examples, with the scripted model's tokenizer: what its loop would be trained on."""
    names: dict[str, Any] = {"__name__": "docs"}
    for block in documented("cookbook", "python"):
        block = block.replace("Qwen/Qwen3-8B", folder).replace(
            'task="arithmetic"', 'task="arithmetic", renderer="qwen3"'
        )
        exec(compile(block, "docs/integrations.md", "exec"), names)
    training, _ = await names["config"].dataset_builder()
    data = await names["batch"](training.get_batch(0)[:QUESTIONS], Policy(folder))
    trained = await as_trained(names["config"], folder)
    return {"batches": len(training), "datums": [as_lists(datum) for datum in data], **trained}


async def as_trained(config: train.Config, folder: str) -> dict[str, Any]:
    """Two steps of the cookbook's own loop, against a server that says one of three turns."""
    tokenizer: Any = rendering_of(folder, "qwen3").tokenizer
    turns = [text(f"Agent {one} > Agent {other}", f"\\boxed{{{one}}}") for one, other in ((0, 1), (1, 2), (2, 0))]
    canned = tuple((*tokenizer.encode(said, add_special_tokens=False), tokenizer.eos_token_id) for said in turns)
    server = Server(Manners(protobuf=True, numbered=True, vocabulary=len(tokenizer), canned=canned))
    with serving(server) as (url, _), tempfile.TemporaryDirectory() as logs:
        await train.main(chz.replace(config, base_url=url, log_path=logs, max_steps=2, eval_every=0, save_every=0))
        steps = [json.loads(line) for line in (Path(logs) / "metrics.jsonl").read_text().splitlines()]
    return {"steps": steps, "applied": [name for name, *_ in server.applied]}


async def main(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: await debates(folder, name) for name in SETTINGS}
    return {**found, "failures": await failures(folder), "documented": await as_documented(folder)}


if __name__ == "__main__":
    os.environ["TINKER_API_KEY"] = "tml-test"
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
