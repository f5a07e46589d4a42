import math

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError
from sfumato.accounting.gaussian_curve import GaussianAccountant, gaussian_delta_interval, gaussian_epsilon


def exact_delta(mu: float, epsilon: float) -> mp.mpf:
    """The closed form, at fifty digits."""
    with mp.workdps(50):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 10.0, 300.0])
def test_delta_is_the_closed_form_at_fifty_digits(mu: float, epsilon: float) -> None:
    exact = exact_delta(mu, epsilon)
    if exact > 1e-300:
        low, high = gaussian_delta_interval(mu, epsilon)
        assert low <= exact <= high
        assert 0.5 * (low + high) == pytest.approx(float(exact), rel=1e-9)


@given(st.floats(1e-3, 50), st.floats(1e-100, 0.3))
def test_epsilon_inverts_delta_and_rounds_up(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert epsilon == 0 or exact_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-9)


def test_composed_gaussians_are_one() -> None:
    mixed = GaussianAccountant(Gaussian(3.0) * 4 + Gaussian(4.0) * 3)
    assert mixed.mu == pytest.approx(math.sqrt(4 / 9 + 3 / 16))
    assert GaussianAccountant(Gaussian(1.0), "replace").mu == 2.0


def test_anything_but_gaussians_is_refused() -> None:
    with pytest.raises(InputError, match='method="auto"'):
        GaussianAccountant(Gaussian(1.0).poisson(0.5))


def _exact_epsilon(z: float, delta: float):
    """The root of the closed form at sixty digits, by halving."""
    mu, target = 1 / mp.mpf(z), mp.mpf(delta)

    def excess(e):
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) - target

    if excess(mp.mpf(0)) <= 0:
        return mp.mpf(0)
    low, high = mp.mpf(0), mu * mu + 60 * mu
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


@pytest.mark.parametrize("z", [0.05, 0.3, 1.0, 30.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("delta", [1e-100, 1e-12, 1e-7, 1e-6, 1e-5, 3e-4, 0.1])
def test_the_interval_holds_the_truth_at_sixty_digits(z: float, delta: float) -> None:
    low, high = GaussianAccountant(Gaussian(z)).epsilon_interval(delta)
    with mp.workdps(60):
        exact = _exact_epsilon(z, delta)
        assert low <= exact <= high
    # 32 ulp * 20 standard deviations * z: an ulp in a term is z times as much of their difference
    assert high - low <= (1e-11 + 2e-13 * z) * high + 1e-14


@pytest.mark.parametrize("z", [1e-3, 0.05, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.3, 1.0, 4.0, 20.0])
def test_the_interval_of_delta_holds_the_truth(z: float, ratio: float) -> None:
    epsilon = ratio / z * (1 + 1 / z)
    with mp.workdps(60):
        mu, e = 1 / mp.mpf(z), mp.mpf(epsilon)
        exact = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
        low, high = gaussian_delta_interval(1 / z, epsilon)
        assert low <= exact <= high


@pytest.mark.parametrize("z", [1e-200, 1e-3, 1e160, 1e300])
def test_no_size_of_noise_overflows(z: float) -> None:
    account = GaussianAccountant(Gaussian(z) * 4)
    assert account.mu == pytest.approx(2 / z, rel=1e-15)
    assert account.epsilon(1e-6) >= 0
    assert account.delta(0.0) > 0
