"""The mixture's curve against numerical integration with mpmath, in both directions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import exp, inf, log, mp, mpf, npdf, quad

from sfumato.accounting.events.mixture import MixedGaussian
from sfumato.accounting.pair import Pair
from sfumato.accounting.sampled_pair import SampledGaussian
from slow import by_profile, slow_but

mp.dps = 25
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


def curve(pair: Pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0])


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("shifts", "weights"), slow_but(MIXTURES, MIXTURES[1]))
def test_the_curve_is_the_integral(shifts: tuple[float, ...], weights: tuple[float, ...], direction: str) -> None:
    pair = MixedGaussian(direction, shifts, weights)  # pyright: ignore[reportArgumentType]
    for epsilon in (-0.5, -0.01, 0.0, 0.02, 0.5, 2.0):
        truth = float(integrated(direction, shifts, weights, epsilon))
        assert curve(pair, epsilon) == pytest.approx(truth, rel=1e-11, abs=2e-15)


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
