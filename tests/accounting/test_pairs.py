"""Pairs of distributions, and their curves against the definition."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import exp, inf, log, mpf, npdf, quad

from sfumato.accounting.events.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.events.laplace import BoundedRange, DiscreteLaplacePair, LaplacePair
from sfumato.accounting.events.mixture import MixedGaussian
from sfumato.accounting.loss.grid import best_offset, from_above, from_below
from sfumato.accounting.pair import FinitePair, Labelled, Pair
from sfumato.accounting.sampled_pair import SampledGaussian, SampledPair
from slow import by_profile, slow_but

# What every pair of a bounded or discrete event must be, and its curve against the definition.


LIKELY, UNLIKELY = 0.9 / (1 + 1 / math.e), 0.9 / (1 + math.e)
CLAIM = FinitePair((-1.0, 1.0), (UNLIKELY, LIKELY), (LIKELY, UNLIKELY), only_upper=0.1, only_lower=0.1)
RESPONSE = FinitePair((-math.log(3), 0.0, math.log(3)), (0.2, 0.2, 0.6), (0.6, 0.2, 0.2))
BASES: list[Pair] = [
    LaplacePair(1.0),
    LaplacePair(30.0),
    LaplacePair(1e-6),
    BoundedRange(0.5),
    BoundedRange(20.0),
    DiscreteLaplacePair(0.3, 1),
    DiscreteLaplacePair(0.3, 5),
    DiscreteGaussianPair(0.4, 1),
    DiscreteGaussianPair(3.0, 2),
    DiscreteGaussianPair(50.0, 30),
    CLAIM,
    RESPONSE,
]
SAMPLED: list[Pair] = [
    SampledPair(direction, rate, base)
    for direction in ("remove", "add", "exchange")
    for rate, base in zip((0.01, 0.9, 0.2, 1e-6, 0.3), (BASES[0], BASES[3], BASES[6], BASES[8], CLAIM))
]
PAIRS = BASES + SAMPLED


def curve(pair: Pair, loss: float) -> float:
    """delta at e^loss, from the masses above it."""
    upper, lower, _ = pair.cells(np.array([loss, np.inf]))
    same = pair.atom() * -math.expm1(loss) if loss < 0 else 0.0
    return float(upper[0] - math.exp(loss) * lower[0]) + same


def edges_of(pair: Pair, cells: int = 997) -> np.ndarray:
    low, high = pair.span()
    return np.concatenate([[-np.inf], np.linspace(low - 1e-3, high + 1e-3, cells), [np.inf]])


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_both_sides_are_distributions(pair: Pair) -> None:
    upper, lower, _ = pair.cells(edges_of(pair))
    assert upper.min() >= 0
    assert lower.min() >= 0
    assert upper.sum() + pair.atom() == pytest.approx(1, abs=1e-13)
    assert lower.sum() + pair.atom() == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_ratio_of_the_masses_lies_between_the_ends_of_the_cell(pair: Pair) -> None:
    edges = edges_of(pair)
    upper, lower, error = pair.cells(edges)
    with np.errstate(invalid="ignore", over="ignore"):
        assert (upper[:-1] <= lower[:-1] * np.exp(edges[1:-1]) + error[:-1])[1:].all()
        assert (upper[1:-1] >= lower[1:-1] * np.exp(edges[1:-2]) * (1 - 1e-12) - error[1:-1]).all()
    assert (error[:-1] <= 1e-11 * (upper + lower)[:-1].clip(1e-300) * np.exp(np.maximum(edges[1:-1], 0))).all()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_span_holds_all_of_p_but_the_infinite_losses(pair: Pair) -> None:
    low, high = pair.span()
    upper, _, _ = pair.cells(np.array([-np.inf, low - 1e-9 * abs(low), high * (1 + 1e-9), np.inf]))
    assert upper[0] <= 1e-38 or pair.infinity() > 0
    assert upper[2] == pytest.approx(pair.infinity(), abs=1e-38)


@pytest.mark.parametrize("pair", [*BASES, *(pair for pair in SAMPLED if pair.direction == "exchange")], ids=str)
def test_a_symmetric_pair_looks_the_same_from_the_other_side(pair: Pair) -> None:
    low, high = pair.span()
    edges = np.concatenate([[-np.inf], np.linspace(low, high, 88)[1:-1] + 1e-7 * (high - low), [np.inf]])
    upper, lower, _ = pair.cells(edges)
    mirror_upper, mirror_lower, _ = pair.cells(-edges[::-1])
    np.testing.assert_allclose(upper, mirror_lower[::-1], rtol=1e-10, atol=1e-38)
    np.testing.assert_allclose(lower, mirror_upper[::-1], rtol=1e-10, atol=1e-38)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_empty_cells_are_empty(pair: Pair) -> None:
    for edge in (-np.inf, 0.1, np.inf):
        upper, lower, _ = pair.cells(np.array([edge, edge]))
        assert upper[0] == lower[0] == 0


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pairs_of_equal_value_are_equal_and_hash_similar(pair: Pair) -> None:
    twin = type(pair)(**{name: getattr(pair, name) for name in pair.__dataclass_fields__})
    assert twin == pair
    assert hash(twin) == hash(pair)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 8.0])
def test_the_laplace_curve_is_the_integral_of_the_densities(epsilon: float) -> None:
    for share in (-0.9, -0.3, 0.0, 0.5, 0.99):
        loss = share * epsilon
        with mp.workdps(30):

            def excess(x, loss=loss):
                difference = mp.exp(-abs(x)) / 2 - mp.exp(loss) * mp.exp(-abs(x - epsilon)) / 2
                return max(difference, 0)

            crossing = (epsilon - loss) / 2
            truth = float(mp.quad(excess, [-60, -1, 0, crossing, epsilon, epsilon + 60]))
        assert curve(LaplacePair(epsilon), loss) == pytest.approx(truth, rel=1e-9, abs=1e-16)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0])
def test_the_curve_of_bounded_range_is_the_worst_of_all_two_outcomes(epsilon: float) -> None:
    t = np.linspace(1e-9, 1, 20_001)[:-1] * epsilon  # losses t and t - epsilon
    high = np.expm1(epsilon - t) / np.expm1(epsilon)  # Q of the loss t
    for share in (-0.95, -0.2, 0.0, 0.3, 0.9):
        loss = share * epsilon
        gains = high * np.maximum(np.exp(t) - np.exp(loss), 0)
        gains += (1 - high) * np.maximum(np.exp(t - epsilon) - np.exp(loss), 0)
        assert curve(BoundedRange(epsilon), loss) == pytest.approx(float(gains.max()), rel=1e-6)
        assert curve(BoundedRange(epsilon), loss) >= float(gains.max()) * (1 - 1e-11)


def direct(upper: list, lower: list, loss: float) -> float:
    return float(mp.fsum(max(p - mp.exp(loss) * q, 0) for p, q in zip(upper, lower)))


def discrete_gaussian(sigma: float, shift: int) -> tuple[list, list]:
    with mp.workdps(40):
        reach = int(20 * sigma) + shift + 20
        weight = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * mp.mpf(sigma) ** 2)) for x in range(-reach - shift, reach + 1)}
        total = mp.fsum(weight.values())
        xs = range(-reach, reach + 1)
        return [weight[x] / total for x in xs], [weight[x - shift] / total for x in xs]


def discrete_laplace(rate: float, shift: int) -> tuple[list, list]:
    with mp.workdps(40):
        t = mp.exp(-mp.mpf(rate))
        xs = range(-int(90 / rate) - shift, int(90 / rate) + shift)
        return [(1 - t) / (1 + t) * t ** abs(x) for x in xs], [(1 - t) / (1 + t) * t ** abs(x - shift) for x in xs]


@pytest.mark.parametrize(("sigma", "shift"), [(0.4, 1), (1.0, 1), (3.0, 2), (9.0, 40)])
def test_the_discrete_gaussian_curve_is_the_sum(sigma: float, shift: int) -> None:
    upper, lower = discrete_gaussian(sigma, shift)
    low, high = DiscreteGaussianPair(sigma, shift).span()
    for loss in (0.2 * low, 0.0, 0.1 * high, 0.5 * high, 0.97 * high):
        truth = direct(upper, lower, loss)
        assert curve(DiscreteGaussianPair(sigma, shift), loss) == pytest.approx(truth, rel=1e-11)


@pytest.mark.parametrize(("rate", "shift"), [(2.0, 1), (0.3, 1), (0.3, 5), (0.05, 17)])
def test_the_discrete_laplace_curve_is_the_sum(rate: float, shift: int) -> None:
    upper, lower = discrete_laplace(rate, shift)
    for loss in np.array([-0.8, -0.1, 0.0, 0.4, 0.93]) * rate * shift:
        truth = direct(upper, lower, float(loss))
        assert curve(DiscreteLaplacePair(rate, shift), float(loss)) == pytest.approx(truth, rel=1e-11)


@pytest.mark.parametrize(
    ("pair", "masses"),
    [
        (DiscreteLaplacePair(0.3, 5), discrete_laplace(0.3, 5)),
        (DiscreteGaussianPair(1.0, 1), discrete_gaussian(1.0, 1)),
        (CLAIM, ([*CLAIM.upper, 0.1, 0], [*CLAIM.lower, 0, 0.1])),
        (RESPONSE, (RESPONSE.upper, RESPONSE.lower)),
    ],
    ids=str,
)
@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.6])
def test_the_curves_on_a_sample_are_those_of_the_mixtures(pair: Pair, masses: tuple[list, list], rate: float) -> None:
    upper, lower = ([mp.mpf(mass) for mass in side] for side in masses)
    mixed = [(1 - mp.mpf(rate)) * q + mp.mpf(rate) * p for p, q in zip(upper, lower)]
    mixed_lower = [(1 - mp.mpf(rate)) * p + mp.mpf(rate) * q for p, q in zip(upper, lower)]
    removed, added = SampledPair("remove", rate, pair), SampledPair("add", rate, pair)
    exchanged = SampledPair("exchange", rate, pair)
    for share in (-0.5, 0.0, 0.2, 0.9):
        loss = rate * share
        truth = direct(mixed, lower, loss)
        assert curve(removed, loss) == pytest.approx(truth, rel=1e-9, abs=2e-16)
        assert curve(added, loss) == pytest.approx(direct(upper, mixed_lower, loss), rel=1e-9, abs=2e-16)
        if loss >= 0:
            assert curve(exchanged, loss) == pytest.approx(truth, rel=1e-9, abs=2e-16)
        else:  # a symmetric curve: 1 - e^x + e^x delta(-x)
            mirrored = -math.expm1(loss) + math.exp(loss) * direct(mixed, lower, -loss)
            assert curve(exchanged, loss) == pytest.approx(mirrored, rel=1e-9, abs=2e-16)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_cells_of_tiny_losses_keep_their_digits(direction: str) -> None:
    """q = 1e-9 and losses of 1e-12, against 60 digits: what decides is Q e^edge - P, fifteen digits down."""
    rate, epsilon = 1e-9, 1e-3
    pair = SampledPair(direction, rate, LaplacePair(epsilon))
    low, high = pair.span()
    assert high == pytest.approx(1e-12, rel=1e-2)
    edges = np.linspace(low, high, 20)[1:-1]
    upper, lower, error = pair.cells(edges)
    with mp.workdps(60):
        q, e = mp.mpf(rate), mp.mpf(epsilon)

        def base_loss(edge):
            edge = mp.mpf(edge)
            return mp.log1p(mp.expm1(edge) / q) if direction == "remove" else -mp.log1p(mp.expm1(-edge) / q)

        for i in range(len(upper)):
            a, b = base_loss(float(edges[i])), base_loss(float(edges[i + 1]))
            one = (mp.exp((b - e) / 2) - mp.exp((a - e) / 2)) / 2
            two = (mp.exp((-a - e) / 2) - mp.exp((-b - e) / 2)) / 2
            p, q_mass = ((1 - q) * two + q * one, two) if direction == "remove" else (one, (1 - q) * one + q * two)
            assert abs(mp.mpf(float(upper[i])) / p - 1) < 1e-9
            ours = mp.mpf(float(lower[i])) * mp.exp(mp.mpf(float(edges[i + 1]))) - mp.mpf(float(upper[i]))
            truth = q_mass * mp.exp(mp.mpf(float(edges[i + 1]))) - p
            assert abs(ours - truth) <= float(error[i])
            assert float(error[i]) <= 1e-14 * float(upper[i])


@settings(max_examples=by_profile(30), deadline=None)
@given(st.sampled_from([pair for pair in PAIRS if pair.span()[1] > 1e-4]), st.floats(-0.5, 0.95), st.integers(5, 400))
def test_a_grid_brackets_the_curve(pair: Pair, share: float, cells: int) -> None:
    low, high = pair.span()
    gap = min((high - low) / cells, 1.0)
    loss = share * high
    offset = best_offset(pair, gap)
    truth = curve(pair, loss)
    for build, sign in ((from_above, 1), (from_below, -1)):
        atoms = build(pair, gap, offset)
        at = loss - sign * atoms.slack
        found = float((atoms.masses * np.maximum(-np.expm1(at - atoms.losses), 0)).sum())
        infinity = pair.infinity() if sign < 0 else atoms.infinity
        assert sign * (found + infinity - truth) >= -1e-12 - 1e-9 * truth


def label_curve(pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0])


def test_the_curve_is_the_mean_of_the_curves() -> None:
    parts = ((0.2, SampledGaussian("remove", 0.3, 2.0)), (0.5, SampledGaussian("add", 0.9, 0.4)))
    pair = Labelled(parts, idle=0.3)
    for epsilon in (0.0, 0.1, 0.7):
        assert label_curve(pair, epsilon) == pytest.approx(
            sum(w * label_curve(part, epsilon) for w, part in parts), rel=1e-14
        )


def test_the_curve_of_a_lottery_is_above_that_of_one_who_does_not_see_the_label() -> None:
    rng = np.random.default_rng(0)
    upper, lower = rng.dirichlet(np.ones(5), size=(2, 3))  # three pairs of distributions on five outcomes
    weights = rng.dirichlet(np.ones(3))
    for epsilon in (0.0, 0.3, 1.0):
        seen = sum(w * np.maximum(p - np.exp(epsilon) * q, 0).sum() for w, p, q in zip(weights, upper, lower))
        hidden = np.maximum(weights @ upper - np.exp(epsilon) * (weights @ lower), 0).sum()
        assert hidden <= seen + 1e-15


def test_an_atom_at_zero_puts_the_grid_there() -> None:
    exchange = SampledGaussian("exchange", 0.3, 2.0)
    pair = Labelled(((0.5, SampledGaussian("remove", 0.3, 1.0)), (0.4, exchange)), idle=0.1)
    assert pair.atom() == pytest.approx(0.1 + 0.4 * exchange.atom())
    assert pair.bulk() == 0.0
    upper, lower, _ = pair.cells(np.array([-np.inf, 0.0, np.inf]))
    assert upper.sum() + pair.atom() == pytest.approx(1.0, abs=1e-14)
    assert lower.sum() + pair.atom() == pytest.approx(1.0, abs=1e-14)


def test_it_spans_all_parts() -> None:
    narrow, wide = SampledGaussian("remove", 0.1, 0.1), SampledGaussian("remove", 0.5, 3.0)
    assert Labelled(((0.5, narrow), (0.5, wide))).span() == wide.span()
    low, high = Labelled(((1e-3, SampledGaussian("remove", 1.0, 0.001)),), idle=0.999).span()
    assert low <= 0.0 <= high


# The mixture's curve against numerical integration with mpmath, in both directions.


mp.mp.dps = 25
MIXTURES = [
    ((0.0, 1.0), (0.9, 0.1)),
    ((0.0, 0.3, 1.7), (0.5, 0.3, 0.2)),
    ((0.5, 2.0), (0.7, 0.3)),
    ((0.0, 0.01, 3.0), (0.999, 0.0009, 0.0001)),
    ((0.0, 1e-3, 0.5, 4.0), (1e-6, 0.5, 0.25, 0.249999)),
]


def integrated(direction: str, shifts: tuple[float, ...], weights: tuple[float, ...], epsilon: float) -> mpf:
    """The hockey-stick divergence: the integral of P - e^epsilon Q over where it is positive."""

    def mixed(u: mpf) -> mpf:
        return sum(mpf(w) * npdf(u - mpf(s)) for s, w in zip(shifts, weights))

    def log_ratio(u: mpf) -> mpf:
        return log(sum(mpf(w) * exp(mpf(s) * u - mpf(s) ** 2 / 2) for s, w in zip(shifts, weights)))

    sign = 1 if direction == "remove" else -1
    low, high = mpf(-60), mpf(60)
    for _ in range(90):  # the loss rises with u: halve down to where it crosses
        middle = (low + high) / 2
        low, high = (middle, high) if log_ratio(middle) < sign * epsilon else (low, middle)
    crossing = (low + high) / 2
    knots = sorted({crossing, *(mpf(u) for u in range(-14, 24, 2))})
    factor = exp(mpf(epsilon))
    if direction == "remove":
        points = [knot for knot in knots if knot >= crossing]
        return quad(lambda u: mixed(u) - factor * npdf(u), [*points, inf])
    points = [knot for knot in knots if knot <= crossing]
    return quad(lambda u: npdf(u) - factor * mixed(u), [-inf, *points])


def curve_of_a_mixture(pair: Pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0])


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("shifts", "weights"), slow_but(MIXTURES, MIXTURES[1]))
def test_the_curve_is_the_integral(shifts: tuple[float, ...], weights: tuple[float, ...], direction: str) -> None:
    pair = MixedGaussian(direction, shifts, weights)  # pyright: ignore[reportArgumentType]
    for epsilon in (-0.5, -0.01, 0.0, 0.02, 0.5, 2.0):
        truth = float(integrated(direction, shifts, weights, epsilon))
        assert curve_of_a_mixture(pair, epsilon) == pytest.approx(truth, rel=1e-11, abs=2e-15)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "shift"), [(0.3, 1.0), (1e-9, 0.7), (0.999, 3.0), (1e-4, 10.0), (1.0, 0.5)])
def test_sampling_is_the_special_case(direction: str, rate: float, shift: float) -> None:
    if rate == 1.0:
        mixture = MixedGaussian(direction, (shift,), (1.0,))  # pyright: ignore[reportArgumentType]
    else:
        mixture = MixedGaussian(direction, (0.0, shift), (1 - rate, rate))  # pyright: ignore[reportArgumentType]
    sampled = SampledGaussian(direction, rate, shift)  # pyright: ignore[reportArgumentType]
    # "1 - rate" rounds, and the mixture divides by the sum: the rates differ by 1e-16
    assert mixture.span() == pytest.approx(sampled.span(), rel=1e-7, abs=1e-15)
    edges = np.concatenate([[-np.inf], np.linspace(*sampled.span(), 301), [np.inf]])
    for ours, theirs in zip(mixture.cells(edges)[:2], sampled.cells(edges)[:2]):
        assert ours.sum() == pytest.approx(1.0, abs=1e-14)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6 if rate == 1e-9 else 1e-9, atol=1e-13)


@settings(max_examples=by_profile(60), deadline=None)
@given(
    shifts=st.lists(st.floats(1e-4, 15), min_size=1, max_size=6, unique=True),
    idle=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    direction=st.sampled_from(["remove", "add"]),
)
def test_cells_are_what_they_say(shifts: list[float], idle: bool, seed: int, direction: str) -> None:
    amounts = tuple(sorted([0.0] * idle + shifts))
    weights = np.random.default_rng(seed).dirichlet(np.full(len(amounts), 0.3)) + 1e-12
    pair = MixedGaussian(direction, amounts, tuple((weights / weights.sum()).tolist()))  # pyright: ignore[reportArgumentType]
    low, high = pair.span()
    assert low < high
    assert low <= pair.bulk() <= high
    edges = np.linspace(low - 1e-9 * (1 + abs(low)), high + 1e-9 * (1 + abs(high)), 400)
    upper, lower, error = pair.cells(np.concatenate([[-np.inf], edges, [np.inf]]))
    assert upper.sum() == pytest.approx(1, abs=1e-13)
    assert lower.sum() == pytest.approx(1, abs=1e-13)
    assert upper[0] + upper[-1] < 1e-30
    # the losses in a cell lie between its edges
    top = np.exp(edges)
    assert (lower[1:-1] * top[1:] - upper[1:-1] >= -error[1:-1] - 1e-300).all()
    inner = upper[1:-1] - lower[1:-1] * top[:-1]
    assert (inner >= -error[1:-1] - 4e-16 * upper[1:-1] - np.exp(edges[:-1]) * 1e-15 * lower[1:-1] - 1e-15).all()


def test_the_inverse_finds_losses_near_the_least_one() -> None:
    pair = MixedGaussian("remove", (0.0, 1e-3, 5.0), (0.5, 0.25, 0.25))
    floor = np.log(0.5)
    losses = floor + np.geomspace(1e-12, 1.0, 50)
    u, off = pair._observation(losses)
    reached = u > -40
    np.testing.assert_allclose(pair._loss(u[reached]), losses[reached], atol=1e-14)
    assert (off < 1e-12).all()
    assert pair._observation(np.array([floor - 1e-9, -np.inf, np.inf]))[0].tolist() == [-np.inf, -np.inf, np.inf]
