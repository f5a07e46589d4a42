"""Regression on randomised numbers: each label pays once, and the model sees nothing else of it."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.labels import RROnBins
from sfumato.labels.numbers import BinnedResponse
from sfumato.labels.response import WORDS
from sfumato.labels.rr_on_bins import Regression
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.training import Supervised

_STEPS = Supervised(epochs=4, batch_size=64, learning_rate=0.1, schedule="cosine")
PLAN = RROnBins(epsilon=3.0, low=0.0, high=10.0, values=21, training=_STEPS, seed=1)
METHODS = ("best", "rr", "laplace")


def line(count=1500, seed=0):
    """Numbers from 2 to 8 that follow from the input."""
    inputs = np.random.default_rng(seed).uniform(-1, 1, (count, 1)).astype(np.float32)
    return examples_from_arrays(inputs, 5 + 3 * inputs[:, 0])


def model(outputs=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(1, outputs)


def ledger_of(folder):
    return Ledger.read(folder / "ledger.jsonl")


def test_it_learns_what_the_reports_report_and_states_what_a_label_paid():
    result = PLAN.fit(model(), line(), test=line(200, seed=1))
    assert (result.statement.unit, result.statement.adjacency, result.statement.delta) == ("label", "replace", 0.0)
    assert result.evaluation["trained"]["rmse"] < 0.7 < 1.8 < result.evaluation["untrained"]["rmse"]
    assert 2 <= len(np.unique(result.reports)) < 21


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prior_epsilon", [0.0, 0.05])
def test_the_ledger_adds_up_to_epsilon_whatever_the_method(method, prior_epsilon, tmp_path):
    plan = replace(PLAN, method=method, prior_epsilon=prior_epsilon)
    tried = plan.try_out(model(), line())
    result = plan.fit(model(), line(), out=tmp_path / "run")
    assert ledger_of(tmp_path / "run").event() == sum(plan.events(21)[1:], plan.events(21)[0])
    assert len(plan.events(21)) == (2 if prior_epsilon and method == "best" else 1)
    assert 2.999 < result.statement.epsilon <= 3.0
    assert tried.epsilon == result.statement.epsilon


@pytest.mark.parametrize("method", METHODS)
def test_another_label_changes_its_own_report_and_no_other(method):
    plan = replace(PLAN, epsilon=8.0, method=method, prior_epsilon=0.0)
    data = line()
    targets = np.asarray(data.targets).copy()
    before = plan.fit(model(), data).reports
    targets[7] = 10.0 - targets[7]
    after = plan.fit(model(), examples_from_arrays(np.asarray(data.inputs[0]), targets)).reports
    assert np.flatnonzero(before != after).tolist() == [7]


def test_labels_beyond_the_range_count_as_its_ends():
    inputs, inside = np.zeros((400, 1), np.float32), np.random.default_rng(0).permutation(np.tile([0.0, 10.0], 200))
    beyond = np.where(inside > 5, 1e6, -3.0)
    reports = [PLAN.fit(model(), examples_from_arrays(inputs, labels)).reports for labels in (inside, beyond)]
    assert np.array_equal(*reports)


def test_a_budget_below_epsilon_refuses_it_before_anything_is_counted(tmp_path):
    with pytest.raises(BudgetExceeded):
        PLAN.fit(model(), line(), out=tmp_path / "run", budget=Budget(epsilon=1.0, delta=0.0, adjacency="replace"))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_unbiased_numbers_have_the_mean_of_the_labels_bin(method, epsilon):
    plan = replace(PLAN, method=method, epsilon=epsilon, unbiased=True)
    prior = np.random.default_rng(0).dirichlet(np.ones(21))
    response = plan.response(21, prior)
    shown = response.outputs if isinstance(response, BinnedResponse) else response.values
    chances = (response.weights() / WORDS).astype(np.float64)
    means = chances @ plan.with_right_mean(response, shown, prior)
    if method == "best":
        bins = response.bins
        mass = np.bincount(bins, prior)
        expected = (np.bincount(bins, prior * plan.domain.grid) / mass)[bins]
    else:
        expected = plan.domain.grid
    np.testing.assert_allclose(means, expected, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_look_similar_are_shrunken_but_for_unbiased_numbers(method):
    """8.0 in [0, 10] for 20,000 rows, whose mean unbiased number is off by less than 0.4 at four deviations."""
    data = examples_from_arrays(np.ones((20_000, 1), np.float32), np.full(20_000, 8.0))
    plan = replace(
        PLAN, epsilon=1.0, method=method, prior_epsilon=0.0, **{"training.batch_size": 2000, "training.epochs": 30}
    )
    shrunken, right = (
        replace(plan, unbiased=unbiased).fit(model(), data).model(torch.ones(1, 1)).item() for unbiased in (False, True)
    )
    assert shrunken < 7.2
    assert abs(right - _known_as(plan)) < 0.4


def _known_as(plan):
    """What can be known of 8.0: the middle of its bin, or itself."""
    response = plan.response(21)
    if plan.method != "best":
        return 8.0
    bins = response.bins
    return float(plan.domain.grid[bins == bins[16]].mean())


@pytest.mark.parametrize(("loss", "key"), [("absolute", "mae"), ("poisson", "deviance_explained")])
def test_other_losses_are_learned_and_measured_in_their_own_way(loss, key):
    plan = replace(PLAN, loss=loss, epsilon=8.0, **{"training.learning_rate": 0.02, "training.epochs": 10})
    evaluation = plan.fit(model(), line(), test=line(200, seed=1)).evaluation
    better = evaluation["trained"][key] - evaluation["untrained"][key]
    assert better > 1 if loss == "poisson" else better < -1


ONES = np.ones((4, 1), np.float32)
LABELS = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"data": examples_from_arrays(ONES, np.arange(4), num_classes=4)}, "classes are for sfumato labeldp train"),
        ({"data": examples_from_arrays(ONES, np.ones((4, 2)))}, "one number for each"),
        ({"data": examples_from_arrays(ONES)}, "one number for each"),
        ({"data": examples_from_arrays((ONES, ONES), LABELS)}, "cannot read an example"),
        ({"data": examples_from_arrays({"x": ONES}, LABELS)}, "inputs by position"),
        ({"data": ExampleDataset(inputs=(ONES,), targets=np.array([1.0, np.nan, 1.0, 1.0]))}, "labels must be finite"),
        ({"data": examples_from_arrays(np.full((4, 1), np.nan, np.float32), LABELS)}, "inputs must be finite"),
        ({"data": np.ones(4)}, "ExampleDataset"),
        ({"model": nn.Linear(1, 3)}, "one output for an example"),
        ({"model": nn.Linear(2, 1)}, "cannot read an example"),
        ({"test": examples_from_arrays(ONES)}, "no labels to measure"),
        ({"test": examples_from_arrays(ONES, np.arange(4), num_classes=4)}, "no labels to measure"),
        ({"test": examples_from_arrays(np.ones((4, 2), np.float32), LABELS)}, "one shape"),
        ({"features": ONES}, "features are for clusters"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run_is_made(given, told, tmp_path):
    usual = {"model": model(), "data": examples_from_arrays(ONES, LABELS)}
    with pytest.raises(InputError, match=told):
        PLAN.fit(**{**usual, **given}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_whole_numbers_are_labels_like_others():
    labels = np.random.default_rng(0).permutation(np.arange(1500) % 7)
    whole = examples_from_arrays(np.asarray(line().inputs[0]), labels, classes=False)
    reports = PLAN.fit(model(), whole).reports
    assert np.array_equal(reports, PLAN.fit(model(), replace(whole, targets=labels * 1.0)).reports)


@pytest.mark.parametrize("rate", [5.0, 1e6])  # numbers that are huge, or none at all
def test_a_training_that_diverges_is_refused_before_labels_are_drawn(rate, tmp_path):
    plan, said = (
        replace(PLAN, **{"training.learning_rate": rate, "training.epochs": 2}),
        re.escape(f"training.learning_rate {rate:g} makes"),
    )
    for call in (lambda: plan.fit(model(), line(), out=tmp_path / "run"), lambda: plan.try_out(model(), line())):
        with pytest.raises(InputError, match=f"{said}.*no label was drawn"):
            call()
    assert not (tmp_path / "run").exists()


def test_a_model_that_diverges_later_is_reported_of_with_what_to_change(monkeypatch):
    monkeypatch.setattr(Regression, "_refuse_divergence", lambda *_: None)
    with pytest.warns(UserWarning, match=r"the model diverged.* lower training.learning_rate \(5\)"):
        replace(PLAN, **{"training.learning_rate": 5.0, "training.epochs": 2}).fit(model(), line())


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_a_model_that_learned_is_not_reported_to_diverge(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(PLAN, loss=loss, **{"training.learning_rate": 0.01}).fit(model(), line())


def test_shuffled_rows_may_be_sorted():
    data = line()
    data = data.subset(np.argsort(np.asarray(data.targets)))
    with pytest.raises(InputError, match="the order of rows is public"):
        PLAN.fit(model(), data)
    result = replace(PLAN, shuffle=True).fit(model(), data, test=line())
    assert result.evaluation["trained"]["rmse"] < result.evaluation["untrained"]["rmse"]
    assert any("random order" in line for line in result.statement.assumptions)
