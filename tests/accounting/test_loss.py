"""Losses on grids: pairs, composition and whole curves, each on its side of the truth; and Renyi curves."""

import itertools
import math
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mpmath import exp, inf, log, mpf, npdf, quad
from mpmath import mp as mpmath
from scipy.special import comb

from sfumato.accounting import (
    ApproximateDP,
    Composition,
    Event,
    Gaussian,
    InputError,
    Laplace,
    NonPrivate,
    RandomizedResponse,
    Unknown,
    guarantee,
)
from sfumato.accounting.events.discrete_gaussian import log_excess_sampled_integers
from sfumato.accounting.events.laplace import BoundedRange, LaplacePair
from sfumato.accounting.events.mixture import log_excess_mixture, log_excess_revealed
from sfumato.accounting.gaussian_curve import gaussian_epsilon
from sfumato.accounting.loss import compose as _compose
from sfumato.accounting.loss.compose import Sketch, at_least_once, best_tilt, compose
from sfumato.accounting.loss.curve import split
from sfumato.accounting.loss.grid import Atoms, TooFine, best_offset, coarse_grid, from_above, from_below, grid
from sfumato.accounting.loss.renyi import renyi_of_pairs, renyi_of_pure, rho_of_pure
from sfumato.accounting.pair import FinitePair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import (
    SampledGaussian,
    SampledPair,
    log_excess_replace,
    log_excess_sampled_gaussian,
)
from sfumato.accounting.tradeoff import TradeoffCurve
from slow import by_profile, slow_but

# Pairs on grids: never below the pair's curve from above, never above it from below.


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


# Composition against direct convolution in extended precision, and its error bounds against its errors.


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
@example([(atoms([0.5, 0.5], 0.5, -8), 8), (atoms([0.1] * 10, 0.5, 0), 9)], 0.0, 5e-324)  # 1 / tilt overflows
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


# Splitting off rare large losses, against direct convolution.


def lognormal(count: int) -> tuple[Atoms, int]:
    """Losses with a tail that no tilt makes light."""
    losses = np.arange(1, 40)
    masses = np.concatenate([[1.0], 1e-12 * np.exp(-2 * np.log(losses) ** 2)])
    return atoms(masses.tolist(), 0.25, 0), count


@pytest.mark.parametrize("others", [[], [(atoms([0.2, 0.5, 0.3], 0.25, -1), 2)]])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_the_terms_add_up_to_the_convolution(count, others) -> None:
    parts = [lognormal(count), *others]
    for epsilon in (3.0, 6.1):
        truth = exact_delta(parts, epsilon)
        mixed = split(parts, epsilon, math.log(truth), 0.0)
        assert mixed is not None
        low, high = (math.exp(mixed.log_delta(epsilon, above)) for above in (False, True))
        assert low <= truth * (1 + 1e-12)
        assert truth <= high * (1 + 1e-12)
        assert high <= low * (1 + 1e-3)


def test_an_infinite_loss_counts_once() -> None:
    steps, _ = lognormal(1)
    infinite = Atoms(steps.gap, steps.offset, steps.first, steps.masses * 0.9, 0.1, 0.0)
    parts = [(infinite, 3), (atoms([0.2, 0.5, 0.3], 0.25, -1, infinity=0.2), 1)]
    truth = exact_delta(parts, 3.0)
    mixed = split(parts, 3.0, math.log(truth - (1 - 0.9**3 * 0.8)), 1 - 0.9**3 * 0.8)
    assert mixed is not None
    assert math.exp(mixed.log_delta(3.0, False)) <= truth <= math.exp(mixed.log_delta(3.0, True))
    assert math.exp(mixed.log_delta(3.0, True)) == pytest.approx(truth, rel=1e-9)


def test_without_rare_losses_there_is_nothing_to_split() -> None:
    even = atoms([1.0] * 20, 0.25, -10)
    assert split([(even, 1000)], 1.0, math.log(1e-3), 0.0) is None


# Whole curves: above the truth everywhere, and close to it from 1 down to 1e-14.


