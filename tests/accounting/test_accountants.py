"""The accountants: two-sided bounds against integrals, closed forms, other libraries and each other."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant, _nearest, _rounded, reach
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import gammaln

from sfumato.accounting import (
    ApproximateDP,
    ClipCount,
    Composition,
    DiscreteGaussian,
    ExponentialMechanism,
    Gaussian,
    InputError,
    Laplace,
    MixtureOfGaussians,
    NonPrivate,
    PureDP,
    RandomizedResponse,
    guarantee,
    joint,
)
from sfumato.accounting import compose as compose_events
from sfumato.accounting import pld as module
from sfumato.accounting.accountants import ORDERS, RdpAccountant, ZcdpAccountant, rdp, rho_to_epsilon
from sfumato.accounting.events import Event
from sfumato.accounting.gaussian_curve import GaussianAccountant, gaussian_delta_interval, gaussian_epsilon
from sfumato.accounting.loss.compose import Sketch, compose
from sfumato.accounting.loss.curve import Curve
from sfumato.accounting.loss.grid import best_offset, from_above, from_below
from sfumato.accounting.pair import FinitePair
from sfumato.accounting.pld import _ORDERS, PldAccountant, Rank, ScheduleAccountant, mildest, worst
from sfumato.accounting.sampled_pair import SampledGaussian
from slow import by_profile, one_in, slow_but


def exact_delta(mu: float, epsilon: float) -> mp.mpf:
    """The closed form, at fifty digits."""
    with mp.workdps(50):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 10.0, 300.0])
def test_delta_is_the_closed_form_at_fifty_digits(mu: float, epsilon: float) -> None:
    exact = exact_delta(mu, epsilon)
    if exact > 1e-300:
        low, high = gaussian_delta_interval(mu, epsilon)
        assert low <= exact <= high
        assert 0.5 * (low + high) == pytest.approx(float(exact), rel=1e-9)


@given(st.floats(1e-3, 50), st.floats(1e-100, 0.3))
def test_epsilon_inverts_delta_and_rounds_up(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert epsilon == 0 or exact_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-9)


def test_composed_gaussians_are_one() -> None:
    mixed = GaussianAccountant(Gaussian(3.0) * 4 + Gaussian(4.0) * 3)
    assert mixed.mu == pytest.approx(math.sqrt(4 / 9 + 3 / 16))
    assert GaussianAccountant(Gaussian(1.0), "replace").mu == 2.0


def test_anything_but_gaussians_is_refused() -> None:
    with pytest.raises(InputError, match='method="auto"'):
        GaussianAccountant(Gaussian(1.0).poisson(0.5))


def _closed_form(z: float, delta: float):
    """The root of the closed form at sixty digits, by halving."""
    mu, target = 1 / mp.mpf(z), mp.mpf(delta)

    def excess(e):
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) - target

    if excess(mp.mpf(0)) <= 0:
        return mp.mpf(0)
    low, high = mp.mpf(0), mu * mu + 60 * mu
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


@pytest.mark.parametrize("z", [0.05, 0.3, 1.0, 30.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("delta", [1e-100, 1e-12, 1e-7, 1e-6, 1e-5, 3e-4, 0.1])
def test_the_interval_holds_the_truth_at_sixty_digits(z: float, delta: float) -> None:
    low, high = GaussianAccountant(Gaussian(z)).epsilon_interval(delta)
    with mp.workdps(60):
        exact = _closed_form(z, delta)
        assert low <= exact <= high
    # 32 ulp * 20 standard deviations * z: an ulp in a term is z times as much of their difference
    assert high - low <= (1e-11 + 2e-13 * z) * high + 1e-14


@pytest.mark.parametrize("z", [1e-3, 0.05, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.3, 1.0, 4.0, 20.0])
def test_the_interval_of_delta_holds_the_truth(z: float, ratio: float) -> None:
    epsilon = ratio / z * (1 + 1 / z)
    with mp.workdps(60):
        mu, e = 1 / mp.mpf(z), mp.mpf(epsilon)
        exact = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
        low, high = gaussian_delta_interval(1 / z, epsilon)
        assert low <= exact <= high


@pytest.mark.parametrize("z", [1e-200, 1e-3, 1e160, 1e300])
def test_no_size_of_noise_overflows(z: float) -> None:
    account = GaussianAccountant(Gaussian(z) * 4)
    assert account.mu == pytest.approx(2 / z, rel=1e-15)
    assert account.epsilon(1e-6) >= 0
    assert account.delta(0.0) > 0


@given(st.floats(1e-6, 1e3), st.floats(1e-15, 0.5))
def test_no_order_of_a_dense_grid_gives_a_smaller_epsilon(rho: float, delta: float) -> None:
    orders = 1 + np.geomspace(1e-9, 1e9, 200_001)
    dense = rho * orders + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    assert rho_to_epsilon(rho, delta) <= max(0.0, dense.min()) + 1e-9


@given(st.floats(1e-4, 1e3), st.floats(1e-12, 1e-2))
def test_delta_inverts_epsilon(rho: float, delta: float) -> None:
    account = ZcdpAccountant(Gaussian(math.sqrt(0.5 / rho)))
    epsilon = account.epsilon(delta)
    if epsilon > 0:
        assert account.delta(epsilon) == pytest.approx(delta, rel=1e-6)


def test_rho_adds_up_and_sampling_earns_nothing() -> None:
    assert ZcdpAccountant(Gaussian(2.0) * 8).rho() == 1.0
    assert ZcdpAccountant(Gaussian(2.0).poisson(0.1) * 8).rho() == 1.0
    assert ZcdpAccountant(Gaussian(2.0) * 8, "replace").rho() == 4.0
    assert ZcdpAccountant(Gaussian(2.0).without_replacement(1, 10) * 8).rho() == 4.0
    assert ZcdpAccountant(NonPrivate()).rho() == math.inf


FEW = (1.1, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0, 33.0, 64.0)
multipliers = st.floats(0.3, 30)
sampling_rates = st.floats(1e-6, 0.99)


def theorem_27(z: float, size: int, population: int, order: int) -> float:
    """Wang, Balle and Kasiviswanathan 2019, Theorem 27, for a Gaussian under replacement (no pure-DP part)."""
    share, base = size / population, 2 / z**2  # epsilon(j) = j * base with the doubled sensitivity
    total = 1 + share**2 * math.comb(order, 2) * min(4 * math.expm1(2 * base), 2 * math.exp(2 * base))
    for j in range(3, order + 1):
        total += share**j * math.comb(order, j) * 2 * math.exp((j - 1) * j * base)
    return math.log(total) / (order - 1)


@settings(max_examples=by_profile(30), deadline=None)
@given(multipliers, sampling_rates)
def test_sampling_never_costs_more_and_replacement_never_less(z: float, q: float) -> None:
    for adjacency in ("add_remove", "replace"):
        sampled = rdp(Gaussian(z).poisson(q), adjacency, FEW)
        assert (sampled <= rdp(Gaussian(z), adjacency, FEW) * (1 + 1e-9)).all()
        assert (sampled >= 0).all()
    assert (rdp(Gaussian(z).poisson(q), "replace", FEW) >= rdp(Gaussian(z).poisson(q), "add_remove", FEW)).all()


@settings(max_examples=by_profile(30), deadline=None)
@given(multipliers, sampling_rates, st.floats(1.01, 3))
def test_the_cost_falls_with_noise_and_rises_with_rate_and_order(z: float, q: float, factor: float) -> None:
    cost = rdp(Gaussian(z).poisson(q), "add_remove", FEW)
    assert (rdp(Gaussian(z * factor).poisson(q), "add_remove", FEW) <= cost * (1 + 1e-9)).all()
    assert (rdp(Gaussian(z).poisson(q / factor), "add_remove", FEW) <= cost * (1 + 1e-9)).all()
    assert (np.diff(cost) >= -1e-9 * cost[1:]).all()


@pytest.mark.parametrize(("z", "size"), [(2.0, 1), (4.0, 10), (1.0, 30), (8.0, 500)])
def test_without_replacement_is_between_poisson_and_the_published_bound(z: float, size: int) -> None:
    orders = tuple(float(a) for a in range(2, 13))
    found = rdp(Gaussian(z).without_replacement(size, 1000), "replace", orders)
    bound = np.array([theorem_27(z, size, 1000, int(a)) for a in orders])
    assert (found <= bound * (1 + 1e-9)).all()
    assert (found <= rdp(Gaussian(z), "replace", orders) * (1 + 1e-12)).all()
    assert (found > rdp(Gaussian(z).poisson(size / 1000), "replace", orders)).all()


@pytest.mark.parametrize("z", [0.05, 0.02, 0.01, 0.006])
def test_sampling_counts_with_little_noise(z: float) -> None:
    """A round costs about 1/(2 z^2) where the unit was drawn; 20 of 30 is rarer than delta at q = 0.3."""
    run = Gaussian(z).poisson(0.3) * 30
    assert RdpAccountant(run).epsilon(6e-4) < 20 * (0.5 / z**2) < RdpAccountant(Gaussian(z) * 30).epsilon(6e-4) * 0.7


def test_a_full_sample_of_fixed_size_costs_an_exchange() -> None:
    full = Gaussian(2.0).without_replacement(10, 10)
    for adjacency in ("add_remove", "replace", "zero_out"):
        assert rdp(full, adjacency, FEW) == pytest.approx(rdp(Gaussian(1.0), "add_remove", FEW), rel=1e-9)


def test_orders_may_come_in_any_order() -> None:
    event = Gaussian(1.0).poisson(0.01)
    there, back = RdpAccountant(event, orders=FEW), RdpAccountant(event, orders=FEW[::-1])
    assert there.epsilon(1e-6) == back.epsilon(1e-6)


@pytest.mark.parametrize("orders", [(1.0, 2.0), (0.5,), (), (math.inf,), (math.nan,)])
def test_impossible_orders_are_refused(orders: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="orders must all be > 1"):
        RdpAccountant(Gaussian(1.0), orders=orders)


@pytest.mark.parametrize("z", [0.05, 0.2, 1.0, 30.0, 1000.0])
def test_the_default_orders_lose_little_for_huge_and_tiny_epsilons(z: float) -> None:
    """For a plain Gaussian the best real order is known from the zCDP conversion."""
    from sfumato.accounting.accountants import ZcdpAccountant

    best = ZcdpAccountant(Gaussian(z)).epsilon(1e-6)
    assert best <= RdpAccountant(Gaussian(z)).epsilon(1e-6) <= best * 1.005


def test_a_run_without_noise_is_infinite_at_every_order() -> None:
    assert np.isinf(rdp(NonPrivate())).all()
    assert len(ORDERS) > 100


# Two-sided bounds against integrals of the definition, other libraries and themselves.


def hockey_stick(rate: float, z: float, epsilon: float, direction: str) -> float:
    """sup_S P(S) - e^epsilon Q(S), integrated at 30 digits."""
    with mp.workdps(30):
        q, s = mp.mpf(rate), 1 / mp.mpf(z)

        def mix(u, mean):
            return (1 - q) * mp.npdf(u) + q * mp.npdf(u, mean)

        pairs = {
            "remove": (lambda u: mix(u, s), mp.npdf),
            "add": (mp.npdf, lambda u: mix(u, s)),
            "replace": (lambda u: mix(u, s), lambda u: mix(u, -s)),
        }
        upper, lower = pairs[direction]

        def excess(u):
            return upper(u) - mp.exp(epsilon) * lower(u)

        sign = -1 if direction == "add" else 1  # the set {P > e^epsilon Q} is a half-line
        reach = 20 + abs(s)
        if excess(sign * reach) <= 0:
            return 0.0
        low, high = -sign * reach, sign * reach
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        points = [high + sign * k for k in (0, 1, 2, 4, 8, 16, 32)]
        return float(sign * mp.quad(excess, points))


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(
    ("rate", "z", "epsilon"), [(0.01, 1.0, 0.005), (0.3, 0.7, 0.2), (1e-4, 0.5, 0.01), (1.0, 2.0, 1.0)]
)
def test_one_step_brackets_the_integral(rate: float, z: float, epsilon: float, direction: str) -> None:
    truth = hockey_stick(rate, z, epsilon, direction)
    pair, gap = SampledGaussian(direction, rate, 1 / z), 1e-4
    offset = best_offset(pair, gap)
    deltas = []
    for atoms in (from_below(pair, gap, offset), from_above(pair, gap, offset)):
        losses = atoms.losses
        deltas.append(float((atoms.masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum()) + atoms.infinity)
    assert deltas[0] <= truth * (1 + 1e-9) + 1e-15
    assert truth <= deltas[1] * (1 + 1e-9) + 1e-15
    assert deltas[1] - deltas[0] <= 1e-3 * truth + 1e-9


@pytest.mark.parametrize(("rate", "z", "epsilon"), [(0.2, 1.0, 0.5), (0.05, 0.8, 1.0)])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_two_steps_bracket_the_double_integral(rate: float, z: float, epsilon: float, direction: str) -> None:
    def log_ratio(u):
        loss = np.log1p(rate * np.expm1(u / z - 1 / (2 * z * z)))
        return loss if direction == "remove" else -loss

    def density(u):
        base = stats.norm.pdf(u)
        return base if direction == "add" else (1 - rate) * base + rate * stats.norm.pdf(u - 1 / z)

    grid = np.linspace(-12, 14, 40_001)
    weights = density(grid) * (grid[1] - grid[0])
    loss = log_ratio(grid)
    order = np.argsort(loss)
    loss, weights = loss[order], weights[order]
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0]])
    discounted = np.concatenate([np.cumsum((weights * np.exp(-loss))[::-1])[::-1], [0]])
    start = np.searchsorted(loss, epsilon - loss, side="right")
    truth = float((weights * (above[start] - np.exp(epsilon - loss) * discounted[start])).sum())

    pair, gap = SampledGaussian(direction, rate, 1 / z), 2e-4
    bounds = []
    for above, build in ((False, from_below), (True, from_above)):
        parts = [(build(pair, gap, best_offset(pair, gap)), 2)]
        bounds.append(math.exp(compose(parts, Sketch(parts), 1.0).log_delta(epsilon, above)))
    slack = 1e-6 * truth  # of the sum above
    assert bounds[0] <= truth + slack
    assert truth - slack <= bounds[1]
    assert bounds[1] - bounds[0] <= 1e-3 * truth


@pytest.mark.parametrize("z", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-10, 1e-25])
def test_the_gaussian_is_inside_its_interval(z: float, delta: float) -> None:
    low, high = PldAccountant(Gaussian(z)).epsilon_interval(delta)
    exact = guarantee(Gaussian(z)).epsilon(delta)
    assert low <= exact <= high <= low * 1.002


@settings(max_examples=by_profile(15), deadline=None)
@given(
    st.floats(0.4, 8),
    st.floats(1e-3, 0.5),
    st.integers(1, 3000),
    st.floats(1e-9, 1e-3),
    st.sampled_from(["add_remove", "replace"]),
)
def test_lower_is_below_upper_is_below_renyi(z, q, n, delta, adjacency) -> None:
    event = Gaussian(z).poisson(q) * n
    low, high = PldAccountant(event, adjacency).epsilon_interval(delta)
    assert 0 <= low <= high <= RdpAccountant(event, adjacency).epsilon(delta) * 1.001 + 1e-9


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-20])
def test_a_long_double_transform_lies_inside(delta: float) -> None:
    """Plain FFT, no tilt, but with 64-bit mantissas and a far finer grid."""
    from scipy.fft import irfft, rfft

    pair, gap, steps = SampledGaussian("remove", 0.01, 1.0), 2e-4, 500
    atoms = from_above(pair, gap, 0.0)
    size = 1 << 18
    padded = np.zeros(size, dtype=np.longdouble)
    padded[: len(atoms.masses)] = atoms.masses
    masses = irfft(rfft(padded) ** steps, size)
    losses = gap * (steps * atoms.first + np.arange(size))

    def value(epsilon: float) -> float:
        seen = losses > epsilon
        return float((masses[seen] * -np.expm1(epsilon - losses[seen])).sum())

    low, high = PldAccountant(Gaussian(1.0).poisson(0.01) * steps).epsilon_interval(delta)
    if delta > 1e-14:  # above the noise of the plain transform
        assert value(high) <= delta * (1 + 1e-3)
        assert value(low) >= delta * (1 - 1e-3)
    assert high - low < 2e-3 * high


def test_halving_the_rate_of_an_exchange_is_between_poisson_and_no_sampling() -> None:
    event = Gaussian(2.0).without_replacement(50, 100) * 20
    exchange = guarantee(event, "replace", "pld").epsilon(1e-6)
    assert guarantee(Gaussian(2.0).poisson(0.5) * 20, "replace", "pld").epsilon(1e-6) < exchange
    assert exchange < guarantee(Gaussian(2.0) * 20, "replace").epsilon(1e-6)
    assert exchange <= guarantee(event, "replace", "rdp").epsilon(1e-6)


def test_unequal_events_compose() -> None:
    parts = Gaussian(1.0).poisson(0.01) * 1000, Gaussian(5.0) * 3, Gaussian(2.0).poisson(0.1) * 50
    both = PldAccountant(parts[0] + parts[1] + parts[2])
    low, high = both.epsilon_interval(1e-6)
    assert low <= high <= low * 1.002
    assert high > max(PldAccountant(part).epsilon(1e-6) for part in parts)
    assert high <= RdpAccountant(parts[0] + parts[1] + parts[2]).epsilon(1e-6)


def test_too_little_noise_is_refused_by_name_and_avoided_by_auto() -> None:
    event = Gaussian(0.01).poisson(0.5)
    with pytest.raises(InputError, match='too small for method="pld"'):
        guarantee(event, method="pld")
    assert guarantee(event).method == "rdp"


def test_a_tiny_delta_falls_back_to_renyi_and_never_to_nan() -> None:
    low, high = PldAccountant(Gaussian(1.0).poisson(0.01) * 100).epsilon_interval(1e-200)
    assert 0 <= low <= high < math.inf
    assert high <= RdpAccountant(Gaussian(1.0).poisson(0.01) * 100).epsilon(1e-200) * 1.01


def test_quad_agrees_on_the_masses_of_cells() -> None:
    pair = SampledGaussian("replace", 0.2, 1.5)
    edges = np.array([-1.0, -0.1, 0.0, 0.4, 2.0])
    upper, lower, _ = pair.cells(edges)
    u = pair._observation_replace(edges)
    for masses, sign in ((upper, 1), (lower, -1)):
        for i in range(4):
            truth, _ = integrate.quad(
                lambda x, sign=sign: 0.8 * stats.norm.pdf(x) + 0.2 * stats.norm.pdf(x - sign * 1.5), u[i], u[i + 1]
            )
            assert masses[i] == pytest.approx(truth, rel=1e-10)


@pytest.mark.parametrize(
    ("z", "q", "steps"), slow_but([(1.0, 0.01, 40_000), (4.0, 0.01, 10**6), (1.0, 1e-4, 10**6)], (1.0, 0.01, 40_000))
)
def test_a_long_run_has_a_delta_and_a_curve_although_the_best_grid_does_not_fit(z, q, steps) -> None:
    event = Gaussian(z).poisson(q) * steps
    account = PldAccountant(event)
    epsilons, deltas = account.curve()
    assert epsilons[0] == 0.0
    assert (np.diff(epsilons) >= 0).all()
    for epsilon in (0.0, 0.1, 1.0):
        low, high = account.delta_interval(epsilon)
        assert 0 < low <= high <= RdpAccountant(event).delta(epsilon)
        assert high <= 1.2 * low + 1e-9  # the grid that fits is too wide for the far tail
        on_the_curve = deltas[np.searchsorted(epsilons, epsilon, side="right") - 1]
        assert low <= on_the_curve <= 1.1 * high + 1e-13 * steps  # what one transform's round-off allows


def test_where_no_grid_fits_the_renyi_bound_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.accounting.loss.compose._MOST_POINTS", 1)
    event = Gaussian(1.0).poisson(0.01) * 100
    account, renyi = PldAccountant(event), RdpAccountant(event, orders=_ORDERS)
    assert account.delta_interval(0.5) == (0.0, renyi.delta(0.5))
    assert account.epsilon_interval(1e-5) == (0.0, renyi.epsilon(1e-5))
    epsilons, deltas = account.curve()
    assert (deltas >= [renyi.delta(epsilon) * 0.999 for epsilon in epsilons.tolist()]).all()


noises = st.floats(-1, 3).map(lambda power: 10.0**power)
rates = st.floats(-8, -1e-6).map(lambda power: 10.0**power)
lengths = st.floats(0, 7).map(lambda power: int(10.0**power))
deltas = st.floats(-20, -0.302).map(lambda power: 10.0**power)


@settings(max_examples=by_profile(25), deadline=None, derandomize=True)
@given(noises, rates, lengths, deltas, st.sampled_from(["add_remove", "replace"]))
def test_bounds_hold_together_over_the_whole_range(z, q, steps, delta, adjacency) -> None:
    event = Gaussian(z).poisson(q) * steps
    account = PldAccountant(event, adjacency)
    low, high = account.epsilon_interval(delta)
    assert 0 <= low <= high <= RdpAccountant(event, adjacency, _ORDERS).epsilon(delta)
    # the two curves are inverse to each other: neither may contradict the other
    assert account.delta_interval(high)[0] <= delta * (1 + 1e-9)
    assert low == 0 or account.delta_interval(low)[1] >= delta * (1 - 1e-9)


@settings(max_examples=by_profile(12), deadline=None, derandomize=True)
@given(noises, rates, lengths, deltas, st.sampled_from(["noise", "rate", "steps", "delta"]), st.floats(1.05, 3.0))
def test_more_of_what_costs_costs_more(z, q, steps, delta, what, factor) -> None:
    low, _ = PldAccountant(Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
    match what:
        case "noise":
            z = max(z / factor, 0.1)
        case "rate":
            q = min(q * factor, 1.0)
        case "steps":
            steps = max(steps + 1, int(steps * factor))
        case "delta":
            delta /= factor
    _, high = PldAccountant(Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
    assert low <= high


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"),
    [
        (1.0, 0.01, 10_000, 1e-5),
        (0.3, 0.01, 1_000_000, 1e-5),
        (1.0, 2e-5, 100, 1e-8),
        (0.5, 2e-5, 100, 1e-8),
        (0.5, 2e-5, 1_000_000, 1e-10),
        (0.6, 1e-4, 100_000, 1e-11),
        (1.0, 1e-6, 1000, 1e-20),
        (0.2, 1e-5, 10_000_000, 1e-12),
        (1000.0, 1e-3, 1000, 1e-8),
        (1.0, 0.5, 3, 1e-20),
        (0.5, 2e-5, 1, 1e-8),
    ],
)
def test_the_interval_is_narrow_at_any_rate_and_delta(z, q, steps, delta) -> None:
    low, high = PldAccountant(Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
    assert 0 < low <= high <= low * 1.001


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("delta", [0.01, 1e-6, 1e-15])
def test_one_release_is_read_off_its_pair(adjacency, delta) -> None:
    account = PldAccountant(Gaussian(0.8).poisson(0.02), adjacency)
    low, high = account.epsilon_interval(delta)
    assert high - low <= 1e-9 * high
    if high > 0:
        directions = ("replace",) if adjacency == "replace" else ("remove", "add")
        truth = max(hockey_stick(0.02, 0.8, high, direction) for direction in directions)
        assert truth == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(
    ("q", "steps", "epsilon", "width"),
    [
        (0.01, 2000, 0.0, 1e-3),
        (0.01, 2000, 1.0, 1e-3),
        (0.01, 2000, 5.0, 1e-3),
        (1e-4, 100_000, 0.1, 1e-3),
        (1e-4, 100_000, 3.0, 0.02),
    ],
)
def test_delta_is_refined_until_both_bounds_are_close(q, steps, epsilon, width) -> None:
    low, high = PldAccountant(Gaussian(0.9).poisson(q) * steps).delta_interval(epsilon)
    assert 0 < low <= high <= (1 + width) * low


def test_an_upper_bound_alone_is_not_above_the_planned_width() -> None:
    account = PldAccountant(Gaussian(1.0).poisson(0.01) * 10_000)
    upper = account.upper(1e-5)
    low, high = account.epsilon_interval(1e-5)
    assert low <= upper <= high * (1 + 1e-4)


@dataclass(frozen=True)
class _Unusual(Event):
    """An event of which only a pair is known, as a user may write it."""

    pair: FinitePair

    def pairs(self, adjacency):
        return (self.pair,)


def _exact_epsilon(pair: FinitePair, steps: int, delta: float) -> float:
    """By the multinomial sum of a pair with two finite losses."""
    (a, b), (p, r) = pair.losses, pair.upper
    k = np.arange(steps + 1)
    logs = gammaln(steps + 1) - gammaln(k + 1) - gammaln(steps - k + 1) + k * np.log(r) + (steps - k) * np.log(p)
    losses = k * b + (steps - k) * a
    infinity = -math.expm1(steps * math.log1p(-pair.only_upper))

    def value(epsilon: float) -> float:
        seen = losses > epsilon
        return infinity + float((np.exp(logs[seen]) * -np.expm1(epsilon - losses[seen])).sum())

    low, high = 0.0, float(losses.max())
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if value(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("infinity", [0.0, 1e-7, 1e-3])
@pytest.mark.parametrize(("loss", "steps"), [(math.log(3), 100), (0.5, 3), (0.01, 20_000)])
def test_two_losses_and_an_infinite_one_compose_exactly(loss, steps, infinity) -> None:
    p = (1 - infinity) * math.exp(loss) / (1 + math.exp(loss)) * np.array([math.exp(-loss), 1.0])
    pair = FinitePair((-loss, loss), tuple(p), tuple(p * np.exp([loss, -loss])), infinity, infinity)
    account = PldAccountant(_Unusual(pair) * steps)
    whole = -math.expm1(steps * math.log1p(-infinity))
    for above in (1e-6, 1e-3):
        delta = whole + above
        if delta < 1:
            low, high = account.epsilon_interval(delta)
            truth = _exact_epsilon(pair, steps, delta)
            assert low <= truth + 1e-9
            assert truth <= high + 1e-9
            assert high - low <= 1e-3 * high
    if infinity:
        assert account.epsilon_interval(0.5 * whole) == (math.inf, math.inf)
        low, high = account.epsilon_interval(whole)  # every finite loss counts
        assert low <= steps * loss <= high + 1e-9
        assert high == pytest.approx(steps * loss)


def test_randomised_response_at_any_delta() -> None:
    p = np.array([0.25, 0.75])
    loss = math.log(3)
    account = PldAccountant(_Unusual(FinitePair((-loss, loss), tuple(p), tuple(p[::-1]))) * 100)
    low, high = account.epsilon_interval(1e-6)
    assert low <= 94.2898679 <= high <= 94.2899
    for delta in (0.0, 1e-300):
        low, high = account.epsilon_interval(delta)
        assert 0.999 * 100 * loss <= low <= high
        assert high == pytest.approx(100 * loss, rel=1e-9)
    assert account.epsilon_interval(1.0) == (0.0, 0.0)
    assert account.delta_interval(100 * loss + 1e-6) == (0.0, 0.0)
    assert account.delta_interval(1e6) == (0.0, 0.0)


def test_a_gaussian_has_no_epsilon_at_delta_zero_and_none_at_one() -> None:
    account = PldAccountant(Gaussian(1.0).poisson(0.1) * 5)
    assert account.epsilon_interval(0.0)[1] == math.inf
    assert account.epsilon_interval(1.0) == (0.0, 0.0)
    low, high = account.epsilon_interval(1e-300)
    assert 0 <= low <= high < math.inf


MEMORY = """
import resource
from sfumato.accounting import Gaussian
from sfumato.accounting.pld import PldAccountant
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for z, q, steps, delta in [(0.3, 0.01, 10**6, 1e-5), (0.5, 2e-5, 10**6, 1e-10), (1, 1e-6, 1000, 1e-20),
                           (0.1, 0.5, 10**7, 1e-5), (1, 2e-5, 100, 1e-8)]:
    PldAccountant(Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_stays_small() -> None:
    grown = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 200 * 1024  # KiB


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "low", "high"),
    [
        (0.5, 2e-5, 10**6, 1e-10, 4.4205, 4.4244),  # a plain transform says 4.324
        (0.6, 1e-4, 10**5, 1e-11, 3.5820, 3.5832),  # a plain transform says 3.497
    ],
)
def test_small_deltas_do_not_drown_in_round_off(z, q, steps, delta, low, high):
    bounds = guarantee(Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
    assert low <= bounds[0] <= bounds[1] <= high


def test_a_run_of_rare_steps_at_a_tiny_delta_has_both_bounds():
    low, high = guarantee(Gaussian(1.0).poisson(1e-6) * 1000).epsilon_interval(1e-20)
    assert 0.00615 < low <= high < 0.00617


def test_delta_at_an_epsilon_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    delta = Curve.delta

    def counted(self: Curve, epsilon: float, *rest: Any, **named: Any) -> tuple[float, float]:
        asked.append(epsilon)
        return delta(self, epsilon, *rest, **named)

    monkeypatch.setattr(Curve, "delta", counted)
    account = PldAccountant(Gaussian(1.0).poisson(0.01) * 1000)
    first, count = account.delta_interval(0.0), len(asked)
    assert count
    assert account.delta_interval(0.0) == first
    assert len(asked) == count
    assert 0 < first[1] - first[0] <= 1e-3 * first[1]


@pytest.mark.parametrize(
    ("noise_parameter", "count"),
    one_in(5, [0.01, 0.1, 0.3, 0.5, 0.9], [1000, 100_000, 5_000_000, 10_000_000, 1_000_000_000]),
)
def test_very_many_randomized_responses_have_an_epsilon_of_both_sides(noise_parameter: float, count: int) -> None:
    response = RandomizedResponse(noise_parameter, 2)
    low, high = guarantee(response * count, "replace").epsilon_interval(1e-5)
    loss, keep = math.log((2 - noise_parameter) / noise_parameter), response.keep_probability

    def delta(epsilon: float) -> float:
        """The sum over the numbers of true reports whose loss is above epsilon; their chances to 1e-5."""
        first = math.floor((epsilon / loss + count) / 2) + 1
        kept = np.arange(first, min(count, first + 1000 + int(20 * math.sqrt(count))) + 1)
        return float(-stats.binom.pmf(kept, count, keep) @ np.expm1(np.minimum(epsilon - loss * (2 * kept - count), 0)))

    slack = 1e-9 * high
    assert delta(low - slack) >= 1e-5 * (1 - 1e-4)
    assert delta(high + slack) <= 1e-5 * (1 + 1e-4)
    assert high <= low * 1.001


@pytest.mark.parametrize(("categories", "count"), one_in(2, [3, 10, 1000], [1000, 10_000_000]))
def test_any_number_of_categories_has_an_epsilon_of_both_sides(categories: int, count: int) -> None:
    for noise_parameter in (0.01, 0.3, 0.99):
        low, high = guarantee(RandomizedResponse(noise_parameter, categories) * count, "replace").epsilon_interval(1e-5)
        assert 0 < low <= high <= low * 1.001


@pytest.mark.parametrize("count", [2, 3, 50])
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(2.0).without_replacement(1, 4761),
        Gaussian(2.0).without_replacement(1, 99_999),
        DiscreteGaussian(1.0).poisson(2.1e-4),
        DiscreteGaussian(1.0).poisson(1e-7),
        Gaussian(2.0).poisson(1e-7),
    ],
)
def test_delta_at_no_epsilon_is_close_where_almost_all_losses_are_tiny(event, count: int) -> None:
    low, high = PldAccountant(event * count).delta_interval(0.0)
    assert low <= high <= (1.4 if "Discrete" in str(event) else 1.02) * low  # losses off the grid have wider bounds
    one = PldAccountant(event).delta_interval(0.0)
    assert one[0] <= high  # more releases are not harder to tell
    assert low <= count * one[1]  # differences in distribution add up at most


