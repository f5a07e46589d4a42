"""Clipped sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.clipping import AutomaticClipNorm, ClippedSum, ConstantClipNorm, Layout, NormBound, PerLayerClipNorm
from sfumato.clipping.bounds import ROUND_DOWN
from sfumato.clipping.clipped_sum import row_norms
from slow import by_profile


def flat_sum(size: int, *, clip_norm: float | None, out: torch.Tensor | None = None) -> ClippedSum:
    """A sum of vectors under one norm."""
    layout = Layout(names=("w",), shapes=(torch.Size([size]),))
    return ClippedSum(ConstantClipNorm(clip_norm=None), clip_norm, layout, out=out)


NORMS = st.floats(0, 1e30) | st.sampled_from([0.0, 1e-30, 1.0, math.inf, math.nan])


@settings(deadline=None, max_examples=by_profile(200))
@given(scale=NORMS, clip=st.floats(1e-6, 1e6), seed=st.integers(0, 1000), rows=st.booleans())
def test_no_contribution_moves_the_sum_by_more_than_the_clip_norm(scale, clip, seed, rows):
    generator = torch.Generator().manual_seed(seed)
    contribution = torch.randn(50, generator=generator) * torch.tensor(scale, dtype=torch.float32)
    total = flat_sum(50, clip_norm=clip)
    if rows:
        total.add_rows(contribution[None])
    else:
        total.add(contribution)
    assert torch.isfinite(total.total).all()
    assert total.total.norm().item() <= clip * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("copies", [1, 4])
def test_the_bound_holds_for_contributions_in_half_precision(dtype, copies):
    for seed in range(100):
        size = (1, 3, 40, 200)[seed % 4]
        contribution = (3 * torch.randn(1, size, generator=torch.Generator().manual_seed(seed))).to(dtype)
        total = flat_sum(size, clip_norm=1.0)
        total.add_rows(contribution.expand(copies, -1))
        assert total.total.norm().item() / copies <= 1


def test_a_short_contribution_is_left_whole_and_a_long_one_keeps_its_direction():
    total = flat_sum(2, clip_norm=1.0)
    total.add(torch.tensor([0.3, 0.4]))
    assert torch.allclose(total.total, torch.tensor([0.3, 0.4], dtype=torch.float64))
    total.add(torch.tensor([30.0, 40.0]))
    long = ROUND_DOWN * torch.tensor([0.6, 0.8], dtype=torch.float64)
    assert torch.allclose(total.total, torch.tensor([0.3, 0.4], dtype=torch.float64) + long, atol=1e-5)


def test_one_by_one_and_all_at_once_agree():
    contributions = torch.randn(9, 30, generator=torch.Generator().manual_seed(0)) * 0.3
    contributions[4, 2] = math.nan
    contributions[5] = 0
    a, b = flat_sum(30, clip_norm=1.5), flat_sum(30, clip_norm=1.5)
    for row in contributions:
        a.add(row)
    b.add_rows(contributions)
    assert torch.allclose(a.total, b.total, atol=1e-6)
    torch.testing.assert_close(a.tally.values, b.tally.values, atol=1e-6, rtol=1e-6)
    assert (a.tally["units"], a.tally["non_finite"]) == (9, 1)
    assert a.tally["below"] + a.tally["clipped"] == 8


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_contribution_that_is_not_finite_counts_as_zero(bad):
    total = flat_sum(3, clip_norm=1.0)
    total.add(torch.tensor([1.0, bad, 0.0]))
    total.add_rows(torch.tensor([[1.0, bad, 0.0], [0.5, 0.0, 0.0]]))
    assert total.total.tolist() == pytest.approx([0.5, 0, 0])
    assert (total.tally["units"], total.tally["non_finite"]) == (3, 2)


def test_finite_numbers_whose_squares_overflow_are_clipped_not_dropped():
    total = flat_sum(2, clip_norm=1.0)
    total.add(torch.tensor([3e30, 4e30]))
    assert total.total.tolist() == pytest.approx([0.6 * ROUND_DOWN, 0.8 * ROUND_DOWN], abs=1e-5)
    assert total.tally["clipped"] == 1


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_no_bound_is_refused(clip):
    with pytest.raises(InputError, match="clip_norm"):
        flat_sum(2, clip_norm=clip)


def test_given_memory_is_cleared_and_used():
    memory = torch.full((3,), float("nan"), dtype=torch.float64)
    total = flat_sum(3, clip_norm=1.0, out=memory)
    total.add(torch.tensor([0.5, 0.0, 0.0]))
    assert memory.tolist() == [0.5, 0.0, 0.0]


LAYERS = Layout(
    names=("a.weight", "a.bias", "b.weight"), shapes=(torch.Size([4, 3]), torch.Size([4]), torch.Size([2, 4]))
)
BOUNDS = {
    "flat": ConstantClipNorm(clip_norm=0.8),
    "per layer": PerLayerClipNorm(clip_norm=0.8, shares=(1.0, 3.0)),
    "automatic": AutomaticClipNorm(clip_norm=0.8),
    "none": ConstantClipNorm(clip_norm=None),
}


def contributions(rows: int = 9) -> torch.Tensor:
    """Short ones, long ones, nothing, and one that is not finite in its last layer."""
    each = torch.randn(rows, LAYERS.size, generator=torch.Generator().manual_seed(1))
    each *= torch.logspace(-2, 2, rows)[:, None]
    each[3] = 0
    each[5, -1] = math.inf
    return each


def expected(bound: NormBound, each: torch.Tensor) -> torch.Tensor:
    """The weighted sum, layer by layer, written out in double precision."""
    total = torch.zeros(LAYERS.size, dtype=torch.float64)
    for row in each.double():
        if not torch.isfinite(row).all():
            continue
        layers = [row[:16], row[16:]] if isinstance(bound, PerLayerClipNorm) else [row]
        shares = bound.bounds(2, 0.8) if isinstance(bound, PerLayerClipNorm) else [0.8]
        for start, layer, share in zip((0, 16), layers, shares):
            norm = layer.norm()
            weight = min(1.0, share * ROUND_DOWN / norm) if norm > 0 else 1.0
            if isinstance(bound, AutomaticClipNorm):
                weight = share * ROUND_DOWN / (norm + bound.gamma)
            if bound.start is None:
                weight = 1.0
            total[start : start + len(layer)] += weight * layer
    return total


@pytest.mark.parametrize("name", BOUNDS)
def test_one_by_one_in_rows_and_through_parts_are_one_sum(name):
    """Each is the sum that is written out: no way around the bound, whatever it is."""
    bound, each = BOUNDS[name], contributions()
    sums = [ClippedSum(bound, bound.start, LAYERS) for _ in range(3)]
    for row in each:
        sums[0].add(row)
    sums[1].add_rows(each)
    views = [view.double() for view in LAYERS.views(each)]
    norms = [torch.stack([views[i].flatten(1).norm(dim=1) for i in group]).norm(dim=0) for group in sums[2].groups]
    weights = sums[2].weigh(torch.stack(norms))
    for weight, group in zip(weights, sums[2].groups, strict=True):
        for i in group:
            usable = weight > 0
            sums[2].parts()[i].add_(torch.einsum("n,n...->...", weight[usable], views[i][usable]))
    for found in sums:
        torch.testing.assert_close(found.total, expected(bound, each), rtol=1e-6, atol=1e-6)  # rows: single precision
        torch.testing.assert_close(found.tally.values, sums[0].tally.values, rtol=1e-6, atol=0)
    assert sums[0].tally["non_finite"] == 1
    assert sums[0].tally["units"] == 9


@pytest.mark.parametrize("rows", [False, True])
@settings(deadline=None, max_examples=by_profile(100))
@given(scales=st.tuples(NORMS, NORMS, NORMS), clip=st.floats(1e-6, 1e6), seed=st.integers(0, 1000))
def test_each_layer_of_a_contribution_adds_at_most_its_own_bound(rows, scales, clip, seed):
    bound = PerLayerClipNorm(clip_norm=clip, shares=(2.0, 1.0))
    total = ClippedSum(bound, clip, LAYERS)
    contribution = torch.randn(LAYERS.size, generator=torch.Generator().manual_seed(seed))
    for view, scale in zip(LAYERS.views(contribution), scales, strict=True):
        view *= torch.tensor(scale, dtype=torch.float32)
    if rows:
        total.add_rows(contribution.expand(2, -1))
    else:
        total.add(contribution)
        total.add(contribution)
    first, second = total.total[:16].norm().item(), total.total[16:].norm().item()
    assert torch.isfinite(total.total).all()
    assert first <= 2 * bound.bounds(2, clip)[0] * (1 + 1e-12)
    assert second <= 2 * bound.bounds(2, clip)[1] * (1 + 1e-12)


def test_two_sums_under_one_bound_merge_into_the_sum_of_both():
    each = contributions()
    *parts, whole = (ClippedSum(BOUNDS["per layer"], 0.8, LAYERS) for _ in range(3))
    parts[0].add_rows(each[:4])
    parts[1].add_rows(each[4:])
    whole.add_rows(each)
    parts[0].merge(parts[1])
    torch.testing.assert_close(parts[0].total, whole.total)
    torch.testing.assert_close(parts[0].tally.values, whole.tally.values)


def test_more_rows_than_fit_into_the_cache_are_one_sum():
    """Rows are weighted piece by piece; a piece of one row goes another way than one of many."""
    wide = torch.randn(5, (1 << 17) + 3, generator=torch.Generator().manual_seed(0))
    total = flat_sum(wide.shape[1], clip_norm=1.0)
    total.add_rows(wide)
    weighted = ROUND_DOWN * wide.double() / wide.double().norm(dim=1, keepdim=True)
    # five rows, added in single precision
    rounding = 5 * torch.finfo(torch.float32).eps * float(weighted.abs().max())
    torch.testing.assert_close(total.total, weighted.sum(dim=0), rtol=0.0, atol=rounding)
    assert total.tally["clipped"] == 5


def test_shares_for_another_number_of_layers_are_refused_before_anything_is_added():
    with pytest.raises(InputError, match="layer_shares has 3 numbers but the model trains 2 layers"):
        ClippedSum(PerLayerClipNorm(clip_norm=1.0, shares=(1.0, 1.0, 1.0)), 1.0, LAYERS)


@pytest.mark.parametrize("strange", [0.0, 1e-20, 1e16, math.nan, math.inf])
def test_no_contribution_decides_how_the_norm_of_another_one_rounds(strange):
    """Else it moves the count of those below the clip norm, which adaptive clipping releases, by more than its own."""
    row = torch.randn(157, generator=torch.Generator().manual_seed(0))
    alike, other = row.expand(255, -1), torch.full((1, 157), strange)
    expected = row_norms(alike)
    assert torch.equal(row_norms(torch.cat([alike, other]))[:255], expected)
    single, double = float(expected[0]), float(torch.linalg.vector_norm(row.double()))
    assert single != double
    counts = []
    for rows in (alike, torch.cat([alike, other])):
        share = flat_sum(157, clip_norm=(single + double) / 2)
        share.add_rows(rows)
        counts.append(share.tally["below"])
    assert abs(counts[1] - counts[0]) <= 1
