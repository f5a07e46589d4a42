"""The site builds without a warning and loads nothing from elsewhere; a tutorial's notebook is its page."""

import dataclasses
import html.parser
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato.algorithms import ALGORITHMS
from sfumato.cli.commands import COMMANDS

# The site builds without a warning, loads nothing from elsewhere, and has the pages that it makes itself.

pytest.importorskip("mkdocs", reason="needs the docs extra")

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "pages.py")
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)
_MODULES = [Path(name).stem for name in pages.package_pages()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NOTEBOOKS": "plain"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Loads(html.parser.HTMLParser):
    """What a browser fetches by itself when it opens a page: everything but the targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (
                name in ("src", "srcset", "data", "poster") or (name == "href" and tag in ("link", "use", "image"))
            ) and value:
                self.found.append(value)
            if name == "style" and value:
                self.found += re.findall(r"url\(([^)]*)\)", value)


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loads = _Loads()
        text = page.read_text(encoding="utf-8")
        loads.feed(text)
        assert loads.found
        outside = [target for target in loads.found if re.match(r"['\"]?(https?:)?//", target)]
        assert not outside, (page.name, outside)
        assert not re.search(r"gtag|google-analytics|fonts\.googleapis|preconnect", text), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def _public(module: str) -> list[str]:
    """What a package makes public, itself or by its rooms."""
    package = importlib.import_module(f"sfumato.{module}")
    if hasattr(package, "__all__"):
        return package.__all__
    doors = sorted(Path(*package.__path__).glob("*/__init__.py"))
    rooms = [importlib.import_module(f"sfumato.{module}.{door.parent.name}") for door in doors]
    return [name for room in rooms for name in getattr(room, "__all__", [])]


@pytest.mark.slow
@pytest.mark.parametrize("module", _MODULES)
def test_everything_public_is_in_the_reference(site: Path, module: str):
    page = (site / "reference" / "api" / f"{module}.html").read_text(encoding="utf-8")
    public = _public(module)
    missing = [name for name in public if not re.search(rf'id="sfumato\.{module}\.(\w+\.)*{name}"', page)]
    assert missing == []


@pytest.mark.slow
def test_every_page_is_in_the_search(site: Path):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert pages - found <= {"index.html"}  # whose location is ""


@pytest.mark.slow
def test_every_tutorial_gives_its_notebook(site: Path):
    pages = list((site / "tutorials").glob("*.html"))
    assert len(pages) > 3
    for page in pages:
        name = page.with_suffix(".ipynb").name
        assert f'href="{name}"' in page.read_text(encoding="utf-8")
        assert json.loads((site / "tutorials" / name).read_text(encoding="utf-8"))["cells"]


@pytest.mark.slow
def test_every_command_has_a_page_with_its_help_and_a_place_in_the_navigation(site: Path):
    index = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        file = f"{name.replace(' ', '-')}.html"
        page = html.unescape((site / "reference" / "commands" / file).read_text(encoding="utf-8"))
        assert pages.help_text(name, "--help") in page
        assert pages.help_text(name, "--help-all") in page
        assert len(re.findall(f'href="{file}"', index)) >= 2  # navigation and table


def test_a_command_of_the_registry_has_its_page(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ALGORITHMS, "toy", dataclasses.replace(ALGORITHMS["labeldp_pro"], command="labeldp toy"))
    monkeypatch.setitem(COMMANDS, "labeldp toy", dataclasses.replace(COMMANDS["labeldp pro"], summary="try it"))
    page = pages.command_page("labeldp toy")
    assert page.startswith("# sfumato labeldp toy\n\nTry it.\n")
    assert f"$ {COMMANDS['labeldp toy'].example}" in page
    assert "[`dpsgd`](dpsgd.md)" in page  # the same records
    assert "[`labeldp randomize`](labeldp-randomize.md)" in page  # the same group
    assert "(../../how-to/label-privacy.md)" in pages.command_page("labeldp pro")  # a guide that uses it
    assert "| [`labeldp toy`](labeldp-toy.md) | try it |" in pages.command_index()
    assert "reference/commands/labeldp-toy.md" in list(pages.generated())


def test_a_group_s_own_command_is_not_one_of_those_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "how-to").mkdir()
    (tmp_path / "how-to" / "trees.md").write_text("# Trees\n\n`sfumato account tree --steps 3`\n")
    assert "[Trees](../../how-to/trees.md)" in pages.command_page("account tree")
    assert "trees.md" not in pages.command_page("account")


# A tutorial's notebook is its page: the same code in the same order, and what it prints.

nbclient = pytest.importorskip("nbclient", reason="needs the docs extra")
pytest.importorskip("ipykernel", reason="needs the docs extra")


@pytest.fixture(scope="module")
def notebooks():
    """The module; it imports its neighbour, as under mkdocs."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_a_notebook_has_the_code_of_its_page(notebooks, page: Path):
    made = notebooks.notebook(page)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    blocks = [block for block in notebooks.snippets.blocks(page) if block.runs]
    assert len(code) == len(blocks) > 3
    for cell, block in zip(code, blocks, strict=True):
        if block.kind == "python":
            assert cell == block.body.rstrip()
        else:
            assert cell.startswith("%%bash -e\nsfumato ")
    words = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert words.startswith("# ")
    assert "<!--" not in words
    assert ".md" not in words


@pytest.mark.slow
def test_an_executed_notebook_prints_what_the_page_shows(notebooks):
    page = ROOT / "docs" / "tutorials" / "own-loop.md"
    made = notebooks.notebook(page)
    notebooks.execute(made)
    printed = " ".join(each.text for cell in made.cells if cell.cell_type == "code" for each in cell.outputs)
    shown = [block for block in notebooks.snippets.blocks(page) if block.note.startswith("output")]
    assert len(shown) > 3
    for block in shown:
        assert " ".join(block.body.split()) in " ".join(printed.split())
    assert str(ROOT) not in printed


@pytest.mark.slow
def test_a_cell_that_fails_fails_the_build(notebooks, tmp_path: Path):
    page = tmp_path / "page.md"
    for fence, told in (("```python\nprint(1 / 0)\n```", "ZeroDivisionError"), ("```sh\nfalse\ntrue\n```", "false")):
        page.write_text(f"# Page\n\n{fence}\n")
        with pytest.raises(nbclient.exceptions.CellExecutionError, match=told):
            notebooks.execute(notebooks.notebook(page))