# Runs of many different steps: certified from both sides, without a step at any number of them, and quick.


def schedule(steps: int, rate: float = 0.02) -> Event:
    noises = np.linspace(0.8, 2.0, steps).tolist()
    return sum((Gaussian(noise).poisson(rate) for noise in noises), Composition(()))


@pytest.mark.parametrize("adjacency", slow_but(["add_remove", "replace"], "add_remove"))
def test_the_interval_holds_the_cost_of_the_steps_one_by_one(adjacency, monkeypatch) -> None:
    monkeypatch.setattr(module, "grouped", partial(module.grouped, most=10))  # so that steps share a group
    run = schedule(20)
    account = ScheduleAccountant(run, adjacency)
    low, high = account.epsilon_interval(1e-5)
    exact = PldAccountant(run, adjacency).epsilon_interval(1e-5)
    assert low <= exact[1]
    assert exact[0] <= high < 1.02 * low
    assert account.delta_interval(exact[1])[0] <= 1e-5 <= account.delta(exact[0])


@pytest.mark.slow
def test_one_different_step_more_costs_one_step_more() -> None:
    costs = [guarantee(schedule(64) + Gaussian(2.5).poisson(0.02) * more).epsilon(1e-5) for more in (0, 1, 2)]
    assert costs[0] < costs[1] < 1.01 * costs[0]
    assert costs[1] < costs[2] < 1.01 * costs[1]


