"""A model with other layers in the place of those that are refused, and a list of what was replaced.

Every replacement works on each example by itself. Weights are carried over where both layers have them; running
statistics are dropped. So the copy is a start for training, not the same function, and what a replacement costs in
accuracy is for the user to measure: every one of them is reported.

| refused                                         | becomes                                                        |
| ----------------------------------------------- | -------------------------------------------------------------- |
| batch norm, 1d to 3d, synchronised              | group norm; over vectors (1d) with one group                    |
| instance norm that keeps running statistics     | instance norm without them                                      |
| embedding, bags with `max_norm`                 | without                                                         |
| embedding, bags with `scale_grad_by_freq`       | without                                                         |
| bags with mode "max"                            | mode "mean"                                                     |

References:
    Wu, He: Group Normalization (2018), arXiv 1803.08494.

>>> fixed, changes = fix_model(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
>>> print(changes[0])
layer '1': BatchNorm2d couples the examples of a batch → GroupNorm(8, 8)
>>> fix_model(fixed)[1]
[]
"""

import copy
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from sfumato._check import whole
from sfumato.models.check import coupled_layers, refuse_no_values


@dataclass(frozen=True)
class Change:
    """A layer that was replaced.

    Attributes:
        name: of the layer within the model.
        before: its class.
        why: what it does that is refused.
        after: what stands in its place.
    """

    name: str
    before: str
    why: str
    after: str

    def __str__(self) -> str:
        return f"layer {self.name!r}: {self.before} {self.why} → {self.after}"


def fix_model(model: nn.Module, *, groups: int = 32) -> tuple[nn.Module, list[Change]]:
    """Copy a model with other layers in the place of those that no bound per example survives.

    A layer without a replacement that is known here, such as a batch norm with a forward of its own, stays, and is
    refused by name when the model is checked or trained.

    Args:
        model: any torch module; it is left as it is.
        groups: groups of each group norm, >= 1; with a number of channels that it does not divide, the largest
            smaller number that does.

    Returns:
        a deep copy, in which a layer that was used twice is replaced by one layer that is used twice; and the changes,
        in the order of the module.

    Raises:
        InputError: groups is not a whole number >= 1, or a lazy layer has no shape yet.
    """
    whole(groups=groups)
    refuse_no_values(model)
    model = copy.deepcopy(model)
    refused = {id(found.layer) for found in coupled_layers(model)}
    changes: list[Change] = []
    replaced: dict[int, nn.Module] = {}
    for name, layer in model.named_modules():
        found = _replacement(layer, groups, coupled=id(layer) in refused)
        if found is not None:
            why, new = found
            replaced[id(layer)] = new
            changes.append(Change(name, type(layer).__name__, why, _told(new)))
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):  # named_children skips a second name
            if layer is not None and id(layer) in replaced:
                setattr(parent, name, replaced[id(layer)])
    return replaced.get(id(model), model), changes


def _replacement(layer: nn.Module, groups: int, *, coupled: bool) -> tuple[str, nn.Module] | None:
    """What a layer does that is refused, and what takes its place; None if it stays."""
    if isinstance(layer, _BatchNorm) and type(layer).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        return ("couples the examples of a batch", _group_norm(layer, groups)) if coupled else None
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        new = copy.copy(layer)
        new._buffers = dict.fromkeys(layer._buffers)  # type: ignore[assignment]
        new.track_running_stats = False
        return "keeps running statistics of the examples", new
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return _own_table(layer)
    return None


def _own_table(layer: nn.Embedding | nn.EmbeddingBag) -> tuple[str, nn.Module] | None:
    """The same table, whose rows no other example changes."""
    new, why = copy.copy(layer), []
    if layer.max_norm is not None:
        new.max_norm = None
        why.append("rescales its table in place (max_norm)")
    if layer.scale_grad_by_freq:
        new.scale_grad_by_freq = False
        why.append("divides gradients by counts over the batch (scale_grad_by_freq)")
    if isinstance(new, nn.EmbeddingBag) and new.mode == "max":
        new.mode = "mean"
        why.append('has the mode "max", which is not covered')
    return (" and ".join(why), new) if why else None


def _group_norm(layer: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    count = 1 if isinstance(layer, nn.BatchNorm1d) else next(g for g in range(groups, 0, -1) if channels % g == 0)
    norm = nn.GroupNorm(count, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)


def _told(layer: nn.Module) -> str:
    """A new layer in a few words."""
    if isinstance(layer, nn.GroupNorm):
        return f"GroupNorm({layer.num_groups}, {layer.num_channels})"
    if isinstance(layer, nn.EmbeddingBag):
        return f'EmbeddingBag in mode "{layer.mode}", without max_norm and scale_grad_by_freq'
    what = "max_norm and scale_grad_by_freq" if isinstance(layer, nn.Embedding) else "running statistics"
    return f"{type(layer).__name__} without {what}"
