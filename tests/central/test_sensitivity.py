"""One example moves the sum by at most the sensitivity in the ledger and the statement: the heart of the matter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from slow import by_profile

CLIPPINGS = ("flat", "per_layer", "automatic", "adaptive")


def wild(seed: int, scale: float, count: int = 7) -> ExampleDataset:
    """The last example can hold anything."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, 3)).astype(np.float32)
    inputs[-1] *= scale
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 2, count), num_classes=2)


def scores(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def sums(plan: DPSGD, data: ExampleDataset, *cohorts: np.ndarray) -> list[torch.Tensor]:
    """The private sum of each cohort, before noise."""
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(scores(1), data, "cpu", 0)
    totals = []
    for cohort in cohorts:
        groups = plan.grouping.group(cohort, 0, source)
        share = contribution.clipped_sum(
            contribution.trained.initial, groups, 0, plan.bound, plan.bound.start, source, None
        )
        totals.append(share.total)
    return totals


@pytest.mark.parametrize("clipping", CLIPPINGS)
@settings(deadline=None, max_examples=by_profile(25))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    micro=st.sampled_from([1, 3, 16]),
)
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(clipping, seed, scale, clip, micro):
    plan = DPSGD(steps=1, batch_size=4, clip_norm=clip, clipping=clipping, noise_multiplier=0.1, micro_batch=micro)
    present = np.arange(7)
    whole, without = sums(plan, wild(seed, scale), present, present[:-1])
    private_sum = plan.private_sum(7)
    sensitivity = private_sum.contributions_moved * private_sum.scale(plan.bound.start)
    assert sensitivity == pytest.approx(clip)
    round_off = 7 * clip * 2.0**-20  # single precision within a micro-batch
    assert (whole - without).norm().item() <= sensitivity + round_off


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
def test_the_bound_is_reached_so_that_no_noise_is_wasted(clipping):
    plan = DPSGD(steps=1, batch_size=4, clip_norm=0.1, clipping=clipping, noise_multiplier=1.0)
    whole, without = sums(plan, wild(1, 1e3), np.arange(7), np.arange(6))
    share = 1.0 if clipping != "per_layer" else 0.7  # the layer before the saturated tanh has no gradient
    assert (whole - without).norm().item() > 0.99 * share * 0.1


def test_two_examples_of_one_person_move_the_sum_by_more():
    """So the statement speaks of one example, and says so."""
    plan = DPSGD(steps=1, batch_size=4, clip_norm=1e-3, noise_multiplier=1.0)
    data = wild(3, 1.0)
    inputs = np.asarray(data.inputs[0]).copy()
    inputs[-2] = inputs[-1]
    labels = np.asarray(data.targets).copy()
    labels[-2] = labels[-1]
    twice = ExampleDataset(inputs=(inputs,), targets=labels, num_classes=2)
    whole, without = sums(plan, twice, np.arange(7), np.arange(5))
    assert (whole - without).norm().item() > 1.9e-3
    assert any("covered for each alone" in line for line in plan.fit(scores(1), data).statement.assumptions)


def test_augmentations_of_an_example_are_clipped_together():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    data = ExampleDataset(inputs=(pixels,), targets=np.array([0, 1, 1]), num_classes=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    plan = DPSGD(steps=1, batch_size=2, clip_norm=1e-3, augmentation="crop_flip", augmentations=5, noise_multiplier=1.0)
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(model, data, "cpu", 0)
    groups = plan.grouping.group(np.array([1]), 0, source)
    total = contribution.clipped_sum(contribution.trained.initial, groups, 0, plan.bound, 1e-3, source, None).total
    assert total.norm().item() <= 1e-3


def test_the_noise_is_scaled_to_the_sensitivity_that_the_bound_tells(network, pictures, tmp_path):
    import json

    for clipping in CLIPPINGS:
        plan = DPSGD(steps=1, batch_size=8, clip_norm=0.3, clipping=clipping, noise_multiplier=0.7, seed=0)
        plan.fit(network(), pictures(40), out=tmp_path / clipping)
        entry = json.loads((tmp_path / clipping / "ledger.jsonl").read_text().splitlines()[0])
        assert entry["sensitivity"] == pytest.approx(0.3)
        share = plan.private_sum(40).sum_mechanism(0).noise_multiplier
        assert entry["noise_std"] == pytest.approx(share * 0.3)
        assert (share > 0.7) == (clipping == "adaptive")  # the count takes its part of the budget
