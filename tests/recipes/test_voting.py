"""The recipes of voting."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato import accounting as acc

# The recipes of voting: rows meet their budgets, the server's parts are apart, and pictures come out upright.

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_every_row_runs_and_averaging_costs_what_it_may(recipe, shared, tmp_path, script):
    command = [sys.executable, str(ROOT / "recipes" / recipe / "run.py"), "--quick", "--out", str(tmp_path)]
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


# The recipe of votes for attributes: rows state their budgets, noise follows the bound, features tell no attribute.

ATTRIBUTES = ROOT / "recipes" / "voting_attributes"


@pytest.fixture
def census(script):
    """The table's module."""
    return script("voting_attributes", "census")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_its_unit_and_its_noise(shared, tmp_path):
    command = [sys.executable, str(ATTRIBUTES / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 2 * (2 + 2 * 4)
    for row in rows:
        assert all(0 <= row[name] <= 1 for name in ("mean", "macro_f1", "mean_average_precision"))
        if row["budget"] is None:
            assert row["epsilon"] is row["unit"] is None
            continue
        assert 0.999 * row["budget"] < row["epsilon"] <= row["budget"] * (1 + 1e-9)
        assert row["unit"] == ("agent" if "AE" in row["dataset"] else "example")
        # A vote that may weigh several attributes moves the counts by the root of their number.
        one = next(
            r for r in rows if r["dataset"] == row["dataset"] and (r["bound"], r["budget"]) == (1, row["budget"])
        )
        assert row["noise_std"] / one["noise_std"] == pytest.approx(math.sqrt(row["bound"]), rel=1e-3)
    assert (tmp_path / "quick" / "attributes.svg").read_text().count("<svg") == 1


@pytest.mark.shared
def test_features_stay_when_everything_that_attributes_are_read_from_changes(census, shared):
    table = census.read().head(500)
    known, told = census.features(table), census.attributes(table)
    mixed = table.copy()
    order = np.random.default_rng(1).permutation(len(table))
    names = ["Salary", "marital-status", "sex", "education-num", "hours-per-week", "relationship"]
    mixed[names] = mixed[names].to_numpy()[order]
    # Education says in words what education-num says in numbers.
    mixed["education"] = mixed["education"].to_numpy()[order]
    assert (census.features(mixed) == known).all(axis=None)
    assert (census.attributes(mixed) != told).any(axis=0).all()


@pytest.mark.shared
def test_agents_have_equal_parts_and_public_rows_are_nobodys(census, shared):
    here = census.world()
    assert set(here.agents.sizes.tolist()) == {census.RECORDS}
    assert len(here.agents) == census.AGENTS
    parts = (here.pool, here.validation, here.test)
    assert here.agents.num_examples + sum(map(len, parts)) == len(census.read())
    assert 0.1 < here.agents.labels.mean(axis=0).min() < here.agents.labels.mean(axis=0).max() < 0.5


# The recipe of votes across domains: rows state their budgets, parts share no picture, features no other record.

OFFICE = ROOT / "recipes" / "voting_office"


@pytest.fixture
def recipe(script):
    """The script as a module."""
    return script("voting_office")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_and_unit(shared, tmp_path):
    command = [sys.executable, str(OFFICE / "run.py"), "--quick", "--out", str(tmp_path)]
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
        if "no one trusted" in row["method"]:
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
    alone = acc.Gaussian(plan.noise.noise_multiplier).poisson(0.256) * 40  # steps: 10 passes of 1000 / 256, rounded up
    assert told["epsilon"] == pytest.approx(acc.guarantee(alone, adjacency="add_remove").epsilon(1e-5), rel=1e-9)
    assert told["delta"] == 1e-5
    # Independent noises: their variances add up.
    agents = [None] * 49
    assert methods.noise_of_all(plan, agents) ** 2 == pytest.approx(sum(plan.noise.noise_multiplier**2 for _ in agents))


def test_chosen_settings_are_among_the_trials(recipe, script):
    trials = script("voting_office", "choose").TRIALS
    for method in recipe.METHODS.values():
        if method.epsilon is not None:
            assert method in trials
