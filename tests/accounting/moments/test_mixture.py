import numpy as np
import pytest
from mpmath import exp, inf, log, mp, mpf, npdf, quad

from sfumato.accounting.events.mixture import log_excess_mixture, log_excess_revealed
from sfumato.accounting.sampled_pair import log_excess_sampled_gaussian
from slow import slow_but

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
    with mp.workdps(30):

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
