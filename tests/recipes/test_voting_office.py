"""The recipe of votes across domains: rows state their budgets, parts share no picture, features no other record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato import accounting as acc

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "recipes" / "voting_office"


@pytest.fixture
def recipe(script):
    """The script as a module."""
    return script("voting_office")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_and_unit(shared, tmp_path):
    command = [sys.executable, str(FOLDER / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 4 * 8
    for row in rows:
        assert 0 <= row["mean"] <= 1
        if "noise" in row["method"]:
            assert row["epsilon"] is row["unit"] is None
            continue
        budget = float(row["method"].rsplit(" ", 1)[1])
        assert 0.999 * budget < row["epsilon"] <= budget * (1 + 1e-9)
        assert row["unit"] == "example"
        # What the paper prints is k times the cost in zCDP.
        votes = row["method"].startswith("kNN")
        assert row["epsilon_papers_convention"] > budget if votes else row["epsilon_papers_convention"] is None
        if "nobody trusted" in row["method"]:
            assert row["epsilon_of_the_sum"] < 0.5 * budget


@pytest.mark.shared
def test_pool_validation_and_test_share_no_picture(recipe, shared, tmp_path):
    here = sys.modules["domains"].world("webcam", tmp_path, scaling="standardised", records=50)
    parts = [here.pool, here.validation, here.test]
    rows = sys.modules["domains"].office("webcam")[0]
    assert sum(len(part) for part in parts) == len(rows)
    seen = [{row.tobytes() for row in np.asarray(part.inputs[0])} for part in parts]
    copies = len(rows) - len(np.unique(rows, axis=0))
    assert len(seen[0] | seen[1] | seen[2]) == len(rows) - copies


@pytest.mark.parametrize("scaling", ["lengths", "roots", "standardised"])
def test_a_records_features_do_not_depend_on_other_records(recipe, scaling):
    scaled = sys.modules["domains"].scaled
    rng = np.random.default_rng(1)
    rows, pool = rng.poisson(1.0, (6, 40)).astype(np.float32), rng.poisson(1.0, (30, 40)).astype(np.float32)
    rows[3] = 0
    together = scaled(rows, scaling, pool)
    rows[4] *= 100
    changed = scaled(rows, scaling, pool)
    others = np.arange(6) != 4
    assert np.array_equal(together[others], changed[others])
    assert np.isfinite(together).all()
    assert np.allclose(np.linalg.norm(together[others & (np.arange(6) != 3)], axis=1), 1, atol=1e-6)


def test_an_agents_own_noise_promises_what_the_row_states(recipe):
    methods = sys.modules["methods"]
    plan = recipe.gradients(10, 256, 1.0).calibrate(epsilon=4.0, delta=1e-5, population=1000)
    told = methods.own_guarantee(plan, 1000)
    alone = acc.Gaussian(plan.noise_multiplier).poisson(0.256) * 40  # steps: 10 passes of 1000 / 256, rounded up
    assert told["epsilon"] == pytest.approx(acc.guarantee(alone, adjacency="add_remove").epsilon(1e-5), rel=1e-9)
    assert told["delta"] == 1e-5
    # Independent noises: their variances add up.
    agents = [None] * 49
    assert methods.noise_of_all(plan, agents) ** 2 == pytest.approx(sum(plan.noise_multiplier**2 for _ in agents))


def test_chosen_settings_are_among_the_trials(recipe, script):
    trials = script("voting_office", "choose").TRIALS
    for method in recipe.METHODS.values():
        if method.epsilon is not None:
            assert method in trials
