"""Cohorts of a fixed size."""

import numpy as np
import pytest
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.sampling import FixedSizeSampling

SOURCE = RandomSource.from_seed(4)


def test_all_subsets_are_equally_likely():
    sampling = FixedSizeSampling(size=2, population=5)
    seen: dict[tuple[int, ...], int] = {}
    for index in range(5000):
        key = tuple(sampling.draw(5, SOURCE.stream("s", index)).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def test_a_draw_has_the_size_and_no_repeats():
    draw = FixedSizeSampling(size=64, population=1000).draw(1000, SOURCE.stream("s"))
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
        FixedSizeSampling(size=3, population=10).draw(9, SOURCE.stream("s"))
