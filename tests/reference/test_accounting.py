"""Costs against published numbers, other libraries and integrals of high precision."""

import csv
import json
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant
from dp_accounting.rdp import RdpAccountant as OtherRdpAccountant
from mpmath import erfc, exp, inf, log, mp, mpf, ncdf, npdf, quad, sqrt
from scipy import integrate
from scipy.optimize import brentq

from sfumato import accounting as acc
from sfumato.accounting import (
    ZCDP,
    ApproximateDP,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    RandomizedResponse,
    TreeAggregation,
    TruncatedPoisson,
    calibrate,
    guarantee,
)
from sfumato.accounting.accountants import RdpAccountant, rdp, rho_to_epsilon
from sfumato.accounting.events.votes import NoisyVote
from sfumato.accounting.pair import Labelled, Pair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian
from sfumato.federated import FedEmb
from sfumato.report import extrapolate
from sfumato.voting.data_dependent import VoteSensitivity, log_union, theorem6, to_epsilon, vote_cost
from slow import slow_but

# Costs against published numbers and other libraries.

# Published and re-run figures for Gaussian events; the sources stand beside each row.
#
# The rows are those of the project's collection of reference values that name a Gaussian event and Renyi, zCDP or
# exact accounting. Renyi bounds depend on the orders that are tried: a denser grid gives a smaller bound, so a
# published bound is an upper limit for ours, and it is met to the printed digits when the same orders are used.

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


# Published and re-run figures of loss-distribution accountants for Gaussian events.
#
# A figure from a pessimistic grid is an upper bound: it may lie above our interval by its own coarseness, never
# below.
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


# The figures of the authors' EMNIST run of DP-FedEmb (Xu et al. 2022), and what they extrapolate to.
#
# 32 virtual clients of 8 users a round, 200 rounds, noise multiplier 0.62, delta = N^-1.1, Poisson sampling, the
# paper's convention. The Renyi figures were computed with dp-accounting 0.6 and its default orders: our denser orders
# may only be below them, and with its orders we meet them, except where its series for fractional orders overshoots
# the integral of the definition (the first row, by 1.5 %).
def run(population: float, factor: float = 1.0):
    return Gaussian(0.62 * factor).poisson(factor * 256 / population) * 200, population**-1.1


@pytest.mark.parametrize(
    ("population", "factor", "epsilon", "tolerance"),
    [
        (3400, 1, 20.35, 0.016),
        (6800, 1, 11.32, 0.002),
        (3e6, 1, 2.10, 0.0025),
        (3e6, 2, 0.486, 0.001),
        (1e7, 1, 1.98, 0.0025),
        (1e7, 2, 0.460, 0.001),
    ],
)
def test_the_renyi_figures(population: float, factor: float, epsilon: float, tolerance: float) -> None:
    event, delta = run(population, factor)
    with_their_orders = RdpAccountant(event, orders=THEIR_ORDERS).epsilon(delta)
    assert with_their_orders == pytest.approx(epsilon, rel=tolerance)
    ours = guarantee(event, method="rdp").epsilon(delta)
    assert 0.97 * epsilon < ours <= max(epsilon * 1.0025, with_their_orders)


def test_the_extrapolation_gives_the_same_rows() -> None:
    rows = extrapolate(
        noise_multiplier=0.62,
        rounds=200,
        clients_per_round=32,
        users_per_client=8,
        populations=[3_000_000, 10_000_000],
        multipliers=[1, 2],
        methods=["rdp"],
    )
    for row in rows:
        event, delta = run(row.population, row.multiplier)
        assert row.epsilon["rdp"] == pytest.approx(guarantee(event, method="rdp").epsilon(delta), rel=1e-9)


# Published figures of the two accountants that are there for comparison.
@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "error", "low", "estimate", "high"),
    [
        # computed with prv_accountant 0.2.0
        (1.0, 0.01, 10_000, 1e-5, 0.01, 6.17739, 6.187713571964049, 6.19804),
        (0.8, 5e-3, 1000, 1e-6, 0.1, 1.90395, 2.0039705566345853, 2.10399),  # the command in its README
        (1.0, 0.2, 500, 1e-5, 0.01, 38.1588, 38.170242732805704, 38.1817),
        # pytorch/opacus, accountants_test.py, test_prv_accountant
        (1.5, 0.04, 2249, 1e-5, 0.01, None, None, 6.777395712150674),
    ],
)
def test_prv_meets_the_authors_program_within_a_mesh(z, q, steps, delta, error, low, estimate, high) -> None:
    account = PrvAccountant(Gaussian(z).poisson(q) * steps, epsilon_error=error)
    own_low, own_high = account.epsilon_interval(delta)
    mesh = error / math.sqrt(steps / 2 * math.log(12 / (delta / 1000)))  # where the grid lies is up to a program
    printed = 5e-6 if low is None else 5.1e-5 if high > 10 else 5.1e-6
    assert own_high == pytest.approx(high, abs=mesh + printed)
    if low is not None:
        assert own_low == pytest.approx(low, abs=mesh + printed)
        assert account.estimate(delta) == pytest.approx(estimate, abs=mesh)


