"""Who answers, by name; and what must not stand in a name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.cli import main
from moot.engine.kinds import KINDS, Kind
from moot.engine.protocol import Trainer
from moot.errors import ConfigError, EngineError
from moot.players.chat.endpoint import is_endpoint, named_endpoint
from moot.players.create import create_engine
from moot.players.find import Players, make_engine
from moot.rl.rollout import Player
from moot.settings.model import ModelConfig
from moot.settings.train import TrainConfig
from moot.training.setup import prepare
from moot.util.addresses import check_address
from moot.util.secrets import keep_secret, redact

SECRET = "http://me:hunter2@server.test/v1"


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--engine", "scripted", "--judge", f"m@{SECRET}"),
        ("train", "--engine", "tinker", "--base-url", SECRET),
        ("eval", "--engine", "scripted", "--modes", "opponents", "--opponents", f"m@{SECRET}"),
        ("ask", "q", "--engine", "openai", "--model", "m", "--base-url", SECRET),
        ("ask", "q", "--engine", "tinker", "--model", "m", "--base-url", SECRET),
        ("ask", "q", "--engine", "scripted", "--seat", f"1=m@{SECRET}"),
    ],
)
def test_a_password_in_an_address_is_refused_before_anything_is_written_or_shown(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(command)) == 2
    shown = capsys.readouterr()
    assert "must not hold a name or a password" in shown.err and shown.err.count("\n") == 1
    assert "hunter2" not in shown.out + shown.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "url", ["http://me:pw@x/v1", "http://me@x", "https://:pw@x", "me:pw@x/v1", "http://me:pw@[::1", "ftp://me:pw@x"]
)
def test_a_password_is_not_shown_even_where_the_address_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="must not hold a name or a password") as caught:
        check_address(url, "base-url")
    assert "pw" not in str(caught.value)


def test_an_address_keeps_all_but_its_last_slash() -> None:
    assert check_address("http://localhost:8000/v1/", "base-url") == "http://localhost:8000/v1"
    assert check_address("https://host/@team/v1", "base-url") == "https://host/@team/v1"


def test_a_model_at_a_server_is_named_with_its_address() -> None:
    names = {"m@http://x/v1": True, "org/m@v1@https://x": True, "base": False, "runs/a@12": False, "@http://x": False}
    assert {name: is_endpoint(name) for name in names} == names
    found = named_endpoint("org/m@v1@https://x/v1/", "a-secret-key", "judge")
    assert (found.model, found.base_url, found.key) == ("org/m@v1", "https://x/v1", "a-secret-key")
    assert "a-secret-key" not in repr(found)


def test_an_engines_error_never_holds_a_key_that_was_given() -> None:
    keep_secret("tml-0123456789")
    keep_secret("none")
    assert str(EngineError("401: tml-0123456789 is not valid, none is")) == "401: [key] is not valid, none is"
    assert redact("tml-01234") == "tml-01234"


def test_an_engine_is_made_from_its_settings_alone_and_brings_its_tokenizer() -> None:
    engine = create_engine(ModelConfig(engine="scripted"), seed=3)
    assert isinstance(engine, Trainer) and engine.tokenizer.decode(engine.tokenizer.encode("Two")) == "Two"
    engine.shut()
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(_sample(engine))


async def _sample(engine: Trainer) -> None:
    from moot.engine.protocol import SamplingParams

    await (await engine.base()).sample([1], SamplingParams(max_tokens=1))


def test_an_engine_whose_chat_format_is_unknown_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    shut = []
    monkeypatch.setattr("moot.engine.scripted.ScriptedEngine.shut", lambda self: shut.append(self))
    monkeypatch.setattr("moot.players.find.Rendering", lambda *_: (_ for _ in ()).throw(ConfigError("no such format")))
    with pytest.raises(ConfigError, match="no such format"):
        make_engine(TrainConfig(model=ModelConfig(engine="scripted")))
    assert len(shut) == 1


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    """An engine of one line in the table, which cannot be trained and is no chat server."""
    kind = Kind("moot.engine.scripted:create", trains=False, scripted="The echo engine")
    monkeypatch.setitem(KINDS, "echo", kind)
    return ModelConfig(engine="echo")


def test_an_engine_that_cannot_be_trained_is_asked_in_tokens(echo: ModelConfig) -> None:
    async def policy() -> object:
        players = Players(TrainConfig(model=echo), None)
        await players.load(None)
        await players.close()
        return players.policy

    assert isinstance(asyncio.run(policy()), Player)


def test_an_engine_that_cannot_be_trained_says_so_before_there_is_a_folder(echo: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="engine echo cannot be trained: it has no weights to change"):
        prepare(TrainConfig(model=echo), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_chat_server_gives_no_tokens() -> None:
    with pytest.raises(ConfigError, match="engine openai is a chat server, which has no tokens to give"):
        create_engine(ModelConfig(engine="openai"))
