"""The Renyi curve of a grid against closed forms and integrals."""

import math

import mpmath as mp
import numpy as np
import pytest

from sfumato.accounting import Laplace, RandomizedResponse
from sfumato.accounting.events.discrete_gaussian import log_excess_sampled_integers
from sfumato.accounting.events.laplace import BoundedRange, LaplacePair
from sfumato.accounting.loss.renyi import renyi_of_pairs, renyi_of_pure, rho_of_pure
from sfumato.accounting.pair import FinitePair
from sfumato.accounting.sampled_pair import SampledPair, log_excess_sampled_gaussian

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
