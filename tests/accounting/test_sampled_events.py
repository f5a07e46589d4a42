"""Samples of events and mixtures, against mechanisms that are small enough to enumerate."""

import itertools
import json
import math
import subprocess
import sys
from collections import defaultdict
from functools import cache
from itertools import combinations, product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import betainc, mpf
from mpmath import mp as mpmath

from sfumato.accounting import (
    ApproximateDP,
    Composition,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Gaussian,
    InputError,
    Joint,
    Laplace,
    MixtureOfGaussians,
    NonPrivate,
    PureDP,
    RandomizedResponse,
    TruncatedPoisson,
    Unknown,
    event_from_json,
    guarantee,
)
from sfumato.accounting.events.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.loss.grid import from_above
from sfumato.accounting.pair import Pair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian, SampledPair
from slow import by_profile, one_in

# Samples of any event against mechanisms that are small enough to enumerate, every sample and every outcome.


X = np.arange(-70, 71)
LOSSES = (0.0, 0.05, 0.2, 0.5, 0.8)
BOUNDED: list[Event] = [Laplace(0.7), DiscreteLaplace(0.4, 3), PureDP(0.8), ExponentialMechanism(1.2)]


def noise(event: DiscreteLaplace | DiscreteGaussian) -> np.ndarray:
    laplace = isinstance(event, DiscreteLaplace)
    weight = np.exp(-event.rate * np.abs(X)) if laplace else np.exp(-(X**2) / (2 * event.sigma**2))
    return weight / weight.sum()


def poisson_output(event: Event, rate: float, values: tuple[int, ...]) -> np.ndarray:
    """Distribution of the noisy sum over a Poisson sample of `values`."""
    total, base = np.zeros(len(X)), noise(event)
    for coins in itertools.product((0, 1), repeat=len(values)):
        chance = math.prod(rate if coin else 1 - rate for coin in coins)
        total += chance * np.roll(base, sum(value for value, coin in zip(values, coins) if coin))
    return total


def fixed_output(event: Event, size: int, values: tuple[int, ...]) -> np.ndarray:
    """The same over a uniform sample of `size` of them."""
    samples = list(itertools.combinations(values, size))
    return sum(np.roll(noise(event), sum(sample)) for sample in samples) / len(samples)


def worst_curve(pairs: list[tuple[np.ndarray, np.ndarray]], loss: float) -> float:
    both = [*pairs, *((q, p) for p, q in pairs)]
    return max(float(np.maximum(p - math.exp(loss) * q, 0).sum()) for p, q in both)


def curve(event: Event, adjacency, loss: float) -> float:
    """The larger one of the curves of the event's pairs; for a loss >= 0."""
    return max(curve_of(pair, loss) for pair in event.pairs(adjacency))


def curve_of(pair: Pair, loss: float) -> float:
    upper, lower, _ = pair.cells(np.array([loss, np.inf]))
    return float(upper[0] - math.exp(loss) * lower[0])


INTEGER_NOISE: list[Event] = [DiscreteLaplace(0.4, 1), DiscreteGaussian(2.0, 1)]
VALUES = (-1, 0, 1)  # what a unit may contribute: its sensitivity is one


@pytest.mark.parametrize("event", INTEGER_NOISE, ids=str)
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_a_poisson_sample_costs_what_its_pair_says(event: Event, adjacency) -> None:
    rate = 0.3
    others = list(itertools.product(VALUES, repeat=2))
    absent = () if adjacency == "add_remove" else (0,)
    pairs = [
        (poisson_output(event, rate, (*rest, value)), poisson_output(event, rate, rest + absent))
        for rest in others
        for value in VALUES
    ]
    for loss in LOSSES:
        truth, bound = worst_curve(pairs, loss), curve(event.poisson(rate), adjacency, loss)
        assert truth <= bound + 1e-12
    alone = [(poisson_output(event, rate, (1,)), poisson_output(event, rate, ()))]
    for loss in LOSSES:  # a unit alone attains it
        assert worst_curve(alone, loss) == pytest.approx(curve(event.poisson(rate), adjacency, loss), abs=1e-12)


