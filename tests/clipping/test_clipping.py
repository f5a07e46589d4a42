"""Clipped sums and their layout, what every bound promises, and the rule of adaptive clip norms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato._check import InputError
from sfumato.clipping import (
    Adaptive,
    Automatic,
    ClippedSum,
    Flat,
    Layout,
    NormBound,
    PerLayer,
    Tally,
)
from sfumato.clipping.bounds import COUNT_SENSITIVITY, ROUND_DOWN
from sfumato.clipping.clipped_sum import RowSum, row_norms
from slow import by_profile

# Clipped sums.


def flat_sum(size: int, *, clip_norm: float | None, out: torch.Tensor | None = None) -> ClippedSum:
    """A sum of vectors under one norm."""
    layout = Layout(names=("w",), shapes=(torch.Size([size]),))
    return ClippedSum(Flat(norm=None), clip_norm, layout, out=out)


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
    "flat": Flat(norm=0.8),
    "per layer": PerLayer(norm=0.8, shares=(1.0, 3.0)),
    "automatic": Automatic(norm=0.8),
    "none": Flat(norm=None),
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
        layers = [row[:16], row[16:]] if isinstance(bound, PerLayer) else [row]
        shares = bound.bounds(2, 0.8) if isinstance(bound, PerLayer) else [0.8]
        for start, layer, share in zip((0, 16), layers, shares):
            norm = layer.norm()
            weight = min(1.0, share * ROUND_DOWN / norm) if norm > 0 else 1.0
            if isinstance(bound, Automatic):
                weight = share * ROUND_DOWN / (norm + bound.gamma)
            if bound.norm is None:
                weight = 1.0
            total[start : start + len(layer)] += weight * layer
    return total


@pytest.mark.parametrize("name", BOUNDS)
def test_one_by_one_in_rows_and_through_parts_are_one_sum(name):
    """Each is the sum that is written out: no way around the bound, whatever it is."""
    bound, each = BOUNDS[name], contributions()
    sums = [ClippedSum(bound, bound.norm, LAYERS) for _ in range(3)]
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
    bound = PerLayer(norm=clip, shares=(2.0, 1.0))
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
    with pytest.raises(InputError, match="shares has 3 numbers but the model trains 2 layers"):
        ClippedSum(PerLayer(norm=1.0, shares=(1.0, 1.0, 1.0)), 1.0, LAYERS)


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


# How a vector is made of parameters.


def layout_of(model: nn.Module) -> Layout:
    named = list(model.named_parameters())
    return Layout([name for name, _ in named], [parameter.shape for _, parameter in named])


def test_views_are_the_parameters_in_their_order_and_lie_in_the_vector():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5, bias=False))
    layout = layout_of(model)
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    assert layout.size == vector.numel()
    assert layout.sizes == [54, 3, 20]
    for view, parameter in zip(layout.views(vector), model.parameters(), strict=True):
        assert torch.equal(view, parameter)
        view.fill_(7.0)
    assert (vector == 7.0).all()


def test_rows_of_vectors_have_views_by_row():
    layout = Layout(names=("a", "b"), shapes=(torch.Size([2, 3]), torch.Size([])))
    rows = torch.arange(14.0).view(2, 7)
    wide, scalar = layout.views(rows)
    assert (wide.shape, scalar.shape) == ((2, 2, 3), (2,))
    assert torch.equal(wide[1], layout.views(rows[1])[0])
    assert scalar.tolist() == [6.0, 13.0]


def test_a_vector_of_another_length_has_no_views():
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        Layout(names=("a",), shapes=(torch.Size([2]),)).views(torch.zeros(3))


# Counts of a round, which are private.


def test_amounts_add_up_and_tallies_of_several_processes_are_added_as_vectors():
    one, other = Tally("cpu"), Tally("cpu")
    one.add(units=3, below=2, loss=torch.tensor(1.5))
    one.add(units=1, clipped=1)
    other.add(units=4, loss=0.5)
    one.values += other.values
    assert [one[name] for name in ("units", "below", "clipped", "loss")] == [8, 2, 1, 2]
    assert one.row()["loss"] == 0.25


def test_a_round_with_no_one_has_no_means():
    row = Tally("cpu").row()
    assert (row["units"], row["examples"], row["non_finite"]) == (0, 0, 0)
    assert row["loss"] is row["clipped"] is row["norm_mean"] is None


def test_means_are_over_those_that_have_the_figure():
    tally = Tally("cpu")
    tally.add(units=4, clipped=1, non_finite=2, norms=3.0, loss=8.0, examples=20)
    row = tally.row()
    assert (row["units"], row["examples"], row["non_finite"]) == (4, 20, 2)
    assert row["norm_mean"] == 1.5  # of two finite ones
    assert row["clipped"] == 0.25
    assert row["loss"] == 2.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_figure_that_is_not_finite_is_left_out_so_that_json_can_hold_the_row(bad):
    tally = Tally("cpu")
    tally.add(units=1, loss=bad, norms=bad)
    assert tally.row()["loss"] is None
    assert tally.row()["norm_mean"] is None


def test_a_field_that_no_one_knows_is_an_error():
    with pytest.raises(ValueError, match="not in tuple"):
        Tally("cpu").add(guests=1)


# Weights that single precision cannot hold: the bound must not rest on a few bits of them.

OF_ONE = (Flat(norm=1.0), PerLayer(norm=1.0), Automatic(norm=1.0))


@pytest.mark.parametrize("bound", OF_ONE, ids=lambda bound: type(bound).__name__)
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
    bound = Automatic(norm=clip_norm, gamma=gamma)
    total = ClippedSum(bound, clip_norm, Layout(names=("w",), shapes=(torch.Size([2]),)))
    total.add_rows(torch.full((3, 2), value))
    total.add(torch.full((2,), value))
    assert total.total.norm().item() <= 4 * clip_norm


# What every bound promises: whatever the norms are, a contribution adds at most the sensitivity.

ALL_BOUNDS = {
    "flat": lambda c: Flat(norm=c),
    "automatic": lambda c: Automatic(norm=c, gamma=0.01),
    "adaptive": lambda c: Adaptive(norm=c, quantile=0.5),
    "per layer": lambda c: PerLayer(norm=c),
    "per layer, shares": lambda c: PerLayer(norm=c, shares=(1.0, 5.0, 0.1)),
}
BLOCKS = st.lists(
    st.tuples(*[st.floats(0, 1e30) | st.sampled_from([0.0, math.inf, math.nan])] * 3), min_size=1, max_size=5
)


@pytest.mark.parametrize("name", ALL_BOUNDS)
@given(norms=BLOCKS, clip=st.floats(1e-6, 1e6))
def test_no_contribution_adds_more_than_the_sensitivity(name, norms, clip):
    bound = ALL_BOUNDS[name](clip)
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
    bound = PerLayer.of(1.0, 2.0, 2.0)
    assert bound.norm == 3.0
    assert bound.bounds(3, 3.0) == pytest.approx([1.0, 2.0, 2.0])
    assert PerLayer(norm=1.0).bounds(4, 1.0) == [0.5] * 4


def test_a_layer_is_a_module():
    bound = PerLayer(norm=1.0)
    assert bound.groups(["a.w", "b.w", "a.b"]) == [[0, 2], [1]]
    with pytest.raises(InputError, match="has 2 numbers but the model trains 1 layers"):
        PerLayer(norm=1.0, shares=(1.0, 2.0)).groups(["a.w", "a.b"])


def test_automatic_clipping_brings_long_gradients_to_one_length():
    bound = Automatic(norm=2.0, gamma=0.1)
    norms = torch.tensor([[1e-9, 0.1, 1e6]], dtype=torch.float64)
    assert (bound.weights(norms, 2.0) * norms).flatten().tolist() == pytest.approx([2e-8, 1.0, 2.0], rel=1e-3)


@pytest.mark.parametrize("make", [lambda: Automatic(norm=0.0), lambda: PerLayer(norm=-1.0)])
def test_bounds_are_positive(make):
    with pytest.raises(InputError, match="norm must be > 0"):
        make()


# The rule of adaptive clip norms; what a counted round costs is in tests/training/test_loop.py.


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_it_finds_the_quantile_of_the_norms(quantile):
    norms = np.exp(np.random.default_rng(0).normal(1.0, 0.7, 400))
    rule = Adaptive(quantile=quantile)
    current = 0.1
    for _ in range(400):
        current = rule.updated(current, noisy_count=float((norms <= current).sum() - 200), clients=400)
    assert current == pytest.approx(np.quantile(norms, quantile), rel=0.05)


def test_an_empty_cohort_is_half_below_and_half_above():
    assert Adaptive(quantile=0.5).updated(2.0, noisy_count=0.0, clients=100) == 2.0


def test_it_stops_after_its_rounds():
    assert [Adaptive(quantile=0.5, adapted_rounds=2).active(i) for i in range(4)] == [True, True, False, False]
    assert Adaptive(quantile=0.5).active(10**6)


def test_the_noise_on_the_count_is_a_twentieth_of_the_clients_or_the_rounds_own():
    rule = Adaptive(quantile=0.5)
    assert rule.count_noise_std(clients=100, noise_multiplier=1.0) == 5.0
    assert rule.count_noise_std(clients=10, noise_multiplier=1.0) == 1.0
    assert Adaptive(quantile=0.5, count_noise=0.4).count_noise_std(clients=100, noise_multiplier=0.62) == 0.4


@pytest.mark.parametrize("z", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("clients", [1, 20, 4000])
def test_the_usual_noise_on_the_count_always_leaves_something_for_the_sum(z, clients):
    assert Adaptive(quantile=0.5).count_noise_std(clients=clients, noise_multiplier=z) > COUNT_SENSITIVITY * z


@pytest.mark.parametrize("count_noise", [0.7, 1.0])
def test_a_count_noise_that_leaves_nothing_for_the_sum_is_refused(count_noise):
    """Noise of std σ_b on a count of sensitivity ½ is a multiplier of 2σ_b: at z the round's whole budget is spent."""
    with pytest.raises(InputError, match=r"count_noise .* leaves nothing .* use more than 1$"):
        Adaptive(quantile=0.5, count_noise=count_noise).count_noise_std(clients=100, noise_multiplier=2.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"quantile": 1.1}, "quantile"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"adapted_rounds": 0}, "adapted_rounds"),
        ({"count_noise": 0.0}, "count_noise"),
    ],
)
def test_fields_out_of_range_are_refused_by_their_names(change, named):
    with pytest.raises(InputError, match=named):
        Adaptive(**{"quantile": 0.5, **change})


def test_a_norm_that_starts_at_nothing_is_refused():
    with pytest.raises(InputError, match="norm must be > 0"):
        Adaptive(norm=0.0, quantile=0.5)


def test_only_the_adaptive_bound_asks_for_a_count():
    bound = Adaptive(quantile=0.3)
    assert bound.counted is bound
    assert Flat(norm=1.0).counted is None


def test_a_sum_of_rows_in_many_parts_is_as_large_as_its_rows():
    generator = torch.Generator().manual_seed(0)
    total, expected = RowSum(2), torch.zeros(50, 2, dtype=torch.float64)
    assert [tuple(each.shape) for each in total.gathered()] == [(0,), (0, 2)]
    for _ in range(200):
        rows = torch.randint(50, (30,), generator=generator)
        values = torch.randn(30, 2, generator=generator, dtype=torch.float64)
        total.index_add_(0, rows, values)
        expected.index_add_(0, rows, values)
        assert sum(len(part) for part, _ in total._parts) <= 2 * 50
    rows, values = total.gathered()
    assert rows.tolist() == list(range(50))
    torch.testing.assert_close(values, expected)
