"""The recipes of private labels: every row runs, and states its budget for its unit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.labels.corrections import forward_loss
from sfumato.labels.response import LabelResponse

ROOT = Path(__file__).resolve().parents[2] / "recipes"


def quick(name: str, out: Path) -> list[dict]:
    command = [sys.executable, str(ROOT / name / "run.py"), "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads((out / "quick" / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.shared
def test_ratings_are_told_at_every_epsilon_and_none_costs_more(shared, tmp_path):
    rows = quick("labeldp_ratings", tmp_path)
    assert len(rows) == 3 + 6 * 6
    for row in rows[3:]:
        assert row["unit"] == "label"
        assert 0.999 * row["epsilon_wanted"] < row["epsilon"] <= row["epsilon_wanted"]
    assert all(row["epsilon"] is row["unit"] is None for row in rows[:3])


@pytest.mark.slow
@pytest.mark.shared
def test_conversions_are_told_by_every_method_for_its_own_unit(shared, tmp_path):
    rows = quick("labeldp_ads", tmp_path)
    assert len(rows) == 4 * (2 + 4 * 7)
    for row in rows:
        if row["epsilon_wanted"] is None:
            assert row["epsilon"] is row["unit"] is None
            continue
        assert row["unit"] == ("example" if row["method"] == "DP-SGD" else "label")
        assert row["epsilon"] <= row["epsilon_wanted"] * (1 + 1e-9)
        assert (row["delta"] == 0) == ("RR" in row["method"])


def test_a_model_of_reports_has_the_forward_loss_of_the_model(script):
    methods = script("labeldp_ads", "methods")
    response = LabelResponse(epsilon=0.7, classes=2, size=2)
    model, inputs = nn.Linear(3, 2), torch.randn(5, 3)
    reports = np.array([0, 1, 1, 0, 1])
    told = methods.Reported(model, response.probabilities())(inputs)
    found = nn.functional.cross_entropy(told, torch.from_numpy(reports), reduction="none")
    likelihoods = torch.from_numpy(response.likelihoods(reports))
    torch.testing.assert_close(found, forward_loss(model(inputs), likelihoods))
