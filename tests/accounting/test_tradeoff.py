import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from sfumato.accounting import Composition, Gaussian, InputError, guarantee

RATES = np.array([0.0, 1e-6, 0.01, 0.1, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
def test_the_gaussians_tradeoff_is_the_closed_form(z: float) -> None:
    found = guarantee(Gaussian(z)).tradeoff(RATES)
    truth = ndtr(ndtri(1 - RATES) - 1 / z)
    assert (found <= truth + 1e-12).all()
    assert found == pytest.approx(truth, abs=2e-4)


def test_every_method_bounds_the_same_attacker() -> None:
    event = Gaussian(1.0).poisson(0.01) * 1000
    tight = guarantee(event, method="pld").tradeoff(RATES)
    loose = guarantee(event, method="rdp").tradeoff(RATES)
    assert (loose <= tight + 1e-6).all()
    assert (np.diff(tight) <= 1e-12).all()
    assert (tight >= 0).all()
    assert (tight <= 1 - RATES + 1e-12).all()


def test_the_equivalent_gaussian_is_no_more_private() -> None:
    promise = guarantee(Gaussian(1.0).poisson(0.05) * 300)
    fit = promise.gdp()
    rates = np.linspace(0.001, 0.999, 200)
    assert (ndtr(ndtri(1 - rates) - fit.mu) <= promise.tradeoff(rates) + 1e-9).all()
    assert fit.regret > 0  # a sampled Gaussian is not a Gaussian
    assert guarantee(Gaussian(2.0) * 4).gdp().mu == pytest.approx(1.0)


def test_nothing_released_leaves_the_attacker_guessing() -> None:
    assert guarantee(Composition(())).tradeoff(RATES) == pytest.approx(1 - RATES)
    assert guarantee(Composition(())).advantage() == 0


def test_an_impossible_rate_is_refused() -> None:
    with pytest.raises(InputError, match="fpr must be in"):
        guarantee(Gaussian(1.0)).tradeoff(1.5)
