"""Truncated Poisson sampling against the mechanism itself, enumerated over all samples of small data sets."""

import json
from collections import defaultdict
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import betainc, mp, mpf

from sfumato.accounting import (
    Composition,
    Gaussian,
    InputError,
    Joint,
    NonPrivate,
    TruncatedPoisson,
    Unknown,
    event_from_json,
    guarantee,
)
from sfumato.accounting.pair import Pair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian
from slow import by_profile

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
U = np.linspace(-16, 16, 16001)
INTEGRATION = 2e-6  # of the trapezoid rule, whose integrand has a kink
CASES = [(0.3, 1, 1.0), (0.7, 2, 1.0), (0.5, 3, 0.6), (0.9, 2, 0.7)]  # rate, largest batch, noise


@cache
def sums(contributions: tuple[float, ...], rate: float, most: int) -> dict[float, float]:
    """The distribution of the sum over a truncated Poisson sample."""
    chances: dict[float, float] = defaultdict(float)
    units = range(len(contributions))
    for size in range(len(contributions) + 1):
        for sample in combinations(units, size):
            drawn = rate**size * (1 - rate) ** (len(contributions) - size)
            batches = list(combinations(sample, min(size, most)))
            for batch in batches:
                chances[sum(contributions[unit] for unit in batch)] += drawn / len(batches)
    return chances


def density(contributions: tuple[float, ...], rate: float, most: int, noise: float) -> np.ndarray:
    total = np.zeros_like(U)
    for mean, chance in sums(contributions, rate, most).items():
        total += chance * np.exp(-(((U - mean) / noise) ** 2) / 2) / (noise * np.sqrt(2 * np.pi))
    return total


def neighbours(adjacency: str, others: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (1.0, *others), {"add_remove": others, "zero_out": (0.0, *others), "replace": (-1.0, *others)}[adjacency]


def curve(pair: Pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0]) + max(0.0, pair.atom() * (1 - np.exp(epsilon)))


def divergence(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.trapezoid(np.maximum(one - np.exp(epsilon) * other, 0.0), U))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
@pytest.mark.parametrize(("rate", "most", "noise"), CASES)
def test_no_small_data_set_shows_more_than_the_pair(rate: float, most: int, noise: float, adjacency: str) -> None:
    event = Gaussian(noise).truncated_poisson(rate, most, 4)
    pairs = event.pairs(adjacency)  # pyright: ignore[reportArgumentType]
    bounds = {epsilon: (curve(pairs[0], epsilon), curve(pairs[-1], epsilon)) for epsilon in EPSILONS}
    closest = 0.0
    for others in product((-1.0, 0.0, 1.0), repeat=3):
        p, q = (density(each, rate, most, noise) for each in neighbours(adjacency, others))
        for epsilon, (remove, add) in bounds.items():
            removed, added = divergence(p, q, epsilon), divergence(q, p, epsilon)
            assert removed <= remove + INTEGRATION
            assert added <= add + INTEGRATION
            closest = max(closest, removed / remove if remove > 1e-3 else 0.0)
    assert closest > (0.95 if adjacency != "zero_out" else 0.6)  # and the bound is not just a large number


def test_poisson_alone_would_be_too_little() -> None:
    rate, most, noise = 0.9, 2, 0.7
    p, q = (density(each, rate, most, noise) for each in neighbours("add_remove", (-1.0, -1.0, -1.0)))
    plain = SampledGaussian("remove", rate, 1 / noise)
    assert divergence(p, q, 1.0) > 1.3 * curve(plain, 1.0)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
@pytest.mark.parametrize(("rate", "most", "noise"), CASES)
def test_no_small_data_set_has_a_larger_renyi_divergence(rate: float, most: int, noise: float, adjacency: str) -> None:
    orders = np.array([1.5, 3.0, 8.0])
    bound = Gaussian(noise).truncated_poisson(rate, most, 4).renyi(orders, adjacency)  # pyright: ignore[reportArgumentType]
    for others in product((-1.0, 1.0), repeat=3):
        p, q = (density(each, rate, most, noise) for each in neighbours(adjacency, others))
        log_p, log_q = np.log(p), np.log(q)
        for one, other in ((log_p, log_q), (log_q, log_p)):
            for order, allowed in zip(orders, bound):
                moment = np.exp(order * one + (1 - order) * other).sum() * (U[1] - U[0])
                assert np.log(moment) / (order - 1) <= allowed * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "most", "population"), [(0.5, 2, 4), (0.2, 1, 6), (0.9, 3, 5)])
def test_the_lottery_is_counted_right(rate: float, most: int, population: int) -> None:
    event = TruncatedPoisson(Gaussian(1.0), rate, most, population)
    full = taken = 0.0
    for coins in product((0, 1), repeat=population):  # the unit's coin is the first
        chance = rate ** sum(coins) * (1 - rate) ** (population - sum(coins))
        if sum(coins[1:]) >= most:
            full += chance
            taken += chance * coins[0] * most / max(sum(coins), 1)
    assert event.chance_of_full_batch == pytest.approx(full, rel=1e-12)
    assert event.rate_in_full_batch == pytest.approx(taken / full, rel=1e-10)
    assert event.rate_in_full_batch >= taken / full * (1 - 1e-15)


