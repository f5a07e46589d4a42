"""The verdict says what the best test finds, and one number decides its words."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sfumato.accounting import Gaussian, PureDP, Unknown, guarantee
from sfumato.statement import Statement
from sfumato.statement.statement import MOST_LINES, brief
from sfumato.statement.verdict import FPR, SCALE, default_delta, is_too_large, judge, membership, promised, published
from slow import by_profile

STATED = Statement(
    unit="user",
    adjacency="add_remove",
    epsilon=8.0,
    delta=1e-6,
    sampling="Poisson, rate 0.0142222 a round",
    mechanism="200 Gaussian sums of contributions clipped to norm 1, noise multiplier 1.62289",
    noise_source="operating system's CSPRNG",
    assumptions=("The number of users is public.",) * 9,
)
UNITS = ("example", "user", "virtual_client", "agent", "identity", "patient", "label")
NEIGHBOURS = ("add_remove", "replace", "zero_out")


def spent(noise: float, delta: float = 1e-6) -> Statement:
    """A statement that is true of one release of Gaussian noise."""
    return replace(STATED, epsilon=guarantee(Gaussian(noise)).epsilon(delta), delta=delta)


@pytest.mark.parametrize("noise", [0.3, 0.6787, 1.0, 3.0, 20.0])
def test_the_bound_is_the_power_of_the_best_test_against_a_gaussian(noise):
    best = norm.cdf(1 / noise - norm.isf(FPR))  # Neyman and Pearson
    found = spent(noise).verdict(Gaussian(noise))
    assert best <= found.tpr <= best * (1 + 1e-9)
    assert found.advantage == pytest.approx(2 * norm.cdf(0.5 / noise) - 1)


def test_epsilon_and_delta_alone_never_show_less_than_the_curve_and_often_far_more():
    alone, curve = spent(0.6787).verdict(), spent(0.6787).verdict(Gaussian(0.6787))
    assert alone.tpr > 0.999
    assert curve.tpr < 0.2
    assert (alone.word, curve.word) == ("hardly any", "weak")


@settings(max_examples=by_profile(40), deadline=None, derandomize=True)
@given(st.floats(0, 12), st.floats(0, 0.3), st.floats(0, 1))
def test_the_promise_alone_is_attained_by_the_mechanism_that_is_worst_for_it(epsilon, delta, fpr):
    # Four outcomes (Kairouz, Oh and Viswanath 2015): certain with probability delta, else randomised response.
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    present = np.array([delta, (1 - delta) * keep, (1 - delta) * (1 - keep), 0.0])
    absent = np.array([0.0, (1 - delta) * (1 - keep), (1 - delta) * keep, delta])
    best = np.interp(fpr, np.cumsum([0.0, *absent]), np.cumsum([0.0, *present]))
    if fpr == 0:
        best = delta
    promise = promised(epsilon, delta, "zero_out")
    assert float(promise.tpr(fpr)) == pytest.approx(best, abs=1e-8)
    assert promise.advantage() == pytest.approx(np.maximum(present - absent, 0).sum(), abs=1e-8)


def test_a_promise_of_nothing_or_of_certainty_has_its_ends():
    assert promised(math.inf, 1e-6, "add_remove").advantage() == promised(1.0, 1.0, "replace").advantage() == 1.0
    assert promised(0.0, 0.0, "add_remove").advantage() == pytest.approx(0.0, abs=1e-9)


def test_the_share_that_was_certain_beyond_epsilon_is_more_than_delta():
    """Why no sentence says "except with probability delta": it would be wrong, here by a factor of 16."""
    epsilon, delta = 1.0, 1e-5
    lower, upper = 0.1, 10.0
    for _ in range(200):
        middle = math.sqrt(lower * upper)
        lower, upper = (lower, middle) if guarantee(Gaussian(middle)).delta(epsilon) < delta else (middle, upper)
    mu = 1 / lower
    beyond = norm.sf(epsilon / mu - mu / 2)  # the loss of N(mu, 1) against N(0, 1) is N(mu² / 2, mu²)
    assert beyond > 15 * delta
    assert "except with" not in replace(STATED, epsilon=epsilon, delta=delta).text().lower()


def test_the_words_follow_from_the_number_alone():
    for (most, word), (_, weaker) in pairwise(SCALE):
        for population in (None, 10, 10**9):
            told = replace(STATED, tpr_at_1_percent_fpr=most, population=population)
            assert told.verdict().word == word
            assert replace(told, tpr_at_1_percent_fpr=most * (1 + 1e-9)).verdict().word == weaker
    assert [word for _, word in SCALE] == ["strong", "moderate", "weak", "hardly any"]


def test_what_protects_nobody_is_no_protection():
    seeded = replace(STATED, noise_source="seeded: simulation only", tpr_at_1_percent_fpr=0.011)
    none = replace(STATED, epsilon=math.inf)
    false = spent(2.0).verdict(Gaussian(2.0) * 100)
    assert replace(none, delta=0.1, population=1000).verdict().delta_too_large == ""
    for verdict in (seeded.verdict(), none.verdict(), false):
        assert verdict.word == "no"
        assert verdict.sentence == verdict.void
    assert seeded.verdict().if_it_held == "strong"
    assert "its ledger costs epsilon" in false.void
    assert false.tpr == pytest.approx(norm.cdf(5 - norm.isf(FPR)))  # of what was released, not of what was stated


def test_an_event_that_no_accountant_knows_leaves_the_promise():
    claim = PureDP(2.0, adjacency="add_remove")
    with pytest.raises(Unknown):
        guarantee(claim, "zero_out")
    told = replace(STATED, adjacency="zero_out", epsilon=2.0)
    assert told.verdict(claim) == told.verdict()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_the_sentence_on_tests_rounds_up(unit, adjacency):
    told = judge(unit=unit, adjacency=adjacency, epsilon=8.0, delta=1e-6, tpr=0.1234001)
    assert "finds at most 12.4 % of" in told.attacker
    assert ("test for one label" in told.attacker) == (unit == "label")
    assert "may find all" in replace(told, tpr=1.0).attacker


def test_delta_is_held_against_the_number_of_units():
    assert is_too_large(2_250**-1.1, 2_250)
    large = replace(STATED, delta=2_250**-1.1, population=2_250)
    told = large.verdict().delta_too_large
    assert "delta times the number of users is 0.47" in told
    assert [line for line in large.sentences if line.id == "delta_too_large"] == [f"Warning: d{told[1:]}"]
    for population in (1, 40, 2_250, 10**9):
        assert published(default_delta(population), population) == pytest.approx(0.01)
        usual = replace(STATED, delta=default_delta(population), population=population)
        assert usual.verdict().delta_too_large == ""
        assert usual.assumptions == STATED.assumptions


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("noise_source", ["operating system's CSPRNG", "seeded: simulation only"])
@pytest.mark.parametrize("event", [None, Gaussian(0.62), Gaussian(0.2)])
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize(
    "halted", ["", "Stopped after 1100 of 6000 rounds; its key is still in checkpoint/, and sfumato close deletes it."]
)
def test_a_terminal_gets_at_most_eight_lines_and_one_on_a_stop_whatever_is_wrong(
    unit, adjacency, noise_source, event, epsilon, halted
):
    stated = replace(
        STATED, unit=unit, adjacency=adjacency, noise_source=noise_source, epsilon=epsilon, delta=1e-4, population=5000
    )
    trouble = "The model learned nothing: " + "the losses of the last 3 rounds are not finite, and so on. " * 3
    where = "runs/faces/statement.json, runs/faces/report.html"
    lines = brief(stated, event, stopped=halted, trouble=trouble, where=where)
    assert len(lines) <= MOST_LINES + bool(halted)
    assert all(len(line) <= 120 for line in lines)
    text, verdict = " ".join(lines), stated.verdict(event)
    assert verdict.sentence in text
    assert verdict.title in text
    assert lines[-1].endswith("report.html")
    assert text.startswith(f"{halted} The model learned nothing".strip())
    if math.isfinite(epsilon):
        assert verdict.delta_too_large in text
        assert "epsilon 8, delta 0.0001" in text
        assert "Not covered" in text


def test_the_statement_s_text_uses_the_verdict_and_rounds_up():
    stated = replace(STATED, epsilon=2.00004, delta=3.1623e-6, tpr_at_1_percent_fpr=0.0345)
    text = stated.text()
    assert stated.verdict().title in text
    assert membership(stated.unit, FPR, stated.verdict().tpr) in text
    assert "Epsilon: 2.001" in text
    assert "Delta: 3.17e-06" in text
    other = {"name": "by another accountant", "epsilon": 2.00004, "delta": 3.1623e-6}
    assert "2.001  3.17e-06" in replace(stated, alternatives=(other,)).text()
