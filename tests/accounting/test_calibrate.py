import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError, calibrate, guarantee


@settings(max_examples=8, deadline=None)
@given(st.floats(0.3, 20), st.floats(1e-8, 1e-3), st.floats(1e-3, 0.5), st.integers(1, 2000))
def test_the_noise_meets_the_budget_and_a_little_less_does_not(epsilon, delta, q, n) -> None:
    def event(z):
        return Gaussian(z).poisson(q) * n

    z = calibrate(event, epsilon=epsilon, delta=delta, method="rdp")
    assert guarantee(event(z), method="rdp").epsilon(delta) <= epsilon
    assert z == 0.05 or guarantee(event(z * (1 - 1e-5)), method="rdp").epsilon(delta) > epsilon


def test_steps_are_the_most_that_fit() -> None:
    def event(n):
        return Gaussian(3.0).poisson(0.1) * n

    n = calibrate(event, epsilon=2.0, delta=1e-6, bracket=(1, 1_000_000), integer=True, method="rdp")
    assert isinstance(n, int)
    assert guarantee(event(n), method="rdp").epsilon(1e-6) <= 2.0
    assert guarantee(event(n + 1), method="rdp").epsilon(1e-6) > 2.0


def test_the_sampling_rate_is_the_largest_that_fits() -> None:
    def event(q):
        return Gaussian(1.0).poisson(q) * 100

    q = calibrate(event, epsilon=2.0, delta=1e-6, bracket=(1e-6, 1.0), method="rdp")
    assert guarantee(event(q), method="rdp").epsilon(1e-6) <= 2.0
    assert guarantee(event(q * 1.0001), method="rdp").epsilon(1e-6) > 2.0


def test_a_budget_out_of_reach_names_the_smallest_epsilon() -> None:
    smallest = guarantee(Gaussian(10) * 1000).epsilon(1e-5)
    with pytest.raises(InputError, match=f"out of reach: the smallest between 0.05 and 10 is {smallest:.6g}"):
        calibrate(lambda z: Gaussian(z) * 1000, epsilon=0.1, delta=1e-5, bracket=(0.05, 10))


def test_a_budget_that_everything_meets_returns_the_cheap_end() -> None:
    assert calibrate(lambda z: Gaussian(z), epsilon=1000, delta=1e-5, bracket=(1, 10)) == 1
    assert calibrate(lambda n: Gaussian(50) * n, epsilon=10, delta=1e-5, bracket=(1, 9), integer=True) == 9


@pytest.mark.parametrize("bracket", [(2, 1), (1, 1), (0, 1), (-1, 1)])
def test_an_impossible_bracket_is_refused(bracket) -> None:
    with pytest.raises(InputError, match="bracket"):
        calibrate(lambda z: Gaussian(z), epsilon=1, delta=1e-5, bracket=bracket)


@pytest.mark.parametrize("bracket", [(1,), None, 3, "12", (1, 2, 3), ("1", "2"), (1.2, 1.8)])
def test_a_bracket_that_holds_no_answer_is_refused(bracket) -> None:
    with pytest.raises(InputError, match="bracket"):
        calibrate(lambda n: Gaussian(10) * int(n), epsilon=1, delta=1e-5, bracket=bracket, integer=True)
