"""Scales of columns, exact or from noisy tables, and columns that are drawn independently."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, categorical, numeric
from sfumato.runs import Run
from sfumato.synthesis import IndependentColumns
from sfumato.synthesis.noisy_tables import OBSERVED, Counting, Grids, Tables, even, shares_of
from sfumato.synthesis.run import first_visits
from sfumato.synthesis.scales import MinMax, Normaliser

# The noisy tables: how far one patient moves the sum, what the noise is, and what is made of it.

MAX_VISITS, HORIZON = 6, 1500.0


def tables_of(schema: Schema, *, cells: int = 8, noise: float = 2.0) -> Tables:
    grids = Grids.of(schema, cells=cells, max_visits=MAX_VISITS, horizon=HORIZON)
    return Tables(counting=Counting(schema, grids, MAX_VISITS), noise_multiplier=noise, horizon=HORIZON)


def alone(schema: Schema, visits: int, value: float, code: int, *, start: float = 0.0) -> EHRDataset:
    """One patient with so many visits, all of them alike."""
    return EHRDataset(
        schema=schema,
        ids=("wild",),
        static_numbers=np.full((1, len(schema.static_numeric)), value),
        static_codes=np.full((1, len(schema.static_categorical)), min(code, 1)),
        offsets=np.array([0, visits]),
        times=start + np.arange(visits) * 0.01,
        numbers=np.full((visits, len(schema.temporal_numeric)), value),
        codes=np.full((visits, len(schema.temporal_categorical)), code),
    )


def together(data: EHRDataset, more: EHRDataset) -> EHRDataset:
    """Both, the second behind the first."""
    return EHRDataset(
        schema=data.schema,
        ids=(*data.ids, *more.ids),
        offsets=np.concatenate([data.offsets, data.offsets[-1] + more.offsets[1:]]),
        **{
            name: np.concatenate([getattr(data, name), getattr(more, name)])
            for name in ("static_numbers", "static_codes", "times", "numbers", "codes")
        },
    )


@pytest.mark.parametrize(
    ("visits", "value", "code", "start"),
    [
        (1, 3.0, 0, 0.0),
        (10_000, 3.0, 1, 0.0),  # many visits
        (10_000, 1e300, 1, 0.0),  # all in one cell, beyond its range
        (10_000, -1e300, 0, 1e6),  # behind the horizon
        (10_000, np.nan, -1, 0.0),  # nothing observed
        (1, np.nan, -1, 1e9),
    ],
)
def test_a_patient_moves_the_sum_by_the_clip_norm_at_most(ranged, visits, value, code, start):
    data = ranged(30)
    tables = tables_of(data.schema)

    def total(records: EHRDataset) -> torch.Tensor:
        return tables.clipped_sum(first_visits(records, max_visits=MAX_VISITS, horizon=HORIZON))

    wild = alone(data.schema, visits, value, code, start=start)
    moved = (total(together(data, wild)) - total(data)).norm().item()
    assert 0 < moved <= tables.clip_norm * (1 + 1e-9)


def test_the_bound_is_met_by_a_patient_with_everything(ranged):
    """A bound that nobody comes near would be no test of the one above."""
    data = ranged(5)
    tables = tables_of(data.schema)
    wild = first_visits(alone(data.schema, 10_000, 3.0, 1), max_visits=MAX_VISITS, horizon=HORIZON)
    assert tables.clipped_sum(wild).norm().item() > 0.999 * tables.clip_norm


def test_no_vector_is_longer_than_the_largest_norm(ranged):
    data = ranged(200)
    counting = tables_of(data.schema).counting
    for records in (data, alone(data.schema, 10_000, 3.0, 1), alone(data.schema, 10_000, np.nan, 0)):
        cut = first_visits(records, max_visits=MAX_VISITS, horizon=HORIZON)
        assert np.linalg.norm(counting.vectors(cut), axis=1).max() <= counting.largest_norm


def test_a_patients_vector_does_not_depend_on_the_others(ranged):
    data = first_visits(ranged(40), max_visits=MAX_VISITS, horizon=HORIZON)
    counting = tables_of(data.schema).counting
    rows = counting.vectors(data)
    for place in (0, 17, 39):
        np.testing.assert_array_equal(counting.vectors(data.take([place]))[0], rows[place])


def test_what_is_released_has_the_noise_that_is_accounted(ranged):
    """Kolmogorov-Smirnov on all entries of one release, and their standard deviation; false alarms: 2 in 10,000."""
    data = first_visits(ranged(60), max_visits=MAX_VISITS, horizon=HORIZON)
    tables = replace(tables_of(data.schema, cells=2000), noise_multiplier=3.0)
    with Run.open(None, plan={"plan": "tables"}, seed=5) as run:
        run.start("here")
        tables.release(run, data)
        noisy = run._releases["tables"]["counts"]
        assert run.spent() == acc.Gaussian(3.0)
    noise = (noisy - tables.clipped_sum(data)).numpy() / (3.0 * tables.clip_norm)
    assert len(noise) > 10_000
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    assert abs(noise.std() - 1) < 4 / (2 * len(noise)) ** 0.5


def test_a_test_of_membership_finds_no_more_than_the_guarantee_allows(ranged):
    """The best test of one patient: the noisy sum along the patient's vector, 4,000 releases with and 4,000 without.

    Both rates have a standard deviation of less than 0.8 %, and the curve rises by less than 4 where its slope is
    largest: false alarms are rarer than 1 in 10,000. The power is near the curve, as the vector is as long as the norm.
    """
    data = ranged(20)
    tables = tables_of(data.schema, noise=1.0)
    wild = first_visits(alone(data.schema, 10_000, 3.0, 1), max_visits=MAX_VISITS, horizon=HORIZON)
    towards = tables.clipped_sum(wild).numpy()
    direction = towards / np.linalg.norm(towards)
    source, scores = RandomSource.from_seed(3), []
    for number, records in enumerate((data, together(data, wild))):
        exact = tables.clipped_sum(first_visits(records, max_visits=MAX_VISITS, horizon=HORIZON))

        def released(turn: int, number: int = number, exact: torch.Tensor = exact) -> float:
            noisy = tables._mechanism.release(
                exact.clone(), scale=tables.clip_norm, round=number * 4000 + turn, source=source
            )
            return float(noisy.numpy() @ direction)

        scores.append(np.array([released(turn) for turn in range(4000)]))
    found = (scores[1] > np.quantile(scores[0], 0.95)).mean()
    allowed = acc.guarantee(tables.event()).tpr(0.05)
    assert abs(found - allowed) < 0.05


def test_without_noise_the_scales_are_those_of_the_records(ranged):
    """Nobody is cut with few blocks, and nobody has so many visits that they weigh less."""
    schema = Schema(
        id="id",
        time="day",
        time_unit="days",
        static=(categorical("sex", ["f", "m"]),),
        temporal=(numeric("pulse", whole=True, range=(60.0, 66.0)), categorical("stage", ["1", "2"])),
    )
    rng = np.random.default_rng(0)
    n = 400
    pulse = np.where(rng.random(2 * n) < 0.3, np.nan, rng.integers(60, 64, 2 * n))[:, None]
    data = EHRDataset(
        schema=schema,
        ids=tuple(map(str, range(n))),
        static_numbers=np.empty((n, 0)),
        static_codes=rng.integers(-1, 2, (n, 1)),
        offsets=np.arange(n + 1) * 2,
        times=np.tile([0.0, 30.0], n),
        numbers=pulse,
        codes=rng.integers(-1, 2, (2 * n, 1)),
    )
    tables = tables_of(schema, noise=0.0)
    exact = tables.counting.vectors(data).sum(axis=0)
    scales = tables.scales(exact)
    counts = np.bincount(pulse[~np.isnan(pulse)].astype(int) - 60, minlength=7)
    np.testing.assert_allclose(np.diff(scales.temporal[0].ends, prepend=0.0), counts / counts.sum(), atol=1e-12)
    np.testing.assert_array_equal(scales.temporal[0].values, np.arange(60, 67))
    there = np.column_stack([~np.isnan(pulse), data.codes >= 0])
    np.testing.assert_allclose(scales.rates, there.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scales.static_rates, [1.0, 1.0, 1.0, (data.static_codes >= 0).mean()], rtol=1e-12)
    known = data.codes[data.codes >= 0]
    np.testing.assert_allclose(scales.shares, np.bincount(known) / len(known), rtol=1e-12)
    assert scales.visits == 2.0
    assert scales.pace == pytest.approx(30.0, rel=0.5)  # the middle of its cell
    assert not scales.empty or (~there.any(axis=1)).mean() > 0.01


def test_nothing_but_noise_still_makes_scales(ranged):
    """Far less than nothing in every entry, and far more."""
    data = ranged(3)
    tables = tables_of(data.schema)
    size = sum(tables.counting.sizes().values())
    for noisy in (np.full(size, -1e6), np.full(size, 1e6), 1e6 * np.random.default_rng(0).normal(size=size)):
        scales = tables.scales(noisy)
        assert scales.pace > 0
        assert scales.visits >= 1
        for rates in (scales.rates, scales.static_rates):
            assert ((rates >= 0) & (rates <= 1)).all()
        for scale in (*scales.static, *scales.temporal, scales.gap):
            assert scale.ends[-1] == 1.0
            assert (np.diff(scale.ends) >= 0).all()
            assert np.isfinite(scale.inverse(np.linspace(0, 1, 50))).all()


def test_the_tables_hold_no_value_of_a_patient(ranged):
    """Whatever the records are, the values are the same."""
    one, other = ranged(20, seed=1), ranged(20, seed=2)
    first, second = (tables_of(data.schema).scales(np.arange(10_000.0)[: _size(data)]) for data in (one, other))
    for a, b in zip((*first.static, *first.temporal, first.gap), (*second.static, *second.temporal, second.gap)):
        np.testing.assert_array_equal(a.values, b.values)
    assert set(first.temporal[0].values) == set(even(0.0, 30.0, cells=8).values)


def _size(data: EHRDataset) -> int:
    return sum(tables_of(data.schema).counting.sizes().values())


def test_visits_are_cut_by_each_patient_alone(ranged):
    data = ranged(50)
    whole = first_visits(data, max_visits=3, horizon=200.0)
    assert whole.lengths.max() == 3
    assert whole.times.max() <= 200.0
    for place in (0, 20, 49):
        one = first_visits(data.take([place]), max_visits=3, horizon=200.0)
        np.testing.assert_array_equal(one.times, whole.take([place]).times)
    late = first_visits(alone(data.schema, 4, 1.0, 0, start=1e6), max_visits=3, horizon=200.0)
    assert late.times.tolist() == [200.0]


def test_a_column_without_a_range_is_refused(ranged):
    schema = ranged(3).schema
    bare = replace(schema, temporal=tuple(replace(column, range=None) for column in schema.temporal))
    with pytest.raises(InputError, match=r"bili, albumin, weight; write range: \[lowest, highest\]"):
        tables_of(bare)


@pytest.mark.parametrize(
    "ends", [(-1e308, 1e308), (0.0, 5e-324), (1.0, 1.0000000000000002), (1e300, 1.000000000000001e300)]
)
def test_a_range_that_numbers_cannot_be_divided_in_is_refused(ends):
    schema = Schema(id="i", time="t", time_unit="days", static=(), temporal=(numeric("pulse", range=ends),))
    with pytest.raises(InputError, match=r"the range of column 'pulse', .* cannot be divided into 8 cells"):
        tables_of(schema)


@pytest.mark.parametrize("counts", [[5.0, -3.0, 1.0], [0.0, 0.0], [1e-9, 1.0, -2.0, 1.5], [7.0], [-7.0]])
def test_shares_are_the_nearest_ones(counts):
    """Against a search by quadratic programming on the simplex of the same total."""
    from scipy.optimize import minimize

    counts = np.array(counts)
    found, total = shares_of(counts), counts.sum()
    assert found.sum() == pytest.approx(1.0)
    if total <= 0:
        np.testing.assert_allclose(found, 1 / len(counts))
        return
    best = minimize(
        lambda x: ((x - counts) ** 2).sum(),
        np.full(len(counts), total / len(counts)),
        bounds=[(0, None)] * len(counts),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
        tol=1e-12,
    )
    np.testing.assert_allclose(found, best.x / total, atol=1e-5)


def test_every_cell_has_a_number_of_its_own():
    for grid in (even(0.0, 1.0, cells=5), even(-3.0, 120.0, cells=7, whole=True), even(0.0, 4.0, cells=9, whole=True)):
        assert grid.cell(grid.values).tolist() == list(range(len(grid)))
        assert len(grid.edges) == len(grid) - 1
    schema = Schema(id="i", time="t", time_unit="days", static=(), temporal=(numeric("x", range=(0.0, 1.0)),))
    grids = Grids.of(schema, cells=16, max_visits=100, horizon=365.0)
    for grid in (grids.visits, grids.start, grids.end, grids.gap):
        assert grid.cell(grid.values).tolist() == list(range(len(grid)))
    assert OBSERVED in Counting(schema, grids, 100).sizes()


# Independent columns are right one by one.


def test_independent_columns_follow_the_real_ones_one_by_one(patients):
    """Shares of 3,000 draws against those of the real cells, within 0.05."""
    data = patients(200)
    blocks = list(IndependentColumns(data).sample(3_000, seed=0, block=1_000))
    assert [len(block) for block in blocks] == [1_000] * 3
    codes, numbers = (np.concatenate([getattr(each, name) for each in blocks]) for name in ("codes", "numbers"))
    real = np.bincount(data.codes[:, 0] + 1, minlength=4) / len(data.codes)
    np.testing.assert_allclose(np.bincount(codes[:, 0] + 1, minlength=4) / len(codes), real, atol=0.05)
    np.testing.assert_allclose(np.isnan(numbers).mean(0), np.isnan(data.numbers).mean(0), atol=0.05)
    np.testing.assert_allclose(np.nanmean(numbers, 0), np.nanmean(data.numbers, 0), rtol=0.05)
    lengths = np.concatenate([each.lengths for each in blocks])
    assert abs(lengths.mean() / data.lengths.mean() - 1) < 0.05


def test_the_same_seed_draws_the_same_records_and_another_one_others(patients):
    data = patients(40)
    first, again, other = (next(IndependentColumns(data).sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


numbers = st.floats(-1e9, 1e9, allow_nan=False)
columns = st.lists(st.one_of(st.just(np.nan), numbers, st.integers(-5, 5).map(float)), max_size=80).map(np.array)
uniforms = st.floats(0.0, 1.0, exclude_max=True)


def drawn(table: Normaliser, column: np.ndarray, seed: int = 0) -> np.ndarray:
    return table.draw(table.positions(column), np.random.default_rng(seed).random(len(column)))


@given(column=columns, seed=st.integers(0, 100))
def test_what_is_normalised_comes_back_exactly(column: np.ndarray, seed: int):
    table = Normaliser.fit(column, continuous=False)
    np.testing.assert_array_equal(table.inverse(drawn(table, column, seed)), column)


@given(column=columns, uniform=uniforms)
def test_every_draw_lies_in_the_interval_of_its_value(column: np.ndarray, uniform: float):
    table = Normaliser.fit(column, continuous=False)
    places = table.positions(column)
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
    place = table.positions(column)
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
    counts = np.bincount(table.positions(observed), minlength=len(table.values))
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
    assert table.positions(np.array([-5.0, 1.4, 1.6, 6.1, 1e9])).tolist() == [0, 0, 1, 2, 2]


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
    back = scale.inverse(scale.draw(scale.positions(column), np.zeros(len(column))))
    np.testing.assert_allclose(back, column, rtol=1e-9, atol=1e-6)
