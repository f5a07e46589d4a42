"""What holds for every event, noise, rate, count, delta and epsilon, the extremes included.

The bounds of the tight accountant are certified and may be a little apart, so what holds for the truth holds for them
within their width: a lower bound here is never above an upper bound there.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Composition, Event, Gaussian, Guarantee, guarantee
from sfumato.accounting.guarantees import Method
from slow import by_profile

ADJACENCIES = ("add_remove", "replace", "zero_out")
few = settings(max_examples=by_profile(12), deadline=None, derandomize=True, database=None)


def log_floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


noises = log_floats(1e-2, 1e4)
rates = st.one_of(st.sampled_from([0.0, 1.0]), log_floats(1e-9, 1.0).map(lambda q: min(q, 1.0)))
counts = st.one_of(st.sampled_from([0, 1, 10_000_000]), log_floats(1, 1e7).map(int))
deltas = st.one_of(st.sampled_from([1e-300]), log_floats(1e-300, 1e-12), log_floats(1e-12, 0.999))
epsilons = st.one_of(st.sampled_from([0.0, 1e6]), log_floats(1e-6, 1e6))
factors = st.floats(1.2, 10)
adjacencies = st.sampled_from(ADJACENCIES)


def run(z: float, q: float, n: int) -> Event:
    return Gaussian(z).poisson(q) * n


def below(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether the number in one interval may be at most the one in the other, but for rounding."""
    return one[0] <= other[1] * (1 + 1e-9) + 1e-12


def delta_interval(promise: Guarantee, epsilon: float) -> tuple[float, float]:
    """Bounds on delta: a Gaussian's is exact, a composed one has both ends, others are upper bounds."""
    (accountant, *_) = promise.accountants
    both = getattr(accountant, "delta_interval", None)
    high = promise.delta(epsilon)
    return (both(epsilon)[0] if both else (high if promise.method == "gaussian" else 0.0)), high


@few
@given(noises, rates, counts, deltas, factors, adjacencies, st.data())
def test_epsilon_is_monotone_in_every_argument(z, q, n, delta, factor, adjacency, data) -> None:
    def cost(z: float, q: float, n: int, delta: float) -> tuple[float, float]:
        low, high = guarantee(run(z, q, n), adjacency).epsilon_interval(delta)
        assert 0 <= low <= high  # which NaN is not
        return low, high

    here = cost(z, q, n, delta)
    match data.draw(st.sampled_from(["noise", "rate", "count", "delta"])):
        case "noise":
            assert below(cost(z * factor, q, n, delta), here)
        case "rate":
            assert below(cost(z, q / factor, n, delta), here)
        case "count":
            assert below(cost(z, q, int(n / factor), delta), here)
        case "delta":
            assert below(cost(z, q, n, min(0.9999, delta * factor)), here)


@few
@given(noises, rates, counts, epsilons, factors, adjacencies, st.data())
def test_delta_is_monotone_in_every_argument(z, q, n, epsilon, factor, adjacency, data) -> None:
    def risk(z: float, q: float, n: int, epsilon: float) -> tuple[float, float]:
        low, high = delta_interval(guarantee(run(z, q, n), adjacency), epsilon)
        assert 0 <= low <= high <= 1
        return low, high

    here = risk(z, q, n, epsilon)
    match data.draw(st.sampled_from(["noise", "rate", "count", "epsilon"])):
        case "noise":
            assert below(risk(z * factor, q, n, epsilon), here)
        case "rate":
            assert below(risk(z, q / factor, n, epsilon), here)
        case "count":
            assert below(risk(z, q, int(n / factor), epsilon), here)
        case "epsilon":
            assert below(risk(z, q, n, epsilon * factor), here)


