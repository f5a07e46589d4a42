"""Discrete Laplace noise: its distribution, without rounding."""

import math

import numpy as np
import pytest
import scipy.stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.mechanisms.discrete import discrete_laplace


@pytest.mark.parametrize(("rate", "seed"), [(0.3, 1), (1.0, 2), (2.5, 3), (2 / 3, 4)])
def test_draws_have_their_probabilities(rate, seed):
    """Chi-square, Bonferroni over four rates: one false alarm in 10^4."""
    count = 40_000
    drawn = discrete_laplace(RandomSource.from_seed(seed).stream("test"), rate=rate, count=count)
    most = int(7 / rate)
    q = math.exp(-rate)
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(-most, most + 1))
    tail = q ** (most + 1) / (1 + q)
    expected = np.array([tail, *inner, tail]) * count
    seen = np.bincount(np.clip(drawn, -most - 1, most + 1) + most + 1, minlength=2 * most + 3)
    assert scipy.stats.chisquare(seen, expected * count / expected.sum()).pvalue > 2.5e-5


def test_large_noise_is_as_wide_as_it_should_be():
    """The standard error of a standard deviation of 4,000 draws is 1.8 %; five of them: one false alarm in 10^6."""
    drawn = discrete_laplace(RandomSource.from_seed(5).stream("test"), rate=1e-4, count=4000)
    assert drawn.std() == pytest.approx(math.sqrt(2) * 1e4, rel=0.09)


def test_the_same_stream_gives_the_same_draws():
    draws = [discrete_laplace(RandomSource.from_seed(6).stream("test"), rate=0.1, count=50).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, 1e10])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(InputError, match="rate must be"):
        discrete_laplace(RandomSource.from_seed(0).stream("test"), rate=rate, count=1)
