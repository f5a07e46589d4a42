"""Two-sided bounds against integrals of the definition, other libraries and themselves."""

import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import gammaln

from sfumato.accounting import DiscreteGaussian, Gaussian, InputError, RandomizedResponse, guarantee
from sfumato.accounting.accountants import RdpAccountant
from sfumato.accounting.events import Event
from sfumato.accounting.loss.compose import Sketch, compose
from sfumato.accounting.loss.curve import Curve
from sfumato.accounting.loss.grid import best_offset, from_above, from_below
from sfumato.accounting.pair import FinitePair
from sfumato.accounting.pld import _ORDERS, PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian
from slow import by_profile, one_in, slow_but


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
