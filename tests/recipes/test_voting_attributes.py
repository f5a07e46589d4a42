"""The recipe of votes for attributes: rows state their budgets, noise follows the bound, features tell no attribute."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "recipes" / "voting_attributes"


@pytest.fixture
def census(script):
    """The table's module."""
    return script("voting_attributes", "census")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_its_unit_and_its_noise(shared, tmp_path):
    command = [sys.executable, str(FOLDER / "run.py"), "--quick", "--out", str(tmp_path)]
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
