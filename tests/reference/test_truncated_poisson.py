"""Truncated Poisson sampling: the value in dp-accounting's tests, and how far below it the bound here lies.

Source: google/differential-privacy, pld_privacy_accountant_test.py, test_truncated_subsampled_gaussian_basic: data sets
of 4 and 3 units, rate 1/2, batches of at most 2, noise multiplier 1, three and two steps: epsilon 17.90433 at delta
1e-6. For a full batch they take the pair of a replacement, (1-r) N(0) + r N(2) against (1-r) N(0) + r N(-2), which a
comment there calls slightly loose. Here it is (1-r) N(0) + r N(2) against N(0).
"""

from dataclasses import dataclass

import numpy as np
import pytest

from sfumato.accounting import Event, Gaussian, TruncatedPoisson
from sfumato.accounting.pair import Labelled, Pair
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian

EPSILON, DELTA = 17.90433, 1e-6
STEPS = ((TruncatedPoisson(Gaussian(1.0), 0.5, 2, 4), 3), (TruncatedPoisson(Gaussian(1.0), 0.5, 2, 3), 2))


@dataclass(frozen=True)
class AsPublished(Event):
    step: TruncatedPoisson

    def pairs(self, adjacency: str) -> tuple[Pair, ...]:
        full = self.step.chance_of_full_batch
        exchanged = SampledGaussian("replace", self.step.rate_in_full_batch, 2.0)
        return tuple(
            Labelled(((1 - full, SampledGaussian(direction, 0.5, 1.0)), (full, exchanged)))
            for direction in ("remove", "add")
        )

    def renyi(self, orders: np.ndarray, adjacency: str) -> np.ndarray:
        return self.step.event.renyi(orders, "replace")


def test_with_their_pair_the_published_value_comes_out() -> None:
    run = AsPublished(STEPS[0][0]) * 3 + AsPublished(STEPS[1][0]) * 2
    low, high = PldAccountant(run).epsilon_interval(DELTA)
    assert low < EPSILON < high
    assert high - low < 1e-3 * EPSILON


def test_the_proven_pair_is_tighter() -> None:
    run = STEPS[0][0] * 3 + STEPS[1][0] * 2
    low, high = PldAccountant(run).epsilon_interval(DELTA)
    assert 16.45 < low < high < 16.46 < EPSILON
    assert high == pytest.approx(16.455, abs=5e-3)