EVENTS: dict[str, tuple[Event, str]] = {
    "long": (Gaussian(1.0).poisson(0.01) * 1000, "add_remove"),
    "short": (Gaussian(1.0).poisson(0.3) * 3, "add_remove"),
    "single": (Gaussian(0.7).poisson(0.2), "add_remove"),
    "replace": (Gaussian(1.0).poisson(0.05) * 50, "replace"),
    "bounded": (Laplace(2.0) * 20, "add_remove"),
    "mixed": (Gaussian(1.0).poisson(0.01) * 100 + Laplace(3.0) * 5, "add_remove"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_the_curve_lies_above_the_certified_lower_bounds_and_close_to_the_upper_ones(name: str) -> None:
    account = PldAccountant(*EVENTS[name])  # type: ignore[arg-type]
    epsilons, deltas = account.curve()
    assert epsilons[0] == 0.0
    assert (np.diff(epsilons) > 0).all()
    assert (np.diff(deltas) <= 0).all()
    for index in np.linspace(0, len(epsilons) - 1, 15).astype(int):
        low, high = account.delta_interval(float(epsilons[index]))
        assert deltas[index] >= low * (1 - 1e-12)
        if deltas[index] > 1e-14:
            assert deltas[index] <= high * 1.01


def binomial_delta(epsilon: float, log_odds: float, n: int) -> float:
    """Delta of n binary randomised responses that keep the answer with odds e^log_odds."""
    keep = 1 / (1 + math.exp(-log_odds))
    return sum(
        comb(n, k, exact=True)
        * max(0.0, keep**k * (1 - keep) ** (n - k) - math.exp(epsilon) * keep ** (n - k) * (1 - keep) ** k)
        for k in range(n + 1)
    )


def test_the_curve_of_randomised_responses_is_that_of_the_binomial() -> None:
    n, log_odds = 12, math.log(3)
    epsilons, deltas = PldAccountant(RandomizedResponse(0.5, 2) * n, "replace").curve()
    truth = np.array([binomial_delta(e, log_odds, n) for e in epsilons.tolist()])
    assert deltas == pytest.approx(truth, rel=1e-9, abs=1e-13)
    assert (deltas >= truth * (1 - 1e-12)).all()
    between = np.linspace(0, n * log_odds, 200)  # and between its knots, by chords in e^epsilon
    chords = np.interp(np.exp(between), np.exp(epsilons), deltas)
    exact = [binomial_delta(e, log_odds, n) for e in between.tolist()]
    assert chords == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_claims_give_the_published_rates() -> None:
    # google/differential-privacy, pld_privacy_accountant_test.py
    promise = guarantee(ApproximateDP(1, 0.1) + ApproximateDP(2, 0.2))
    assert float(promise.tpr(0.1)) == pytest.approx(0.91938, abs=1e-5)
    assert float(promise.tpr(0.0)) == pytest.approx(0.28, rel=1e-9)
    assert promise.gdp().mu == math.inf


def test_a_single_gaussian_on_a_grid_is_the_closed_form() -> None:
    rates = np.array([1e-9, 1e-4, 0.01, 0.1, 0.5])
    exact, composed = guarantee(Gaussian(1.0)), guarantee(Gaussian(1.0), method="pld")
    assert composed.tpr(rates) == pytest.approx(exact.tpr(rates), rel=1e-4)
    assert (composed.tpr(rates) >= exact.tpr(rates) * (1 - 1e-12)).all()
    assert composed.gdp().mu == pytest.approx(1.0, rel=1e-4)
    assert composed.gdp().mu >= 1.0


def test_published_error_rates_of_a_long_run_are_not_above_the_truth() -> None:
    """riskcal says 0.0290997 at an FPR of 0.01; the best test reaches more, by certified lower bounds on delta."""
    account = PldAccountant(Gaussian(1.0).poisson(0.01) * 1000)
    epsilons, deltas = account.curve()
    near = np.linspace(0.85, 0.95, 11)
    lower = min(account.delta_interval(e)[0] + math.exp(e) * 0.01 for e in near.tolist())
    upper = float(TradeoffCurve.from_deltas(epsilons, deltas).true_positive_rate(np.array(0.01)))
    assert lower * (1 - 1e-3) > 0.0290997
    assert lower * (1 - 1e-4) < upper == pytest.approx(0.029139, rel=1e-4)


# Both accountants that round losses, buckets and PRV: sums over all outcomes, exact curves, refusals.


BOTH = pytest.mark.parametrize("kind", [BucketsAccountant, PrvAccountant])


@dataclass(frozen=True)
class Outcomes:
    """Two distributions over a few outcomes."""

    p: tuple[float, ...]
    q: tuple[float, ...]

    @property
    def losses(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(np.array(self.p)) - np.log(np.array(self.q))

    def span(self):
        finite = self.losses[np.isfinite(self.losses)]
        return float(finite.min()), float(finite.max())

    def bulk(self):
        return self.span()[0]

    def atom(self):
        return 0.0

    def infinity(self):
        return sum(p for p, q in zip(self.p, self.q) if q == 0)

    def cells(self, edges):
        masses = np.zeros((2, len(edges) - 1))
        for p, q, loss in zip(self.p, self.q, self.losses):
            cell = max(0, int(np.searchsorted(edges, loss)) - 1)  # what only Q has is in the first one
            if edges[0] == -np.inf or loss > edges[0]:
                masses[:, cell : cell + (loss <= edges[-1])] += np.array([[p], [q]])
        return masses[0], masses[1], 1e-15 * masses[0]

    def exact_delta(self, steps: int, epsilon: float) -> float:
        """The definition, summed over every sequence of outcomes."""
        total = 0.0
        for sequence in itertools.product(range(len(self.p)), repeat=steps):
            p, q = math.prod(self.p[i] for i in sequence), math.prod(self.q[i] for i in sequence)
            total += max(0.0, p - math.exp(epsilon) * q)
        return total


@dataclass(frozen=True)
class Release(Event):
    """A mechanism with these pairs."""

    both: tuple[Outcomes, ...]

    def pairs(self, adjacency):
        return self.both

    def renyi(self, orders, adjacency):
        return np.full(len(orders), np.inf)


FINITE = Outcomes((0.5, 0.3, 0.2), (0.35, 0.4, 0.25))
INFINITE = Outcomes((0.5, 0.3, 0.19, 0.01, 0.0), (0.4, 0.35, 0.2, 0.0, 0.05))


@BOTH
@pytest.mark.parametrize("pair", [FINITE, INFINITE])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_bounds_hold_against_the_sum_over_all_sequences(kind, pair: Outcomes, steps: int) -> None:
    account = kind(Release((pair,)) * steps)
    for epsilon in (0.0, 0.1, 0.5, 1.2):
        assert account.delta(epsilon) >= pair.exact_delta(steps, epsilon) * (1 - 1e-12)
    for delta in (0.07, 0.2):
        low, high = account.epsilon_interval(delta)
        assert low <= high
        assert pair.exact_delta(steps, high) <= delta * (1 + 1e-12)
        if low > 0:
            assert pair.exact_delta(steps, low) >= delta * (1 - 1e-12)


@BOTH
def test_the_mass_of_infinite_losses_composes_and_is_never_discounted(kind) -> None:
    account = kind(Release((INFINITE,)) * 6)
    infinite = 1 - 0.99**6
    assert account.epsilon(infinite * 0.999) == math.inf
    assert account.epsilon(infinite * 1.01) < math.inf
    assert account.delta(50.0) == pytest.approx(infinite, rel=2e-3)


@BOTH
def test_the_worse_direction_counts(kind) -> None:
    there, back = Outcomes((0.9, 0.1), (0.99, 0.01)), Outcomes((0.99, 0.01), (0.9, 0.1))
    for both in ((there, back), (back, there)):
        account = kind(Release(both) * 3)
        for epsilon in (0.01, 0.5, 2.0):
            worst = max(pair.exact_delta(3, epsilon) for pair in both)
            assert account.delta(epsilon) >= worst * (1 - 1e-12)
        assert account.epsilon(0.02) >= kind(Release((there,)) * 3).epsilon_interval(0.02)[0] > 1.0


@BOTH
@pytest.mark.parametrize(("z", "delta"), [(0.3, 1e-5), (1.0, 1e-8), (5.0, 1e-3)])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_exact_gaussian_is_inside(kind, z: float, delta: float, adjacency) -> None:
    low, high = kind(Gaussian(z), adjacency).epsilon_interval(delta)
    exact = gaussian_epsilon((2 if adjacency == "replace" else 1) / z, delta)
    assert low <= exact <= high
    assert high - low <= 0.011 * high + 0.021


@pytest.mark.slow
@BOTH
@settings(max_examples=by_profile(12), deadline=None)
@given(
    st.floats(0.4, 8),
    st.floats(1e-4, 0.5),
    st.integers(1, 3000),
    st.floats(-11, -2),
    st.sampled_from(["add_remove", "replace"]),
)
def test_intervals_overlap_those_of_connecting_the_dots(kind, z, q, steps, log_delta, adjacency) -> None:
    event, delta = Gaussian(z).poisson(q) * steps, 10**log_delta
    account = kind(event, adjacency)
    if kind is PrvAccountant and delta < 3e-13 * steps:  # about the round-off of its transform
        assume(_certifies(account, delta))
    low, high = PldAccountant(event, adjacency).epsilon_interval(delta)
    own_low, own_high = account.epsilon_interval(delta)
    assert 0 <= own_low <= own_high
    assert own_low <= high
    assert low <= own_high


def _certifies(account: PrvAccountant, delta: float) -> bool:
    try:
        account.epsilon(delta)
    except InputError:
        return False
    return True


@BOTH
def test_different_events_compose(kind) -> None:
    event = Gaussian(2.0).poisson(0.1) * 40 + Gaussian(3.0) * 2 + Gaussian(1.5).poisson(0.01) * 100
    low, high = PldAccountant(event).epsilon_interval(1e-6)
    own_low, own_high = kind(event).epsilon_interval(1e-6)
    assert own_low <= low <= high <= own_high <= high * 1.012


@BOTH
def test_nothing_released_costs_nothing(kind) -> None:
    account = kind(Composition(()))
    assert account.epsilon_interval(1e-5) == (0.0, 0.0)
    assert account.delta(0.0) == 0.0


@BOTH
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
def test_a_delta_outside_its_range_is_refused_in_one_line(kind, delta: float) -> None:
    for ask in (kind(Gaussian(1.0)).epsilon, kind(Gaussian(1.0)).epsilon_interval):
        with pytest.raises(InputError, match="delta must be") as refused:
            ask(delta)
        assert "\n" not in str(refused.value)


@BOTH
def test_an_event_without_a_pair_is_refused_by_name(kind) -> None:
    with pytest.raises(Unknown, match="NonPrivate"):
        kind(NonPrivate())


# The Renyi curve of a grid against closed forms and integrals.


ORDERS = np.array([1.01, 1.5, 2.0, 8.0, 100.0, 3000.0])


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0, 200.0])
def test_the_grid_lies_just_above_the_closed_form(epsilon: float) -> None:
    exact = Laplace(1 / epsilon).renyi(ORDERS, "add_remove")
    grid = renyi_of_pairs((LaplacePair(epsilon),), ORDERS, epsilon)
    assert (grid >= exact * (1 - 1e-11)).all()
    assert (grid <= exact * 1.002).all()


@pytest.mark.parametrize("rate", [1e-6, 0.05, 0.7])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_grid_of_a_sampled_pair_lies_just_above_the_integral(rate: float, direction: str) -> None:
    pair = SampledPair(direction, rate, BoundedRange(2.0))
    found = renyi_of_pairs((pair,), ORDERS[:-1], max(map(abs, pair.span())))
    with mp.workdps(40):
        q, e = mp.mpf(rate), mp.mpf(2)

        def density(x, side):
            return mp.exp((side * x - e) / 2) / 2 / -mp.expm1(-e)

        for order, value in zip(ORDERS, found):
            a = mp.mpf(float(order))

            def moment(x, a=a):
                one, two = density(x, 1), density(x, -1)
                p, base = ((1 - q) * two + q * one, two) if direction == "remove" else (one, (1 - q) * one + q * two)
                return p**a * base ** (1 - a)

            truth = float(mp.log(mp.quad(moment, [-e, -1, 0, 1, e])) / (a - 1))
            assert truth * (1 - 1e-11) <= value <= truth * 1.002


def test_an_infinite_loss_has_no_renyi_bound() -> None:
    pair = FinitePair((0.0,), (0.9,), (0.9,), 0.1, 0.1)
    assert np.isinf(renyi_of_pairs((pair,), ORDERS, math.inf)).all()


@pytest.mark.parametrize("epsilon", [1e-200, 1e-3, 1.0, 2.0, 50.0])
def test_what_a_pure_bound_allows_is_above_randomised_response(epsilon: float) -> None:
    bound = renyi_of_pure(ORDERS, epsilon)
    worst = np.logaddexp(ORDERS * epsilon, (1 - ORDERS) * epsilon) - np.logaddexp(0, epsilon)
    assert (worst / (ORDERS - 1) <= bound * (1 + 1e-12) + 1e-12).all()
    assert (bound <= ORDERS * rho_of_pure(epsilon)).all()


@pytest.mark.parametrize(("sigma", "shift", "rate"), [(50.0, 50, 0.01), (3.0, 1, 0.3), (1e4, 20_000, 1e-3)])
def test_a_wide_discrete_gaussian_has_the_moments_of_the_gaussian(sigma: float, shift: int, rate: float) -> None:
    orders = np.array([1.01, 1.7, 2.0, 6.4, 33.0, 64.5])
    found = log_excess_sampled_integers(orders, rate, sigma, shift)
    gaussian = log_excess_sampled_gaussian(orders, rate, sigma / shift)
    assert (found >= gaussian - 1e-11).all()
    if sigma < 1e3:
        np.testing.assert_allclose(found, gaussian, atol=1e-10)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("k", [2, 10, 100])
def test_rho_of_a_finite_pair_is_the_largest_ratio_of_divergence_and_order(p: float, k: int) -> None:
    """By hand: two reports exchange their chances, the other k - 2 keep theirs."""
    event = RandomizedResponse(p, k)
    keep, other, loss = 1 - p + p / k, p / k, event.largest_loss("replace")
    orders = 1 + np.geomspace(1e-3, 1e3, 4000)
    grown = orders * loss
    up, down = np.log(other) + grown, np.log(keep) - grown
    moment = np.logaddexp(np.logaddexp(up, down), np.log((k - 2) * other) if k > 2 else -np.inf)
    # where losses are tiny, the logarithm of a moment next to one has lost its digits
    truth = float((moment / (orders - 1) / orders).max()) if loss > 1e-2 else 0.0
    rho = event.rho("replace")
    assert truth * (1 - 1e-9) <= rho
    if loss > 1e-2:
        assert rho <= 1.01 * truth
    assert rho <= rho_of_pure(loss)
    assert (event.renyi(orders, "replace") <= orders * rho * (1 + 1e-9)).all()


MIXTURES = [
    ((0.0, 1.0), (0.9, 0.1)),
    ((0.0, 0.3, 1.7), (0.5, 0.3, 0.2)),
    ((0.5, 2.0), (0.7, 0.3)),
    ((0.0, 1e-3, 3.0), (0.999, 0.0009, 0.0001)),
    ((0.2, 0.21), (0.5, 0.5)),
]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("shifts", "weights"), slow_but(MIXTURES, MIXTURES[1]))
def test_the_moments_are_the_integrals(shifts: tuple[float, ...], weights: tuple[float, ...], direction: str) -> None:
    orders = np.array([1.01, 2.0, 3.5, 12.0])
    ours = log_excess_mixture(orders, shifts, weights, direction)  # pyright: ignore[reportArgumentType]
    with mpmath.workdps(30):

        def ratio(u: mpf) -> mpf:
            return sum(mpf(w) * exp(mpf(s) * u - mpf(s) ** 2 / 2) for s, w in zip(shifts, weights)) / mpf(sum(weights))

        def integrated(power: mpf) -> float:
            centre = int(float(power) * shifts[-1])
            knots = [-inf, *range(min(-16, centre - 16), max(16, centre + 16), 4), inf]
            return float(log(quad(lambda u: npdf(u) * (ratio(u) ** power - 1), knots)))

        for order, value in zip(orders.tolist(), ours):
            power = mpf(order) if direction == "remove" else 1 - mpf(order)
            assert value == pytest.approx(integrated(power), abs=1e-10)


