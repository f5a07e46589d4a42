"""Gradients, norms and clipped sums of each example are those of a loop over examples."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from architectures import ARCHITECTURES
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.models import PublicBatchNorm, WSConv2d, use_public_batch
from sfumato.per_example import Recording, covered, layers_of
from sfumato.per_example.recurrent import Steps
from sfumato.per_example.rule import Dense, Outer, Rows, TiedTable, _lengths_at_most, lengths_of
from slow import slow_but

# The loop that the engine is held to: every example alone, by ordinary autograd.


def cut(values: Any, index: int) -> Any:
    """One example of every tensor; anything else is shared."""
    return values[index : index + 1] if isinstance(values, Tensor) else values


def _against_loop(
    model: nn.Module,
    losses: Callable[..., Tensor],
    inputs: Sequence[Any],
    *,
    expand: bool = True,
    relative: float = 1e-5,
) -> Recording:
    """Norms, sums and gradients of `losses(*inputs)`, float [B], against a loop over the examples."""
    examples = next(len(value) for value in inputs if isinstance(value, Tensor))
    with Recording(covered(model, expand=expand), examples=examples) as recording:
        found = losses(*inputs)
        recording.backward(found)
    parameters = recording.parameters
    rows = []
    for index in range(examples):
        alone = losses(*(cut(value, index) for value in inputs)).sum()
        gradients = torch.autograd.grad(alone, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)])
    expected = [torch.stack(column).double() for column in zip(*rows, strict=True)]
    norms = torch.stack([column.reshape(examples, -1).square().sum(dim=1) for column in expected]).sum(dim=0)
    torch.testing.assert_close(recording.squared_norms(), norms, rtol=max(relative, 1e-5), atol=1e-9)
    weights = torch.rand(examples)
    for total, column in zip(recording.weighted_sum(weights), expected, strict=True):
        wanted = torch.einsum("b,b...->...", weights.double(), column)
        assert (total - wanted).norm() <= relative * wanted.norm() + 1e-6
    sums, totals = recording.weighted_sum(weights), [torch.ones_like(p, dtype=torch.float64) for p in parameters]
    recording.add_to(totals, weights)
    for total, one in zip(totals, sums, strict=True):
        torch.testing.assert_close(total, 1 + one.double(), rtol=1e-5, atol=1e-6)
    assert all(parameter.requires_grad for parameter in parameters)
    return recording


@pytest.fixture
def against_loop() -> Callable[..., Recording]:
    """`against_loop(model, losses, inputs)` checks, and gives the recording."""
    torch.manual_seed(0)
    return _against_loop


# Gradients, norms and clipped sums of each example are those of a loop over examples.

# Norms and clipped sums of per-example gradients are those of a loop over examples.


# The engine against a loop: every example alone, by ordinary autograd.
def by_loop(model: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Callable) -> list:
    """Gradients of every example by itself, float64 [B, *shape] for each parameter."""
    rows = []
    for index in range(len(inputs)):
        alone = loss(model(inputs[index : index + 1]), targets[index : index + 1], reduction="none").sum()
        found = torch.autograd.grad(alone, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)])
    return [torch.stack(column).double() for column in zip(*rows, strict=True)]


def check(model: nn.Module, inputs: Tensor, targets: Tensor, loss: Callable = F.cross_entropy) -> None:
    with Recording(covered(model)) as recording:
        losses = loss(model(inputs), targets, reduction="none")
        recording.backward(losses.flatten(1).sum(1) if losses.dim() > 1 else losses)
    expected = by_loop(model, recording.parameters, inputs, targets, loss)
    norms = sum(column.flatten(1).square().sum(dim=1) for column in expected)
    torch.testing.assert_close(recording.squared_norms(), norms, rtol=1e-5, atol=1e-10)
    weights = torch.rand(len(inputs))
    for total, column in zip(recording.weighted_sum(weights), expected, strict=True):
        wanted = torch.einsum("b,b...->...", weights.double(), column)
        assert (total - wanted).norm() <= 1e-5 * wanted.norm() + 1e-9
    totals = [torch.zeros_like(parameter) for parameter in recording.parameters]
    recording.add_to(totals, weights)
    torch.testing.assert_close(totals, recording.weighted_sum(weights))
    assert all(parameter.requires_grad for parameter in recording.parameters)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("groups", [1, 2, 16])
@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("padding", [0, 1, (2, 1), "same"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_of_every_shape(groups, stride, padding, dilation) -> None:
    if padding == "same" and stride != 1:
        pytest.skip("torch refuses it")
    convolution = nn.Conv2d(16, 32, 3, stride=stride, padding=padding, dilation=dilation, groups=groups)
    model = nn.Sequential(convolution, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 5))
    check(model, torch.randn(3, 16, 11, 9), torch.randint(5, (3,)))


@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        (nn.Conv1d(8, 4, 3, padding=1), (8, 13)),
        (nn.Conv1d(3, 4, 5, stride=3), (3, 20)),
        (nn.Conv3d(8, 4, (2, 3, 1), padding=(1, 0, 2)), (8, 4, 5, 6)),
        (nn.Conv3d(2, 4, 2, stride=2), (2, 4, 6, 6)),
        (nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"), (8, 6, 7)),
        (nn.Conv2d(512, 8, 3), (512, 4, 4)),  # few positions: Gram matrices
    ],
)
def test_convolutions_in_one_to_three_dimensions(convolution: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.randn(1, *shape))
    check(model, torch.randn(4, *shape), torch.randint(3, (4,)))


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(6), nn.LayerNorm((5, 6)), nn.RMSNorm(6), nn.GroupNorm(5, 5), nn.InstanceNorm1d(5, affine=True)],
)
def test_normalisation_layers(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 6), norm, nn.Tanh(), nn.Flatten(), nn.Linear(30, 3))
    check(model, torch.randn(4, 5, 6), torch.randint(3, (4,)))


class Words(nn.Module):
    """An embedding, a layer that is called twice, and a decoder that may share the embedding's table."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 12, padding_idx=0)
        self.twice = nn.Linear(12, 12)
        self.decoder = nn.Linear(12, 30, bias=False)
        if tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.decoder(self.twice(self.twice(self.embedding(words)).tanh())).transpose(1, 2)


