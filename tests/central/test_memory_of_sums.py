"""The memory of a sum is used again only where it is given."""

import numpy as np
import torch
from torch import nn

from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset


def sums(give_back: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums of two cohorts, and the first one as it was before the second."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(0, 1, (20, 3)).astype(np.float32)
    data = ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 2, 20), num_classes=2)
    plan = DPSGD(steps=1, batch_size=8, clip_norm=0.1, noise_multiplier=1.0, micro_batch=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        contribution = plan.contribution(nn.Linear(3, 2), data, "cpu", 0)
    source = RandomSource.from_seed(0)
    totals, before = [], torch.empty(0)
    for cohort in (np.arange(8), np.arange(8, 20)):
        out = totals[0] if give_back and totals else None
        groups = plan.grouping.group(cohort, 0, source)
        theta = contribution.trained.initial
        totals.append(contribution.clipped_sum(theta, groups, 0, plan.bound, 0.1, source, out).total)
        before = totals[0].clone() if len(totals) == 1 else before
    return totals[0], totals[1], before


def test_a_sum_that_is_kept_stays_as_it_is():
    first, _, before = sums(give_back=False)
    assert torch.equal(first, before)


def test_a_sum_in_used_memory_is_the_same():
    first, second, _ = sums(give_back=True)
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(second, sums(give_back=False)[1])
