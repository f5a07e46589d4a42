"""Events: equal, written and read back, known by name, and what those of bounded loss and of groups cost."""

import ast
import copy
import importlib
import itertools
import json
import math
import pickle
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from functools import reduce
from operator import add
from pathlib import Path
from types import ModuleType

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from sfumato.accounting import (
    ZCDP,
    ApproximateDP,
    ClipCount,
    Composition,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Gaussian,
    InputError,
    Laplace,
    MatrixMechanism,
    NoisyVote,
    NonPrivate,
    Participation,
    Poisson,
    PureDP,
    RandomizedResponse,
    Repeated,
    TreeAggregation,
    Unknown,
    WithoutReplacement,
    compose,
    event_from_json,
    guarantee,
    joint,
)
from sfumato.accounting.events import event as event_module
from sfumato.accounting.events import terms
from sfumato.accounting.pld import PldAccountant
from slow import by_profile

multipliers = st.floats(0.1, 100)
singles = st.one_of(
    st.builds(Gaussian, multipliers),
    st.builds(lambda z, q: Gaussian(z).poisson(q), multipliers, st.floats(1e-9, 0.999)),
    st.builds(lambda z, m: Gaussian(z).without_replacement(m, 1000), multipliers, st.integers(1, 1000)),
    st.just(NonPrivate()),
)
events = st.lists(st.tuples(singles, st.integers(0, 5)), max_size=4).map(
    lambda pairs: reduce(add, (event * count for event, count in pairs), Composition(()))
)


@given(singles, st.integers(1, 6))
def test_adding_an_event_n_times_is_repeating_it(event: Event, count: int) -> None:
    total = reduce(add, [event] * count)
    assert total == event * count
    assert hash(total) == hash(event * count)


@given(events, events, events)
def test_composition_knows_no_order_and_no_brackets(a: Event, b: Event, c: Event) -> None:
    assert (a + b) + c == a + (b + c) == c + b + a
    assert hash(a + b + c) == hash(c + b + a)


@given(events, st.integers(0, 3), st.integers(0, 3))
def test_repetitions_multiply(event: Event, m: int, n: int) -> None:
    assert event * m * n == event * (m * n)
    assert event * m + event * n == event * (m + n)