@pytest.mark.parametrize("event", INTEGER_NOISE, ids=str)
@pytest.mark.parametrize("adjacency", ["replace", "zero_out", "add_remove"])
def test_a_sample_of_fixed_size_costs_at_most_what_its_pair_says(event: Event, adjacency) -> None:
    sampled = event.without_replacement(2, 4)
    pairs = []
    for rest in itertools.product(VALUES, repeat=3):
        for value in VALUES:
            neighbours = {"replace": [(*rest, v) for v in VALUES], "zero_out": [(*rest, 0)], "add_remove": [rest]}
            mine = fixed_output(event, 2, (*rest, value))
            pairs += [(mine, fixed_output(event, 2, neighbour)) for neighbour in neighbours[adjacency]]
    worst = [worst_curve(pairs, loss) for loss in LOSSES]
    bounds = [curve(sampled, adjacency, loss) for loss in LOSSES]
    assert (np.array(worst) <= np.array(bounds) + 1e-12).all()
    if adjacency != "zero_out":  # others at -1, the unit at 1 instead: the bound is nearly reached
        assert worst[1] > 0.9 * bounds[1]
        assert worst[1] > 1.2 * curve(event.poisson(0.5), "add_remove", LOSSES[1])  # Poisson's would be too little


def test_randomised_response_on_a_sample_of_fixed_size() -> None:
    event = RandomizedResponse(0.4, 3)
    transition = np.full((3, 3), 0.4 / 3) + np.eye(3) * 0.6
    size, population = 1, 4
    others = (0, 1, 2)

    def output(value: int) -> np.ndarray:
        return np.mean([transition[v] for v in (*others, value)], axis=0)

    pairs = [(output(a), output(b)) for a in range(3) for b in range(3)]
    for loss in LOSSES:
        bound = curve(event.without_replacement(size, population), "replace", loss)
        assert worst_curve(pairs, loss) <= bound + 1e-15
    largest = event.without_replacement(size, population).largest_loss("replace")
    assert largest == pytest.approx(math.log1p(0.25 * math.expm1(event.largest_loss("replace"))))


def test_the_curve_of_a_fixed_size_is_that_of_the_published_theorem() -> None:
    """Balle, Barthe and Gaboardi 2018, Theorem 11, with the closed form of Laplace noise moved by two."""
    sampled = Laplace(0.7).without_replacement(3, 10)
    rate = 3 / 10
    for base_loss in (0.0, 0.3, 1.0, 2.5):
        loss = math.log1p(rate * math.expm1(base_loss))
        truth = rate * -math.expm1((base_loss - 2 / 0.7) / 2)
        for adjacency in ("replace", "zero_out"):
            assert curve(sampled, adjacency, loss) == pytest.approx(truth, rel=1e-10)


@pytest.mark.parametrize("event", BOUNDED, ids=str)
@settings(max_examples=by_profile(6), deadline=None)
@given(rate=st.floats(1e-6, 0.99))
def test_sampling_never_costs_more(event: Event, rate: float) -> None:
    orders = np.array([1.01, 2.0, 5.5, 64.0])
    for sampled, adjacency, whole in [
        (event.poisson(rate), "add_remove", "add_remove"),
        (event.without_replacement(1, 1 + int(1 / rate)), "replace", "replace"),
    ]:
        assert sampled.largest_loss(adjacency) <= event.largest_loss(whole)
        assert sampled.rho(adjacency) <= event.rho(whole)
        assert (sampled.renyi(orders, adjacency) <= event.renyi(orders, whole) * (1 + 1e-9)).all()
        assert PldAccountant(sampled, adjacency).delta(0.1) <= guarantee(event, whole).delta(0.1) + 1e-6


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.4])
@pytest.mark.parametrize("epsilon", [0.01, 2.0])
def test_the_renyi_curve_on_a_sample_is_that_of_both_mixtures(rate: float, epsilon: float) -> None:
    orders = np.array([1.01, 2.0, 5.5, 64.0])
    found = PureDP(epsilon).poisson(rate).renyi(orders, "add_remove")
    with mp.workdps(60):
        q, high = mp.mpf(rate), 1 / (1 + mp.exp(-mp.mpf(epsilon)))
        p = (high, 1 - high)
        mixed = tuple((1 - q) * b + q * a for a, b in zip(p, p[::-1]))
        for order, value in zip(orders, found):
            a = mp.mpf(float(order))
            both = [
                mp.log(sum(x**a * y ** (1 - a) for x, y in zip(*sides))) / (a - 1)
                for sides in ((mixed, p[::-1]), (p[::-1], mixed))
            ]
            truth = float(max(both))
            assert truth * (1 - 1e-12) <= value <= truth * (1 + 2e-3)