@pytest.mark.parametrize(
    ("rate", "most", "population"), [(0.01, 120, 10_000), (1e-3, 1300, 10**6), (1e-6, 1200, 10**9), (0.01, 2000, 10**5)]
)
def test_the_chances_keep_their_digits_in_large_populations(rate: float, most: int, population: int) -> None:
    event = TruncatedPoisson(Gaussian(1.0), rate, most, population)
    with mp.workdps(40):
        full = betainc(most, population - most, 0, mpf(rate), regularized=True)
        cut = betainc(most + 1, population - most, 0, mpf(rate), regularized=True)
        assert event.chance_of_full_batch == pytest.approx(float(full), rel=1e-12)
        share = float(mpf(most) / population * cut / full)
    assert share <= event.rate_in_full_batch <= share * (1 + 1e-10)


def test_where_nothing_is_cut_it_is_poisson_sampling() -> None:
    step = Gaussian(1.3)
    assert step.truncated_poisson(0.2, 50, 50) == step.poisson(0.2)
    assert step.truncated_poisson(0.2, 10**9, 50) == step.poisson(0.2)
    almost = guarantee(step.truncated_poisson(0.01, 400, 10_000) * 100).epsilon(1e-6)
    assert almost == pytest.approx(guarantee(step.poisson(0.01) * 100).epsilon(1e-6), rel=1e-3)


def test_its_other_ends() -> None:
    step = Gaussian(1.3)
    assert step.truncated_poisson(1.0, 5, 50) == step.without_replacement(5, 50)
    assert step.truncated_poisson(1.0, 50, 50) == step
    assert step.truncated_poisson(0.0, 5, 50) == Composition(()) == step.truncated_poisson(0.5, 0, 50)
    assert NonPrivate().truncated_poisson(0.5, 5, 50) == NonPrivate()
    close = guarantee(step.truncated_poisson(1 - 1e-12, 5, 50) * 3).epsilon(1e-6)
    assert close == pytest.approx(guarantee(step.without_replacement(5, 50) * 3).epsilon(1e-6), rel=2e-3)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
def test_accountants_agree_in_order(adjacency: str) -> None:
    run = Gaussian(1.0).truncated_poisson(0.01, 130, 10_000) * 200
    low, high = PldAccountant(run, adjacency).epsilon_interval(1e-6)  # pyright: ignore[reportArgumentType]
    assert 0 < low <= high <= 1.002 * low  # of the pairs
    assert guarantee(run, adjacency).epsilon_interval(1e-6) == (0.0, high)  # pyright: ignore[reportArgumentType]
    assert high < guarantee(run, adjacency, "rdp").epsilon(1e-6) < guarantee(run, adjacency, "zcdp").epsilon(1e-6)  # pyright: ignore[reportArgumentType]


@settings(max_examples=by_profile(25), deadline=None)
@given(st.floats(0.3, 50), st.floats(1e-6, 0.999), st.integers(1, 2000), st.integers(1, 10**6))
def test_a_batch_that_is_cut_costs_at_least_poisson_and_at_most_the_plain_sum(
    noise: float, rate: float, most: int, more: int
) -> None:
    event = Gaussian(noise).truncated_poisson(rate, most, most + more)
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event
    orders = np.array([1.5, 2.0, 10.0, 100.0])
    cut = event.renyi(orders, "add_remove")
    assert (cut >= 0).all()
    assert (cut <= Gaussian(noise).renyi(orders, "replace") * (1 + 1e-12)).all()


def test_joint_sums_are_cut_together() -> None:
    both = (Gaussian(2.0) + Gaussian(3.0)).truncated_poisson(0.1, 5, 100)
    assert isinstance(both, TruncatedPoisson)
    assert both.event == Joint((Gaussian(2.0), Gaussian(3.0)))
    with pytest.raises(Unknown, match="is not known"):
        both.poisson(0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((float("nan"), 5, 50), "sampling_rate must be a number"),
        ((-0.1, 5, 50), "sampling_rate must be in"),
        ((1.5, 5, 50), "sampling_rate must be in"),
        ((0.1, -1, 50), "max_batch must be a whole number"),
        ((0.1, 2.5, 50), "max_batch must be a whole number"),
        ((0.1, 5, 0), "population must be a whole number"),
        ((0.1, 5, float("inf")), "population must be a whole number"),
    ],
)
def test_bad_values_are_refused_in_one_line(arguments: tuple, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        Gaussian(1.0).truncated_poisson(*arguments)
    assert "\n" not in str(raised.value)


def test_what_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(Unknown, match="Poisson"):
        Gaussian(1.0).poisson(0.1).truncated_poisson(0.1, 5, 50)
    with pytest.raises(InputError):
        TruncatedPoisson(Gaussian(1.0), 0.1, 50, 50)
    tiny = Gaussian(1e-3).truncated_poisson(0.1, 5, 50)
    with pytest.raises(Unknown, match="too little noise"):
        guarantee(tiny, method="pld")
    assert guarantee(tiny).epsilon(1e-6) > 1e5
