"""Token ids to text and back to places in it.

Which token holds which character decides who is rewarded for it, so the table of every token's bytes is built once and
checked against the tokenizer's own decoding; per turn it then costs one look-up a token. A vocabulary that fits neither
of the two known spellings is decoded piece by piece instead, more slowly.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROBES = (
    "plain words, 12 345 numbers\n\nand\ttabs",
    "naïve café — Ünïcode",
    "中文字符 🙂👩‍👩‍👧 ∑∫≤",
    "<solution>\\boxed{7}</solution>  two  spaces",
)


class TokenText:
    """Decodes sampled tokens and says where each one stands."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        table = _verified_table(tokenizer)
        # One more, empty: models round their vocabulary up, and what they sample past the tokenizer's is no text.
        self._bytes = None if table is None else [*table, b""]
        self._lengths = None if self._bytes is None else np.array([len(piece) for piece in self._bytes], dtype=np.int32)

    @property
    def exact(self) -> bool:
        """Whether every token's bytes are known."""
        return self._bytes is not None

    def text_and_starts(self, ids: NDArray[np.int32]) -> tuple[str, NDArray[np.int32]]:
        """The text, and for each token the index of the character it starts in."""
        if self._bytes is None or self._lengths is None:
            return self._slowly(ids.tolist())
        ids = np.minimum(ids, len(self._bytes) - 1)
        raw = b"".join([self._bytes[i] for i in ids.tolist()])
        ends = np.cumsum(self._lengths[ids], dtype=np.int32)
        starts = ends - self._lengths[ids]
        text = raw.decode("utf-8", errors="replace")
        if len(text) == len(raw):
            return text, starts
        return text, _character_of_byte(raw, text)[starts]

    def text(self, ids: Iterable[int]) -> str:
        return self.text_and_starts(np.fromiter(ids, dtype=np.int32))[0]

    def _slowly(self, ids: list[int]) -> tuple[str, NDArray[np.int32]]:
        """Decodes a few tokens at a time, holding back while the last character is incomplete."""
        text, held, starts = "", "", np.zeros(len(ids), dtype=np.int32)
        # What was decoded last goes before what is decoded now: alone, a piece may lose a space at its front.
        previous, begin = 0, 0
        for i in range(len(ids)):
            starts[i] = len(text) + len(held.rstrip("�"))
            held = self._decode(ids[previous : i + 1])[len(self._decode(ids[previous:begin])) :]
            if not held.endswith("�") or i == len(ids) - 1 or i - begin > 8:
                text, held = text + held, ""
                previous, begin = begin, i + 1
        return text, starts

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _character_of_byte(raw: bytes, text: str) -> NDArray[np.int32]:
    """For each byte, and for the end, the index of the character it belongs to."""
    array = np.frombuffer(raw, dtype=np.uint8)
    first = (array & 0xC0) != 0x80
    if int(first.sum()) == len(text) and "�" not in text:
        return np.append(np.cumsum(first, dtype=np.int32) - 1, np.int32(len(text)))
    # Broken UTF-8: ask the decoder, byte by byte, which character each byte went into.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    places, count = np.empty(len(raw) + 1, dtype=np.int32), 0
    for i, byte in enumerate(raw):
        count += len(decoder.decode(bytes((byte,))))
        places[i] = count if decoder.getstate()[0] else count - 1
    places[len(raw)] = len(text)
    return places


def _verified_table(tokenizer: Any) -> list[bytes] | None:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    added = {int(i): str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
    for spelling in (_byte_level, _sentence_piece):
        table = _table(vocabulary, added, spelling)
        if all(_agrees(tokenizer, table, probe) for probe in PROBES):
            return table
    return None


def _table(vocabulary: Mapping[str, int], added: Mapping[int, str], spelling: Any) -> list[bytes]:
    size = max([*vocabulary.values(), *added], default=-1) + 1
    table = [b""] * size
    for token, i in vocabulary.items():
        table[i] = spelling(token)
    for i, token in added.items():
        table[i] = token.encode()
    return table


def _agrees(tokenizer: Any, table: list[bytes], probe: str) -> bool:
    ids = tokenizer.encode(probe, add_special_tokens=False)
    ours = b"".join(table[i] for i in ids).decode("utf-8", errors="replace")
    theirs = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    return ours in (theirs, " " + theirs)  # SentencePiece hides one leading space, which the model did write


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes as printable characters: those that print stand for themselves, the rest are moved past
    255."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(moved)}


_BYTE_OF = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[char] for char in token)
    except KeyError:
        return token.encode("utf-8", errors="replace")


def _sentence_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes((int(token[3:5], 16),))
        except ValueError:
            pass
    return token.replace("▁", " ").encode("utf-8", errors="replace")
