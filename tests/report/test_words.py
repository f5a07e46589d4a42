"""What the words say of an attacker is what differential privacy proves, and no more."""

import math
import re

import pytest
from scipy.stats import norm

from sfumato import accounting as acc
from sfumato.report import words


def statement(epsilon: float, delta: float = 1e-6, **fields) -> acc.Statement:
    given = {"unit": "user", "adjacency": "add_remove", "sampling": "", "mechanism": "", "noise_source": "os"}
    return acc.Statement(**{**given, **fields, "epsilon": epsilon, "delta": delta})


def found(epsilon: float, delta: float) -> float:
    """The share of members that the page says a test can find at 1 false alarm in 1,000."""
    answer = dict(words.meaning(statement(epsilon, delta)))
    text = next(answer for question, answer in answer.items() if "share of the members" in question)
    return 1.0 if "no useful bound" in text else float(re.search(r"at most ([\d.]+) %", text)[1]) / 100


@pytest.mark.parametrize("noise", [0.4, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_the_best_test_against_a_gaussian_finds_no_more_than_the_page_says(noise, delta):
    epsilon = acc.guarantee(acc.Gaussian(noise)).epsilon(delta)
    # Neyman-Pearson: the most powerful test between N(0, z²) and N(1, z²).
    best = norm.cdf(1 / noise - norm.isf(1e-3))
    assert best <= found(epsilon, delta)


def test_no_privacy_loss_finds_no_more_than_guessing():
    assert found(0.0, 0.0) == pytest.approx(1e-3)


def test_even_odds_become_the_logistic_of_epsilon():
    answers = " ".join(answer for _, answer in words.meaning(statement(1.0)))
    shown = float(re.search(r"at most ([\d.]+) %, except", answers)[1])
    assert 100 / (1 + math.exp(-1)) <= shown <= 73.2


def test_without_a_guarantee_there_is_nothing_to_explain():
    assert words.meaning(statement(math.inf)) == []


@pytest.mark.parametrize(
    ("epsilon", "tier"), [(1.0, "strong"), (1.01, "reasonable"), (10.0, "reasonable"), (11, "weak")]
)
def test_tiers(epsilon, tier):
    assert tier in words.strength(epsilon)


def test_the_papers_convention_is_the_one_of_another_unit():
    own = {"name": "by Rényi accounting", "unit": "user", "epsilon": 1.5, "delta": 1e-6}
    clients = [{"name": str(e), "unit": "virtual_client", "epsilon": e, "delta": 1e-6} for e in (4.0, 3.0)]
    assert words.papers_convention(statement(8.0, alternatives=(own,))) is None
    paper = words.papers_convention(statement(8.0, alternatives=(own, *clients)))
    assert paper == words.Convention("3", "1 × 10⁻⁶".removeprefix("1 × "), "one virtual client")


def test_every_alternative_keeps_its_numbers():
    odd = {"name": "other", "unit": "user", "epsilon": math.inf, "delta": 1e-6, "orders": 64}
    header, rows = words.alternatives(statement(8.0, alternatives=(odd,)))
    assert rows[0][header.index("ε")] == "8"
    assert rows[0][header.index("Orders")] == "–"
    assert rows[1][header.index("ε")] == "∞"
    assert rows[1][header.index("Orders")] == "64"
