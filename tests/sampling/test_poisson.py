"""Poisson cohorts."""

import numpy as np
import pytest
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.sampling import PoissonSampling

SOURCE = RandomSource.from_seed(3)


def test_every_unit_takes_part_at_the_accounted_rate():
    sampling = PoissonSampling(sampling_rate=0.03, population=500)
    counts = np.zeros(500)
    for index in range(1000):
        counts[sampling.draw(500, index, SOURCE)] += 1
    event = sampling.account(acc.Gaussian(1.0))
    # Binomial(1000 × 500, q): false alarm 1e-6 at a fixed seed.
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 500_000, event.sampling_rate)
    assert low <= counts.sum() <= high
    assert stats.chisquare(counts).pvalue > 1e-6


def test_cohort_sizes_vary_like_a_binomial():
    sampling = PoissonSampling(sampling_rate=0.1, population=200)
    sizes = np.array([len(sampling.draw(200, i, SOURCE)) for i in range(2000)])
    ratio = sizes.var() / (200 * 0.1 * 0.9)
    assert 0.85 < ratio < 1.15  # sd of the ratio is 0.032: false alarm below 1e-5


def test_a_unit_at_the_end_does_not_change_who_else_takes_part():
    sampling = PoissonSampling(sampling_rate=0.2, population=100_000)
    fewer = sampling.draw(99_999, 1, SOURCE)
    more = sampling.draw(100_000, 1, SOURCE)
    assert np.array_equal(fewer, more[more < 99_999])


def test_nobody_and_everybody():
    assert len(PoissonSampling(sampling_rate=0.5, population=1).draw(0, 0, SOURCE)) == 0
    everybody = PoissonSampling(sampling_rate=1.0, population=70_000)
    assert np.array_equal(everybody.draw(70_000, 0, SOURCE), np.arange(70_000))
    assert everybody.account(acc.Gaussian(2.0)) == acc.Gaussian(2.0)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(InputError, match="sampling_rate"):
        PoissonSampling(sampling_rate=rate, population=10)


def test_coins_alone_decide_how_often_a_unit_takes_part():
    assert PoissonSampling(sampling_rate=0.5, population=10).participation(100) is None
