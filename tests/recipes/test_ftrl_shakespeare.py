"""The recipe of correlated noise by role trains every row at its budget and draws the figure."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sfumato.accounting import guarantee

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "ftrl_shakespeare" / "run.py"


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import ftrl_recipe

    namespace: dict = {"__name__": "recipe", "__file__": str(SCRIPT)}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), namespace)
    return ftrl_recipe, namespace["RECIPE"]


def test_rows_of_one_budget_differ_in_noise_sampling_and_the_rate_that_follows_from_the_noise(recipe):
    shared, table = recipe
    noises = [shared.Method(noise=noise, epsilon=8.0) for noise in table.noises]
    plans = [table.planned(method, 250, False) for method in noises]
    free = {"noise", "coefficients", "column_scales", "noise_multiplier", "server_learning_rate"}
    free |= {"sampling", "parts", "min_separation"}
    common = [{name: value for name, value in vars(plan).items() if name not in free} for plan in plans]
    assert all(fields == common[0] for fields in common)
    for plan in plans:
        rounds = plan.private_sum(250)
        spent = guarantee(rounds.event(plan.rounds), rounds.sampler.adjacency).epsilon(0.01 / 250)
        assert 0.999 * 8 < spent <= 8
        error = shared.predicted_error(plan, 250)
        assert plan.server_learning_rate == pytest.approx(min(2.5, 0.16 / error), abs=1e-3)


def test_correlated_noise_is_predicted_to_lose_to_sampling_at_a_small_budget_and_to_win_at_a_large_one(recipe):
    shared, table = recipe

    def error(noise: str, epsilon: float) -> float:
        return shared.predicted_error(table.planned(shared.Method(noise=noise, epsilon=epsilon), 250, False), 250)

    sampled = "independent, Poisson sampling"
    assert error(sampled, 2.0) < error("banded", 2.0) < error("tree", 2.0) < error("independent", 2.0)
    assert error("banded", 20.0) < error("tree", 20.0) < error(sampled, 20.0) < error("independent", 20.0)


@pytest.mark.shared
def test_nobody_who_is_measured_trains(recipe, shared):
    train, test = recipe[1].data(False)
    assert (len(train), len(test)) == (250, 49)
    assert not set(train.user_ids) & set(test.user_ids)


@pytest.mark.shared
def test_the_constant_answer_is_as_right_as_blanks_are_frequent(recipe, shared):
    test = recipe[1].data(True)[1]
    blank = test.label_names.index(" ")
    labels = [label for user in range(len(test)) for label in test.examples(user)[1].ravel() if label]
    assert recipe[0].most_frequent(test) == pytest.approx(labels.count(blank) / len(labels))


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget(recipe, shared, tmp_path):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in SCRIPT.parent.iterdir())
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in json.loads((tmp_path / "quick" / "results.json").read_text())}
    assert 0 < rows.pop("always the most frequent")["mean"] < 1
    assert list(rows) == list(recipe[1].methods)
    for name, row in rows.items():
        assert 0 <= row["mean"] <= 1 < row["perplexity"]
        if name == "not private":
            assert row["epsilon"] is None
        else:
            budget = float(name.rsplit(" ", 1)[1])
            assert 0.999 * budget < row["epsilon"] <= budget
            assert (row["delta"], row["unit"]) == (0.01 / 250, "user")
    said = "".join(ElementTree.parse(tmp_path / "quick" / "accuracy.svg").getroot().itertext())
    assert all(noise in said for noise in recipe[1].noises)
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in SCRIPT.parent.iterdir())
