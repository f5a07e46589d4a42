"""Norms and sums are exact to single precision, whatever is switched on for the model."""

import pytest
import torch
from torch import Tensor, nn

from sfumato.per_example import Recording, covered
from sfumato.per_example.factor import Dense


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
