import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    Composition,
    ExponentialMechanism,
    Gaussian,
    InputError,
    Laplace,
    NonPrivate,
    PureDP,
    guarantee,
)
from sfumato.accounting.accountants import RdpAccountant
from sfumato.accounting.pld import PldAccountant
from slow import by_profile

ADJACENCIES = ("add_remove", "replace", "zero_out")
METHODS = ("rdp", "zcdp")
multipliers = st.floats(0.2, 50)
rates = st.floats(1e-5, 1.0)
steps = st.integers(1, 10_000)
deltas = st.floats(1e-12, 0.1)


@pytest.mark.parametrize(("method", "slack"), [("rdp", 1 + 1e-6), ("pld", 1.01)])
@settings(max_examples=by_profile(8), deadline=None)
@given(z=st.floats(0.4, 10), q=st.floats(1e-3, 0.5), n=steps, delta=deltas, factor=st.floats(1.05, 4), data=st.data())
def test_epsilon_is_monotone_in_every_argument(method, slack, z, q, n, delta, factor, data) -> None:
    adjacency = data.draw(st.sampled_from(ADJACENCIES))

    def cost(z, q, n, delta):
        return guarantee(Gaussian(z).poisson(q) * n, adjacency, method).epsilon(delta)

    here = cost(z, q, n, delta)
    assert cost(z * factor, q, n, delta) <= here * slack
    assert cost(z, q / factor, n, delta) <= here * slack
    assert cost(z, q, math.ceil(n * factor), delta) >= here / slack
    assert cost(z, q, n, delta * factor) <= here * slack


@settings(max_examples=by_profile(25), deadline=None)
@given(multipliers, rates, steps, deltas, st.sampled_from(ADJACENCIES), st.sampled_from(METHODS))
def test_delta_of_epsilon_is_delta(z, q, n, delta, adjacency, method) -> None:
    promise = guarantee(Gaussian(z).poisson(q) * n, adjacency, method)
    epsilon = promise.epsilon(delta)
    assert epsilon >= 0
    if epsilon == 0:
        assert promise.delta(0) <= delta
    else:
        assert promise.delta(epsilon) == pytest.approx(delta, rel=1e-4)


@settings(max_examples=by_profile(12), deadline=None)
@given(st.floats(0.3, 20), st.floats(1e-4, 0.9), steps, st.floats(1e-10, 0.01), st.sampled_from(ADJACENCIES))
def test_the_automatic_choice_is_never_worse_than_any_method(z, q, n, delta, adjacency) -> None:
    event = Gaussian(z).poisson(q) * n
    best = guarantee(event, adjacency).epsilon(delta)
    for method in ("rdp", "zcdp"):
        assert best <= guarantee(event, adjacency, method).epsilon(delta) * (1 + 1e-3)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_nothing_costs_nothing_and_no_noise_costs_everything(adjacency) -> None:
    nothing = guarantee(Composition(()), adjacency)
    assert nothing.epsilon(1e-6) == 0 == nothing.delta(0) == nothing.rho()
    naked = guarantee(Gaussian(1.0) + NonPrivate(), adjacency)
    assert naked.epsilon(1e-6) == math.inf
    assert naked.delta(1e6) == 1
    assert naked.rho() is None
    assert naked.method == "none"


def test_replacement_doubles_the_sensitivity_in_every_accountant() -> None:
    for method in ("auto", "rdp", "zcdp", "gaussian"):
        replaced = guarantee(Gaussian(1.0) * 3, "replace", method)
        doubled = guarantee(Gaussian(0.5) * 3, "add_remove", method)
        assert replaced.epsilon(1e-5) == pytest.approx(doubled.epsilon(1e-5), rel=1e-12)


@pytest.mark.parametrize("n", [0, 1, 10_000_000])
def test_extreme_counts_give_a_number(n: int) -> None:
    epsilon = guarantee(Gaussian(0.1).poisson(1e-9) * n).epsilon(1e-300)
    assert 0 <= epsilon < math.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g: g.epsilon(1.0), "delta must be in"),
        (lambda g: g.epsilon(-1e-9), "delta must be in"),
        (lambda g: g.epsilon(math.nan), "delta must be a number"),
        (lambda g: g.epsilon("0.1"), "delta must be a number"),
        (lambda g: Gaussian(10**400), "noise_multiplier must be within the range"),
        (lambda g: Gaussian(1.0) * 10**400, "count must be within the range"),
        (lambda g: Gaussian(1.0) * math.inf, "count must be a whole number"),  # type: ignore[operator]
        (lambda g: Gaussian("1.0"), "noise_multiplier must be a number"),  # type: ignore[arg-type]
        (lambda g: RdpAccountant(g.event).epsilon(math.nan), "delta must be a number"),
        (lambda g: PldAccountant(g.event).epsilon(math.nan), "delta must be a number"),
        (lambda g: g.delta(-1), "epsilon must be >= 0"),
        (lambda g: guarantee(g.event, "swap"), "adjacency must be one of add_remove"),
        (lambda g: guarantee(g.event, method="magic"), "method must be one of auto"),
        (lambda g: guarantee(g.event, method="prv"), "method must be one of auto"),
        (lambda g: guarantee(1.0), "event must be an accounting event"),
    ],
)
def test_bad_input_is_one_clear_line(call, words) -> None:
    with pytest.raises(InputError, match=words):
        call(guarantee(Gaussian(1.0).poisson(0.1)))


