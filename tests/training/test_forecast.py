"""The forecast before a run: its formula against simulated sums, and what its numbers promise."""

import math

import numpy as np
import pytest
import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.clipping import Flat, PerLayer
from sfumato.mechanisms import Banded, Gaussian, Tree
from sfumato.sampling import MinSeparation, Poisson
from sfumato.training import PrivateSum
from sfumato.training.forecast import Forecast, forecast, rounds_needed
from sfumato.training.monitoring import likely_cause, trouble

ROUNDS, COHORT, SIZES = 25, 20, {"conv.weight": 300, "conv.bias": 20, "dense.weight": 680}


def private_sum(mechanism=None, *, bound=None, cohort: int = COHORT) -> PrivateSum:
    mechanism = mechanism or Gaussian(noise_multiplier=1.5)
    sampler = Poisson(size=cohort, population=cohort)
    if not isinstance(mechanism, Gaussian):  # which needs limited participation
        sampler = MinSeparation(
            size=cohort, population=10 * cohort, min_separation=4, max_participations=3, rounds=ROUNDS
        )
    return PrivateSum(
        sampler=sampler,
        bound=bound or Flat(norm=2.0),
        mechanism=mechanism.planned(sampler, ROUNDS),
        rounds=ROUNDS,
    )


def simulated(rounds: PrivateSum, alignment: float, seed: int, silos: int = 1) -> float:
    """Noise to signal of the sum of all mean updates, by the mechanism's own draws and clipped updates."""
    size, norm = sum(SIZES.values()), 2.0
    sources, random = [RandomSource.from_seed(seed + n) for n in range(silos)], np.random.default_rng(seed)
    common = random.normal(size=size)
    common *= alignment * norm / np.linalg.norm(common)
    clean, noisy = np.zeros(size), np.zeros(size)
    for each in range(rounds.rounds):
        scatter = random.normal(size=(COHORT, size))
        scatter -= np.outer(scatter @ common, common) / (common @ common)
        scatter *= norm * math.sqrt(1 - alignment**2) / np.linalg.norm(scatter, axis=1, keepdims=True)
        updates = common + scatter
        assert (np.linalg.norm(updates, axis=1) <= norm * (1 + 1e-9)).all()
        total = torch.tensor(updates.sum(0), dtype=torch.float32)
        clean += updates.sum(0) / COHORT
        for source in sources:
            released = rounds.mechanism.release(total.clone(), scale=norm, round=each, source=source)
            noisy += released.numpy() / COHORT / silos
    signal = abs(clean @ common) / np.linalg.norm(common)  # scatter has no part in this direction
    return float(np.linalg.norm(noisy - clean) / signal)


@pytest.mark.parametrize("noise", [Gaussian(noise_multiplier=1.5), Tree(noise_multiplier=3.0)])
@pytest.mark.parametrize("alignment", [0.1, 0.4])
def test_the_ratio_is_that_of_simulated_sums(noise, alignment: float):
    rounds = private_sum(noise)
    predicted = forecast(rounds, SIZES, population=COHORT, alignment=alignment).ratio
    # the length of 1,000 normals is within 12 % of its mean in more than 1 - 1e-6 of all draws (std 2.2 %)
    assert simulated(rounds, alignment, seed=3) == pytest.approx(predicted, rel=0.12)


def test_silos_add_noise_of_their_own_to_updates_that_are_averaged():
    rounds = private_sum()
    predicted = forecast(rounds, SIZES, population=4 * COHORT, silos=4, alignment=0.4)
    assert simulated(rounds, 0.4, seed=5, silos=4) == pytest.approx(predicted.ratio, rel=0.12)
    alone = forecast(rounds, SIZES, population=COHORT, alignment=0.4)
    assert [each.ratio for each in predicted.groups] == pytest.approx([each.ratio / 2 for each in alone.groups])


def test_noise_that_rounds_share_is_that_of_its_last_prefix():
    rounds = private_sum(Banded(noise_multiplier=2.0, bands=4))
    variance = rounds.mechanism.prefix_variance(ROUNDS)
    assert variance is not None
    expected = 2.0 * math.sqrt(1000 * variance[-1]) / (COHORT * ROUNDS)
    assert forecast(rounds, SIZES, population=COHORT).ratio == pytest.approx(expected)


@pytest.mark.parametrize("noise", [Gaussian(noise_multiplier=15.0), Tree(noise_multiplier=30.0)])
def test_noise_is_the_likeliest_cause_where_the_forecast_has_it_above_the_signal(noise):
    rounds = private_sum(noise)
    equal = int((1 / forecast(rounds, {"all": 1}, population=COHORT).ratio) ** 2)
    below, above = forecast(rounds, {"all": equal}, population=COHORT), forecast(rounds, SIZES, population=COHORT)
    assert below.ratio <= 1 < above.ratio
    nothing = {"untrained": {"accuracy": 0.5}, "trained": {"accuracy": 0.5}}
    assert likely_cause(rounds, equal, nothing).startswith(f"Likeliest cause: too few steps ({ROUNDS})")
    assert f"noise, which is {above.ratio:.2g} times the signal" in likely_cause(rounds, sum(SIZES.values()), nothing)


def test_clipping_is_the_likeliest_cause_where_only_probabilities_are_worse():
    rounds = private_sum(Gaussian(noise_multiplier=15.0))
    equal = int((1 / forecast(rounds, {"all": 1}, population=COHORT).ratio) ** 2)
    gains = {"auc": (0.3, 0.2, 0.4), "log_loss": (-0.3, -0.4, -0.2)}
    trained = {"auc": 0.8, "log_loss": 0.6, "baselines": {"constant": {"auc": 0.5, "log_loss": 0.3, "gain": gains}}}
    assert "clipping bound cuts the longest" in likely_cause(rounds, equal, {"trained": trained})
    without = private_sum(Gaussian(noise_multiplier=0.0))
    assert "overfitting, by too many steps" in likely_cause(without, equal, {"trained": trained})


