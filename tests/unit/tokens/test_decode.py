"""Token ids to text, and to the character each token starts in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moot.engine.scripted import ByteTokenizer
from moot.tokens.decode import TokenText
from support.tokenizers_real import obtain

SENTENCE = "Hello, world! 12 🙂"
IN_TOKENS = {
    "bytes": ([*b"Hello, world! 12 ", 0xF0, 0x9F, 0x99, 0x82], [*range(17), 17, 17, 17, 17]),
    # Hello|,| world|!| |1|2| 🙂
    "smollm2": ([19556, 28, 905, 17, 216, 33, 34, 47526], [0, 5, 6, 12, 13, 14, 15, 16]),
    # Hello|,| world|!| |12| 🙂
    "deepseek": ([19923, 14, 2058, 3, 223, 736, 68139], [0, 5, 6, 12, 13, 14, 16]),
    # A space before Hello, which the model writes too: every character stands one further on.
    "mistral": ([22557, 28725, 1526, 28808, 28705, 28740, 28750, 28705, 29340], [0, 6, 7, 13, 14, 15, 16, 17, 18]),
    "mistral-legacy": (
        [22557, 28725, 1526, 28808, 28705, 28740, 28750, 28705, 29340],
        [0, 6, 7, 13, 14, 15, 16, 17, 18],
    ),
    "qwen3": ([9707, 11, 1879, 0, 220, 16, 17, 27484], [0, 5, 6, 12, 13, 14, 15, 16]),
}

few = settings(max_examples=60)
words = st.text(max_size=40) | st.text(st.sampled_from("ab 🙂👩\u200d中好é\u0301\u0308<>/\n\t▁ ẞı∑"), max_size=40)


@pytest.fixture(scope="session")
def size(tokenizer: Any) -> int:
    return len(tokenizer.get_vocab())


@pytest.fixture(scope="session")
def known(tokenizer: Any) -> TokenText:
    return TokenText(tokenizer)


def encode(tokenizer: Any, text: str) -> np.ndarray:
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), dtype=np.int32)


def starts_by_prefixes(tokenizer: Any, ids: np.ndarray, text: str) -> list[int]:
    """The long way round: a token starts where the tokens before it end, less a character that they leave unfinished."""
    hidden = len(text) - len(tokenizer.decode(ids.tolist()))
    starts = [0]
    for i in range(1, len(ids)):
        said = tokenizer.decode(ids[:i].tolist()).rstrip("�")
        # SentencePiece shows a whole run of bytes as broken while its last character is unfinished: then what was known before holds.
        starts.append(starts[-1] if "�" in said else max(starts[-1], len(said) + hidden))
    return starts[: len(ids)]


def test_every_tokenizer_is_the_real_one_and_its_tokens_start_where_one_can_count(
    name: str, tokenizer: Any, known: TokenText
) -> None:
    ids, starts = IN_TOKENS[name]
    assert tokenizer.encode(SENTENCE, add_special_tokens=False) == ids
    text, found = known.text_and_starts(np.asarray(ids, dtype=np.int32))
    assert text == (" " + SENTENCE if name.startswith("mistral") else SENTENCE)
    assert found.tolist() == starts
    assert found.dtype == np.int32


def test_the_table_is_exact_for_every_single_token(name: str, tokenizer: Any, known: TokenText, size: int) -> None:
    assert known.exact
    ids = range(size)
    if name == "bytes":
        theirs = [tokenizer.decode([i]) for i in ids]
    else:
        theirs = tokenizer.backend_tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=False)
    ours = [known.text([i]) for i in ids]
    assert [(i, a, b) for i, a, b in zip(ids, ours, theirs, strict=True) if a not in (b, " " + b)] == []


@pytest.mark.parametrize("which", ["smollm2", "mistral"])
def test_a_token_added_to_the_vocabulary_is_spelled_as_it_reads(which: str) -> None:
    """Not in the alphabet of the others, where `«` stands for a byte and `▁` for a space."""
    tokenizer = obtain(which)
    tokenizer.add_tokens(["«moot»", "▁ours"])
    assert (
        TokenText(tokenizer).text(tokenizer.encode("a «moot» ▁ours b", add_special_tokens=False)).removeprefix(" ")
        == "a «moot» ▁ours b"
    )


def test_nothing_is_nowhere(known: TokenText) -> None:
    text, starts = known.text_and_starts(np.zeros(0, dtype=np.int32))
    assert (text, starts.tolist()) == ("", [])
    assert known.text([]) == ""


def test_a_token_inside_a_character_starts_in_that_character() -> None:
    text, starts = TokenText(ByteTokenizer()).text_and_starts(
        np.frombuffer("a🙂é.".encode(), dtype=np.uint8).astype(np.int32)
    )
    assert text == "a🙂é."
    assert starts.tolist() == [0, 1, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("raw", "text", "starts"),
    [
        (b"a\xe4\xb8b", "a�b", [0, 1, 1, 2]),  # a character that never ends: its bytes are one replacement
        (b"\x80\x80a", "��a", [0, 1, 2]),  # two that never began
        (b"a\xf0\x9f", "a�", [0, 1, 1]),  # cut at the end
        (b"\xe4\xe4\xb8\xad", "�中", [0, 1, 1, 1]),  # one breaks off where the next begins
        (b"\xed\xa0\x80", "���", [0, 1, 2]),  # half a surrogate pair is three bytes of nothing
        ("�é".encode(), "�é", [0, 0, 0, 1, 1]),  # a replacement character that somebody really wrote
    ],
)
def test_broken_utf8_is_counted_as_it_is_shown(raw: bytes, text: str, starts: list[int]) -> None:
    found, places = TokenText(ByteTokenizer()).text_and_starts(np.frombuffer(raw, dtype=np.uint8).astype(np.int32))
    assert (found, places.tolist()) == (text, starts)


@few
@given(words)
@example("  two  spaces at the front")
@example(" 🙚")  # the first token of many vocabularies is the space and half of the character
@example("👩‍👩‍👧")
@example("e\u0301 composed by Qwen, and kept apart by the others")
def test_text_is_decoded_as_the_tokenizer_does_and_every_token_starts_where_those_before_it_end(
    tokenizer: Any, known: TokenText, written: str
) -> None:
    ids = encode(tokenizer, written)
    text, starts = known.text_and_starts(ids)
    theirs = tokenizer.decode(ids.tolist())
    assert text in (theirs, " " + theirs)  # SentencePiece hides one leading space
    assert len(starts) == len(ids)
    if "�" not in text:
        assert starts.tolist() == starts_by_prefixes(tokenizer, ids, text)


@few
@given(st.data())
def test_any_tokens_in_any_order_have_places_that_make_up_the_text(
    name: str, tokenizer: Any, known: TokenText, size: int, data: st.DataObject
) -> None:
    ids = np.asarray(data.draw(st.lists(st.integers(0, size - 1), max_size=12)), dtype=np.int32)
    text, starts = known.text_and_starts(ids)
    assert len(starts) == len(ids)
    assert starts.tolist() == sorted(starts)
    assert starts[:1].tolist() == [0][: len(ids)]
    assert "".join(text[a:b] for a, b in pairwise([*starts.tolist(), len(text)])) == text
    # A token of whole characters stands at its place as it would alone, whatever its neighbours left unfinished.
    for i, start in zip(ids.tolist(), starts.tolist(), strict=True):
        alone = known.text([i])
        assert "�" in alone or text[start:].startswith(alone)
    if not name.startswith(
        "mistral"
    ):  # SentencePiece shows a broken character as one replacement a byte, Python as one in all
        assert text == tokenizer.decode(ids.tolist())


@few
@given(st.lists(st.integers(0, 255), max_size=12).map(bytes))
def test_a_byte_belongs_to_the_last_character_of_the_text_up_to_it(raw: bytes) -> None:
    _, starts = TokenText(ByteTokenizer()).text_and_starts(np.frombuffer(raw, dtype=np.uint8).astype(np.int32))
    assert starts.tolist() == [len(raw[: k + 1].decode("utf-8", errors="replace")) - 1 for k in range(len(raw))]


def test_ids_past_the_vocabulary_are_no_text_as_for_the_tokenizer_itself(
    name: str, tokenizer: Any, known: TokenText, size: int
) -> None:
    """Models round their vocabulary up (Qwen3 has 151 669 tokens and 151 936 logits), and an untrained one does sample the rest."""
    past = size
    ids = np.asarray([*encode(tokenizer, "one"), past, past + 200, *encode(tokenizer, "two")], dtype=np.int32)
    text, starts = known.text_and_starts(ids)
    assert text.split() in (["onetwo"], ["one", "two"])
    assert len(starts) == len(ids)
    middle = len(text[: text.index("one") + 3])
    assert starts[len(encode(tokenizer, "one")) :][:3].tolist() == [middle] * 3
    if name != "bytes":
        assert text.removeprefix(" ") == tokenizer.decode(ids.tolist())


# The fallback, for a vocabulary that is spelled in no known way


class UnknownSpelling:
    """A tokenizer whose vocabulary says nothing about its bytes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.encode, self.decode = tokenizer.encode, tokenizer.decode
        self.added_tokens_decoder: dict[int, str] = {}

    def get_vocab(self) -> dict[str, int]:
        return {f"token {i}": i for i in range(len(self._tokenizer.get_vocab()))}