def test_delta_zero_and_huge_epsilon_are_answered() -> None:
    promise = guarantee(Gaussian(1.0).poisson(0.1))
    assert promise.epsilon(0) == math.inf
    assert promise.delta(1e6) == 0


@pytest.mark.parametrize("event", [Gaussian(1.0), Gaussian(1.0).poisson(0.1)])
@pytest.mark.parametrize("method", ["auto", "rdp", "zcdp"])
def test_a_numpy_delta_is_the_number_it_holds(event, method) -> None:
    promise, delta = guarantee(event, method=method), np.float32(1e-5)
    assert promise.epsilon(delta) == promise.epsilon(float(delta))
    assert type(promise.epsilon(delta)) is float


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("make", [lambda e: e, lambda e: e.poisson(0.1) * 3, lambda e: e.without_replacement(1, 9)])
def test_noise_of_any_size_gives_a_cost(adjacency, make) -> None:
    costs = [guarantee(make(Gaussian(z)), adjacency).epsilon(1e-6) for z in (1e-200, 1e-3, 1e9, 1e160)]
    assert costs == sorted(costs, reverse=True)
    assert costs[1] > 1e3
    assert costs[-1] < 1e-6


def test_small_noise_is_bounded_between_its_neighbours() -> None:
    orders = (1.5, 2.0, 2.5, 3.0)
    values = RdpAccountant(Gaussian(1e-3).poisson(0.1), orders=orders).values
    assert (np.diff(values) >= 0).all()
    assert values[0] <= values[1]
    assert values[2] <= values[3]


@pytest.mark.parametrize(("z", "q", "steps"), [(1, 0.01, 40_000), (4, 0.01, 10**6), (10, 0.5, 10_000)])
def test_views_of_long_runs_are_bounds_not_crashes(z, q, steps):
    cost = guarantee(Gaussian(z).poisson(q) * steps)
    advantage = cost.advantage()
    assert 0 < advantage <= 1
    assert advantage == cost.delta(0.0)
    false_negatives = cost.tradeoff(np.array([0.01, 0.1, 0.5]))
    assert ((false_negatives >= 0) & (false_negatives <= 1)).all()
    assert (np.diff(false_negatives) <= 0).all()
    assert (1 - false_negatives - np.array([0.01, 0.1, 0.5]) <= advantage + 1e-9).all()


def test_delta_of_a_long_run_of_rare_steps_is_a_bound():
    cost = guarantee(Gaussian(1).poisson(1e-4) * 10**6)
    delta = cost.delta(1.0)
    assert 0 < delta < 1
    assert cost.epsilon(delta) <= 1.0 + 1e-2


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (Gaussian(1.0).truncated_poisson(0.1, 11, 100), "add_remove"),
        (Gaussian(1.0).without_replacement(10, 100), "replace"),
        (ExponentialMechanism(1.0).min_separation(5, 10), "add_remove"),
        (PureDP(1.0).min_separation(5, 10), "replace"),
        (Laplace(1.0) + ExponentialMechanism(1.0), "add_remove"),
    ],
)
@pytest.mark.parametrize("method", ["auto", "pld"])
def test_nothing_is_claimed_from_below_where_no_mechanism_attains_the_pairs(event, adjacency, method):
    low, high = guarantee(event, adjacency, method).epsilon_interval(1e-5)
    assert low == 0 < high


@pytest.mark.parametrize("delta", ["1e-5", np.nan, 2])
def test_every_question_about_a_gaussian_needs_a_delta(delta):
    promise = guarantee(Gaussian(1.0))
    for ask in (promise.tightest, promise.accountants[0].epsilon):
        with pytest.raises(InputError):
            ask(delta)


def test_hardly_any_noise_hides_nothing_and_is_no_nan():
    promise = guarantee(Gaussian(5e-324))
    assert promise.tpr(np.array([1e-300, 0.5, 1.0])).tolist() == [1.0, 1.0, 1.0]
    assert promise.bayes_risk() == 0.0


@pytest.mark.parametrize("event", [Gaussian(1.0) * 3, Gaussian(1.0).poisson(0.1) * 200, Laplace(2.0) * 5])
def test_delta_lies_between_two_bounds_that_meet(event) -> None:
    promise = guarantee(event)
    for epsilon in (0.0, 0.5, 1.5):
        low, high = promise.delta_interval(epsilon)
        assert 0 < low <= high == promise.delta(epsilon)
        assert high <= low * (1 + 2e-3)
        assert promise.epsilon_interval(high)[0] <= epsilon + 1e-6


def test_nothing_is_claimed_of_delta_from_below_where_no_mechanism_attains_the_pairs() -> None:
    assert guarantee(ExponentialMechanism(1.0) * 3).delta_interval(0.5)[0] == 0.0
    assert guarantee(NonPrivate()).delta_interval(1.0) == (0.0, 1.0)
    with pytest.raises(InputError, match="epsilon must be"):
        guarantee(Gaussian(1.0)).delta_interval(-1.0)