@pytest.mark.parametrize(("sigma", "shift", "rate"), [(0.7, 1, 0.2), (2.0, 1, 0.01), (4.0, 5, 0.6)])
def test_the_renyi_curve_of_a_sampled_discrete_gaussian_lies_above_the_sums(sigma, shift, rate) -> None:
    orders = np.array([1.3, 2.0, 2.5, 5.0, 9.7, 16.0])
    found = DiscreteGaussian(sigma, shift).poisson(rate).renyi(orders, "add_remove")
    with mp.workdps(40):
        reach = int(20 * sigma + 20 * shift)
        weight = {x: mp.exp(-mp.mpf(x * x) / (2 * mp.mpf(sigma) ** 2)) for x in range(-reach - shift, reach + 1)}
        total = mp.fsum(weight.values())
        p = [weight[x] / total for x in range(-reach, reach + 1)]
        q = [weight[x - shift] / total for x in range(-reach, reach + 1)]
        mixed = [(1 - mp.mpf(rate)) * b + mp.mpf(rate) * a for a, b in zip(p, q)]
        for order, value in zip(orders, found):
            a = mp.mpf(float(order))
            removed, added = (
                float(mp.log(mp.fsum(x**a * y ** (1 - a) for x, y in zip(*sides))) / (a - 1))
                for sides in ((mixed, q), (q, mixed))
            )
            assert max(removed, added) * (1 - 1e-12) <= value
            assert value == pytest.approx(removed, rel=1e-9)


def test_a_wide_discrete_gaussian_on_a_sample_is_a_gaussian_on_a_sample() -> None:
    discrete = DiscreteGaussian(100.0, 100).poisson(0.01) * 100
    low, high = PldAccountant(discrete).epsilon_interval(1e-5)
    truth = guarantee(Gaussian(1.0).poisson(0.01) * 100).epsilon(1e-5)
    assert low <= truth * 1.001
    assert high >= truth * 0.999
    edges = np.linspace(-0.009, 2, 50)
    ours = SampledPair("remove", 0.01, DiscreteGaussianPair(100.0, 100)).cells(edges)
    (pair, _) = Gaussian(1.0).poisson(0.01).pairs("add_remove")
    np.testing.assert_allclose(ours[0], pair.cells(edges)[0], atol=0.01)


@pytest.mark.parametrize("event", [*BOUNDED, DiscreteGaussian(1.0), ApproximateDP(0.5, 1e-3)], ids=str)
def test_a_poisson_sample_under_replacement_is_refused_by_name(event: Event) -> None:
    for method in ("pld", "rdp"):
        if isinstance(event, ApproximateDP) and method == "rdp":
            continue
        with pytest.raises(Unknown, match=f"Poisson sample of {type(event).__name__} is not known under replace"):
            guarantee(event.poisson(0.1), "replace", method)
    assert event.poisson(0.1).rho("replace") == event.rho("replace")  # a unit that is drawn costs what it costs


def test_a_claim_about_blanking_says_nothing_about_samples() -> None:
    with pytest.raises(Unknown, match="does not say what a sample without the unit would do"):
        PureDP(1.0, "zero_out").poisson(0.1).pairs("zero_out")
    with pytest.raises(Unknown, match="says nothing about replace"):
        PureDP(1.0, "zero_out").without_replacement(1, 10).pairs("zero_out")


