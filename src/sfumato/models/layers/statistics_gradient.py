"""The gradient that runs through the statistics of public batch norm, computed from what was released already.

A private example's loss depends on the weights directly, and through the public statistics that normalise it. Private
training clips and noises the direct gradients. The rest is a linear function of the gradients of the layers' scales and
shifts, the same for every example: with the scale s and r = 1 / sqrt(variance + eps),

    d loss / d mean = -s r (d loss / d shift),     d loss / d variance = -1/2 s r^2 (d loss / d scale).

So one backward pass of the public batch turns the noisy gradients of scales and shifts into the missing part of the
noisy sum. It reads nothing but weights, public inputs and the noisy gradient: post-processing, which costs no privacy
under any unit or adjacency and leaves the sensitivity (the clip norm) as it is. With flat clipping the result is the
noisy sum of the clip-weighted exact gradients. docs/explanation/public-batch-norm.md derives it.

>>> _ = torch.manual_seed(0)  # a tiny weight would have a large gradient, and a large rounding error
>>> model = nn.Sequential(nn.Linear(1, 1, bias=False), PublicBatchNorm(1, eps=0.0))
>>> handle = use_public_batch(model, torch.tensor([[1.0], [5.0]]))
>>> model(torch.tensor([[4.0]])).sum().backward()
>>> before = float(model[0].weight.grad)
>>> add_statistics_gradient(model)
>>> before != 0, abs(float(model[0].weight.grad)) < 1e-6      # a scaled weight gives the same output
(True, True)
"""

import torch
from torch import nn

from sfumato._check import InputError
from sfumato.models.layers.public_batch_norm import (
    PublicBatchNorm,
    public_inputs_of,
    traced_statistics,
    use_public_batch,
)

__all__ = ["PublicBatchNorm", "add_statistics_gradient", "use_public_batch"]


def add_statistics_gradient(model: nn.Module) -> None:
    """Add what runs through the public statistics to each parameter's `.grad`, in place.

    Call it between the noise and the optimizer's step, on the weights at which the gradient was taken. A model without
    public statistics is left as it is. So is a layer whose scale and shift are frozen or have no gradient: nothing is
    known of its part.

    Args:
        model: whose `.grad` are the noisy (mean or sum of) gradients.

    Raises:
        InputError: the model has public batch norm and no public batch.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, PublicBatchNorm)]
    if all(_gradient(layer.weight) is None and _gradient(layer.bias) is None for layer in layers):
        return
    if any(layer.couples_examples for layer in layers):
        raise InputError("joint statistics have their gradient already; use statistics='public' for private training")
    public = public_inputs_of(model)
    if public is None:
        raise InputError(
            "this model has public batch norm and no public batch; give it its public inputs with "
            "models.use_public_batch(model, public_inputs)"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        total = torch.zeros((), device=public[0].device)
        for layer, (mean, variance) in zip(layers, traced_statistics(model, public), strict=True):
            if layer.weight is None or not mean.requires_grad:  # nothing before this layer is trained
                continue
            inverse = torch.rsqrt(variance.detach() + layer.eps)
            scale, of_scale, of_shift = layer.weight.detach(), _gradient(layer.weight), _gradient(layer.bias)
            if of_shift is not None:
                total = total - (mean * (scale * inverse * of_shift)).sum()
            if of_scale is not None:
                total = total - 0.5 * (variance * (scale * inverse**2 * of_scale)).sum()
        if not total.requires_grad:
            return
        found = torch.autograd.grad(total, trained, allow_unused=True)
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _gradient(parameter: nn.Parameter | None) -> torch.Tensor | None:
    return None if parameter is None else parameter.grad
