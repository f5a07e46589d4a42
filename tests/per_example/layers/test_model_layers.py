"""Public batch norm and standardised convolutions against autograd, and the refusal of joint statistics."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.models import PublicBatchNorm, WSConv2d, use_public_batch
from sfumato.per_example import Recording, covered


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
