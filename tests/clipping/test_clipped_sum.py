"""Clipped sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.clipping import ClippedSum

NORMS = st.floats(0, 1e30) | st.sampled_from([0.0, 1e-30, 1.0, math.inf, math.nan])


@settings(deadline=None, max_examples=200)
@given(scale=NORMS, clip=st.floats(1e-6, 1e6), seed=st.integers(0, 1000), rows=st.booleans())
def test_no_contribution_moves_the_sum_by_more_than_the_clip_norm(scale, clip, seed, rows):
    generator = torch.Generator().manual_seed(seed)
    contribution = torch.randn(50, generator=generator) * torch.tensor(scale, dtype=torch.float32)
    total = ClippedSum(50, clip_norm=clip)
    if rows:
        total.add_rows(contribution[None])
    else:
        total.add(contribution)
    assert torch.isfinite(total.total).all()
    assert total.total.norm().item() <= clip * (1 + 1e-12)


def test_a_short_contribution_is_left_whole_and_a_long_one_keeps_its_direction():
    total = ClippedSum(2, clip_norm=1.0)
    total.add(torch.tensor([0.3, 0.4]))
    assert torch.allclose(total.total, torch.tensor([0.3, 0.4], dtype=torch.float64))
    total.add(torch.tensor([30.0, 40.0]))
    assert torch.allclose(total.total, torch.tensor([0.9, 1.2], dtype=torch.float64), atol=1e-5)


def test_one_by_one_and_all_at_once_agree():
    contributions = torch.randn(9, 30, generator=torch.Generator().manual_seed(0)) * 0.3
    contributions[4, 2] = math.nan
    contributions[5] = 0
    a, b = ClippedSum(30, clip_norm=1.5), ClippedSum(30, clip_norm=1.5)
    for row in contributions:
        a.add(row)
    b.add_rows(contributions)
    assert torch.allclose(a.total, b.total, atol=1e-6)
    assert (a.units, a.below, a.clipped, a.non_finite) == (b.units, b.below, b.clipped, b.non_finite)
    assert a.non_finite == 1
    assert a.below + a.clipped == 8


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_contribution_that_is_not_finite_counts_as_zero(bad):
    total = ClippedSum(3, clip_norm=1.0)
    total.add(torch.tensor([1.0, bad, 0.0]))
    total.add_rows(torch.tensor([[1.0, bad, 0.0], [0.5, 0.0, 0.0]]))
    assert total.total.tolist() == pytest.approx([0.5, 0, 0])
    assert (total.units, total.non_finite) == (3, 2)


def test_finite_numbers_whose_squares_overflow_are_clipped_not_dropped():
    total = ClippedSum(2, clip_norm=1.0)
    total.add(torch.tensor([3e30, 4e30]))
    assert total.total.tolist() == pytest.approx([0.6, 0.8], abs=1e-5)
    assert total.clipped == 1


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_no_bound_is_refused(clip):
    with pytest.raises(InputError, match="clip_norm"):
        ClippedSum(2, clip_norm=clip)


def test_given_memory_is_cleared_and_used():
    memory = torch.full((3,), float("nan"), dtype=torch.float64)
    total = ClippedSum(3, clip_norm=1.0, memory=memory)
    total.add(torch.tensor([0.5, 0.0, 0.0]))
    assert memory.tolist() == [0.5, 0.0, 0.0]
