"""Files on disk: no link is followed, nobody's temporary file is anybody else's, nothing is waited for that never ends."""

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from moot.errors import ConfigError
from moot.util.disk import beside, new_folder, open_to_append, opened, read_file, refuse_links, write_atomically
from moot.util.files import append_lines, json_lines, lines_in


def test_a_write_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "report.md").symlink_to("thesis.tex")
    (tmp_path / "report.md.tmp").symlink_to("thesis.tex")
    write_atomically(tmp_path / "report.md", b"new")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "report.md").read_text() == "new" and not (tmp_path / "report.md").is_symlink()


@pytest.mark.parametrize("to", ["thesis.tex", "nowhere", "lines.jsonl"])
def test_lines_are_not_added_through_a_link(tmp_path: Path, to: str) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "lines.jsonl").symlink_to(to)
    with pytest.raises(ConfigError, match=r"lines\.jsonl is a link, and a plain file or folder is wanted there"):
        append_lines(tmp_path / "lines.jsonl", [{}])
    assert (tmp_path / "thesis.tex").read_text() == "years of work" and not (tmp_path / "nowhere").exists()


def test_many_who_write_one_file_at_once_do_not_meet(tmp_path: Path) -> None:
    """Three evaluations of one run ended in `report.json.tmp: no such file`, where all wrote to one temporary name."""
    together, troubles = threading.Barrier(8), list[BaseException]()

    def write(number: int) -> None:
        try:
            for _ in range(50):
                with beside(tmp_path / "report.json") as file:
                    file.write(json.dumps([number] * 1000).encode())
                    together.wait(60)
        except BaseException as trouble:
            troubles.append(trouble)
            together.abort()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    assert len(set(json.loads((tmp_path / "report.json").read_text()))) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), beside(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("old")
    rename = Path.rename

    def refused(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(5, "Input/output error", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="Input/output"), new_folder(tmp_path / "model") as made:
        (made / "weights").write_text("new")
    assert (tmp_path / "model" / "weights").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with new_folder(tmp_path / "model") as made:
            (made / "weights").write_text(text)
    assert (tmp_path / "model" / "weights").read_text() == "new" and len(list(tmp_path.iterdir())) == 1


def test_a_torn_last_line_is_ended_before_the_next(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_bytes(b'{"a": 1}\n{"a": 2')
    append_lines(tmp_path / "lines.jsonl", [{"a": 3}, {"a": 4}])
    assert [row for _, row, _ in json_lines(tmp_path / "lines.jsonl")] == [{"a": 1}, None, {"a": 3}, {"a": 4}]


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
def test_what_might_be_waited_for_for_ever_is_refused_by_name(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = Path("odd")
    if kind == "a pipe":
        os.mkfifo(odd)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("odd")
    else:
        odd = Path("/dev/zero")
    for use in (opened, read_file, open_to_append):
        with pytest.raises(ConfigError, match=f"{odd} is {kind}"):
            use(odd)
    with pytest.raises(ConfigError, match=f"{odd} is {kind}"):
        refuse_links(odd.parent, [odd.name])


def test_a_file_of_any_size_costs_nothing(tmp_path: Path) -> None:
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(
        ConfigError, match=r"metrics\.jsonl has 1,099,511,627,776 bytes, and at most 536,870,912 are read"
    ):
        read_file(tmp_path / "metrics.jsonl")


def test_links_are_found_in_the_parts_of_a_folder_and_not_in_what_is_somebodys_own(tmp_path: Path) -> None:
    (tmp_path / "run" / "wandb").mkdir(parents=True)
    (tmp_path / "run" / "wandb" / "latest").symlink_to(tmp_path)
    refuse_links(tmp_path / "run", ["evals"])
    refuse_links(tmp_path / "none", ["evals"])
    (tmp_path / "run" / "evals" / "x").mkdir(parents=True)
    (tmp_path / "run" / "evals" / "x" / "answers.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"evals/x/answers\.jsonl is a link"):
        refuse_links(tmp_path / "run", ["evals"])


def test_lines_are_told_with_where_they_begin_and_empty_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\n\ntwo\r\nthree")
    with opened(tmp_path / "a") as file:
        assert list(lines_in(file)) == [(0, b"one"), (6, b"two\r"), (11, b"three")]
