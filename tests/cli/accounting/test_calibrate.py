"""calibrate: one target, two of three numbers; what is found meets it, and a mistake is one line."""

import json

import pytest

from sfumato import accounting as acc
from slow import slow_but

RUN = ("--sampling-rate", 0.01, "--steps", 1000)
TARGETS = [
    (("--epsilon", 1.5, "--delta", 1e-6), lambda promise: promise.epsilon(1e-6) / 1.5),
    (("--epsilon", 1.5), lambda promise: promise.epsilon(1e-5) / 1.5),
    (("--rho", 0.2), lambda promise: promise.rho() / 0.2),
    (("--mu", 0.4), lambda promise: promise.gdp().mu / 0.4),
    (("--advantage", 0.1), lambda promise: promise.advantage() / 0.1),
    (("--tpr", 0.02), lambda promise: float(promise.tpr(0.01)) / 0.02),
    (("--tpr", 0.2, "--fpr", 0.15), lambda promise: float(promise.tpr(0.15)) / 0.2),
]


def guarantee(z: float, q: float = 0.01, n: int = 1000, adjacency="add_remove") -> acc.Guarantee:
    return acc.guarantee(acc.Gaussian(z).poisson(q) * n, adjacency)


@pytest.mark.parametrize(("words", "read"), slow_but(TARGETS, TARGETS[0], TARGETS[2]))
def test_each_target_is_met_and_hardly_more_noise_is_given_than_it_needs(sfumato, words, read):
    found = json.loads(sfumato("calibrate", *words, *RUN, "--json").out)["noise_multiplier"]
    assert 0.995 < read(guarantee(found)) <= 1
    assert read(guarantee(found * (1 - 2e-3))) > 1


def test_the_numbers_that_are_reached_are_those_of_the_library(sfumato):
    words = ("calibrate", "--mu", 0.5, *RUN, "--adjacency", "replace", "--delta", 1e-7, "--fpr", 0.05)
    told = json.loads(sfumato(*words, "--json").out)
    promise = guarantee(told["noise_multiplier"], adjacency="replace")
    assert told["epsilon"] == promise.epsilon(1e-7)
    assert told["tpr"] == float(promise.tpr(0.05))
    assert (told["mu"], told["advantage"], told["rho_without_sampling"]) == (
        promise.gdp().mu,
        promise.advantage(),
        promise.rho(),
    )
    shown = sfumato(*words).out
    assert f"noise_multiplier {told['noise_multiplier']}: mu 0.5 (replace)" in shown
    assert f"epsilon at delta 1e-07   {told['epsilon']:.4g}" in shown
    assert "tpr at fpr 0.05" in shown


def test_steps_are_counted_exactly(sfumato):
    # google-deepmind/jax_privacy, accounting.py
    words = ("--epsilon", 2, "--delta", 1e-6, "--noise-multiplier", 3, "--sampling-rate", 0.1, "--json")
    assert json.loads(sfumato("calibrate", *words).out)["steps"] == 155


def test_a_budget_for_everything_gives_the_least_noise_that_is_considered(sfumato):
    assert json.loads(sfumato("calibrate", "--epsilon", 1e6, *RUN, "--json").out)["noise_multiplier"] == 0.05


def test_no_epsilon_at_all_is_a_target_too(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 0, "--delta", 1e-3, *RUN, "--json").out)
    assert told["epsilon"] == 0
    assert told["advantage"] <= 1e-3


def test_a_tiny_delta_is_answered(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 2, "--delta", 1e-300, *RUN, "--json").out)
    assert 1.9 < told["epsilon"] <= 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "give exactly one target, --epsilon, --rho, --mu, --advantage or --tpr; got none"),
        (("--epsilon", 1, "--rho", 1), "got --epsilon and --rho"),
        (("--epsilon", -1), "epsilon must be >= 0"),
        (("--epsilon", "nan"), "epsilon must be a number"),
        (("--epsilon", "inf"), "epsilon must be >= 0 and finite"),
        (("--epsilon", 1, "--delta", 0), "delta must be in (0, 1)"),
        (("--epsilon", 1, "--delta", 1), "delta must be in (0, 1)"),
        (("--rho", 1, "--delta", 2), "delta must be in (0, 1)"),
        (("--rho", 0), "rho must be > 0"),
        (("--mu", "inf"), "mu must be > 0 and finite"),
        (("--advantage", 1), "advantage must be in (0, 1)"),
        (("--tpr", 0), "tpr must be in (0, 1)"),
        (("--tpr", 0.5, "--fpr", 1), "fpr must be in (0, 1)"),
        (("--tpr", 0.001), "tpr 0.001 at fpr 0.01 is out of reach: the smallest between 0.05 and 10000 is 0.01"),
        (("--epsilon", 0, "--delta", 1e-300), "is out of reach: the smallest"),
        (("--epsilon", 1, "--sampling-rate", 0), "--sampling-rate must be in (0, 1]"),
        (("--epsilon", 1, "--sampling-rate", 1.5), "--sampling-rate must be in (0, 1]"),
        (("--epsilon", 1, "--steps", 0), "steps must be a whole number >= 1"),
        (
            ("--epsilon", 1, "--noise-multiplier", 1),
            "give two of --noise-multiplier, --steps (or --epochs)",
        ),
    ],
)
def test_a_mistake_is_one_line(sfumato, words, answer):
    assert answer in sfumato("calibrate", *RUN, *words).line


