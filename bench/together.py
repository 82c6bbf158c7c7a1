"""Runs started together on one GPU: do all of them end well?

    python bench/together.py --model FOLDER                20 runs of 3 steps each, on arithmetic
    python bench/together.py --model FOLDER --runs 2 --questions 4 --max-tokens 16

Nobody is told how much memory to take. The last run is in float32, for its agreement of sampler and trainer (`optim/kl_sample_train_v2`).
Ends with status 1 if a run did.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--questions", type=int, default=48, help="of each run, 16 per step")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of them")
    parser.add_argument("--out", default="together.json")
    args = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        processes = [start(args, Path(folder), number) for number in range(args.runs)]
        results = []
        for number, process in enumerate(processes):
            try:
                code = process.wait(max(0.1, args.limit - (time.perf_counter() - begin)))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            results.append({"run": number, "status": code, **told(Path(folder), number)})
            print(
                f"run {number}: status {code}, {results[-1]['steps']} steps, KL {results[-1]['kl']}, {results[-1]['last']}",
                flush=True,
            )
    Path(args.out).write_text(json.dumps(results, indent=1) + "\n")
    died = sum(result["status"] != 0 for result in results)
    print(
        f"{len(results) - died} of {len(results)} runs ended well in {time.perf_counter() - begin:.0f} s; written to {args.out}"
    )
    sys.exit(1 if died else 0)


def start(args: argparse.Namespace, folder: Path, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "moot", "train", "--preset", "easy", "--model", args.model, "--task", "arithmetic"]
    command += ["--sections", "asked", "--no-personas", "--num-agents", "5", "--max-rounds", "2", "--batch-size", "16"]
    command += [
        "--max-tokens",
        str(args.max_tokens),
        "--num-train-datapoints",
        str(args.questions),
        "--learning-rate",
        "1e-4",
    ]
    command += ["--eval-every", "0", "--save-every", "0", "--warm-questions", "0", "--seed", str(number)]
    command += ["--dtype", "fp32"] if number == args.runs - 1 else []
    log = (folder / f"{number}.log").open("wb")
    return subprocess.Popen([*command, "--run", str(folder / str(number))], stdout=log, stderr=subprocess.STDOUT)


def told(folder: Path, number: int) -> dict[str, object]:
    lines = [line for line in (folder / f"{number}.log").read_text(errors="replace").splitlines() if line.strip()]
    metrics = folder / str(number) / "metrics.jsonl"
    steps = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    found = [step["optim/kl_sample_train_v2"] for step in steps if "optim/kl_sample_train_v2" in step]
    return {"steps": len(found), "kl": max(found, default=None), "last": lines[-1][:200] if lines else ""}


if __name__ == "__main__":
    main()
