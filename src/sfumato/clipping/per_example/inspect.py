"""How each layer of a model is covered: which path it takes, or why it is refused.

>>> [(layer.name, type(layer.rule).__name__) for layer in covered(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
[('0', 'LinearRule')]
"""

from torch import nn

from sfumato._check import InputError
from sfumato.clipping.per_example.catalogue import coupling, rule_for
from sfumato.clipping.per_example.fallback import FallbackRule
from sfumato.clipping.per_example.rule import Layer
from sfumato.clipping.per_example.workspace import Workspace


def covered(model: nn.Module) -> list[Layer[nn.Module]]:
    """The layers that hold trained parameters, each with its rule.

    Raises:
        InputError: nothing is trained, or a layer cannot be covered; names it and the replacement.
    """
    refusals = problems(model)
    if refusals:
        name, reason = refusals[0]
        more = f" ({len(refusals) - 1} more; sfumato check-model lists them)" if len(refusals) > 1 else ""
        raise InputError(f"layer {name!r}: {reason}{more}")
    layers = layers_of(model)
    if not layers:
        raise InputError("the model has no trainable parameters; set requires_grad_(True) on some, or freeze less")
    return layers


def layers_of(model: nn.Module) -> list[Layer[nn.Module]]:
    """The same without any refusal."""
    layers: list[Layer[nn.Module]] = []
    _collect(model, "", layers, Workspace())
    return layers


def problems(model: nn.Module) -> list[tuple[str, str]]:
    """(name, reason with the remedy) of every layer that cannot be covered."""
    found = [(name, reason) for name, module in model.named_modules() if (reason := coupling(module))]
    for layer in layers_of(model):
        reason = layer.rule.refusal(layer.module)
        if reason:
            found.append((layer.name or type(layer.module).__name__, f"{type(layer.module).__name__}: {reason}"))
    return found


def _collect(module: nn.Module, name: str, layers: list[Layer[nn.Module]], workspace: Workspace) -> None:
    own = frozenset(key for key, value in module.named_parameters(recurse=False) if value.requires_grad)
    rule = rule_for(module, workspace)
    inside = isinstance(rule, FallbackRule) and any(True for _ in module.children())
    if own and (not isinstance(rule, FallbackRule) or not inside):
        layers.append(Layer(name, module, rule, own))
        return
    if own:  # a module of the user's own with parameters beside its layers: all that is within runs again
        within = frozenset(key for key, value in module.named_parameters() if value.requires_grad)
        layers.append(Layer(name, module, rule, within))
        return
    for key, child in module.named_children():
        _collect(child, f"{name}.{key}" if name else key, layers, workspace)
