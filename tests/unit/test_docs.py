"""The documentation is built, its links and options exist, its tables are the code's, and what is marked to run runs.

In a page, `<!-- run -->` before a fenced block says that the test runs it, and `<!-- file: NAME -->` that it is written to a file first.
Blocks of one page share a folder, in order. A `moot` block is one command a line; a python block is executed.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from html.parser import HTMLParser
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

import markdown
import pytest

import moot
from moot.cli.export import Export
from moot.cli.main import COMMANDS, main, understood
from moot.debate.protocols import PRESETS as PROTOCOLS
from moot.debate.rewards import REWARDS
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.engine.kinds import KINDS as ENGINES
from moot.evaluate.preflight import CHECKS, CONTRACT, LENGTH
from moot.rl.advantages import ESTIMATORS
from moot.rl.alarms import ALARMS
from moot.rl.trust_help import PANEL
from moot.settings.presets import ABOUT, find_preset
from moot.settings.train import ModelConfig, RecipeConfig
from moot.tasks import TASKS
from moot.tools.export.kinds import KINDS as EXPORTS
from moot.tools.transcripts import as_json, score
from moot.training.part import Part
from moot.training.parts import part_classes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
README = "../README.md"
"""Seen from the pages' folder."""
BLOCK = re.compile(r"^<!-- (run|file: (\S+)) -->\n```(\w*)\n(.*?)^```$", re.M | re.S)
FOREIGN = {"--backend", "--checkpoints-base"}
"""Options of other programs that the pages name alone."""


@dataclass
class Page(HTMLParser):
    """What a built page points to, what can be pointed to in it, and its code."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    """What a browser fetches without being asked."""
    code: list[str] = field(default_factory=list)
    """Single words and whole blocks; those of blocks end in a line feed."""
    paragraphs: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attributes}
        self.ids |= {known[name] for name in ("id", "name") if name in known}
        if tag == "a" and "href" in known:
            self.links.append(known["href"])
        elif tag == "link" or "src" in known:
            self.loaded.append(known.get("src") or known.get("href", ""))
        if tag in ("code", "p"):
            (self.code if tag == "code" else self.paragraphs).append("")
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "p") and tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if "code" in self._open:
            self.code[-1] += data
        elif "p" in self._open:
            self.paragraphs[-1] += data


def read(html: Path) -> Page:
    page = Page()
    page.feed(html.read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages as `mkdocs build --strict` makes them; it refuses dead links, and pages that the navigation leaves out. Not `--quiet`: that
    hides warnings from `--strict` as well."""
    where = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {html: read(html) for html in where.rglob("*.html") if html.name != "404.html"}
    assert {html.stem for html in pages} >= {page.stem for page in PAGES}
    return pages


@pytest.fixture(scope="module")
def readme() -> Page:
    page = Page()
    page.feed(
        markdown.markdown((DOCS / README).read_text(encoding="utf-8"), extensions=["tables", "fenced_code", "toc"])
    )
    return page


@pytest.fixture(scope="module")
def texts(site: dict[Path, Page], readme: Page) -> dict[Path, Page]:
    return {**site, Path("README"): readme}


def test_every_link_of_the_readme_resolves(readme: Page) -> None:
    near = [urlsplit(link) for link in readme.links + readme.loaded if not urlsplit(link).scheme]
    assert len(near) > 10
    assert [link.path for link in near if not (ROOT / link.path).exists()] == []
    for link in near:
        text = (ROOT / (link.path or "README.md")).read_text(encoding="utf-8") if link.fragment else ""
        headings = {
            re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in re.findall(r"(?m)^#+ (.*)", text)
        }
        assert not link.fragment or link.fragment in headings, link