@given(events)
def test_an_event_survives_json(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event


@given(st.lists(singles, max_size=4))
def test_a_composition_counts_what_is_listed_twice(listed: list[Event]) -> None:
    given_ = Composition(tuple(listed))
    assert dict(terms(given_)) == {event: listed.count(event) for event in listed}
    assert given_ == Composition(tuple(reversed(listed)))
    assert hash(given_) == hash(Composition(tuple(reversed(listed))))
    if listed:
        assert given_ != Composition((*listed, listed[0]))


@pytest.mark.parametrize("first", [1, 2])
def test_a_remembered_cost_is_not_given_to_another_count(first: int) -> None:
    step = Gaussian(1.0 + first / 1000).poisson(0.1)  # its own event for each order, as costs are remembered
    cost = {n: guarantee(Composition((step,) * n)).epsilon(1e-6) for n in (first, 3 - first)}
    for n in (1, 2):
        assert cost[n] == pytest.approx(guarantee(step * n, method="pld").epsilon(1e-6), rel=1e-9)
    assert cost[2] > 1.05 * cost[1]


def test_sum_works_on_events() -> None:
    assert sum([Gaussian(1.0)] * 3) == Gaussian(1.0) * 3


def test_rates_of_zero_and_one_are_no_sampling() -> None:
    assert Gaussian(1.0).poisson(0) == Composition(())
    assert Gaussian(1.0).poisson(1) == Gaussian(1.0)
    assert Gaussian(1.0).without_replacement(0, 10) == Composition(())


def test_a_full_sample_of_fixed_size_still_exchanges_units() -> None:
    assert isinstance(Gaussian(1.0).without_replacement(10, 10), WithoutReplacement)


def test_gaussians_on_one_sample_are_sampled_as_one() -> None:
    joint = (Gaussian(3.0) + Gaussian(4.0)).poisson(0.1)
    assert isinstance(joint, Poisson)
    assert joint.event.noise_multiplier == pytest.approx(12 / 5, rel=1e-15)
    assert joint.event.noise_multiplier <= 12 / 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0), "NonPrivate"),
        (lambda: Gaussian(-1), "noise_multiplier must be > 0"),
        (lambda: Gaussian(math.nan), "noise_multiplier"),
        (lambda: Gaussian(math.inf), "noise_multiplier"),
        (lambda: Gaussian(1).poisson(1.1), "sampling_rate must be in"),
        (lambda: Gaussian(1).poisson(-0.1), "sampling_rate must be in"),
        (lambda: Gaussian(1).poisson(math.nan), "sampling_rate"),
        (lambda: Gaussian(1).poisson(0.1).poisson(0.1), "Poisson sampling of Poisson is not known"),
        (lambda: (Gaussian(1).poisson(0.1) + Gaussian(1)).poisson(0.1), "of Gaussian [+] Poisson"),
        (lambda: Gaussian(1).poisson(0.1).without_replacement(1, 2), "without replacement of Poisson"),
        (lambda: Gaussian(1).without_replacement(11, 10), "11 of 10"),
        (lambda: Gaussian(1).without_replacement(1, 0), "population"),
        (lambda: Gaussian(1) * -1, "count must be a whole number"),
        (lambda: Gaussian(1) * 1.5, "count must be a whole number"),
        (lambda: Repeated(Repeated(Gaussian(1), 2), 2), "single event"),
        (lambda: Repeated(1.0, 2), "Repeated takes events"),  # type: ignore[arg-type]
        (lambda: Composition((Gaussian(1), 2.0)), "Composition takes events such as Gaussian"),  # type: ignore
        (lambda: Composition(3), "Composition takes a tuple of events"),  # type: ignore[arg-type]
        (lambda: event_from_json({"event": "telepathy"}), "unknown event 'telepathy'"),
        (lambda: event_from_json({"scale": 1}), "not an event"),
        (lambda: event_from_json({"event": "gaussian", "noise_multiplier": "x"}), "noise_multiplier"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


STEP = Gaussian(1.0).poisson(0.1)


@pytest.mark.parametrize("once_first", [True, False])
def test_a_composition_written_by_hand_costs_all_of_its_parts(once_first):
    once, twice = Composition((STEP,)), Composition((STEP, STEP))
    events = (once, twice) if once_first else (twice, once)
    cost = {event: guarantee(event).epsilon(1e-6) for event in events}
    assert once != twice
    assert cost[twice] == pytest.approx(guarantee(STEP * 2).epsilon(1e-6), rel=1e-9)
    assert cost[twice] > cost[once]


def test_a_composition_adds_up_counts_and_refuses_what_is_no_event():
    twice_and_thrice = Composition((Repeated(STEP, 2), Repeated(STEP, 3)))
    assert dict(terms(twice_and_thrice)) == {STEP: 5}
    with pytest.raises(InputError, match="gaussian"):
        Composition(("gaussian",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: event_from_json(np.float32(1)),  # type: ignore[arg-type]
        lambda: event_from_json({**(STEP * 2).to_json(), "weight": 9}),
        lambda: event_from_json({**(STEP + Laplace(1.0)).to_json(), "weight": 9}),
    ],
)
def test_json_that_says_more_than_an_event_or_less_is_refused_in_one_line(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_an_event_that_is_nested_too_deeply_is_refused_in_one_line():
    nested = Gaussian(1.0).to_json()
    for _ in range(900):
        nested = {"event": "min_separation", "of": nested, "rounds": 1, "separation": 0}
    with pytest.raises(InputError, match="nested"):
        event_from_json(nested)


def test_a_repetition_written_by_hand_reads_back_as_it_was():
    once = Repeated(STEP, 1)
    assert event_from_json(once.to_json()) == once


@pytest.mark.parametrize("yes", [True, np.True_])
def test_yes_is_no_number(yes) -> None:
    for make in (Gaussian, Gaussian(1.0).poisson, lambda count: Gaussian(1.0) * count):
        with pytest.raises(InputError, match="must be a number, got"):
            make(yes)
    with pytest.raises(InputError, match="noise_multiplier must be a number"):
        event_from_json({"event": "gaussian", "noise_multiplier": True})


def test_sums_that_go_on_from_the_same_sum_know_nothing_of_each_other():
    first, second, third = STEP, Gaussian(3.0), Gaussian(4.0)
    base = first + second
    one, other = base + third, base + first
    again = one + second
    assert base == compose({first: 1, second: 1})
    assert one == compose({first: 1, second: 1, third: 1})
    assert other == compose({first: 2, second: 1})
    assert again == compose({first: 1, second: 2, third: 1})
    assert pickle.loads(pickle.dumps(again)) == copy.deepcopy(again) == again
    with pytest.raises(AttributeError):
        again.events = ()


def test_sums_in_several_threads_hold_what_each_added():
    base = STEP + Gaussian(3.0)

    def grown(thread: int) -> Event:
        return sum((Gaussian(thread + 4 + step / 1000) for step in range(500)), base)

    with ThreadPoolExecutor(8) as pool:
        for thread, found in enumerate(pool.map(grown, range(8))):
            expected = {Gaussian(thread + 4 + step / 1000): 1 for step in range(500)}
            assert found == compose({STEP: 1, Gaussian(3.0): 1, **expected})


def test_a_sum_of_many_events_takes_time_in_proportion():
    def seconds(count: int) -> float:
        events = [Gaussian(1 + step / count) for step in range(count)]
        took = []
        for _ in range(3):
            start = time.process_time()
            terms(sum(events))
            took.append(time.process_time() - start)
        return min(took)

    assert seconds(40_000) <= 40 * seconds(4000)  # 100 times as long where each addition copies the sum


@pytest.mark.parametrize(
    "given_", [None, 3, "x", [STEP], np.array(1.0), {"x": 1}, {STEP: -1}, {STEP: 0.5}, {STEP: "2"}]
)
def test_compose_refuses_what_is_no_dictionary_of_counts(given_):
    with pytest.raises(InputError):
        compose(given_)
    with pytest.raises(InputError):
        Composition(given_ if isinstance(given_, np.ndarray) else 3)


def test_compose_brings_repeated_events_into_normal_form():
    assert compose({STEP * 3: 2, STEP: 1, STEP + Gaussian(3.0): 2}) == STEP * 9 + Gaussian(3.0) * 2


# Every kind of event is known by name, whatever was imported before.


FOLDER = Path(event_module.__file__).parent
JSON = {"event": "gaussian", "noise_multiplier": 1.0}


def registers(path: Path) -> bool:
    """Whether a module gives a class its name in JSON, or a method of `Event` what it calls."""
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    decorators = [each for node in found for each in getattr(node, "decorator_list", ())]
    calls = [each.func for each in decorators if isinstance(each, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id in ("event_kind", "derivation") for call in calls)


@pytest.fixture
def first() -> Iterator[ModuleType]:
    """The module of `Event` as the first one of accounting that is imported, without any other kind of event."""
    ours = {name: module for name, module in sys.modules.items() if f"{name}.".startswith("sfumato.accounting.")}
    for name in ours:
        del sys.modules[name]
    try:
        for name in ("sfumato.accounting", "sfumato.accounting.events"):  # their __init__ would import the others
            empty = ModuleType(name)
            empty.__path__ = ours[name].__path__
            sys.modules[name] = empty
        yield importlib.import_module("sfumato.accounting.events.event")
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith("sfumato.accounting.")]:
            del sys.modules[name]
        sys.modules.update(ours)


def test_every_module_that_registers_something_is_listed() -> None:
    found = {path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py") if registers(path)}
    named = {".".join(path.parts) for path in found} - {"event"}
    assert named == set(event_module._MODULES)


def test_json_is_read_where_no_kind_was_imported(first: ModuleType) -> None:
    assert "sfumato.accounting.events.gaussian" not in sys.modules
    assert first.event_from_json(JSON).to_json() == JSON


@pytest.mark.parametrize(
    ("method", "numbers", "kind"),
    [
        ("poisson", (0.1,), "poisson"),
        ("without_replacement", (3, 10), "without_replacement"),
        ("truncated_poisson", (0.1, 3, 10), "truncated_poisson"),
        ("min_separation", (10, 3), "min_separation"),
    ],
)
def test_an_event_is_derived_where_only_its_own_kind_was_imported(first: ModuleType, method, numbers, kind) -> None:
    one = importlib.import_module("sfumato.accounting.events.gaussian").Gaussian(1.0)
    assert "sfumato.accounting.events.sampled" not in sys.modules
    assert getattr(one, method)(*numbers).kind == kind


# Events of bounded loss and discrete noise: what each costs, against the definition and other ways to compute it.


ORDERS = np.array([1.001, 1.5, 2.0, 3.0, 7.5, 32.0, 500.0])
EVENTS: list[tuple[Event, str]] = [
    (Laplace(0.7), "add_remove"),
    (DiscreteLaplace(0.4, 3), "zero_out"),
    (DiscreteGaussian(1.5, 2), "add_remove"),
    (RandomizedResponse(0.3, 5), "replace"),
    (PureDP(0.8), "add_remove"),
    (PureDP(0.8, "zero_out"), "zero_out"),
    (ApproximateDP(0.5, 1e-3, "replace"), "replace"),
    (ZCDP(0.25), "add_remove"),
    (ExponentialMechanism(1.2), "add_remove"),
]


@pytest.mark.parametrize(("event", "adjacency"), EVENTS, ids=str)
def test_events_survive_json_and_are_values(event: Event, adjacency: str) -> None:
    sampled = [] if isinstance(event, ZCDP) else [event.poisson(0.25), event.without_replacement(3, 10)]
    for each in (event, event * 3, event + Gaussian(1.0), *sampled):
        back = event_from_json(json.loads(json.dumps(each.to_json())))
        assert back == each
        assert hash(back) == hash(each)
        assert dict(terms(back)) == dict(terms(each))


@pytest.mark.parametrize(("event", "adjacency"), EVENTS, ids=str)
@settings(max_examples=by_profile(8), deadline=None)
@given(st.floats(1e-9, 0.3), st.integers(1, 50))
def test_more_of_an_event_costs_more_and_never_below_zero(event: Event, adjacency, delta: float, count: int) -> None:
    if isinstance(event, ApproximateDP):
        return  # its infinite losses have a test of their own
    once, often = (guarantee(event * n, adjacency).epsilon(delta) for n in (count, count + 1))
    assert 0 <= once <= often * (1 + 1e-3)
    assert often < math.inf


@pytest.mark.parametrize(("event", "adjacency"), EVENTS, ids=str)
def test_zcdp_lies_above_the_renyi_curve(event: Event, adjacency) -> None:
    renyi, rho = event.renyi(ORDERS, adjacency), event.rho(adjacency)
    assert (renyi >= 0).all()
    assert (np.diff(renyi[np.isfinite(renyi)]) >= 0).all()
    assert (renyi <= ORDERS * rho * (1 + 1e-9)).all()
    assert (renyi <= event.largest_loss(adjacency) * (1 + 1e-12)).all()


def test_replacing_a_unit_moves_it_twice_as_far() -> None:
    for once, twice in [
        (Laplace(3.0), Laplace(1.5)),
        (DiscreteLaplace(0.4, 3), DiscreteLaplace(0.4, 6)),
        (DiscreteGaussian(2.0, 1), DiscreteGaussian(2.0, 2)),
        (PureDP(0.5), PureDP(1.0)),
        (ZCDP(0.1), ZCDP(0.4)),
        (ExponentialMechanism(0.5), ExponentialMechanism(1.0)),
        (ApproximateDP(0.5, 1e-3), ApproximateDP(1.0, 1e-3 * (1 + math.exp(0.5)))),
    ]:
        assert once.rho("replace") == pytest.approx(twice.rho("add_remove"), rel=1e-14)
        assert once.largest_loss("replace") == pytest.approx(twice.largest_loss("add_remove"), rel=1e-14)
        if not isinstance(once, ZCDP):
            (ours,), (other,) = once.pairs("replace"), twice.pairs("add_remove")
            edges = np.array([-np.inf, -0.01, 0.1, 0.3, np.inf])
            for mass, expected in zip(ours.cells(edges)[:2], other.cells(edges)[:2]):
                np.testing.assert_allclose(mass, expected, rtol=1e-13)


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0, 71.0, 1e6])
def test_the_renyi_curve_of_laplace_is_the_integral(scale: float) -> None:
    found = Laplace(scale).renyi(ORDERS, "add_remove")
    with mp.workdps(60):
        for order, value in zip(ORDERS, found):
            a, e = mp.mpf(float(order)), 1 / mp.mpf(scale)
            moment = a / (2 * a - 1) * mp.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mp.exp(-a * e)
            truth = mp.log(moment) / (a - 1)
            assert float(truth) * (1 - 1e-14) <= value <= float(truth) * (1 + 1e-7)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 1.0, 30.0])
