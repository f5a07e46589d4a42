"""The recipes of voting: rows meet their budgets, the server's parts are apart, and pictures come out upright."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2] / "recipes"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_every_row_runs_and_averaging_costs_what_it_may(recipe, shared, tmp_path, script):
    command = [sys.executable, str(ROOT / recipe / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    budget = script(recipe, "run").EPSILON
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
def test_no_picture_of_the_server_is_in_two_of_its_parts(recipe, shared, script):
    parts = script(recipe, "run").server()
    rows = [{picture.tobytes() for picture in part.examples(np.arange(len(part)))[0][0]} for part in parts]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(rows[one] & rows[other]) <= 1  # equal scans by chance, no shared rows


@pytest.mark.shared
def test_each_agent_knows_six_classes_and_no_digit_is_dealt_twice(shared, script):
    agents = script("voting_mnist", "run").agents(3, number=50, records=120)
    assert len(agents) == 50
    for agent in range(50):
        assert len(np.unique(agents.examples(agent)[1])) == 6
    assert (agents.sizes <= 120).all()


def test_a_slanted_bar_is_counted_as_an_upright_one(script):
    counts = script("voting_digits", "pictures").counts
    upright, slanted = np.zeros((2, 28, 28), np.float32)
    upright[4:24, 13:16] = 1.0
    for row in range(4, 24):
        slanted[row, 9 + row // 4 : 12 + row // 4] = 1.0
    one, other = counts(np.stack([upright, slanted]))[..., 0].astype(int)
    assert one[:, 3:5].min() > 0
    assert abs(one - other).mean() < 12
    plain = np.abs(upright - slanted).reshape(7, 4, 7, 4).mean((1, 3)).mean() * 255
    assert abs(one - other).mean() < plain / 2


def test_a_picture_without_ink_has_no_counts(script):
    assert not script("voting_digits", "pictures").counts(np.zeros((1, 28, 28), np.float32)).any()


def test_ink_is_found_on_a_coloured_ground(script):
    picture = np.full((1, 32, 32, 3), (200, 30, 60), np.uint8)
    picture[0, 8:24, 15:18] = (40, 220, 90)
    ink = script("voting_digits", "pictures").ink_on_photograph(picture)[0]
    assert ink[6:22, 13:16].all()
    assert ink.sum() == 16 * 3
