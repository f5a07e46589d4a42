"""Runs of many different steps: certified from both sides, without a step at any number of them, and quick."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from sfumato.accounting import (
    ApproximateDP,
    ClipCount,
    Composition,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PureDP,
    RandomizedResponse,
    compose,
    guarantee,
    joint,
)
from sfumato.accounting import pld as module
from sfumato.accounting.pld import PldAccountant, Rank, ScheduleAccountant, mildest, worst


def schedule(steps: int, rate: float = 0.02) -> Event:
    noises = np.linspace(0.8, 2.0, steps).tolist()
    return sum((Gaussian(noise).poisson(rate) for noise in noises), Composition(()))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_interval_holds_the_cost_of_the_steps_one_by_one(adjacency, monkeypatch) -> None:
    monkeypatch.setattr(module, "grouped", partial(module.grouped, most=10))  # so that steps share a group
    run = schedule(20)
    account = ScheduleAccountant(run, adjacency)
    low, high = account.epsilon_interval(1e-5)
    exact = PldAccountant(run, adjacency).epsilon_interval(1e-5)
    assert low <= exact[1]
    assert exact[0] <= high < 1.02 * low
    assert account.delta_interval(exact[1])[0] <= 1e-5 <= account.delta(exact[0])


def test_one_different_step_more_costs_one_step_more() -> None:
    costs = [guarantee(schedule(64) + Gaussian(2.5).poisson(0.02) * more).epsilon(1e-5) for more in (0, 1, 2)]
    assert costs[0] < costs[1] < 1.01 * costs[0]
    assert costs[1] < costs[2] < 1.01 * costs[1]


LISTS = {
    "gaussian": [Gaussian(0.9), Gaussian(1.7)],
    "poisson": [Gaussian(0.9).poisson(0.01), Gaussian(1.2).poisson(0.03)],
    "joint": [joint(Gaussian(1.0), ClipCount(9.0)).poisson(0.02), Gaussian(1.5).poisson(0.05)],
    "fixed size": [Gaussian(1.0).without_replacement(20, 1000), Gaussian(0.8).without_replacement(5, 1000)],
    "laplace": [Laplace(2.0), Laplace(5.0)],
    "sampled laplace": [Laplace(2.0).poisson(0.1), Laplace(5.0).poisson(0.3)],
    "pure": [PureDP(0.1), PureDP(0.3)],
    "approximate": [ApproximateDP(0.0, 1e-6), ApproximateDP(0.3, 1e-7)],
    "exponential": [ExponentialMechanism(0.1), ExponentialMechanism(0.3)],
    "response": [RandomizedResponse(0.5, 3), RandomizedResponse(0.9, 3)],
    "mixture": [MixtureOfGaussians(std, (0.0, 1.0, 2.0), (0.9, 0.05, 0.05)) for std in (0.7, 1.6)],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_worst_of_a_kind_costs_more_than_each_and_the_mildest_less(name, adjacency) -> None:
    if (adjacency == "replace" and name == "sampled laplace") or (adjacency == "add_remove" and name == "response"):
        pytest.skip("nothing is known of it")
    events = LISTS[name]
    ranks = [Rank.of(event) for event in events]
    assert all(rank is not None and rank.kind == ranks[0].kind for rank in ranks)
    curves = {}
    for event in (*events, worst(ranks), mildest(ranks)):
        accountant = PldAccountant(event * 7, adjacency)
        curves[event] = [accountant.delta_interval(epsilon) for epsilon in (0.0, 0.1, 0.5, 1.5)]
    for event in events:
        for (low, high), (_, above), (below, _) in zip(curves[event], curves[worst(ranks)], curves[mildest(ranks)]):
            assert low <= above * (1 + 1e-9)
            assert below <= high * (1 + 1e-9)


def test_a_single_event_of_a_kind_is_its_own_worst() -> None:
    for events in LISTS.values():
        for event in events:
            rank = Rank.of(event)
            assert rank is not None
            again = worst([rank])
            assert again == event or again.gaussian_shift("add_remove") or event == LISTS["joint"][0]


@pytest.mark.slow
def test_a_thousand_different_steps_take_little_memory() -> None:
    code = """
import json
import numpy as np
from sfumato.accounting import Composition, Gaussian, guarantee
rates = np.geomspace(0.001, 0.03, 1000).tolist()
run = sum((Gaussian(z).poisson(q) for z, q in zip(np.linspace(0.8, 2.0, 1000).tolist(), rates)), Composition(()))
low, high = guarantee(run).epsilon_interval(1e-5)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([low, high, int(peak.split()[1]) / 1024]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    low, high, megabytes = json.loads(done.stdout)
    assert 0.8 < low < high < 0.9
    assert megabytes < 250


@pytest.mark.slow
def test_a_thousand_different_laplace_releases_have_a_narrow_interval() -> None:
    run = compose({Laplace(30 + step / 50): 1 for step in range(1000)})
    low, high = guarantee(run).epsilon_interval(1e-5)
    assert 0 < high - low <= 0.03 * high