def test_buckets_against_the_fourier_accountant() -> None:
    """DPBayes/PLD-Accountant, README: (0.69808, 1.13391) with 2e7 bins on [-20, 20].

    It does not round losses: it bounds their density from both sides in every bin and so multiplies the masses of a
    step by 1 + d and 1 - d, with d the largest density times the bin. Ten thousand steps multiply delta by e^3.4 and
    e^-3.4. That explains both ends; rounding losses on the same grid costs 0.01 instead of 0.19.
    """
    steps, delta, gap, z, q = 10_000, 1e-5, 2 * 20 / 2e7, 4.0, 0.01
    event = Gaussian(z).poisson(q) * steps
    truth = PldAccountant(event)
    own_low, own_high = BucketsAccountant(event, gap=gap).epsilon_interval(delta)
    assert 0.69808 < own_low < truth.epsilon_interval(delta)[0]
    assert truth.epsilon_interval(delta)[1] < own_high < 1.1339061240664539
    assert own_high - own_low == pytest.approx(steps * gap, rel=0.01)

    def density(loss: float) -> float:
        u = z * math.log1p(math.expm1(loss) / q) + 1 / (2 * z)
        masses = (1 - q) * math.exp(-u * u / 2) + q * math.exp(-((u - 1 / z) ** 2) / 2)
        return masses / math.sqrt(2 * math.pi) * z * math.exp(loss) / (math.expm1(loss) + q)

    peak = brentq(lambda loss: density(loss + 1e-7) - density(loss - 1e-7), -0.004, 0.0)
    grown = density(peak) * gap * steps
    assert truth.epsilon(delta * math.exp(-grown)) == pytest.approx(1.13391, abs=steps * gap)
    assert truth.epsilon(delta * math.exp(grown)) == pytest.approx(0.69808, abs=steps * gap)


def test_the_figure_in_the_docs_supports_what_its_page_says() -> None:
    file = Path(__file__).parents[2] / "docs" / "images" / "accountants.json"
    drawn = json.loads(file.read_text(encoding="utf-8"))
    points = {point["steps"]: point for point in drawn["points"]}
    for steps, point in points.items():
        low, high = point["pld"]["lower"], point["pld"]["upper"]
        assert 0 < low <= high < 1.0005 * low
        assert low <= min(point["buckets"]["upper"], point["rdp"]["upper"])
        assert ("upper" in point["prv"]) is (steps < 100_000)
        if "upper" in point["prv"]:
            assert point["prv"]["lower"] < low < high < point["prv"]["upper"]
            assert point["prv"]["estimate"] == pytest.approx(high, rel=1e-3)
    million = points[1_000_000]
    assert million["rdp"]["upper"] == pytest.approx(1.39 * million["pld"]["upper"], rel=0.01)
    assert million["buckets"]["upper"] > max(2 * million["pld"]["upper"], million["rdp"]["upper"])
    assert points[100_000]["buckets"]["upper"] == pytest.approx(1.15 * points[100_000]["pld"]["upper"], rel=0.01)
    setting = drawn["setting"]
    event = Gaussian(setting["noise_multiplier"]).poisson(setting["sampling_rate"]) * 1000
    low, high = guarantee(event, method="pld").epsilon_interval(setting["delta"])
    assert low <= points[1000]["pld"]["upper"]
    assert points[1000]["pld"]["lower"] <= high


# What the authors' EMNIST run costs: the table in recipes/fedemb_emnist/README.md, from the default plan.
README = Path(__file__).resolve().parents[2] / "recipes" / "fedemb_emnist" / "README.md"
TABLE = [(3400, 20.03, 17.57, 104.9), (6800, 11.30, 9.67, 64.2)]


@pytest.mark.parametrize(("population", "renyi", "exact", "one_user"), TABLE)
def test_the_cost_of_the_authors_run(population, renyi, exact, one_user):
    private_sum = FedEmb(noise=0.62).private_sum(population)
    delta = population**-1.1
    client, user = private_sum.contributor_event(200), private_sum.event(200)
    assert acc.guarantee(client, method="rdp").epsilon(delta) == pytest.approx(renyi, abs=0.006)
    assert acc.guarantee(client, method="pld").epsilon(delta) == pytest.approx(exact, abs=0.006)
    assert acc.guarantee(user, method="pld").epsilon(delta) == pytest.approx(one_user, abs=0.06)
    row = f"| {population:,} | {renyi:.2f} | {exact:.2f} | {one_user:.1f} |"
    assert row in README.read_text()


# The table in docs/explanation/renyi-figures.md, by integration and by dp-accounting.
RATE, NOISE = 256 / 3400, 0.62
FIGURES = {1.8: (0.051996, 0.053548), 1.9: (0.059502, 0.060306), 2.0: (0.068379, 0.068379), 2.5: (0.151213, 0.151611)}


def by_integration(order: float) -> float:
    def integrand(x: float) -> float:
        density = np.exp(-(x**2) / (2 * NOISE**2)) / (np.sqrt(2 * np.pi) * NOISE)
        return density * ((1 - RATE) + RATE * np.exp((2 * x - 1) / (2 * NOISE**2))) ** order

    return np.log(integrate.quad(integrand, -10, 15, limit=500, points=[0, 1, 2])[0]) / (order - 1)


@pytest.mark.parametrize("order", FIGURES)
def test_our_bound_is_the_integral(order):
    ours = rdp(acc.Gaussian(NOISE).poisson(RATE), orders=(order,))[0]
    assert ours == pytest.approx(by_integration(order), rel=1e-6)
    assert ours == pytest.approx(FIGURES[order][0], abs=6e-7)


@pytest.mark.parametrize("order", FIGURES)
def test_the_other_accountants_figure_is_as_quoted(order):
    logging.disable(logging.WARNING)
    other = OtherRdpAccountant(orders=[order])
    other.compose(dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(NOISE)))
    logging.disable(logging.NOTSET)
    assert float(np.asarray(other._rdp)[0]) == pytest.approx(FIGURES[order][1], abs=6e-7)


@pytest.mark.parametrize(("rate", "quoted"), [(0.3, 96_406), (1.0, 151_773)])
def test_the_cost_of_thirty_rounds_with_little_noise_is_as_quoted(rate, quoted):
    run = acc.Gaussian(0.01).poisson(rate) if rate < 1 else acc.Gaussian(0.01)
    assert acc.guarantee(run * 30).epsilon(6e-4) == pytest.approx(quoted, abs=0.6)


