"""The projection onto what labels could have given, against all corners written out."""

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import nn
from torch.nn import functional

from sfumato.central.labeldp_pro import LabelGradients, nearest_in_span, nearest_mean
from sfumato.clipping import ConstantClipNorm, PerLayerClipNorm
from slow import slow_but

ROWS, CLASSES, FEATURES = 3, 3, 4


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def written_out(model, inputs, bound=None, clip_norm=None) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    """By autograd alone: clipped gradients [rows, classes, size], what clipping leaves of them, and the groups."""
    parameters = list(model.parameters())
    bound = bound or ConstantClipNorm(clip_norm=None)
    groups = bound.groups([name for name, _ in model.named_parameters()])
    gradients, weights = [], []
    for row, label in itertools.product(range(len(inputs)), range(CLASSES)):
        loss = functional.cross_entropy(model(inputs[row : row + 1]), torch.tensor([label]))
        parts = torch.autograd.grad(loss, parameters)
        norms = torch.stack([torch.cat([parts[i].flatten() for i in group]).norm() for group in groups])
        weight = bound.weights(norms[:, None], clip_norm)[:, 0]
        scaled = list(parts)
        for group, factor in zip(groups, weight, strict=True):
            for i in group:
                scaled[i] = parts[i] * factor
        gradients.append(torch.cat([part.flatten() for part in scaled]))
        weights.append(weight)
    shape = (len(inputs), CLASSES)
    return torch.stack(gradients).view(*shape, -1), torch.stack(weights, 1).view(len(groups), *shape), groups


def maps_of(model, inputs, weights=None, groups=None) -> LabelGradients:
    parameters = list(model.parameters())
    weights = torch.ones(1, len(inputs), CLASSES) if weights is None else weights
    groups = [list(range(len(parameters)))] if groups is None else groups
    return LabelGradients(model(inputs)[None], parameters, groups, weights)


def flat(parts) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


def like(vector, model) -> list[torch.Tensor]:
    sizes = [parameter.numel() for parameter in model.parameters()]
    return [part.view(p.shape) for part, p in zip(vector.split(sizes), model.parameters(), strict=True)]


def nearest_by_weights(corners: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The nearest point to a target among all mixtures of corners [n, size]: least squares with weights >= 0 that add
    up to 1, which a heavy extra row asks for."""
    heavy = 1e4
    matrix = np.vstack([corners.T, np.full(len(corners), heavy)])
    weights, _ = optimize.nnls(matrix, np.append(target, heavy), maxiter=10_000)
    return corners.T @ (weights / weights.sum())


@pytest.mark.parametrize("bound", [None, ConstantClipNorm(clip_norm=0.3), PerLayerClipNorm(clip_norm=0.3, shares=None)])
def test_sums_and_slopes_are_those_of_gradients_that_were_written_out(bound, model, inputs):
    gradients, weights, groups = written_out(model, inputs, bound, 0.3 if bound else None)
    maps = maps_of(model, inputs, weights, groups)
    shares = torch.rand(ROWS, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(flat(maps.mixed(shares)), (shares[..., None] * gradients).sum((0, 1)))
    direction = torch.randn(gradients.shape[2], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(maps.slopes(like(direction, model)), gradients @ direction)
    if bound is not None:
        assert (gradients.norm(dim=2) <= 0.3).all()
        assert gradients.norm(dim=2).max() > 0.29


@pytest.mark.parametrize("size", slow_but([0.01, 0.3, 10.0], 0.3))
def test_the_nearest_mean_is_that_of_all_labellings_written_out(size, model, inputs):
    """All 27 ways to label three rows; a target within the hull or near it, and one far away."""
    gradients, weights, groups = written_out(model, inputs, ConstantClipNorm(clip_norm=0.3), 0.3)
    labellings = itertools.product(range(CLASSES), repeat=ROWS)
    corners = torch.stack([gradients[range(ROWS), list(labels)].mean(0) for labels in labellings])
    noise = torch.randn(corners.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    target = corners.mean(0) + size * noise / noise.norm()
    expected = torch.from_numpy(nearest_by_weights(corners.numpy(), target.numpy()))

    def blocks():
        for row in range(ROWS):
            yield maps_of(model, inputs[row : row + 1], weights[:, row : row + 1], groups)

    goal = like(target, model)
    far = (expected - target).norm()
    for steps in (1, 5, 2000):
        found = nearest_mean(goal, blocks, rows=ROWS, steps=steps, tolerance=1e-9)
        distance = (flat(found.nearest) - expected).norm()
        assert distance <= found.error + 1e-5 * far  # the bound on the error holds, whenever the search ends
    assert distance < 0.02 * (target - expected).norm() + 1e-3


def test_the_search_ends_where_the_bound_on_its_error_is_small_enough(model, inputs):
    goal = [torch.ones_like(parameter) for parameter in model.parameters()]
    away = flat(goal).norm()
    for tolerance in (0.5, 0.05):
        found = nearest_mean(goal, lambda: iter([maps_of(model, inputs)]), rows=ROWS, steps=500, tolerance=tolerance)
        assert found.error <= tolerance * away


def test_outputs_beyond_the_classes_are_no_label(model, inputs):
    """A model may have more logits than the data have classes: they take part in what it predicts only."""
    maps = LabelGradients(
        model(inputs)[None], list(model.parameters()), [list(range(4))], torch.ones(1, ROWS, CLASSES - 1)
    )
    gradients, _, _ = written_out(model, inputs)
    shares = functional.one_hot(torch.tensor([0, 1, 1])).double()
    torch.testing.assert_close(flat(maps.mixed(shares)), gradients[range(ROWS), [0, 1, 1]].sum(0))
    torch.testing.assert_close(maps.predicted.sum(1), torch.ones(ROWS, dtype=torch.float64))


def test_copies_of_a_row_count_as_the_mean_of_their_losses(model, inputs):
    parameters = list(model.parameters())
    other = inputs + 0.5
    maps = LabelGradients(
        torch.stack([model(inputs), model(other)]), parameters, [[0, 1, 2, 3]], torch.ones(1, ROWS, CLASSES)
    )
    labels = torch.tensor([2, 0, 1])
    losses = [functional.cross_entropy(model(each), labels, reduction="sum") for each in (inputs, other)]
    expected = flat(torch.autograd.grad(torch.stack(losses).mean(), parameters))
    shares = functional.one_hot(labels, CLASSES).double()
    torch.testing.assert_close(flat(maps.mixed(shares)), expected)
    torch.testing.assert_close((maps.slopes(like(expected, model)) * shares).sum(), expected @ expected)


def test_the_nearest_combination_is_that_of_least_squares_on_gradients_that_were_written_out(model, inputs):
    gradients, _, _ = written_out(model, inputs)
    corners = gradients.flatten(0, 1)  # [rows · classes, size]: nine vectors, of which some depend on others
    noise = torch.randn(corners.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    basis = torch.linalg.svd(corners.T, full_matrices=False)
    basis = basis.U[:, basis.S / basis.S[0] > 1e-9]
    assert basis.shape[1] < len(corners)

    def blocks():
        yield maps_of(model, inputs[:2])
        yield maps_of(model, inputs[2:])

    found = flat(nearest_in_span(like(noise, model), blocks, steps=100, tolerance=1e-10))
    torch.testing.assert_close(found, basis @ (basis.T @ noise), rtol=1e-6, atol=1e-6)
    early = flat(nearest_in_span(like(noise, model), blocks, steps=2, tolerance=1e-10))
    assert 0.1 < early.norm() / found.norm() < 1
    torch.testing.assert_close(basis @ (basis.T @ early), early)  # ended early, it lies in the span all the same
