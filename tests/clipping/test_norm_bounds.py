"""What every bound promises: whatever the norms are, a contribution adds at most the sensitivity."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.clipping import AdaptiveClipNorm, AutomaticClipNorm, ConstantClipNorm, PerLayerClipNorm, QuantileRule

BOUNDS = {
    "flat": lambda c: ConstantClipNorm(clip_norm=c),
    "automatic": lambda c: AutomaticClipNorm(clip_norm=c, gamma=0.01),
    "adaptive": lambda c: AdaptiveClipNorm(initial=c, rule=QuantileRule(quantile=0.5)),
    "per layer": lambda c: PerLayerClipNorm(clip_norm=c),
    "per layer, shares": lambda c: PerLayerClipNorm(clip_norm=c, shares=(1.0, 5.0, 0.1)),
}
NORMS = st.lists(
    st.tuples(*[st.floats(0, 1e30) | st.sampled_from([0.0, math.inf, math.nan])] * 3), min_size=1, max_size=5
)


@pytest.mark.parametrize("name", BOUNDS)
@given(norms=NORMS, clip=st.floats(1e-6, 1e6))
def test_no_contribution_adds_more_than_the_sensitivity(name, norms, clip):
    bound = BOUNDS[name](clip)
    layers = ["a.weight", "b.weight", "c.weight"]
    each = torch.tensor(norms, dtype=torch.float64).T
    groups = bound.groups(layers)
    if len(groups) == 1:
        each = each.square().sum(dim=0, keepdim=True).sqrt()
    weights = bound.weights(each, clip)
    added = torch.where(weights == 0, 0.0, weights * each).square().sum(dim=0).sqrt()
    assert (added <= bound.sensitivity(clip)).all()
    finite = torch.isfinite(each).all(dim=0)
    assert (weights[:, ~finite] == 0).all()
    assert (weights[:, finite] > 0).all()


def test_per_layer_bounds_add_up_as_squares():
    bound = PerLayerClipNorm.of(1.0, 2.0, 2.0)
    assert bound.start == 3.0
    assert bound.bounds(3, 3.0) == pytest.approx([1.0, 2.0, 2.0])
    assert PerLayerClipNorm(clip_norm=1.0).bounds(4, 1.0) == [0.5] * 4


def test_a_layer_is_a_module():
    bound = PerLayerClipNorm(clip_norm=1.0)
    assert bound.groups(["a.w", "b.w", "a.b"]) == [[0, 2], [1]]
    with pytest.raises(InputError, match="has 2 numbers but the model trains 1 layers"):
        PerLayerClipNorm(clip_norm=1.0, shares=(1.0, 2.0)).groups(["a.w", "a.b"])


def test_automatic_clipping_brings_long_gradients_to_one_length():
    bound = AutomaticClipNorm(clip_norm=2.0, gamma=0.1)
    norms = torch.tensor([[1e-9, 0.1, 1e6]], dtype=torch.float64)
    assert (bound.weights(norms, 2.0) * norms).flatten().tolist() == pytest.approx([2e-8, 1.0, 2.0], rel=1e-3)


@pytest.mark.parametrize("make", [lambda: AutomaticClipNorm(clip_norm=0.0), lambda: PerLayerClipNorm(clip_norm=-1.0)])
def test_bounds_are_positive(make):
    with pytest.raises(InputError, match="clip_norm must be > 0"):
        make()
