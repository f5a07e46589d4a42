"""What pages say of the source is so: names and files, the tree, and the worked examples of CONTRIBUTING."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the documentation speaks of is there: modules, names and files, the tree in README, the layers.

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


# The worked examples of CONTRIBUTING are whole: added to a copy of the repository as they stand, they work.

_snippets = importlib.util.spec_from_file_location("snippets", ROOT / "docs" / "snippets.py")
snippets = importlib.util.module_from_spec(_snippets)
_snippets.loader.exec_module(snippets)

_CHECK = """
import numpy as np
from pathlib import Path
from torch import nn
from sfumato.central import DPSGD
from sfumato.cli.commands import COMMANDS
from sfumato.data import examples_from_arrays, open_users

Path("a.pairs").write_text("bo=1.5 al=2.5 bo=0.5")
users = open_users("a.pairs", user="user", input="number")
assert list(users.user_ids) == ["al", "bo"]
assert users.examples(1)[0].tolist() == [[1.5], [0.5]]

plan = DPSGD(steps=1, cohort=4, noise={"kind": "rounded", "grid": 0.25, "noise_multiplier": 1.0}, server=0.5, seed=1)
assert DPSGD(noise="rounded").noise.grid == 0.01
exact = DPSGD(steps=1, cohort=4, noise=1.0, server=0.5, seed=1)
rows = examples_from_arrays(np.eye(8, dtype=np.float32), np.arange(8) % 2, num_classes=2)
start = nn.Linear(8, 2)
near, same = ([each.fit(start, rows).model.weight - start.weight] for each in (plan, exact))
step = 0.5 * 0.25 / 4  # learning rate, grid, batch
assert abs(near[0] / step - (near[0] / step).round()).max() < 1e-3
assert 0 < abs(near[0] - same[0]).max() <= step / 2 + 1e-6

assert COMMANDS["smoothed"].kind()
"""


def _added(note: str) -> tuple[str, str | None]:
    """Which file a fence adds, or adds to below which line."""
    found = re.fullmatch(r"no-run: adds (?:to )?([\w/.]+)(?:, below: (.*))?", note)
    assert found, note
    return found[1], found[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources and tests with all examples."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for block in snippets.blocks(ROOT / "CONTRIBUTING.md"):
        if not block.note.startswith("no-run: adds "):
            continue
        name, below = _added(block.note)
        if below is None:
            assert not (folder / name).exists(), f"{block.where}: {name} is there already"
            (folder / name).write_text(block.body)
        else:
            before, line, after = (folder / name).read_text().partition(next(_lines(folder / name, below)))
            (folder / name).write_text(before + line + block.body + after)
    return folder


def _lines(path: Path, start: str):
    """The lines of a file that start so."""
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.strip().startswith(start)]
    assert len(lines) == 1, f"{path.name} has {len(lines)} lines that start with: {start}"
    yield from lines


def _run(copy: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


def test_a_new_algorithm_is_three_files():
    notes = [block.note for block in snippets.blocks(ROOT / "CONTRIBUTING.md") if "smoothed" in block.note]
    files = [
        "src/sfumato/central/smoothed.py",
        "tests/contract/algorithms/smoothed.py",
        "tests/central/test_smoothed.py",
    ]
    assert notes == [f"no-run: adds {file}" for file in files]


@pytest.mark.slow
def test_the_worked_algorithm_goes_through_the_battery(copy: Path):
    words = ["-m", "pytest", "-rA", "-p", "no:cacheprovider", "-m", "not slow"]
    battery = [f"tests/contract/{name}.py" for name in ("test_rounds", "test_bounds", "test_statement")]
    assert _run(copy, *words, *battery, "-k", "smoothed").count("PASSED") >= 10
    _run(copy, *words, "tests/central/test_smoothed.py")


def test_a_reader_a_mechanism_and_an_algorithm_are_found(copy: Path):
    _run(copy, "-c", _CHECK)


def test_the_examples_are_formatted_as_the_sources(copy: Path):
    for name in ("src/sfumato/central/smoothed.py", "src/sfumato/mechanisms/rounded.py"):
        _run(copy, "-m", "ruff", "check", "--quiet", name)
        _run(copy, "-m", "ruff", "format", "--check", "--quiet", name)
