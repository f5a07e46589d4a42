"""The search on costs whose answer is known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.calibration import Search
from slow import by_profile

COSTS = {
    "power": lambda x: x**-1.7,
    "wall": lambda x: math.inf if x < 3 else 1 / x,
    "plateau": lambda x: 1.0 if x < 20 else 1 / x,
    "step": lambda x: 2.0 if x < 31.4159 else 0.0,
    "steep": lambda x: math.exp(min(700.0, 50 / x)) - 1,
    "above one half": lambda x: 0.5 + 0.5 * math.exp(-x / 10),
}


def counted(cost):
    asked: list[float] = []

    def ask(number: float) -> float:
        asked.append(number)
        return cost(number)

    return ask, asked


@settings(max_examples=by_profile(60), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(COSTS)), st.floats(math.log(0.51), math.log(0.99)).map(math.exp), st.floats(0.1, 900))
def test_the_answer_is_good_and_its_neighbour_is_not(name: str, limit: float, start: float) -> None:
    ask, asked = counted(COSTS[name])
    search = Search(ask, limit, 0.05, 1e3, integer=False, tolerance=1e-6, floor=0.5 if "half" in name else 0.0)
    cheap, dear = search.ends()
    for good in (search.between(cheap, dear)[0], search.near(start, 0.0, cheap.number)):
        assert good.cost == COSTS[name](good.number) <= limit
        assert COSTS[name](good.number * (1 - 2e-6)) > limit
    assert len(asked) < 100


@settings(max_examples=by_profile(60), deadline=None, derandomize=True)
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0.3, 3))
def test_whole_numbers_are_found_exactly(answer: int, start: int, exponent: float) -> None:
    ask, asked = counted(lambda n: n**exponent)
    search = Search(ask, answer**exponent, 1, 10**9, integer=True, tolerance=1e-12)
    assert search.near(start, exponent, 1).number == answer
    cheap, dear = search.ends()
    found = dear if dear.cost <= search.limit else search.between(cheap, dear)[0]
    assert found.number == answer
    assert all(number == int(number) for number in asked)


@pytest.mark.parametrize("name", ["power", "steep"])
def test_a_smooth_cost_is_asked_few_times(name: str) -> None:
    ask, asked = counted(COSTS[name])
    search = Search(ask, 0.3, 0.05, 1e3, integer=False, tolerance=1e-6)
    (good, _) = search.between(*search.ends())
    assert len(asked) < 20
    asked.clear()
    search.near(good.number * 1.07, -1.5, 1e3)
    assert len(asked) < 8


def test_nothing_good_is_told_by_the_cheap_end() -> None:
    search = Search(lambda x: 1 + 1 / x, 0.5, 1.0, 8.0, integer=False, tolerance=1e-6)
    found = search.near(2.0, -1.0, 8.0)
    assert found.number == 8.0
    assert found.cost > search.limit
