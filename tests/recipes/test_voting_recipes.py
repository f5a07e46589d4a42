"""The recipes of voting: rows meet their budgets, the server's parts are apart, and pictures come out upright."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def load(monkeypatch):
    """A script of a recipe as a module."""

    def named(recipe: str, script: str):
        monkeypatch.syspath_prepend(str(ROOT))
        monkeypatch.syspath_prepend(str(ROOT / recipe))
        name = f"{recipe}_{script}"
        spec = importlib.util.spec_from_file_location(name, ROOT / recipe / f"{script}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    yield named
    for plain in ("run", "pictures"):
        sys.modules.pop(plain, None)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_every_row_runs_and_averaging_costs_what_it_may(recipe, shared, tmp_path, load):
    command = [sys.executable, str(ROOT / recipe / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    budget = load(recipe, "run").EPSILON
    for row in rows:
        assert 0 <= row["mean"] <= 1
        assert (row["epsilon"] is None) == ("not private" in row["method"])
        if row["answers"] is not None:
            assert row["epsilon_votes"] > 0
        elif row["epsilon"] is not None:
            assert 0.999 * budget < row["epsilon"] <= budget * (1 + 1e-9)
    assert (tmp_path / "quick" / "bytes.svg").read_text().count("<svg") == 1


@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_no_picture_of_the_server_is_in_two_of_its_parts(recipe, shared, load):
    parts = load(recipe, "run").server()
    rows = [{picture.tobytes() for picture in part.examples(np.arange(len(part)))[0][0]} for part in parts]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(rows[one] & rows[other]) <= 1  # equal scans by chance, no shared rows


@pytest.mark.shared
def test_each_agent_knows_six_classes_and_no_digit_is_dealt_twice(shared, load):
    agents = load("voting_mnist", "run").agents(3, number=50, records=120)
    assert len(agents) == 50
    for agent in range(50):
        assert len(np.unique(agents.examples(agent)[1])) == 6
    assert (agents.sizes <= 120).all()


def test_a_slanted_bar_is_counted_as_an_upright_one(load):
    counts = load("voting_digits", "pictures").counts
    upright, slanted = np.zeros((2, 28, 28), np.float32)
    upright[4:24, 13:16] = 1.0
    for row in range(4, 24):
        slanted[row, 9 + row // 4 : 12 + row // 4] = 1.0
    one, other = counts(np.stack([upright, slanted]))[..., 0].astype(int)
    assert one[:, 3:5].min() > 0
    assert abs(one - other).mean() < 12
    plain = np.abs(upright - slanted).reshape(7, 4, 7, 4).mean((1, 3)).mean() * 255
    assert abs(one - other).mean() < plain / 2


def test_a_picture_without_ink_has_no_counts(load):
    assert not load("voting_digits", "pictures").counts(np.zeros((1, 28, 28), np.float32)).any()


def test_ink_is_found_on_a_coloured_ground(load):
    picture = np.full((1, 32, 32, 3), (200, 30, 60), np.uint8)
    picture[0, 8:24, 15:18] = (40, 220, 90)
    ink = load("voting_digits", "pictures").ink_on_photograph(picture)[0]
    assert ink[6:22, 13:16].all()
    assert ink.sum() == 16 * 3
