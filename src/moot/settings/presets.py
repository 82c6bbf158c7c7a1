"""The usual settings of a run, by name: one for a laptop, and both sources' published ones."""

from __future__ import annotations

from dataclasses import replace

from moot.debate.protocols import PRESETS as PROTOCOLS
from moot.debate.protocols import V2
from moot.debate.typed_fields import near
from moot.errors import ConfigError
from moot.settings.train import DebateConfig, ModelConfig, OptimConfig, RecipeConfig, TrainConfig

_PEOPLE = V2.with_choices(evaluation_credit="judge", sections="asked", personas=False)
"""For presets that follow no source to the letter. An evaluation is what a judge thinks before it votes: paid with the
answer's reward, its
tokens would be pushed at random. Each section is asked for by itself, so that a debate begins where the plain question
leaves off; without
personas all seats are one policy, and any of them is a baseline for the others."""

_MATH = TrainConfig(
    protocol=_PEOPLE,
    model=ModelConfig(model="Qwen/Qwen3-8B"),
    debate=DebateConfig(task="math", max_rounds=3, max_tokens=768),
    optim=OptimConfig(batch_size=16, learning_rate=3e-5, num_train_datapoints=1024),
    parts=("lr_schedule:warmup=5",),
)

_EASY = replace(
    _MATH,
    debate=replace(_MATH.debate, task="gsm8k", max_rounds=2),
    optim=replace(_MATH.optim, batch_size=32, learning_rate=5e-5),
)


def _measured(reward: str) -> TrainConfig:
    """What docs/experiment.md measured: 32 steps, as its runs had 30 to 33."""
    return replace(
        _EASY,
        protocol=_PEOPLE.with_choices(reward=reward, temperature=0.8),
        model=ModelConfig(model="Qwen/Qwen2.5-Coder-1.5B-Instruct"),
        debate=replace(_EASY.debate, num_agents=8, max_rounds=1, max_tokens=512),
        optim=replace(_EASY.optim, learning_rate=8e-5),
    )


def _votes() -> TrainConfig:
    """The arm `rules` of docs/experiment.md's fifth experiment."""
    measured = _measured("approved:checks=2,rules=least,vote_margin=0.2,show=answer")
    return replace(
        measured,
        debate=replace(measured.debate, task="countdown", evaluation_tokens=160),
        optim=replace(measured.optim, batch_size=16, learning_rate=1.6e-4),
        parts=(
            "lr_schedule:warmup=2",
            "judge_training:reward=planted,steps=20,exercises=64,checks=2,held_out=64,weight=1.5",
        ),
    )


PRESETS: dict[str, TrainConfig] = {
    # SmolLM2 on two cores: short turns, small batches. The warm start is so short that it shows the form without
    # teaching it, and self-play
    # then moves valid turns and votes. A longer one leaves nothing to move that a model of this size can learn in
    # minutes.
    "demo": TrainConfig(
        protocol=_PEOPLE.with_choices(judge_consensus="leave_one_out"),
        debate=DebateConfig(num_agents=4, max_rounds=2, max_tokens=64, evaluation_tokens=32),
        optim=OptimConfig(batch_size=4, num_train_datapoints=20, learning_rate=2e-4),
        warm_questions=4,
        parts=("warm_start:batch_size=2,learning_rate=5e-4",),
        eval_every=5,
        eval_questions=8,
        save_every=5,
    ),
    "majority": _measured("majority"),
    "votes": _votes(),
    "truth": _measured("truth"),
    "math": _MATH,
    "easy": _EASY,
    "hard": replace(
        _MATH,
        protocol=_PEOPLE.with_choices(lambda_gen=0.5, lambda_judge=1.5),
        debate=replace(_MATH.debate, num_agents=5),
        warm_questions=1536,
    ),
    "v1": replace(
        _MATH,
        protocol=PROTOCOLS["v1"],
        debate=replace(_MATH.debate, task="arithmetic", max_tokens=8196),
        parts=(),
    ),
    # The second source's advice for when AIME alone does not work, chained: warm start, easy to hard, truth mixed in
    # and faded out.
    "aime": replace(
        _MATH,
        protocol=_PEOPLE.with_choices(judge_consensus="leave_one_out", closing_ballot=True, reward_mix=0.3),
        debate=replace(_MATH.debate, task="aime24", num_agents=5, max_rounds=2, max_tokens=4096),
        optim=replace(_MATH.optim, batch_size=32, num_train_datapoints=4096),
        warm_questions=1536,
        parts=(
            *_MATH.parts,
            "warm_start:wrong=sampled",
            "curriculum:tasks=gsm8k+math:level=1-3+math+aime24:past",
            "truth_schedule:schedule=linear",
        ),
        eval_modes=("direct", "vote"),
        eval_questions=30,
    ),
    # Each advocate is paid by the decision of the model that it was before training, which a better argument can only
    # win by convincing.
    "advocates": replace(
        _MATH,
        protocol=PROTOCOLS["advocates"],
        debate=replace(_MATH.debate, task="gsm8k", num_agents=2, max_rounds=2, max_tokens=512),
        recipe=RecipeConfig(judge="base"),
        eval_modes=("consultancy", "judge"),
    ),
}
ABOUT = {
    "demo": "SmolLM2-135M on arithmetic, a few minutes on two cores",
    "majority": "what worked without labels: Qwen2.5-Coder-1.5B on GSM8K, 8 agents, 1 round, the commonest answer is "
    "paid",
    "votes": "the same model on Countdown: a judge learns from made exercises, and its votes pay",
    "truth": "as majority, paid by the known answers",
    "math": "Qwen3-8B on MATH, 3 agents, 3 rounds",
    "easy": "Qwen3-8B on GSM8K or other easier questions, 2 rounds, larger batches",
    "hard": "Qwen3-8B on MATH or other hard questions, with a warm start, 5 agents, more weight on judging",
    "v1": "the older protocol: one agent speaks at a time, five sections, win rate",
    "aime": "warm start, then a curriculum from GSM8K over MATH to earlier AIME problems with truth faded out, "
    "evaluated on AIME 2024",
    "advocates": "Qwen3-8B, two agents who argue for given sides of a question, paid by an untrained judge's decision",
}


def find_preset(name: str) -> TrainConfig:
    """The settings by that name. What was probably meant comes first, because the list of all is long."""
    if name not in PRESETS:
        meant = near(name, PRESETS).removeprefix("; ")
        about = "; ".join(f"{preset} ({about})" for preset, about in ABOUT.items())
        raise ConfigError(
            f"{meant + ' ' if meant else ''}preset must be one of {', '.join(PRESETS)}, got {name!r}: {about}"
        )
    return PRESETS[name]