# Truncated Poisson sampling: the value in dp-accounting's tests, and how far below it the bound here lies.
#
# Source: google/differential-privacy, pld_privacy_accountant_test.py, test_truncated_subsampled_gaussian_basic: data
# sets of 4 and 3 units, rate 1/2, batches of at most 2, noise multiplier 1, three and two steps: epsilon 17.90433 at
# delta 1e-6. For a full batch they take the pair of a replacement, (1-r) N(0) + r N(2) against (1-r) N(0) + r N(-2),
# which a comment there calls slightly loose. Here it is (1-r) N(0) + r N(2) against N(0).
EPSILON, DELTA = 17.90433, 1e-6
STEPS = ((TruncatedPoisson(Gaussian(1.0), 0.5, 2, 4), 3), (TruncatedPoisson(Gaussian(1.0), 0.5, 2, 3), 2))


@dataclass(frozen=True)
class AsPublished(Event):
    step: TruncatedPoisson

    def pairs(self, adjacency: str) -> tuple[Pair, ...]:
        full = self.step.chance_of_full_batch
        exchanged = SampledGaussian("replace", self.step.rate_in_full_batch, 2.0)
        return tuple(
            Labelled(((1 - full, SampledGaussian(direction, 0.5, 1.0)), (full, exchanged)))
            for direction in ("remove", "add")
        )

    def renyi(self, orders: np.ndarray, adjacency: str) -> np.ndarray:
        return self.step.event.renyi(orders, "replace")


def test_with_their_pair_the_published_value_comes_out() -> None:
    run = AsPublished(STEPS[0][0]) * 3 + AsPublished(STEPS[1][0]) * 2
    low, high = PldAccountant(run).epsilon_interval(DELTA)
    assert low < EPSILON < high
    assert high - low < 1e-3 * EPSILON


def test_the_proven_pair_is_tighter() -> None:
    run = STEPS[0][0] * 3 + STEPS[1][0] * 2
    low, high = PldAccountant(run).epsilon_interval(DELTA)
    assert 16.45 < low < high < 16.46 < EPSILON
    assert high == pytest.approx(16.455, abs=5e-3)


# Published figures of noisy votes.
#
# Papernot et al. 2018 (arXiv 1802.08908): tensorflow/privacy, research/pate_2018, core.py and the test of
# smooth_sensitivity.py. Values from core.py were computed with its long list of orders and the classic conversion.
REFERENCES = Path(__file__).parents[3] / "shared" / "references" / "accounting.csv"
ORDERS = tuple(np.concatenate([np.arange(2, 101, 0.5), np.logspace(2, np.log10(500), 100)]).tolist())


def epsilon(counts, bound):
    votes = np.tile(np.array(counts, dtype=float), (1000, 1))
    cost = vote_cost(votes, NoisyVote(40.0), "replace", orders=ORDERS, bound=bound)
    return cost.epsilon(1e-5, "classic").value


@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ([250] + [0] * 9, 0.5523),
        ([225, 25] + [0] * 8, 1.0047813704018844),
        ([200, 50] + [0] * 8, 2.9919107697363456),
    ],
)
def test_gnmax_data_dependent(counts, published):
    digits = len(str(published).split(".")[1])
    assert round(epsilon(counts, "theorem6"), min(digits, 10)) == round(published, min(digits, 10))
    assert epsilon(counts, "best") < published


@pytest.mark.shared
@pytest.mark.skipif(not REFERENCES.exists(), reason="needs ../shared/references")
def test_every_row_of_the_table_that_names_gnmax():
    rows = [row for row in csv.DictReader(REFERENCES.open()) if row["mechanism"].startswith("GNMax")]
    assert len(rows) == 2
    for row in rows:
        first, second = re.search(r"\[(\d+),(\d+),0x8\]", row["params"]).groups()  # pyright: ignore
        assert epsilon([int(first), int(second)] + [0] * 8, "theorem6") == pytest.approx(
            float(row["epsilon"]), rel=1e-12
        )


def test_gnmax_data_independent():
    orders = ORDERS
    curve = 1000 * rdp(NoisyVote(40.0), "replace", orders)
    assert round(to_epsilon(curve, np.array(orders), 1e-5, "classic"), 4) == 5.9959


def test_local_sensitivity_going_right():
    # The published list goes on with its plateau from distance 3; there the authors stop using Theorem 6 where it
    # still holds, so their cost jumps and ours does not.
    published = np.array([3.13503646e-17, 1.60178280e-08, 5.90681786e-03])
    sensitivity = VoteSensitivity(NoisyVote(0.5), "replace", classes=3, order=1.5, bound="theorem6")
    ours = sensitivity.local([[10, 0, 0]], 10)
    assert (ours[:3] >= published).all()
    assert (ours[:3] <= 1.06 * published).all()
    assert (ours[3:] <= 5.99981308).all()


def test_local_sensitivity_going_left():
    published = np.array([2.77693450548e-7, 2.10853979548e-6, 2.73113623988e-6])
    sensitivity = VoteSensitivity(NoisyVote(250.0), "replace", classes=5, order=10.0, bound="theorem6")
    ours = sensitivity.local([[1000, 500, 300, 200, 0]], 2000)
    assert (ours[:298] == 0).all()
    assert (ours[298:301] >= published).all()
    assert (ours[298:] <= np.array([1.2 * published[0], 1.02 * published[1]] + [1.03 * published[2]] * 1700)).all()


# An independent check: the curves of one step and of two steps by numerical integration with mpmath.
#
# Nothing of the library takes part in the reference: the hockey-stick divergence of the mixture of normal densities
# is integrated over the observations, at 30 digits. Two steps: the integral over the first observation of the curve
# of the second one, shifted by the loss of the first.
mp.dps = 30
DIRECTIONS = ("remove", "add", "replace")


