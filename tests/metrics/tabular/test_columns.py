"""Columns against SciPy, by hand, and at the edges: ties, missing values, nothing at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from sfumato.metrics import tabular
from slow import by_profile


@settings(max_examples=by_profile(80), deadline=None)
@given(
    real=st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    made=st.lists(st.integers(-3, 3), min_size=1, max_size=40),
)
def test_the_statistic_is_scipys_with_ties(real, made):
    ours = tabular.kolmogorov_smirnov(np.array(real, float), np.array(made, float))
    assert ours == pytest.approx(ks_2samp(real, made, method="asymp").statistic)


def test_missing_values_count_in_their_rate_and_nowhere_else():
    real, made = np.array([1.0, 3.0, np.nan, np.nan]), np.array([1.0, 3.0, 1.0, 3.0])
    fit = tabular.compare_numbers(real, made)
    assert fit.ks == 0
    assert (fit.real_missing, fit.synthetic_missing, fit.missing_error) == (0.5, 0.0, 0.5)
    assert (fit.real_mean, fit.synthetic_mean, fit.real_std) == (2.0, 2.0, 1.0)


def test_a_column_without_values_has_no_distance():
    nothing = np.full(3, np.nan)
    fit = tabular.compare_numbers(nothing, np.ones(3))
    assert fit.ks is None
    assert fit.real_mean is None
    assert tabular.compare_categories(np.full(3, -1), np.zeros(3, int)).total_variation is None
    assert tabular.cdf(nothing, np.ones(3)) is None
    assert tabular.share_below([fit], 0.05) is None


def test_total_variation_is_half_the_sum_of_the_differences():
    real, made = np.array([0, 0, 1, 2, -1]), np.array([1, 1, 1, 2])
    fit = tabular.compare_categories(real, made)
    assert fit.total_variation == pytest.approx((0.5 + 0.5 + 0) / 2)
    assert fit.real_missing == pytest.approx(0.2)


def test_the_share_of_good_columns_leaves_out_those_without_a_statistic():
    fits = [tabular.compare_numbers(np.arange(100.0), np.arange(100.0) + shift) for shift in (0, 2, 4, 20)]
    fits.append(tabular.compare_numbers(np.full(3, np.nan), np.ones(3)))
    assert tabular.share_below(fits, 0.03) == 0.5
    assert tabular.share_below(fits, 0.05) == 0.75


def test_a_plot_has_few_points_and_the_largest_distance_is_among_them_for_few_values():
    rng = np.random.default_rng(0)
    real, made = rng.integers(0, 9, 500).astype(float), rng.integers(2, 9, 400).astype(float)
    found = tabular.cdf(real, made)
    apart = np.abs(np.array(found.real) - np.array(found.synthetic)).max()
    assert apart == pytest.approx(tabular.kolmogorov_smirnov(real, made))
    assert list(found.at) == sorted(set(found.at))
    many = tabular.cdf(rng.normal(size=5000), rng.normal(size=5000))
    assert len(many.at) <= 100
    assert many.real[-1] <= 1
    assert max(many.real) == max(many.synthetic) == 1
