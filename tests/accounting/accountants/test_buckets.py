"""What is peculiar to privacy buckets: how far they round, and which way."""

import math

import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, _rounded

from sfumato.accounting import Gaussian, InputError
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian


@pytest.mark.parametrize("direction", ["remove", "add", "replace", "exchange"])
def test_every_loss_moves_up_by_less_than_a_gap(direction) -> None:
    pair, gap = SampledGaussian(direction, 0.1, 0.8), 0.01
    up, down = _rounded(pair, gap, 1e-20, True), _rounded(pair, gap, 1e-20, False)
    for atoms in (up, down):
        assert math.fsum(atoms.masses) + atoms.infinity == pytest.approx(1.0, abs=1e-14)
    for loss in (-0.05, -0.003, 0.0, 0.004, 0.2, 1.1):
        truth = float(pair.cells(np.array([loss, np.inf]))[0][0])
        truth += pair.atom() if loss < 0 else 0.0
        beyond_up = float(up.masses[up.losses > loss + 1e-12].sum()) + up.infinity
        beyond_down = float(down.masses[down.losses > loss + 1e-12].sum()) + down.infinity
        assert beyond_down <= truth + 1e-14 <= beyond_up + 2e-14
        earlier = float(pair.cells(np.array([loss - gap, np.inf]))[0][0]) + (pair.atom() if loss - gap < 0 else 0.0)
        assert beyond_up <= earlier + 1e-14  # by less than a gap, not by two


def test_the_bounds_are_a_gap_a_step_apart() -> None:
    for steps in (100, 1000):
        low, high = BucketsAccountant(Gaussian(1.0).poisson(0.02) * steps, gap=1e-4).epsilon_interval(1e-6)
        assert high - low == pytest.approx(steps * 1e-4, rel=0.02)


def test_a_finer_grid_is_tighter_and_dots_are_tighter_still() -> None:
    event = Gaussian(1.0).poisson(0.01) * 1000
    low, high = PldAccountant(event).epsilon_interval(1e-5)
    widths = []
    for gap in (4e-4, 2e-4, 1e-4):
        own_low, own_high = BucketsAccountant(event, gap=gap).epsilon_interval(1e-5)
        assert own_low <= low <= high <= own_high
        widths.append(own_high - own_low)
    assert widths[0] > 1.9 * widths[1] > 3.6 * widths[2]
    assert high - low < 0.05 * widths[2]


@pytest.mark.slow
def test_the_bounds_stay_within_one_percent_until_memory_ends() -> None:
    low, high = BucketsAccountant(Gaussian(1.0).poisson(0.01) * 1000).epsilon_interval(1e-5)
    assert high - low <= 0.0105 * high
    low, high = BucketsAccountant(Gaussian(0.5).poisson(2e-5) * 1_000_000).epsilon_interval(1e-8)
    assert low <= 3.0404
    assert high > 1.5 * 3.0416  # still a bound, no longer a good one


@pytest.mark.parametrize("gap", [0.0, -1e-3, math.nan, math.inf])
def test_a_gap_that_is_none_is_refused(gap: float) -> None:
    with pytest.raises(InputError, match="gap must be"):
        BucketsAccountant(Gaussian(1.0), gap=gap)


def test_a_gap_that_does_not_fit_names_the_remedy() -> None:
    with pytest.raises(InputError, match="choose a wider one"):
        BucketsAccountant(Gaussian(1.0), gap=1e-9).epsilon(1e-5)


def test_a_delta_below_what_a_grid_holds_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r'delta >= 1e-30, got 1e-300; use "pld"'):
        BucketsAccountant(Gaussian(1.0)).epsilon(1e-300)
