"""Every test that asks for `tokenizer` or `rendering` runs once with each real tokenizer, and with the scripted engine's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from moot.engine.scripted import ByteTokenizer
from moot.tokens.rendering import Rendering
from support.tokenizers_real import LEFT_OUT, SOURCES, obtain

NAMES = ("bytes", *SOURCES)
MODEL = {"deepseek": "deepseek-ai/DeepSeek-V3", "qwen3": "Qwen/Qwen3-8B"}
"""Formats that the `renderers` package knows. The others bring a chat template, which it only wraps."""


@pytest.fixture(scope="session", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def tokenizer(name: str) -> Any:
    return ByteTokenizer() if name == "bytes" else obtain(name)


@pytest.fixture(scope="session")
def rendering(name: str, tokenizer: Any) -> Rendering:
    return Rendering(tokenizer, MODEL.get(name, ""))


@pytest.fixture(scope="session")
def real() -> Callable[[str], Any]:
    """One real tokenizer by its name. A shallow copy: its chat template may be changed."""
    read: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in read:
            read[name] = obtain(name)
        return copy.copy(read[name])

    return get


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LEFT_OUT:
        terminalreporter.section("tokenizers left out")
        for name, reason in LEFT_OUT.items():
            terminalreporter.write_line(f"no test ran with {name}: {reason}")
