"""Messages to tokens, on the `renderers` package. The one file that knows it; imported late, because it costs half a
second.

A debate is one growing token sequence: what was sampled stays as it was sampled, and each new user message is a
rendered suffix.
Models the package knows bring that suffix themselves. For the others it wraps the chat template and gives no suffix;
then it is cut
out of the template's own output, and checked at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moot.debate.parsing import stop_marker
from moot.debate.prompts import BLOCKS
from moot.debate.types import Message
from moot.engine.protocol import Ints, Stop
from moot.errors import ConfigError
from moot.tokens.decode import TokenText
from moot.tokens.template_trial import try_template


def stop_conditions(stops: Sequence[int] | Sequence[str], contract: str) -> Stop:
    """Token ids stand alone; strings get the contract's last closing tag, once. The two are never mixed."""
    ids = tuple(stop for stop in stops if isinstance(stop, int))
    strings = tuple(stop for stop in stops if isinstance(stop, str))
    if ids and strings:
        raise ConfigError(f"stop conditions must be all token ids or all strings, got {list(stops)}; keep the ids")
    if ids:
        return ids
    marker = stop_marker(contract)
    return strings if marker in strings else (*strings, marker)


class Rendering:
    """A tokenizer and its chat format.

    `model` is the hub id the format is looked up by; `renderer` names one of the package's formats where the id is not
    known to it (a fine-tune, a directory). Thinking is off unless asked for: its empty block stays, so that a debate
    remains one sequence.
    """

    def __init__(self, tokenizer: Any, model: str = "", renderer: str = "auto", thinking: bool = False) -> None:
        self.tokenizer = tokenizer
        self.model = model or str(getattr(tokenizer, "name_or_path", "")) or "the tokenizer"
        self._renderer = _create(tokenizer, self.model, renderer, thinking)
        self.name = str(self._renderer.config.name)
        self._text = TokenText(tokenizer)
        self._specials = _special_pattern(tokenizer)
        self._special_starts = {token[:3] for token in _special_tokens(tokenizer)}
        self._bridge = _TemplateBridge(self._renderer, tokenizer, self.model) if self.name == "default" else None
        ids = [int(i) for i in self._renderer.get_stop_token_ids()]
        if self._bridge and self._bridge.close_id is not None:
            ids.append(self._bridge.close_id)
        self.stop_ids = tuple(dict.fromkeys(ids))
        try:
            if self._bridge:
                self._bridge.check_shown(self.model)
            self._opening = self.prompt([Message("system", "Be brief."), Message("user", "Two and two?")]).tolist()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the chat format of {self.model} ({self.name}) takes no system message before the user's: {error}"
            ) from None
        self._turn = None if self._bridge else self._plain_turn()

    def stops(self, contract: str) -> Stop:
        return stop_conditions(self.stop_ids, contract)

    # Messages to tokens

    def prompt(self, messages: Sequence[Message]) -> Ints:
        """A whole conversation, ready for the next assistant turn."""
        plain = [self._plain(message) for message in messages]
        if self._bridge:
            return self._bridge.prompt(plain)
        return np.asarray(self._renderer.render_ids(plain, add_generation_prompt=True), dtype=np.int32)

    def suffix(self, sampled: Ints, message: Message) -> Ints:
        """What follows a sampled turn: its end where it was cut, the new message, and the start of the next turn."""
        ended = len(sampled) > 0 and int(sampled[-1]) in self.stop_ids
        if self._bridge:
            return self._bridge.suffix(self._plain(message)["content"], ended)
        if (
            self._turn is None
            or (ids := self._bridged(self._turn, int(sampled[-1]) if ended else None, message)) is None
        ):
            raise ConfigError(_cannot_extend(self.model, self.name))
        return np.asarray(ids, dtype=np.int32)

    def _bridged(self, turn: list[int], end: int | None, message: Message) -> list[int] | None:
        """What the package writes after a plain turn that ended so. Not after the sampled one: the package gives up on
        some turns (one that ends inside a thinking block), and what a model says must not end the run."""
        said = turn if end is None else [*turn, end]
        bridged = self._renderer.bridge_to_next_turn(self._opening, said, [self._plain(message)])
        before = [*self._opening, *said]
        return (
            None if bridged is None or bridged.token_ids[: len(before)] != before else bridged.token_ids[len(before) :]
        )

    def _plain_turn(self) -> list[int] | None:
        """A turn that the package can go on from; one that closes the thinking block, where the prompt opens it."""
        for text in ("4", "</think>4"):
            turn = self.tokenizer.encode(text, add_special_tokens=False)
            if all(
                self._bridged(turn, end, Message("user", "And three?")) is not None for end in (self.stop_ids[0], None)
            ):
                return list(turn)
        return None

    def _plain(self, message: Message) -> dict[str, str]:
        """What one agent writes must not end another's turn, so the spelling of special tokens is broken with a
        space."""
        content = message.content
        # The pattern has hundreds of spellings with few beginnings, which are quicker to look for.
        if message.role != "assistant" and self._specials and any(start in content for start in self._special_starts):
            content = self._specials.sub(lambda match: f"{match[0][0]} {match[0][1:]}", content)
        return {"role": message.role, "content": content}

    # Tokens to text

    def said(self, sampled: Ints) -> tuple[str, NDArray[np.int32]]:
        """The text of a sampled turn without its end-of-turn token, and the character each token starts in."""
        ended = len(sampled) > 0 and int(sampled[-1]) in self.stop_ids
        text, starts = self._text.text_and_starts(sampled[:-1] if ended else sampled)
        return (text, np.append(starts, np.int32(len(text)))) if ended else (text, starts)

    def encode(self, text: str) -> Ints:
        """Text that is inserted into a turn, as it stands."""
        ids = self.tokenizer.encode(text, add_special_tokens=False) if text else []
        if ids and self._text.text(ids) != text:
            # SentencePiece puts a space before a text of its own, so the text is taken out of a longer one.
            for before in ("\n", "a", ";"):
                head = self.tokenizer.encode(before, add_special_tokens=False)
                whole = self.tokenizer.encode(before + text, add_special_tokens=False)
                if whole[: len(head)] == head and self._text.text(whole[len(head) :]) == text:
                    ids = whole[len(head) :]
                    break
        return np.asarray(ids, dtype=np.int32)

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """The end of a turn as text, for where other stops are strings."""
        return tuple(str(self.tokenizer.decode([i], skip_special_tokens=False)) for i in self.stop_ids)

    def decode(self, ids: Ints) -> str:
        return self._text.text_and_starts(ids)[0]