def test_the_renyi_curve_of_a_pure_claim_is_that_of_randomised_response(epsilon: float) -> None:
    found = PureDP(epsilon).renyi(ORDERS, "add_remove")
    response = RandomizedResponse.from_epsilon(epsilon, 2).renyi(ORDERS, "replace")
    np.testing.assert_allclose(response, found, rtol=1e-6)
    with mp.workdps(60):
        for order, value in zip(ORDERS, found):
            a, e = mp.mpf(float(order)), mp.mpf(epsilon)
            truth = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
            assert float(truth) * (1 - 1e-14) <= value <= float(truth) * (1 + 1e-7)


@pytest.mark.parametrize("epsilon", [1e-4, 0.5, 1.0, 8.0, 60.0])
def test_the_renyi_curve_of_bounded_range_is_the_worst_of_all_two_outcomes(epsilon: float) -> None:
    found = ExponentialMechanism(epsilon).renyi(ORDERS, "add_remove")
    with mp.workdps(50):
        for order, value in zip(ORDERS, found):
            a, e = mp.mpf(float(order)), mp.mpf(epsilon)

            def divergence(t, a=a, e=e):
                q = mp.expm1(e - t) / mp.expm1(e)
                return mp.log(q * mp.exp(a * t) + (1 - q) * mp.exp(a * (t - e))) / (a - 1)

            low, high = mp.mpf(0), e
            for _ in range(150):  # the only maximum, by ternary search
                one, two = low + (high - low) / 3, high - (high - low) / 3
                low, high = (one, high) if divergence(one) < divergence(two) else (low, two)
            truth = float(divergence(low))
            assert truth * (1 - 1e-12) <= value <= truth * (1 + 1e-9) + 1e-15


