import numpy as np
import pytest

from sfumato.accounting.pair import Labelled
from sfumato.accounting.sampled_pair import SampledGaussian


def curve(pair, epsilon: float) -> float:
    upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
    return float(upper[0] - np.exp(epsilon) * lower[0])


def test_the_curve_is_the_mean_of_the_curves() -> None:
    parts = ((0.2, SampledGaussian("remove", 0.3, 2.0)), (0.5, SampledGaussian("add", 0.9, 0.4)))
    pair = Labelled(parts, idle=0.3)
    for epsilon in (0.0, 0.1, 0.7):
        assert curve(pair, epsilon) == pytest.approx(sum(w * curve(part, epsilon) for w, part in parts), rel=1e-14)


def test_the_curve_of_a_lottery_is_above_that_of_one_who_does_not_see_the_label() -> None:
    rng = np.random.default_rng(0)
    upper, lower = rng.dirichlet(np.ones(5), size=(2, 3))  # three pairs of distributions on five outcomes
    weights = rng.dirichlet(np.ones(3))
    for epsilon in (0.0, 0.3, 1.0):
        seen = sum(w * np.maximum(p - np.exp(epsilon) * q, 0).sum() for w, p, q in zip(weights, upper, lower))
        hidden = np.maximum(weights @ upper - np.exp(epsilon) * (weights @ lower), 0).sum()
        assert hidden <= seen + 1e-15


def test_an_atom_at_zero_puts_the_grid_there() -> None:
    exchange = SampledGaussian("exchange", 0.3, 2.0)
    pair = Labelled(((0.5, SampledGaussian("remove", 0.3, 1.0)), (0.4, exchange)), idle=0.1)
    assert pair.atom() == pytest.approx(0.1 + 0.4 * exchange.atom())
    assert pair.bulk() == 0.0
    upper, lower, _ = pair.cells(np.array([-np.inf, 0.0, np.inf]))
    assert upper.sum() + pair.atom() == pytest.approx(1.0, abs=1e-14)
    assert lower.sum() + pair.atom() == pytest.approx(1.0, abs=1e-14)


def test_it_spans_all_parts() -> None:
    narrow, wide = SampledGaussian("remove", 0.1, 0.1), SampledGaussian("remove", 0.5, 3.0)
    assert Labelled(((0.5, narrow), (0.5, wide))).span() == wide.span()
    low, high = Labelled(((1e-3, SampledGaussian("remove", 1.0, 0.001)),), idle=0.999).span()
    assert low <= 0.0 <= high