@pytest.mark.parametrize("tied", [False, True])
def test_shared_weights(tied: bool) -> None:
    check(Words(tied), torch.randint(30, (5, 7)), torch.randint(30, (5, 7)))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bags(mode: str) -> None:
    model = nn.Sequential(nn.EmbeddingBag(9, 4, mode=mode), nn.Linear(4, 3))
    check(model, torch.randint(9, (6, 5)), torch.randint(3, (6,)))


class Scaled(nn.Module):
    """A module of somebody's own: a parameter beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.randn(6))

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values * self.scale).sin()


def test_unknown_modules_are_run_again_example_by_example() -> None:
    model = nn.Sequential(nn.Linear(4, 6), Scaled(), nn.Linear(6, 3))
    check(model, torch.randn(5, 4), torch.randint(3, (5,)))


def test_work_in_place_does_not_disturb_the_gradients() -> None:
    model = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.ELU(inplace=True), nn.Linear(6, 3)
    )
    check(model, torch.randn(5, 4), torch.randint(3, (5,)))


def test_frozen_parameters_take_no_part() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].weight.requires_grad_(False)
    check(model, torch.randn(5, 4), torch.randint(3, (5,)))
    assert not model[0].weight.requires_grad


def test_an_example_with_nan_counts_as_zero() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    inputs, targets = torch.randn(4, 1, 6, 6), torch.randint(3, (4,))
    inputs[2, 0, 1, 1] = float("nan")
    with Recording(covered(model)) as recording:
        recording.backward(F.cross_entropy(model(inputs), targets, reduction="none"))
    finite = recording.squared_norms().isfinite()
    assert finite.tolist() == [True, True, False, True]
    totals = recording.weighted_sum(finite.float())
    rest = by_loop(model, recording.parameters, inputs[finite], targets[finite], F.cross_entropy)
    for total, column in zip(totals, rest, strict=True):
        torch.testing.assert_close(total.double(), column.sum(dim=0), rtol=1e-5, atol=1e-6)


def test_gram_norms_are_not_below_the_truth_when_terms_cancel() -> None:
    """Large positions that cancel to a small gradient: the norm may be too large by round-off, never too small."""
    layer = nn.Linear(64, 64, bias=False)
    half = 100 * torch.randn(3, 4, 64)
    inputs = torch.cat([half, half + 1e-3 * torch.randn(3, 4, 64)], dim=1)
    with Recording(covered(layer)) as recording:
        output = layer(inputs)
        recording.backward((output[:, :4] - output[:, 4:]).sum(dim=(1, 2)))
    exact = (inputs[:, :4].double() - inputs[:, 4:].double()).sum(dim=1)
    assert (recording.squared_norms() >= 64 * exact.square().sum(dim=1) * (1 - 1e-6)).all()


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(6), nn.SyncBatchNorm(6)])
def test_layers_that_couple_examples_are_refused_with_their_replacement(norm: nn.Module) -> None:
    with pytest.raises(InputError, match=r"layer '1'.*GroupNorm\(2, 6\)"):
        covered(nn.Sequential(nn.Linear(4, 6), norm))


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="no trainable parameters"):
        covered(nn.Sequential(nn.Linear(4, 6).requires_grad_(False)))


def test_one_loss_for_all_examples_is_refused() -> None:
    layer = nn.Linear(2, 1)
    with Recording(covered(layer)) as recording, pytest.raises(InputError, match="reduction='none'"):
        recording.backward(layer(torch.ones(3, 2)).sum())
    assert layer.weight.requires_grad


def test_results_are_not_read_after_the_next_recording_has_taken_their_memory() -> None:
    layers = covered(nn.Linear(2, 1))
    with Recording(layers) as first:
        first.backward(layers[0].module(torch.ones(3, 2)).squeeze(1))
    with Recording(layers), pytest.raises(InputError, match="another recording"):
        first.squared_norms()


def test_memory_is_used_again_from_one_recording_to_the_next() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    layers = covered(model)
    places = []
    for _ in range(3):
        with Recording(layers) as recording:
            recording.backward(model(torch.randn(5, 3, 6, 6)).sum(dim=1))
        places.append({gradients.data_ptr() for gradients in recording.per_example() if gradients.dim() == 5})
    assert places[0] == places[1] == places[2]


def test_arguments_by_name(against_loop) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.layer = nn.EmbeddingBag(9, 4, mode="sum"), nn.Linear(4, 3)

        def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
            return self.layer(input=self.bag(ids, per_sample_weights=weights))

    model = Named()
    against_loop(
        model,
        lambda ids, weights: model(ids, weights).square().sum(dim=1),
        (torch.randint(9, (3, 5)), torch.rand(3, 5)),
    )


# Parameters that lie beside layers, layers that are used in unusual ways, and parameters that are not used at all.
class Vision(nn.Module):
    """A small vision transformer: patches, a class token, positions, a temperature."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, 5, 8))
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        return F.cross_entropy(self.head(self.layer(tokens)[:, 0]) * self.temperature, labels, reduction="none")