def densities(direction: str, q: mpf, s: mpf):
    """P and Q at an observation u, in units of the noise."""

    def mixed(u):
        return (1 - q) * npdf(u) + q * npdf(u - s)

    def mirrored(u):
        return (1 - q) * npdf(u) + q * npdf(u + s)

    if direction == "replace":
        return mixed, mirrored
    return (mixed, npdf) if direction == "remove" else (npdf, mixed)


def loss(direction: str, q: mpf, s: mpf, u: mpf) -> mpf:
    def one(x):
        return log(1 - q + q * exp(s * x - s * s / 2))

    if direction == "replace":
        return one(u) - one(-u)
    return one(u) if direction == "remove" else -one(u)


def tails(direction: str, q: mpf, s: mpf, u: mpf) -> tuple[mpf, mpf]:
    """P and Q of the observations whose loss is above that of u."""

    def upper(x):
        return erfc(x / sqrt(mpf(2))) / 2

    def mixed(x):
        return (1 - q) * upper(x) + q * upper(x - s)

    if direction == "replace":
        return mixed(u), (1 - q) * upper(u) + q * upper(u + s)
    if direction == "remove":
        return mixed(u), upper(u)
    return ncdf(u), (1 - q) * ncdf(u) + q * ncdf(u - s)


def observation(direction: str, q: mpf, s: mpf, epsilon: mpf) -> mpf:
    """The u whose loss is epsilon; for replacement from a quadratic equation in e^(s u)."""
    if direction == "replace":
        ratio, c = exp(epsilon), q * exp(-s * s / 2)
        b = (1 - q) * (1 - ratio)
        return log((-b + sqrt(b * b + 4 * c * c * ratio)) / (2 * c)) / s
    ratio = exp(epsilon if direction == "remove" else -epsilon)
    return (log((ratio - 1 + q) / q) + s * s / 2) / s


def single(direction: str, q: mpf, s: mpf, epsilon: mpf) -> mpf:
    """The hockey-stick divergence at any real epsilon; the loss is monotone in u."""
    floor = log(1 - q)
    if direction == "remove" and epsilon <= floor:
        return 1 - exp(epsilon)
    if direction == "add" and epsilon >= -floor:
        return mpf(0)
    u = observation(direction, q, s, epsilon)
    p, other = tails(direction, q, s, u)
    return p - exp(epsilon) * other


@cache
def by_quadrature(direction: str, q: float, z: float, epsilon: float, steps: int) -> mpf:
    rate, s = mpf(q), 1 / mpf(z)
    p, other = densities(direction, rate, s)
    grid = [mpf(point) for point in range(-14, 15)] + [s + 15]
    if steps == 1:  # the definition itself, without the closed form

        def positive(u):
            value = p(u) - exp(mpf(epsilon)) * other(u)
            return value if value > 0 else mpf(0)

        known = direction != "add" or epsilon < -log(1 - rate)
        cut = sorted([*grid, observation(direction, rate, s, mpf(epsilon))]) if known else grid
        return quad(positive, [-inf, *cut, inf])
    return quad(
        lambda u: p(u) * single(direction, rate, s, mpf(epsilon) - loss(direction, rate, s, u)),
        sorted(grid),
        maxdegree=5,
    )


def true_delta(direction: str, q: float, z: float, epsilon: float, steps: int) -> mpf:
    if steps == 1:
        return single(direction, mpf(q), 1 / mpf(z), mpf(epsilon))
    return by_quadrature(direction, q, z, epsilon, steps)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("q", "z"), slow_but([(0.1, 1.0), (0.5, 0.7), (0.01, 2.0)], (0.1, 1.0)))
@pytest.mark.parametrize("epsilon", slow_but([0.0, 0.3, 1.0], 0.3))
def test_the_closed_form_of_one_step_is_the_integral(direction: str, q: float, z: float, epsilon: float) -> None:
    expected = by_quadrature(direction, q, z, epsilon, 1)
    assert abs(single(direction, mpf(q), 1 / mpf(z), mpf(epsilon)) - expected) <= 1e-12 * expected + mpf(10) ** -36


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("q", "z"), slow_but([(0.1, 1.0), (0.5, 0.7), (0.01, 2.0)], (0.1, 1.0)))
@pytest.mark.parametrize("epsilon", slow_but([0.0, 0.05, 0.3], 0.3))
def test_delta_is_between_the_bounds(adjacency: str, steps: int, q: float, z: float, epsilon: float) -> None:
    directions = ("replace",) if adjacency == "replace" else ("remove", "add")
    truth = max(true_delta(direction, q, z, epsilon, steps) for direction in directions)
    low, high = PldAccountant(Gaussian(z).poisson(q) * steps, adjacency).delta_interval(epsilon)
    assert low <= truth * (1 + mpf(10) ** -11)
    assert high >= truth * (1 - mpf(10) ** -11)
    assert high - low <= 0.005 * high + 1e-15


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("steps", slow_but([1, 2], 1))
@pytest.mark.parametrize(
    ("q", "z", "delta"), slow_but([(0.1, 1.0, 1e-5), (0.5, 0.7, 1e-8), (0.01, 2.0, 1e-6)], (0.1, 1.0, 1e-5))
)
def test_epsilon_is_between_the_bounds(adjacency: str, steps: int, q: float, z: float, delta: float) -> None:
    """At the two ends of the interval for epsilon, the true delta is at least, and at most, the given one."""
    directions = ("replace",) if adjacency == "replace" else ("remove", "add")
    low, high = guarantee(Gaussian(z).poisson(q) * steps, adjacency, "pld").epsilon_interval(delta)
    at_low, at_high = (
        max(true_delta(direction, q, z, epsilon, steps) for direction in directions) for epsilon in (low, high)
    )
    assert at_low >= delta * (1 - 1e-9) or low == 0.0
    assert at_high <= delta * (1 + 1e-9)
    assert high - low <= 2e-3 * high


