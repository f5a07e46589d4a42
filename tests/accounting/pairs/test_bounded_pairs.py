"""What every pair of a bounded or discrete event must be, and its curve against the definition."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.events.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.events.laplace import BoundedRange, DiscreteLaplacePair, LaplacePair
from sfumato.accounting.loss.grid import best_offset, from_above, from_below
from sfumato.accounting.pair import FinitePair, Pair
from sfumato.accounting.sampled_pair import SampledPair
from slow import by_profile

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
def test_pairs_of_equal_value_are_equal_and_hash_alike(pair: Pair) -> None:
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