@pytest.mark.parametrize("expand", [True, False])
def test_parameters_next_to_layers(against_loop, expand: bool) -> None:
    model = Vision()
    against_loop(model, model, (torch.randn(4, 1, 8, 8), torch.randint(3, (4,))), expand=expand)
    assert isinstance(model.token, nn.Parameter)
    assert list(dict(model.named_parameters()))[:3] == ["token", "positions", "temperature"]


def test_parameters_next_to_layers_get_copies_and_the_layers_keep_their_rules() -> None:
    paths = {(layer.name, type(layer.rule).__name__): set(layer.wanted) for layer in layers_of(Vision())}
    assert paths["", "ExpandRule"] == {"token", "positions", "temperature"}
    assert ("layer.self_attn", "AttentionRule") in paths


def test_a_module_that_draws_random_numbers_cannot_be_run_again() -> None:
    model, batch = Vision(dropout=0.1), (torch.randn(4, 1, 8, 8), torch.randint(3, (4,)))
    with (
        pytest.raises(InputError, match=r"draws random numbers.*move positions, temperature, token"),
        Recording(covered(model, expand=False)) as recording,
    ):
        recording.backward(model(*batch))
    with Recording(covered(model)) as recording:
        recording.backward(model(*batch))
    assert recording.squared_norms().isfinite().all()


