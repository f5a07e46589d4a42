"""Laplace noise on a grid: the exact cost, and the distribution that it is meant to have."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.randomized_response.enumerated import largest_ratio, require_within
from sfumato._check import InputError
from sfumato.labels.numbers import GridLaplace
from sfumato.labels.response import WORDS
from slow import by_profile


@given(st.integers(2, 40), st.floats(1e-6, 40))
@settings(deadline=None, max_examples=by_profile(150))
def test_no_report_tells_more_than_epsilon(count, epsilon):
    require_within(GridLaplace(epsilon=epsilon, low=-1.0, high=1.0, count=count).weights(), epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 4.0, 39.9])
def test_no_report_tells_more_than_epsilon_on_the_finest_grid(epsilon):
    """In exact numbers, by the columns alone."""
    weights = GridLaplace(epsilon=epsilon, low=0.0, high=1.0, count=2048).weights()
    assert math.log(largest_ratio(weights)) <= epsilon * (1 + 1e-15)


def test_weights_are_those_of_discrete_laplace_noise_that_is_moved_into_the_range():
    count, epsilon = 9, 3.0
    q = math.exp(-epsilon / (count - 1))
    noise = np.arange(-2000, 2001)
    chances = (1 - q) / (1 + q) * q ** np.abs(noise)
    found = GridLaplace(epsilon=epsilon, low=0.0, high=8.0, count=count).weights()
    for label in range(count):
        expected = np.bincount(np.clip(label + noise, 0, count - 1), chances, minlength=count)
        assert (found[label] / WORDS).astype(float) == pytest.approx(expected, abs=1e-14)


def test_reports_change_exactly_where_the_table_says():
    response = GridLaplace(epsilon=2.0, low=0.0, high=5.0, count=6)
    for label in range(6):
        ends = np.cumsum(response.weights()[label])
        last = np.array([int(end) - 1 for end in ends], np.uint64)
        assert response.draw(np.full(6, label), last).tolist() == response.values.tolist()
        first = np.array([0, *ends[:-1]], np.uint64)
        assert response.draw(np.full(6, label), first).tolist() == response.values.tolist()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"low": 2.0}, "low must be below high"),
        ({"high": math.inf}, "finite"),
        ({"count": 1}, "count must be a whole number >= 2"),
        ({"count": 5000}, r"count must be in \[2, 2048\]"),
        ({"epsilon": 41}, r"epsilon must be in \[0, 40\], got 41; beyond, 64 bits do not hold the tails"),
    ],
)
def test_bad_input_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        GridLaplace(**{"epsilon": 1.0, "low": 0.0, "high": 1.0, "count": 3, **change})