# Every row of the collection of published values that names a mechanism which is accounted here.
#
# The collection is `../shared/references/accounting.csv`; each row is found by its first two columns. What is
# published
# is met at its printed digits where the same bound is computed. A published upper bound may lie above ours by its own
# coarseness, never below our lower bound; for such rows the test states how coarse it is. Rows whose mechanism is not
# accounted are listed by name, so that a new row cannot be passed over in silence.

CSV = Path(__file__).parents[2].parent / "shared" / "references" / "accounting.csv"
OPACUS_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *(float(order) for order in range(12, 64)))
DENSE_ORDERS = tuple(1 + thousandth / 1000 for thousandth in range(1, 99_000))

Check = Callable[[str, float | None], None]


def within(event: acc.Event, adjacency="add_remove", coarse: float = 2e-4, low_by: float = 0.0) -> Check:
    """The published epsilon is an upper bound that is at most `coarse` (relative) above the truth."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        low, high = guarantee(event, adjacency).epsilon_interval(delta)
        epsilon, digit = float(printed), last_digit(printed)
        assert low <= epsilon * (1 + low_by) + digit
        assert high >= (epsilon - digit) * (1 - coarse)
        assert high <= (epsilon + digit) * (1 + 1.1e-3)  # and our own bound is no worse

    return check


def exact(event: acc.Event, adjacency="add_remove", method="auto") -> Check:
    """The published epsilon at its printed digits (twelve at most)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        epsilon = guarantee(event, adjacency, method).epsilon(delta)
        assert epsilon == pytest.approx(float(printed), rel=1e-9, abs=last_digit(printed))

    return check


def delta_at(event: acc.Event, relative: float = 0.0) -> Check:
    """The published delta (third column) at the epsilon (fourth column)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        found = guarantee(event).delta(float(printed))
        assert found == pytest.approx(delta, rel=1e-9 + relative, abs=last_digit(repr(delta)))

    return check


def by_orders(event: acc.Event, orders: tuple[float, ...] | None = None, relative: float = 1e-6) -> Check:
    """By Renyi divergences at the publisher's orders; ours are never worse."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        account = RdpAccountant(event, orders=orders) if orders else guarantee(event, method="rdp_usual_orders")
        assert account.epsilon(delta) == pytest.approx(float(printed), rel=relative, abs=last_digit(printed))
        assert guarantee(event, method="rdp").epsilon(delta) <= float(printed) * (1 + relative) + last_digit(printed)

    return check


def calibrated(make: Callable[[float], acc.Event], expected: float, relative: float, **options) -> Check:
    """The number that meets the published (epsilon, delta)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        found = calibrate(make, epsilon=float(printed), delta=delta, **options)
        assert found == pytest.approx(expected, rel=relative)

    return check


def prv(event: acc.Event, error: float, published: str, absolute: float) -> Check:
    """A PRV figure, from the same method at the same error."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        account = PrvAccountant(event, epsilon_error=error)
        lower, upper = account.epsilon_interval(delta)
        found = {"estimate": account.estimate(delta), "upper": upper}[published]
        assert found == pytest.approx(float(printed), abs=absolute)
        low, high = guarantee(event).epsilon_interval(delta)
        assert lower <= low
        assert upper >= high * (1 - 1e-6)

    return check


def sampled(z: float, q: float, steps: int) -> acc.Event:
    return Gaussian(z).poisson(q) * steps


def last_digit(printed: str) -> float:
    """A unit of the last printed digit: some publishers round, some cut off."""
    mantissa, _, exponent = printed.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) * (1 + 1e-9)


def both(*checks: Check) -> Check:
    def check(printed: str, delta: float | None) -> None:
        for one in checks:
            one(printed, delta)

    return check


def powers(event: acc.Event, fpr: float, tpr: float, mu: float) -> Check:
    """What a test can do at a false positive rate, and the mu of the equivalent Gaussian."""

    def check(printed: str, delta: float | None) -> None:
        promise = guarantee(event)
        assert promise.tpr(fpr) == pytest.approx(tpr, rel=2e-4)
        assert promise.tpr(fpr) >= tpr * (1 - 1e-5)
        if math.isinf(mu):
            assert math.isinf(promise.gdp().mu)
        else:
            assert promise.gdp().mu == pytest.approx(mu, rel=5e-3)

    return check


def renyi_values(event: acc.Event, steps: int, orders: tuple[float, ...], relative: tuple[float, ...]) -> Check:
    """Divergences at single orders; the publisher's series is too high at fractional ones (renyi-figures.md)."""

    def check(printed: str, delta: float | None) -> None:
        values = steps * rdp(event, "add_remove", orders)
        published = [float(value) for value in printed.split(";")]
        assert len(values) == len(published)
        for value, expected, tolerance in zip(values, published, relative, strict=True):
            assert expected * (1 - tolerance) <= value <= expected * (1 + 1e-6)

    return check


