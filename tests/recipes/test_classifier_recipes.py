"""The recipes of classifiers train and table every row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(("recipe", "count"), [("normalisation_agnews", 8), ("normalisation_mnist", 9)])
def test_every_row_runs_and_states_its_budget(recipe, count, shared, tmp_path):
    script = ROOT / "recipes" / recipe / "run.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == count
    for row in rows:
        if "not private" in row["method"]:
            assert row["epsilon"] is None
        else:  # two steps with the noise of the whole run cost less than the budget
            budget = float(row["method"].rsplit(" ", 1)[1])
            assert 0 < row["epsilon"] < budget
            assert row["delta"] == 1e-5
            assert row["unit"] == "example"
        assert 0 <= row["mean"] <= 1
