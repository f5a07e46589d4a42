"""Numbers on the page: bounds never shrink, nothing is lost on the way to a reader."""

import math
import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from sfumato.report.numbers import near, odds_factor, up, value

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def parse(text: str) -> Decimal:
    match = re.fullmatch(r"(?:([\d.]+) × )?10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", text)
    if match:
        return Decimal(match[1] or 1).scaleb(int(match[2].translate(SUPERSCRIPTS)))
    return Decimal(text)


positive = st.floats(1e-300, 1e300)


@given(positive, st.integers(2, 6))
def test_an_upper_bound_is_never_shown_smaller_and_never_much_larger(number, digits):
    shown, exact = parse(up(number, digits)), Decimal(repr(number))
    assert exact <= shown <= exact * (1 + Decimal(10) ** (1 - digits))


@given(positive)
def test_the_nearest_number_is_near(number):
    exact = Decimal(repr(number))
    assert abs(parse(near(number, 4)) - exact) <= exact * Decimal("0.0005")


@given(st.floats(0, 1e5))
def test_the_factor_on_the_odds_is_an_upper_bound(epsilon):
    shown = parse(odds_factor(epsilon))
    assert float(shown.ln()) >= epsilon - 1e-15 * max(1, epsilon)  # the rounding of exp and log
    assert float(shown.ln()) <= epsilon + math.log(10) + 1e-9


def test_infinity_and_zero_are_words_of_their_own():
    assert up(math.inf) == "∞"
    assert up(0.0) == "0"
    assert near(0.1) == "0.1"


def test_values_of_a_plan_read_like_the_plan():
    assert [value(item) for item in (None, True, 0.005, 100.0, 2048, [0.001, 0.01], "sgd")] == [
        "none",
        "yes",
        "0.005",
        "100",
        "2048",
        "0.001, 0.01",
        "sgd",
    ]
    assert value(3_000_000) == "3000000"
