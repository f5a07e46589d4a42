"""Bins: the least expected loss, found by trying all of them, and the exact cost."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.randomized_response.enumerated import require_within
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.labels.numbers import BinnedResponse
from sfumato.labels.response import WORDS
from slow import by_profile


def _poisson(z, y):
    """The deviance, which is the loss but for a constant of each label."""
    logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / np.where(z > 0, z, 1)), 0.0)
    return z - y + logs


LOSSES = {"squared": lambda z, y: (z - y) ** 2, "absolute": lambda z, y: np.abs(z - y), "poisson": _poisson}


def expected(response: BinnedResponse, prior: np.ndarray, loss) -> float:
    """The mean loss of a report, from the weights that run."""
    chances = (response.weights() / WORDS).astype(float)
    return float((prior[:, None] * chances * loss(response.outputs[None, :], response.values[:, None])).sum())


def least(values: np.ndarray, prior: np.ndarray, epsilon: float, name: str) -> float:
    """Over all ways to cut the values into bins, with the best number for each."""
    found = []
    for cuts in itertools.product((0, 1), repeat=len(values) - 1):
        bins = np.concatenate([[0], np.cumsum(cuts)])
        total = 0.0
        for place in range(bins[-1] + 1):
            weight = prior * np.where(bins == place, math.exp(epsilon), 1.0)
            tried = values if name == "absolute" else [weight @ values / weight.sum()]
            total += min((weight * LOSSES[name](z, values)).sum() for z in tried)
        found.append(total / (math.exp(epsilon) + bins[-1]))
    return min(found)


@st.composite
def problems(draw):
    """Values, and a prior that may have zeros."""
    values = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=7)))
    parts = draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)).filter(any))
    return np.array(values) / 4, np.array(parts) / sum(parts)


@pytest.mark.parametrize("loss", LOSSES)
@given(problems(), st.sampled_from([0.1, 1.0, 3.0, 8.0]))
@settings(deadline=None, max_examples=by_profile(60))
def test_no_other_bins_are_better(loss, problem, epsilon):
    values, prior = problem
    response = BinnedResponse.best(values, prior, epsilon=epsilon, loss=loss)
    assert expected(response, prior, LOSSES[loss]) == pytest.approx(least(values, prior, epsilon, loss), abs=1e-9)
    require_within(response.weights(), epsilon)


def test_more_privacy_makes_fewer_bins_and_none_tells_anything_at_the_end():
    values = np.arange(50.0)
    counts = [
        len(BinnedResponse.best(values, np.full(50, 0.02), epsilon=epsilon).outputs) for epsilon in (12, 6, 3, 1, 0.01)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 20
    assert counts[-1] == 2


def test_values_that_lie_far_from_zero_have_the_same_bins():
    """Squares of large numbers would cancel."""
    rng = np.random.default_rng(0)
    values, prior = np.sort(rng.random(60)), rng.dirichlet(np.ones(60))
    near = BinnedResponse.best(values, prior, epsilon=4.0)
    far = BinnedResponse.best(values + 1e6, prior, epsilon=4.0)
    assert near.bins.tolist() == far.bins.tolist()
    assert far.outputs - 1e6 == pytest.approx(near.outputs, abs=1e-6)


def test_one_bin_reports_one_number():
    """All labels are the same, as the prior has it: nothing is told."""
    response = BinnedResponse.best(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), epsilon=1.0)
    assert response.outputs.tolist() == [1.0]
    assert response.draw(np.array([0, 1, 2]), np.zeros(3, np.uint64)).tolist() == [1.0] * 3


def test_reports_are_the_numbers_of_bins():
    response = BinnedResponse.best(np.arange(10.0), np.full(10, 0.1), epsilon=5.0)
    words = RandomSource.from_seed(0).stream("test").uint64(1000)
    reports = response.draw(np.arange(1000) % 10, words)
    assert set(reports) <= set(response.outputs)
    assert np.mean(reports == response.outputs[response.bins[np.arange(1000) % 10]]) > 0.9


def test_plain_response_reports_the_values():
    response = BinnedResponse.plain(np.array([1.0, 2.0, 5.0]), epsilon=1.0)
    assert response.outputs.tolist() == [1.0, 2.0, 5.0]
    require_within(response.weights(), 1.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"values": [1.0]}, "values must be 2 to 2048 numbers"),
        ({"values": [2.0, 1.0]}, "ascending"),
        ({"values": [1.0, math.nan]}, "finite"),
        ({"values": [-1.0, 1.0], "loss": "poisson"}, "values must be >= 0, got -1; take another loss"),
        ({"loss": "hinge"}, "loss must be one of squared, absolute, poisson, got hinge"),
        ({"prior": [0.5, 0.4]}, "sum to 1"),
        ({"epsilon": 0}, "epsilon must be > 0"),
    ],
)
def test_bad_input_is_refused(change, told):
    settings = {"values": [1.0, 2.0], "prior": [0.5, 0.5], "epsilon": 1.0, "loss": "squared", **change}
    values, prior = np.array(settings.pop("values")), np.array(settings.pop("prior"))
    with pytest.raises(InputError, match=told):
        BinnedResponse.best(values, prior, **settings)


@pytest.mark.parametrize(("bins", "outputs"), [([1, 1], [0.0]), ([0, 2], [0.0, 1.0, 2.0]), ([0, 1], [0.0])])
def test_bins_with_gaps_are_refused(bins, outputs):
    with pytest.raises(InputError):
        BinnedResponse(epsilon=1.0, values=np.array([1.0, 2.0]), bins=np.array(bins), outputs=np.array(outputs))
