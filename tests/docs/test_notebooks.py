"""A tutorial's notebook is its page: the same code in the same order, and what it prints."""

import importlib.util
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs the docs extra")
pytest.importorskip("ipykernel", reason="needs the docs extra")

ROOT = Path(__file__).resolve().parents[2]


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
