"""The worked examples of CONTRIBUTING are whole: added to a copy of the repository as they stand, they work."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("snippets", ROOT / "docs" / "snippets.py")
snippets = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(snippets)

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

plan = DPSGD(steps=1, cohort=4, noise={"kind": "rounded", "grid": 0.25, "noise_multiplier": 1.0}, seed=1)
assert DPSGD(noise="rounded").noise.grid == 0.01
exact = DPSGD(steps=1, cohort=4, noise=1.0, seed=1)
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
