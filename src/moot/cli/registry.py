"""Options whose value is no plain word or number: how they are read from a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from moot.debate.prompt_texts import Prompts, load_prompts
from moot.debate.protocols import PRESETS
from moot.debate.reward import reward_names
from moot.debate.scoring import Scoring
from moot.tasks import TASKS


def describe(kind: type, name: str, text: str) -> None:
    """Help that lists what is known; a docstring could only list what there was on the day it was written."""
    kind.__annotations__[name] = Annotated[str, arg(help=text)]


TASK_NAMES = (
    f"{', '.join(TASKS)}, or a file; settings follow a colon, as in math:algebra,level=1-3, reasoning-gym:NAME or "
    "code:FILE. docs/tasks.md lists them."
)
describe(Scoring, "reward", f"{reward_names()}.")
REGISTRY = ConstructorRegistry()
PEER_PRESETS = tuple(name for name, protocol in PRESETS.items() if protocol.rules.peers_vote)
if TYPE_CHECKING:  # a type checker cannot read the table
    ProtocolName = str
    PeerProtocol = str
else:
    ProtocolName = Literal[tuple(PRESETS)]
    PeerProtocol = Literal[PEER_PRESETS]
OtherProtocol = Annotated[ProtocolName | None, arg(metavar=f"{{{','.join(PRESETS)}}}", help_behavior_hint="")]
"""Where nothing is named, something else decides."""


def option_names(arguments: list[str]) -> set[str]:
    """The options that stand on a command line, in one spelling: `--lambda_gen=2` is `--lambda-gen`."""
    return {argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("-")}


@REGISTRY.primitive_rule
def _prompts(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """`--prompts FILE` is the texts in it."""
    if type_info.type is not Prompts:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="FILE",
        instance_from_str=lambda arguments: load_prompts(arguments[0]),
        is_instance=lambda instance: isinstance(instance, Prompts),
        str_from_instance=lambda prompts: [str(prompts)],
    )
