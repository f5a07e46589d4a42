"""`nn.MultiheadAttention`: self- and cross-attention, with masks, dropout, added keys and separate projections.

The layer uses its weights inside one function, where nothing can be seen from outside. While a backward pass is
recorded, its forward pass is composed here of the same steps: projections, which are linear layers and are covered like
them, and the attention itself, which has no parameters. Examples are dimension 0 with `batch_first=True`, dimension 1
without.

The transformer layers of `torch.nn` are covered through it. A mask for each example has the batch in its first
dimension and couples nothing.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato._torch import at_least_single
from sfumato.per_example.rule import Blocks, Dense, Factor, Factors, Layer, Outer, Rule, Tap


class AttentionRule(Rule):
    """Projections of queries, keys and values, the output projection, and the keys and values that are added."""

    path: ClassVar[str] = "one backward pass over composed attention"
    whole: ClassVar[bool] = True

    def attach(self, layer: Layer[nn.MultiheadAttention], tap: Tap) -> Callable[[], None]:
        module = layer.module

        def forward(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            key_padding_mask: Tensor | None = None,
            need_weights: bool = True,
            attn_mask: Tensor | None = None,
            average_attn_weights: bool = True,
            is_causal: bool = False,
        ) -> tuple[Tensor, Tensor | None]:
            if query.dim() != 3:
                raise InputError(f"layer {layer.name!r}: queries must be [B, T, D], got shape {list(query.shape)}")
            same, value_is_key = key is query and value is query, value is key
            if not module.batch_first:
                query = query.transpose(0, 1)
                key = query if same else key.transpose(0, 1)
                value = query if same else key if value_is_key else value.transpose(0, 1)
            heads = _projected(layer, tap, query, key, value)
            mask = _mask(module, attn_mask, key_padding_mask, heads)
            mixed, weights = _attend(module, heads, mask, need_weights)
            output = tap(
                F.linear(mixed, module.out_proj.weight, module.out_proj.bias),
                _linear(layer, "out_proj.weight", "out_proj.bias", mixed.detach()),
                ("out_proj.weight", "out_proj.bias"),
            )
            if weights is not None and average_attn_weights:
                weights = weights.mean(dim=1)
            return (output if module.batch_first else output.transpose(0, 1)), weights

        module.forward = forward  # on this instance only, and until the recording ends

        def detach() -> None:
            del module.forward

        return detach


def _linear(layer: Layer[Any], weight: str, bias: str, inputs: Tensor) -> Callable[[Tensor], Factors]:
    def factors(gradient: Tensor) -> Factors:
        result: Factors = {}
        if weight in layer.wanted:
            result[weight] = Outer(gradient, at_least_single(inputs).to(gradient.dtype))
        if bias in layer.wanted:
            result[bias] = Dense(gradient.sum(dim=1))
        return result

    return factors


def _projected(layer: Layer[Any], tap: Tap, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values of each head, [B, H, T, D / H]."""
    module = layer.module
    if module.in_proj_weight is not None and key is query and value is query:
        joint = F.linear(query, module.in_proj_weight, module.in_proj_bias)
        names = ("in_proj_weight", "in_proj_bias")
        joint = tap(joint, _linear(layer, *names, query.detach()), names)
        parts = joint.chunk(3, dim=2)
    else:
        parts = tuple(
            _part(layer, tap, index, letter, inputs)
            for index, (letter, inputs) in enumerate(zip("qkv", (query, key, value), strict=True))
        )
    heads = [parts[0], *_with_added(layer, tap, parts[1], parts[2])]
    return tuple(part.unflatten(2, (module.num_heads, module.head_dim)).transpose(1, 2) for part in heads)


def _part(layer: Layer[Any], tap: Tap, index: int, letter: str, inputs: Tensor) -> Tensor:
    """One of the three projections; its rows of a joint weight are a block of that parameter."""
    module, width = layer.module, layer.module.embed_dim
    rows = slice(index * width, (index + 1) * width)
    joint = module.in_proj_weight is not None
    weight = module.in_proj_weight[rows] if joint else getattr(module, f"{letter}_proj_weight")
    bias = None if module.in_proj_bias is None else module.in_proj_bias[rows]
    name = "in_proj_weight" if joint else f"{letter}_proj_weight"
    saved = inputs.detach()

    def factors(gradient: Tensor) -> Factors:
        found: dict[str, Factor] = {}
        if name in layer.wanted:
            outer = Outer(gradient, at_least_single(saved).to(gradient.dtype))
            found[name] = Blocks({index: outer}, module.in_proj_weight.shape) if joint else outer
        if "in_proj_bias" in layer.wanted:
            found["in_proj_bias"] = Blocks({index: Dense(gradient.sum(dim=1))}, module.in_proj_bias.shape)
        return found

    return tap(F.linear(inputs, weight, bias), factors, (name, "in_proj_bias"))


def _with_added(layer: Layer[Any], tap: Tap, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with the trained one and the zero one behind them, where the module has these."""
    module = layer.module
    if module.bias_k is not None:

        def factors(name: str) -> Callable[[Tensor], Factors]:
            return lambda gradient: {name: Dense(gradient[:, :, None])} if name in layer.wanted else {}

        shape = (len(keys), 1, keys.shape[2])
        keys = torch.cat([keys, tap(module.bias_k.expand(shape), factors("bias_k"), ("bias_k",))], dim=1)
        values = torch.cat([values, tap(module.bias_v.expand(shape), factors("bias_v"), ("bias_v",))], dim=1)
    if module.add_zero_attn:
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
    return keys, values


def _mask(
    module: nn.MultiheadAttention, attention: Tensor | None, padding: Tensor | None, heads: tuple[Tensor, ...]
) -> Tensor | None:
    """Both masks as one, in a shape that broadcasts to [B, H, T, S]; what is added to the scores."""
    examples, count = heads[0].shape[:2]
    keys = heads[1].shape[2]

    def added(mask: Tensor) -> Tensor:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=heads[0].dtype).masked_fill_(mask, float("-inf"))
        return F.pad(mask.to(heads[0].dtype), (0, keys - mask.shape[-1]))  # what was added may be seen by all

    total = None
    if attention is not None:
        total = added(attention)
        total = total.view(examples, count, *total.shape[1:]) if total.dim() == 3 else total[None, None]
    if padding is not None:
        own = added(padding)[:, None, None]
        total = own if total is None else total + own
    return total


def _attend(
    module: nn.MultiheadAttention, heads: tuple[Tensor, ...], mask: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Mixed values [B, T, D], and the weights [B, H, T, S] where they are asked for."""
    query, key, value = heads
    dropout = module.dropout if module.training else 0.0
    if not need_weights:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2), None
    scores = (query * module.head_dim**-0.5) @ key.mT
    weights = F.dropout((scores if mask is None else scores + mask).softmax(dim=-1), dropout)
    return (weights @ value).transpose(1, 2).flatten(2), weights