def _create(tokenizer: Any, model: str, renderer: str, thinking: bool) -> Any:
    from renderers import AutoRendererConfig, DefaultRendererConfig, config_from_name, create_renderer
    from renderers.base import MODEL_RENDERER_MAP

    name = MODEL_RENDERER_MAP.get(model, "default") if renderer == "auto" else renderer
    if name == "default":
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"{model} has no chat template; use an instruct model, or name its format with renderer")
        extra = {"enable_thinking": False} if not thinking and "enable_thinking" in str(tokenizer.chat_template) else {}
        try_template(tokenizer, model, extra)
        return create_renderer(tokenizer, DefaultRendererConfig(**extra))
    try:
        config = config_from_name(name)
    except Exception as error:
        raise ConfigError(f"renderer {name!r} is not known: {error}") from None
    assert not isinstance(config, AutoRendererConfig)
    # Without this the package would render a conversation anew at each user message, which ends the growing sequence.
    changes: dict[str, Any] = {"thinking_retention": "all"}
    if "enable_thinking" in type(config).model_fields:
        changes["enable_thinking"] = thinking
    try:
        return create_renderer(tokenizer, type(config).model_validate({**config.model_dump(), **changes}))
    except Exception as error:
        raise ConfigError(f"renderer {name!r} does not fit the tokenizer of {model}: {error}") from None