@few
@given(noises, rates, counts, log_floats(1e-18, 0.999), adjacencies)
def test_delta_of_epsilon_is_delta(z, q, n, delta, adjacency) -> None:
    promise = guarantee(run(z, q, n), adjacency)
    epsilon = promise.epsilon(delta)
    if math.isfinite(epsilon):
        low, _ = delta_interval(promise, epsilon)
        assert low <= delta * (1 + 1e-9)  # epsilon is certified, so the truth is at most delta there
        assert promise.delta(epsilon) <= delta * 1.03  # and its upper bound hardly above
    if epsilon > 1e-9:
        assert promise.delta(epsilon * (1 - 2e-2)) >= delta


@few
@given(noises, rates, counts, deltas, adjacencies)
def test_no_cheaper_accountant_is_tighter(z, q, n, delta, adjacency) -> None:
    event = run(z, q, n)
    low, high = guarantee(event, adjacency).epsilon_interval(delta)
    for method in ("rdp", "zcdp", "rdp_usual_orders"):
        loose = guarantee(event, adjacency, method).epsilon(delta)
        assert low <= loose * (1 + 1e-9)
        if method != "rdp_usual_orders":
            assert high <= loose * (1 + 2e-3) + 1e-9


@few
@given(noises, rates, st.integers(0, 6), st.integers(1, 10_000), adjacencies)
def test_a_product_is_as_many_additions(z, q, n, block, adjacency) -> None:
    event = run(z, q, block)
    added: Event = Composition(())
    for _ in range(n):
        added = added + event
    assert added == event * n == run(z, q, block * n)
    for method in ("auto", "rdp"):
        assert guarantee(added, adjacency, method).epsilon(1e-6) == guarantee(event * n, adjacency, method).epsilon(
            1e-6
        )


@few
@given(noises, rates, counts, noises, rates, st.integers(0, 3), deltas, adjacencies)
def test_more_releases_never_cost_less(z, q, n, other_z, other_q, other_n, delta, adjacency) -> None:
    one, other = run(z, q, n), run(other_z, other_q, other_n)
    for method in ("auto", "rdp"):
        both = guarantee(one + other, adjacency, method).epsilon_interval(delta)
        assert below(guarantee(one, adjacency, method).epsilon_interval(delta), both)
        assert both == guarantee(other + one, adjacency, method).epsilon_interval(delta)


@few
@given(noises, rates, counts, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 1), adjacencies)
def test_no_curve_leaves_its_range(z, q, n, fprs, prior, adjacency) -> None:
    promise = guarantee(run(z, q, n), adjacency)
    advantage = promise.advantage()
    for fpr in sorted(fprs):
        tpr, fnr = float(promise.tpr(fpr)), float(promise.tradeoff(fpr))
        assert fpr * (1 - 1e-12) <= tpr <= 1
        assert 0 <= fnr <= 1 - fpr + 1e-12
        assert tpr + fnr == pytest.approx(1, abs=1e-12)
        assert tpr - fpr <= advantage * (1 + 1e-9) + 1e-12
    assert max(prior, 1 - prior) * (1 - 1e-12) <= promise.bayes_success(prior) <= 1


@few
@given(noises, rates, counts, adjacencies)
def test_the_equivalent_gaussian_is_a_number_or_infinite(z, q, n, adjacency) -> None:
    promise = guarantee(run(z, q, n), adjacency)
    fit = promise.gdp()
    assert fit.mu >= 0
    assert 0 <= fit.regret <= 1
    if 1e-8 < fit.mu < 30:
        assert promise.delta(1.0) <= guarantee(Gaussian(1 / fit.mu)).delta(1.0) * (1 + 1e-2) + 1e-10


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("method", ["auto", "rdp", "zcdp"])
@pytest.mark.parametrize("z", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("q", [0.0, 1.0])
def test_all_or_none_of_the_units_and_none_or_one_of_the_steps(adjacency, method: Method, z, q) -> None:
    for n in (0, 1):
        promise = guarantee(run(z, q, n), adjacency, method)
        assert (promise.epsilon(1e-300) == 0) == (q * n == 0)
        assert promise.delta(1e6) < 1
        assert promise.delta(0.0) <= 1
        if q * n == 0:
            assert promise.delta(0.0) == 0 == promise.rho()
