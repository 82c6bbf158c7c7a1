"""`moot completion`: a script that lets a shell complete commands and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from moot.cli.main import COMMANDS, load
from moot.cli.registry import REGISTRY

_SCRIPT = """_moot() {{
  local words cur=${{COMP_WORDS[COMP_CWORD]}}
  COMPREPLY=()
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; fi
  case $cur in
    -*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    *) if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))
       else COMPREPLY=($(compgen -f -- "$cur")); fi ;;
  esac
}}
complete -o filenames -F _moot moot
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class Completion:
    """Print a script that lets the shell complete commands, options and file names.

    bash: put source <(moot completion) into ~/.bashrc. zsh: put source <(moot completion zsh) into ~/.zshrc.
    """

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional] = "bash"
    """The shell that the script is for."""

    def run(self) -> int:
        cases = "\n".join(f'    {name}) words="{" ".join(options(name))}" ;;' for name in COMMANDS)
        print((_ZSH if self.shell == "zsh" else "") + _SCRIPT.format(cases=cases, commands=" ".join(COMMANDS)), end="")
        return 0


def options(command: str) -> list[str]:
    """All that a command takes, each in its own spelling."""
    loaded, kind = load(command)
    default = loaded.defaults([]) if hasattr(loaded, "defaults") else None
    parser = tyro.extras.get_parser(kind, default=default, registry=REGISTRY)
    return sorted({name for action in parser._actions for name in action.option_strings if name.startswith("--")})
