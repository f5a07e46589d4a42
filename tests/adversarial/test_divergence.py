"""A run that learns nothing says so while it runs and in its result."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato.central import DPSGD
from sfumato.federated import FedAvg
from sfumato.training.monitoring import Watch, columns, trouble

FEATURES, CLASSES = 6, 3


def users() -> data.UserDataset:
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    return data.from_arrays(inputs, np.arange(24) % CLASSES, np.arange(24) // 4)


def fit(learning_rate: float, rounds: int = 6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    fields = {"clients_per_round": 4, "batch_size": 2, "noise_multiplier": 0.5, "seed": 1}
    plan = FedAvg(rounds=rounds, learning_rate=learning_rate, **fields)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(model, users())
    return result, [str(each.message) for each in caught if "costs privacy and teaches nothing" in str(each.message)]


def test_a_run_that_diverges_is_told_once_while_it_runs_and_in_its_result():
    result, told = fit(1e30)
    assert len(told) == 1
    assert told[0].startswith("round 3: ")
    assert "\n" not in told[0]
    assert result.trouble.startswith("The model learned nothing: ")


def test_a_run_that_does_not_is_told_nothing():
    result, told = fit(0.01)
    assert told == []
    assert result.trouble == ""


def row(number: int, *, loss: float | None = 1.0, units: int = 4, broken: int = 0):
    return {"round": number, "not_private": {"loss": loss, "units": units, "non_finite": broken}}


def test_each_run_of_broken_rounds_is_told_once():
    watch = Watch()
    broken = [3, 4, 5, 6, 7, 12, 13, 14, 15]
    told = [number for number in range(1, 17) if watch.add(row(number, loss=None if number in broken else 1.0))]
    assert told == [5, 14]


def test_two_broken_rounds_and_rounds_without_anybody_are_no_divergence():
    watch = Watch()
    assert not any(watch.add(row(n, loss=None, units=0)) for n in range(1, 9))
    assert not any(Watch().add(row(n, loss=None if n in (4, 5) else 1.0)) for n in range(1, 9))


def test_contributions_that_count_as_zero_are_told_once():
    watch, broken = Watch(), {3: 1, 4: 1, 9: 1}
    told = {n: line for n in range(1, 12) if (line := watch.add(row(n, units=8, broken=broken.get(n, 0))))}
    assert list(told) == [3]
    assert told[3].startswith("round 3: 1 of 8 contributions were not finite and counted as zero; ")


def test_a_divergence_is_told_in_one_line_with_its_zeros():
    watch = Watch()
    told = [line for n in range(1, 5) if (line := watch.add(row(n, loss=None, broken=4 if n > 2 else 0)))]
    assert len(told) == 1
    assert "teaches nothing" in told[0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["input", "loss"])
def test_a_run_of_dpsgd_tells_of_one_wild_record_while_it_runs(where, wrong):
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    inputs[7, 0] = wrong if where == "input" else 1e3

    def loss(scores, labels):
        found = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        return found * torch.where(scores.detach().abs().amax(dim=1) > 50, wrong, 1.0) if where == "loss" else found

    torch.manual_seed(0)
    plan = DPSGD(steps=4, batch_size=24, noise_multiplier=1.0, learning_rate=1e-3, seed=1)
    records = data.examples_from_arrays(inputs, np.arange(24) % CLASSES, num_classes=CLASSES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(nn.Linear(FEATURES, CLASSES), records, loss=loss)
    told = [str(each.message) for each in caught if "counted as zero" in str(each.message)]
    assert [line.partition(";")[0] for line in told] == [
        "round 1: 1 of 24 contributions were not finite and counted as zero"
    ]
    assert [each["not_private"]["non_finite"] for each in result.history] == [1] * 4


@pytest.mark.parametrize(("broken", "told"), [(1, False), (2, True), (4, True)])
def test_half_of_the_contributions_are_a_divergence(broken, told):
    watch = Watch()
    found = [watch.add(row(n, broken=broken)) for n in range(1, 5)]
    assert any("teaches nothing" in line for line in found) == told
    assert bool(trouble(columns([row(n, broken=broken) for n in range(1, 5)]), None)) == told
