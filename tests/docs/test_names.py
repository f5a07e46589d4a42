"""What the documentation speaks of is there: modules, names and files, the tree in README, the layers."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

# Modules, names and files that the documentation, the docstrings and the comments speak of are there.


ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "src", "tests", "recipes", "benchmarks")
TEXTS = sorted(file for folder in FOLDERS for pattern in ("*.md", "*.py") for file in (ROOT / folder).rglob(pattern))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(file for file in TEXTS if file != Path(__file__).resolve())]
ADDED = re.findall(r"no-run: adds ([\w/]+\.py)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
"""Files of the worked examples, which are in no copy but that of tests/docs/test_source.py."""
_DOTTED = re.compile(r"(?<![\w./-])sfumato(?:\.\w+)+")
_FILE = re.compile(r"(?<![\w./{*-])(?:[\w-]+/)+[a-z_][\w-]*\.py\b")


def exists(dotted: str) -> bool:
    """Whether a module, or something in one, has this name."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


def test_every_name_of_ours_exists():
    said = {(page, name) for page in PAGES for name in _DOTTED.findall(page.read_text(encoding="utf-8"))}
    assert len(said) > 500
    names = {name for _, name in said}
    added = tuple(name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in ADDED)
    wrong = {name for name in names if not name.startswith(added) and not exists(name)}
    assert sorted(f"{page.relative_to(ROOT)}: {name}" for page, name in said if name in wrong) == []


def test_every_file_of_ours_exists():
    bases = [ROOT, *(ROOT / folder for folder in FOLDERS), ROOT / "src" / "sfumato"]
    wrong = []
    for page in PAGES:
        for name in _FILE.findall(page.read_text(encoding="utf-8")):
            if name not in ADDED and not any((base / name).exists() for base in [*bases, page.parent]):
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert wrong == []


@pytest.mark.parametrize("name", ["sfumato.data.users.load", "sfumato.nowhere", "sfumato.data.UserDataset.nothing"])
def test_a_name_that_is_gone_is_found(name: str):
    assert not exists(name)


# The tree in README and the layers in CONTRIBUTING are those of the source.


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
