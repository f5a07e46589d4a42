"""The recipe of clicks: parts that share no row, and rows of every method at every ε."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "ads_criteo" / "run.py"


@pytest.mark.shared
def test_parts_of_the_clicks_share_no_row_and_hide_the_sales(script, shared):
    clicks = script("ads_criteo", "clicks")
    split = clicks.parts(shared)
    assert len(split.train) + len(split.validation) + len(split.test) == 102_434
    assert split.train.input_shapes == ((0,), (len(clicks.LEVELS),))
    assert 0.09 < float((np.asarray(split.test.targets) == 1).mean()) < 0.11


def test_scores_are_those_of_the_chances(script):
    clicks = script("ads_criteo", "clicks")
    chances, true = torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0, 1, 0, 1])
    assert clicks.area(chances, true) == pytest.approx(0.875)


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_clicks_runs(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path), "--data", str(shared)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    wanted = {(row["method"], row["epsilon_wanted"]) for row in rows}
    assert len(wanted) == 1 + 2 * 6
    assert all(row["epsilon"] <= row["epsilon_wanted"] for row in rows if row["epsilon_wanted"])
    assert all(np.isfinite(row["mean"]) for row in rows)
    assert (tmp_path / "quick" / "losses.svg").read_text().count("<svg") == 1