@pytest.mark.parametrize("rate", [1e-9, 1e-4])
def test_rare_samples_keep_their_precision(rate: float) -> None:
    event = Laplace(2.0).poisson(rate)
    with mp.workdps(40):
        truth = float(mp.log(1 + mp.mpf(rate) * mp.expm1(mp.mpf(1) / 2)))
    assert truth <= event.largest_loss("add_remove") <= truth * (1 + 1e-14)
    remove, add = event.pairs("add_remove")
    loss = math.log1p(rate * math.expm1(0.1))
    found = curve_of(remove, loss)
    assert found == pytest.approx(rate * -math.expm1((0.1 - 0.5) / 2), rel=1e-6)  # q delta(l') at l' = 0.1
    for pair in (remove, add):
        atoms = from_above(pair, 1e-3 * rate, pair.bulk())
        on_the_grid = float((atoms.masses * np.maximum(-np.expm1(loss - atoms.losses), 0)).sum())
        assert curve_of(pair, loss) * (1 - 1e-6) <= on_the_grid <= curve_of(pair, loss) * (1 + 1e-4)


@pytest.mark.parametrize(
    ("event", "rate"),
    one_in(
        3,
        [Gaussian(1.0), Gaussian(0.06), Laplace(1.0), ApproximateDP(1.0, 1e-6), ApproximateDP(0.0, 0.3)],
        [5e-324, 1e-300, 1e-20, 1 - 1e-16],
    ),
)
@pytest.mark.filterwarnings("error")
def test_rates_next_to_zero_and_to_one_have_an_answer_to_every_question(event, rate) -> None:
    for count in (1, 2, 50):
        cost = guarantee(event.poisson(rate) * count)
        unsampled = guarantee(event * count)
        for delta in (1e-5, 0.5):
            low, high = cost.epsilon_interval(delta)
            assert 0 <= low <= high <= unsampled.epsilon(delta) * (1 + 1e-3) + 1e-9  # the width of an interval
        assert 0 <= cost.delta(1.0) <= unsampled.delta(1.0) * (1 + 1e-3) + 1e-12
        assert 0 <= cost.advantage() <= 1
        assert cost.gdp().mu >= 0
        assert 0 <= cost.bayes_risk() <= 0.5


# Truncated Poisson sampling against the mechanism itself, enumerated over all samples of small data sets.


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


def curve_and_atom(pair: Pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0]) + max(0.0, pair.atom() * (1 - np.exp(epsilon)))


def divergence(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.trapezoid(np.maximum(one - np.exp(epsilon) * other, 0.0), U))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
@pytest.mark.parametrize(("rate", "most", "noise"), CASES)
def test_no_small_data_set_shows_more_than_the_pair(rate: float, most: int, noise: float, adjacency: str) -> None:
    event = Gaussian(noise).truncated_poisson(rate, most, 4)
    pairs = event.pairs(adjacency)  # pyright: ignore[reportArgumentType]
    bounds = {epsilon: (curve_and_atom(pairs[0], epsilon), curve_and_atom(pairs[-1], epsilon)) for epsilon in EPSILONS}
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
    assert divergence(p, q, 1.0) > 1.3 * curve_and_atom(plain, 1.0)


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
    with mpmath.workdps(40):
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
def test_accountants_of_truncated_samples_agree_in_order(adjacency: str) -> None:
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
def test_bad_sizes_of_a_sample_are_refused_in_one_line(arguments: tuple, words: str) -> None:
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


HALF = MixtureOfGaussians(2.0, (0.0, 1.0, 3.0), (0.5, 0.3, 0.2))