LISTS = {
    "gaussian": [Gaussian(0.9), Gaussian(1.7)],
    "poisson": [Gaussian(0.9).poisson(0.01), Gaussian(1.2).poisson(0.03)],
    "joint": [joint(Gaussian(1.0), ClipCount(9.0)).poisson(0.02), Gaussian(1.5).poisson(0.05)],
    "fixed size": [Gaussian(1.0).without_replacement(20, 1000), Gaussian(0.8).without_replacement(5, 1000)],
    "laplace": [Laplace(2.0), Laplace(5.0)],
    "sampled laplace": [Laplace(2.0).poisson(0.1), Laplace(5.0).poisson(0.3)],
    "pure": [PureDP(0.1), PureDP(0.3)],
    "approximate": [ApproximateDP(0.0, 1e-6), ApproximateDP(0.3, 1e-7)],
    "exponential": [ExponentialMechanism(0.1), ExponentialMechanism(0.3)],
    "response": [RandomizedResponse(0.5, 3), RandomizedResponse(0.9, 3)],
    "mixture": [MixtureOfGaussians(std, (0.0, 1.0, 2.0), (0.9, 0.05, 0.05)) for std in (0.7, 1.6)],
}


@pytest.mark.parametrize(("name", "adjacency"), one_in(3, LISTS, ["add_remove", "replace"]))
def test_the_worst_of_a_kind_costs_more_than_each_and_the_mildest_less(name, adjacency) -> None:
    if (adjacency == "replace" and name == "sampled laplace") or (adjacency == "add_remove" and name == "response"):
        pytest.skip("nothing is known of it")
    events = LISTS[name]
    ranks = [Rank.of(event) for event in events]
    assert all(rank is not None and rank.kind == ranks[0].kind for rank in ranks)
    curves = {}
    for event in (*events, worst(ranks), mildest(ranks)):
        accountant = PldAccountant(event * 7, adjacency)
        curves[event] = [accountant.delta_interval(epsilon) for epsilon in (0.0, 0.1, 0.5, 1.5)]
    for event in events:
        for (low, high), (_, above), (below, _) in zip(curves[event], curves[worst(ranks)], curves[mildest(ranks)]):
            assert low <= above * (1 + 1e-9)
            assert below <= high * (1 + 1e-9)