def test_clipping_is_the_likeliest_cause_where_counts_are_predicted_too_small():
    rounds = private_sum(Gaussian(noise_multiplier=1.5))
    constant = {"poisson_log_loss": -0.15, "gain": {"poisson_log_loss": (-0.2, -0.3, -0.1)}}
    trained = {"poisson_log_loss": 0.05, "mean_count": 2.9, "baselines": {"constant": constant}}
    for mean_rate, found in ((1.8, "clipping bound cuts the longest"), (2.9, "too few steps")):
        evaluation = {"trained": {**trained, "mean_rate": mean_rate}, "examples": 100}
        assert found in likely_cause(rounds, 10, evaluation)


@pytest.mark.parametrize(
    ("examples", "mean_rate", "said"), [(1000, 70.0, True), (1000, 100.0, False), (1, 80.0, False)]
)
def test_counts_that_are_too_small_on_average_are_said_to_be(examples, mean_rate, said):
    gains = {"poisson_log_loss": (20.0, 15.0, 25.0)}  # better than the constant all the same
    constant = {"poisson_log_loss": -400.0, "gain": gains}
    trained = {
        "poisson_log_loss": -420.0,
        "mean_rate": mean_rate,
        "mean_count": 114.0,
        "baselines": {"constant": constant},
    }
    found = trouble(None, {"trained": trained, "examples": examples})
    assert ("counts are too small: 70 on average, where the test data have 114" in found) is said
    assert bool(found) is said


def test_a_measure_that_may_be_better_speaks_for_too_few_test_data_before_one_that_is_equal():
    gains = {"accuracy": (0.0, 0.0, 0.0), "auc": (0.24, -0.04, 0.5), "log_loss": (0.03, -0.02, 0.07)}
    constant = {"accuracy": 0.875, "auc": 0.5, "log_loss": 0.377, "gain": gains}
    trained = {"accuracy": 0.875, "auc": 0.737, "log_loss": 0.348, "baselines": {"constant": constant}}
    found = trouble(None, {"trained": trained, "examples": 40})
    assert "AUC is 0.737 against 0.5" in found
    assert "too few to decide" in found


def test_modules_share_the_signal_and_have_noise_by_their_size():
    found = forecast(private_sum(), SIZES, population=COHORT)
    assert [(each.name, each.parameters) for each in found.groups] == [("dense", 680), ("conv", 320)]
    assert found.groups[0].ratio / found.groups[1].ratio == pytest.approx(math.sqrt(680 / 320))
    whole = math.hypot(*(each.ratio / math.sqrt(2) for each in found.groups))  # of two parts of length 1/√2
    assert whole == pytest.approx(found.ratio)
    layered = forecast(private_sum(bound=PerLayer.of(0.3, 0.4)), SIZES, population=COHORT)
    assert {each.name: each.ratio for each in layered.groups} == pytest.approx(
        {"conv": found.ratio * math.sqrt(0.32) / 0.6, "dense": found.ratio * math.sqrt(0.68) / 0.8}
    )


def test_with_the_units_that_it_names_noise_equals_signal():
    noise = Gaussian(noise_multiplier=15.0)
    found = forecast(private_sum(noise), SIZES, population=COHORT)
    assert found.ratio > 1
    many = forecast(private_sum(noise, cohort=found.population_needed), SIZES, population=found.population_needed)
    assert many.ratio == pytest.approx(1.0, rel=0.02)
    fewer = {"dense.weight": round(1000 * found.share_needed)}
    assert forecast(private_sum(noise), fewer, population=COHORT).ratio == pytest.approx(1.0, rel=0.02)
    assert (many.population_needed, many.share_needed) == (found.population_needed, pytest.approx(1.0, rel=0.05))


def test_rounds_that_it_names_meet_the_same_budget_with_less_noise_than_signal():
    plan = DPSGD(steps=8, cohort=100).calibrate(epsilon=4.0, delta=1e-5, population=1000)
    sizes = {"w": 300_000}
    before = forecast(plan.private_sum(1000), sizes, population=1000)
    needed = rounds_needed(plan, sizes, epsilon=4.0, population=1000)
    assert before.ratio > 1
    assert needed is not None
    longer = DPSGD(steps=needed, cohort=100).calibrate(epsilon=4.0, delta=1e-5, population=1000)
    assert forecast(longer.private_sum(1000), sizes, population=1000).ratio <= 1
    assert rounds_needed(plan, {"w": 10**11}, epsilon=4.0, population=1000) is None


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.0, "There is no noise, so noise does not limit what the run learns."),
        (0.137, "At ε = 8 with 26 patients the noise is 0.14 of the signal."),
        (
            40.0,
            "the noise is 40 times the signal; about 1,040 patients are needed, or train 0.062 % of the parameters.",
        ),
        (1234.5, "the noise is 1,230 times the signal; about 32,100 patients are needed, or train"),
    ],
)
def test_the_forecast_is_one_sentence(ratio: float, words: str):
    found = Forecast(ratio=ratio, parameters=10, rounds=3, population=26, groups=())
    assert words in found.words(epsilon=8.0, unit="patient")


def test_what_cannot_be_forecast_is_refused():
    assert forecast(private_sum(Gaussian(noise_multiplier=0.0)), SIZES, population=COHORT).ratio == 0
    with pytest.raises(InputError, match="sizes must have at least one number"):
        forecast(private_sum(), {}, population=COHORT)
    with pytest.raises(InputError, match="alignment must be"):
        forecast(private_sum(), SIZES, population=COHORT, alignment=0.0)