def test_an_exponential_mechanism_is_below_its_pair_and_its_renyi_curve() -> None:
    """Scores of ten candidates that one unit moves by at most one, chosen by weights e^(epsilon score / 2)."""
    random = np.random.default_rng(5)
    epsilon = 1.3
    event = ExponentialMechanism(epsilon)
    (pair,) = event.pairs("add_remove")
    for _ in range(50):
        score = random.normal(size=10)
        moved = score + random.choice([-1.0, 1.0], size=10)
        p, q = (np.exp(epsilon * s / 2) / np.exp(epsilon * s / 2).sum() for s in (score, moved))
        assert np.ptp(np.log(p / q)) <= epsilon * (1 + 1e-12)
        for loss in (-0.4, 0.0, 0.3, 0.9):
            upper, lower, _ = pair.cells(np.array([loss, np.inf]))
            assert np.maximum(p - math.exp(loss) * q, 0).sum() <= upper[0] - math.exp(loss) * lower[0] + 1e-12
        found = np.array([np.log((p**a * q ** (1 - a)).sum()) / (a - 1) for a in ORDERS[:-1]])
        assert (found <= event.renyi(ORDERS[:-1], "add_remove") + 1e-12).all()


@pytest.mark.parametrize(("spread", "total"), [((1, 1), 2), ((2, 1), 3), ((3, 3), 6), ((5, 1), 6), ((1, 1, 2), 4)])
@pytest.mark.parametrize("rate", [0.2, 1.5])
def test_a_move_of_one_integer_dominates_a_move_spread_over_a_vector(spread, total: int, rate: float) -> None:
    losses, masses = np.zeros(1), np.ones(1)
    for shift in spread:
        (pair,) = DiscreteLaplace(rate, shift).pairs("add_remove")
        own, upper, _, _ = pair.table()
        losses, masses = (losses[:, None] + own).ravel(), (masses[:, None] * upper).ravel()
    own, upper, _, _ = DiscreteLaplace(rate, total).pairs("add_remove")[0].table()
    for loss in np.linspace(-0.99, 0.99, 61) * rate * total:
        vector = (masses * np.maximum(-np.expm1(loss - losses), 0)).sum()
        single = (upper * np.maximum(-np.expm1(loss - own), 0)).sum()
        assert vector <= single + 1e-14


