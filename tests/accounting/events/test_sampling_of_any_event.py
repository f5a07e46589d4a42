"""Samples of any event against mechanisms that are small enough to enumerate, every sample and every outcome."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    PureDP,
    RandomizedResponse,
    Unknown,
    guarantee,
)
from sfumato.accounting.events.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.loss.grid import from_above
from sfumato.accounting.pair import Pair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledPair
from slow import by_profile

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


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-20, 1 - 1e-16])
@pytest.mark.parametrize(
    "event",
    [Gaussian(1.0), Gaussian(0.06), Laplace(1.0), ApproximateDP(1.0, 1e-6), ApproximateDP(0.0, 0.3)],
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
