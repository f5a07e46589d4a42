"""The engine against a loop: every example alone, by ordinary autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.per_example import Recording, covered


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
