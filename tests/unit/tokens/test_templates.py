"""Chat templates of models that nobody knows: they are programs, and are tried apart before they are run here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moot.debate.types import Message
from moot.errors import ConfigError
from moot.tokens import template_trial
from moot.tokens.rendering import Rendering

GOOD = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLES = "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}"


@pytest.fixture
def chatml(real: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(template_trial, "_SECONDS", 1)
    return real("smollm2")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("template", "told"),
    [
        (LOOPS + GOOD, "takes too long"),
        ("{% if messages | length > 50 %}" + LOOPS + "{% endif %}" + GOOD, "takes too long"),
        (DOUBLES + GOOD, "takes (more than 512 MiB|too long)"),
        ("{{ 'a' * 50000000 }}" + GOOD, "writes 50000"),
        ("{% if false %}a{% endif %}", "does not show the system message"),
        ("Hello.", "does not show the system message"),
        ("{{ messages[0]['content'] }}", "does not show the user message"),
        ("{{ messages[1]['content'] }}", "does not show the system message"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_by_name(chatml: Any, template: str, told: str) -> None:
    chatml.chat_template = template
    with pytest.raises(ConfigError, match=f"the chat template of somebody/else {told}.*name its format with renderer"):
        Rendering(chatml, "somebody/else")


def test_a_template_that_raises_is_left_to_those_who_use_it(chatml: Any) -> None:
    chatml.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(ConfigError, match="never"):
        Rendering(chatml, "somebody/else")


def test_a_template_is_tried_once(chatml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chatml.chat_template = GOOD + "{# tried once #}"
    first = Rendering(chatml, "somebody/else")
    monkeypatch.setattr(template_trial.subprocess, "run", lambda *_, **__: pytest.fail("it was tried again"))
    messages = [Message("system", "Be brief."), Message("user", "Two and two?")]
    assert Rendering(chatml, "somebody/else").prompt(messages).tolist() == first.prompt(messages).tolist()
