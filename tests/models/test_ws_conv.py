"""Weight standardisation: what the kernel looks like, and the way back for gradients of single examples."""

import pytest
import torch

from sfumato import models
from sfumato._check import InputError


def test_each_kernel_has_mean_zero_and_length_one():
    layer = models.WSConv2d(4, 6, 3, eps=0.0)
    kernels = layer.standardised().flatten(1)
    assert torch.allclose(kernels.mean(1), torch.zeros(6), atol=1e-6)
    assert torch.allclose(kernels.norm(dim=1), torch.ones(6), atol=1e-5)


def test_the_output_is_a_convolution_with_the_standardised_kernel():
    layer = models.WSConv2d(4, 6, 3, stride=2, padding=1, groups=2)
    images = torch.randn(2, 4, 7, 7)
    plain = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    plain.weight.data, plain.bias.data = layer.standardised(), layer.bias
    assert torch.allclose(layer(images), plain(images))


@pytest.mark.parametrize("groups", [1, 2])
def test_pulling_back_gives_the_gradient_of_the_raw_weight_for_each_example(groups):
    layer = models.WSConv2d(4, 6, 3, groups=groups, bias=False).double()
    images = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    raw, standardised = [], []
    for image in images:
        raw += torch.autograd.grad(layer(image[None]).square().sum(), layer.weight)
        weight = layer.standardised().detach().requires_grad_()
        output = torch.nn.functional.conv2d(image[None], weight, groups=groups)
        standardised += torch.autograd.grad(output.square().sum(), weight)
    assert torch.allclose(layer.pull_back(torch.stack(standardised)), torch.stack(raw), rtol=1e-10, atol=1e-12)


def test_a_constant_added_to_a_kernel_changes_nothing():
    layer = models.WSConv2d(3, 2, 3).double()  # in single precision, round-off of the mean exceeds 1e-5 at times
    images = torch.randn(1, 3, 5, 5, dtype=torch.float64)
    before = layer(images)
    with torch.no_grad():
        layer.weight += 5.0
    assert torch.allclose(layer(images), before, rtol=1e-10, atol=1e-12)


def test_a_kernel_of_one_number_and_a_negative_eps_are_refused():
    with pytest.raises(InputError, match=r"use nn\.Conv2d"):
        models.WSConv2d(1, 8, 1)
    with pytest.raises(InputError, match="eps must be >= 0"):
        models.WSConv2d(1, 8, 3, eps=-1.0)