@pytest.fixture(scope="session")
def slow(tokenizer: Any) -> TokenText:
    return TokenText(UnknownSpelling(tokenizer))


def test_an_unknown_spelling_is_noticed(slow: TokenText) -> None:
    assert not slow.exact


@few
@given(words)
@example("a 🙚 b")  # the space and half of the character in one token, the rest in others
@example("plain words")
@example("中文字符 👩‍👩‍👧")
def test_the_slow_way_agrees_with_the_table_on_text(
    tokenizer: Any, known: TokenText, slow: TokenText, written: str
) -> None:
    ids = encode(tokenizer, written)
    text, starts = known.text_and_starts(ids)
    if "�" in text:
        return
    slow_text, slow_starts = slow.text_and_starts(ids)
    hidden = len(text) - len(
        slow_text
    )  # SentencePiece's one leading space is gone here, and everything stands one earlier
    assert text == " " * hidden + slow_text
    assert hidden <= 1
    assert slow_starts.tolist() == np.maximum(starts - hidden, 0).tolist()


@few
@given(st.data())
def test_the_slow_way_has_an_answer_for_any_tokens(slow: TokenText, size: int, data: st.DataObject) -> None:
    ids = np.asarray(data.draw(st.lists(st.integers(0, size - 1), max_size=12)), dtype=np.int32)
    text, starts = slow.text_and_starts(ids)
    assert len(starts) == len(ids)
    assert starts.tolist() == sorted(starts)
    assert all(0 <= start <= len(text) for start in starts.tolist())
