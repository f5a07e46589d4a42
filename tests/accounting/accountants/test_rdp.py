import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError, NonPrivate
from sfumato.accounting.accountants import ORDERS, RdpAccountant, rdp
from slow import by_profile

FEW = (1.1, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0, 33.0, 64.0)
multipliers = st.floats(0.3, 30)
rates = st.floats(1e-6, 0.99)


def theorem_27(z: float, size: int, population: int, order: int) -> float:
    """Wang, Balle and Kasiviswanathan 2019, Theorem 27, for a Gaussian under replacement (no pure-DP part)."""
    share, base = size / population, 2 / z**2  # epsilon(j) = j * base with the doubled sensitivity
    total = 1 + share**2 * math.comb(order, 2) * min(4 * math.expm1(2 * base), 2 * math.exp(2 * base))
    for j in range(3, order + 1):
        total += share**j * math.comb(order, j) * 2 * math.exp((j - 1) * j * base)
    return math.log(total) / (order - 1)


@settings(max_examples=by_profile(30), deadline=None)
@given(multipliers, rates)
def test_sampling_never_costs_more_and_replacement_never_less(z: float, q: float) -> None:
    for adjacency in ("add_remove", "replace"):
        sampled = rdp(Gaussian(z).poisson(q), adjacency, FEW)
        assert (sampled <= rdp(Gaussian(z), adjacency, FEW) * (1 + 1e-9)).all()
        assert (sampled >= 0).all()
    assert (rdp(Gaussian(z).poisson(q), "replace", FEW) >= rdp(Gaussian(z).poisson(q), "add_remove", FEW)).all()


@settings(max_examples=by_profile(30), deadline=None)
@given(multipliers, rates, st.floats(1.01, 3))
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