def too_coarse(event: acc.Event, factor: float) -> Check:
    """A published bound that is valid but far from the truth."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        assert guarantee(event).epsilon(delta) <= float(printed.lstrip("<").split()[0]) / factor

    return check


def user_level(printed: str, delta: float | None) -> None:
    """Three examples a user, by the group privacy of a Renyi bound, at the best delta for one example.

    delta(user) = delta (e^(3 eps) - 1) / (e^eps - 1). Its noise multiplier is halved for micro-batches, whose
    mean moves by two clip norms.
    """
    assert delta is not None
    account = guarantee(sampled(2.0 / 2, 64 / 10_000, math.ceil(5 * 10_000 / 64)), method="rdp_usual_orders")
    low, high = 1e-30, delta
    for _ in range(100):
        middle = math.sqrt(low * high)
        epsilon = account.epsilon(middle)
        fits = middle * math.expm1(3 * epsilon) / math.expm1(epsilon) <= delta
        low, high = (middle, high) if fits else (low, middle)
    assert 3 * account.epsilon(low) == pytest.approx(float(printed), abs=last_digit(printed))


def fourier(printed: str, delta: float | None) -> None:
    """Rounding up on a grid of 2 L / n = 2e-6 a step: a valid bound, 0.19 above the truth."""
    assert delta is not None
    event = sampled(4.0, 0.01, 10_000)
    low, high = guarantee(event).epsilon_interval(delta)
    account = BucketsAccountant(event)
    assert account.epsilon_interval(delta)[0] <= high
    assert low <= account.epsilon(delta)
    assert float(printed) == pytest.approx(high + 10_000 * 20e-6, abs=0.02)  # T roundings of a gap of 2e-5


def tree_sensitivities(printed: str, delta: float | None) -> None:
    for participations, separation, steps, squared in (
        (1, 7, 8, 4),
        (3, 3, 9, 11),
        (3, 2, 7, 9),
        (8, 2, 24, 88),
        (200, 0, 8, 120),
    ):
        tree = TreeAggregation(
            noise_multiplier=1.0, steps=steps, max_participations=participations, min_separation=separation
        )
        assert tree.squared_sensitivity == squared


def gnmax(counts: list[float]) -> Check:
    """Theorem 6 of Papernot et al. 2018 for 1,000 equal queries, with the classic conversion."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        orders = np.concatenate([np.arange(2, 101, 0.5), np.logspace(2, np.log10(500), 100)])  # the publisher's
        # one vote moves two counts by one: 1 / 40^2 an order
        (cost,) = theorem6(log_union(np.array([counts]), 40.0), 1 / 40.0**2, orders)
        costs = 1000 * cost
        epsilon = float((costs + np.log(1 / delta) / (orders - 1)).min())
        assert epsilon == pytest.approx(float(printed), rel=1e-9)

    return check


def single_order(printed: str, delta: float | None) -> None:
    """At order 1 the divergence is the limit of those above."""
    for excess in (1e-4, 1e-6):
        (value,) = rdp(ExponentialMechanism(1.0), "add_remove", (1.0 + excess,))
        assert float(printed) <= value + 1e-9 <= float(printed) + 0.2 * excess + 2e-9


