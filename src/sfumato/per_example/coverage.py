"""How each layer of a model is covered: which path it takes, or why it is refused.

>>> [(layer.name, type(layer.rule).__name__) for layer in covered(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
[('0', 'LinearRule')]

Which rule covers which kind of layer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from sfumato._check import InputError
from sfumato.models import PublicBatchNorm, WSConv2d, coupled_layers
from sfumato.per_example.attention import AttentionRule
from sfumato.per_example.fallback import AroundFallbackRule, FallbackRule, WholeFallbackRule
from sfumato.per_example.layers import (
    ConvolutionRule,
    EmbeddingBagRule,
    EmbeddingRule,
    ExpandRule,
    GroupNormRule,
    InstanceNormRule,
    LayerNormRule,
    LinearRule,
    PublicBatchNormRule,
    RMSNormRule,
    StandardisedConvolutionRule,
)
from sfumato.per_example.recurrent import RecurrentRule
from sfumato.per_example.rule import Layer, OutputRule, Rule
from sfumato.per_example.workspace import Workspace

# Which rule covers which kind of layer.


_RULES: tuple[tuple[type[nn.Module], type[Rule]], ...] = (
    (WSConv2d, StandardisedConvolutionRule),
    (PublicBatchNorm, PublicBatchNormRule),
    (nn.Linear, LinearRule),
    (nn.Conv1d, ConvolutionRule),
    (nn.Conv2d, ConvolutionRule),
    (nn.Conv3d, ConvolutionRule),
    (nn.Embedding, EmbeddingRule),
    (nn.EmbeddingBag, EmbeddingBagRule),
    (nn.LayerNorm, LayerNormRule),
    (nn.RMSNorm, RMSNormRule),
    (nn.GroupNorm, GroupNormRule),
    (nn.InstanceNorm1d, InstanceNormRule),
    (nn.InstanceNorm2d, InstanceNormRule),
    (nn.InstanceNorm3d, InstanceNormRule),
    (nn.MultiheadAttention, AttentionRule),
    (nn.LSTM, RecurrentRule),
    (nn.GRU, RecurrentRule),
    (nn.RNN, RecurrentRule),
)


def rule_for(module: nn.Module) -> Rule:
    """The rule of a module; the fallback where its kind, its `forward` or its parameters are not known ones."""
    if is_parametrized(module):
        return WholeFallbackRule()
    for kind, rule in _RULES:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            if "forward" in vars(module):  # another one on this instance
                return WholeFallbackRule()
            names = {name for name, _ in module.named_parameters(recurse=False)}
            if issubclass(rule, OutputRule) and not names <= {"weight", "bias"}:  # such as those of weight_norm
                break
            return rule()
    return FallbackRule()


def covered(model: nn.Module, *, expand: bool = True) -> list[Layer[nn.Module]]:
    """The layers that hold trained parameters, each with its rule.

    Args:
        model: the user's module; nothing of it is changed.
        expand: give every example its copy of parameters that lie beside layers (class tokens, position tables,
            scales), instead of running their module again.

    Raises:
        InputError: nothing is trained, or a layer cannot be covered; names it and the replacement.
    """
    refusals = problems(model)
    if refusals:
        name, reason = refusals[0]
        more = f" ({len(refusals) - 1} more; sfumato check-model lists them)" if len(refusals) > 1 else ""
        raise InputError(f"layer {name!r}: {reason}{more}")
    layers = layers_of(model, expand=expand)
    if not layers:
        raise InputError("the model has no trainable parameters; set requires_grad_(True) on some, or freeze less")
    return layers


def layers_of(model: nn.Module, *, expand: bool = True) -> list[Layer[nn.Module]]:
    """What `covered` gives, also where a layer is refused."""
    return list(_collected(model, "", Workspace(), set(), expand))


def problems(model: nn.Module) -> list[tuple[str, str]]:
    """(name, reason with the remedy) of every layer that cannot be covered."""
    found = [
        (name or type(layer).__name__, f"{type(layer).__name__} {what}; use {replacement}")
        for name, layer, what, replacement in coupled_layers(model, mode_stays=True)
    ]
    for layer in layers_of(model):
        reason = layer.rule.refusal(layer.module)
        if reason:
            found.append((layer.name or type(layer.module).__name__, f"{type(layer.module).__name__}: {reason}"))
    return found


def place_of(layers: Sequence[Layer[Any]], parameter: nn.Parameter) -> tuple[Layer[Any], str]:
    """The layer of a trained parameter and its name there; the first one where it has several."""
    return next(
        (layer, name)
        for layer in layers
        for name in sorted(layer.wanted)
        if layer.module.get_parameter(name) is parameter
    )


def name_of(layers: Sequence[Layer[Any]], parameter: nn.Parameter) -> str:
    """The name of a trained parameter within the model."""
    layer, name = place_of(layers, parameter)
    return f"{layer.name}.{name}" if layer.name else name


def _collected(
    module: nn.Module, name: str, workspace: Workspace, seen: set[int], expand: bool
) -> Iterator[Layer[nn.Module]]:
    if id(module) in seen:  # one module at two places of the model
        return
    seen.add(id(module))
    rule = rule_for(module)
    trained = {key: value for key, value in module.named_parameters(recurse=rule.whole) if value.requires_grad}
    below = set() if rule.whole else {id(value) for child in module.children() for value in child.parameters()}
    own = frozenset(key for key, value in trained.items() if id(value) not in below)  # a layer's, under a second name
    if isinstance(rule, FallbackRule) and not rule.whole and expand and any(True for _ in module.children()):
        if own:
            yield Layer(name, module, ExpandRule(), own, workspace)
        own = frozenset()
    if own:
        around = type(rule) is FallbackRule and any(True for _ in module.children())
        yield Layer(name, module, AroundFallbackRule() if around else rule, own, workspace)
    if rule.whole:
        return
    for key, child in module.named_children():
        yield from _collected(child, f"{name}.{key}" if name else key, workspace, seen, expand)