@st.composite
def mixtures(draw) -> MixtureOfGaussians:
    amounts = draw(st.lists(st.just(0.0) | st.floats(1e-200, 5), min_size=1, max_size=5).filter(any))
    chances = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(amounts), max_size=len(amounts))))
    return MixtureOfGaussians(draw(st.floats(0.5, 20)), tuple(amounts), tuple((chances / chances.sum()).tolist()))


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 2.5), (1e-4, 0.6)])
def test_a_poisson_sample_is_the_special_case(rate: float, noise: float) -> None:
    mixture = MixtureOfGaussians(2 * noise, (0.0, 2.0), (1 - rate, rate)) * 100
    sampled = Gaussian(noise).poisson(rate) * 100
    for method in ("pld", "rdp"):
        ours, theirs = (guarantee(event, method=method).epsilon(1e-6) for event in (mixture, sampled))  # pyright: ignore[reportArgumentType]
        assert ours == pytest.approx(theirs, rel=1e-6)
    low, high = PldAccountant(mixture).epsilon_interval(1e-6)
    assert 0 < low < high < 1.001 * low


def test_a_poisson_sample_of_a_mixture_is_a_mixture() -> None:
    plain = MixtureOfGaussians(2.0, (3.0,), (1.0,))
    sampled = plain.poisson(0.02) * 50
    assert guarantee(sampled).epsilon(1e-6) == pytest.approx(
        guarantee(Gaussian(2 / 3).poisson(0.02) * 50).epsilon(1e-6), rel=1e-6
    )
    twice, once = (
        event.renyi(np.array([3.0]), "add_remove") for event in (HALF.poisson(0.5).poisson(0.5), HALF.poisson(0.25))
    )
    assert twice == pytest.approx(once, rel=1e-9)
    assert HALF.poisson(1.0) == HALF
    assert HALF.poisson(0.0) == Composition(())
    with pytest.raises(Unknown, match="MixtureOfGaussians is not known"):
        (HALF * 2).poisson(0.5)
    with pytest.raises(Unknown, match="a mixture again"):
        HALF.without_replacement(5, 50)
    with pytest.raises(InputError, match="sampling_rate"):
        HALF.poisson(math.nan)


def test_one_sure_sensitivity_is_a_gaussian() -> None:
    event = MixtureOfGaussians(3.0, (1.0, 9.0, 1.0), (0.4, 0.0, 0.6))
    for adjacency in ("add_remove", "replace", "zero_out"):
        shift = event.gaussian_shift(adjacency)  # pyright: ignore[reportArgumentType]
        assert shift == pytest.approx(Gaussian(3.0).gaussian_shift(adjacency), rel=1e-15)  # pyright: ignore[reportArgumentType]
    assert guarantee(event).method == "gaussian"


def test_moving_in_different_directions_shows_no_more_than_moving_in_one() -> None:
    """In the plane, by integration on a grid: v_1 and v_2 of lengths 1 and 1.5 at an angle, and shorter ones."""
    axis = np.linspace(-9, 9, 1201)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    cell = (axis[1] - axis[0]) ** 2

    def normal(mean_x: float, mean_y: float) -> np.ndarray:
        return np.exp(-((x - mean_x) ** 2 + (y - mean_y) ** 2) / 2) / (2 * np.pi)

    event = MixtureOfGaussians(1.0, (0.0, 1.0, 1.5), (0.3, 0.4, 0.3))
    remove, add = event.pairs("add_remove")
    still = normal(0, 0)
    for angle, length in ((0.0, 1.0), (0.7, 1.0), (math.pi / 2, 1.0), (math.pi, 1.0), (0.0, 0.5)):
        second = (1.5 * length * math.cos(angle), 1.5 * length * math.sin(angle))
        mixed = 0.3 * still + 0.4 * normal(1.0, 0.0) + 0.3 * normal(*second)
        for epsilon in (0.0, 0.3, 1.0):
            edges = np.array([epsilon, np.inf])
            for pair, p, q in ((remove, mixed, still), (add, still, mixed)):
                upper, lower, _ = pair.cells(edges)
                bound = upper[0] - np.exp(epsilon) * lower[0]
                found = np.maximum(p - np.exp(epsilon) * q, 0).sum() * cell
                assert found <= bound + 2e-5
                if (angle, length) == (0.0, 1.0):
                    assert found == pytest.approx(bound, abs=2e-5)


