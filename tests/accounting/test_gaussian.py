import math

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError
from sfumato.accounting.gaussian import GaussianAccountant, gaussian_delta, gaussian_epsilon


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 10.0, 300.0])
def test_delta_is_the_closed_form_at_fifty_digits(mu: float, epsilon: float) -> None:
    with mp.workdps(50):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
    if exact > 1e-300:
        assert gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9)


@given(st.floats(1e-3, 50), st.floats(1e-100, 0.3))
def test_epsilon_inverts_delta_and_rounds_up(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert epsilon == 0 or gaussian_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-9)


def test_composed_gaussians_are_one() -> None:
    mixed = GaussianAccountant(Gaussian(3.0) * 4 + Gaussian(4.0) * 3)
    assert mixed.mu == pytest.approx(math.sqrt(4 / 9 + 3 / 16))
    assert GaussianAccountant(Gaussian(1.0), "replace").mu == 2.0


def test_anything_but_gaussians_is_refused() -> None:
    with pytest.raises(InputError, match='method="auto"'):
        GaussianAccountant(Gaussian(1.0).poisson(0.5))
