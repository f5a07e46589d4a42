"""Layers that couple examples: found and named before private training starts.

A per-example guarantee rests on a bound of what one example (or user) adds to the sum. A layer that mixes the
examples of a batch lets one of them move every other one's gradient, so that clipping bounds nothing; a layer
that keeps running statistics releases them without noise. `refuse_batch_norm` finds such layers by their type in
any torch module; `sfumato.guard.self_check` finds them by experiment, whatever they are called.

>>> refuse_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
Traceback (most recent call last):
...
sfumato._check.InputError: layer 1 (BatchNorm2d) couples the examples of a batch, so no bound per example holds; \
use nn.GroupNorm(8, 8) or models.PublicBatchNorm; models.fix_model(model) replaces what is refused

**Replacements:** a model with other layers in the place of those that are refused, and a list of what was replaced.
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

>>> fixed, changes = fix_model(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
>>> print(changes[0])
layer '1': BatchNorm2d couples the examples of a batch → GroupNorm(8, 8)
>>> fix_model(fixed)[1]
[]

References:
    Ioffe, Szegedy: Batch Normalization (2015), arXiv 1502.03167.
    Wu, He: Group Normalization (2018), arXiv 1803.08494.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from sfumato._check import InputError, first_line, whole


class CoupledLayer(NamedTuple):
    """A layer that no bound per example survives.

    Attributes:
        name: within the model.
        layer: the module.
        what: what it does.
        replacement: what to use instead.
    """

    name: str
    layer: nn.Module
    what: str
    replacement: str


def coupled_layers(model: nn.Module, *, mode_stays: bool = False) -> list[CoupledLayer]:
    """List the layers that couple examples or change with them, by their type, in the order of the module.

    Recognised are torch's batch norms (1d to 3d, synchronised, lazy) with their subclasses, instance norms that track
    statistics, embeddings with a largest norm, any layer that says `couples_examples`, and any other layer with a
    `running_mean` or `running_var` buffer that is not called frozen. Trained or frozen, all the same: what examples
    change in place is released without noise.

    Args:
        model: any torch module.
        mode_stays: whether the mode never changes, so that batch norm in evaluation mode is a constant. Otherwise it
            counts in every mode, unless its class keeps itself in evaluation mode.
    """
    found = []
    for name, layer in model.named_modules():
        known = _coupling(layer, mode_stays)
        if known:
            found.append(CoupledLayer(name, layer, *known))
    return found


def _coupling(layer: nn.Module, mode_stays: bool) -> tuple[str, str] | None:
    """What a layer does, and what to use instead; None if nothing is known."""
    mixes = "couples the examples of a batch, so no bound per example holds"
    keeps = "keeps running statistics of the examples, released without noise"
    if isinstance(layer, _BatchNorm):
        if layer.track_running_stats and not layer.training and (mode_stays or _stays_in_evaluation(layer)):
            return None
        return mixes, f"{_group_norm_for(layer)} or models.PublicBatchNorm"
    if isinstance(layer, _InstanceNorm):
        return (keeps, "track_running_stats=False") if layer.track_running_stats else None
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        return "has a max_norm, which rescales its table in place by the examples of a batch", "max_norm=None"
    if getattr(layer, "couples_examples", False):
        return mixes, "statistics='public', or group norm"
    buffers = dict(layer.named_buffers(recurse=False))
    if buffers.keys() & {"running_mean", "running_var"}:
        return None if "frozen" in type(layer).__name__.lower() else (keeps, "group norm")
    return None


def _stays_in_evaluation(layer: nn.Module) -> bool:
    """Whether a layer in evaluation mode refuses to be switched to training."""
    layer.train()
    stays = not layer.training
    layer.eval()
    return stays


def _group_norm_for(layer: _BatchNorm) -> str:
    channels = layer.num_features
    if not channels:  # lazy
        return "nn.GroupNorm"
    return f"nn.GroupNorm({next(count for count in (32, 16, 8, 4, 2, 1) if channels % count == 0)}, {channels})"


def refuse_batch_norm(model: nn.Module) -> None:
    """Refuse a module with a layer that couples examples or changes with them.

    Raises:
        InputError: names the first such layer, how many there are, and the replacement.
    """
    found = coupled_layers(model)
    if found:
        name, layer, what, replacement = found[0]
        more = f" (and {len(found) - 1} more layers)" if len(found) > 1 else ""
        at_once = "; models.fix_model(model) replaces what is refused" if _is_norm(layer) else ""
        raise InputError(f"layer {name or 'itself'} ({type(layer).__name__}) {what}{more}; use {replacement}{at_once}")


def _is_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm | _InstanceNorm)


def refuse_no_values(model: nn.Module) -> None:
    """Refuse what is no module, and one with weights that have no shape or no values yet.

    Raises:
        InputError: names the first of them.
    """
    if not isinstance(model, nn.Module):
        given = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InputError(f"model must be a torch.nn.Module, got {given}; give the module itself, its parameters in it")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} has no shape yet (a lazy layer); run the model once on some inputs first")
        if tensor.is_meta:
            raise InputError(
                f"{name} is on the device meta and has no values; build the model on cpu or cuda, or call "
                "model.to_empty(device='cpu') and load its weights"
            )


def tried_on(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a model gives for some inputs, without gradients, in the mode that it is in.

    Args:
        model: any torch module.
        inputs: [n, …].

    Raises:
        InputError: the model fails on such inputs.
    """
    with torch.no_grad(), failing_layer(model, str(tuple(inputs.shape[1:]))):
        return model(inputs)


@contextmanager
def failing_layer(model: nn.Module, shape: str) -> Iterator[None]:
    """A forward pass within; what it raises becomes one line with the layer and the remedy.

    Args:
        model: the module that runs.
        shape: of one example's inputs, for the message.

    Raises:
        InputError: the forward pass raised something; an InputError stays as it is.
    """
    running: list[str] = []
    handles = []

    def ended(*_: object) -> None:
        running.pop()

    for name, part in model.named_modules():
        described = f"in layer {name} ({type(part).__name__}): " if name else ""
        handles.append(part.register_forward_pre_hook(lambda *_, at=described: running.append(at)))
        handles.append(part.register_forward_hook(ended))
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # whatever the user's own forward raises
        where = running[-1] if running else ""
        raise InputError(
            f"the model fails on inputs of shape {shape} ({where}{first_line(error)}); fix its forward pass, or give "
            "it inputs of the shape that it reads"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


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
            changes.append(Change(name, type(layer).__name__, why, _described(new)))
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
        return _uncoupled_table(layer)
    return None


def _uncoupled_table(layer: nn.Embedding | nn.EmbeddingBag) -> tuple[str, nn.Module] | None:
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


def _described(layer: nn.Module) -> str:
    """A new layer in a few words."""
    if isinstance(layer, nn.GroupNorm):
        return f"GroupNorm({layer.num_groups}, {layer.num_channels})"
    if isinstance(layer, nn.EmbeddingBag):
        return f'EmbeddingBag in mode "{layer.mode}", without max_norm and scale_grad_by_freq'
    what = "max_norm and scale_grad_by_freq" if isinstance(layer, nn.Embedding) else "running statistics"
    return f"{type(layer).__name__} without {what}"
