"""The recipes of clicks and of counts: what they measure, and rows of every method at every ε."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.slow

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


@pytest.mark.shared
def test_every_row_of_clicks_runs(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path), "--data", str(shared)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    wanted = {(row["method"], row["epsilon_wanted"]) for row in rows}
    assert len(wanted) == 2 + 2 * 6
    assert all(row["epsilon"] <= row["epsilon_wanted"] for row in rows if row["epsilon_wanted"])
    assert all(np.isfinite(row["mean"]) for row in rows)
    assert (tmp_path / "quick" / "losses.svg").read_text().count("<svg") == 1


def test_no_model_of_generated_clicks_is_better_than_the_truth_that_they_follow(script):
    clicks = script("ads_zipf", "clicks")
    split = clicks.parts(True)
    truth, constant = clicks.planted(split.test), clicks.constant(split)
    assert truth["log_loss"] < 0.8 * constant["log_loss"]
    (numbers, ids), targets = split.test.examples(np.arange(len(split.test)))
    chances = 1 / (1 + np.exp(-clicks.LOG.scores(numbers, ids)))
    expected = -np.mean(chances * np.log(chances) + (1 - chances) * np.log1p(-chances))
    assert truth["log_loss"] == pytest.approx(expected, abs=5 * 0.6 / np.sqrt(len(targets)))  # five standard errors


def test_rows_that_a_step_changes_are_counted(script):
    clicks = script("ads_zipf", "clicks")
    model = clicks.network(clicks.parts(True).train)
    changed = clicks.Changed(model)
    for step in range(1, 11):
        changed.on_round({"round": step})
        with torch.no_grad():
            model.tables[1].weight[:step] += 1.0
    assert changed.counts == [9]  # the tenth row comes after the comparison


def test_every_row_of_generated_clicks_runs(tmp_path):
    command = [sys.executable, str(SCRIPT.parents[1] / "ads_zipf" / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len({(row["method"], row["epsilon_wanted"]) for row in rows}) == 3 + 3 * 6
    assert all(row["epsilon"] <= row["epsilon_wanted"] for row in rows if row["epsilon_wanted"])
    assert all(np.isfinite(row["mean"]) for row in rows)
    sizes = {row["method"]: row["mean"] for row in rows if row["metric"].startswith("rows of tables")}
    assert max(sizes["DP-AdaFEST"], sizes["DP-FEST"]) < sizes["DP-SGD, deferred noise"]
    assert (tmp_path / "quick" / "losses.svg").read_text().count("<svg") == 1


def test_the_deviance_is_that_of_scikit_learn(script):
    from sklearn.metrics import mean_poisson_deviance

    counts = script("ads_counts")
    rng = np.random.default_rng(0)
    rates, true = rng.gamma(1.0, 0.5, 500) + 1e-3, rng.poisson(0.5, 500).astype(float)
    assert counts.deviance(rates, true) == pytest.approx(mean_poisson_deviance(true, rates))


@pytest.mark.shared
def test_policies_share_no_part_and_their_exposure_scales_the_rate(script, shared):
    counts = script("ads_counts")
    split = counts.parts(shared)
    assert sum(map(len, split)) == 163_212
    assert sum(int(np.asarray(part.targets).sum()) for part in split) == 20_215
    assert sum(counts.years(part).sum() for part in split) == pytest.approx(145_217, rel=1e-3)
    model = counts.network(split.train, 0)
    (numbers, ids), _ = split.train.examples(np.arange(2))
    numbers[:, 1:], ids[:], numbers[:, 0] = numbers[0, 1:], ids[0], (0.0, 1.0)  # half a year, and a year
    with torch.no_grad():
        half, whole = model(torch.from_numpy(numbers), torch.from_numpy(ids)).exp().flatten().tolist()
    assert whole == pytest.approx(2 * half)
    assert 0.05 < whole < 0.2


@pytest.mark.shared
def test_every_row_of_counts_runs(shared, tmp_path):
    command = [sys.executable, str(SCRIPT.parents[1] / "ads_counts" / "run.py")]
    command += ["--quick", "--out", str(tmp_path), "--data", str(shared)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len({(row["method"], row["epsilon_wanted"]) for row in rows}) == 2 + 6
    assert all(row["epsilon"] <= row["epsilon_wanted"] for row in rows if row["epsilon_wanted"])
    assert all(np.isfinite(row["mean"]) for row in rows)
    assert (tmp_path / "quick" / "deviance.svg").read_text().count("<svg") == 1