@pytest.mark.parametrize(("one", "two"), [(1.0, 1.0), (0.5, 2.0), (0.01, 3.0)])
def test_a_move_of_one_number_dominates_a_move_spread_over_a_vector(one: float, two: float) -> None:
    def curve(epsilon: float, loss: np.ndarray) -> np.ndarray:
        inner = -np.expm1((np.clip(loss, -epsilon, epsilon) - epsilon) / 2)
        return np.where(loss < -epsilon, -np.expm1(np.minimum(loss, 0)), inner)

    grid = np.linspace(-one, one, 20_001)
    middle = (grid[1:] + grid[:-1]) / 2
    weight = np.exp((middle - one) / 2) / 4 * np.diff(grid)
    for loss in np.linspace(-0.95, 0.95, 21) * (one + two):
        vector = curve(two, loss - one) / 2 + curve(two, loss + one) * math.exp(-one) / 2
        vector += (weight * curve(two, loss - middle)).sum()
        assert vector <= curve(one + two, np.array(loss)) + 1e-8


def test_a_report_of_randomised_response_has_the_probabilities_it_says() -> None:
    event = RandomizedResponse(0.4, 5)
    transition = np.full((5, 5), 0.4 / 5) + np.eye(5) * 0.6
    assert transition[0, 0] == pytest.approx(event.keep_probability)
    (pair,) = event.pairs("replace")
    for loss in (-1.0, -0.2, 0.0, 0.5, 1.9):
        truth = np.maximum(transition[0] - math.exp(loss) * transition[3], 0).sum()
        upper, lower, _ = pair.cells(np.array([loss, np.inf]))
        assert upper[0] - math.exp(loss) * lower[0] == pytest.approx(truth, abs=1e-15)
    assert event.largest_loss("replace") == pytest.approx(math.log(0.68 / 0.08), rel=1e-14)


@given(st.floats(1e-9, 600), st.integers(2, 1000))
def test_randomised_response_for_an_epsilon_costs_that_epsilon(epsilon: float, categories: int) -> None:
    event = RandomizedResponse.from_epsilon(epsilon, categories)
    assert epsilon <= event.largest_loss("replace") <= epsilon * (1 + 1e-12) + 4e-15 * categories
    if epsilon < 30:
        assert event.keep_probability == pytest.approx(expit(epsilon - math.log(categories - 1)), rel=1e-9)


def convolved(upper: np.ndarray, lower: np.ndarray, count: int, epsilon: float) -> float:
    """delta of `count` releases, outcome by outcome."""
    p = q = np.ones(1)
    for _ in range(count):
        p, q = np.outer(p, upper).ravel(), np.outer(q, lower).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def masses(event: Event, adjacency) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(-60, 64)
    match event:
        case DiscreteLaplace():
            weight = np.exp(-event.rate * np.abs(x))
            return weight / weight.sum(), np.exp(-event.rate * np.abs(x - event.sensitivity)) / weight.sum()
        case DiscreteGaussian():
            weight = np.exp(-(x**2) / (2 * event.sigma**2))
            moved = np.exp(-((x - event.sensitivity) ** 2) / (2 * event.sigma**2))
            return weight / weight.sum(), moved / weight.sum()
        case RandomizedResponse():
            rest = np.full(event.categories, event.noise_parameter / event.categories)
            first, last = rest.copy(), rest.copy()
            first[0] = last[-1] = event.keep_probability
            return first, last
    raise AssertionError


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (DiscreteLaplace(1.0, 2), "add_remove"),
        (DiscreteGaussian(0.8, 1), "add_remove"),
        (RandomizedResponse(0.3, 5), "replace"),
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_compositions_are_those_of_all_outcomes(event: Event, adjacency, count: int) -> None:
    upper, lower = masses(event, adjacency)
    for epsilon in (0.0, 0.7, 1.9):
        truth = convolved(upper, lower, count, epsilon)
        low, high = PldAccountant(event * count, adjacency).delta_interval(epsilon)
        assert low <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= high <= truth * 1.02 + 1e-11


@pytest.mark.parametrize("claims", [((1.0, 0.1), (2.0, 0.2)), ((1.0, 0.1), (1.0, 0.2)), ((0.5, 0.01), (0.7, 0.3))])
def test_different_claims_compose_as_their_worst_mechanisms_do(claims) -> None:
    """The worst mechanism of a claim tells all with probability delta, and is randomised response otherwise."""
    event = sum((ApproximateDP(epsilon, delta) for epsilon, delta in claims), start=ApproximateDP(1.0, 0.3) * 0)
    p = q = np.ones(1)
    for epsilon, delta in claims:
        keep = (1 - delta) * expit(epsilon)
        p = np.outer(p, [delta, keep, 1 - delta - keep, 0]).ravel()
        q = np.outer(q, [0, 1 - delta - keep, keep, delta]).ravel()
    for epsilon in (0.0, 0.4, 1.1, 2.9, 3.0):
        truth = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        low, high = PldAccountant(event).delta_interval(epsilon)
        assert low <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= high <= truth * 1.01


