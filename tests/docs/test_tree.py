"""The tree in README and the layers in CONTRIBUTING are those of the source."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("tree", ROOT / "docs" / "tree.py")
tree = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tree)


@pytest.mark.parametrize("page", tree.BLOCKS)
def test_a_page_shows_the_tree_as_it_is(page: str):
    shown = (ROOT / page).read_text(encoding="utf-8")
    assert tree.redrawn(ROOT / page) == shown, "the tree has changed; python docs/tree.py --update draws it anew"


def test_every_package_is_in_one_layer():
    packages = {folder.parent.name for folder in (ROOT / "src" / "sfumato").glob("*/__init__.py")}
    modules = {file.stem for file in (ROOT / "src" / "sfumato").glob("*.py")} - {"__init__", "__main__"}
    named = [name for layer in tree.layers() for name in layer]
    assert sorted(named) == sorted(packages | modules)


def test_a_line_of_the_tree_fits_a_page():
    assert [line for line in tree.tree().splitlines() if len(line) > 120] == []


def test_a_package_that_is_missing_from_a_page_is_found(tmp_path: Path):
    page = tmp_path / "README.md"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    gone = next(line for line in text.splitlines(keepends=True) if line.startswith("  runs/"))
    page.write_text(text.replace(gone, ""), encoding="utf-8")
    assert tree.redrawn(page) == text
    page.write_text(text.replace("<!-- tree -->", ""), encoding="utf-8")
    with pytest.raises(AssertionError, match="needs one block behind <!-- tree -->, found 0"):
        tree.redrawn(page)
