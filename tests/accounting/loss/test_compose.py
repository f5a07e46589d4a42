"""Composition against direct convolution in extended precision, and its error bounds against its errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.loss import compose as _compose
from sfumato.accounting.loss.compose import Sketch, at_least_once, best_tilt, compose
from sfumato.accounting.loss.grid import Atoms, TooFine
from slow import by_profile


def convolved(parts: list[tuple[Atoms, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of the sum. Every term is positive, so each mass keeps its relative precision."""
    masses, start = np.ones(1, dtype=np.longdouble), 0.0
    for atoms, count in parts:
        for _ in range(count):
            masses = np.convolve(masses, atoms.masses.astype(np.longdouble))
        start += count * (atoms.offset + atoms.gap * atoms.first)
    return start + parts[0][0].gap * np.arange(len(masses)), masses


def exact_delta(parts: list[tuple[Atoms, int]], epsilon: float) -> float:
    losses, masses = convolved(parts)
    finite = float((masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum())
    return finite + at_least_once([(atoms.infinity, count) for atoms, count in parts])


def atoms(masses: list[float], gap: float, first: int, offset: float = 0.0, infinity: float = 0.0) -> Atoms:
    values = np.array(masses) / np.sum(masses) * (1 - infinity)
    return Atoms(gap, offset, first, values, infinity, 0.0)


@st.composite
def compositions(draw) -> list[tuple[Atoms, int]]:
    gap = draw(st.floats(1e-3, 0.5))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        powers = draw(st.lists(st.floats(-30, 0), min_size=2, max_size=12))
        first, count = draw(st.integers(-8, 4)), draw(st.integers(1, 12))
        infinity = draw(st.sampled_from([0.0, 0.0, 1e-12, 0.2]))
        parts.append((atoms([10**power for power in powers], gap, first, draw(st.floats(-1, 1)), infinity), count))
    return parts


@settings(max_examples=by_profile(60), deadline=None)
@given(compositions(), st.floats(0, 1), st.floats(0, 3))
def test_bounds_bracket_the_convolution_whatever_the_tilt_and_the_window(parts, place, factor) -> None:
    losses, _ = convolved(parts)
    epsilon = max(0.0, float(losses[0] + place * (losses[-1] - losses[0])))
    truth = exact_delta(parts, epsilon)
    sketch = Sketch(parts)
    tilt = factor * best_tilt(parts, sketch, epsilon, math.log(max(truth, 1e-300)))
    for expected in (truth, 1e-3, 1e-30):  # a wrong guess may cost tightness, never validity
        composed = compose(parts, sketch, tilt, epsilon, math.log(max(expected, 1e-300)))
        assert math.exp(composed.log_delta(epsilon, False)) <= truth * (1 + 1e-12) + 1e-300
        assert truth <= math.exp(composed.log_delta(epsilon, True)) * (1 + 1e-12)


@pytest.mark.parametrize("place", [0.55, 0.7, 0.9])
@pytest.mark.parametrize("counts", [(400,), (200, 150)])
def test_the_bounds_are_close_far_into_the_tail(counts, place) -> None:
    rng = np.random.default_rng(7)
    parts = [(atoms(rng.uniform(size=9).tolist(), 0.05, -4, 0.01 * index), n) for index, n in enumerate(counts)]
    losses, _ = convolved(parts)
    epsilon = float(losses[0] + place * (losses[-1] - losses[0]))
    truth = exact_delta(parts, epsilon)
    sketch = Sketch(parts)
    composed = compose(parts, sketch, sketch.tilt_at(epsilon), epsilon, math.log(truth))
    low, high = (math.exp(composed.log_delta(epsilon, above)) for above in (False, True))
    assert low <= truth <= high <= low * (1 + 1e-5)
    assert truth < 1e-10 or place < 0.6


@pytest.mark.parametrize("rare", [1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("count", [3, 60, 900])
def test_no_mass_is_further_off_than_the_noise(rare, count) -> None:
    masses = np.random.default_rng(3).uniform(size=5)
    masses[2] = masses.sum() / rare  # nearly all of the mass in one atom
    parts = [(atoms(masses.tolist(), 1.0, -2), count)]
    composed = compose(parts, Sketch(parts), 0.0)
    losses, truth = convolved(parts)
    start = round(composed.start - losses[0])
    seen = truth[max(start, 0) : max(start, 0) + len(composed.weights)].astype(float)
    each, root = composed.noise
    error = composed.weights[max(-start, 0) : max(-start, 0) + len(seen)] - seen
    outside = 1e-12  # of the window
    assert np.abs(error).max() <= each + outside
    assert math.sqrt(error @ error) <= root + outside
    assert each < 1e-10  # and the bound is of use


def test_a_common_atom_does_not_add_its_round_off() -> None:
    parts = [(atoms([1e-8, 1.0, 1e-8], 1.0, -1), 10**6)]
    assert compose(parts, Sketch(parts), 0.0).noise[0] < 1e-13


def test_losses_are_off_by_the_slack_of_every_step() -> None:
    steps = Atoms(0.1, 0.0, -3, np.array([0.1, 0.2, 0.3, 0.4]), 0.0, slack=1e-3)
    parts = [(steps, 50)]
    composed = compose(parts, Sketch(parts), 1.0)
    exact = Atoms(0.1, 0.0, -3, steps.masses, 0.0, slack=0.0)
    without = compose([(exact, 50)], Sketch(parts), 1.0)
    assert composed.log_delta(1.0, True) == pytest.approx(without.log_delta(0.95, True), abs=1e-9)
    assert composed.log_delta(1.0, False) == pytest.approx(without.log_delta(1.05, False), abs=1e-9)


def test_masses_that_are_off_count_on_the_safe_side() -> None:
    masses = np.array([0.3, 0.3, 0.4])
    bounds = []
    for relative in (0.0, 1e-4):
        parts = [(Atoms(0.5, 0.0, -1, masses, 0.0, 0.0, relative), 100)]
        composed = compose(parts, Sketch(parts), 0.5)
        bounds.append([composed.log_delta(6.0, above) for above in (False, True)])
    assert bounds[1][0] == pytest.approx(bounds[0][0] - 1e-2, abs=1e-6)
    assert bounds[1][1] == pytest.approx(bounds[0][1] + 1e-2, abs=1e-6)


def test_an_infinite_loss_of_any_step_is_one_of_the_run() -> None:
    parts = [(atoms([1.0, 2.0], 1.0, 0, infinity=0.1), 2), (atoms([1.0, 1.0], 1.0, 0, infinity=0.5), 1)]
    assert compose(parts, Sketch(parts), 0.0).infinity == pytest.approx(1 - 0.9**2 * 0.5, rel=1e-14)
    assert at_least_once([(1.0, 1), (0.0, 5)]) == 1.0
    assert at_least_once([(1e-30, 10)]) == pytest.approx(1e-29)
    assert math.copysign(1, at_least_once([(0.0, 3)])) == 1.0


def test_beyond_the_largest_loss_nothing_is_left() -> None:
    parts = [(atoms([1.0, 1.0], 1.0, 0), 5)]
    composed = compose(parts, Sketch(parts), 1.0, 4.9, math.log(1e-3))
    assert composed.log_delta(5.0 + 1e-12, True) == composed.log_delta(5.0, False) == -math.inf


def test_too_many_points_are_refused_before_they_are_made(monkeypatch) -> None:
    monkeypatch.setattr(_compose, "_MOST_POINTS", 8)
    parts = [(atoms([1.0, 1.0], 1.0, 0), 500)]
    with pytest.raises(TooFine):
        compose(parts, Sketch(parts), 0.0)


def test_a_step_that_always_loses_the_same_only_moves_the_rest() -> None:
    spread = atoms(np.exp(-(np.linspace(-4, 4, 81) ** 2)).tolist(), 0.1, -40)
    alone = [(spread, 300)]
    moved = [*alone, (atoms([1.0], 0.1, 5), 2)]
    for above in (False, True):
        one, two = compose(alone, Sketch(alone), 0.3), compose(moved, Sketch(moved), 0.3)
        assert two.log_delta(21.0, above) == pytest.approx(one.log_delta(20.0, above), abs=1e-6)