def test_replacing_is_bounded_by_who_is_reported_the_amount() -> None:
    """v_i = s_i and -s_i: the bound is the mean over i, and above the curve of who does not see i."""
    u = np.linspace(-14, 14, 8001)
    shifts, weights = HALF._cases()
    (pair,) = HALF.pairs("replace")

    def normal(mean: float) -> np.ndarray:
        return np.exp(-((u - mean) ** 2) / 2) / np.sqrt(2 * np.pi)

    p = sum(weight * normal(shift) for shift, weight in zip(shifts, weights))
    q = sum(weight * normal(-shift) for shift, weight in zip(shifts, weights))
    for epsilon in (0.0, 0.5, 1.5):
        upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
        bound = upper[0] - np.exp(epsilon) * lower[0]
        told = [np.trapezoid(np.maximum(normal(s) - np.exp(epsilon) * normal(-s), 0), u) for s in shifts]
        assert bound == pytest.approx(np.dot(weights, told), abs=1e-6)
        assert np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0), u) <= bound + 1e-6


@settings(max_examples=by_profile(40), deadline=None)
@given(mixtures())
def test_an_event_survives_json_and_counts(event: MixtureOfGaussians) -> None:
    again = event_from_json(json.loads(json.dumps(event.to_json())))
    assert again == event
    assert hash(again) == hash(event)
    assert event + event == event * 2
    assert event_from_json((event * 3).to_json()) == event * 3


@settings(max_examples=by_profile(12), deadline=None)
@given(mixtures(), st.sampled_from(["add_remove", "replace", "zero_out"]))
def test_accountants_agree_in_order(event: MixtureOfGaussians, adjacency: str) -> None:
    run = event * 20
    promise = guarantee(run, adjacency)  # pyright: ignore[reportArgumentType]
    of_pairs = getattr(promise.accountants[0], "epsilon_interval", promise.epsilon_interval)
    low, high = of_pairs(1e-6)
    assert 0 <= low <= high == promise.epsilon(1e-6) < math.inf
    assert high - low <= 2e-3 * high + 1e-9
    assert high <= guarantee(run, adjacency, "rdp").epsilon(1e-6) * (1 + 1e-9)  # pyright: ignore[reportArgumentType]
    assert high <= guarantee(run, adjacency, "zcdp").epsilon(1e-6) * (1 + 1e-9)  # pyright: ignore[reportArgumentType]
    if adjacency != "replace":
        most = max(amount for amount in event.sensitivities) / event.noise_std
        assert high <= guarantee(Gaussian(1 / most) * 20).epsilon(1e-6) * (1 + 1e-3)


def test_a_larger_sensitivity_or_a_likelier_one_costs_more() -> None:
    def epsilon(sensitivities: tuple[float, ...], probabilities: tuple[float, ...]) -> float:
        return guarantee(MixtureOfGaussians(2.0, sensitivities, probabilities) * 50).epsilon(1e-6)

    base = epsilon((0.0, 1.0, 2.0), (0.8, 0.1, 0.1))
    assert epsilon((0.0, 1.0, 2.1), (0.8, 0.1, 0.1)) > base
    assert epsilon((0.0, 1.0, 2.0), (0.8, 0.09, 0.11)) > base
    assert epsilon((0.1, 1.0, 2.0), (0.8, 0.1, 0.1)) > base