class Positions(nn.Module):
    """Positions from a table that is read once for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 6)
        self.positions = nn.Embedding(9, 6)
        self.shift = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1])[None]
        hidden = self.words(words) * self.shift(self.positions(places))
        return self.head(hidden.tanh()).sum(dim=(1, 2))


def test_what_is_computed_once_for_all_examples_counts_for_each(against_loop) -> None:
    model = Positions()
    against_loop(model, model, (torch.randint(12, (4, 7)),))


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_parametrised_weights(against_loop, kind: str) -> None:
    layer = getattr(parametrizations, kind)(nn.Linear(4, 6))
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 1)).eval()
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4),))


def test_weights_that_a_hook_computes(against_loop) -> None:
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 1))
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4),))


def test_unused_parameters_get_zero_and_are_named(against_loop) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "idle": nn.Linear(4, 1, bias=False)})
    recording = against_loop(model, lambda values: model["used"](values).squeeze(1), (torch.randn(3, 4),))
    assert recording.unused() == ["idle.weight"]


def test_one_module_at_two_places(against_loop) -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh(), nn.Sequential(layer, nn.Tanh()), nn.Linear(4, 1))
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(3, 4),))


def test_half_precision_by_autocast() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))

    def losses(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(images), labels, reduction="none")

    images, labels = torch.randn(4, 1, 6, 6), torch.randint(3, (4,))
    with Recording(covered(model)) as recording:
        recording.backward(losses(images, labels))
    expected = torch.autograd.grad(losses(images, labels).sum(), recording.parameters)
    for total, wanted in zip(recording.weighted_sum(torch.ones(4)), expected, strict=True):
        assert total.dtype == torch.float32
        torch.testing.assert_close(total, wanted, rtol=0.02, atol=0.02)


def test_double_precision(against_loop) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    against_loop(model, lambda values: model(values).squeeze(1), (torch.randn(5, 4, dtype=torch.float64),))


def test_a_part_without_gradients_does_not_count(against_loop) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def losses(values: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = model[0](values)
        return model(values + fixed).squeeze(1)

    against_loop(model, losses, (torch.randn(5, 4),))


# A norm is never below the truth, whatever an example holds.
def truth(factor: Any) -> float:
    return float(factor.dense().double().norm())


@pytest.mark.parametrize("positions", [1, 3])
def test_a_gradient_whose_square_is_too_small_for_a_float_meets_a_huge_input(positions: int) -> None:
    factor = Outer(torch.full((1, positions, 1000), 2.5e-23), torch.full((1, positions, 10), 3e18))
    assert truth(factor) > 1e-3
    assert float(factor.squared_norms().sqrt()) >= truth(factor) * (1 - 1e-6)


def test_nothing_has_norm_nothing_next_to_huge_inputs() -> None:
    for positions in (1, 3):
        factor = Outer(torch.zeros(1, positions, 4), torch.full((1, positions, 4), 3e18))
        assert factor.squared_norms().tolist() == [0.0]


def test_positions_that_are_rounded_in_the_same_way_do_not_hide_what_is_left_of_their_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    even = torch.arange(512) % 2 == 0
    right = torch.where(even, 1.0, -1.0).view(1, 512, 1)
    for _ in range(300):
        one = 1 + torch.rand((), generator=generator)
        other = one * (1 - 10 ** (-4.5 + 2 * torch.rand((), generator=generator)))
        factor = Outer(torch.where(even, one, other).view(1, 512, 1), right)
        exact = float((factor.left.double().mT @ right.double()).norm())
        assert float(factor.squared_norms().sqrt()) >= exact


@pytest.mark.parametrize("numbers", [100_000, 2_400_000])
def test_long_sums_of_equal_squares_do_not_fall_short(numbers: int) -> None:
    factor = Dense(torch.full((1, numbers), 1.2345e-3))
    exact = float(factor.gradients[0, 0].double()) * numbers**0.5
    assert float(factor.squared_norms().sqrt()) == pytest.approx(exact, rel=1e-5)


def test_rows_of_one_id_that_cancel_leave_what_the_sum_gets() -> None:
    ids, values = torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[[1e6], [0.01], [-1e6]]])
    factor = Rows(ids, values, 4)
    total = torch.zeros(4, 1, dtype=torch.float64)
    factor.add_to(total, torch.tensor([0.3], dtype=torch.float64))
    assert float(total.norm()) <= 0.3 * float(factor.squared_norms().sqrt()) * (1 + 1e-6)


def test_a_tied_table_whose_two_uses_cancel_is_not_below_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        ids = torch.randint(3, (1, 40), generator=generator)
        values = torch.randn(1, 40, 2, generator=generator)
        rows = Rows(ids, values, 3)
        left = -F.one_hot(ids, 3).float() * (1 + 1e-4 * torch.rand(1, 40, 1, generator=generator))
        factor = TiedTable(rows, Outer(left, values))
        table = torch.zeros(3, 2, dtype=torch.float64).index_add_(0, ids[0], values[0].double())
        exact = (table + left[0].double().T @ values[0].double()).norm()
        assert float(factor.squared_norms().sqrt()) >= float(exact)


@pytest.mark.parametrize("width", [1, 7, 4096, 9001])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-21, 1e-12, 1.0, 1e15])
def test_bounds_of_lengths_are_at_most_a_thousandth_above_them(width: int, scale: float) -> None:
    numbers = torch.randn(3, 4, width, generator=torch.Generator().manual_seed(0)) * scale
    numbers[0, 0] = 0.0
    numbers[0, 1, width // 2 :] *= 1e-20  # beside others these count for nothing
    exact, found = lengths_of(numbers), _lengths_at_most(numbers)
    assert found.dtype == torch.float64
    assert found[0, 0] == 0.0
    assert bool(((exact <= found) & (found <= 1.001 * exact)).all())


# Norms and sums are exact to single precision, whatever is switched on for the model.
@pytest.mark.parametrize("kind", ["linear", "sequence", "convolution"])
def test_autocast_around_the_sums_does_not_reach_them(kind: str) -> None:
    torch.manual_seed(0)
    model, shape = {
        "linear": (nn.Linear(40, 30), (3, 40)),
        "sequence": (nn.Linear(40, 30), (3, 4, 40)),
        "convolution": (nn.Conv2d(3, 5, 3), (3, 3, 8, 8)),
    }[kind]
    with Recording(covered(model)) as recording:
        recording.backward(model(torch.randn(shape)).flatten(1).square().sum(dim=1))
    weights = torch.rand(3)
    norms, sums = recording.squared_norms(), recording.weighted_sum(weights)
    totals = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in recording.parameters]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(recording.squared_norms(), norms, rtol=1e-6, atol=0)
        for one, two in zip(recording.weighted_sum(weights), sums, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-5)
        recording.add_to(totals, weights)
    for one, two in zip(totals, sums, strict=True):
        torch.testing.assert_close(one.float(), two, rtol=1e-5, atol=1e-4)


def test_products_of_lower_precision_are_for_the_model_alone() -> None:
    class Spy(Dense):
        def weighted_sum(self, weights: Tensor) -> Tensor:
            seen.append(torch.backends.cuda.matmul.fp32_precision)
            return super().weighted_sum(weights)

    seen: list[object] = []
    layer = nn.Linear(2, 1, bias=False)
    with Recording(covered(layer)) as recording:
        recording.backward(layer(torch.ones(2, 2)).squeeze(1))
    recording._settled = {key: Spy(factor.dense()) for key, factor in recording._ready().items()}
    torch.set_float32_matmul_precision("high")
    try:
        recording.weighted_sum(torch.ones(2))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == ["ieee"]


# Networks of transformers and torch as they are: each example's gradient is that of autograd for it alone.
_TAKEN = [name for name, one in ARCHITECTURES.items() if not one.refused]
_QUICK = (
    "BERT",
    "ALBERT (shared layers)",
    "GPT-2",
    "Llama",
    "ViT",
    "BERT, LoRA",
    "MLP",
    "LSTM",
    "nn.TransformerEncoder",
)
_REFUSED = [name for name, one in ARCHITECTURES.items() if one.refused]


@pytest.mark.parametrize("name", slow_but(_TAKEN, *_QUICK))
def test_gradients_of_each_example_are_those_of_autograd(against_loop, name: str) -> None:
    one = ARCHITECTURES[name]
    model = one.model().eval()  # without dropout, which autograd would draw again
    inputs, targets = one.batch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # none is zero, and no two alike
    against_loop(
        model,
        lambda *given: one.losses(model, given[:-1], given[-1]),
        (*(each[:5] for each in inputs), targets[:5]),
        relative=1e-4,
    )


@pytest.mark.parametrize("name", slow_but(_TAKEN, "GPT-2", "ViT", "MLP", "LSTM"))
def test_they_train(name: str) -> None:
    one = ARCHITECTURES[name]
    own = {"loss": one.loss} if one.task == "own" else {}
    result = one.plan().fit(one.model(), one.data(), **own)
    assert result.finished
    assert len(result.history) == 2


@pytest.mark.parametrize("name", _REFUSED)
def test_what_no_bound_holds_for_is_refused_by_name(name: str) -> None:
    one = ARCHITECTURES[name]
    own = {"loss": one.loss} if one.task == "own" else {}
    with pytest.raises(InputError, match=one.refused):
        one.plan().fit(one.model(), one.data(), **own)


# Gradients of each example in attention, recurrent layers and those of this library.


# Attention against a loop over examples, and against torch's own forward pass.
class Attending(nn.Module):
    """An embedding of the queries, attention, and a head; the keys may come from somewhere else."""

    def __init__(self, attention: nn.MultiheadAttention, kind: str, need_weights: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.attention = attention
        self.kind = kind
        self.need_weights = need_weights

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        values = self.first(values)
        if not self.attention.batch_first:
            values, memory = values.transpose(0, 1), memory.transpose(0, 1)
        key, value = {"self": (values, values), "cross": (memory, memory), "three": (memory, memory * 2)}[self.kind]
        out, weights = self.attention(
            values, key, value, attn_mask=mask, key_padding_mask=padding, need_weights=self.need_weights
        )
        if not self.attention.batch_first:
            out = out.transpose(0, 1)
        extra = 0 if weights is None else weights.square().sum(dim=(1, 2))
        return out.tanh().sum(dim=(1, 2)) + extra


def check_losses(against_loop, model: nn.Module, inputs: tuple) -> None:
    plain = model(*inputs)
    with Recording(covered(model)):
        torch.testing.assert_close(model(*inputs), plain, rtol=1e-5, atol=1e-6)
    against_loop(model, model, inputs)
    assert "forward" not in vars(model.attention)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["self", "cross", "three"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 6, "add_bias_kv": True}],
)
def test_every_kind(against_loop, batch_first: bool, kind: str, options: dict) -> None:
    if "kdim" in options and kind == "self":
        pytest.skip("keys and values of other sizes than the queries")
    attention = nn.MultiheadAttention(8, 2, batch_first=batch_first, **options)
    memory = torch.randn(3, 4, 6 if "kdim" in options else 8)
    check_losses(against_loop, Attending(attention, kind), (torch.randn(3, 5, 8), memory, None, None))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("padding", [True, False])
def test_masks(against_loop, need_weights: bool, options: dict, mask: str, padding: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    causal = torch.ones(5, 5).triu(1).bool()
    masks = {"none": None, "bool": causal, "float": torch.zeros(5, 5).masked_fill(causal, -2.5)}
    ends = torch.tensor([5, 3, 4])
    hidden = torch.arange(5) >= ends[:, None]
    model = Attending(attention, "self", need_weights)
    # the mask belongs to nobody: hidden in a closure, so that the loop does not cut it
    model_inputs = (torch.randn(3, 5, 8), torch.zeros(3, 1, 8), None, hidden if padding else None)
    chosen = masks[mask]
    plain = model.forward
    model.forward = lambda values, memory, _, padding: plain(values, memory, chosen, padding)  # type: ignore[method-assign]
    check_losses(against_loop, model, model_inputs)


def test_a_mask_for_each_example_and_head(against_loop) -> None:
    model = Attending(nn.MultiheadAttention(8, 2, batch_first=True), "self")
    masks = torch.randn(3, 2, 5, 5)
    plain = model.forward
    model.forward = lambda values, masks: plain(values, values, masks.flatten(0, 1), None)  # type: ignore[method-assign]
    check_losses(against_loop, model, (torch.randn(3, 5, 8), masks))


def test_frozen_projections_take_no_part(against_loop) -> None:
    model = Attending(nn.MultiheadAttention(8, 2, batch_first=True), "cross")
    model.attention.out_proj.requires_grad_(False)
    model.attention.in_proj_bias.requires_grad_(False)
    check_losses(against_loop, model, (torch.randn(3, 5, 8), torch.randn(3, 4, 8), None, None))


class Translator(nn.Module):
    """Torch's encoder and decoder with tied word embeddings."""

    def __init__(self, *, norm_first: bool) -> None:
        super().__init__()
        sizes = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        self.words = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **sizes), 2)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **sizes), 2)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.words.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.words(source), src_key_padding_mask=source == 0)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.decoder(self.words(target), memory, tgt_mask=causal, memory_key_padding_mask=source == 0)
        return F.cross_entropy(self.out(states).mT, target, reduction="none").sum(dim=1)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_encoder_and_decoder(against_loop, norm_first: bool, training: bool) -> None:
    torch.manual_seed(0)
    model = Translator(norm_first=norm_first).train(training)
    source = torch.randint(1, 20, (3, 6))
    source[1, 4:] = 0
    # in evaluation mode the loop would take torch's nested tensors
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        against_loop(model, model, (source, torch.randint(1, 20, (3, 5))))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_the_fast_path_is_left_as_it_was() -> None:
    with Recording(covered(nn.Linear(2, 2))):
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