def test_the_readme_has_ten_lines_of_python_and_the_result_before_any_table_of_engineering() -> None:
    text = (DOCS / README).read_text(encoding="utf-8")
    (example,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", text, re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    order = ["pip install", "    moot train ", "**For whom:**", "<!-- result -->", "## The loop", "import moot"]
    order += ["## Your own questions", "## On a GPU", "[benchmarks](docs/benchmarks.md).", "## What it is not"]
    assert text.index("<!-- result -->") < text.index("<!-- /result -->") < 3000 and len(text) < 9200
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert text.index("|---|") > text.index("<!-- result -->")


def test_the_citation_has_the_version_of_the_package() -> None:
    assert f'version: "{moot.__version__}"' in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_what_the_readme_the_demo_and_the_image_install_are_extras_that_exist() -> None:
    known = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    for name in ("README.md", "Dockerfile", "scripts/demo"):
        (extras,) = re.findall(r"(?:'\.\[|install )([a-z,]+)(?:\]|$)", (ROOT / name).read_text(encoding="utf-8"), re.M)
        assert set(extras.split(",")) == {"local", "data", "view"} <= known, name


def test_every_link_and_anchor_of_the_site_resolves(site: dict[Path, Page]) -> None:
    dead = []
    for html, page in site.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (html.parent / unquote(parts.path)).resolve() if parts.path not in ("", ".") else html
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                dead.append(f"{html.name}: {link} is no file")
            elif parts.fragment and target in site and unquote(parts.fragment) not in site[target].ids:
                dead.append(f"{html.name}: {link} has no such anchor")
    assert not dead


def test_the_site_needs_no_network(site: dict[Path, Page]) -> None:
    assert [f"{html.name}: {url}" for html, page in site.items() for url in page.loaded if urlsplit(url).netloc] == []
    folder = next(iter(site)).parent
    sheets = [
        css
        for css in folder.rglob("*.css")
        if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", css.read_text(encoding="utf-8"))
    ]
    assert sheets == []


def test_lists_are_lists(site: dict[Path, Page]) -> None:
    """A list without a blank line before it would be built as one long paragraph."""
    swallowed = [
        f"{html.name}: {text[:80]}"
        for html, page in site.items()
        for text in page.paragraphs
        if re.search(r"\n\s*([-*]|\d+\.) ", text)
    ]
    assert not swallowed


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """The options of every command, as its help lists them."""
    found = {}
    for name in COMMANDS:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            main([name, "--help-all"])
        heads = re.findall(r"(?m)^[│| ] (?:-h, )?(--[a-z].*)", shown.getvalue())
        # An option may have another spelling, and a switch is turned off by its second one: --personas, --no-personas.
        found[name] = {option for head in heads for option in re.findall(r"--[a-z][a-z0-9-]*", head.split("  ")[0])}
        assert "--help" in found[name], f"the help of {name} could not be read"
    return found


def commands(code: str) -> Iterator[tuple[str, list[str]]]:
    """Each `moot COMMAND` in a piece of code, with the options after it."""
    for line in code.replace("\\\n", " ").splitlines():
        for name, rest in re.findall(r"(?:^|\s|\()moot ([a-z]+)\b(.*)", line.split(" # ")[0]):
            yield name, re.findall(r"(?<!\S)(--[a-z][a-z0-9-]*)", rest)


def test_every_command_and_option_named_in_the_docs_exists(
    texts: dict[Path, Page], options: dict[str, set[str]]
) -> None:
    wrong, seen = [], 0
    anywhere = set.union(*options.values()) | FOREIGN
    for html, page in texts.items():
        for code in page.code:
            for name, given in commands(code):
                seen += 1
                if name not in options:
                    wrong.append(f"{html.name}: there is no command moot {name}")
                wrong += [
                    f"{html.name}: moot {name} has no {option}"
                    for option in given
                    if option not in options.get(name, given)
                ]
            if code.startswith("--"):
                wrong += [
                    f"{html.name}: no command has {option}"
                    for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code)
                    if option not in anywhere
                ]
    assert not wrong
    assert seen > 40


