"""A point of the graph at which the gradient of a layer's output is seen, without a change to the layer.

It is the identity. Its second input, the anchor, is what the backward pass is asked to reach: then every such point
is passed, and nothing else is computed than what lies between the loss and these points. Where the layer's input
needs no gradient, the backward pass ends here.
"""

from collections.abc import Callable

import torch
from torch import Tensor


class ShowGradient(torch.autograd.Function):
    """Identity; hands the gradient to `see`."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, output: Tensor, anchor: Tensor, see: Callable) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.see = see  # type: ignore[attr-defined]
        return output.detach()  # the same memory and no view, so that the next layer may work in place

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.see(gradient)  # type: ignore[attr-defined]
        return (gradient if ctx.needs_input_grad[0] else None), None, None  # type: ignore[attr-defined]
