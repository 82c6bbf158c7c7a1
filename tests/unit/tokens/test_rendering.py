"""Messages to tokens: whole prompts, suffixes that never touch what was sampled, and formats that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moot.debate.types import Message
from moot.engine.scripted import ByteTokenizer
from moot.errors import ConfigError
from moot.tokens.rendering import Rendering, stop_conditions

few = settings(max_examples=60)

SYSTEM, FIRST, NEXT = Message("system", "Be brief."), Message("user", "Two and two?"), Message("user", "And three?")
SAID = "It is 4, naïvely: 四 🙂."

CHATML = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nTwo and two?<|im_end|>\n<|im_start|>assistant\n"
PROMPT = {
    "bytes": CHATML,
    "smollm2": CHATML,
    "deepseek": "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Two and two?<｜Assistant｜>",
    "mistral": "<s> [INST] Be brief.\n\nTwo and two? [/INST]",
    # Here every stretch of text gets a space of its own before it, after a special token too.
    "mistral-legacy": "<s>  [INST] Be brief.\n\nTwo and two? [/INST]",
    "qwen3": CHATML + "<think>\n\n</think>\n\n",
}
AFTER = {
    "bytes": "\n<|im_start|>user\nAnd three?<|im_end|>\n<|im_start|>assistant\n",
    "smollm2": "\n<|im_start|>user\nAnd three?<|im_end|>\n<|im_start|>assistant\n",
    "deepseek": "<｜User｜>And three?<｜Assistant｜>",
    "mistral": " [INST] And three? [/INST]",
    "mistral-legacy": "  [INST] And three? [/INST]",
    "qwen3": "\n<|im_start|>user\nAnd three?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
}
CLOSE = {
    "bytes": "<|im_end|>",
    "smollm2": "<|im_end|>",
    "deepseek": "<｜end▁of▁sentence｜>",
    "mistral": "</s>",
    "mistral-legacy": "</s>",
    "qwen3": "<|im_end|>",
}
STOPS = {
    "bytes": (257,),
    "smollm2": (2,),
    "deepseek": (1,),
    "mistral": (2,),
    "mistral-legacy": (2,),
    "qwen3": (151645, 151643),
}


def ints(*parts: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=np.int32).reshape(-1) for part in parts])


def encode(tokenizer: Any, text: str) -> np.ndarray:
    return ints(tokenizer.encode(text, add_special_tokens=False))


def as_dicts(*messages: Message) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


# Whole prompts


def test_a_prompt_reads_as_the_models_format_says(name: str, rendering: Rendering) -> None:
    prompt = rendering.prompt([SYSTEM, FIRST])
    assert rendering.decode(prompt) == PROMPT[name]
    assert prompt.dtype == np.int32


def rendered_elsewhere(name: str, tokenizer: Any, messages: list[Message]) -> list[int]:
    """The same prompt without moot."""
    if name not in ("deepseek", "qwen3"):
        return list(
            tokenizer.apply_chat_template(
                as_dicts(*messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )
    from renderers import create_renderer
    from renderers.configs import DeepSeekV3RendererConfig, Qwen3RendererConfig

    config = Qwen3RendererConfig(enable_thinking=False) if name == "qwen3" else DeepSeekV3RendererConfig()
    return list(create_renderer(tokenizer, config).render_ids(as_dicts(*messages), add_generation_prompt=True))


def test_a_prompt_is_what_the_chat_template_or_the_package_gives(
    name: str, tokenizer: Any, rendering: Rendering
) -> None:
    messages = [SYSTEM, FIRST, Message("assistant", SAID), NEXT]
    assert rendering.prompt(messages).tolist() == rendered_elsewhere(name, tokenizer, messages)


def test_known_models_get_the_packages_own_format_and_the_others_their_template(
    name: str, rendering: Rendering
) -> None:
    assert rendering.name == {"deepseek": "deepseek-v3", "qwen3": "qwen3"}.get(name, "default")


# Suffixes


def test_after_a_turn_that_ended_comes_the_new_message_and_the_start_of_the_next(
    name: str, tokenizer: Any, rendering: Rendering
) -> None:
    sampled = ints(encode(tokenizer, SAID), rendering.stop_ids[0])
    assert rendering.decode(rendering.suffix(sampled, NEXT)) == AFTER[name]


def test_a_turn_that_was_cut_is_ended_first(name: str, tokenizer: Any, rendering: Rendering) -> None:
    suffix = rendering.suffix(encode(tokenizer, SAID), NEXT)
    assert int(suffix[0]) == rendering.stop_ids[0]
    assert rendering.decode(suffix) == CLOSE[name] + AFTER[name]


def test_nothing_sampled_at_all_is_a_turn_that_was_cut(name: str, rendering: Rendering) -> None:
    suffix = rendering.suffix(ints([]), NEXT)
    assert rendering.decode(suffix) == CLOSE[name] + AFTER[name]


# What a debate's messages are made of, and what may stand before it: a place to cut is only one if the tokenizer cuts there too.
message_parts = st.sampled_from(
    ["\n\n[Agent 1, round 1]\nsolution: ", "\n\nRound 2 of 3.", "\n\n", "\n", " ", "\t", "12", "end.", "🙂", "}$"]
)
contents = st.text(max_size=30) | st.lists(message_parts | st.text(max_size=3), max_size=8).map("".join)


@few
@given(content=contents, ended=st.booleans())
@example(content="x \n\nRound 2 of 3.", ended=True)  # a space before the blank line, which some tokenizers join to it
@example(content="\n\n\n\n[Agent 1, round 1]", ended=False)
def test_prompt_and_turn_and_suffix_are_the_whole_conversation(
    name: str, tokenizer: Any, rendering: Rendering, content: str, ended: bool
) -> None:
    """Whatever the new message says: what stands beside a special token is not tokenised together with what is across it."""
    messages = [SYSTEM, FIRST, Message("assistant", SAID), Message("user", content)]
    theirs = rendered_elsewhere(name, tokenizer, messages)
    prompt, turn = rendering.prompt(messages[:2]), encode(tokenizer, SAID)
    sampled = ints(turn, rendering.stop_ids[0]) if ended else turn
    assert ints(prompt, sampled, rendering.suffix(sampled, messages[3])).tolist() == theirs
    assert rendering.prompt(messages).tolist() == theirs


def test_three_turns_grow_into_the_same_tokens_as_one_rendering(tokenizer: Any, rendering: Rendering) -> None:
    messages, grown = [SYSTEM, FIRST], rendering.prompt([SYSTEM, FIRST])
    for round, ended in enumerate((True, False, True)):
        said, message = f"My answer number {round}.", Message("user", f"Question {round}\n\n数学 🙂?")
        sampled = ints(encode(tokenizer, said), rendering.stop_ids[0] if ended else [])
        grown = ints(grown, sampled, rendering.suffix(sampled, message))
        messages += [Message("assistant", said), message]
    assert grown.tolist() == rendering.prompt(messages).tolist()


def test_the_suffix_does_not_depend_on_how_the_turn_was_tokenised(tokenizer: Any, rendering: Rendering) -> None:
    """A model may spell a word letter by letter. What it sampled stays, and the suffix is the same."""
    end = rendering.stop_ids[0]
    usual = ints(encode(tokenizer, "the answer"), end)
    spelled = ints(*[encode(tokenizer, letter) for letter in "the answer"], end)
    assert len(spelled) >= 11
    assert rendering.suffix(spelled, NEXT).tolist() == rendering.suffix(usual, NEXT).tolist()


@pytest.mark.parametrize(
    "said", ["<think>", "<think>hm", "</think>", "</think></think>", "<tool_call>", "", "<think>a</think>b<think>"]
)
@pytest.mark.parametrize("ended", [True, False])
def test_nothing_a_model_says_stops_the_debate(
    name: str, tokenizer: Any, rendering: Rendering, said: str, ended: bool
) -> None:
    """A turn that opens a thinking block and ends without closing it is the model's failure, not the run's."""
    sampled = ints(encode(tokenizer, said) if said else [], rendering.stop_ids[0] if ended else [])
    suffix = rendering.decode(rendering.suffix(sampled, NEXT))
    assert suffix.endswith(AFTER[name])
    # A cut turn is ended, and an open thinking block may be closed before that.
    assert suffix.removesuffix(AFTER[name]) in ([""] if ended else [CLOSE[name], "</think>" + CLOSE[name]])


# Special tokens are structure. What agents write is text.


def test_a_special_token_spelled_by_one_agent_is_none_in_anothers_prompt(tokenizer: Any, rendering: Rendering) -> None:
    added = {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}
    spelled = Message("user", " and ".join(added.values()) + "".join(added.values()))
    prompt = rendering.prompt([SYSTEM, FIRST])

    def structure(ids: np.ndarray) -> list[int]:
        return [i for i in ids.tolist() if i in added]

    assert structure(rendering.prompt([SYSTEM, spelled])) == structure(prompt)
    for sampled in (encode(tokenizer, SAID), ints(encode(tokenizer, SAID), rendering.stop_ids[0])):
        assert structure(rendering.suffix(sampled, spelled)) == structure(rendering.suffix(sampled, NEXT))


@few
@given(data=st.data())
def test_no_shuffling_of_pieces_of_special_tokens_makes_one(
    tokenizer: Any, rendering: Rendering, data: st.DataObject
) -> None:
    added = {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}
    pieces = [
        "<",
        "</",
        ">",
        "<|",
        "|>",
        "<｜",
        "｜>",
        "im_end",
        "im_start",
        "think",
        "s",
        " ",
        "\n",
        "▁",
        *list(added.values())[:30],
    ]
    content = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
    prompt = rendering.prompt([SYSTEM, Message("user", content)])
    plain = rendering.prompt([SYSTEM, FIRST])
    assert [i for i in prompt.tolist() if i in added] == [i for i in plain.tolist() if i in added]


def test_breaking_the_spelling_changes_one_place_and_nothing_else(rendering: Rendering, name: str) -> None:
    broken = CLOSE[name][0] + " " + CLOSE[name][1:]
    prompt = rendering.decode(rendering.prompt([SYSTEM, Message("user", f"He wrote {CLOSE[name]} <b>here</b>.")]))
    assert f"He wrote {broken} <b>here</b>." in prompt


# Where a turn stops


def test_stops_are_the_formats_own_token_ids(name: str, rendering: Rendering) -> None:
    assert rendering.stop_ids == STOPS[name]
    assert rendering.stops("three_tag") == rendering.stops("five_tag") == STOPS[name]


def test_the_end_of_a_turn_is_not_part_of_its_text(tokenizer: Any, rendering: Rendering) -> None:
    turn = encode(tokenizer, "four")
    cut, cut_starts = rendering.said(turn)
    for stop in rendering.stop_ids:
        text, starts = rendering.said(ints(turn, stop))
        assert text == cut
        assert starts.tolist() == [*cut_starts.tolist(), len(text)]
    assert rendering.said(ints([]))[0] == ""
    assert rendering.said(ints(rendering.stop_ids[0]))[1].tolist() == [0]


def test_ids_stand_alone() -> None:
    assert stop_conditions((2, 5), "three_tag") == (2, 5)


def test_strings_get_the_last_closing_tag_once() -> None:
    assert stop_conditions(("</s>",), "three_tag") == ("</s>", "</comparison>")
    assert stop_conditions(("</s>",), "five_tag") == ("</s>", "</consensus_reason>")
    assert stop_conditions(("</comparison>", "</s>"), "three_tag") == ("</comparison>", "</s>")
    assert stop_conditions((), "three_tag") == ("</comparison>",)


def test_ids_and_strings_are_never_mixed() -> None:
    with pytest.raises(ConfigError, match="all token ids or all strings"):
        stop_conditions((2, "</s>"), "three_tag")  # type: ignore[arg-type]


# Thinking


def test_with_thinking_off_qwen3s_empty_block_stands_before_every_turn(real: Callable[[str], Any]) -> None:
    tokenizer = real("qwen3")
    rendering = Rendering(tokenizer, "Qwen/Qwen3-8B")
    block = [151667, 271, 151668, 271]  # <think>, two line feeds, </think>, two line feeds
    grown = rendering.prompt([SYSTEM, FIRST])
    assert grown[-4:].tolist() == block
    for _ in range(3):
        sampled = ints(encode(tokenizer, SAID), 151645)
        grown = ints(grown, sampled, rendering.suffix(sampled, NEXT))
        assert grown[-4:].tolist() == block
    assert grown.tolist().count(151667) == grown.tolist().count(151668) == 4


def test_with_thinking_on_qwen3_opens_its_block_itself_and_it_stays(real: Callable[[str], Any]) -> None:
    tokenizer = real("qwen3")
    rendering = Rendering(tokenizer, "Qwen/Qwen3-8B", thinking=True)
    prompt = rendering.prompt([SYSTEM, FIRST])
    assert prompt[-3:].tolist() == [151644, 77091, 198]  # <|im_start|>, assistant, a line feed
    sampled = ints(encode(tokenizer, "<think>Two pairs.</think>Four."), 151645)
    assert rendering.decode(rendering.suffix(sampled, NEXT)) == AFTER["smollm2"]


# Templates that the package only wraps

HEAD = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
FOOT = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = HEAD + "{{ message['content'] }}" + FOOT

CANNOT_GROW = {
    "numbers its messages": HEAD + "{{ loop.index }}. {{ message['content'] }}" + FOOT,
    "hides all turns but the last": HEAD
    + "{% if message['role'] != 'assistant' or loop.index >= messages | length - 1 %}{{ message['content'] }}{% endif %}"
    + FOOT,
    "never shows an assistant turn": HEAD
    + "{% if message['role'] != 'assistant' %}{{ message['content'] }}{% endif %}"
    + FOOT,
    # As Mistral's templates do since version 0.3.
    "moves the system text to the last message": HEAD
    + "{% if loop.last %}{{ messages[0]['content'] }}\n\n{% endif %}{% if not loop.first %}{{ message['content'] }}{% endif %}"
    + FOOT,
    "repeats the system text in every message": HEAD
    + "{% if not loop.first %}{{ messages[0]['content'] }}\n\n{% endif %}{{ message['content'] }}"
    + FOOT,
    "counts the conversation": "{{ messages | length }} messages\n" + PLAIN,
}


@pytest.fixture
def chatml(real: Callable[[str], Any]) -> Any:
    """A tokenizer that knows <|im_start|> and <|im_end|>."""
    return real("smollm2")


@pytest.mark.parametrize("what", CANNOT_GROW)
def test_a_template_that_cannot_be_extended_is_refused_when_a_suffix_is_asked_for(chatml: Any, what: str) -> None:
    chatml.chat_template = CANNOT_GROW[what]
    rendering = Rendering(chatml, "somebody/else")
    with pytest.raises(ConfigError, match=r"somebody/else.*cannot be extended turn by turn.*use layout rebuilt"):
        rendering.suffix(ints(encode(chatml, SAID), rendering.stop_ids[0]), NEXT)


@pytest.mark.parametrize("what", CANNOT_GROW)
def test_a_template_that_cannot_be_extended_still_renders_whole_prompts(chatml: Any, what: str) -> None:
    chatml.chat_template = CANNOT_GROW[what]
    rendering = Rendering(chatml, "somebody/else")
    theirs = chatml.apply_chat_template(
        as_dicts(SYSTEM, FIRST), add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert rendering.prompt([SYSTEM, FIRST]).tolist() == list(theirs)


CAN_GROW = {
    "plain": PLAIN,
    "trims what it is given, as Llama 3 does": HEAD + "{{ message['content'] | trim }}" + FOOT,
    "answers with an empty thinking block that it leaves out later, as Qwen3 does": HEAD
    + "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
}


@pytest.mark.parametrize("what", CAN_GROW)
def test_a_template_that_keeps_earlier_turns_is_extended(chatml: Any, what: str) -> None:
    chatml.chat_template = CAN_GROW[what]
    rendering = Rendering(chatml, "somebody/else")
    prompt = rendering.prompt([SYSTEM, FIRST])
    suffix = rendering.suffix(ints(encode(chatml, SAID), rendering.stop_ids[0]), NEXT)
    start = rendering.decode(prompt)[rendering.decode(prompt).rindex("<|im_start|>") :]
    assert start == "<|im_start|>assistant\n" + ("<think>\n\n</think>\n\n" if "thinking" in what else "")
    assert rendering.decode(suffix) == "\n<|im_start|>user\nAnd three?<|im_end|>\n" + start


@pytest.mark.parametrize("which", ["mistral", "mistral-legacy"])
def test_a_line_feed_after_the_end_of_a_turn_is_no_obstacle_for_sentencepiece(
    real: Callable[[str], Any], which: str
) -> None:
    """Zephyr's and TinyLlama's format. Tokenised alone, the text after </s> would get a space that it does not have in its place."""
    tokenizer = real(which)
    tokenizer.chat_template = (
        "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] + eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    rendering = Rendering(tokenizer, "somebody/else")
    prompt = rendering.prompt([SYSTEM, FIRST])
    said = "4"
    # In its place, after the line feed of the header, the turn has no space before it.
    sampled = encode(tokenizer, "\n" + said)[-1:]
    grown = ints(prompt, sampled, 2, rendering.suffix(ints(sampled, 2), NEXT))
    assert grown.tolist() == rendering.prompt([SYSTEM, FIRST, Message("assistant", said), NEXT]).tolist()


class NoSpecials(ByteTokenizer):
    """A template of plain text, and no end-of-sequence token."""

    eos_token_id = None

    def apply_chat_template(
        self, messages: Any, add_generation_prompt: bool = False, tokenize: bool = True, **_: Any
    ) -> Any:
        text = "".join(f"{m['role']}: {m['content']}\n\n" for m in messages) + (
            "assistant: " if add_generation_prompt else ""
        )
        return self.encode(text) if tokenize else text


def test_without_any_stop_token_a_turn_ends_at_the_last_closing_tag_and_still_grows() -> None:
    rendering = Rendering(NoSpecials())
    assert rendering.stop_ids == ()
    assert rendering.stops("three_tag") == ("</comparison>",)
    assert rendering.stops("five_tag") == ("</consensus_reason>",)
    prompt = rendering.prompt([SYSTEM, FIRST])
    assert rendering.decode(prompt) == "system: Be brief.\n\nuser: Two and two?\n\nassistant: "
    sampled = encode(rendering.tokenizer, "4</comparison>")
    assert rendering.decode(rendering.suffix(sampled, NEXT)) == "\n\nuser: And three?\n\nassistant: "


# What cannot be


def test_without_a_chat_template_one_is_told_so(real: Callable[[str], Any]) -> None:
    with pytest.raises(
        ConfigError,
        match=r"somebody/base has no chat template; use an instruct model, or name its format with renderer",
    ):
        Rendering(real("deepseek"), "somebody/base")


def test_a_fine_tune_can_name_its_format(real: Callable[[str], Any]) -> None:
    named = Rendering(real("deepseek"), "somebody/tuned", renderer="deepseek-v3")
    assert named.decode(named.prompt([SYSTEM, FIRST])) == PROMPT["deepseek"]
    assert Rendering(real("qwen3"), "somebody/tuned", renderer="qwen3").name == "qwen3"


def test_an_unknown_format_is_named_beside_those_that_are_known(chatml: Any) -> None:
    with pytest.raises(ConfigError, match=r"renderer 'qwen4711' is not known.*deepseek-v3.*qwen3"):
        Rendering(chatml, "somebody/else", renderer="qwen4711")


def test_a_format_whose_tokens_the_tokenizer_lacks_is_refused_plainly(real: Callable[[str], Any]) -> None:
    with pytest.raises(ConfigError, match=r"llama-3.*begin_of_text"):
        Rendering(real("smollm2"), "somebody/else", renderer="llama-3")


def test_a_format_of_the_package_that_always_thinks_still_renders_whole_prompts(real: Callable[[str], Any]) -> None:
    """DeepSeek R1's prompt ends inside an open thinking block."""
    rendering = Rendering(real("deepseek"), "deepseek-ai/DeepSeek-R1")
    assert rendering.decode(rendering.prompt([SYSTEM, FIRST])) == PROMPT["deepseek"] + "<think>\n"


def test_a_template_that_takes_no_system_message_is_refused_at_the_start(chatml: Any) -> None:
    """Gemma's. Every debate begins with a system message, so there is no use in waiting for the first."""
    chatml.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + PLAIN
    )
    with pytest.raises(ConfigError, match="System role not supported"):
        Rendering(chatml, "somebody/else")
