"""Adaptive clip norms."""

import math

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.clipping import AdaptiveClipNorm


def adaptive(**changes) -> AdaptiveClipNorm:
    fields = {"initial": 1.0, "quantile": 0.5, "clients": 100, "noise_multiplier": 1.0}
    return AdaptiveClipNorm(**{**fields, **changes})


@pytest.mark.parametrize(("z", "count_noise"), [(1.0, 5.0), (0.62, 0.4), (3.0, 1.6)])
def test_sum_and_count_together_cost_what_is_accounted(z, count_noise):
    clip = adaptive(noise_multiplier=z, count_noise=count_noise)
    # The count has sensitivity 1/2, so its own multiplier is std / (1/2); Gaussians compose exactly.
    both = acc.Gaussian(clip.sum_noise_multiplier) + acc.Gaussian(clip.count_noise_std / 0.5)
    assert acc.guarantee(both).epsilon(1e-6) == pytest.approx(acc.guarantee(acc.Gaussian(z)).epsilon(1e-6), rel=1e-9)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_it_finds_the_quantile_of_the_norms(quantile):
    norms = np.exp(np.random.default_rng(0).normal(1.0, 0.7, 400))
    clip = adaptive(quantile=quantile, clients=400, noise_multiplier=0.0)
    current = 0.1
    for _ in range(400):
        current = clip.updated(current, noisy_count=float((norms <= current).sum() - 200))
    assert current == pytest.approx(np.quantile(norms, quantile), rel=0.05)


def test_an_empty_cohort_is_half_below_and_half_above():
    assert adaptive(quantile=0.5).updated(2.0, noisy_count=0.0) == 2.0


def test_it_stops_after_its_rounds():
    assert [adaptive(rounds=2).active(i) for i in range(4)] == [True, True, False, False]


def test_a_count_noise_that_leaves_nothing_for_the_sum_is_refused():
    with pytest.raises(InputError, match="count_noise > 1"):
        adaptive(noise_multiplier=2.0, count_noise=1.0)


@pytest.mark.parametrize("change", [{"quantile": 1.1}, {"initial": 0.0}, {"learning_rate": math.nan}, {"rounds": 0}])
def test_fields_out_of_range_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        adaptive(**change)