def test_examples_in_dimension_one_are_refused_by_the_layer_s_name() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    with (
        pytest.raises(InputError, match=r"layer 'norm2' has 5 rows .* 3 examples; .*batch_first=True"),
        Recording(covered(model)) as recording,
    ):
        recording.backward(model(torch.randn(5, 3, 8)).sum(dim=(0, 2)))


# Public batch norm and standardised convolutions against autograd, and the refusal of joint statistics.
def model(statistics: str = "public") -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        WSConv2d(3, 6, 3, stride=2, groups=3), PublicBatchNorm(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 4)
    )
    use_public_batch(layers, torch.randn(16, 3, 7, 7), statistics=statistics)  # type: ignore[arg-type]
    return layers.double()


def test_gradients_are_those_of_each_example_alone() -> None:
    network = model()
    inputs, labels = torch.randn(5, 3, 7, 7, dtype=torch.float64), torch.randint(4, (5,))
    layers = covered(network)
    assert {type(layer.rule).__name__ for layer in layers} == {
        "StandardisedConvolutionRule",
        "PublicBatchNormRule",
        "LinearRule",
    }
    with Recording(layers) as recording:
        recording.backward(F.cross_entropy(network(inputs), labels, reduction="none"))
    totals = recording.weighted_sum(torch.ones(5, dtype=torch.float64))
    norms = []
    sums = [torch.zeros_like(total) for total in totals]
    for index in range(5):
        alone = F.cross_entropy(network(inputs[index : index + 1]), labels[index : index + 1])
        found = torch.autograd.grad(alone, recording.parameters)
        norms.append(sum(g.square().sum() for g in found))
        sums = [a + g for a, g in zip(sums, found, strict=True)]
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-10, atol=1e-14)
    for total, expected in zip(totals, sums, strict=True):
        torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-12)