def test_claims_hold_for_the_adjacency_that_they_name() -> None:
    for claim in (PureDP, ExponentialMechanism, ZCDP, lambda e, a: ApproximateDP(e, 1e-3, a)):
        for named, asked in [
            ("replace", "add_remove"),
            ("replace", "zero_out"),
            ("zero_out", "replace"),
            ("zero_out", "add_remove"),
            ("add_remove", "zero_out"),
        ]:
            event = claim(0.5, named)
            for ask in (event.rho, event.largest_loss, lambda a, event=event: event.renyi(ORDERS, a), event.pairs):
                with pytest.raises(Unknown, match=rf"{named} and says nothing about {asked}|no pair is known for ZCDP"):
                    ask(asked)


def test_the_adjacency_of_randomised_response_is_replace() -> None:
    for adjacency in ("add_remove", "zero_out"):
        for method in ("auto", "pld", "rdp", "zcdp", "pure"):
            with pytest.raises(Unknown, match='use adjacency="replace"'):
                guarantee(RandomizedResponse(0.5, 2), adjacency, method)


@pytest.mark.parametrize("event", [Laplace(1e-4), PureDP(900.0), DiscreteLaplace(600.0), DiscreteGaussian(0.01)])
def test_losses_that_no_grid_holds_are_bounded_in_other_ways(event: Event) -> None:
    with pytest.raises(Unknown, match='too large for method="pld"; use "rdp"'):
        guarantee(event, method="pld")
    epsilon = guarantee(event).epsilon(1e-6)
    assert 0 < epsilon < math.inf
    if math.isfinite(event.largest_loss("add_remove")):
        assert epsilon <= event.largest_loss("add_remove") * (1 + 1e-12)


@pytest.mark.parametrize("event", [Laplace(1e300), PureDP(1e-300), DiscreteLaplace(1e-200), DiscreteGaussian(1e150)])
def test_almost_nothing_costs_almost_nothing(event: Event) -> None:
    assert 0 <= guarantee(event).epsilon(1e-6) < 1e-5


def test_a_wide_discrete_gaussian_is_refused_by_the_grid_only() -> None:
    with pytest.raises(Unknown, match="too wide"):
        guarantee(DiscreteGaussian(1e5, 100_000), method="pld")
    assert guarantee(DiscreteGaussian(1e5, 100_000)).epsilon(1e-5) == pytest.approx(4.73, abs=0.01)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Laplace(0), "scale must be > 0"),
        (lambda: Laplace(math.nan), "scale must be a number"),
        (lambda: Laplace(math.inf), "scale must be > 0 and finite"),
        (lambda: DiscreteLaplace(-1), "rate must be > 0"),
        (lambda: DiscreteLaplace(1, 1.5), "sensitivity must be a whole number"),
        (lambda: DiscreteLaplace(1, 0), "sensitivity must be a whole number >= 1"),
        (lambda: DiscreteGaussian(0), "sigma must be > 0"),
        (lambda: DiscreteGaussian(1, -1), "sensitivity"),
        (lambda: RandomizedResponse(0, 2), "NonPrivate"),
        (lambda: RandomizedResponse(1, 2), "1 is no report"),
        (lambda: RandomizedResponse(0.5, 1), "categories must be a whole number >= 2"),
        (lambda: RandomizedResponse.from_epsilon(0, 2), "epsilon must be > 0"),
        (lambda: RandomizedResponse.from_epsilon(1e6, 2), r"noise_parameter must be in \(0, 1\)"),
        (lambda: PureDP(0), "leave out what costs nothing"),
        (lambda: PureDP(math.inf), "NonPrivate"),
        (lambda: PureDP(1, "neighbours"), "adjacency must be one of add_remove, replace, zero_out"),
        (lambda: ApproximateDP(1, 0), "for delta 0 use PureDP"),
        (lambda: ApproximateDP(1, 1), "for delta 1 NonPrivate"),
        (lambda: ApproximateDP(-1, 0.1), "epsilon must be >= 0"),
        (lambda: ZCDP(0), "rho must be > 0"),
        (lambda: ZCDP(1).poisson(0.1), "zCDP has no amplification"),
        (lambda: ExponentialMechanism("1"), "epsilon must be a number"),
        (lambda: ExponentialMechanism(1, None), "adjacency must be one of"),
        (lambda: (Laplace(1.0) * 2).poisson(0.1), "Poisson sampling of Laplace is not known"),
        (lambda: Laplace(1.0).poisson(0.1).poisson(0.1), "sampled already"),
    ],
)
def test_a_mistake_is_named_with_a_remedy_in_one_line(make, words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_no_guarantee_stays_none_next_to_a_claim() -> None:
    assert guarantee(NonPrivate() + PureDP(1.0)).epsilon(1e-6) == math.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: Laplace(5e-324),  # its loss is no double
        lambda: DiscreteLaplace(1.0, 10**308),
        lambda: DiscreteGaussian(1.0, 10**308),
        lambda: PureDP(1.0, adjacency=np.zeros(2)),  # type: ignore[arg-type]
        lambda: guarantee(DiscreteGaussian(5e-324), method="pld"),
        lambda: guarantee(DiscreteGaussian(1e308), method="pld"),
        lambda: guarantee(PureDP(1e308), "replace", "pld"),
    ],
)
def test_what_no_accountant_can_hold_is_refused_in_one_line(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)


