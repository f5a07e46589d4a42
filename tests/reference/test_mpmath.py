"""An independent check: the curves of one step and of two steps by numerical integration with mpmath.

Nothing of the library takes part in the reference: the hockey-stick divergence of the mixture of normal densities is
integrated over the observations, at 30 digits. Two steps: the integral over the first observation of the curve of the
second one, shifted by the loss of the first.
"""

from functools import cache

import pytest
from mpmath import erfc, exp, inf, log, mp, mpf, ncdf, npdf, quad, sqrt

from sfumato.accounting import Gaussian, guarantee
from sfumato.accounting.pld import PldAccountant
from slow import slow_but

mp.dps = 30
DIRECTIONS = ("remove", "add", "replace")


def densities(direction: str, q: mpf, s: mpf):
    """P and Q at an observation u, in units of the noise."""

    def mixed(u):
        return (1 - q) * npdf(u) + q * npdf(u - s)

    def mirrored(u):
        return (1 - q) * npdf(u) + q * npdf(u + s)

    if direction == "replace":
        return mixed, mirrored
    return (mixed, npdf) if direction == "remove" else (npdf, mixed)


def loss(direction: str, q: mpf, s: mpf, u: mpf) -> mpf:
    def one(x):
        return log(1 - q + q * exp(s * x - s * s / 2))

    if direction == "replace":
        return one(u) - one(-u)
    return one(u) if direction == "remove" else -one(u)


def tails(direction: str, q: mpf, s: mpf, u: mpf) -> tuple[mpf, mpf]:
    """P and Q of the observations whose loss is above that of u."""

    def upper(x):
        return erfc(x / sqrt(mpf(2))) / 2

    def mixed(x):
        return (1 - q) * upper(x) + q * upper(x - s)

    if direction == "replace":
        return mixed(u), (1 - q) * upper(u) + q * upper(u + s)
    if direction == "remove":
        return mixed(u), upper(u)
    return ncdf(u), (1 - q) * ncdf(u) + q * ncdf(u - s)


def observation(direction: str, q: mpf, s: mpf, epsilon: mpf) -> mpf:
    """The u whose loss is epsilon; for replacement from a quadratic equation in e^(s u)."""
    if direction == "replace":
        ratio, c = exp(epsilon), q * exp(-s * s / 2)
        b = (1 - q) * (1 - ratio)
        return log((-b + sqrt(b * b + 4 * c * c * ratio)) / (2 * c)) / s
    ratio = exp(epsilon if direction == "remove" else -epsilon)
    return (log((ratio - 1 + q) / q) + s * s / 2) / s


def single(direction: str, q: mpf, s: mpf, epsilon: mpf) -> mpf:
    """The hockey-stick divergence at any real epsilon; the loss is monotone in u."""
    floor = log(1 - q)
    if direction == "remove" and epsilon <= floor:
        return 1 - exp(epsilon)
    if direction == "add" and epsilon >= -floor:
        return mpf(0)
    u = observation(direction, q, s, epsilon)
    p, other = tails(direction, q, s, u)
    return p - exp(epsilon) * other


@cache
def by_quadrature(direction: str, q: float, z: float, epsilon: float, steps: int) -> mpf:
    rate, s = mpf(q), 1 / mpf(z)
    p, other = densities(direction, rate, s)
    grid = [mpf(point) for point in range(-14, 15)] + [s + 15]
    if steps == 1:  # the definition itself, without the closed form

        def positive(u):
            value = p(u) - exp(mpf(epsilon)) * other(u)
            return value if value > 0 else mpf(0)

        known = direction != "add" or epsilon < -log(1 - rate)
        cut = sorted([*grid, observation(direction, rate, s, mpf(epsilon))]) if known else grid
        return quad(positive, [-inf, *cut, inf])
    return quad(
        lambda u: p(u) * single(direction, rate, s, mpf(epsilon) - loss(direction, rate, s, u)),
        sorted(grid),
        maxdegree=5,
    )


def true_delta(direction: str, q: float, z: float, epsilon: float, steps: int) -> mpf:
    if steps == 1:
        return single(direction, mpf(q), 1 / mpf(z), mpf(epsilon))
    return by_quadrature(direction, q, z, epsilon, steps)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("q", "z"), slow_but([(0.1, 1.0), (0.5, 0.7), (0.01, 2.0)], (0.1, 1.0)))
@pytest.mark.parametrize("epsilon", slow_but([0.0, 0.3, 1.0], 0.3))
def test_the_closed_form_of_one_step_is_the_integral(direction: str, q: float, z: float, epsilon: float) -> None:
    expected = by_quadrature(direction, q, z, epsilon, 1)
    assert abs(single(direction, mpf(q), 1 / mpf(z), mpf(epsilon)) - expected) <= 1e-12 * expected + mpf(10) ** -36


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("q", "z"), slow_but([(0.1, 1.0), (0.5, 0.7), (0.01, 2.0)], (0.1, 1.0)))
@pytest.mark.parametrize("epsilon", slow_but([0.0, 0.05, 0.3], 0.3))
def test_delta_is_between_the_bounds(adjacency: str, steps: int, q: float, z: float, epsilon: float) -> None:
    directions = ("replace",) if adjacency == "replace" else ("remove", "add")
    truth = max(true_delta(direction, q, z, epsilon, steps) for direction in directions)
    low, high = PldAccountant(Gaussian(z).poisson(q) * steps, adjacency).delta_interval(epsilon)
    assert low <= truth * (1 + mpf(10) ** -11)
    assert high >= truth * (1 - mpf(10) ** -11)
    assert high - low <= 0.005 * high + 1e-15


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    ("q", "z", "delta"), slow_but([(0.1, 1.0, 1e-5), (0.5, 0.7, 1e-8), (0.01, 2.0, 1e-6)], (0.1, 1.0, 1e-5))
)
def test_epsilon_is_between_the_bounds(adjacency: str, steps: int, q: float, z: float, delta: float) -> None:
    """At the two ends of the interval for epsilon, the true delta is at least, and at most, the given one."""
    directions = ("replace",) if adjacency == "replace" else ("remove", "add")
    low, high = guarantee(Gaussian(z).poisson(q) * steps, adjacency, "pld").epsilon_interval(delta)
    at_low, at_high = (
        max(true_delta(direction, q, z, epsilon, steps) for direction in directions) for epsilon in (low, high)
    )
    assert at_low >= delta * (1 - 1e-9) or low == 0.0
    assert at_high <= delta * (1 + 1e-9)
    assert high - low <= 2e-3 * high
