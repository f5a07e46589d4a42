"""The table in docs/explanation/renyi-figures.md, by integration and by dp-accounting."""

import logging

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import integrate

from sfumato import accounting as acc
from sfumato.accounting.accountants import rdp

RATE, NOISE = 256 / 3400, 0.62
TABLE = {1.8: (0.051996, 0.053548), 1.9: (0.059502, 0.060306), 2.0: (0.068379, 0.068379), 2.5: (0.151213, 0.151611)}


def by_integration(order: float) -> float:
    def integrand(x: float) -> float:
        density = np.exp(-(x**2) / (2 * NOISE**2)) / (np.sqrt(2 * np.pi) * NOISE)
        return density * ((1 - RATE) + RATE * np.exp((2 * x - 1) / (2 * NOISE**2))) ** order

    return np.log(integrate.quad(integrand, -10, 15, limit=500, points=[0, 1, 2])[0]) / (order - 1)


@pytest.mark.parametrize("order", TABLE)
def test_our_bound_is_the_integral(order):
    ours = rdp(acc.Gaussian(NOISE).poisson(RATE), orders=(order,))[0]
    assert ours == pytest.approx(by_integration(order), rel=1e-6)
    assert ours == pytest.approx(TABLE[order][0], abs=6e-7)


@pytest.mark.parametrize("order", TABLE)
def test_the_other_accountants_figure_is_as_quoted(order):
    logging.disable(logging.WARNING)
    other = RdpAccountant(orders=[order])
    other.compose(dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(NOISE)))
    logging.disable(logging.NOTSET)
    assert float(np.asarray(other._rdp)[0]) == pytest.approx(TABLE[order][1], abs=6e-7)


@pytest.mark.parametrize(("rate", "quoted"), [(0.3, 96_406), (1.0, 151_773)])
def test_the_cost_of_thirty_rounds_with_little_noise_is_as_quoted(rate, quoted):
    run = acc.Gaussian(0.01).poisson(rate) if rate < 1 else acc.Gaussian(0.01)
    assert acc.guarantee(run * 30).epsilon(6e-4) == pytest.approx(quoted, abs=0.6)