def test_sampling_is_the_special_case() -> None:
    orders = np.array([1.0001, 1.5, 2.0, 17.0, 300.0])
    for rate, shift in ((0.01, 1.0), (1e-9, 0.5), (0.7, 4.0), (0.2, 0.001)):
        ours = log_excess_mixture(orders, (0.0, shift), (1 - rate, rate), "remove")
        np.testing.assert_allclose(ours, log_excess_sampled_gaussian(orders, rate, 1 / shift), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_orders_beyond_the_rule_get_a_bound(direction: str) -> None:
    orders = np.geomspace(2, 1e9, 60)
    shifts, weights = (0.0, 0.7, 2.0), (0.9, 0.05, 0.05)
    values = log_excess_mixture(orders, shifts, weights, direction)  # pyright: ignore[reportArgumentType]
    assert np.isfinite(values).all()
    assert (values <= log_excess_revealed(orders, shifts, weights)).all()
    assert (np.diff(values) > 0).all()


# The closed forms against 32-digit integration of the definition.


ROUND_OFF = 2e-16  # of exponents; `renyi_from_log_excess` adds more
CASES = [
    (0.01, 1.0, 1.5),
    (0.01, 1.0, 2.0),
    (0.01, 0.3, 1.5),
    (0.5, 0.3, 3.7),
    (1e-5, 0.3, 1.01),
    (0.3, 4.0, 9.5),
    (0.9, 0.5, 1.0003),
    (1e-9, 100.0, 5.0),
    (0.2, 2.0, 16.0),
    (0.3, 0.01, 1.0003),
    (0.02, 0.3, 1.000001),  # an order so close to one that its digits would cancel
    (1 - 2**-45, 0.3, 1.4),  # all but everybody is drawn: little is left of those who are not
    (1 - 2**-37, 7.0, 820.5),  # and yet it decides where the moment lies
]
QUICK = [(0.01, 1.0, 1.5), (0.3, 0.01, 1.0003)]


def _integral(rate: float, z: float, order: float, shift: int) -> float:
    """log(E_Q[(P/Q)^a] - 1), P with its mode at +1, Q at 0 (shift 0) or -1 (shift 1)."""
    with mp.workdps(32):
        q, z = mp.mpf(rate), mp.mpf(z)

        def mix(u, sign):
            return 1 - q + q * mp.exp(sign * u / z - 1 / (2 * z * z))

        def integrand(u):
            base = mix(u, -1) if shift else mp.mpf(1)
            return mp.npdf(u) * mix(u, 1) ** order * base ** (1 - order)

        ends = mp.linspace(-14 - 1 / z, (2 * order if shift else order + 1) / z + 14, int(14 + order / z))
        return float(mp.log(mp.quad(integrand, ends) - 1))


@pytest.mark.parametrize(("rate", "z", "order"), slow_but(CASES, *QUICK))
def test_the_moment_under_removal_is_the_integral(rate: float, z: float, order: float) -> None:
    found = log_excess_sampled_gaussian(np.array([order]), rate, z)[0]
    assert found == pytest.approx(_integral(rate, z, order, 0), abs=1e-12)


@pytest.mark.parametrize(("rate", "z", "order"), slow_but(CASES, *QUICK))
def test_the_moment_under_replacement_is_the_integral(rate: float, z: float, order: float) -> None:
    found = log_excess_replace(np.array([order]), rate, z)[0]
    assert found == pytest.approx(_integral(rate, z, order, 1), abs=2e-12 + ROUND_OFF * (2 * order / z) ** 2)


@pytest.mark.parametrize("z", [0.001, 0.01, 0.3, 4.0])
def test_a_large_order_costs_the_others_no_digits(z: float) -> None:
    orders = np.array([1.0003, 1.7, 2.0, 31.5])
    alone = np.concatenate([log_excess_sampled_gaussian(orders[k : k + 1], 0.3, z) for k in range(len(orders))])
    assert log_excess_sampled_gaussian(orders, 0.3, z).tolist() == pytest.approx(alone.tolist(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("z", "order"), [(0.001, 1.00001)])
def test_with_next_to_no_noise_an_order_near_one_has_a_bound_that_counts_sampling(z: float, order: float) -> None:
    truth = _integral(0.3, z, order, 0)
    assert truth <= log_excess_sampled_gaussian(np.array([order]), 0.3, z)[0] * (1 + 1e-12) <= truth * 1.03
    assert _integral(0.3, z, order, 1) <= log_excess_replace(np.array([order]), 0.3, z)[0] * (1 + 1e-12)


@pytest.mark.parametrize("z", [0.1, 0.3, 1.0, 30.0])
def test_fractional_orders_continue_the_whole_ones(z: float) -> None:
    whole = np.array([2.0, 5.0, 17.0])
    beside = whole + 1e-9
    gap = log_excess_sampled_gaussian(beside, 0.02, z) - log_excess_sampled_gaussian(whole, 0.02, z)
    assert (np.abs(gap) < 1e-6 / z**2 + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "z", "order"), [(0.3, 0.01, 1.0003), (0.3, 0.004, 1.0001), (0.01, 0.02, 1.7)])
def test_the_cost_with_little_noise_is_not_below_the_integral(rate: float, z: float, order: float) -> None:
    event = Gaussian(z).poisson(rate)
    for adjacency, shift in (("add_remove", 0), ("replace", 1)):
        truth = float(np.logaddexp(0.0, _integral(rate, z, order, shift))) / (order - 1)
        assert truth <= event.renyi(np.array([order]), adjacency)[0] <= truth * (1 + 1e-6)
