"""Published and re-run figures for Gaussian events; the sources stand beside each row.

The rows are those of the project's collection of reference values that name a Gaussian event and Renyi, zCDP or
exact accounting. Renyi bounds depend on the orders that are tried: a denser grid gives a smaller bound, so a
published bound is an upper limit for ours, and it is met to the printed digits when the same orders are used.
"""

import pytest

from sfumato.accounting import Gaussian, guarantee
from sfumato.accounting.accountants import RdpAccountant, rdp, rho_to_epsilon

# google/differential-privacy, python/dp_accounting: the default orders of its Renyi accountant
THEIR_ORDERS = tuple([1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024])


@pytest.mark.parametrize(
    ("z", "delta", "epsilon"),
    [
        (1.0, 1e-5, 4.377178095681137),  # Balle and Wang 2018, by dp_accounting's get_epsilon_gaussian
        (1.0, 1e-6, 4.886554117462159),
        (4.0, 1e-5, 0.9263415039982288),
        (0.5, 1e-5, 9.997256146434315),  # = noise multiplier 1 under replacement
    ],
)
def test_the_gaussian_mechanism_is_exact(z: float, delta: float, epsilon: float) -> None:
    assert guarantee(Gaussian(z)).epsilon(delta) == pytest.approx(epsilon, rel=1e-10)


def test_replacement_doubles_the_gaussians_sensitivity() -> None:
    assert guarantee(Gaussian(1.0), "replace").epsilon(1e-5) == pytest.approx(9.997256146434315, rel=1e-10)


def test_composed_gaussians_are_exact() -> None:
    # google/differential-privacy, pld_privacy_accountant_test.py, test_gaussian_basic
    assert guarantee(Gaussian(3**0.5) * 3).delta(1.0) == pytest.approx(0.126936, abs=1e-6)
    # google/differential-privacy, accountant_test.py: smallest noise is 1/3
    assert guarantee(Gaussian(1 / 3)).delta(1.0) == pytest.approx(0.78760074, abs=5e-9)
    # tensorflow/privacy, compute_dp_sgd_privacy_test.py: each example once an epoch, 1.2 epochs
    assert guarantee(Gaussian(0.7) * 2).epsilon(1e-5) == pytest.approx(10.1224946, abs=5e-8)
    assert guarantee(Gaussian(0.7) * 2, method="rdp").epsilon(1e-5) == pytest.approx(10.8602036, rel=1e-4)


def test_dense_orders_of_a_gaussian() -> None:
    # google/differential-privacy, rdp_privacy_accountant_test.py, test_compute_epsilon_delta_gaussian
    orders = tuple(1 + x / 1000 for x in range(1, 99_000))
    account = RdpAccountant(Gaussian(4.530877117), orders=orders)
    assert account.epsilon(1e-6) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "epsilon", "order"),
    [
        (4.0, 0.01, 10_000, 1e-5, 1.0354900660362436, 17),  # Abadi et al. 2016's run; they report 1.26
        (1.0, 0.01, 10_000, 1e-5, 6.712756664482653, 3.8),
        (1.3, 150 / 60_000, 6000, 1e-5, 0.7242234026109595, 19),  # tensorflow/privacy, compute_dp_sgd_privacy_test.py
    ],
)
def test_sampled_gaussians_meet_published_renyi_bounds(z, q, steps, delta, epsilon, order) -> None:
    run = Gaussian(z).poisson(q) * steps
    assert RdpAccountant(run, orders=THEIR_ORDERS).epsilon(delta) == pytest.approx(epsilon, rel=1e-5)
    assert 0.98 * epsilon < guarantee(run, method="rdp").epsilon(delta) <= epsilon * (1 + 1e-9)


def test_renyi_divergences_at_single_orders() -> None:
    # google/differential-privacy, rdp_privacy_accountant_test.py. Its values at 1.5 and 2.5 (6.70579741e-04 and
    # 1.08548710e-03) are above the integral of the definition, which gives the values below at 30 digits.
    values = 50 * rdp(Gaussian(2.5).poisson(0.01), "add_remove", (1.5, 2.5, 5.0, 50.0, 100.0))
    expected = [6.50070897668e-04, 1.08541805692e-03, 2.18075656231e-03, 2.38460375e-02, 1.67416308e02]
    assert values == pytest.approx(expected, rel=3e-9)
    # yuxiangw/autodp, unit_test_dp_sgd_poisson_sampling_add_remove.py
    values = rdp(Gaussian(0.25).poisson(0.01), "add_remove", (2.0, 4.5, 128.0))
    assert values == pytest.approx([6.790784234628705, 30.079066903729597, 1019.3585686314451], rel=1e-9)


def test_tiny_noise_gives_a_finite_and_better_bound() -> None:
    # tensorflow/privacy, compute_dp_sgd_privacy_test.py: 5907982.3113984 at order 1.25, after its series gave up
    run = Gaussian(0.1).poisson(1024 / 1e8) * 976_562
    assert 500 < guarantee(run, method="rdp").epsilon(1e-7) < 2000


@pytest.mark.parametrize(("steps", "expected"), [(2250, 1.416), (2000, 1.3562)])
def test_calibration_by_renyi_bounds(steps: int, expected: float) -> None:
    # pytorch/opacus, accountants_test.py: epsilon 8 at delta 1e-5, rate 0.04, tolerance 0.01 on epsilon, its orders
    orders = tuple([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))
    epsilon = RdpAccountant(Gaussian(expected).poisson(0.04) * steps, orders=orders).epsilon(1e-5)
    assert epsilon == pytest.approx(8.0, abs=0.012)


def test_zcdp_conversions() -> None:
    # tensorflow/privacy, tree_aggregation_accountant_test.py: 8.92 at rho = 0.81 [re-run 8.9223]
    assert rho_to_epsilon(0.81, 1e-10) == pytest.approx(8.9223, abs=2e-4)
    # the same rho as a Gaussian mechanism, exactly (rho = 79/98)
    assert guarantee(Gaussian((49 / 79) ** 0.5)).epsilon(1e-10) == pytest.approx(8.526093443452087, rel=1e-9)
