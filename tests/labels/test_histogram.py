"""Counted priors: what they cost, and what becomes of counts."""

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.labels import NoisyHistogram
from sfumato.labels.priors import prior_of
from sfumato.runs import Run


def release(counts: np.ndarray, epsilon: float, seed: int = 1, **settings: float) -> np.ndarray:
    with Run.open(None, plan={"plan": "test"}, seed=seed) as run:
        run.start("test")
        return NoisyHistogram(epsilon=epsilon, **settings).release(run, counts)


def test_the_cost_is_epsilon_where_a_label_is_replaced():
    event = NoisyHistogram(epsilon=0.04).event()
    assert acc.guarantee(event, "replace").epsilon(0.0) == pytest.approx(0.04, rel=1e-12)


def test_a_replaced_label_moves_two_counts_and_noise_covers_both():
    """By enumeration: the ratio of the chances of any two noisy counts, in the closed form of the noise."""
    rate = NoisyHistogram(epsilon=0.5).event().rate
    noisy = np.arange(-40, 41)
    log_ratio = rate * (
        np.abs(noisy[:, None] - 1) + np.abs(noisy[None, :] + 1) - np.abs(noisy[:, None]) - np.abs(noisy)
    )
    assert np.abs(log_ratio).max() == pytest.approx(0.5)


def test_little_noise_gives_the_shares():
    found = release(np.array([[300_000, 100_000], [0, 500_000]]), epsilon=1.0)
    assert found == pytest.approx(np.array([[0.75, 0.25], [0.0, 1.0]]), abs=1e-3)


def test_counts_below_zero_are_zero_and_an_empty_group_is_uniform():
    found = prior_of(np.array([[5, -3, 5], [0, 0, 0], [-1, -9, -2]]), smoothing=0.0)
    assert found.tolist() == [[0.5, 0.0, 0.5], [1 / 3] * 3, [1 / 3] * 3]
    assert prior_of(np.array([[4, -1]]), smoothing=0.5).tolist() == [[0.75, 0.25]]


def test_the_noise_is_drawn_once_in_a_run_and_stands_in_its_ledger():
    histogram, counts = NoisyHistogram(epsilon=0.1), np.zeros((2, 3), np.int64)
    with Run.open(None, plan={"plan": "test"}, seed=1) as run:
        run.start("test")
        first = histogram.release(run, counts)
        assert (histogram.release(run, counts) == first).all()
        assert run.spent() == histogram.event()


@pytest.mark.parametrize(("settings", "told"), [({"epsilon": 0}, "> 0"), ({"epsilon": 1, "smoothing": 2}, "smoothing")])
def test_bad_settings_are_refused(settings, told):
    with pytest.raises(InputError, match=told):
        NoisyHistogram(**settings)
