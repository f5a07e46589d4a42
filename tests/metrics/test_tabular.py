"""Distances of tables: column by column, associations, and both tables at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, spearmanr
from scipy.stats.contingency import association

from sfumato._check import InputError
from sfumato.metrics import tabular
from sfumato.metrics.tabular import _cramers, _rank_correlations
from slow import by_profile

# Associations against SciPy's, over pairs that are there, and the pair that went wrong.


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


# Detector, projection and intervals: at chance for equals, sure of what differs, the same for the same generator.


def rows(seed: int, n: int, *, related: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(n, 3))
    found[:, 2] = found[:, 0] + 0.1 * rng.normal(size=n) if related else rng.normal(0, 1.005, n)
    return found


def test_the_detector_is_at_chance_among_equals_and_sees_columns_that_do_not_belong_together():
    """The interval of 95 % misses 0.5 in one seed of twenty; this seed is fixed."""
    equals = tabular.detector_auc(rows(1, 400), rows(2, 400), np.random.default_rng(0))
    assert equals.low <= 0.5 <= equals.high
    apart = tabular.detector_auc(rows(1, 400), rows(2, 400, related=False), np.random.default_rng(0))
    assert apart.low > 0.8


def test_the_detector_sees_what_is_missing():
    made = rows(2, 200)
    made[:100, 1] = np.nan
    assert tabular.detector_auc(rows(1, 200), made, np.random.default_rng(0)).value > 0.7


def test_the_detector_refuses_too_few_records():
    with pytest.raises(InputError, match="needs 10 records on either side, got 9 real"):
        tabular.detector_auc(rows(1, 9), rows(2, 20), np.random.default_rng(0))


def test_the_same_generator_gives_the_same_figures():
    first, second = (
        (
            tabular.detector_auc(rows(1, 60), rows(2, 60), np.random.default_rng(5)),
            tabular.project(rows(1, 30), rows(2, 20), np.random.default_rng(5)),
        )
        for _ in range(2)
    )
    assert first == second


def test_a_projection_keeps_two_groups_apart_and_all_their_rows():
    found = tabular.project(rows(1, 40), rows(2, 30) + 50, np.random.default_rng(0))
    real, made = np.array(found.real), np.array(found.synthetic)
    assert (len(real), len(made)) == (40, 30)
    nearest = np.linalg.norm(real[:, None] - np.concatenate([real, made])[None], axis=2)
    nearest[np.arange(40), np.arange(40)] = np.inf
    assert (nearest.argmin(1) < 40).all()
    same = tabular.project(np.ones((10, 3)), np.ones((6, 3)), np.random.default_rng(0))
    assert np.isfinite(same.real).all()
    with pytest.raises(InputError, match="needs 5 records"):
        tabular.project(rows(1, 4), rows(2, 30), np.random.default_rng(0))


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    """200 samples: of 95 % intervals 190 cover, and 178 to 199 of them except in one seed of a thousand."""
    rng = np.random.default_rng(0)
    found = [tabular.bootstrap_mean(rng.random(150) < 0.3, rng, replicates=200) for _ in range(200)]
    assert 178 <= sum(each.low <= 0.3 <= each.high for each in found) <= 199


def test_groups_are_drawn_by_themselves():
    groups = np.zeros(50), np.ones(70)
    found = tabular.bootstrap(
        lambda a, b: groups[0][a].mean() + groups[1][b].mean(), [50, 70], np.random.default_rng(0)
    )
    assert found == tabular.Interval.exact(1.0)
    with pytest.raises(InputError, match="at least one record"):
        tabular.bootstrap(lambda a: 0.0, [0], np.random.default_rng(0))


def test_columns_that_are_missing_in_all_records_are_no_matter_to_the_detector():
    rng = np.random.default_rng(0)
    real, made = rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + np.array([3.0, 0.0])
    real[:, 1] = made[:, 1] = np.nan
    assert tabular.detector_auc(real, made, np.random.default_rng(0)).value > 0.9
    assert tabular.detector_auc(real[:, 1:], made[:, 1:], np.random.default_rng(0)).value == 0.5


# Columns against SciPy, by hand, and at the edges: ties, missing values, nothing at all.


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
