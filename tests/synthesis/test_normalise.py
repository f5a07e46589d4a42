import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato._check import InputError
from sfumato.synthesis.scales import MinMax, Normaliser

numbers = st.floats(-1e9, 1e9, allow_nan=False)
columns = st.lists(st.one_of(st.just(np.nan), numbers, st.integers(-5, 5).map(float)), max_size=80).map(np.array)
uniforms = st.floats(0.0, 1.0, exclude_max=True)


def drawn(table: Normaliser, column: np.ndarray, seed: int = 0) -> np.ndarray:
    return table.draw(table.places(column), np.random.default_rng(seed).random(len(column)))


@given(column=columns, seed=st.integers(0, 100))
def test_what_is_normalised_comes_back_exactly(column: np.ndarray, seed: int):
    table = Normaliser.fit(column, continuous=False)
    np.testing.assert_array_equal(table.inverse(drawn(table, column, seed)), column)


@given(column=columns, uniform=uniforms)
def test_every_draw_lies_in_the_interval_of_its_value(column: np.ndarray, uniform: float):
    table = Normaliser.fit(column, continuous=False)
    places = table.places(column)
    found = table.draw(places, np.full(len(column), uniform))
    known = places >= 0
    assert (found[known] >= table.starts[places[known]]).all()
    assert (found[known] < table.ends[places[known]]).all()


@given(column=columns)
def test_each_interval_is_as_wide_as_the_share_of_its_value(column: np.ndarray):
    table = Normaliser.fit(column, continuous=False)
    observed = column[~np.isnan(column)]
    for value, start, end in zip(table.values, table.starts, table.ends, strict=True):
        assert end - start == pytest.approx((observed == value).sum() / len(observed), abs=1e-12)
    if len(observed):
        assert table.ends[-1] == 1.0


@given(column=columns)
def test_one_is_the_last_value_and_nothing_lies_beyond(column: np.ndarray):
    table = Normaliser.fit(column)
    found = table.inverse(np.array([-3.0, 0.0, 1.0, 7.0]))
    if len(table.values):
        assert found.tolist() == [table.values[0], table.values[0], table.values[-1], table.values[-1]]
    else:
        assert np.isnan(found).all()


def test_uniform_numbers_have_the_marginal_of_the_column():
    """100,000 even places: the shares differ from the column's by no more than a place."""
    column = np.random.default_rng(1).poisson(3.0, 5_000).astype(float)
    even = (np.arange(100_000) + 0.5) / 100_000
    found = Normaliser.fit(column, whole=True).inverse(even)
    for value in np.unique(column):
        assert (found == value).mean() == pytest.approx((column == value).mean(), abs=1.1e-5)


def test_normalised_numbers_are_uniform():
    """Kolmogorov-Smirnov on 20,000 numbers; a fixed seed, false alarms one in a thousand."""
    column = np.random.default_rng(2).choice([1.0, 2.0, 50.0], 20_000, p=[0.6, 0.3, 0.1])
    table = Normaliser.fit(column)
    assert stats.kstest(drawn(table, column), "uniform").pvalue > 1e-3
    again = drawn(table, column, seed=1)
    assert not np.array_equal(again, drawn(table, column))  # drawn anew in each epoch


def test_a_continuous_column_comes_back_between_its_values_and_keeps_its_distribution():
    column = np.random.default_rng(3).standard_normal(2_000)
    table = Normaliser.fit(column)
    assert table.continuous
    found = table.inverse(np.random.default_rng(4).random(20_000))
    assert not np.isin(found, column).any()
    assert stats.kstest(found, column).statistic < 0.03
    place = table.places(column)
    back = table.inverse(drawn(table, column))
    below, above = table.values[np.maximum(place - 1, 0)], table.values[np.minimum(place + 1, len(column) - 1)]
    assert ((below <= back) & (back <= above)).all()


def test_whole_numbers_stay_whole_though_all_differ():
    table = Normaliser.fit(np.arange(0.0, 600.0, 3.0), whole=True)
    found = table.inverse(np.random.default_rng(0).random(1_000))
    assert set(found) <= set(np.arange(0.0, 600.0, 3.0))


@given(column=columns, least=st.integers(2, 20), whole=st.booleans())
def test_no_value_stands_for_fewer_observations_than_asked(column: np.ndarray, least: int, whole: bool):
    if whole:
        column = np.round(column)
    table = Normaliser.fit(column, min_count=least, whole=whole)
    observed = column[~np.isnan(column)]
    counts = np.bincount(table.places(observed), minlength=len(table.values))
    if len(observed) >= least:
        assert counts.min() >= least
    if whole:
        assert (table.values == np.round(table.values)).all()
    if len(observed):
        np.testing.assert_allclose(np.diff(np.concatenate([[0.0], table.ends])), counts / len(observed), atol=1e-12)


def test_the_record_in_a_tail_is_not_in_the_table():
    column = np.concatenate([np.repeat([1.0, 2.0, 3.0], 50), [97.0, 98.0, 123.0]])
    assert 123.0 in Normaliser.fit(column).values
    assert not {97.0, 98.0, 123.0} & set(Normaliser.fit(column, min_count=3).values)


def test_rounding_makes_the_table_coarse():
    table = Normaliser.fit(np.array([36.52, 36.58, 36.61, 37.04]), rounding=0.5)
    np.testing.assert_array_equal(table.values, [36.5, 37.0])


def test_a_value_that_was_never_seen_has_the_nearest_interval():
    table = Normaliser.fit(np.array([1.0, 2.0, 10.0]))
    assert table.places(np.array([-5.0, 1.4, 1.6, 6.1, 1e9])).tolist() == [0, 0, 1, 2, 2]


def test_a_table_survives_its_state():
    column = np.array([3.0, 1.0, np.nan, 3.0])
    table = Normaliser.fit(column)
    again = Normaliser.of(table.state())
    np.testing.assert_array_equal(again.inverse(drawn(again, column)), column)


@pytest.mark.parametrize("wrong", [{"min_count": 0}, {"rounding": 0.0}])
def test_options_out_of_range_are_refused(wrong: dict):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Normaliser.fit(np.arange(3.0), **wrong)


def test_infinite_numbers_are_refused():
    with pytest.raises(InputError, match="1 of 2"):
        Normaliser.fit(np.array([1.0, np.inf]))


@given(column=columns)
def test_min_max_comes_back_up_to_rounding(column: np.ndarray):
    scale = MinMax.fit(column)
    back = scale.inverse(scale.draw(scale.places(column), np.zeros(len(column))))
    np.testing.assert_allclose(back, column, rtol=1e-9, atol=1e-6)
