"""Adapters, small trained parts for a network whose own weights stay: LoRA in its layers, a projection after it.

Both are in place or around the user's module, are trained like any other layer, and are saved with the model. What is
to be trained is still said by `trainable`: "lora", "projection", or "lora+last" (see `models.freeze`).

**LoRA:** a frozen layer, plus a product of two small ones that are trained. A convolution or dense layer W becomes x ↦
W x + (alpha / rank) B A x: A shrinks to `rank` channels with the layer's own kernel, stride and padding, B is 1x1 and
begins with zeros, so the function is unchanged at the start. Both are plain layers without bias, which clipping,
per-client training and per-example gradients see as such; W, which keeps its names, gets no gradient and no noise.

A layer of Cout x Cin/g x k x k has rank·g·(Cin/g · k² + Cout/g) trained numbers instead of Cout · Cin/g · k².

>>> layer = nn.Conv2d(16, 32, 3, padding=1)
>>> adapted, x = LoRAConv2d(layer, rank=2), torch.randn(1, 16, 5, 5)
>>> torch.equal(adapted(x), layer(x)), [tuple(p.shape) for p in adapted.parameters() if p.requires_grad]
(True, [(2, 16, 3, 3), (32, 2, 1, 1)])

**In a network:**

>>> from sfumato.models import lenet, trainable_parameters
>>> model = lenet()
>>> add_lora(model, rank=4, layers="conv2")
['conv2']
>>> [name for name, _ in trainable_parameters(model, "lora")]
['conv2.lora_a.weight', 'conv2.lora_b.weight']
>>> [name for name, _ in merge_lora(model).named_parameters()] == [name for name, _ in lenet().named_parameters()]
True

References:
    Hu et al.: LoRA: Low-Rank Adaptation of Large Language Models (2022), arXiv 2106.09685, section 4.1.
"""

import copy
import re
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from sfumato._check import InputError, positive, whole
from sfumato.models.check import refuse_no_values
from sfumato.models.layers import he
from sfumato.models.trainable import Stage, renamed, stages_of
from sfumato.models.weights import some

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


_SHOWN = 20  # layers in a message


def add_lora(
    model: nn.Module,
    *,
    rank: int,
    layers: str | None = None,
    alpha: float | None = None,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Give convolutions and dense layers of a model an adapter of low rank, in place; the function stays the same.

    Load published weights before: adapters are added to them, and names of the layers' own weights stay. The weights of
    adapted layers stop requiring a gradient; all others keep their flag, see `freeze`.

    Args:
        model: any torch module; its convolutions (2d) and dense layers are replaced.
        rank: of the change that a layer can learn, >= 1.
        layers: a regular expression that may match anywhere in a layer's name, as in "features.1[0-2]"; None for every
            layer that a change of this rank is smaller than.
        alpha: the adapter's scale times the rank, > 0; None for a scale of 1.
        generator: source of the adapters' first weights; None takes torch's global generator.

    Returns:
        the names of the adapted layers.

    Raises:
        InputError: the rank is out of range or not below that of a layer that was named, a layer is adapted already,
            or there is none to adapt; the model is then unchanged.
    """
    whole(rank=rank)
    if alpha is not None:
        positive(alpha=alpha)
    refuse_no_values(model)
    chosen = _chosen(model, rank, layers)
    for name, layer in chosen.items():
        kind = LoRAConv2d if isinstance(layer, nn.Conv2d) else LoRALinear
        _put(model, name, kind(layer, rank=rank, alpha=alpha, generator=generator))  # pyright: ignore[reportArgumentType]
    return list(chosen)


def merge_lora(model: nn.Module) -> nn.Module:
    """A copy of a model with plain layers in the place of adapted ones, which computes the same to round-off.

    Args:
        model: left as it is.

    Returns:
        a deep copy, whose tensors have the names and shapes of the model before `add_lora`.

    Raises:
        InputError: nothing is adapted.
    """
    merged = copy.deepcopy(model)
    adapted = {name: layer for name, layer in merged.named_modules() if isinstance(layer, LoRAConv2d | LoRALinear)}
    if not adapted:
        raise InputError("the model has no adapters to merge; add_lora puts them in")
    if "" in adapted:
        return adapted[""].merged()
    for name, layer in adapted.items():
        _put(merged, name, layer.merged())
    return merged


class Projected(nn.Module):
    """A network and a projection of what it gives; see `add_projection`.

    Attributes:
        backbone: the network.
        projection: the new layers after it.
    """

    def __init__(self, backbone: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projection = backbone, projection

    def forward(self, inputs: Tensor) -> Tensor:
        """Map what the backbone takes to float [n, dim]."""
        return self.projection(self.backbone(inputs))

    def stages(self) -> tuple[Stage, ...]:
        """Those of the backbone, and the projection."""
        return (*renamed(stages_of(self.backbone), "backbone"), Stage("projection", ("projection",)))


def add_projection(
    backbone: nn.Module,
    width: int,
    dim: int,
    *,
    hidden: int | None = None,
    generator: torch.Generator | None = None,
) -> Projected:
    """Put a new dense layer, or two with ReLU between them, after a network whose features stay as they are.

    Args:
        backbone: gives float [n, width]; it is used as it is, not copied.
        width: of what it gives, >= 1.
        dim: dimensions of the projection, >= 1.
        hidden: of the layer in between, >= 1; None for a single layer.
        generator: source of the first weights (Glorot, zero biases); None takes torch's global generator.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    whole(width=width, dim=dim)
    if hidden is None:
        projection: nn.Module = nn.Linear(width, dim)
    else:
        whole(hidden=hidden)
        projection = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, dim))
    he(projection, generator)
    return Projected(backbone, projection)


