"""The command line. One dataclass a command: its fields are the options, their docstrings the help."""

from moot.cli.main import main

__all__ = ["main"]
