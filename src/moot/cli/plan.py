"""`moot train --dry-run`: what a run would cost, before it costs anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from moot.cli.console import Terminal
from moot.engine.memory_estimate import GIB, PASS_TOKENS
from moot.players.create import local_place
from moot.players.untrusted import is_code, scoring_names
from moot.rl.cost import TYPICAL_TURN, checks_per_step, expected_tokens, memory_gib
from moot.settings.rate import rate_settings
from moot.settings.train import TrainConfig
from moot.tasks import load as load_task
from moot.training.part import Part
from moot.training.parts import find_parts
from moot.training.parts.judge_filter import JudgeFilter
from moot.training.parts.judge_training import JudgeTraining
from moot.util.safe_text import counted

NOT_LOADED = " (code, not loaded)"


def show_plan(config: TrainConfig, path: Path, console: Terminal) -> None:
    tokens, d, o = expected_tokens(config), config.debate, config.optim
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("run", str(path))
    table.add_row(
        "model", f"{config.model.model} on the {config.model.engine} engine, LoRA rank {config.model.lora_rank}"
    )
    table.add_row("task", d.task + (NOT_LOADED if is_code(d.task) else ""))
    rules, scoring = config.protocol.rules, config.protocol.scoring
    kind = f"{rules.schedule}, {rules.contract}, sections {rules.sections}"
    longest = f"{'turns' if rules.sections == 'sampled' else 'solutions'} of at most {d.max_tokens} tokens"
    table.add_row("debates", f"{d.num_agents} agents, {counted(d.max_rounds, 'round')}, {kind}, {longest}")
    own = NOT_LOADED if scoring_names(scoring) else ""
    table.add_row("reward", f"{scoring.reward}, advantages by {scoring.estimator}{own}")
    if config.start:
        table.add_row("from", f"the weights of {config.start}, with a fresh optimizer")
    shape = rate_settings(config.parts).shape
    if config.warm_steps:
        table.add_row("warm start", f"{config.warm_questions} labelled questions, {config.warm_steps} optimizer steps")
    judge = judge_plan(config)
    for row in judge.rows:
        table.add_row(*row)
    budget, per_step = config.recipe.max_sampled_tokens, tokens["sampled"] + judge.per_step
    steps = min(config.iterations, max(1, -(-(budget - judge.first) // per_step))) if budget else config.iterations
    about = "about " if steps < config.iterations else ""
    table.add_row(
        "self-play",
        f"{about}{steps:,} steps of {o.batch_size} questions, learning rate {o.learning_rate:g} {shape}",
    )
    turn = min(d.max_tokens, TYPICAL_TURN)
    table.add_row(
        "tokens per step",
        ", ".join(f"{tokens[k]:,} {k}" for k in ("sampled", "read", "trained on")) + f" (turns of {turn})",
    )
    judged = judge.first + judge.per_step * steps
    table.add_row(
        "tokens in all",
        f"{tokens['sampled'] * steps + judged:,} sampled, {tokens['trained on'] * steps:,} trained on"
        + (f"; of the sampled at most {judged:,} by the judge" if judged else ""),
    )
    table.add_row(
        "longest sequence",
        f"about {tokens['longest']:,} tokens, at most {d.max_rounds * d.max_tokens * d.num_agents + 2000:,}",
    )
    if config.model.engine == "local":
        table.add_row(*memory_row(config))
    console.print(table)
    console.say("Nothing was started: this was a dry run.")


@dataclass(frozen=True)
class JudgePlan:
    """What a judge without a seat who checks answers samples at most."""

    per_step: int = 0
    first: int = 0
    """Before self-play."""
    rows: tuple[tuple[str, str], ...] = ()


def judge_plan(config: TrainConfig) -> JudgePlan:
    parts = find_parts(config, users=False)
    thinking, name, checks = config.debate.evaluation_tokens, config.outside_judge, 0
    rule, task = config.protocol.scoring.rule, config.debate.task
    of_each_rule = " for each rule" if rule.each_rule and is_code(task) else ""
    if rule.checked:
        known = rule.each_rule and not of_each_rule
        loaded = load_task(task, config.seed, config.eval_questions) if known else None
        checks = checks_per_step(config, len(loaded.rules_of(loaded.train(0))) if loaded else 1)
    first, later, rows = 0, 0.0, list[tuple[str, str]]()
    for part in parts:
        name = part.name if type(part).judge is not Part.judge else name
        if isinstance(part, JudgeFilter):
            checks += config.optim.batch_size * part.settings.checks
        if isinstance(part, JudgeTraining):
            own = part.settings
            # Measured before any step and after the last, and then after each `renewed` further ones.
            first = (own.steps * own.exercises + (1 + bool(own.steps)) * own.held_out) * own.checks * thinking
            later = (own.exercises + own.held_out / own.renewed) * own.checks / own.every if own.every else 0.0
            found = "answers to judge apart, where the task makes no exercises"
            told = f"{counted(own.steps, 'step')} of {own.exercises} answers × {own.checks} checks before self-play"
            rows.append(("judge learns", f"{told}, at most {first:,} tokens ({found})"))
    per_step = round((checks + later) * thinking)
    if checks:
        asked = f"{checks:,} checks{of_each_rule} of at most {thinking} tokens per step"
        rows.insert(0, ("judge", f"{name}, {asked}: {checks * thinking:,} in all"))
    return JudgePlan(per_step, first, tuple(rows))


def memory_row(config: TrainConfig) -> tuple[str, str]:
    """For the device that was asked for: this machine's where it has it, else a GPU that is large enough."""
    place = local_place(config.model)
    if place is not None and place.device == "cpu" and config.model.device != "cpu":
        place = None  # who plans on a laptop wants to know about the GPU
    memory = memory_gib(config, place)
    if memory is None:
        return (
            "memory",
            "unknown: the model's configuration is neither on this machine nor to be had from the hub; --model FOLDER "
            "names one",
        )
    *parts, (_, whole) = memory.items()
    free = ""
    if place is not None and place.free is not None:
        has = place.free / GIB
        free = f" of {has:.1f} that are free" if whole <= has else f", more than the {has:.1f} that are free"
    told = f"{whole:.1f} GiB{free}: " + ", ".join(f"{value:.1f} {name}" for name, value in parts)
    if place is None:
        more = (
            "" if config.model.token_budget else f"; passes shrink to {PASS_TOKENS[1]:,} tokens where that does not fit"
        )
        return "memory on a GPU", told + more
    if place.device == "cpu":
        return "memory on this CPU", told + "; the program's own, and freed memory that it keeps, come on top"
    return "memory on this GPU", told