def _chosen(model: nn.Module, rank: int, layers: str | None) -> dict[str, nn.Conv2d | nn.Linear]:
    """The layers to adapt, by name."""
    found = {name: each for name, each in model.named_modules() if isinstance(each, nn.Conv2d | nn.Linear) and name}
    adapted = [name for name, each in found.items() if isinstance(each, LoRAConv2d | LoRALinear)]
    inside = tuple(f"{name}.lora_" for name in adapted)
    found = {name: each for name, each in found.items() if not name.startswith(inside)}
    known = some([*found], _SHOWN) or "none"
    larger = {name: each for name, each in found.items() if name not in adapted and rank < _rank(each)}
    if layers is None:
        found = larger
    else:
        matches = _pattern(layers)
        found = {name: each for name, each in found.items() if matches(name)}
    if not found:
        what = "no convolution or dense layer" if layers is None else f"layers={layers!r} names none"
        raise InputError(
            f"{what} to give an adapter of rank {rank}; the convolutions and dense layers of this "
            f"{type(model).__name__} are {known}"
        )
    for name, each in found.items():
        if name in adapted:
            raise InputError(f"layer {name} has an adapter already; merge_lora(model) makes it a plain layer first")
        if rank >= _rank(each):
            raise InputError(
                f"rank {rank} must be below {_rank(each)}, that of layer {name}; lower it, train the layer "
                f"itself, or name larger layers by layers: {some([*larger], _SHOWN) or 'none'}"
            )
        if type(each).forward not in (nn.Conv2d.forward, nn.Linear.forward):
            raise InputError(f"layer {name} ({type(each).__name__}) has its own forward method; name others by layers")
    return found


def _pattern(layers: str) -> Callable[[str], object]:
    try:
        return re.compile(layers).search
    except re.error as error:
        raise InputError(f"layers: {layers!r} is not a regular expression: {error}") from None


def _rank(layer: nn.Conv2d | nn.Linear) -> int:
    """The highest that the layer's weight can have, of one group of a convolution."""
    weight = layer.weight
    groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
    return min(weight.shape[0] // groups, weight[0].numel())


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Replace a module, under all of its names."""
    old = model.get_submodule(name)
    for parent in list(model.modules()):
        for own, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, own, layer)
