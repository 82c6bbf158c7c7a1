"""`moot train --dry-run`: what a run would cost, before it costs anything."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from moot.cli.console import Terminal
from moot.engine.create import local_place
from moot.engine.footprint import GIB, PASS_TOKENS, Place
from moot.rl.config import TrainConfig
from moot.rl.cost import TYPICAL_TURN, expected_tokens, memory_gib
from moot.terminal import counted


def show_plan(config: TrainConfig, path: Path, console: Terminal) -> None:
    tokens, d, o = expected_tokens(config), config.debate, config.optim
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("run", str(path))
    table.add_row("model", f"{config.model.model} on the {config.model.engine} engine, LoRA rank {config.model.lora_rank}")
    table.add_row("task", d.task)
    rules, scoring = config.protocol.rules, config.protocol.scoring
    kind = f"{rules.schedule}, {rules.contract}, sections {rules.sections}"
    longest = f"{'turns' if rules.sections == 'sampled' else 'solutions'} of at most {d.max_tokens} tokens"
    table.add_row("debates", f"{d.num_agents} agents, {counted(d.max_rounds, 'round')}, {kind}, {longest}")
    table.add_row("reward", f"{scoring.reward}, advantages by {scoring.estimator}")
    if config.warm_steps:
        taken = f", taken over from {config.warm.warm_from}" if config.warm.warm_from else ""
        table.add_row("warm start", f"{config.warm.warm_questions} labelled questions, {config.warm_steps} optimizer steps{taken}")
    budget = config.recipe.max_sampled_tokens
    steps = min(config.iterations, -(-budget // tokens["sampled"])) if budget else config.iterations
    about = "about " if steps < config.iterations else ""
    table.add_row("self-play", f"{about}{steps:,} steps of {o.batch_size} questions, learning rate {o.learning_rate:g} {o.lr_schedule}")
    turn = min(d.max_tokens, TYPICAL_TURN)
    table.add_row("tokens per step", ", ".join(f"{tokens[k]:,} {k}" for k in ("sampled", "read", "trained on")) + f" (turns of {turn})")
    table.add_row("tokens in all", f"{tokens['sampled'] * steps:,} sampled, {tokens['trained on'] * steps:,} trained on")
    table.add_row("longest sequence", f"about {tokens['longest']:,} tokens, at most {d.max_rounds * d.max_tokens * d.num_agents + 2000:,}")
    if config.model.engine == "local":
        for where, told in memory_rows(config):
            table.add_row(where, told)
    console.print(table)
    console.say("Nothing was started: this was a dry run.")


def memory_rows(config: TrainConfig) -> list[tuple[str, str]]:
    """For this machine; and for a GPU where it has none, unless the CPU was asked for."""
    here, rows = local_place(config.model), []
    places: list[Place | None] = [here] if here else []
    if here is None or (here.device == "cpu" and config.model.device != "cpu"):
        places = [*places, None]
    for place in places:
        where = "memory on a GPU" if place is None else f"memory on this {'CPU' if place.device == 'cpu' else 'GPU'}"
        memory = memory_gib(config, place)
        if memory is None:
            return [("memory", "unknown: the model's configuration is not at hand")]
        *parts, (_, whole) = memory.items()
        free = f" of {place.free / GIB:.1f} that are free" if place and place.free is not None else ""
        told = f"{whole:.1f} GiB{free}: " + ", ".join(f"{value:.1f} {name}" for name, value in parts)
        if place is None and not config.model.token_budget:
            told += f"; passes shrink to {PASS_TOKENS[1]:,} tokens where that does not fit"
        rows.append((where, told))
    return rows
