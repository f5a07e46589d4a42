"""Weights that single precision cannot hold: the bound must not rest on a few bits of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.clipping import (
    AutomaticClipNorm,
    ClippedSum,
    ConstantClipNorm,
    Layout,
    NormBound,
    PerLayerClipNorm,
)
from slow import by_profile

BOUNDS = (ConstantClipNorm(clip_norm=1.0), PerLayerClipNorm(clip_norm=1.0), AutomaticClipNorm(clip_norm=1.0))


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
@settings(max_examples=by_profile(200), deadline=None)
@given(exponent=st.floats(-20, 60), clip_norm=st.sampled_from([1e-3, 1.0, 50.0]))
def test_a_weight_in_single_precision_still_brings_the_norm_to_the_bound(
    bound: NormBound, exponent: float, clip_norm: float
) -> None:
    """Whatever takes the weight as a single number: it is off by less than what weights are rounded down by."""
    norms = torch.tensor([[10.0**exponent]], dtype=torch.float64)
    weights = bound.weights(norms, clip_norm).float().double()
    assert (weights * norms).item() <= bound.sensitivity(clip_norm)


@pytest.mark.parametrize("value", [0.0, 1e-41, 1e-39, 1.0])
@pytest.mark.parametrize(("clip_norm", "gamma"), [(1.0, 1e-45), (1.0, 1e-40), (1e38, 0.01)])
def test_a_huge_weight_of_next_to_nothing_stays_finite(value: float, clip_norm: float, gamma: float) -> None:
    """Zero times an infinite weight would be NaN, and a tiny number times it an infinite sum."""
    bound = AutomaticClipNorm(clip_norm=clip_norm, gamma=gamma)
    total = ClippedSum(bound, clip_norm, Layout(names=("w",), shapes=(torch.Size([2]),)))
    total.add_rows(torch.full((3, 2), value))
    total.add(torch.full((2,), value))
    assert total.total.norm().item() <= 4 * clip_norm
