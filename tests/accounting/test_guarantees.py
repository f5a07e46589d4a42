"""What a guarantee says and refuses, on curves of error rates, and where it is computed."""

import math
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

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
from sfumato.accounting.gaussian_curve import gaussian_delta_interval, gaussian_deltas
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.tradeoff import GaussianTradeoff, TradeoffCurve
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


# Curves of error rates, against closed forms and against the best tests of finite distributions, enumerated.


RATES = np.array([0.0, 1e-12, 1e-6, 0.01, 0.1, 0.5, 0.9, 1 - 1e-9, 1.0])
SAMPLED = guarantee(Gaussian(1.0).poisson(0.05) * 300)


def best_tests(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(fpr, tpr) of the tests that reject q for p: all outcomes of a likelihood ratio above a threshold."""
    order = np.argsort(-p / q)
    return np.array([np.concatenate([[0.0], np.cumsum(x[order])[:-1], [1.0]]) for x in (q, p)]).T


def concave_hull(points: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The upper concave hull of points, by all chords."""
    result = np.zeros(len(at))
    for x, y in points:
        for u, v in points:
            inside = (at >= x) & (at <= u) & (u > x)
            result = np.maximum(result, np.where(inside, y + (v - y) * (at - x) / (u - x if u > x else 1.0), 0.0))
        result = np.maximum(result, np.where(at == x, y, 0.0))
    return result


@settings(max_examples=by_profile(20), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=5))
def test_the_curve_is_the_convex_closure_of_the_best_tests_in_both_directions(masses) -> None:
    p, q = (np.array(side) / sum(side) for side in zip(*masses))
    ratios = np.unique(np.concatenate([[1.0], p / q, q / p]))
    ratios = ratios[ratios >= 1]
    one, other = (np.maximum(a - ratios[:, None] * b, 0).sum(axis=1) for a, b in ((p, q), (q, p)))
    ahead = one - other  # linear between ratios: where it changes sign, the larger one has a kink
    turn = np.flatnonzero(ahead[:-1] * ahead[1:] < 0)
    share = ahead[turn] / (ahead[turn] - ahead[turn + 1])
    kinks = ratios[turn] + share * (ratios[turn + 1] - ratios[turn])
    ratios = np.unique(np.concatenate([ratios, kinks]))
    deltas = [max(np.maximum(a - x * b, 0).sum() for a, b in ((p, q), (q, p))) for x in ratios]
    curve = TradeoffCurve.from_deltas(np.log(ratios), np.array(deltas))
    at = np.linspace(0, 1, 23)
    truth = concave_hull(np.concatenate([best_tests(p, q), best_tests(q, p)]), at)
    assert curve.true_positive_rate(at) == pytest.approx(truth, abs=1e-12)
    assert (curve.true_positive_rate(at) >= truth - 1e-14).all()
    assert curve.false_negative_rate(at) == pytest.approx(1 - truth, abs=1e-12)


