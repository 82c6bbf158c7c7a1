"""Which model is run, by which engine, and how. Its docstrings are the help of every command that loads a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from moot.engine.kinds import KINDS, Engine, Kind
from moot.settings.limits import ON_RESUME, Ge, Le, check_limits


@dataclass(frozen=True)
class ModelConfig:
    model: str = "smollm2-135m"
    """A hub id, a directory with a checkpoint, or smollm2-135m."""
    engine: Engine = "local"
    """What runs the model: this machine, or a server that speaks the Tinker API. openai is a chat server, which can be
    checked and evaluated but not trained. scripted repeats a script and learns nothing: use it to try out a command."""
    base_url: Annotated[str, ON_RESUME] = ""
    """Address of the server, for engine tinker or openai. Without it, tinker uses the hosted service, whose key is in
    TINKER_API_KEY."""
    tokenizer: str = ""
    """The tokenizer of a server's model, if it cannot be loaded by the model's name."""
    context_length: Annotated[int, Ge(0)] = 0
    """The longest sequence that a server's model takes; 0 asks the server."""
    renderer: str = "auto"
    """The chat format; auto looks it up by the model's id."""
    thinking: bool = False
    """Let the model think before it answers, if its chat format has a place for that."""
    lora_rank: Annotated[int, Ge(1), Le(1024)] = 16
    """Rank of the trained adapter. It is on every matrix, at twice its rank as scale."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the weights; auto is bf16 on a GPU and what is fastest on a CPU."""
    device: Annotated[str, ON_RESUME] = "auto"
    """cpu, cuda, one of several as cuda:1, or auto."""
    deterministic: bool = False
    """Use fp32 and share no computation between sequences: the same seed then gives the same run, also after a kill."""
    gradient_checkpointing: bool = False
    """Compute activations twice in training: slower, with less memory."""
    cache_gib: Annotated[float, Ge(0), Le(10_000), ON_RESUME] = 0.0
    """Memory for the sampler's cache; 0: as needed, up to half of what a GPU has free (CPU: a quarter). Set it when
    runs share a GPU."""
    token_budget: Annotated[int, Ge(0), ON_RESUME] = 0
    """Tokens of one forward and backward pass; 0 chooses by device. A smaller number saves memory."""

    def __post_init__(self) -> None:
        """A run may be somebody else's, and memory is taken by these before anything else of it is looked at."""
        check_limits(self)

    @property
    def kind(self) -> Kind:
        """What is known of its engine before that is made."""
        return KINDS[self.engine]

    @property
    def called(self) -> str:
        """The model's name as readers know it; a script has none, whatever `model` says."""
        return self.engine if self.kind.scripted else self.model
