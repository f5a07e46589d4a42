"""The Gaussian sum."""

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.sampling import FixedSizeSampling, PoissonSampling


def test_noise_is_normal_with_the_std_that_it_tells():
    mechanism = IndependentGaussian(noise_multiplier=0.7)
    noise = mechanism.release(
        torch.zeros(200_001, dtype=torch.float64), scale=3.0, round=0, source=RandomSource.from_os()
    )
    # Fresh randomness each time: false alarm 1e-9.
    assert stats.kstest(noise.numpy() / mechanism.noise_std(3.0), "norm").pvalue > 1e-9
    assert noise.unique().numel() == noise.numel()


def test_the_noise_is_one_draw_for_any_number_of_threads():
    mechanism = IndependentGaussian(noise_multiplier=0.5)
    size = 3_000_001
    before = torch.get_num_threads()
    released = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            total = torch.ones(size, dtype=torch.float64)
            released.append(mechanism.release(total, scale=2.0, round=4, source=RandomSource.from_seed(0)))
            assert released[-1] is total
    finally:
        torch.set_num_threads(before)
    assert torch.equal(released[0], released[1])
    assert torch.equal(released[0], released[2])
    assert torch.equal(
        released[0] - 1, torch.from_numpy(RandomSource.from_seed(0).stream("noise", 4).normal(size)) + 1 - 1
    )


def test_an_empty_sum_is_noised_too():
    released = IndependentGaussian(noise_multiplier=1.0).release(
        torch.zeros(10, dtype=torch.float64), scale=1.0, round=0, source=RandomSource.from_seed(0)
    )
    assert (released != 0).all()


def test_the_event_follows_from_the_noise():
    mechanism = IndependentGaussian(noise_multiplier=1.2)
    assert mechanism.single(1.0) == acc.Gaussian(1.2)
    assert mechanism.single(2.0) == acc.Gaussian(0.6)
    assert IndependentGaussian(noise_multiplier=0.0).single(1.0) == acc.NonPrivate()
    poisson = PoissonSampling(sampling_rate=0.1, population=50)
    assert mechanism.event(2.0, poisson, 7) == acc.Gaussian(0.6).poisson(0.1) * 7
    fixed = FixedSizeSampling(size=5, population=50)
    assert mechanism.event(1.0, fixed, 7) == acc.Gaussian(1.2).without_replacement(5, 50) * 7


def test_every_round_has_noise_of_its_own_and_the_same_one_when_it_is_repeated():
    source = RandomSource.from_seed(2)

    def noise(round: int, label: str = "noise") -> torch.Tensor:
        mechanism = IndependentGaussian(noise_multiplier=1.0, label=label)
        return mechanism.release(torch.zeros(1000, dtype=torch.float64), scale=1.0, round=round, source=source)

    assert torch.equal(noise(3), noise(3))
    others = [noise(3), noise(4), noise(3, "count noise")]
    # A correlation of independent draws has a standard deviation of 0.032: false alarm below 1e-6 at fixed seeds.
    assert np.abs(np.corrcoef(torch.stack(others).numpy()) - np.eye(3)).max() < 0.16


def test_the_noise_that_is_left_beside_another_release_costs_the_rest():
    left = IndependentGaussian(noise_multiplier=1.1).beside(4.0)
    both = left.single(1.0) + acc.Gaussian(4.0)
    assert acc.guarantee(both).epsilon(1e-6) == pytest.approx(acc.guarantee(acc.Gaussian(1.1)).epsilon(1e-6), rel=1e-9)
    assert IndependentGaussian(noise_multiplier=0.0).beside(0.0).noise_multiplier == 0.0
    with pytest.raises(InputError, match=r"noise multiplier 1 leaves nothing for the sum at 1\.1"):
        IndependentGaussian(noise_multiplier=1.1).beside(1.0)


def test_noise_on_an_unbounded_sum_is_refused():
    with pytest.raises(InputError, match=r"scale must be > 0, got 0.0; noise on an unbounded sum protects nobody"):
        IndependentGaussian(noise_multiplier=1.0).release(
            torch.zeros(3, dtype=torch.float64), scale=0.0, round=0, source=RandomSource.from_seed(0)
        )


def test_negative_noise_is_refused():
    with pytest.raises(InputError, match="noise_multiplier must be >= 0"):
        IndependentGaussian(noise_multiplier=-1.0)
