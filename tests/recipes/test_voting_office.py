"""The recipe of votes across domains runs every method, and every row states its budget and its unit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_and_unit(shared, tmp_path):
    script = ROOT / "recipes" / "voting_office" / "run.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 4 * 7
    for row in rows:
        assert row["unit"] == ("user" if row["method"].startswith("FedSGD") else "example")
        assert 0 <= row["mean"] <= 1
        budget = row["method"].rsplit(" ", 1)[1]
        if budget != "noise":
            # Two passes with the noise of the whole run cost less than the budget; votes are all cast.
            assert 0 < row["epsilon"] <= float(budget)
        if row["method"] == "kNN-DPFL, ε 8":
            assert row["epsilon"] > 7.99
