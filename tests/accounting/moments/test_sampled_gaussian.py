"""The closed forms against 32-digit integration of the definition."""

import mpmath as mp
import numpy as np
import pytest

from sfumato.accounting import Gaussian
from sfumato.accounting.sampled_pair import log_excess_replace, log_excess_sampled_gaussian
from slow import slow_but

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
@pytest.mark.parametrize(("z", "order"), [(0.001, 1.0003), (0.001, 1.00001), (0.0005, 1.0003)])
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
