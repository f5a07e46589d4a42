"""The recipes of label privacy and of voting, and the tables of all recipes' pages."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import accounting as acc
from sfumato.labels.response import LabelResponse, forward_loss

pytestmark = pytest.mark.slow

# The recipes of label privacy, and the tables of all recipes' pages.

# The recipes of private labels: every row states its budget, and what must depend on one picture alone does.
ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"


@pytest.fixture
def recipe(request, script):
    """A recipe's script as a module."""
    return script(request.param)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["labeldp_mnist", "labeldp_mnist_m"])
def test_every_row_runs_and_states_its_budget_and_unit(name, shared, tmp_path):
    command = [sys.executable, str(RECIPES / name / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    budgeted = [row for row in rows if "label_epsilon" in row]
    assert len(budgeted) == {"labeldp_mnist": 10, "labeldp_mnist_m": 12}[name]
    assert len(rows) - len(budgeted) == {"labeldp_mnist": 0, "labeldp_mnist_m": 9}[name]
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


def test_headlines_are_looked_up_in_the_rows_and_other_data_are_named(script, tmp_path, monkeypatch):
    tables = script("labeldp_mnist", "tables")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    (tmp_path / "some").mkdir()
    rows = [{"method": "ours", "mean": 0.76}, {"method": "real", "mean": 0.8}]
    (tmp_path / "some" / "results.json").write_text(json.dumps(rows))
    headline = {"system": "S", "figure": "f", "paper": 2.6, "theirs": "A", "ours": "B", "recipe": "some"}
    wanted = {"row": {"method": "ours"}, "short_of": {"method": "real"}}
    for file in ({**headline, **wanted}, {**headline, "ours": "A", "row": {"method": "real"}}):
        (tmp_path / "headlines.json").write_text(json.dumps([file]))
        line = tables.headlines().splitlines()[-1]
        expected = "| 0.8 | A | the same |" if file["ours"] == "A" else "| 5 | B | different |"
        assert line.endswith(expected)
    (tmp_path / "headlines.json").write_text(json.dumps([{**headline, "row": {"method": "gone"}}]))
    with pytest.raises(KeyError, match="has no row with"):
        tables.headlines()


# The recipes of private labels: every row runs, and states its budget for its unit.
def quick(name: str, out: Path) -> list[dict]:
    command = [sys.executable, str(ROOT / "recipes" / name / "run.py"), "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads((out / "quick" / "results.json").read_text())


@pytest.mark.shared
def test_ratings_are_reported_at_every_epsilon_and_none_costs_more(shared, tmp_path):
    rows = quick("labeldp_ratings", tmp_path)
    assert len(rows) == 3 + 9 * 6
    for row in rows[3:]:
        assert row["unit"] == ("example" if row["method"] == "DP-SGD" else "label")
        assert 0.999 * row["epsilon_wanted"] < row["epsilon"] <= row["epsilon_wanted"]
    assert all(row["epsilon"] is row["unit"] is None for row in rows[:3])


@pytest.mark.shared
def test_conversions_are_reported_by_every_method_for_its_own_unit(shared, tmp_path):
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


# The recipes of voting.


@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_every_row_runs_and_averaging_costs_what_it_may(recipe, shared, tmp_path, script):
    command = [sys.executable, str(ROOT / "recipes" / recipe / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    budget = script(recipe, "run").EPSILON
    for row in rows:
        assert 0 <= row["mean"] <= 1
        assert (row["epsilon"] is None) == ("not private" in row["method"])
        if row["answers"] is not None:
            assert row["epsilon_votes"] > 0
        elif row["epsilon"] is not None:
            assert 0.999 * budget < row["epsilon"] <= budget * (1 + 1e-9)
    assert (tmp_path / "quick" / "bytes.svg").read_text().count("<svg") == 1


@pytest.mark.shared
@pytest.mark.parametrize("recipe", ["voting_digits", "voting_mnist"])
def test_no_picture_of_the_server_is_in_two_of_its_parts(recipe, shared, script):
    parts = script(recipe, "run").server()
    rows = [{picture.tobytes() for picture in part.examples(np.arange(len(part)))[0][0]} for part in parts]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(rows[one] & rows[other]) <= 1  # equal scans by chance, no shared rows


@pytest.mark.shared
def test_each_agent_knows_six_classes_and_no_digit_is_dealt_twice(shared, script):
    agents = script("voting_mnist", "run").agents(3, number=50, records=120)
    assert len(agents) == 50
    for agent in range(50):
        assert len(np.unique(agents.examples(agent)[1])) == 6
    assert (agents.sizes <= 120).all()


def test_a_slanted_bar_is_counted_as_an_upright_one(script):
    counts = script("voting_digits", "pictures").counts
    upright, slanted = np.zeros((2, 28, 28), np.float32)
    upright[4:24, 13:16] = 1.0
    for row in range(4, 24):
        slanted[row, 9 + row // 4 : 12 + row // 4] = 1.0
    one, other = counts(np.stack([upright, slanted]))[..., 0].astype(int)
    assert one[:, 3:5].min() > 0
    assert abs(one - other).mean() < 12
    plain = np.abs(upright - slanted).reshape(7, 4, 7, 4).mean((1, 3)).mean() * 255
    assert abs(one - other).mean() < plain / 2


def test_a_picture_without_ink_has_no_counts(script):
    assert not script("voting_digits", "pictures").counts(np.zeros((1, 28, 28), np.float32)).any()


def test_ink_is_found_on_a_coloured_ground(script):
    picture = np.full((1, 32, 32, 3), (200, 30, 60), np.uint8)
    picture[0, 8:24, 15:18] = (40, 220, 90)
    ink = script("voting_digits", "pictures").ink_on_photograph(picture)[0]
    assert ink[6:22, 13:16].all()
    assert ink.sum() == 16 * 3


# The recipe of votes for attributes: rows state their budgets, noise follows the bound, features tell no attribute.
ATTRIBUTES = ROOT / "recipes" / "voting_attributes"


@pytest.fixture
def census(script):
    """The table's module."""
    return script("voting_attributes", "census")


@pytest.mark.shared
def test_every_row_runs_and_states_its_budget_its_unit_and_its_noise(shared, tmp_path):
    command = [sys.executable, str(ATTRIBUTES / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 2 * (2 + 2 * 4)
    for row in rows:
        assert all(0 <= row[name] <= 1 for name in ("mean", "macro_f1", "mean_average_precision"))
        if row["budget"] is None:
            assert row["epsilon"] is row["unit"] is None
            continue
        assert 0.999 * row["budget"] < row["epsilon"] <= row["budget"] * (1 + 1e-9)
        assert row["unit"] == ("agent" if "AE" in row["dataset"] else "example")
        # A vote that may weigh several attributes moves the counts by the root of their number.
        one = next(
            r for r in rows if r["dataset"] == row["dataset"] and (r["bound"], r["budget"]) == (1, row["budget"])
        )
        assert row["noise_std"] / one["noise_std"] == pytest.approx(math.sqrt(row["bound"]), rel=1e-3)
    assert (tmp_path / "quick" / "attributes.svg").read_text().count("<svg") == 1


@pytest.mark.shared
def test_features_stay_when_everything_that_attributes_are_read_from_changes(census, shared):
    table = census.read().head(500)
    known, told = census.features(table), census.attributes(table)
    mixed = table.copy()
    order = np.random.default_rng(1).permutation(len(table))
    names = ["Salary", "marital-status", "sex", "education-num", "hours-per-week", "relationship"]
    mixed[names] = mixed[names].to_numpy()[order]
    # Education says in words what education-num says in numbers.
    mixed["education"] = mixed["education"].to_numpy()[order]
    assert (census.features(mixed) == known).all(axis=None)
    assert (census.attributes(mixed) != told).any(axis=0).all()


@pytest.mark.shared
def test_agents_have_equal_parts_and_public_rows_are_nobodys(census, shared):
    here = census.world()
    assert set(here.agents.sizes.tolist()) == {census.RECORDS}
    assert len(here.agents) == census.AGENTS
    parts = (here.pool, here.validation, here.test)
    assert here.agents.num_examples + sum(map(len, parts)) == len(census.read())
    assert 0.1 < here.agents.labels.mean(axis=0).min() < here.agents.labels.mean(axis=0).max() < 0.5


# The recipe of votes across domains: rows state their budgets, parts share no picture, features no other record.
OFFICE = ROOT / "recipes" / "voting_office"


@pytest.fixture
def office(script):
    """The script as a module."""
    return script("voting_office")


@pytest.mark.shared
def test_every_row_on_office_runs_and_states_its_budget_and_unit(shared, tmp_path):
    command = [sys.executable, str(OFFICE / "run.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 4 * 8
    for row in rows:
        assert 0 <= row["mean"] <= 1
        if "noise" in row["method"]:
            assert row["epsilon"] is row["unit"] is None
            continue
        budget = float(row["method"].rsplit(" ", 1)[1])
        assert 0.999 * budget < row["epsilon"] <= budget * (1 + 1e-9)
        assert row["unit"] == "example"
        # What the paper prints is k times the cost in zCDP.
        votes = row["method"].startswith("kNN")
        assert row["epsilon_papers_convention"] > budget if votes else row["epsilon_papers_convention"] is None
        if "no one trusted" in row["method"]:
            assert row["epsilon_of_the_sum"] < 0.5 * budget


@pytest.mark.shared
def test_pool_validation_and_test_share_no_picture(office, shared, tmp_path):
    here = sys.modules["domains"].world("webcam", tmp_path, scaling="standardised", records=50)
    parts = [here.pool, here.validation, here.test]
    rows = sys.modules["domains"].office("webcam")[0]
    assert sum(len(part) for part in parts) == len(rows)
    seen = [{row.tobytes() for row in np.asarray(part.inputs[0])} for part in parts]
    copies = len(rows) - len(np.unique(rows, axis=0))
    assert len(seen[0] | seen[1] | seen[2]) == len(rows) - copies


@pytest.mark.parametrize("scaling", ["lengths", "roots", "standardised"])
def test_a_records_features_do_not_depend_on_other_records(office, scaling):
    scaled = sys.modules["domains"].scaled
    rng = np.random.default_rng(1)
    rows, pool = rng.poisson(1.0, (6, 40)).astype(np.float32), rng.poisson(1.0, (30, 40)).astype(np.float32)
    rows[3] = 0
    together = scaled(rows, scaling, pool)
    rows[4] *= 100
    changed = scaled(rows, scaling, pool)
    others = np.arange(6) != 4
    assert np.array_equal(together[others], changed[others])
    assert np.isfinite(together).all()
    assert np.allclose(np.linalg.norm(together[others & (np.arange(6) != 3)], axis=1), 1, atol=1e-6)


def test_an_agents_own_noise_promises_what_the_row_states(office):
    methods = sys.modules["methods"]
    plan = office.gradients(10, 256, 1.0).calibrate(epsilon=4.0, delta=1e-5, population=1000)
    told = methods.own_guarantee(plan, 1000)
    alone = acc.Gaussian(plan.noise.noise_multiplier).poisson(0.256) * 40  # steps: 10 passes of 1000 / 256, rounded up
    assert told["epsilon"] == pytest.approx(acc.guarantee(alone, adjacency="add_remove").epsilon(1e-5), rel=1e-9)
    assert told["delta"] == 1e-5
    # Independent noises: their variances add up.
    agents = [None] * 49
    assert methods.noise_of_all(plan, agents) ** 2 == pytest.approx(sum(plan.noise.noise_multiplier**2 for _ in agents))


def test_chosen_settings_are_among_the_trials(office, script):
    trials = script("voting_office", "choose").TRIALS
    for method in office.METHODS.values():
        assert method in trials
