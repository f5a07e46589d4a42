import copy
import json
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import (
    Composition,
    Event,
    Gaussian,
    InputError,
    Laplace,
    NonPrivate,
    Poisson,
    Repeated,
    WithoutReplacement,
    compose,
    event_from_json,
    guarantee,
)
from sfumato.accounting.events import terms

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
