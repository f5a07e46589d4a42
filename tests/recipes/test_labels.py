"""The recipes of label privacy, and the tables of all recipes' pages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.labels.response import LabelResponse, forward_loss

# The recipes of private labels: every row states its budget, and what must depend on one picture alone does.

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"


@pytest.fixture
def recipe(request, script):
    """A recipe's script as a module."""
    return script(request.param)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", ["labeldp_mnist", "labeldp_mnist_m"])
def test_every_row_runs_and_states_its_budget_and_unit(name, shared, tmp_path):
    command = [sys.executable, str(RECIPES / name / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    budgeted = [row for row in rows if "label_epsilon" in row]
    assert len(budgeted) == {"labeldp_mnist": 10, "labeldp_mnist_m": 6}[name]
    assert len(rows) - len(budgeted) == {"labeldp_mnist": 0, "labeldp_mnist_m": 6}[name]
    for row in rows:
        assert 0 <= row["mean"] <= 1
        if row not in budgeted:
            assert row["epsilon"] is None
            continue
        assert 0.999 < row["epsilon"] <= row["label_epsilon"] == 1.0
        assert row["unit"] == ("example" if row["method"].startswith("DP-SGD") else "label")
        assert row["delta"] == (0.0 if "ST" in row["method"] else 1e-5)


@pytest.mark.parametrize("recipe", ["labeldp_mnist"], indirect=True)
def test_a_hidden_pictures_features_do_not_depend_on_other_pictures(recipe):
    features = torch.rand(4, 81 * 7 * 7, generator=torch.Generator().manual_seed(1))
    before = recipe.pooled(features)
    features[0] *= 100
    after = recipe.pooled(features)
    assert torch.equal(before[1:], after[1:])
    assert before.shape == (4, 81, 4, 4)


@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["labeldp_mnist", "labeldp_mnist_m"], indirect=True)
def test_settings_are_chosen_on_training_rows_that_are_held_out(recipe, shared, monkeypatch):
    """Of 60 rows that are numbered, those that are tried on are neither trained on nor of the test."""
    monkeypatch.setattr(recipe, "HELD_OUT", 10)
    numbered = np.arange(60, dtype=np.float32)[:, None]
    labels = (np.arange(60) % 10, np.arange(60) % 10)
    for of, kind in (("inputs", "pictures"), ("scores", "digits")):
        monkeypatch.setattr(recipe, of, lambda *_: (numbered, numbered + 100), raising=False)
        monkeypatch.setattr(recipe, kind, lambda part, _: (None, labels[part == "test"]), raising=False)
    found = recipe.parts("public", False, True)
    trained, tried = (set(part.inputs[0].ravel().tolist()) for part in (found.train, found.test))
    assert len(tried) == 10
    assert trained | tried == set(range(60))
    assert not trained & tried
    whole = recipe.parts("public", False, False)
    assert len(whole.train) == 60
    assert min(whole.test.inputs[0].ravel()) == 100


@pytest.mark.parametrize("recipe", ["labeldp_mnist"], indirect=True)
def test_principal_axes_are_of_the_training_rows_alone(recipe, monkeypatch, tmp_path):
    public_features = sys.modules["public_features"]
    monkeypatch.setattr(public_features, "CACHE", tmp_path)
    rng = np.random.default_rng(0)
    train, test = rng.standard_normal((200, 12)) * np.arange(1, 13), rng.standard_normal((50, 12))
    scores, others = public_features.principal("test", train, test, 5)
    again, changed = public_features.principal("test again", train, test * 9, 5)
    assert np.array_equal(scores, again)
    assert not np.allclose(others, changed)
    assert np.mean(scores**2) == pytest.approx(1, rel=1e-3)
    # Uncorrelated, the largest first, and each with the root of its axis's deviation.
    covariance = np.cov(scores.T)
    assert np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-3)
    deviations = np.sqrt(np.linalg.eigvalsh(np.cov(train.T))[::-1][:5])
    assert np.diag(covariance) / covariance[0, 0] == pytest.approx(deviations / deviations[0], rel=1e-3)


def test_a_grid_has_a_column_for_each_budget_and_a_line_for_the_paper(script):
    tables = script("labeldp_mnist", "tables")
    shared = {"dataset": "some data", "metric": "accuracy", "std": 0.0, "seeds": 1, "unit": "label"}
    rows = [
        {"method": "one", "label_epsilon": 1.0, "mean": 0.5, "paper": 0.25, **shared},
        {"method": "one", "label_epsilon": 0.1, "mean": 0.4, "paper": None, **shared},
        {"method": "two", "label_epsilon": 1.0, "mean": 0.6, "paper": None, **shared},
    ]
    lines = tables.table(rows).splitlines()
    assert lines[0] == "| accuracy | ε = 0.1 | ε = 1 |"
    assert lines[2:5] == ["| one | 0.400 | 0.500 |", "| one, paper | – | 0.25 |", "| two | – | 0.600 |"]


# The recipes of private labels: every row runs, and states its budget for its unit.


def quick(name: str, out: Path) -> list[dict]:
    command = [sys.executable, str(ROOT / "recipes" / name / "run.py"), "--quick", "--out", str(out)]
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


# The tables in the READMEs and PAPERS.md are those of the results.


def test_no_table_differs_from_its_results():
    done = subprocess.run(
        [sys.executable, str(ROOT / "recipes" / "tables.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
