"""The recipes of DP-FTRL."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sfumato._parts import flat
from sfumato.accounting import guarantee

# The recipe of correlated noise by role trains every row at its budget and draws the figure.

ROOT = Path(__file__).resolve().parents[2]
SHAKESPEARE = ROOT / "recipes" / "ftrl_shakespeare" / "run.py"


@pytest.fixture
def ftrl_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import ftrl_recipe

    namespace: dict = {"__name__": "recipe", "__file__": str(SHAKESPEARE)}
    exec(compile(SHAKESPEARE.read_text(), str(SHAKESPEARE), "exec"), namespace)
    return ftrl_recipe, namespace["RECIPE"]


CHOSEN = {"noise", "noise.noise_multiplier", "noise.coefficients", "noise.column_scales", "server.learning_rate"}
CHOSEN |= {"cohort", "cohort.parts", "cohort.min_separation"}


def settings(plan) -> dict:
    """All settings by name; those that its kinds of noise and cohorts do not have are as where nobody sets them."""
    unset = {
        "noise.estimator": "efficient",
        "noise.completion": False,
        "noise.prefix_error": "mean",
        **dict.fromkeys(("noise.restart", "noise.bands", "noise.buffers", "cohort.max_participations")),
        "cohort.availability": 1.0,
        "cohort.drop_out": 0.0,
    }
    return {**unset, **dict(flat(plan.to_json()))}


def test_rows_of_one_budget_differ_in_noise_sampling_and_the_rate_that_follows_from_the_noise(ftrl_recipe):
    shared, table = ftrl_recipe
    noises = [shared.Method(noise=noise, epsilon=8.0) for noise in table.noises]
    plans = [table.planned(method, 250, False) for method in noises]
    common = [{name: value for name, value in settings(plan).items() if name not in CHOSEN} for plan in plans]
    assert all(fields == common[0] for fields in common)
    for plan in plans:
        rounds = plan.private_sum(250)
        spent = guarantee(rounds.event(plan.rounds), rounds.sampler.adjacency).epsilon(0.01 / 250)
        assert 0.999 * 8 < spent <= 8
        error = shared.predicted_error(plan, 250)
        assert plan.server.learning_rate == pytest.approx(min(2.5, 0.16 / error), abs=1e-3)


def test_correlated_noise_is_predicted_to_lose_to_sampling_at_a_small_budget_and_to_win_at_a_large_one(ftrl_recipe):
    shared, table = ftrl_recipe

    def error(noise: str, epsilon: float) -> float:
        return shared.predicted_error(table.planned(shared.Method(noise=noise, epsilon=epsilon), 250, False), 250)

    sampled = "independent, Poisson sampling"
    assert error(sampled, 2.0) < error("banded", 2.0) < error("tree", 2.0) < error("independent", 2.0)
    assert error("banded", 20.0) < error("tree", 20.0) < error(sampled, 20.0) < error("independent", 20.0)


@pytest.mark.shared
def test_nobody_who_is_measured_trains(ftrl_recipe, shared):
    train, test = ftrl_recipe[1].data(False)
    assert (len(train), len(test)) == (250, 49)
    assert not set(train.user_ids) & set(test.user_ids)


@pytest.mark.shared
def test_the_constant_answer_is_as_right_as_blanks_are_frequent(ftrl_recipe, shared):
    test = ftrl_recipe[1].data(True)[1]
    blank = test.label_names.index(" ")
    labels = [label for user in range(len(test)) for label in test.examples(user)[1].ravel() if label]
    assert ftrl_recipe[0].most_frequent(test) == pytest.approx(labels.count(blank) / len(labels))


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_shakespeare_runs_and_states_its_budget(ftrl_recipe, shared, tmp_path):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in SHAKESPEARE.parent.iterdir())
    command = [sys.executable, str(SHAKESPEARE), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in json.loads((tmp_path / "quick" / "results.json").read_text())}
    assert 0 < rows.pop("always the most frequent")["mean"] < 1
    assert list(rows) == list(ftrl_recipe[1].methods)
    for name, row in rows.items():
        assert 0 <= row["mean"] <= 1 < row["perplexity"]
        if name == "not private":
            assert row["epsilon"] is None
        else:
            budget = float(name.rsplit(" ", 1)[1])
            assert 0.999 * budget < row["epsilon"] <= budget
            assert (row["delta"], row["unit"]) == (0.01 / 250, "user")
    said = "".join(ElementTree.parse(tmp_path / "quick" / "accuracy.svg").getroot().itertext())
    assert all(noise in said for noise in ftrl_recipe[1].noises)
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in SHAKESPEARE.parent.iterdir())


# The recipe of writers: rows meet their budgets and share one plan but for the noise; who is missing shows nowhere.

WRITERS = ROOT / "recipes" / "ftrl_writers" / "run.py"


@pytest.fixture
def writers(script):
    """The script as a module."""
    return script("ftrl_writers")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_writers_runs_and_states_its_budget(shared, tmp_path):
    command = [sys.executable, str(WRITERS), "--quick", "--out", str(tmp_path)]
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


def test_rows_differ_in_noise_sampling_and_the_servers_rate_only(writers):
    chosen = {*CHOSEN, "cohort.drop_out", "delta", "population"}
    table = writers.RECIPE
    shared = settings(table.plan)
    for title in ("tree, ε 8", "independent, Poisson sampling, ε 2", "banded, cyclic Poisson sampling, ε 8"):
        own = settings(table.planned(table.methods[title], 539, False))
        assert {name for name in own.keys() | shared.keys() if own.get(name) != shared.get(name)} <= chosen


def test_the_row_with_missing_writers_has_the_noise_and_the_rate_of_the_full_one(writers):
    full, missing = (writers.RECIPE.planned(row, 539, False) for row in (writers.FULL, writers.MISSING))
    assert missing.cohort.drop_out == 0.3
    assert missing.replace(cohort={"drop_out": 0.0}) == full
    assert writers.MISSING.title in writers.RECIPE.methods


def test_statements_that_differ_in_one_byte_are_refused(writers, tmp_path):
    full, missing = tmp_path / "full", tmp_path / "missing"
    for folder in (full, missing):
        folder.mkdir()
        (folder / "statement.json").write_text('{"epsilon": 8.0}')
    writers.refuse_difference(full, missing)
    (missing / "statement.json").write_text('{"epsilon": 8.1}')
    with pytest.raises(SystemExit, match="differ"):
        writers.refuse_difference(full, missing)