def _special_tokens(tokenizer: Any) -> set[str]:
    added = [str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values()]
    return {
        token
        for token in [*getattr(tokenizer, "all_special_tokens", []), *added]
        if len(token) > 1 and not token.isspace()
    }


def _special_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    specials = _special_tokens(tokenizer)
    return (
        re.compile("|".join(re.escape(token) for token in sorted(specials, key=len, reverse=True)))
        if specials
        else None
    )


def _cannot_extend(model: str, name: str) -> str:
    return (
        f"the chat format of {model} ({name}) cannot be extended turn by turn, which the growing layout needs; "
        "use layout rebuilt or shared, or a model whose format keeps earlier turns as they were"
    )


class _Pieces:
    """Encodes text in pieces that are remembered: a seat's system text, and each response, which all the others read.

    A piece ends where the tokenizer ends one anyhow: at an end-of-turn token, and at the blank line before a block. On
    which side of that line differs between tokenizers, so both are tried; where neither fits, text is encoded whole.
    """

    ENDINGS = ("word", "12", "end.", "}", "\\)", "?!", "数学", "é", "🙂", "`", "$", "**", '"', "…", "]", ")", ":", "-")

    def __init__(self, tokenizer: Any, close: str) -> None:
        self._encode = _encoder(tokenizer)
        # Two patterns that each begin with fixed characters: one with a choice in front would be tried at every
        # character.
        self._closes = re.compile(re.escape(close) or "(?!)")
        self._blocks = re.compile(rf"\n\n(?={'|'.join(map(re.escape, BLOCKS))})")
        self._piece = lru_cache(maxsize=4096)(self.whole)
        self._cut_before = next((before for before in (True, False) if self._fits(before)), None)

    def whole(self, text: str) -> Ints:
        return np.asarray(self._encode(text), dtype=np.int32)

    def encode(self, text: str) -> Ints:
        if self._cut_before is None:
            return self.whole(text)
        return np.concatenate([self._piece(piece) for piece in self._split(text, self._cut_before)])

    def _split(self, text: str, before: bool) -> list[str]:
        closed = [match.end() for match in self._closes.finditer(text)]
        blocks = [match.start() for match in self._blocks.finditer(text)]
        # White space before the blank line may be joined to it, so there is no border then, nor inside an end of turn.
        inner = {end - 1 for end in closed} | {end - 2 for end in closed}
        blocks = [at for at in blocks if not text[max(0, at - 1) : at].isspace() and at not in inner]
        cuts = sorted({*closed, *(at if before else at + 2 for at in blocks)})
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def _fits(self, before: bool) -> bool:
        texts = [
            f"solution: {e}\n\n{BLOCKS[0]}1, round 1]\nsolution: {e}\n\n{last}2 of 3."
            for e in self.ENDINGS
            for last in BLOCKS[1:]
        ]
        return all(
            np.array_equal(self.whole(t), np.concatenate([self.whole(p) for p in self._split(t, before)]))
            for t in texts
        )


