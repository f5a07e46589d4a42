"""The loop that the engine is held to: every example alone, by ordinary autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato.per_example import Recording, covered


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
