"""What `bench/gpu.py` measures of others, in a process of its own per model: vLLM samples, peft trains. As gpu_measure.py.

python bench/gpu_peers.py vllm|peft OPTIONS    as JSON: the options of bench/gpu.py, and `model`
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from typing import Any

import numpy as np
from gpu_measure import (
    AGENTS,
    CHECK_TOKENS,
    CHECKS,
    END,
    ITERATION_AGENTS,
    ROUNDS,
    SHAPES,
    heard,
    random_model,
    say,
    to_judge,
)  # fmt: skip

PEFT_TOKENS = 60_000
"""Of an iteration's datums, trained with peft to know its rate: all of them would take minutes."""


def vllm(args: argparse.Namespace) -> None:
    from vllm import LLM, SamplingParams

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path, options = args.model, {}
        if args.model in SHAPES:
            from transformers import AutoConfig

            shape = dict(SHAPES[args.model])
            config = AutoConfig.for_model(shape.pop("model_type"), **shape)
            config.architectures = [f"{config.model_type.capitalize()}ForCausalLM"]
            config.save_pretrained(folder)
            path, options = folder, {"load_format": "dummy"}
        start = time.perf_counter()
        # It captures steps of 51 sizes by itself, which takes a while; all sizes that are sampled here are among these.
        rows = {questions * AGENTS for questions in args.debates} | {
            questions * ITERATION_AGENTS for questions in args.iterations
        }
        rows |= {answers * CHECKS for answers in args.judged}
        sizes = sorted(
            size for size in {8, 16, 32, 64, 96, 128, 256, *args.sequences, *rows} if size <= max(args.sequences)
        )
        llm = LLM(
            path, dtype="bfloat16", skip_tokenizer_init=True, max_num_seqs=max(args.sequences),
            max_model_len=args.prompt + END + ROUNDS * (ITERATION_AGENTS * args.tokens + END) + CHECK_TOKENS + 16,
            enable_prefix_caching=True,
            gpu_memory_utilization=0.6, seed=0, compilation_config={"cudagraph_capture_sizes": sizes}, **options,
        )  # fmt: skip
        say("vllm loaded", seconds=time.perf_counter() - start)
        vocabulary = llm.llm_engine.model_config.get_vocab_size()
        for count in args.sequences:
            for tokens in (8, args.tokens):
                prompts = [
                    {"prompt_token_ids": row} for row in random.integers(0, vocabulary, (count, args.prompt)).tolist()
                ]
                params = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
                begin = time.perf_counter()
                llm.generate(prompts, params, use_tqdm=False)
                seconds = time.perf_counter() - begin
            say("vllm", sequences=count, seconds=seconds, rate=count * args.tokens / seconds)
        params = SamplingParams(temperature=1.0, max_tokens=args.tokens, ignore_eos=True, detokenize=False)
        for kind, agents, questions in [("vllm debate", AGENTS, q) for q in args.debates] + [
            ("vllm iteration", ITERATION_AGENTS, q) for q in args.iterations
        ]:
            prompts = [random.integers(0, vocabulary, args.prompt).tolist() for _ in range(questions * agents)]
            seconds = 0.0
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                outs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
                seconds += time.perf_counter() - begin
                turns = [list(out.outputs[0].token_ids) for out in outs]
                prompts = [
                    prompt + turn + heard(random, args, vocabulary, agents)
                    for prompt, turn in zip(prompts, turns, strict=True)
                ]
            say(kind, questions=questions, seconds=seconds, rate=questions * agents * ROUNDS * args.tokens / seconds)
        for answers in args.judged:
            for tokens in (8, CHECK_TOKENS):
                params = SamplingParams(n=CHECKS, temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
                llm.reset_prefix_cache()  # what the round before left would be found, which a judge's prompts never are
                prompts = [{"prompt_token_ids": prompt} for prompt in to_judge(args, vocabulary, answers)]
                begin = time.perf_counter()
                llm.generate(prompts, params, use_tqdm=False)
                seconds = time.perf_counter() - begin
            say("vllm judging", answers=answers, seconds=seconds, rate=answers * CHECKS * CHECK_TOKENS / seconds)


def peft(args: argparse.Namespace) -> None:
    """Plain datums through transformers and peft: packed in batches of equal length, so nothing is padded."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    device = torch.device("cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if args.model in SHAPES:
        model = random_model(args.model, device, dtype).model
    else:
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype, attn_implementation="sdpa").to(device)
    wrapped: Any = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    trained = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)

    def step(rows: int, length: int, batch: int) -> float:
        tokens = torch.randint(0, model.config.vocab_size, (rows, length + 1), device=device)
        begin = time.perf_counter()
        for part in tokens.split(batch):
            logits = wrapped(input_ids=part[:, :-1], use_cache=False).logits
            torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), part[:, 1:].flatten(), reduction="sum"
            ).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    for count in args.datums:
        batch = max(1, min(count, 8192 // args.datum_tokens))
        step(batch, args.datum_tokens, batch)
        seconds = step(count, args.datum_tokens, batch)
        say("peft", datums=count, tokens=args.datum_tokens, rate=count * args.datum_tokens / seconds)
    for questions in args.iterations:
        agents = ITERATION_AGENTS
        length = args.prompt + END + ROUNDS * args.tokens + (ROUNDS - 1) * ((agents - 1) * args.tokens + END)
        sequences = questions * agents
        count = min(sequences, max(2, PEFT_TOKENS // length))
        step(2, length, 2)
        seconds = step(count, length, 2)
        say(
            "peft iteration",
            questions=questions,
            seconds=seconds * sequences / count,
            timed=count,
            sequences=sequences,
            length=length,
        )


if __name__ == "__main__":
    options = argparse.Namespace(**json.loads(sys.argv[2]))
    {"vllm": vllm, "peft": peft}[sys.argv[1]](options)