def _encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Text to ids. The Rust tokenizer is asked directly where there is one, without character offsets: half as fast
    again."""
    if (rust := getattr(tokenizer, "backend_tokenizer", None)) is not None and hasattr(rust, "encode_batch_fast"):
        return lambda text: rust.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


class _TemplateBridge:
    """A chat template that the package only wraps: whole prompts, and the next-turn suffix that it does not give.

    Rendering a conversation with a marked assistant turn shows what the template writes after one. That must not depend
    on what came before, and must tokenise the same alone as in place; both are checked once.
    """

    MARK, NEXT = "moot-marks-this-turn", "moot-marks-the-next-message"
    PROBES = ("Next.", "\nstarts with a line\n\nends with one\n", " 数学 🙂 <b> 12 ")
    OPENING = (
        {"role": "system", "content": "moot-marks-the-system-text"},
        {"role": "user", "content": "moot-marks-the-question"},
    )

    def __init__(self, renderer: Any, tokenizer: Any, model: str) -> None:
        self._tokenizer = tokenizer
        self._extra = dict(renderer.config.model_extra or {})
        self._problem: str | None = None
        self._close, self.close_id = "", None
        self._wrap: tuple[str, str] | None = None
        try:
            self._close, self.close_id = self._end_of_turn()
        except Exception as error:
            # Only the growing layout needs the bridge; the complaint waits until somebody does.
            self._problem = f"{_cannot_extend(model, 'its own chat template')} ({error})"
        self._pieces = _Pieces(tokenizer, self._close)
        try:
            self._verify()
        except Exception as error:
            self._problem = self._problem or f"{_cannot_extend(model, 'its own chat template')} ({error})"

    def check_shown(self, model: str) -> None:
        """Raises ConfigError where the template leaves out what it is given."""
        text = self._text(self.OPENING)
        for message in self.OPENING:
            if message["content"] not in text:
                raise ConfigError(
                    f"the chat template of {model} does not show the {message['role']} message; "
                    "use another model, or name its format with renderer"
                )

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> Ints:
        return self._pieces.encode(self._text(messages))

    def suffix(self, content: str, ended: bool) -> Ints:
        if self._problem:
            raise ConfigError(self._problem)
        # Most templates put the content between two fixed texts, and then need not be run.
        text = self._after(content) if self._wrap is None else self._wrap[0] + content + self._wrap[1]
        # With the end of the turn before it, as it stands in its place: SentencePiece puts a space before a text of its
        # own.
        ids = self._pieces.encode(text)
        return ids[1:] if ended and self._close else ids

    def _text(self, messages: Sequence[Mapping[str, str]], start: bool = True) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=start, tokenize=False, **self._extra
            )
        )

    def _after(self, content: str, earlier: int = 0) -> str:
        """What the template writes after an assistant turn when this message follows."""
        turns = [{"role": "assistant", "content": "Earlier."}, {"role": "user", "content": "Then."}] * earlier
        last = [{"role": "assistant", "content": self.MARK}, {"role": "user", "content": content}]
        _, mark, after = self._text([*self.OPENING, *turns, *last]).partition(self.MARK)
        if not mark:
            raise ConfigError("the template does not show assistant turns")
        return after

    def _end_of_turn(self) -> tuple[str, int | None]:
        after = self._after("Next.")
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        closes = {str(token): int(i) for i, token in added.items() if str(token) and after.startswith(str(token))}
        close = max(closes, key=len, default="")
        return close, closes.get(close)

    def _verify(self) -> None:
        whole = self._pieces.whole
        head, mark, tail = self._after(self.NEXT).partition(self.NEXT)
        if mark and all(self._after(content) == head + content + tail for content in self.PROBES):
            self._wrap = (head, tail)
        turn = ({"role": "assistant", "content": self.MARK}, {"role": "user", "content": "Then."})
        for turns in range(3):
            before = self._text([*self.OPENING, *turn * turns], start=False)
            if not self._text([*self.OPENING, *turn * (turns + 1)]).startswith(before):
                raise ConfigError("it changes what was said before")
        for content in self.PROBES:
            after = self._after(content)
            if any(message["content"] in after for message in self.OPENING):
                raise ConfigError("it repeats the system text or the question")
            if after != self._after(content, earlier=1) or after != self._after(content, earlier=2):
                raise ConfigError("what it writes after a turn depends on the turns before")
            text = self._text(
                [*self.OPENING, {"role": "assistant", "content": self.MARK}, {"role": "user", "content": content}]
            )
            cut = text.index(self.MARK) + len(self.MARK) + len(self._close)
            if not np.array_equal(np.concatenate([whole(text[:cut]), self.suffix(content, ended=True)]), whole(text)):
                raise ConfigError("its text does not tokenise turn by turn")