@settings(max_examples=by_profile(30), deadline=None, derandomize=True)
@given(st.data())
def test_the_search_finds_the_best_of_all_lines(data) -> None:
    steps = data.draw(st.lists(st.floats(1e-3, 2.0), min_size=2, max_size=30))
    falls = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(steps), max_size=len(steps)))
    epsilons, deltas = np.cumsum(steps), np.cumprod(falls)  # neither convex nor from zero
    rates = np.array(data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=9)))
    lines = deltas[:, None] + np.exp(epsilons)[:, None] * rates
    flats = np.exp(-epsilons)[:, None] * (1 - deltas[:, None] - rates)
    truth = np.minimum(1.0, np.minimum(lines.min(axis=0), 1.0 - flats.max(axis=0)))
    found = TradeoffCurve.from_deltas(epsilons, deltas).true_positive_rate(rates)
    assert found == pytest.approx(truth, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("mu", [1e-3, 0.5, 1.0, 7.0])
def test_the_gaussians_curve_is_the_closed_form_and_never_below_it(mu: float) -> None:
    rates = [1e-300, 1e-12, 0.01, 0.3, 0.99]
    found = GaussianTradeoff(mu).true_positive_rate(np.array(rates))
    missed = GaussianTradeoff(mu).false_negative_rate(np.array(rates))
    with mp.workdps(40):
        for rate, tpr, fnr in zip(rates, found, missed):
            guess = mp.findroot(lambda x, rate=rate: mp.log(mp.ncdf(x)) - mp.log(mp.mpf(rate)), float(ndtri(rate)))
            truth = mp.ncdf(guess + mu)
            assert truth <= tpr <= truth * (1 + mp.mpf(1e-10))
            assert (1 - truth) * (1 - mp.mpf(1e-10)) <= fnr <= 1 - truth


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
def test_a_renyi_curve_of_a_gaussian_is_above_the_exact_one(z: float) -> None:
    exact = guarantee(Gaussian(z)).tpr(RATES)
    found = guarantee(Gaussian(z), method="rdp").tpr(RATES)
    assert (found >= exact * (1 - 1e-9)).all()
    assert guarantee(Gaussian(z)).tradeoff(RATES) == pytest.approx(1 - exact, abs=1e-12)


def test_every_method_bounds_the_same_attacker() -> None:
    event = Gaussian(1.0).poisson(0.01) * 1000
    tight = guarantee(event, method="pld").tradeoff(RATES)
    loose = guarantee(event, method="rdp").tradeoff(RATES)
    assert (loose <= tight + 1e-6).all()
    assert (np.diff(tight) <= 1e-12).all()
    assert (tight >= 0).all()
    assert (tight <= 1 - RATES + 1e-12).all()


def test_the_curve_is_its_own_inverse() -> None:
    rates = np.linspace(0.01, 0.5, 50)
    misses = SAMPLED.tradeoff(rates)
    assert SAMPLED.tradeoff(misses) == pytest.approx(rates, abs=1e-4)


def test_the_equivalent_gaussian_is_no_more_private_but_for_the_least_delta() -> None:
    for least in (1e-3, 1e-8):
        fit = SAMPLED.gdp(least)
        rates = np.linspace(0.001, 0.999, 500)
        gaussian = ndtr(ndtri(1 - rates) - fit.mu)
        assert (gaussian - least <= SAMPLED.tradeoff(rates) + 1e-12).all()
    assert fit.regret > 0  # a sampled Gaussian is not a Gaussian


def test_mu_is_the_smallest_that_covers_the_curve() -> None:
    fit = SAMPLED.gdp(1e-6)
    curve = SAMPLED._tradeoff
    assert isinstance(curve, TradeoffCurve)
    seen = curve.deltas >= 1e-6
    crossing = np.interp(1e-6, curve.deltas[::-1], curve.ratios[::-1])
    at = np.log(np.append(curve.ratios[seen], crossing))
    deltas = np.append(curve.deltas[seen], 1e-6)
    assert (gaussian_deltas(fit.mu, at) >= deltas * (1 - 1e-9)).all()
    assert not (gaussian_deltas(fit.mu * (1 - 1e-4), at) >= deltas).all()


@pytest.mark.parametrize("mu", [1e-6, 0.03, 1.0, 8.0])
def test_a_gaussian_given_by_points_is_found_again(mu: float) -> None:
    epsilons = np.linspace(0.0, mu * (mu / 2 + 9), 4000)
    curve = TradeoffCurve.from_deltas(epsilons, gaussian_deltas(mu, epsilons))
    fit = curve.gaussian_equivalent(1e-10)
    assert mu * (1 - 1e-9) <= fit.mu
    assert fit.mu == pytest.approx(mu, rel=1e-4)
    assert fit.regret <= 1e-4


def test_regret_is_the_shift_that_puts_one_curve_below_the_other() -> None:
    """Its definition: the smallest kappa with f(a + kappa) - kappa <= f_mu(a) at every a."""
    fit = SAMPLED.gdp(1e-8)
    rates = np.linspace(0, 1, 4001)

    def covered(kappa: float) -> bool:
        moved = SAMPLED.tradeoff(np.minimum(rates + kappa, 1.0)) - kappa
        return bool((moved <= ndtr(ndtri(1 - rates) - fit.mu) + 1e-12).all())

    assert covered(fit.regret * (1 + 1e-3))
    assert not covered(fit.regret * 0.99)


def test_mu_without_a_least_delta_only_reports_about_the_tail() -> None:
    """With probability q^3 the unit is drawn each time; then the run is a Gaussian of mu sqrt(3)."""
    promise = guarantee(Gaussian(1.0).poisson(0.6) * 3)
    mus = [promise.gdp(least).mu for least in (1e-2, 1e-4, 1e-8, 1e-14)]
    assert mus == sorted(mus)
    assert 1.2 * mus[0] < mus[-1] < math.sqrt(3)


def test_a_published_mu_is_that_of_a_certain_delta() -> None:
    """dp-accounting's estimate for this run, 0.5523977914720071, is what delta asks for where it is 4e-12: there is no
    smallest mu short of sqrt(1000), only one for each delta down to which it is to hold.
    """
    mu, promise = 0.5523977914720071, guarantee(Gaussian(1.0).poisson(0.01) * 1000)
    assert gaussian_delta_interval(mu, 3.6)[0] > promise.delta(3.6)
    assert gaussian_delta_interval(mu, 3.8)[1] < promise.delta(3.8)
    assert 2e-12 < promise.delta(3.8) < promise.delta(3.6) < 1.1e-11
    assert promise.gdp(1e-10).mu < mu < math.sqrt(1000)
    assert promise.gdp(4e-12).mu == pytest.approx(mu, rel=3e-3)


def test_an_infinite_loss_has_no_equivalent_gaussian() -> None:
    curve = TradeoffCurve.from_deltas(np.array([0.0, 1.0]), np.array([0.5, 0.1]))
    assert curve.gaussian_equivalent(1e-10).mu == math.inf
    assert curve.gaussian_equivalent(0.2).mu < math.inf


@pytest.mark.parametrize("prior", [1e-9, 0.01, 0.5, 0.7, 1 - 1e-9])
def test_the_attackers_success_is_that_of_the_best_threshold(prior: float) -> None:
    """N(0,1) against N(mu,1): the best threshold of a prior is in closed form."""
    mu, promise = 1.5, guarantee(Gaussian(1 / 1.5))
    threshold = mu / 2 + (math.log1p(-prior) - math.log(prior)) / mu
    truth = prior * ndtr(mu - threshold) + (1 - prior) * ndtr(threshold)
    assert promise.bayes_success(prior) == pytest.approx(truth, rel=1e-12)
    assert promise.bayes_risk(prior) == pytest.approx(1 - truth, rel=1e-6)
    assert promise.bayes_success(prior) >= truth * (1 - 1e-15)


def test_no_test_on_the_curve_beats_the_bayes_risk() -> None:
    rates = np.linspace(0, 1, 1001)
    for prior in (0.1, 0.5, 0.8):
        risks = prior * SAMPLED.tradeoff(rates) + (1 - prior) * rates
        assert SAMPLED.bayes_risk(prior) == pytest.approx(risks.min(), rel=2e-3)


def test_the_advantage_is_the_largest_distance_from_guessing() -> None:
    rates = np.linspace(0, 1, 1001)
    assert (SAMPLED.tpr(rates) - rates).max() == pytest.approx(SAMPLED.advantage(), rel=1e-3)
    assert SAMPLED.bayes_success(0.5) == pytest.approx((1 + SAMPLED.advantage()) / 2, rel=1e-12)


def test_nothing_released_leaves_the_attacker_guessing() -> None:
    nothing = guarantee(Composition(()))
    assert nothing.tradeoff(RATES) == pytest.approx(1 - RATES)
    assert nothing.tpr(RATES) == pytest.approx(RATES)
    assert nothing.advantage() == 0
    assert nothing.gdp().mu == 0
    assert [nothing.bayes_success(prior) for prior in (0.0, 0.3, 1.0)] == [1.0, 0.7, 1.0]


def test_a_thousand_points_take_a_moment_once_the_curve_is_composed() -> None:
    rates = np.linspace(0, 1, 1000)
    SAMPLED.tpr(rates)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        SAMPLED.tpr(rates)
        SAMPLED.tradeoff(rates)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.05


@pytest.mark.parametrize("fpr", [1.5, -1e-9, math.nan, "0.1", [0.5, 2.0], [[0.5], [math.inf]], True])
def test_an_impossible_rate_is_refused(fpr) -> None:
    for read in (guarantee(Gaussian(1.0)).tradeoff, guarantee(Gaussian(1.0)).tpr):
        with pytest.raises(InputError, match="fpr must be"):
            read(fpr)


@pytest.mark.parametrize("prior", [-0.1, 1.1, math.nan, "half"])
def test_an_impossible_prior_is_refused(prior) -> None:
    with pytest.raises(InputError, match="prior must be"):
        guarantee(Gaussian(1.0)).bayes_risk(prior)


@pytest.mark.parametrize("least", [0, 1, -1, math.nan])
def test_an_impossible_least_delta_is_refused(least) -> None:
    with pytest.raises(InputError, match="least_delta must be"):
        guarantee(Gaussian(1.0)).gdp(least)


def test_the_two_rates_add_up_to_one_at_every_false_positive_rate() -> None:
    powers = 10.0 ** np.arange(-307.0, 0, 9), 1 - 2.0 ** -np.arange(1.0, 54)
    rates = np.concatenate([[0.0, 5e-324, 1e-310, 0.5, 1.0], *powers])
    shifts = 10.0 ** np.arange(-6.0, 2.1, 0.05)
    curves = [GaussianTradeoff(mu) for mu in (0.0, *shifts, 1e100)]
    epsilons = np.linspace(0, 40, 400)
    curves += [TradeoffCurve.from_deltas(epsilons, gaussian_deltas(mu, epsilons)) for mu in (0.01, 1.0, 6.0)]
    for curve in curves:
        caught, missed = curve.true_positive_rate(rates), curve.false_negative_rate(rates)
        assert (np.abs(caught + missed - 1) <= 2 * math.ulp(1.0)).all(), curve
        assert ((rates <= caught) & (caught <= 1)).all()
        assert ((missed >= 0) & (missed <= 1 - rates)).all()