def test_amounts_of_any_size_are_priced_or_refused_in_one_line() -> None:
    for size in (1e-300, 1e-12, 1e-3, 30.0, 1e4, 1e200, 1e307):
        for adjacency in ("add_remove", "replace"):
            event = MixtureOfGaussians(1.0, (0.0, size), (0.9, 0.1)) * 10
            epsilon = guarantee(event, adjacency).epsilon(1e-8)  # pyright: ignore[reportArgumentType]
            assert epsilon >= 0
    with pytest.raises(Unknown, match="too little noise"):
        guarantee(MixtureOfGaussians(1.0, (0.0, 30.0), (0.9, 0.1)), method="pld")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, (1.0,), (1.0,)), "noise_std must be > 0"),
        ((float("nan"), (1.0,), (1.0,)), "noise_std must be a number"),
        ((1.0, (), ()), "sensitivities must have at least one number"),
        ((1.0, 1.0, 1.0), "sensitivities must be a tuple"),
        ((1.0, "abc", (1.0,)), "sensitivities must be a tuple"),
        ((1.0, ("a",), (1.0,)), "sensitivities must be a number"),
        ((1.0, (-1.0,), (1.0,)), "sensitivities must be >= 0"),
        ((1.0, (math.inf,), (1.0,)), "sensitivities must be >= 0 and finite"),
        ((1.0, (math.nan,), (1.0,)), "sensitivities must be a number, got nan"),
        ((1.0, (1.0,), (0.5,)), "probabilities must sum to 1"),
        ((1.0, (1.0, 0.0), (1.5, -0.5)), "probabilities must be in"),
        ((1.0, (1.0, 0.0), (math.nan, 1.0)), "probabilities must be a number"),
        ((1.0, (1.0,), (0.5, 0.5)), "of one length"),
        ((1.0, (0.0, 1.0), (1.0, 0.0)), "moves nothing"),
        ((1e-10, (1e308,), (1.0,)), "too small"),
    ],
)
def test_bad_values_are_refused_in_one_line(arguments: tuple, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        MixtureOfGaussians(*arguments)
    assert "\n" not in str(raised.value)


def test_the_published_shape_of_a_sampled_matrix_mechanism() -> None:
    """A column (1, 1/2) of a matrix whose rounds sample with rate 1/4: 0, 1/2, 1, 3/2 with their products."""
    chances = (0.75 * 0.75, 0.75 * 0.25, 0.25 * 0.75, 0.25 * 0.25)
    event = MixtureOfGaussians(1.5, (0.0, 0.5, 1.0, 1.5), chances)
    orders = np.array([2.0])
    closed = sum(
        p * r * math.exp(s * t / 1.5**2)
        for s, p in zip(event.sensitivities, chances)
        for t, r in zip(event.sensitivities, chances)
    )
    assert event.renyi(orders, "add_remove")[0] == pytest.approx(math.log(closed), rel=1e-10)


STEP = Gaussian(1.0).poisson(0.1)


def test_a_mixture_has_no_lower_bound_above_the_poisson_sample_that_it_is():
    told = MixtureOfGaussians(1.0, (0.0, 1.0), (0.9, 0.1))  # the cost of somebody who is told whether it is drawn
    low, high = guarantee(told, "replace").epsilon_interval(1e-5)
    _, truth = guarantee(STEP, "replace").epsilon_interval(1e-5)  # the same release
    assert low <= truth < high
    assert guarantee(told).epsilon_interval(1e-5)[0] > 0  # adding and removing are attained


def test_unequal_mixtures_take_little_memory() -> None:
    """A hundred shifts at once, and shifts of the most different sizes composed; 300 MB hold NumPy and SciPy, too."""
    code = """
from sfumato.accounting import Composition, MixtureOfGaussians, guarantee
wide = MixtureOfGaussians(1.0, tuple(i / 10 for i in range(100)), (0.01,) * 100) * 20
far = MixtureOfGaussians(1.0, (0.0, 20.0), (0.5, 0.5)) * 50 + MixtureOfGaussians(1.0, (0.0, 1e-4), (0.5, 0.5)) * 5000
several = sum((MixtureOfGaussians(1.0, (0.0, 0.5, 3 + i / 2), (0.5, 0.3, 0.2)) * 3 for i in range(8)), Composition(()))
for run in (wide, far, several):
    low, high = guarantee(run).epsilon_interval(1e-6)
    assert 0 < low <= high < 1.001 * low
    guarantee(run).delta(1.0)
guarantee(far).gdp()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300
