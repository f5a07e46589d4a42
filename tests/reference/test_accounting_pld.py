"""Published and re-run figures of loss-distribution accountants for Gaussian events.

A figure from a pessimistic grid is an upper bound: it may lie above our interval by its own coarseness, never below.
"""

import pytest

from sfumato.accounting import Gaussian, calibrate, extrapolate, guarantee

AUTHORS = {"noise_multiplier": 0.62, "rounds": 200, "clients_per_round": 32, "users_per_client": 8}


def interval(event, delta: float, adjacency="add_remove") -> tuple[float, float]:
    return guarantee(event, adjacency, "pld").epsilon_interval(delta)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "epsilon", "coarse"),
    [
        # computed with dp_accounting's connect-the-dots, converged where a second figure is given; `coarse` is how
        # far above the truth its grid lies
        (4.0, 0.01, 10_000, 1e-5, 0.946872, 1e-4),
        (4.0, 0.01, 40_000, 1e-5, 2.0330915, 2e-4),
        (1.5, 0.04, 2250, 1e-5, 6.76878, 1e-5),
        (0.7, 0.01, 120, 1e-5, 2.4612381, 1e-4),  # tensorflow/privacy, compute_dp_sgd_privacy_test.py
        (1.3, 150 / 60_000, 6000, 1e-5, 0.64001, 1e-4),  # the same file, Test0, converged
        (3.0, 0.1, 512, 1e-6, 3.769687, 1e-4),  # google-deepmind/jax_privacy, accounting.py
        (0.5, 2e-5, 1, 1e-8, 0.05759, 1e-3),
        (0.5, 2e-5, 100, 1e-8, 0.4700928, 2e-3),
        (0.5, 2e-5, 1000, 1e-8, 0.9493281, 1e-4),  # dp_accounting at 1e-4; a prototype says 0.9493209
        (0.5, 2e-5, 100_000, 1e-8, 2.2844911, 1e-3),
        (0.8, 5e-3, 1000, 1e-6, 2.004112, 1e-4),  # microsoft/prv_accountant's README
    ],
)
def test_poisson_sampled_gaussians(z, q, steps, delta, epsilon, coarse) -> None:
    low, high = interval(Gaussian(z).poisson(q) * steps, delta)
    assert low <= epsilon * (1 + 1e-6)
    assert high >= epsilon * (1 - coarse)
    assert high - low <= 0.006 * high


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "bounds"),
    [
        (1.0, 0.01, 10_000, 1e-5, (6.17739, 6.19804)),  # prv_accountant 0.2.0, eps_error 0.01
        (1.0, 0.2, 500, 1e-5, (38.1588, 38.1817)),
        (0.8, 5e-3, 1000, 1e-6, (1.90395, 2.10399)),
    ],
)
def test_intervals_overlap_those_of_prv(z, q, steps, delta, bounds) -> None:
    low, high = interval(Gaussian(z).poisson(q) * steps, delta)
    assert low <= bounds[1]
    assert high >= bounds[0]


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "double", "long"),
    [
        (0.5, 2e-5, 1_000_000, 1e-10, 4.32436, 4.424339780136233),
        (0.5, 2e-5, 1_000_000, 1e-11, None, 5.077),
        (0.6, 1e-4, 100_000, 1e-11, 3.53155, 3.5831627686319254),
    ],
)
def test_small_deltas_do_not_drown_in_round_off(z, q, steps, delta, double, long) -> None:
    """A double-precision transform says `double`, which is too low; a pessimistic one in long double says `long`."""
    low, high = interval(Gaussian(z).poisson(q) * steps, delta)
    assert low <= long * (1 + 1e-4)
    assert high == pytest.approx(long, rel=6e-4)
    if double:
        assert low > double * 1.01
    assert high - low <= 1e-3 * high


def test_replacement_is_its_own_pair() -> None:
    low, high = interval(Gaussian(1.0).poisson(0.01) * 1000, 1e-5, "replace")
    assert low <= 2.8434458133243163
    assert high >= 2.8434458133243163 * (1 - 2e-4)
    assert high - low < 1e-3 * high


def test_a_sample_without_replacement_is_not_a_poisson_sample() -> None:
    poisson = interval(Gaussian(0.8).poisson(1e-3) * 10_000, 1e-6)
    fixed = interval(Gaussian(0.8).without_replacement(1, 1000) * 10_000, 1e-6)
    assert poisson[1] == pytest.approx(0.947, abs=2e-3)
    assert fixed == pytest.approx((15.25, 15.25), abs=0.005)


def test_deltas_of_three_steps() -> None:
    # google/differential-privacy, pld_privacy_accountant_test.py
    assert guarantee(Gaussian(0.5).poisson(0.2) * 3).delta(1.0) == pytest.approx(0.15594, rel=1e-3)


def test_attackers() -> None:
    # q=.01 sigma=1 T=1000, dp_accounting and riskcal
    promise = guarantee(Gaussian(1.0).poisson(0.01) * 1000)
    assert promise.advantage() == pytest.approx(0.1610184, rel=1e-4)
    assert 1 - float(promise.tradeoff(0.01)) == pytest.approx(0.0290997, rel=3e-3)
    assert 1 - float(promise.tradeoff(0.01)) >= 0.0290997 * (1 - 1e-5)
    assert 1 - float(guarantee(Gaussian(1.0)).tradeoff(0.01)) == pytest.approx(0.09236214, rel=1e-4)


def test_calibrated_noise() -> None:
    # google/differential-privacy, accountant_test.py: sensitivity 6, epsilon 1
    z = calibrate(lambda z: Gaussian(z).poisson(1e-3) * 25, epsilon=1.0, delta=1e-5)
    assert z == pytest.approx(3.20956502598 / 6, rel=2e-3)


@pytest.mark.parametrize(("population", "client", "user"), [(3400, 17.57, 104.9), (6800, 9.67, 64.2)])
def test_the_authors_run_of_fedemb(population: int, client: float, user: float) -> None:
    (row,) = extrapolate(**AUTHORS, populations=[population], multipliers=[1], methods=["pld"])
    assert row.epsilon["pld"] == pytest.approx(client, abs=0.0055)
    assert row.epsilon_user["pld"] == pytest.approx(user, abs=0.065)


@pytest.mark.parametrize(
    ("population", "multiplier", "client", "user"),
    [
        (3_000_000, 1, 0.225, 9.58),
        (3_000_000, 2, 0.0104, 0.50),
        (10_000_000, 1, 0.0761, 8.43),
        (10_000_000, 2, 0.00317, 0.18),
    ],
)
def test_the_extrapolated_runs_of_fedemb(population, multiplier, client, user) -> None:
    """dp-accounting's default grid says 0.011 and 0.004 for rows 2 and 4; refined ten times, 0.0104 and 0.0032."""
    (row,) = extrapolate(**AUTHORS, populations=[population], multipliers=[multiplier], methods=["pld"])
    assert row.epsilon["pld"] == pytest.approx(client, rel=6e-3)
    assert row.epsilon_user["pld"] == pytest.approx(user, abs=0.0055)
