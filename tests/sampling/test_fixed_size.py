"""Cohorts of a fixed size."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.sampling import FixedSizeSampling
from sfumato.sampling.independent import subset

SOURCE = RandomSource.from_seed(4)


def test_all_subsets_are_equally_likely():
    sampling = FixedSizeSampling(size=2, population=5)
    seen: dict[tuple[int, ...], int] = {}
    for index in range(5000):
        key = tuple(sampling.draw(5, index, SOURCE).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def floyd(size: int, whole: int, picks: np.ndarray) -> list[int]:
    """Bentley and Floyd 1987, step by step, from the same draws."""
    chosen: set[int] = set()
    for last, pick in zip(range(whole - size, whole), picks.tolist(), strict=True):
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


@pytest.mark.parametrize(("size", "whole"), [(1, 1), (5, 5), (1, 9), (7, 8), (40, 50), (64, 1000), (700, 1000)])
def test_a_subset_is_that_of_floyds_algorithm_step_by_step(size, whole):
    for index in range(40):
        picks = SOURCE.stream("f", index).integers_below(np.arange(whole - size + 1, whole + 1, dtype=np.uint64))
        found = subset(size, whole, SOURCE.stream("f", index))
        assert found.tolist() == floyd(size, whole, picks)
        assert found.dtype == np.int64


@pytest.mark.parametrize(("size", "subsets"), [(1, 6), (3, 20), (5, 6), (6, 1)])
def test_all_subsets_of_six_are_equally_likely(size, subsets):
    stream = SOURCE.stream("equal", size)
    seen = Counter(tuple(subset(size, 6, stream).tolist()) for _ in range(4000))
    assert len(seen) == subsets
    if subsets > 1:
        assert stats.chisquare(list(seen.values())).pvalue > 1e-6  # the false alarm rate, at a fixed seed


def test_a_draw_has_the_size_and_no_repeats():
    draw = FixedSizeSampling(size=64, population=1000).draw(1000, 0, SOURCE)
    assert len(np.unique(draw)) == 64
    assert draw.min() >= 0
    assert draw.max() < 1000


def test_it_is_never_accounted_as_poisson():
    fixed = FixedSizeSampling(size=10, population=1000).account(acc.Gaussian(0.8))
    poisson = acc.Gaussian(0.8).poisson(0.01)
    assert acc.guarantee(fixed * 100, "replace").epsilon(1e-6) > acc.guarantee(poisson * 100).epsilon(1e-6)


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(InputError, match="cohort of 11 cannot be drawn from 10"):
        FixedSizeSampling(size=11, population=10)


def test_another_number_of_users_than_planned_is_refused():
    with pytest.raises(InputError, match="planned for 10 users but 9"):
        FixedSizeSampling(size=3, population=10).draw(9, 0, SOURCE)


def test_coins_alone_decide_how_often_a_unit_takes_part():
    assert FixedSizeSampling(size=3, population=10).participation(100) is None
