"""SkyRL's Tinker server on loopback, in this interpreter. It starts its engine as a child: this file again, with `--engine` first.

SkyRL's own entry point wants `uv run` around it and listens on every interface.
"""

from __future__ import annotations

import sys
import typing
from pathlib import Path

import typing_extensions


def engine() -> None:
    from skyrl.tinker.engine import main

    main()


def server() -> None:
    import argparse

    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    options = argparse.ArgumentParser()
    add_model(options, EngineConfig)
    options.add_argument("--port", type=int, required=True)
    given = vars(options.parse_args())
    port = given.pop("port")

    def child_command(_: object, config: EngineConfig) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), "--engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = child_command
    api.app.state.engine_config = EngineConfig.model_validate(given)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # pydantic takes no other before Python 3.12
    if sys.argv[1:2] == ["--engine"]:
        del sys.argv[1]
        engine()
    else:
        server()
