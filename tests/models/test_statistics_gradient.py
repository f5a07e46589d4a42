"""The gradient through public statistics: exact, from the released gradient alone, refused where not known."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato.per_example import Recording, covered


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 4, 3),
        models.PublicBatchNorm(4),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, stride=2),
        models.PublicBatchNorm(3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 6),
        models.PublicBatchNorm(6),
        nn.Tanh(),
        nn.Linear(6, 5),
    ]
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, models.PublicBatchNorm):
                layer.weight.uniform_(-1.5, 1.5)
                layer.bias.normal_()
    return model


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    public = torch.randn(16, 1, 8, 8, generator=source, dtype=torch.float64)
    private = 2 * torch.randn(5, 1, 8, 8, generator=source, dtype=torch.float64) + 1
    return public, private, torch.tensor([0, 1, 2, 3, 4])


def with_statistics_in_the_graph(model: nn.Sequential, public: torch.Tensor, private: torch.Tensor) -> torch.Tensor:
    """Both batches side by side through plain operations: the statistics are functions of the weights."""
    for layer in model:
        if isinstance(layer, models.PublicBatchNorm):
            over = [0, *range(2, public.ndim)]
            shape = (1, -1, *[1] * (public.ndim - 2))
            variance, mean = torch.var_mean(public, over, correction=0, keepdim=True)
            scale, shift = layer.weight.view(shape), layer.bias.view(shape)
            public, private = (
                scale * (each - mean) / torch.sqrt(variance + layer.eps) + shift for each in (public, private)
            )
        else:
            public, private = layer(public), layer(private)
    return private


def test_clip_weighted_sums_become_those_of_the_exact_gradients():
    model, (public, private, targets) = network(), data()
    models.use_public_batch(model, public)
    weights = torch.tensor([0.1, 0.9, 0.0, 1.0, 0.4], dtype=torch.float64)
    with Recording(covered(model)) as recording:
        recording.backward(functional.cross_entropy(model(private), targets, reduction="none"))
    for parameter, total in zip(recording.parameters, recording.weighted_sum(weights), strict=True):
        parameter.grad = total
    direct = model[0].weight.grad.clone()
    models.add_statistics_gradient(model)
    logits = with_statistics_in_the_graph(model, public, private)
    loss = (weights * functional.cross_entropy(logits, targets, reduction="none")).sum()
    for parameter, exact in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert torch.allclose(parameter.grad, exact, rtol=1e-8, atol=1e-10)
    assert (model[0].weight.grad - direct).norm() > 0.1 * direct.norm()


def test_the_exact_gradient_leaves_scaled_kernels_and_shifted_biases_alone():
    model, (public, private, targets) = network(), data()
    for layer in model:
        if isinstance(layer, models.PublicBatchNorm):
            layer.eps = 0.0
    models.use_public_batch(model, public)
    functional.cross_entropy(model(private), targets).backward()
    models.add_statistics_gradient(model)
    for layer in (model[0], model[3], model[7]):
        along = (layer.weight.grad * layer.weight).flatten(1).sum(1)
        assert along.abs().max() < 1e-12 * layer.weight.grad.norm() * layer.weight.norm() + 1e-14
        assert layer.bias.grad.abs().max() < 1e-12


def test_noise_is_mapped_as_the_gradient_is():
    """The step is linear, so it commutes with noise: what is added depends on the released gradient alone."""
    model, (public, _, _) = network(), data()
    models.use_public_batch(model, public)

    def added(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        models.add_statistics_gradient(model)
        return [parameter.grad - gradient for parameter, gradient in zip(model.parameters(), gradients, strict=True)]

    one, two = ([torch.randn_like(parameter) for parameter in model.parameters()] for _ in range(2))
    both = added([a + 2 * b for a, b in zip(one, two)])
    for total, a, b in zip(both, added(one), added(two), strict=True):
        assert torch.allclose(total, a + 2 * b, atol=1e-10)


def test_models_without_public_statistics_and_without_gradients_are_left_alone():
    plain = models.lenet5(normalisation="layer")
    plain(torch.randn(2, 1, 28, 28)).sum().backward()
    before = [parameter.grad.clone() for parameter in plain.parameters()]
    models.add_statistics_gradient(plain)
    assert all(torch.equal(parameter.grad, kept) for parameter, kept in zip(plain.parameters(), before, strict=True))
    untouched, (public, _, _) = network(), data()
    models.use_public_batch(untouched, public)
    models.add_statistics_gradient(untouched)
    assert all(parameter.grad is None for parameter in untouched.parameters())


def test_frozen_layers_get_no_gradient():
    model, (public, private, targets) = network(), data()
    models.use_public_batch(model, public)
    model[0].requires_grad_(False)
    functional.cross_entropy(model(private), targets).backward()
    models.add_statistics_gradient(model)
    assert model[0].weight.grad is None
    assert model[3].weight.grad is not None


def test_a_missing_public_batch_and_joint_statistics_are_refused():
    model, (public, private, targets) = network(), data()
    models.use_public_batch(model, public).remove()
    functional.cross_entropy(model(private), targets).backward()
    with pytest.raises(InputError, match="no public batch; give it"):
        models.add_statistics_gradient(model)
    models.use_public_batch(model, public, statistics="joint")
    with pytest.raises(InputError, match="joint statistics"):
        models.add_statistics_gradient(model)