def test_noise_of_nothing_is_refused(sfumato):
    words = ("calibrate", "--epsilon", 1, "--noise-multiplier", 0, "--sampling-rate", 0.1)
    assert "--noise-multiplier must be > 0" in sfumato(*words).line


EPOCHS = ("--examples", 6000, "--batch-size", 60, "--epochs", 2.5)


def test_epochs_over_examples_are_a_sampling_rate_and_steps_and_decide_the_delta(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 1, *EPOCHS, "--json").out)
    assert (told["sampling_rate"], told["steps"]) == (0.01, 250)
    assert told["delta"] == pytest.approx(0.01 / 6000)
    assert told["epsilon"] == guarantee(told["noise_multiplier"], n=250).epsilon(told["delta"])
    assert 0.995 < told["epsilon"] <= 1
    same = ("--sampling-rate", 0.01, "--steps", 250, "--delta", told["delta"])
    assert (
        json.loads(sfumato("calibrate", "--epsilon", 1, *same, "--json").out)["noise_multiplier"]
        == told["noise_multiplier"]
    )


def test_examples_and_batches_go_with_steps_and_leave_them_open(sfumato):
    words = ("calibrate", "--epsilon", 1, *EPOCHS[:4])
    by_epochs, by_steps = (json.loads(sfumato(*words, *run, "--json").out) for run in (EPOCHS[4:], ("--steps", 250)))
    assert by_steps == by_epochs
    told = json.loads(sfumato(*words, "--noise-multiplier", 1.5, "--json").out)
    assert told["sampling_rate"] == 0.01
    assert told["epsilon"] <= 1 < guarantee(1.5, n=told["steps"] + 1).epsilon(told["delta"])


def test_what_was_calibrated_for_users_costs_them_as_much_by_account(sfumato):
    words = (*EPOCHS, "--examples-per-user", 3)
    noise = json.loads(sfumato("calibrate", "--epsilon", 2, *words, "--json").out)["noise_multiplier"]
    assert noise > json.loads(sfumato("calibrate", "--epsilon", 2, *EPOCHS, "--json").out)["noise_multiplier"]
    told = json.loads(sfumato("account", "--noise-multiplier", noise, *words, "--json").out)
    assert 1.99 < told["epsilon"] <= 2


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (EPOCHS, "delta 1.667e-06 = 0.01 / 6,000, as sfumato dpsgd chooses it"),
        (RUN, "delta 1e-05, as none was given; choose it well below 1 / population"),
    ],
)
def test_account_and_calibrate_choose_delta_by_one_rule_and_say_which(sfumato, words, rule):
    for command in (("calibrate", "--epsilon", 1), ("account", "--noise-multiplier", 4)):
        assert rule in sfumato(*command, *words).out
        assert rule not in sfumato(*command, *words, "--delta", 1e-7).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (EPOCHS[2:], "give --examples too"),
        (EPOCHS[:4], "give two of --noise-multiplier, --steps (or --epochs)"),
        ((*EPOCHS, "--steps", 3), "--epochs takes the place of --steps"),
        ((*EPOCHS[:4], "--steps", 3, "--sampling-rate", 0.1), "take the place of --sampling-rate"),
        ((*EPOCHS, "--noise-multiplier", 1), "the third is searched"),
        (("--examples", 0, *EPOCHS[2:]), "examples must be a whole number >= 1, got 0"),
        ((*EPOCHS, "--examples-per-user", 0), "--examples-per-user must be a whole number >= 1, got 0"),
    ],
)
def test_epochs_that_say_too_little_or_too_much_are_one_line(sfumato, words, told):
    assert told in sfumato("calibrate", "--epsilon", 1, *words).line