def test_every_command_line_in_the_docs_is_understood(
    texts: dict[Path, Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole lines are read as the command would, without running them: a wrong value, or one argument too many, is told
    too. Files that the pages write lie there, because settings in a file are read with the options."""
    monkeypatch.chdir(tmp_path)
    for _, name, _, text in (block for page in PAGES for block in blocks(page.name)):
        if name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    wrong, seen = [], 0
    for html, page in texts.items():
        listings = [code.replace("\\\n", " ") for code in page.code if code.endswith("\n")]
        for line in (line for code in listings for line in code.splitlines()):
            # What follows a comment sign or a wide gap is about the command.
            found = re.fullmatch(r"(?:[A-Z_]+=\S+ )?moot ([a-z]+)\b(.*?)(?:(?: {3,}| # ).*)?", line.strip())
            if found is None or found[1] not in COMMANDS:
                continue
            seen += 1
            try:
                understood(found[1], shlex.split(found[2]))
            except (Exception, SystemExit) as error:
                wrong.append(f"{html.name}: {line.strip()}: {error}")
    assert not wrong
    assert seen > 40


def test_the_check_of_options_sees_a_wrong_one(options: dict[str, set[str]]) -> None:
    assert list(commands("TOKEN=1 moot train --no-such 3 --seed 1 # moot view --x\nmoot nothing")) == [
        ("train", ["--no-such", "--seed"]),
        ("nothing", []),
    ]
    assert "--seed" in options["train"] and "--no-such" not in options["train"] and "nothing" not in options


# Tables that must be the code's


def rows(page: str, heading: str = "") -> dict[str, list[str]]:
    """The rows of a page's tables whose first cell is code, by that; under one heading, if it is given."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading:
        text = re.split(r"^## ", text.split(f"\n## {heading}\n")[1], flags=re.M)[0]
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *others = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.update({name: [cell.rstrip("| ") for cell in others] for name in re.findall(r"`([^`]+)`", first)})
    return found


@pytest.mark.parametrize(("heading", "known"), [("The panel", PANEL), ("The alarms", ALARMS)])
def test_the_trust_page_says_what_the_remedies_say(heading: str, known: dict[str, object]) -> None:
    wanted = {key: [each.means[0].upper() + each.means[1:], each.remedy] for key, each in known.items()}  # type: ignore[attr-defined]
    assert rows("trust.md", heading) == wanted


def test_remedies_name_options_as_one_types_them() -> None:
    """Options stand in backticks, so that the page shows them as code and the check of options above reads them in the docs."""
    outside = [re.sub(r"`[^`]*`", "", f"{each.means} {each.remedy}") for each in (PANEL | ALARMS).values()]
    assert [text for text in outside if re.search(r"[a-z]_[a-z]|--", text)] == []


def test_remedies_of_the_preflight_name_options_of_training(options: dict[str, set[str]]) -> None:
    named = re.findall(r"--[a-z-]+", " ".join(each.remedy for each in (*CHECKS, *CONTRACT, LENGTH)))
    assert named and not {*named} - options["train"]


def test_the_recipe_page_has_every_setting_with_its_default() -> None:
    shown = {name: cells[0] for name, cells in rows("recipe.md").items()}

    def plain(value: object) -> str:
        if isinstance(value, tuple):
            return " ".join(map(str, value)) or "–"
        return str(value).lower() if isinstance(value, bool) else str(value) or "–"

    default = RecipeConfig()
    settings = {f.name: plain(getattr(default, f.name)) for f in fields(RecipeConfig)}
    assert shown == settings | {name: ", ".join(_shown_settings(part)) or "–" for name, part in part_classes().items()}


def _shown_settings(part: type[Part]) -> Iterator[str]:
    """As the table writes them: `share=0.2`; a setting without a default by its name alone."""
    for f in fields(part.Settings):
        value = {True: "yes", False: "no"}.get(f.default, f.default) if isinstance(f.default, bool) else f.default
        value = "-".join(map(str, value)) if isinstance(value, tuple) else value
        yield f"`{f.name}`" if f.default is MISSING else f"`{f.name}={value}`"


def test_the_protocols_page_has_every_choice_and_the_presets_values() -> None:
    table = rows("protocols.md")
    assert set(table) == {f.name for kind in (Rules, Scoring) for f in fields(kind)}
    for name, (v1, v2, _) in table.items():
        for cell, protocol in ((v1, PROTOCOLS["v1"]), (v2, PROTOCOLS["v2"])):
            value = {**vars(protocol.rules), **vars(protocol.scoring)}[name]
            if not isinstance(value, tuple) and cell != "–" and not name.startswith("lambda"):
                assert cell.strip("`") == (str(value).lower() if isinstance(value, bool) else str(value)), name


def test_the_protocols_page_names_every_value_and_every_preset() -> None:
    text, table = (DOCS / "protocols.md").read_text(encoding="utf-8"), rows("protocols.md")
    assert [name for name in PROTOCOLS if f"`{name}`" not in text and f"--protocol {name}`" not in text] == []
    hints = get_type_hints(Rules) | get_type_hints(Scoring)
    values = {name: get_args(hints[name]) for name in table if get_origin(hints[name]) is Literal}
    assert (
        len(values) > 6
        and [
            f"{name}: {value}" for name in values for value in values[name] if f"`{value}`" not in " ".join(table[name])
        ]
        == []
    )


def test_tasks_engines_and_kinds_of_export_each_have_a_row() -> None:
    assert {re.split("[:.]", name)[0] for name in rows("tasks.md")} >= set(TASKS)
    assert set(rows("engines.md")) >= {name for name, kind in ENGINES.items() if not kind.chat}
    assert set(rows("export.md")) == {f"--{kind}" for kind in EXPORTS}
    assert {option.name for option in fields(Export)} >= set(EXPORTS), "an option of cli/export.py for each"


def test_every_number_of_a_step_has_words_on_the_page(tmp_path: Path) -> None:
    glossary = (ROOT / "src/moot/page/static/glossary.js").read_text(encoding="utf-8")
    known = [re.compile(pattern.replace("\\/", "/")) for pattern in re.findall(r"(?m)^  \[/(.*)/, \"", glossary)]
    small = find_preset("demo")
    config = replace(
        small,
        model=ModelConfig(engine="scripted"),
        optim=replace(small.optim, batch_size=2, num_train_datapoints=2),
        warm_questions=0,
        eval_every=0,
    )
    run = moot.train(config, tmp_path / "run")
    (row,) = (row for row in run.metrics() if row["phase"] == "self_play")
    elsewhere = {*PANEL, *ALARMS, "step", "phase"}
    numbers = [name for name in row if name not in elsewhere and not name.startswith(("alarm/", "time/"))]
    assert len(known) > 50 and len(numbers) > 30
    silent = [name for name in numbers if not any(pattern.search(name) for pattern in known)]
    assert [name for name in silent if f'"{name}": {{' not in glossary] == []


def test_rewards_estimators_and_presets_are_all_described() -> None:
    text = (DOCS / "rewards.md").read_text(encoding="utf-8")
    assert [name for name in REWARDS if f"`{name}`" not in text] == []
    assert set(rows("rewards.md", "Advantages")) - {"advantage"} == set(ESTIMATORS)
    assert set(rows("quickstart.md")) == set(ABOUT)


def test_the_page_for_python_has_every_name_and_an_example_of_twenty_lines() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert [name for name in moot.__all__ if not re.search(rf"`{name}\b", page)] == []
    (example,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", page, re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= 20


def test_the_worked_example_comes_out_as_the_page_says() -> None:
    line = next(text for _, name, _, text in blocks("rewards.md") if name == "debate.jsonl")
    scored = as_json(next(iter(score([line], PROTOCOLS["v2"], None, REWARDS))))  # type: ignore[union-attr]
    assert scored["generator"] == ((-1, 0), (1, 0), (0, 0))
    assert scored["generator_advantages"] == ((-1, 0), (1, 0), (0, 0))
    rates = as_json(next(iter(score([line], PROTOCOLS["v2"], "win_rate", REWARDS))))  # type: ignore[union-attr]
    assert rates["rewards"] == (0, 1, 0.5)


# What a script makes


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """scripts/pictures, which has no ending that Python would know."""
    loader = SourceFileLoader("pictures", str(ROOT / "scripts" / "pictures"))
    spec = spec_from_loader("pictures", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.slow  # not while somebody is still working on the page
def test_the_pictures_were_made_from_the_page_as_it_is(made: ModuleType) -> None:
    known = json.loads((DOCS / "pictures" / "made.json").read_text())
    assert known == {"sources": made.sources()}, (
        "the page has changed since: run scripts/pictures, and commit what it makes"
    )


@pytest.mark.slow
def test_commands_print_what_the_pages_show(made: ModuleType) -> None:
    blocks = [block for page in PAGES for block in made.OUTPUT.finditer(page.read_text(encoding="utf-8"))]
    assert blocks
    for block in blocks:
        assert made.printed(block["command"]) == block["printed"], (
            "run scripts/pictures --transcripts, and commit what it makes"
        )


# What is marked to run


def blocks(page: str) -> list[tuple[str, str, str, str]]:
    """(mark, file name, language, content) of the marked blocks of a page."""
    return [
        (mark, name, language, content)
        for mark, name, language, content in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    ]


def test_every_mark_is_read() -> None:
    """A mark that does not stand directly before its block would be silently passed over."""
    for page in (*PAGES, DOCS / README):
        assert len(re.findall(r"<!-- (?:run|file)", page.read_text(encoding="utf-8"))) == len(blocks(str(page))), (
            page.name
        )


@pytest.mark.parametrize(
    "page", [README, *(page.name for page in PAGES if "<!-- run -->" in page.read_text(encoding="utf-8"))]
)
def test_what_a_page_marks_to_run_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {}
    for _, name, language, content in blocks(page):
        if name:
            Path(name).write_text(content, encoding="utf-8")
        elif language == "python":
            exec(compile(content, f"docs/{page}", "exec"), names)
        else:
            for line in content.replace("\\\n", " ").splitlines():
                command, *arguments = shlex.split(line, comments=True)
                assert command == "moot", line
                assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    for rows_of_a_run in tmp_path.rglob("metrics.jsonl"):
        assert any(json.loads(row)["phase"] == "self_play" for row in rows_of_a_run.read_text().splitlines())
