"""Fidelity: fresh patients are at the ideal; columns drawn by themselves pass column by column and fail together."""

import numpy as np
import pytest

from made_up_patients import records, shuffled
from sfumato.audit.ehr.fidelity import fidelity
from sfumato.metrics.tabular import kolmogorov_smirnov

TRAIN, HOLDOUT = records(500, 1), records(400, 2)


@pytest.fixture(scope="module")
def fresh():
    return fidelity(TRAIN, HOLDOUT, records(500, 3), np.random.default_rng(0))


@pytest.fixture(scope="module")
def apart():
    return fidelity(TRAIN, HOLDOUT, shuffled(TRAIN, 3), np.random.default_rng(0))


def test_fresh_patients_are_about_as_far_as_those_held_out(fresh):
    assert abs(fresh.synthetic.detector.value - 0.5) < 0.07
    assert abs(fresh.ideal.detector.value - 0.5) < 0.07
    assert fresh.synthetic.correlation.largest < 0.25
    assert fresh.synthetic.missing_error < 0.02
    assert all(each.fit.distance < 0.12 for each in fresh.columns)
    assert all(each.ideal < 0.12 for each in fresh.columns)


def test_columns_by_themselves_pass_alone_and_fail_together(apart):
    assert apart.synthetic.good == (1.0, 1.0)
    assert all(each.fit.distance == 0 for each in apart.columns)
    assert apart.synthetic.detector.low > 0.8
    assert apart.synthetic.correlation.largest > 0.5
    pair = [apart.correlation_columns[place] for place in apart.synthetic.correlation.pair]
    assert pair == ["bili mean", "albumin mean"]
    assert apart.synthetic.association.largest > 2 * apart.ideal.association.largest
    assert [apart.association_columns[place] for place in apart.synthetic.association.pair] == ["died", "stage last"]


def test_visits_and_the_time_between_them_are_columns_too(fresh):
    by_name = {each.name: each for each in fresh.columns}
    assert list(by_name)[-2:] == ["visits", "days between visits"]
    made = records(500, 3)
    assert by_name["visits"].fit.ks == kolmogorov_smirnov(TRAIN.lengths, made.lengths)
    gaps = [
        np.concatenate([np.diff(side.times[a:b]) for a, b in zip(side.offsets, side.offsets[1:], strict=False)])
        for side in (TRAIN, made)
    ]
    assert by_name["days between visits"].fit.ks == kolmogorov_smirnov(*gaps)


def test_both_parts_are_projected_and_the_points_stay_out_of_json(fresh):
    assert list(fresh.projections) == ["static", "temporal"]
    assert {len(each.real) for each in fresh.projections.values()} == {300}
    told = str(fresh.to_json())
    assert "cdf" not in told
    assert len(told) < 10_000