def test_a_single_event_of_a_kind_is_its_own_worst() -> None:
    for events in LISTS.values():
        for event in events:
            rank = Rank.of(event)
            assert rank is not None
            again = worst([rank])
            assert again == event or again.gaussian_shift("add_remove") or event == LISTS["joint"][0]


@pytest.mark.slow
def test_a_thousand_different_steps_take_little_memory() -> None:
    code = """
import json
import numpy as np
from sfumato.accounting import Composition, Gaussian, guarantee
rates = np.geomspace(0.001, 0.03, 1000).tolist()
run = sum((Gaussian(z).poisson(q) for z, q in zip(np.linspace(0.8, 2.0, 1000).tolist(), rates)), Composition(()))
low, high = guarantee(run).epsilon_interval(1e-5)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([low, high, int(peak.split()[1]) / 1024]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    low, high, megabytes = json.loads(done.stdout)
    assert 0.8 < low < high < 0.9
    assert megabytes < 250


@pytest.mark.slow
def test_a_thousand_different_laplace_releases_have_a_narrow_interval() -> None:
    run = compose_events({Laplace(30 + step / 50): 1 for step in range(1000)})
    low, high = guarantee(run).epsilon_interval(1e-5)
    assert 0 < high - low <= 0.03 * high


# What is peculiar to privacy buckets: how far they round, and which way.


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


def test_the_bounds_are_a_gap_a_step_separate() -> None:
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


# What is peculiar to PRV: the mean of the rounded losses, its interval, and the limits of a plain transform.


def mean_loss(rate: float, shift: float, direction: str) -> float:
    """E_P[log(P/Q)] by integration over the observation."""

    def loss(u):
        return np.log1p(rate * np.expm1(shift * u - shift * shift / 2))

    def density(u):
        base = stats.norm.pdf(u)
        return base if direction == "add" else (1 - rate) * base + rate * stats.norm.pdf(u - shift)

    sign = -1 if direction == "add" else 1
    points = (-12, -6, -2, 0, 2, 6, 12, 24)
    parts = [
        integrate.quad(lambda u: sign * loss(u) * density(u), a, b, epsabs=1e-16, epsrel=1e-12, limit=400)[0]
        for a, b in itertools.pairwise(points)
    ]
    return math.fsum(parts)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "shift"), [(0.01, 1.0), (0.3, 0.7), (1e-4, 2.0), (1.0, 1.5)])
@pytest.mark.parametrize("gap", [0.3, 1e-2, 1e-4])
def test_rounding_keeps_the_mean(rate: float, shift: float, direction, gap: float) -> None:
    rounded = _nearest(SampledGaussian(direction, rate, shift), gap, 1e-20, 1e-9)
    truth = mean_loss(rate, shift, direction)
    mean = float(rounded.masses.values @ rounded.masses.losses) / float(rounded.masses.values.sum())
    assert abs(mean - truth) <= rounded.distance <= 1.1e-9
    assert rounded.missing <= 1e-20


def test_no_loss_moves_by_more_than_half_a_gap_before_the_mean_is_restored() -> None:
    pair, gap = SampledGaussian("remove", 0.2, 1.0), 0.05
    masses = _nearest(pair, gap, 1e-20, 1e-10).masses
    for loss in (-0.1, 0.0, 0.31, 1.4):
        beyond = float(masses.values[masses.losses - masses.offset > loss + 1e-12].sum())
        early, late = pair.cells(np.array([loss, np.inf]))[0][0], pair.cells(np.array([loss + gap, np.inf]))[0][0]
        assert late - 1e-14 <= beyond <= early + 1e-14


def test_the_part_that_is_cut_off_is_counted() -> None:
    pair = SampledGaussian("remove", 0.1, 1.0)
    low, high, missing = reach(pair, 1e-6)
    inside = float(pair.cells(np.array([low, high]))[0][0])
    assert 1 - inside == pytest.approx(missing, abs=1e-12)
    assert 0 < missing <= 1e-6


@pytest.mark.parametrize("epsilon_error", [0.3, 0.1, 0.01])
def test_the_interval_is_as_wide_as_asked_for_and_holds_the_estimate(epsilon_error: float) -> None:
    event = Gaussian(0.8).poisson(5e-3) * 1000
    account = PrvAccountant(event, epsilon_error=epsilon_error)
    low, high = account.epsilon_interval(1e-6)
    true_low, true_high = PldAccountant(event).epsilon_interval(1e-6)
    assert low < true_low < true_high < high
    assert low < account.estimate(1e-6) < high
    assert 2 * epsilon_error < high - low < 2.02 * epsilon_error + 1e-3


def test_the_estimate_converges_to_the_truth() -> None:
    event = Gaussian(0.8).poisson(5e-3) * 1000
    true_low, true_high = PldAccountant(event).epsilon_interval(1e-6)
    estimate = PrvAccountant(event, epsilon_error=0.003).estimate(1e-6)
    assert true_low * (1 - 1e-6) <= estimate <= true_high * (1 + 1e-6)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"),
    [(0.5, 2e-5, 1_000_000, 1e-10), (0.5, 2e-5, 100_000, 1e-11), (1.0, 0.01, 1000, 1e-15), (1.0, 1.0, 1, 1e-300)],
)
def test_a_delta_below_the_round_off_is_refused_in_one_line(z, q, steps, delta) -> None:
    with pytest.raises(InputError, match=r'cannot certify delta .*; use "pld"') as refused:
        PrvAccountant(Gaussian(z).poisson(q) * steps).epsilon(delta)
    assert "\n" not in str(refused.value)


def test_round_off_is_paid_for_before_it_drowns_the_answer() -> None:
    event = Gaussian(0.5).poisson(2e-5) * 100_000
    low, high = PldAccountant(event).epsilon_interval(3e-8)
    own_low, own_high = PrvAccountant(event).epsilon_interval(3e-8)
    assert own_low < low < high < own_high
    assert own_high - own_low > 0.03  # more than twice the mesh's error, as the rest is round-off


@pytest.mark.slow
def test_a_long_run_has_a_coarser_mesh_and_still_a_bound() -> None:
    event = Gaussian(1.0).poisson(0.01) * 10_000_000
    low, high = PldAccountant(event).epsilon_interval(1e-5)
    own_low, own_high = PrvAccountant(event).epsilon_interval(1e-5)
    assert own_low <= low <= high <= own_high < 1.02 * high


@pytest.mark.parametrize("error", [0.0, -0.1, math.nan, math.inf])
def test_an_error_that_is_none_is_refused(error: float) -> None:
    with pytest.raises(InputError, match="epsilon_error must be"):
        PrvAccountant(Gaussian(1.0), epsilon_error=error)


@pytest.mark.parametrize("kind", [PrvAccountant, BucketsAccountant])
def test_an_event_without_a_finite_loss_is_refused_by_name(kind) -> None:
    with pytest.raises(InputError, match="infinite losses only"):
        kind(ApproximateDP(2.0, 0.7), "replace")
