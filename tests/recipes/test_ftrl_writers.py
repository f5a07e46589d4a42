"""The recipe of writers: rows meet their budgets and share one plan but for the noise; who is missing shows nowhere."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "ftrl_writers" / "run.py"


@pytest.fixture
def recipe(script):
    """The script as a module."""
    return script("ftrl_writers")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 30
    for row in rows:
        if row["method"] == "not private":
            assert row["epsilon"] is None
        else:
            budget = float(row["method"].split("ε ")[1].split(",")[0])
            assert 0.999 * budget < row["epsilon"] <= budget
            assert row["delta"] == 0.01 / 539
            assert row["unit"] == "user"
        assert 0 <= row["mean"] <= 1
    assert (tmp_path / "quick" / "accuracy.svg").read_text().count("<svg") == 1


def test_rows_differ_in_noise_sampling_and_the_servers_rate_only(recipe):
    chosen = {"noise", "noise_multiplier", "sampling", "parts", "min_separation", "coefficients", "column_scales"}
    chosen |= {"server_learning_rate", "drop_out", "delta", "population"}
    table = recipe.RECIPE
    for title in ("tree, ε 8", "independent, Poisson sampling, ε 2", "banded, cyclic Poisson sampling, ε 8"):
        plan = table.planned(table.methods[title], 539, False)
        fields = (field.name for field in dataclasses.fields(plan))
        assert {name for name in fields if getattr(plan, name) != getattr(table.plan, name)} <= chosen


def test_the_row_with_missing_writers_has_the_noise_and_the_rate_of_the_full_one(recipe):
    full, missing = (recipe.RECIPE.planned(row, 539, False) for row in (recipe.FULL, recipe.MISSING))
    assert missing.drop_out == 0.3
    assert dataclasses.replace(missing, drop_out=None) == full
    assert recipe.MISSING.title in recipe.RECIPE.methods


def test_statements_that_differ_in_one_byte_are_refused(recipe, tmp_path):
    full, missing = tmp_path / "full", tmp_path / "missing"
    for folder in (full, missing):
        folder.mkdir()
        (folder / "statement.json").write_text('{"epsilon": 8.0}')
    recipe.refuse_difference(full, missing)
    (missing / "statement.json").write_text('{"epsilon": 8.1}')
    with pytest.raises(SystemExit, match="differ"):
        recipe.refuse_difference(full, missing)