CHECKS: dict[tuple[str, str], Check] = {
    ("Gaussian", "sigma=1 sens=1 add/remove"): exact(Gaussian(1.0)),
    ("Gaussian", "sigma=1"): exact(Gaussian(1.0)),
    ("Gaussian", "sigma=4"): exact(Gaussian(4.0)),
    ("Gaussian", "sigma=0.5 (= sigma 1 under REPLACE_ONE, sens 2)"): both(
        exact(Gaussian(0.5)), exact(Gaussian(1.0), "replace")
    ),
    ("Gaussian x3", "noise_multiplier=sqrt(3) composed 3x (mu=1)"): both(
        delta_at(Gaussian(3**0.5) * 3), powers(Gaussian(3**0.5) * 3, 0.1, 0.38914, 1.0)
    ),
    ("Gaussian (RDP dense orders)", "sigma=4.530877117; orders 1.000..99.999 step .001"): by_orders(
        Gaussian(4.530877117), DENSE_ORDERS, 1e-6
    ),
    ("Gaussian get_smallest_gaussian_noise", "eps=1 num_queries=1 sens=1 -> sigma=1/3"): calibrated(
        lambda z: Gaussian(z), 1 / 3, 1e-5
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 (100 epochs)"): too_coarse(sampled(4.0, 0.01, 10_000), 1.2),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000"): by_orders(sampled(4.0, 0.01, 10_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 disc=1e-4"): within(sampled(4.0, 0.01, 10_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 L=20 2e7 bins"): fourier,
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=40000 h=3e-5"): within(sampled(4.0, 0.01, 40_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=1 T=10000 eps_error=0.01"): prv(
        sampled(1.0, 0.01, 10_000), 0.01, "estimate", 1e-3
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=1 T=10000"): by_orders(sampled(1.0, 0.01, 10_000), relative=1e-5),
    ("Poisson-subsampled Gaussian", "q=0.04 sigma=1.5 T=2249 (int(90//0.04))"): prv(
        sampled(1.5, 0.04, 2249), 0.01, "upper", 1e-3
    ),
    ("Poisson-subsampled Gaussian", "q=0.04 sigma=1.5 T=2250 disc=1e-4"): within(sampled(1.5, 0.04, 2250)),
    ("calibration Poisson Gaussian", "q=0.04 epochs=90 target eps 8 -> sigma=1.416"): by_orders(
        sampled(1.416, 0.04, 2250), OPACUS_ORDERS, 1.5e-3
    ),
    ("calibration Poisson Gaussian", "q=0.04 steps=2000 target eps 8 -> sigma=1.3562"): by_orders(
        sampled(1.3562, 0.04, 2000), OPACUS_ORDERS, 1.5e-3
    ),
    ("calibration Poisson Gaussian", "q=0.04 steps=2000 target eps 8 -> sigma=1.2915"): calibrated(
        lambda z: sampled(z, 0.04, 2000), 1.2915, 2e-3
    ),
    ("Poisson-subsampled Gaussian", "n=60000 batch=150 sigma=1.3 epochs=15"): by_orders(
        sampled(1.3, 150 / 60_000, 6000)
    ),
    ("Poisson-subsampled Gaussian", "n=1e8 batch=1024 sigma=0.1 epochs=10"): too_coarse(
        sampled(0.1, 1024 / 1e8, 976_562), 1000
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=0.7 T=120 (1.2 epochs)"): within(sampled(0.7, 0.01, 120)),
    ("Gaussian (each example once/epoch)", "sigma=0.7 x2 (1.2 epochs)"): exact(Gaussian(0.7) * 2),
    ("Gaussian (each example once/epoch)", "sigma=0.7 x2"): by_orders(Gaussian(0.7) * 2),
    ("DP-SGD statement user-level k=3", "n=10000 b=64 sigma=2 epochs=5 Poisson"): user_level,
    ("Poisson-subsampled Gaussian", "q=0.1 sigma=3 T=512"): within(sampled(3.0, 0.1, 512)),
    ("calibration iterations", "q=0.1 sigma=3 target eps 2 -> T=155"): calibrated(
        lambda steps: sampled(3.0, 0.1, int(steps)), 155, 0.0, bracket=(1, 10_000), integer=True
    ),
    ("Poisson-subsampled Gaussian x3", "q=0.2 sigma=0.5 T=3"): delta_at(sampled(0.5, 0.2, 3), 3e-4),
    ("calibration", "q=0.001 T=25 sens=6 -> sigma=3.20956502598"): calibrated(
        lambda z: sampled(z, 0.001, 25), 3.20956502598 / 6, 2e-3
    ),
    ("Poisson-subsampled Gaussian", "q=5e-3 sigma=0.8 T=1000"): prv(sampled(0.8, 5e-3, 1000), 0.1, "estimate", 1e-2),
    ("Poisson-subsampled Gaussian", "q=0.2 sigma=1 T=500"): prv(sampled(1.0, 0.2, 500), 0.0115, "estimate", 1e-2),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=1 h=1e-4"): within(
        sampled(0.5, 2e-5, 1), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=100 h=1e-4"): within(
        sampled(0.5, 2e-5, 100), coarse=2e-3
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=1000 h=1e-4"): within(
        # the publisher's prototype is 5e-6 too low here: dp-accounting's pessimistic grids of 1e-4, 3e-5 and 1e-5 give
        # .9493281, .9493262 and .9493277
        sampled(0.5, 2e-5, 1000),
        coarse=1e-3,
        low_by=5e-6,
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=100000 h=1e-4"): within(
        sampled(0.5, 2e-5, 100_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (numerical stress)", "q=2e-5 sigma=0.5 T=1000000"): within(
        sampled(0.5, 2e-5, 1_000_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (numerical stress)", "q=1e-4 sigma=0.6 T=100000"): within(
        sampled(0.6, 1e-4, 100_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian REPLACE_ONE", "q=0.01 sigma=1 T=1000"): within(sampled(1.0, 0.01, 1000), "replace"),
    ("RDP values Poisson Gaussian", "q=0.01 sigma=2.5 T=50 orders 1.5,2.5,5,50,100"): renyi_values(
        Gaussian(2.5).poisson(0.01), 50, (1.5, 2.5, 5.0, 50.0, 100.0), (0.04, 1e-4, 1e-6, 1e-6, 1e-6)
    ),
    ("RDP value Poisson Gaussian", "q=0.01 sigma=0.25 order 2 / 4.5 / 128"): renyi_values(
        Gaussian(0.25).poisson(0.01), 1, (2.0, 4.5, 128.0), (1e-9, 1e-9, 1e-9)
    ),
    # the publisher's pair is looser: test_accounting.py composes that one
    ("Truncated Poisson Gaussian", "(n=4,p=.5,B=2,nm=1)x3 + (n=3,p=.5,B=2,nm=1)x2"): lambda printed, delta: at_most(
        Gaussian(1.0).truncated_poisson(0.5, 2, 4) * 3 + Gaussian(1.0).truncated_poisson(0.5, 2, 3) * 2,
        float(printed),
        delta,
        "replace",
    ),
    ("Poisson-subsampled Laplace", "q=0.2 b=0.5 T=3"): within(Laplace(0.5).poisson(0.2) * 3),
    ("Laplace", "b=3 sens=1 x40 disc=1e-3"): delta_at(Laplace(3.0) * 40, 2e-3),
    ("Laplace calibration", "500 queries eps=1 -> b=71.0"): calibrated(lambda b: Laplace(b) * 500, 71.0, 1e-2),
    ("Discrete Laplace calibration", "20 queries eps=1 sens 1 -> a=0.073"): calibrated(
        lambda a: DiscreteLaplace(a) * 20, 0.073, 1e-2
    ),
    ("optimal composition of (eps,delta)", "30 x (1,0.001)"): lambda printed, delta: delta_at_most(
        ApproximateDP(1.0, 1e-3) * 30, float(printed), delta
    ),
    ("(eps,delta) pair composition", "(1,0.1)+(2,0.2)"): both(
        delta_at(ApproximateDP(1.0, 0.1) + ApproximateDP(2.0, 0.2)),
        powers(ApproximateDP(1.0, 0.1) + ApproximateDP(2.0, 0.2), 0.1, 0.91938, math.inf),
    ),
    ("Randomized response", "p=4/(3+e) k=4 REPLACE_ONE"): exact(RandomizedResponse(4 / (3 + math.e), 4), "replace"),
    ("Exponential mechanism RDP", "eps=1 order 1"): single_order,
    ("Exponential mechanism", "eps=0.5 x100"): both(
        lambda printed, delta: at_most(ExponentialMechanism(0.5) * 100, float(printed), delta),
        lambda printed, delta: at_most_and_near(ExponentialMechanism(0.5) * 100, float(printed), delta),
    ),
    ("zCDP rho=0.81 as Gaussian", "rho=0.81"): lambda printed, delta: near(ZCDP(0.81), float(printed), delta),
    ("zCDP of a Gaussian mechanism", "rho=79/98"): exact(
        TreeAggregation(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313), "zero_out"
    ),
    ("MF-DP-FTRL Gboard pt-BR", "bands=1000 T=2000 nm=8.35 minsep=1428 k=2 rho=0.014342572340349278"): lambda p, d: (
        near(Gaussian((2 * 0.014342572340349278) ** -0.5), float(p), d, 1e-6)
    ),
    ("Tree single epoch (StackOverflow)", "nm=1.13 steps=1600"): lambda printed, delta: single_tree(printed, delta),
    (
        "DP-FTRL tree restarts+completion CIFAR10",
        "n=50000 b=500 100 epochs restart/20 nm=46.3 -> S2=4129",
    ): lambda printed, delta: cifar_tree(printed, delta),
    ("tree sensitivity^2", "(maxpart,minsep,T)=(1,7,8)->4;(3,3,9)->11;(3,2,7)->9;(8,2,24)->88;(200,0,8)->120"): (
        tree_sensitivities
    ),
    ("GNMax data-dependent", "counts [225,25,0x8] sigma=40 x1000"): gnmax([225, 25, *[0] * 8]),
    ("GNMax data-dependent", "counts [200,50,0x8] sigma=40 x1000"): gnmax([200, 50, *[0] * 8]),
    ("Gaussian f-DP", "sigma=1: TPR at FPR=0.01"): lambda printed, delta: tpr_is(Gaussian(1.0), 0.01, float(printed)),
    ("DP-SGD f-DP", "q=.01 sigma=1 T=1000: advantage 0.1610184; TPR@FPR.01=0.0290997"): lambda printed, delta: (
        attackers(sampled(1.0, 0.01, 1000), float(printed))
    ),
}

OUT_OF_SCOPE = {
    ("Random allocation Gaussian", "nm=2 k=10 of t=100"): "random allocation is not among the events",
}


def delta_at_most(event: acc.Event, epsilon: float, delta: float | None) -> None:
    """The published pair was rounded to whole epsilons: the bound holds there and fails half a unit below."""
    assert delta is not None
    promise = guarantee(event)
    assert promise.epsilon(delta) <= epsilon
    assert promise.epsilon(delta) > epsilon - 2.5


def near(event: acc.Event, epsilon: float, delta: float | None, relative: float = 6e-4) -> None:
    assert delta is not None
    assert guarantee(event).epsilon(delta) == pytest.approx(epsilon, rel=relative)


def at_most(event: acc.Event, epsilon: float, delta: float | None, adjacency="add_remove") -> None:
    """A published upper bound; ours is from a tighter pair or accountant."""
    assert delta is not None
    assert guarantee(event, adjacency).epsilon(delta) <= epsilon * (1 + 1e-9)


def at_most_and_near(event: acc.Event, epsilon: float, delta: float | None) -> None:
    """By Renyi accounting at the same orders; a tight divergence is at most the published one."""
    assert delta is not None
    found = guarantee(event, method="rdp_usual_orders").epsilon(delta)
    assert 0.97 * epsilon <= found <= epsilon * (1 + 1e-9)


def single_tree(printed: str, delta: float | None) -> None:
    assert delta is not None
    tree = TreeAggregation(noise_multiplier=1.13, steps=1600)
    assert guarantee(tree, "zero_out", "rdp_usual_orders").epsilon(delta) == pytest.approx(18.70961, abs=5e-6)
    assert guarantee(tree, "zero_out").epsilon(delta) == pytest.approx(17.66675, abs=5e-6)


def cifar_tree(printed: str, delta: float | None) -> None:
    assert delta is not None
    tree = TreeAggregation(
        noise_multiplier=46.3,
        steps=10_000,
        max_participations=100,
        min_separation=99,
        restart_every=2000,
        completion=True,
    )
    assert tree.squared_sensitivity == 4129
    assert guarantee(tree, "zero_out", "rdp").epsilon(delta) <= float(printed) * (1 + 1e-9)
    assert guarantee(tree, "zero_out").epsilon(delta) == pytest.approx(6.42753, abs=5e-6)


def tpr_is(event: acc.Event, fpr: float, tpr: float) -> None:
    found = guarantee(event).tpr(fpr)
    assert tpr * (1 - 1e-9) <= found <= tpr * (1 + 1e-4)


def attackers(event: acc.Event, mu: float) -> None:
    """The published mu is an estimate that covers deltas down to 4e-12 (docs/explanation/attackers.md).

    The published rate, by riskcal, is 0.14 % below the truth: dp-accounting's own curve for a removed unit converges to
    0.029139, and certified lower bounds on delta say the same (tests/accounting/test_loss.py).
    """
    promise = guarantee(event)
    assert promise.advantage() == pytest.approx(0.1610184, abs=5e-8, rel=1e-4)
    assert promise.tpr(0.01) >= 0.0290997
    assert promise.tpr(0.01) == pytest.approx(0.029139, rel=1e-4)
    assert promise.gdp(4e-12).mu == pytest.approx(mu, rel=3e-3)


def rows() -> list[dict[str, str]]:
    with CSV.open(newline="") as file:
        return list(csv.DictReader(file))


NEEDS_CSV = pytest.mark.skipif(not CSV.exists(), reason="the collection of published values is not there")


@pytest.mark.shared
@NEEDS_CSV
def test_no_row_is_passed_over() -> None:
    keys = {(row["mechanism"], row["params"]) for row in rows()}
    assert keys == CHECKS.keys() | OUT_OF_SCOPE.keys()


@pytest.mark.shared
@NEEDS_CSV
@pytest.mark.parametrize(("mechanism", "params"), CHECKS)
def test_published(mechanism: str, params: str) -> None:
    found = [row for row in rows() if (row["mechanism"], row["params"]) == (mechanism, params)]
    assert found
    for row in found:
        CHECKS[mechanism, params](row["epsilon"], float(row["delta"]) if row["delta"] else None)
