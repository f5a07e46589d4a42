"""Associations against SciPy's, over pairs that are there, and the pair that went wrong."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from scipy.stats.contingency import association

from sfumato.metrics import tabular
from sfumato.metrics.tabular import _cramers, _rank_correlations


def test_without_missing_values_it_is_spearmans():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(200, 4)).round(1)  # ties
    values[:, 1] += values[:, 0]
    np.testing.assert_allclose(_rank_correlations(values), spearmanr(values).statistic, atol=1e-12)


def test_cramers_v_is_scipys():
    rng = np.random.default_rng(2)
    first = rng.integers(0, 4, 300)
    second = np.where(rng.random(300) < 0.5, first % 3, rng.integers(0, 3, 300))
    table = np.zeros((4, 3), int)
    np.add.at(table, (first, second), 1)
    expected = association(table, method="cramer", correction=False)
    assert _cramers(np.c_[first, second])[0, 1] == pytest.approx(expected)


def test_rows_in_which_one_of_a_pair_is_missing_do_not_count():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(400, 2))
    values[:200, 1] = values[:200, 0]
    values[200:, 1] = np.nan
    assert _rank_correlations(values)[0, 1] > 0.97  # ranks of the first are among all its values
    codes = rng.integers(0, 3, (400, 2))
    codes[:200, 1] = codes[:200, 0]
    codes[200:, 1] = -1
    assert _cramers(codes)[0, 1] == pytest.approx(1)


def test_the_gap_names_the_pair_that_was_lost():
    rng = np.random.default_rng(4)
    real = rng.normal(size=(1000, 4))
    real[:, 3] = real[:, 1] + 0.1 * rng.normal(size=1000)
    apart = np.stack([rng.permutation(column) for column in real.T], 1)
    gap = tabular.rank_correlation_gap(real, apart)
    assert gap.pair == (1, 3)
    assert gap.largest > 0.9
    assert gap.pairs == 6
    again = tabular.rank_correlation_gap(real[:500], real[500:])
    assert again.largest < 0.15
    codes = (real > 0).astype(int)
    assert tabular.category_association_gap(codes, (apart > 0).astype(int)).pair == (1, 3)


def test_pairs_that_cannot_be_compared_are_left_out():
    constant, few = np.ones((100, 2)), np.full((100, 2), np.nan)
    few[:5] = np.arange(10).reshape(5, 2)
    for values in (constant, few):
        assert tabular.rank_correlation_gap(values, np.random.default_rng(0).normal(size=(100, 2))).pairs == 0
    assert tabular.category_association_gap(np.zeros((50, 2), int), np.zeros((50, 2), int)).mean is None
    assert tabular.rank_correlation_gap(np.zeros((9, 0)), np.zeros((9, 0))).pairs == 0
