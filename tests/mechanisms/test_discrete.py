"""Discrete Gaussian and Laplace noise."""

import itertools
import math
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from scipy import stats

from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.mechanisms.discrete import _is_below, discrete_gaussian, discrete_laplace, lattice_variance

# The exact sampler against the probabilities of the discrete Gaussian, and the proof that its cost is a real one's.


def drawn(variance: Fraction, count: int, label: str = "noise") -> np.ndarray:
    return discrete_gaussian(RandomSource.from_seed(7).stream(label, str(variance)), variance, count)


def mass(variance: float, points: np.ndarray) -> np.ndarray:
    """By summing exp(−x²/2v) over 60 std."""
    reach = math.ceil(60 * math.sqrt(variance)) + 2
    everywhere = np.exp(-(np.arange(-reach, reach + 1, dtype=float) ** 2) / (2 * variance)).sum()
    return np.exp(-(points.astype(float) ** 2) / (2 * variance)) / everywhere


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(1), Fraction(7, 3), Fraction(25), Fraction(2.71**2)])
def test_single_numbers_come_as_often_as_they_shall(variance):
    """Chi-square on 60,000 draws; false alarms 1e-4 each, seeds fixed."""
    draws = drawn(variance, 60_000)
    reach = math.ceil(4 * math.sqrt(variance))
    points = np.arange(-reach, reach + 1)
    expected = mass(float(variance), points) * len(draws)
    counts = np.array([(draws == x).sum() for x in points])
    kept = expected > 5
    counts = np.append(counts[kept], len(draws) - counts[kept].sum())
    expected = np.append(expected[kept], len(draws) - expected[kept].sum())
    if expected[-1] < 5:
        counts, expected = counts[:-1], expected[:-1] * counts[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("std", [50.0, 400.3, 1e6])
def test_wide_draws_fall_into_twenty_classes_of_equal_probability(std):
    """Chi-square against the normal distribution, which the discrete one is but for the class borders."""
    draws = drawn(Fraction(std) ** 2, 40_000)
    borders = np.floor(stats.norm.ppf(np.arange(1, 20) / 20) * std) + 0.5
    shares = np.diff(np.concatenate([[0.0], stats.norm.cdf(borders / std), [1.0]]))
    counts = np.bincount(np.searchsorted(borders, draws), minlength=20)
    assert stats.chisquare(counts, shares * len(draws)).pvalue > 1e-4


def test_low_digits_of_wide_draws_are_uniform():
    """A sampler that rounds a floating-point number has gaps there."""
    counts = np.bincount(drawn(Fraction(10**12), 64_000) % 16, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_same_stream_gives_the_same_draws_and_another_gives_others():
    assert (drawn(Fraction(25), 100) == drawn(Fraction(25), 100)).all()
    assert (drawn(Fraction(25), 100) != drawn(Fraction(25), 100, "other")).any()


@pytest.mark.parametrize("std", [5, 1_000, 1_000_000])
def test_five_thousand_draws_take_well_below_a_second(std):
    tracemalloc.start()
    start = time.process_time()
    assert len(drawn(Fraction(std) ** 2, 5_000)) == 5_000
    taken = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 0.8
    assert peak < 20e6  # the same for every std


class Words(Stream):
    """A stream whose words are told in advance."""

    def __init__(self, words: list[int]) -> None:
        self.words = iter(words)

    def uint64(self, count: int) -> np.ndarray:
        return np.array(list(itertools.islice(self.words, count)), np.uint64)


def test_a_coin_that_ties_on_its_first_digit_is_decided_by_the_next():
    third = np.array([1], object)
    digit = 2**64 // 3
    assert _is_below(Words([digit - 1]), third, 3)[0]
    assert not _is_below(Words([digit + 1]), third, 3)[0]
    assert _is_below(Words([digit, digit - 1]), third, 3)[0]
    assert not _is_below(Words([digit, digit, digit + 1]), third, 3)[0]


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(10**32)])
def test_a_variance_that_is_none_or_too_large_is_refused(variance):
    with pytest.raises(InputError, match=r"variance must be > 0|std must be in"):
        drawn(variance, 1)


@pytest.mark.parametrize("centre", [0.0, 0.25, 0.5])
def test_sums_over_the_integers_hardly_depend_on_the_centre(centre):
    """The bound of docs/explanation/votes.md at s where doubles see it, and at s = 3 where they do not."""
    z = np.arange(-200, 201)
    for s in (0.6, 0.8, 1.0, 3.0):
        total = np.exp(-((z - centre) ** 2) / (2 * s * s)).sum()
        off = abs(total / (s * math.sqrt(2 * math.pi)) - 1)
        assert off <= 2.0001 * math.exp(-2 * math.pi**2 * s * s) + 1e-15


@pytest.mark.parametrize("centre", [0, 0.3])
def test_a_real_gaussian_rounded_at_random_is_a_discrete_one(centre):
    """Numerically for s = 1, where the factor is 1 ± 1e-8: the sum of a normal number of variance v + rounding."""
    v, s, x = 4.0, 1.0, np.arange(-12, 13)
    reals = np.linspace(-30, 30, 60_001)
    z = np.arange(-40, 41)
    rounding = np.exp(-((x[:, None] - reals) ** 2) / (2 * s * s))
    rounding /= np.exp(-((z[:, None] - reals) ** 2) / (2 * s * s)).sum(axis=0)
    density = np.exp(-((reals - centre) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
    found = (rounding * density).sum(axis=1) * (reals[1] - reals[0])
    expected = np.exp(-((x - centre) ** 2) / (2 * (v + s * s)))
    expected /= np.exp(-((z - centre) ** 2) / (2 * (v + s * s))).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_the_lattice_variance_is_the_exact_square_and_nine():
    assert lattice_variance(0.1) == Fraction(0.1) ** 2 + 9


# Discrete Laplace noise: its distribution, without rounding.


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
