"""Weights that single precision cannot hold: the bound must not rest on a few bits of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.clipping import AutomaticClipNorm, ConstantClipNorm, NormBound, PerLayerClipNorm

BOUNDS = (ConstantClipNorm(clip_norm=1.0), PerLayerClipNorm(clip_norm=1.0), AutomaticClipNorm(clip_norm=1.0))


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
@settings(max_examples=200, deadline=None)
@given(exponent=st.floats(-20, 60), clip_norm=st.sampled_from([1e-3, 1.0, 50.0]))
def test_a_weight_in_single_precision_still_brings_the_norm_to_the_bound(
    bound: NormBound, exponent: float, clip_norm: float
) -> None:
    """Whatever takes the weight as a single number: it is off by less than what weights are rounded down by."""
    norms = torch.tensor([[10.0**exponent]], dtype=torch.float64)
    weights = bound.weights(norms, clip_norm).float().double()
    assert (weights * norms).item() <= bound.sensitivity(clip_norm)
