"""Engines under contract: those that are made from a seed stand here by themselves. Another needs a factory in ENGINES."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moot.engine.kinds import KINDS
from support.skyrl_server import KEY


def make_local(tiny_model: Path, **options: Any) -> Any:
    from moot.engine.local import LocalEngine

    engine = LocalEngine.create(
        str(tiny_model),
        **{
            "dtype": "fp32",
            "device": os.environ.get("MOOT_TEST_DEVICE", "cpu"),
            "lora_rank": 4,
            "max_cache_gib": 0.02,
            **options,
        },
    )
    # On a GPU the captured steps are what is tested, not what stands in for them.
    assert not any("could not be captured" in note for note in engine.capabilities.notes), engine.capabilities.notes
    return engine


def make_sibling(tiny_model: Path, **options: Any) -> Any:
    """Of an engine that is closed since: it owes it nothing."""
    first = make_local(tiny_model, **{**options, "seed": 99})
    made = first.sibling(options.get("seed", 0))
    first.shut()
    return made


def made_by(create: str) -> Callable[..., Any]:
    """A factory for what is made from its kind's `made_by`."""
    return lambda tiny_model, *, seed=3, **_: pkgutil.resolve_name(create)(None, seed)


def make_remote(tiny_model: Path, *, skyrl: Any, seed: int = 0, **_: Any) -> Any:
    """The first one looks the server over; the others are told what it found, which saves most of their start."""
    from moot.engine.remote import RemoteEngine

    engine = RemoteEngine.create(
        str(tiny_model),
        base_url=skyrl.url,
        api_key=KEY,
        lora_rank=4,
        seed=seed,
        context_length=1024,
        findings=FOUND.get(skyrl.url),
    )
    FOUND[skyrl.url] = engine.findings
    return engine


ENGINES: dict[str, Callable[..., Any]] = {
    "local": make_local,
    "sibling": make_sibling,
    "remote": make_remote,
    **{name: made_by(kind.made_by) for name, kind in KINDS.items() if kind.made_by},
}
FOUND: dict[str, Any] = {}
KNOWN = {
    "remote": {
        "test_a_snapshot_keeps_its_weights_while_training_goes_on": "SkyRL's samplers share the live weights, so old ones are refused",
        "test_exp_logprob_is_the_frequency_with_which_a_token_comes": "SkyRL's logprobs are those of temperature 1, before top-k and top-p",
        "test_the_base_sampler_knows_nothing_of_training_and_logprobs_can_be_tempered": "the API computes logprobs at temperature 1",
    },
}
"""What an engine is known not to promise: each must fail, or this list is out of date. `test_skyrl.py` shows those of SkyRL."""
