"""The Gaussian sum."""

import pytest
import torch
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.mechanisms import GaussianMechanism


def test_noise_is_normal_with_the_std_that_it_tells():
    mechanism = GaussianMechanism(noise_multiplier=0.7)
    noise = mechanism.release(torch.zeros(200_001, dtype=torch.float64), 3.0, RandomSource.from_os().stream("noise"))
    # Fresh randomness each time: false alarm 1e-9.
    assert stats.kstest(noise.numpy() / mechanism.noise_std(3.0), "norm").pvalue > 1e-9
    assert noise.unique().numel() == noise.numel()


def test_the_noise_is_one_draw_for_any_number_of_threads():
    mechanism = GaussianMechanism(noise_multiplier=0.5)
    size = 3_000_001
    before = torch.get_num_threads()
    released = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            total = torch.ones(size, dtype=torch.float64)
            released.append(mechanism.release(total, 2.0, RandomSource.from_seed(0).stream("n")))
            assert released[-1] is total
    finally:
        torch.set_num_threads(before)
    assert torch.equal(released[0], released[1])
    assert torch.equal(released[0], released[2])
    assert torch.equal(released[0] - 1, torch.from_numpy(RandomSource.from_seed(0).stream("n").normal(size)) + 1 - 1)


def test_an_empty_sum_is_noised_too():
    released = GaussianMechanism(noise_multiplier=1.0).release(
        torch.zeros(10, dtype=torch.float64), 1.0, RandomSource.from_seed(0).stream("n")
    )
    assert (released != 0).all()


def test_the_event_follows_from_the_noise():
    assert GaussianMechanism(noise_multiplier=1.2).event() == acc.Gaussian(1.2)
    assert GaussianMechanism(noise_multiplier=1.2).event(2.0) == acc.Gaussian(0.6)
    assert GaussianMechanism(noise_multiplier=0.0).event() == acc.NonPrivate()


def test_negative_noise_is_refused():
    with pytest.raises(InputError, match="noise_multiplier must be >= 0"):
        GaussianMechanism(noise_multiplier=-1.0)
