"""Pairs on grids: never below the pair's curve from above, never above it from below."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.loss.compose import Sketch
from sfumato.accounting.loss.grid import best_offset, coarse_grid, from_above, from_below, grid
from sfumato.accounting.pair import FinitePair
from sfumato.accounting.sampled_pair import SampledGaussian
from slow import by_profile


def finite_pair(upper: list[float], lower: list[float], infinity: float = 0.0) -> FinitePair:
    p, q = np.array(upper) / sum(upper) * (1 - infinity), np.array(lower) / sum(lower)
    losses = np.log(p / q)
    order = np.argsort(losses)
    kept = [index for place, index in enumerate(order) if place == 0 or losses[index] > losses[order[place - 1]] + 1e-9]
    p, q, losses = p[kept], q[kept], losses[kept]
    q = p * np.exp(-losses)
    return FinitePair(tuple(losses), tuple(p), tuple(q), infinity + (1 - infinity - p.sum()), max(0.0, 1 - q.sum()))


def curve(losses: np.ndarray, masses: np.ndarray, infinity: float, epsilon: float) -> float:
    return float((masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum()) + infinity


weights = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=7)


@settings(max_examples=by_profile(80), deadline=None)
@given(st.data(), weights, st.floats(0.003, 0.7), st.sampled_from([0.0, 1e-9, 0.3]))
def test_the_curve_of_any_finite_pair_lies_between(data, upper, gap, infinity) -> None:
    lower = data.draw(st.lists(st.floats(1e-6, 1.0), min_size=len(upper), max_size=len(upper)))
    pair = finite_pair(upper, lower, infinity)
    offset = best_offset(pair, gap)
    above, below = from_above(pair, gap, offset), from_below(pair, gap, offset)
    losses, masses = np.array(pair.losses), np.array(pair.upper)
    for epsilon in np.linspace(losses[0] - 0.1, losses[-1] + 0.1, 41):
        truth = curve(losses, masses, pair.only_upper, epsilon)
        high = curve(above.losses, above.masses, above.infinity, epsilon - above.slack)
        low = curve(below.losses, below.masses, below.infinity, epsilon + below.slack)
        assert low <= truth * (1 + below.relative) + 1e-15
        assert truth <= high * (1 + above.relative) + 1e-15
        assert high - low <= (4 * gap + 1e-9) * max(truth, 0.0) + gap * 4 * math.exp(min(epsilon, 0)) + 1e-12


@settings(max_examples=by_profile(40), deadline=None)
@given(
    st.sampled_from(["remove", "add", "replace", "exchange"]),
    st.floats(1e-7, 1.0),
    st.floats(0.01, 8.0),
    st.floats(1e-4, 0.1),
    st.floats(-3, 5),
)
def test_the_curve_of_a_gaussian_pair_lies_between(direction, rate, shift, share, place) -> None:
    pair = SampledGaussian(direction, rate, shift)
    low_end, high_end = pair.span()
    gap = share * (high_end - low_end) / 20
    epsilon = pair.bulk() + place / 20 * (high_end - low_end)
    cell = np.array([-np.inf, epsilon, np.inf])
    upper, lower, _ = pair.cells(cell)
    truth = float(upper[1]) - math.exp(epsilon) * float(lower[1]) + pair.atom() * max(0.0, -math.expm1(epsilon))
    offset = best_offset(pair, gap)
    above, below = from_above(pair, gap, offset), from_below(pair, gap, offset)
    rounding = 1e-13 * (float(upper[1]) + math.exp(epsilon) * float(lower[1]))
    assert curve(below.losses, below.masses, 0.0, epsilon + below.slack) <= truth * (1 + below.relative) + rounding
    assert (
        truth
        <= curve(above.losses, above.masses, above.infinity, epsilon - above.slack) * (1 + above.relative) + rounding
    )


@pytest.mark.parametrize("distance", [math.log(3), 0.1, 1e-3])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_lattice_is_exact_from_both_sides(distance, parts) -> None:
    losses = np.array([-2, -1, 0, 1, 2]) * distance
    masses = np.array([0.1, 0.2, 0.3, 0.1, 0.0])
    q = masses * np.exp(-losses)
    masses[-1] = (1 - masses.sum()) if q.sum() < 1 else 0.0
    pair = FinitePair(tuple(losses[:4]), tuple(masses[:4]), tuple(q[:4]), float(masses[-1]), max(0.0, 1 - q[:4].sum()))
    own = pair.lattice()
    assert own is not None
    for above in (False, True):
        atoms = grid(pair, own[1] / parts, 1e-15, above)
        some = atoms.masses > 1e-12  # a loss may miss its grid point by round-off
        assert atoms.losses[some] == pytest.approx(losses[:4], abs=1e-12)
        assert atoms.masses[some] == pytest.approx(masses[:4], rel=1e-10)
        assert atoms.infinity == pytest.approx(pair.only_upper, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("tail", [1e-30, 1e-12, 1e-4])
def test_what_a_grid_leaves_out_is_infinite_from_above_and_nothing_from_below(direction, tail) -> None:
    pair = SampledGaussian(direction, 0.1, 1.0)
    above, below = grid(pair, 0.01, tail, True), grid(pair, 0.01, tail, False)
    assert 0 <= above.infinity <= tail
    assert above.masses.sum() + above.infinity == pytest.approx(1.0, abs=1e-13)
    assert below.infinity == 0.0
    assert 1 - 2.2 * tail - 1e-13 <= below.masses.sum() <= 1 + 1e-13
    longer = grid(pair, 0.01, 1e-38, True)
    for epsilon in (0.0, 0.3, 1.0):  # ending early costs no more than what was left out
        cut, full = (curve(atoms.losses, atoms.masses, atoms.infinity, epsilon) for atoms in (above, longer))
        assert full - 1e-14 <= cut <= full + 2 * tail + 1e-14


def test_a_coarse_grid_knows_the_moments_of_a_gaussian_and_its_tails() -> None:
    pair = SampledGaussian("remove", 1.0, 2.0)  # the loss is N(2, 4)
    sketch = Sketch.of_pairs([(pair, 3)], 1e-38)
    for tilt in (0.0, 0.5, 2.0):
        log_mgf, mean, variance = sketch.moments(tilt)
        assert log_mgf == pytest.approx(3 * (2 * tilt + 2 * tilt**2), rel=2e-2, abs=1e-3)
        assert mean == pytest.approx(3 * (2 + 4 * tilt), rel=2e-2)
        assert variance == pytest.approx(12, rel=5e-2)
    low, high = coarse_grid(pair).ends(1e-9)
    assert -13 < low < 2 - 2 * 5.99 < 2 + 2 * 5.99 < high < 16


def test_a_coarse_grid_measures_the_precision_of_tails() -> None:
    pair = SampledGaussian("remove", 0.01, 1.0)
    assert 1e-16 < coarse_grid(pair).error(*coarse_grid(pair).ends(1e-15)) < 1e-12
