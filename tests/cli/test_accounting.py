"""account, calibrate and extrapolate: the numbers are those of the library, for people and for machines."""

import json
import math

import pytest

from sfumato import accounting as acc


def test_account_gives_the_library_s_numbers(sfumato):
    words = ("account", "--noise-multiplier", 1, "--sampling-rate", 0.01, "--steps", 1000, "--delta", 1e-5)
    told = json.loads(sfumato(*words, "--json").out)
    event = acc.Gaussian(1.0).poisson(0.01) * 1000
    assert told["epsilon"] == acc.guarantee(event).epsilon(1e-5)
    assert told["methods"]["rdp"] == acc.guarantee(event, method="rdp").epsilon(1e-5)
    assert acc.event_from_json(told["event"]) == event
    shown = sfumato(*words).out
    assert f"{told['epsilon']:.4g}" in shown
    assert "rdp" in shown
    assert "zcdp" in shown


def test_one_gaussian_costs_what_its_closed_form_says(sfumato):
    told = json.loads(sfumato("account", "--noise-multiplier", 2, "--delta", 1e-5, "--json").out)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    epsilon, mu = told["methods"]["gaussian"], 0.5  # Balle and Wang 2018, Theorem 8
    delta = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-6)


def test_no_noise_has_no_guarantee(sfumato):
    assert json.loads(sfumato("account", "--noise-multiplier", 0, "--json").out)["epsilon"] == "inf"
    assert "none" in sfumato("account", "--noise-multiplier", 0).out


def test_cohorts_of_a_fixed_size_are_not_accounted_as_poisson(sfumato):
    words = ("account", "--noise-multiplier", 1, "--steps", 100, "--json")
    poisson = json.loads(sfumato(*words, "--sampling-rate", 0.01).out)["epsilon"]
    fixed = json.loads(sfumato(*words, "--sample-size", 10, "--population", 1000).out)["epsilon"]
    assert fixed > poisson
    assert "--population" in sfumato(*words, "--sample-size", 10).line


@pytest.mark.parametrize("open_number", ["--noise-multiplier", "--steps", "--sampling-rate"])
def test_what_calibrate_finds_meets_the_budget_and_no_better_number_does(sfumato, open_number):
    numbers = {"--noise-multiplier": 1.2, "--steps": 500, "--sampling-rate": 0.02}
    given = [word for name, value in numbers.items() if name != open_number for word in (name, value)]
    told = json.loads(sfumato("calibrate", "--epsilon", 2, "--delta", 1e-6, *given, "--json").out)
    numbers[open_number] = told[open_number[2:].replace("-", "_")]

    def epsilon(**better: float) -> float:
        chosen = {**{name[2:].replace("-", "_"): value for name, value in numbers.items()}, **better}
        event = acc.Gaussian(chosen["noise_multiplier"]).poisson(chosen["sampling_rate"]) * int(chosen["steps"])
        return acc.guarantee(event).epsilon(1e-6)

    assert epsilon() == told["epsilon"] <= 2
    name, value = open_number[2:].replace("-", "_"), numbers[open_number]
    better = {"noise_multiplier": value * (1 - 1e-4), "steps": value + 1, "sampling_rate": value * (1 + 1e-4)}[name]
    assert epsilon(**{name: better}) > 2


def test_calibrate_refuses_an_unreachable_budget_and_an_unclear_question(sfumato):
    words = ("calibrate", "--epsilon", 1e-9, "--steps", 1000, "--sampling-rate", 1)
    assert "out of reach" in sfumato(*words).line
    assert "give two of" in sfumato("calibrate", "--epsilon", 1).line


def test_extrapolate_gives_both_conventions(sfumato):
    words = ("extrapolate", "--populations", "3e6", "1e7", "--multipliers", 1, 2)
    rows = json.loads(sfumato(*words, "--json").out)["rows"]
    published = {(3_000_000, 1): 2.10, (10_000_000, 1): 1.98}  # by RDP, paper's convention
    for row in rows:
        assert row["epsilon_user"]["rdp"] > row["epsilon"]["rdp"]
        if (row["population"], row["multiplier"]) in published:
            want = published[row["population"], row["multiplier"]]
            assert row["epsilon"]["rdp"] == pytest.approx(want, rel=0.01)
    shown = sfumato(*words).out
    assert "one user" in shown
    assert "virtual client" in shown


def test_extrapolate_refuses_a_cohort_larger_than_the_population(sfumato):
    assert "the population is 100" in sfumato("extrapolate", "--populations", 100).line
    assert "population" in sfumato("extrapolate", "--populations", 1000.5).line
