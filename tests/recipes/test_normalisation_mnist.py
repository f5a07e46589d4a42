"""The MNIST recipe trains and tables every row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "normalisation_mnist" / "run.py"


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 22
    for row in rows:
        if "not private" in row["method"]:
            assert row["epsilon"] is None
        else:  # two steps with the noise of the whole run cost less than the budget
            budget = float(row["method"].rsplit(" ", 1)[1])
            assert 0 < row["epsilon"] < budget
            assert row["delta"] == 1e-5
            assert row["unit"] == "example"
        assert 0 <= row["mean"] <= 1
