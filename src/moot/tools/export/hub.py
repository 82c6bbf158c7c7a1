"""Exported weights on the hub. Its client comes with transformers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from moot.errors import ConfigError, EngineError


def check_push(repo: str) -> None:
    """What can be known before any work: a name that the hub takes, and a token to write with."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ConfigError(f"push must name a repository of the hub as OWNER/NAME, got {repo!r}")
    from huggingface_hub import get_token

    if not get_token():
        raise ConfigError("push needs a token that may write: set HF_TOKEN, or log in with: hf auth login")


def push_folder(folder: Path, repo: str, message: str) -> str:
    """Uploads the folder as one commit, and returns the address of the repository. A new repository is private."""
    import httpx
    from huggingface_hub import HfApi

    # Read here and not when the library was imported, so that a program may choose the hub as late as a command does.
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="moot")
    try:
        address = hub.create_repo(repo, private=True, exist_ok=True)
        hub.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message=message)
    except (httpx.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise EngineError(f"{repo} could not be pushed: {reason}. What was exported is in {folder}") from error
    return str(address)