WIDE_ORDERS = np.array([1.0001, 1.5, 2.0, 32.0, 4096.0])


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(
    "event",
    [
        ExponentialMechanism(1e308),
        Gaussian(1.0).truncated_poisson(5e-324, 1, 100),
        Gaussian(1.0).truncated_poisson(1e-300, 1, 100),
        DiscreteLaplace(1e308, 2**52),
    ],
)
def test_numbers_at_the_ends_of_a_double_give_a_bound_and_no_nan(event, adjacency):
    try:
        values = event.renyi(WIDE_ORDERS, adjacency)
    except Unknown:
        return
    assert (values >= 0).all()  # false for nan
    assert (values[1:] >= values[:-1] * (1 - 1e-9)).all()


def test_a_sum_beyond_the_largest_double_is_infinite():
    two = PureDP(1e308) + ExponentialMechanism(1e308)
    assert guarantee(two, method="pure").epsilon(0.0) == np.inf
    assert guarantee(ZCDP(1e308) + ZCDP(1.7e308), method="zcdp").epsilon(1e-5) == np.inf


def test_two_likely_failures_add_up_to_more_than_one_half():
    cost = guarantee(ApproximateDP(1.0, 0.7) * 2, method="pld")  # 1 - 0.3^2 = 0.91
    assert cost.epsilon(0.9) == np.inf
    assert cost.epsilon(0.92) <= 2.0
    assert cost.delta(2.0) == pytest.approx(0.91)


def test_delta_of_claims_counts_an_infinite_loss_once_at_the_largest_finite_one():
    cost = guarantee(ApproximateDP(1.0, 0.1) + ApproximateDP(2.0, 0.2), method="pld")
    assert cost.delta(3.0) == pytest.approx(0.28, rel=1e-9)
    assert cost.epsilon(0.28) == pytest.approx(3.0, rel=1e-8)
    low, high = cost.epsilon_interval(0.28)
    assert low <= 3.0 <= high * (1 + 1e-12)


def test_delta_beyond_all_finite_losses_is_the_infinite_mass() -> None:
    claims = ApproximateDP(0.0, 0.3) * 2
    assert guarantee(claims).delta(1e300) == pytest.approx(1 - 0.7**2)
    assert PldAccountant(claims).delta_interval(float("inf"))[1] == pytest.approx(1 - 0.7**2)


@pytest.mark.parametrize(("noise", "categories"), [(0.5, 2), (0.1, 2), (0.001, 10), (1e-9, 3)])
@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_next_to_the_largest_loss_both_bounds_are_what_the_likeliest_reports_show(noise, categories, count) -> None:
    """From the second largest loss on, the best test waits for all reports to be true."""
    response = RandomizedResponse(noise, categories)
    cost = guarantee(response * count, "replace")
    keep, largest = response.keep_probability**count, count * response.largest_loss("replace")
    for share in (1e-3, 0.2, 0.5):
        epsilon = largest + math.log1p(-share)
        low, high = cost.epsilon_interval(keep * share)
        assert low == pytest.approx(epsilon, rel=1e-5)
        assert high == pytest.approx(epsilon, rel=1e-5)
        low, high = PldAccountant(response * count, "replace").delta_interval(epsilon)
        assert low <= keep * share * (1 + 1e-6)
        assert low == pytest.approx(keep * share, rel=1e-5)


def test_largest_losses_of_different_events_have_a_lower_bound() -> None:
    run = RandomizedResponse(0.1, 2) * 3 + RandomizedResponse(0.7, 3) * 2
    parts = [(RandomizedResponse(0.1, 2), 3), (RandomizedResponse(0.7, 3), 2)]
    keep = math.prod(event.keep_probability**count for event, count in parts)
    largest = sum(count * event.largest_loss("replace") for event, count in parts)
    low, high = guarantee(run, "replace").epsilon_interval(keep * 0.3)
    assert low == pytest.approx(largest + math.log(0.7), rel=1e-9)
    assert low <= high < 1.02 * low


# Groups of units: exact where the noise tells, and by enumeration where the sample does.


SINGLES = [
    Gaussian(3.0),
    joint(Gaussian(3.0), ClipCount(9.0)),
    Gaussian(3.0).poisson(0.05),
    Laplace(4.0),
    DiscreteLaplace(0.3),
    DiscreteGaussian(5.0),
    PureDP(0.2),
    ApproximateDP(0.2, 1e-7),
    ZCDP(0.02),
    ExponentialMechanism(0.3),
    TreeAggregation(noise_multiplier=9.0, steps=30),
    MatrixMechanism.toeplitz(9.0, Participation(rounds=30), [1.0, 0.5]),
    NoisyVote(20.0),
    RandomizedResponse(0.8, 3),
]


def adjacency(event: Event) -> str:
    if isinstance(event, RandomizedResponse):
        return "replace"
    return "zero_out" if isinstance(event, TreeAggregation | MatrixMechanism) else "add_remove"


