"""Run inside an environment with TRL: loads both exported sets as its trainers want them, and takes one step on each.

python trl_one_step.py SETS MODEL SCRATCH      prints one JSON object
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

sets, model, scratch = map(Path, sys.argv[1:4])
told: dict[str, Any] = {}
for name, trainer_kind, config_kind in (("supervised", SFTTrainer, SFTConfig), ("preferences", DPOTrainer, DPOConfig)):
    rows = load_dataset("json", data_files=str(sets / f"{name}.jsonl"), split="train", cache_dir=str(scratch / "cache"))
    network, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    config = config_kind(
        output_dir=str(scratch / name), max_steps=1, per_device_train_batch_size=2, learning_rate=1e-3, report_to=[], use_cpu=True,
        bf16=False, save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = trainer_kind(model=network, args=config, train_dataset=rows, processing_class=tokenizer)
    done = trainer.train()
    seen = trainer.train_dataset[0]
    if name == "supervised":
        parts = {"all": seen["input_ids"], "trained": [label for label in seen["labels"] if label != -100]}
    else:
        parts = {key.removesuffix("_ids"): ids for key, ids in seen.items() if key.endswith("_ids")}
    told[name] = {
        "rows": rows.to_list(),
        "prepared": len(trainer.train_dataset),
        "loss": done.training_loss,
        "moved": any(not torch.equal(before[key], value) for key, value in trainer.model.state_dict().items()),
        "first": {key: tokenizer.decode(ids) for key, ids in parts.items()},
    }
print("TOLD " + json.dumps(told))