def test_joint_statistics_are_refused() -> None:
    with pytest.raises(InputError, match="statistics='public'"):
        covered(model("joint"))


# Recurrent layers against a loop over examples, and against torch's own forward pass.
KINDS = [nn.LSTM, nn.GRU, nn.RNN]


class Tagger(nn.Module):
    """A recurrent layer and a linear one on its outputs and last state; sequences may be ragged."""

    def __init__(self, recurrent: nn.Module, width: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.out = nn.Linear(width, 3)

    def forward(self, values: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is not None:
            packed = pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
            states, last = self.recurrent(packed)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=values.shape[1])
        elif self.recurrent.batch_first:
            states, last = self.recurrent(values)
        else:
            states, last = self.recurrent(values.transpose(0, 1))
            states = states.transpose(0, 1)
        hidden = last[0] if isinstance(last, tuple) else last
        return self.out(states).sum(dim=(1, 2)) + hidden.sum(dim=(0, 2)) * 0.3


def check_lengths(model: nn.Module, values: Tensor, lengths: Tensor | None = None) -> None:
    plain = model(values, lengths)
    with Recording(covered(model)) as recording:
        losses = model(values, lengths)
        recording.backward(losses)
    torch.testing.assert_close(losses, plain, rtol=1e-5, atol=1e-6)
    parameters = recording.parameters
    norms, totals = [], [torch.zeros_like(p) for p in parameters]
    weights = torch.rand(len(values))
    for index in range(len(values)):
        own = None if lengths is None else lengths[index : index + 1]
        found = torch.autograd.grad(model(values[index : index + 1], own).sum(), parameters)
        norms.append(sum(g.double().square().sum() for g in found))
        totals = [total + weights[index] * g for total, g in zip(totals, found, strict=True)]
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-5, atol=1e-9)
    for total, expected in zip(recording.weighted_sum(weights), totals, strict=True):
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)
    assert "forward" not in vars(model.recurrent)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_recurrent_kind(kind: type, bidirectional: bool, layers: int, batch_first: bool) -> None:
    torch.manual_seed(1)
    recurrent = kind(5, 7, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
    check_lengths(Tagger(recurrent, 14 if bidirectional else 7), torch.randn(4, 6, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_sequences(kind: type) -> None:
    torch.manual_seed(2)
    recurrent = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    check_lengths(Tagger(recurrent, 14), torch.randn(4, 6, 5), torch.tensor([3, 6, 1, 4]))


def test_without_biases_and_with_another_nonlinearity() -> None:
    torch.manual_seed(3)
    check_lengths(Tagger(nn.RNN(5, 7, nonlinearity="relu", bias=False, batch_first=True), 7), torch.randn(4, 6, 5))
    check_lengths(Tagger(nn.GRU(5, 7, bias=False, batch_first=True), 7), torch.randn(4, 6, 5))


class Continued(nn.Module):
    """A decoder whose first states come from an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(5, 7, batch_first=True)
        self.recurrent = nn.LSTM(5, 7, batch_first=True)

    def forward(self, values: Tensor, _: Tensor | None = None) -> Tensor:
        _, states = self.encoder(values)
        outputs, (hidden, cell) = self.recurrent(values.flip(1), states)
        return outputs.sin().sum(dim=(1, 2)) + hidden[0].sum(dim=1) * cell[0].sum(dim=1)


def test_states_that_are_handed_on() -> None:
    torch.manual_seed(4)
    check_lengths(Continued(), torch.randn(4, 6, 5))


def test_the_steps_of_an_lstm_have_the_derivatives_of_autograd() -> None:
    torch.manual_seed(5)
    weight = torch.randn(12, 3, dtype=torch.float64)
    shapes = [(5, 2, 12), (2, 3), (2, 3)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *given: Steps.apply(*given, weight), inputs)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recording_leaves_nothing_behind(kind):
    """What a graph's own closures hold of it is a circle through C++, which nobody would free."""
    model = kind(3, 4, batch_first=True)
    layers = covered(model)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    def record() -> None:
        with Recording(layers) as recording:
            recording.backward(model(torch.randn(5, 6, 3))[0].sum((1, 2)))
        recording.squared_norms()

    record()
    before = alive()
    for _ in range(3):
        record()
    assert alive() == before


# What a model computes once for all examples, and examples that are joined with the dimension behind them.
_WORDS, _LENGTH, _WIDTH, _HEADS = 12, 5, 6, 2


class NormedPositions(nn.Module):
    """Positions [T] are looked up once; a layer norm and a linear layer work on them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, _WIDTH), nn.Embedding(9, _WIDTH)
        self.norm, self.shift, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        places = self.shift(self.norm(self.places(torch.arange(words.shape[1]))).tanh())
        return self.head((self.words(words) + places).tanh()).sum(dim=(1, 2))


class RelativePlaces(nn.Module):
    """Attention with a bias [T, T, H] that is looked up once, in T5's way."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(_WORDS, _WIDTH), nn.Embedding(2 * _LENGTH, _HEADS)
        self.project, self.head = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        steps = torch.arange(words.shape[1])
        bias = self.bias(steps[:, None] - steps[None, :] + _LENGTH).permute(2, 0, 1).unsqueeze(0)
        parts = self.project(self.words(words)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (_HEADS, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.mT
        scores += bias
        return self.head((scores.softmax(-1) @ value).transpose(1, 2).flatten(2)).sum(dim=(1, 2))


class Scales(nn.Module):
    """Parameters of several shapes beside layers: a scale [D], a table that is indexed, a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, 1)
        self.scale = nn.Parameter(torch.rand(_WIDTH))
        self.table = nn.Parameter(torch.randn(7, _WIDTH))
        self.matrix = nn.Parameter(torch.randn(_WIDTH, _WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.words(words) * self.scale + self.table[torch.arange(words.shape[1]) + 1]
        return self.head((hidden @ self.matrix).tanh()).sum(dim=(1, 2))


class Joined(nn.Module):
    """Layers between which examples and words are one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(_WORDS, _WIDTH), nn.Parameter(torch.randn(1, _WIDTH))
        self.norm, self.one, self.two = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.norm(self.words(words).flatten(0, 1)) + self.bias
        return self.two(self.one(hidden).tanh()).view(words.shape).square().sum(dim=1)


class Turned(Joined):
    """The same, but words come before examples."""

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.norm(self.words(words).transpose(0, 1).flatten(0, 1)) + self.bias
        return self.two(self.one(hidden).tanh()).view(words.T.shape).square().sum(dim=0)


@pytest.mark.parametrize("kind", [NormedPositions, RelativePlaces, Scales, Joined])
def test_what_examples_share_counts_for_each(against_loop, kind) -> None:
    model = kind()
    for examples in (1, 4):
        against_loop(model, model, (torch.randint(_WORDS, (examples, _LENGTH)),))


@pytest.mark.parametrize("kind", [NormedPositions, RelativePlaces, Scales, Joined])
def test_as_many_places_as_examples_change_nothing_once_the_layers_were_seen(kind) -> None:
    torch.manual_seed(0)
    model = kind()
    words = torch.randint(_WORDS, (_LENGTH, _LENGTH))
    layers = self_check(model, model, words).layers
    with Recording(layers, examples=_LENGTH) as recording:
        recording.backward(model(words))
    together = recording.per_example()
    for index in range(_LENGTH):
        expected = torch.autograd.grad(model(words[index : index + 1]).sum(), recording.parameters)
        for found, wanted in zip(together, expected, strict=True):
            torch.testing.assert_close(found[index].view_as(wanted), wanted, rtol=1e-4, atol=1e-5)


def test_rows_in_another_order_than_the_examples_are_refused() -> None:
    torch.manual_seed(0)
    model = Turned()
    with pytest.raises(InputError, match=r"examples of a batch are coupled|differs from autograd"):
        self_check(model, model, torch.randint(_WORDS, (8, _LENGTH)))


def test_another_number_of_rows_than_before_is_refused() -> None:
    model = Joined()
    layers = covered(model)
    for length in (_LENGTH, _LENGTH + 1):
        words = torch.randint(_WORDS, (2, length))
        with Recording(layers, examples=2) as recording:
            if length == _LENGTH:
                recording.backward(model(words))
                continue
            with pytest.raises(InputError, match=r"6 rows in dimension 0 for each example, and 5"):
                model(words)


class Constant(nn.Module):
    """Waves [T, D], which no example has a part in, beside a scale [D]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, 1)
        self.scale = nn.Parameter(torch.rand(_WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        waves = torch.linspace(0, 3, words.shape[1] * _WIDTH).sin().view(-1, _WIDTH)
        return self.head(self.words(words) + waves * self.scale).square().sum(dim=(1, 2))


def test_a_constant_with_as_many_rows_as_examples_is_never_taken_for_them(against_loop) -> None:
    model, length = Constant(), 11  # the self-check tries no batch of eleven
    layers = self_check(model, model, torch.randint(_WORDS, (8, length))).layers
    words = torch.randint(_WORDS, (length, length))
    with (
        pytest.raises(InputError, match=f"a constant of the model has {length} rows"),
        Recording(layers, examples=length) as recording,
    ):
        recording.backward(model(words))
    against_loop(model, model, (words[:-1],))


class Tied(nn.Module):
    """A layer's bias has a second name in the module around it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.bias = self.head.bias

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(values), labels, reduction="none")


def test_a_parameter_with_a_second_name_counts_once(against_loop) -> None:
    model = Tied()
    against_loop(model, model, (torch.randn(4, 4), torch.randint(3, (4,))))


def test_a_layers_parameter_that_the_module_around_it_uses_too_is_refused() -> None:
    class Twice(Tied):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(self.head(values) + self.bias, labels, reduction="none")

    model = Twice()
    with pytest.raises(InputError, match="used outside its layer's forward pass"):
        self_check(model, lambda batch: model(*batch), (torch.randn(4, 4), torch.randint(3, (4,))))
