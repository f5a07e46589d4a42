"""LoRA: a frozen layer beside a product of two small ones, which are trained.

A convolution or dense layer W becomes x ↦ W x + (alpha / rank) B A x: A shrinks to `rank` channels with the layer's own
kernel, stride and padding, B is 1x1 and begins with zeros, so the function is unchanged at the start. Both are plain
layers without bias, which clipping, per-client training and per-example gradients see as such; W, which keeps its
names, gets no gradient and no noise.

A layer of Cout x Cin/g x k x k has rank·g·(Cin/g · k² + Cout/g) trained numbers instead of Cout · Cin/g · k².

References:
    Hu et al.: LoRA: Low-Rank Adaptation of Large Language Models (2022), arXiv 2106.09685, section 4.1.

>>> layer = nn.Conv2d(16, 32, 3, padding=1)
>>> adapted, x = LoRAConv2d(layer, rank=2), torch.randn(1, 16, 5, 5)
>>> torch.equal(adapted(x), layer(x)), [tuple(p.shape) for p in adapted.parameters() if p.requires_grad]
(True, [(2, 16, 3, 3), (32, 2, 1, 1)])
"""

from typing import TypeVar

import torch
from torch import Tensor, nn

AnyLayer = TypeVar("AnyLayer", nn.Conv2d, nn.Linear)


class LoRAConv2d(nn.Conv2d):
    """A frozen convolution with an adapter; its weight and bias are those of the layer itself, not copies.

    Args:
        layer: the convolution; its parameters stop requiring a gradient.
        rank: channels of A for each group, >= 1.
        alpha: the adapter's scale times the rank; None for the rank, which makes the scale 1.
        generator: source of A; None takes torch's global generator.
    """

    def __init__(
        self, layer: nn.Conv2d, *, rank: int, alpha: float | None = None, generator: torch.Generator | None = None
    ) -> None:
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        super().__init__(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,  # pyright: ignore[reportArgumentType]
            layer.stride,  # pyright: ignore[reportArgumentType]
            layer.padding,  # pyright: ignore[reportArgumentType]
            layer.dilation,  # pyright: ignore[reportArgumentType]
            layer.groups,
            layer.bias is not None,
            layer.padding_mode,  # pyright: ignore[reportArgumentType]
            device="meta",
        )
        self.weight, self.bias = layer.weight, layer.bias
        narrow = rank * layer.groups
        self.lora_a = nn.Conv2d(
            layer.in_channels,
            narrow,
            layer.kernel_size,  # pyright: ignore[reportArgumentType]
            layer.stride,  # pyright: ignore[reportArgumentType]
            layer.padding,  # pyright: ignore[reportArgumentType]
            layer.dilation,  # pyright: ignore[reportArgumentType]
            layer.groups,
            bias=False,
            padding_mode=layer.padding_mode,  # pyright: ignore[reportArgumentType]
            **like,
        )
        self.lora_b = nn.Conv2d(narrow, layer.out_channels, 1, groups=layer.groups, bias=False, **like)
        self.scale = 1.0 if alpha is None else alpha / rank
        _begin(self, self.lora_a, self.lora_b, generator)
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """Map float [n, Cin, H, W] to float [n, Cout, H', W']."""
        return super().forward(input) + self.scale * self.lora_b(self.lora_a(input))

    def merged(self) -> nn.Conv2d:
        """A plain convolution that computes the same."""
        groups, (kernel_a, kernel_b) = self.groups, (self.lora_a.weight, self.lora_b.weight)
        shrink = kernel_a.detach().view(groups, -1, *kernel_a.shape[1:])  # [g, rank, Cin/g, k, k]
        grow = kernel_b.detach().view(groups, -1, kernel_b.shape[1])  # [g, Cout/g, rank]
        added = torch.einsum("gor,gr...->go...", grow, shrink).reshape(self.weight.shape)
        layer = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            self.kernel_size,  # pyright: ignore[reportArgumentType]
            self.stride,  # pyright: ignore[reportArgumentType]
            self.padding,  # pyright: ignore[reportArgumentType]
            self.dilation,  # pyright: ignore[reportArgumentType]
            groups,
            self.bias is not None,
            self.padding_mode,  # pyright: ignore[reportArgumentType]
            device="meta",
        )
        return _filled(layer, self, added)


class LoRALinear(nn.Linear):
    """A frozen dense layer with an adapter; arguments as `LoRAConv2d`."""

    def __init__(
        self, layer: nn.Linear, *, rank: int, alpha: float | None = None, generator: torch.Generator | None = None
    ) -> None:
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_a = nn.Linear(layer.in_features, rank, bias=False, **like)
        self.lora_b = nn.Linear(rank, layer.out_features, bias=False, **like)
        self.scale = 1.0 if alpha is None else alpha / rank
        _begin(self, self.lora_a, self.lora_b, generator)
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """Map float [..., in_features] to float [..., out_features]."""
        return super().forward(input) + self.scale * self.lora_b(self.lora_a(input))

    def merged(self) -> nn.Linear:
        """A plain dense layer that computes the same."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        return _filled(layer, self, self.lora_b.weight.detach() @ self.lora_a.weight.detach())


def _begin(layer: nn.Module, shrink: nn.Module, grow: nn.Module, generator: torch.Generator | None) -> None:
    """A drawn, B zero, the layer's own weights frozen."""
    for parameter in layer.parameters(recurse=False):
        parameter.requires_grad_(False)
    # Uniform with variance 1 / inputs: A keeps the size of what it sees, whatever the rank.
    nn.init.kaiming_uniform_(shrink.get_parameter("weight"), nonlinearity="linear", generator=generator)
    nn.init.zeros_(grow.get_parameter("weight"))


def _filled(layer: AnyLayer, adapted: "LoRAConv2d | LoRALinear", added: Tensor) -> AnyLayer:
    """A layer without values gets those of an adapted one, with what the adapter adds."""
    layer.weight = nn.Parameter(adapted.weight.detach() + adapted.scale * added)
    if adapted.bias is not None:
        layer.bias = nn.Parameter(adapted.bias.detach().clone())
    return layer.train(adapted.training)
