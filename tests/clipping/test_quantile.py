"""The rule of adaptive clip norms; what a counted round costs is in tests/training/test_private_sum.py."""

import math

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.clipping import AdaptiveClipNorm, ConstantClipNorm, QuantileRule
from sfumato.clipping.bounds import MOVED


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_it_finds_the_quantile_of_the_norms(quantile):
    norms = np.exp(np.random.default_rng(0).normal(1.0, 0.7, 400))
    rule = QuantileRule(quantile=quantile)
    current = 0.1
    for _ in range(400):
        current = rule.updated(current, noisy_count=float((norms <= current).sum() - 200), clients=400)
    assert current == pytest.approx(np.quantile(norms, quantile), rel=0.05)


def test_an_empty_cohort_is_half_below_and_half_above():
    assert QuantileRule(quantile=0.5).updated(2.0, noisy_count=0.0, clients=100) == 2.0


def test_it_stops_after_its_rounds():
    assert [QuantileRule(quantile=0.5, rounds=2).active(i) for i in range(4)] == [True, True, False, False]
    assert QuantileRule(quantile=0.5).active(10**6)


def test_the_noise_on_the_count_is_a_twentieth_of_the_clients_or_the_rounds_own():
    rule = QuantileRule(quantile=0.5)
    assert rule.count_noise_std(clients=100, noise_multiplier=1.0) == 5.0
    assert rule.count_noise_std(clients=10, noise_multiplier=1.0) == 1.0
    assert QuantileRule(quantile=0.5, count_noise=0.4).count_noise_std(clients=100, noise_multiplier=0.62) == 0.4


@pytest.mark.parametrize("z", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("clients", [1, 20, 4000])
def test_the_usual_noise_on_the_count_always_leaves_something_for_the_sum(z, clients):
    assert QuantileRule(quantile=0.5).count_noise_std(clients=clients, noise_multiplier=z) > MOVED * z


@pytest.mark.parametrize("count_noise", [0.7, 1.0])
def test_a_count_noise_that_leaves_nothing_for_the_sum_is_refused(count_noise):
    """Noise of std σ_b on a count of sensitivity ½ is a multiplier of 2σ_b: at z the round's whole budget is spent."""
    with pytest.raises(InputError, match=r"adaptive_clip_count_noise .* leaves nothing .* use more than 1$"):
        QuantileRule(quantile=0.5, count_noise=count_noise).count_noise_std(clients=100, noise_multiplier=2.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"quantile": 1.1}, "adaptive_clip_quantile"),
        ({"learning_rate": math.nan}, "adaptive_clip_learning_rate"),
        ({"rounds": 0}, "adaptive_clip_rounds"),
        ({"count_noise": 0.0}, "adaptive_clip_count_noise"),
    ],
)
def test_fields_out_of_range_are_refused_by_the_names_of_the_plan(change, named):
    with pytest.raises(InputError, match=named):
        QuantileRule(**{"quantile": 0.5, **change})


def test_a_norm_that_starts_at_nothing_is_refused():
    with pytest.raises(InputError, match="initial must be > 0"):
        AdaptiveClipNorm(initial=0.0, rule=QuantileRule(quantile=0.5))


def test_only_the_adaptive_bound_asks_for_a_count():
    rule = QuantileRule(quantile=0.3)
    assert AdaptiveClipNorm(initial=1.0, rule=rule).quantile == rule
    assert ConstantClipNorm(clip_norm=1.0).quantile is None