@pytest.mark.parametrize("event", SINGLES, ids=lambda event: event.kind)
def test_a_group_of_one_is_the_unit_and_a_larger_one_costs_more(event: Event) -> None:
    run = event * 5
    assert run.for_group(1) == run
    costs = [guarantee(run.for_group(units), adjacency(event)).epsilon(1e-5) for units in (1, 2, 5)]
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("event", SINGLES, ids=lambda event: event.kind)
def test_a_group_costs_no_more_than_the_basic_theorem_says(event: Event) -> None:
    """Dwork and Roth 2014, Theorem 2.2, with the sum of e^(i epsilon) for delta: (k eps, sum_i<k e^(i eps) delta)."""
    run, units = event * 3, 3
    one, group = guarantee(run, adjacency(event)), guarantee(run.for_group(units), adjacency(event))
    for epsilon in (0.5, 1.0, 2.0):
        delta = one.delta(epsilon)
        grown = delta * sum(math.exp(i * epsilon) for i in range(units))
        assert group.delta(units * epsilon) <= grown * (1 + 1e-2) + 1e-9


@pytest.mark.parametrize("units", [2, 3, 10])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_the_pair_of_a_group_in_a_poisson_sample_is_the_mixture_over_who_is_drawn(units: int, rate: float) -> None:
    z = 2.0
    event = Gaussian(z).poisson(rate).for_group(units)
    chances = np.zeros(units + 1)
    for drawn in itertools.product((0, 1), repeat=units):  # every subset of the group
        chances[sum(drawn)] += rate ** sum(drawn) * (1 - rate) ** (units - sum(drawn))
    thresholds = np.linspace(-3, 12, 1501)
    moved = sum(chance * norm.sf(thresholds - count / z) for count, chance in enumerate(chances))
    for epsilon in (0.1, 0.5, 1.5):
        best = float(np.max(moved - math.exp(epsilon) * norm.sf(thresholds)))
        assert best * (1 - 1e-9) <= PldAccountant(event).delta(epsilon) <= best * 1.01 + 1e-9
    sure = Gaussian(z).poisson(1 - 1e-12).for_group(units)
    assert guarantee(sure).epsilon(1e-5) == pytest.approx(guarantee(Gaussian(z / units)).epsilon(1e-5), rel=1e-4)


def test_an_offset_grows_as_bun_and_steinke_say() -> None:
    claim = ZCDP(0.1, xi=0.2)
    assert claim.concentrated("replace") == pytest.approx((3 * 0.2, 4 * 0.1))  # Proposition 1.9 with k = 2
    assert claim.for_group(2).concentrated("add_remove") == pytest.approx((3 * 0.2, 4 * 0.1))
    assert claim.for_group(3).concentrated("add_remove") == pytest.approx((0.2 * 3 * (1 + 1 / 2 + 1 / 3), 0.9))
    assert guarantee(claim).rho() is None
    plain = guarantee(ZCDP(0.1), method="zcdp")
    for method in ("zcdp", "rdp"):
        offset = guarantee(claim, method=method)
        assert offset.epsilon(1e-6) == pytest.approx(plain.epsilon(1e-6) + 0.2, rel=2e-3)
        assert offset.delta(3.2) == pytest.approx(plain.delta(3.0), rel=2e-2)
    with pytest.raises(InputError, match="xi must be"):
        ZCDP(0.1, xi=-1.0)


def test_what_is_not_known_of_a_group_is_refused_by_name() -> None:
    for event in (Gaussian(1.0).without_replacement(2, 9), Laplace(1.0).poisson(0.1)):
        with pytest.raises(Unknown, match="group is not known"):
            event.for_group(2)
    assert NonPrivate().for_group(7) == NonPrivate()
    assert ApproximateDP(1.0, 0.2).for_group(4) == NonPrivate()
    for units in (0, 1.5, math.nan, True):
        with pytest.raises(InputError, match="units must be"):
            Gaussian(1.0).for_group(units)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta", "units"),
    [
        (0.0, 1e-9, 5),
        (1e-3, 1e-9, 7),
        (1.0, 1e-12, 3),
        (150.0, 1e-200, 2),
        (300.0, 1e-300, 2),
        (400.0, 1e-200, 2),
        (699.0, 1e-305, 2),
    ],
)
def test_a_claim_for_a_group_is_never_below_the_formula_in_exact_numbers(epsilon: float, delta: float, units: int):
    """Vadhan 2017, Lemma 2.2, by rational numbers: e^epsilon from a decimal of a thousand digits."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 1000, 10**6, -(10**6)
        grown = sum((Decimal(epsilon) * i).exp() for i in range(units))
        exact = Decimal(delta) * grown
        claim = ApproximateDP(epsilon, delta).for_group(units)
        if isinstance(claim, NonPrivate):
            assert exact > Decimal("0.999999")
            return
        assert isinstance(claim, ApproximateDP)
        assert claim.epsilon == units * epsilon
        assert exact <= Decimal(claim.delta) <= exact * (1 + Decimal("1e-9"))
        if units == 2 and claim.epsilon < 400:  # larger losses have no grid
            (pair,) = ApproximateDP(epsilon, delta).pairs("replace")
            assert exact <= Decimal(pair.infinity())


@pytest.mark.parametrize("epsilon", [710.0, 800.0, 1e6])
def test_a_claim_whose_e_to_the_epsilon_is_no_double_promises_a_group_nothing(epsilon: float):
    assert ApproximateDP(epsilon, 1e-300).for_group(2) == NonPrivate()
