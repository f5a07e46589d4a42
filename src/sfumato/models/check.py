"""Layers that couple examples: found, named and replaced before private training starts.

A per-example guarantee rests on a bound of what one example (or user) adds to the sum. A layer that mixes the
examples of a batch lets one of them move every other one's gradient, so that clipping bounds nothing; a layer
that keeps running statistics releases them without noise. `refuse_batch_norm` finds such layers by their type in
any torch module; `refuse_coupling` finds them by experiment, whatever they are called.

References:
    Ioffe, Szegedy: Batch Normalization (2015), arXiv 1502.03167. Wu, He: Group Normalization (2018), arXiv
    1803.08494: the replacement.

>>> refuse_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
Traceback (most recent call last):
...
sfumato._check.InputError: layer 1 (BatchNorm2d) couples the examples of a batch, so no bound per example holds; \
use models.replace_batch_norm(model) or build the model with group norm
>>> replace_batch_norm(nn.BatchNorm2d(8), groups=4).num_groups
4
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from sfumato._check import InputError, whole

_REMEDY = "use models.replace_batch_norm(model) or build the model with group norm"


def coupled_layers(model: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """List the layers that couple examples or keep running statistics, by their type.

    Batch norm counts in every mode: switched to training, it would couple. Recognised are torch's batch norms
    (1d to 3d, synchronised, lazy) with their subclasses, instance norms that track statistics, any layer that says
    `couples_examples`, and any other layer with a `running_mean` or `running_var` buffer that is not called frozen.

    Returns:
        (name, layer, what it does) triples in the order of the module.
    """
    found = []
    for name, layer in model.named_modules():
        buffers = dict(layer.named_buffers(recurse=False))
        if isinstance(layer, _BatchNorm):
            found.append((name, layer, "couples the examples of a batch, so no bound per example holds"))
        elif isinstance(layer, _InstanceNorm):
            if layer.track_running_stats:
                found.append((name, layer, "keeps running statistics of the examples, released without noise"))
        elif getattr(layer, "couples_examples", False):
            found.append((name, layer, "couples the examples of a batch, so no bound per example holds"))
        elif buffers.keys() & {"running_mean", "running_var"} and "frozen" not in type(layer).__name__.lower():
            found.append((name, layer, "keeps running statistics of the examples, released without noise"))
    return found


def refuse_batch_norm(model: nn.Module) -> None:
    """Refuse a module with a layer that couples examples or keeps running statistics.

    Raises:
        InputError: names the first such layer, how many there are, and the replacement.
    """
    found = coupled_layers(model)
    if found:
        name, layer, what = found[0]
        more = f" (and {len(found) - 1} more layers)" if len(found) > 1 else ""
        raise InputError(f"layer {name or 'itself'} ({type(layer).__name__}) {what}{more}; {_REMEDY}")


def refuse_coupling(model: nn.Module, inputs: torch.Tensor) -> None:
    """Refuse a module whose output for one example depends on the others in the batch, by experiment.

    A copy of the module runs in training mode on the batch, and on a batch of copies of its first example, with
    equal random draws. The first example's output must be the same to float round-off, and no buffer may differ.

    Args:
        model: any torch module; it is copied and left as it is.
        inputs: a batch of at least 2 examples that differ, [n, ...], of any type that the module reads.

    Raises:
        InputError: names the first layer whose output for the first example, or whose buffers, changed.
    """
    if len(inputs) < 2 or torch.equal(inputs, inputs[:1].expand_as(inputs)):
        raise InputError(f"the check for coupled examples needs at least 2 different examples, got {len(inputs)}")
    refuse_lazy(model)
    layers = list(zip(_traces(model, inputs), _traces(model, inputs[:1].expand_as(inputs).clone())))
    coupled = [one.name for one, two in layers if not _close(one.first, two.first)]
    counting = [one.name for one, two in layers if not all(map(torch.equal, one.buffers, two.buffers))]
    # A layer inside may well mix examples on purpose and undo it (a transposed batch); the whole decides.
    if counting:
        name, what = counting[0], "keeps statistics of the examples, released without noise"
        remedy = "use a layer that treats each example alone"
    elif "" in coupled:
        name, what = coupled[0], "couples the examples of a batch, so no bound per example holds"
        remedy = "it, or what computes its input, must treat each example alone (attention: batch_first=True)"
    else:
        return
    kind = type(model.get_submodule(name)).__name__
    raise InputError(f"layer {name or 'itself'} ({kind}) {what}; {remedy}")


class _Trace(NamedTuple):
    """What one layer left behind."""

    name: str
    first: torch.Tensor | None
    buffers: list[torch.Tensor]


def _close(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None:
        return True
    if one.shape != two.shape:  # packed texts are padded to the longest of their batch
        return False
    finite = one.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    scale = float(finite.abs().max()) if one.numel() else 0.0
    return torch.allclose(one.double(), two.double(), rtol=1e-4, atol=1e-6 * scale, equal_nan=True)


def _traces(model: nn.Module, inputs: torch.Tensor) -> list[_Trace]:
    """For each layer, in the order in which they finish: its output for the first example, its own buffers."""
    model = copy.deepcopy(model).train()
    traces = []

    def record(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(layer: nn.Module, _arguments: Any, output: Any) -> None:
            batch = isinstance(output, torch.Tensor) and output.ndim > 0 and len(output) == len(inputs)
            first = output[0].detach().clone() if batch else None
            traces.append(_Trace(name, first, [buffer.clone() for buffer in layer.buffers(recurse=False)]))

        return hook

    for name, layer in model.named_modules():
        layer.register_forward_hook(record(name))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(inputs.clone())  # a model may work on its inputs in place
    return traces


def replace_batch_norm(model: nn.Module, *, groups: int = 32) -> nn.Module:
    """Copy a module with group norm in the place of batch norm, and without running statistics.

    Scales and offsets are carried over, running statistics are dropped: the copy is a start for training, not the
    same function. Batch norm over vectors (1d) becomes group norm with one group, which is layer norm.

    Args:
        model: any torch module; it is left as it is.
        groups: groups of each group norm, >= 1; with a number of channels that it does not divide, the largest
            smaller number that does.

    Returns:
        a deep copy; a layer that was used twice is replaced by one layer that is used twice.

    Raises:
        InputError: groups is not a whole number >= 1, or a lazy layer has no shape yet.
    """
    whole(groups=groups)
    refuse_lazy(model)
    model = copy.deepcopy(model)
    replaced: dict[int, nn.Module] = {}
    if isinstance(model, _BatchNorm | _InstanceNorm):
        return _replacement(model, groups)
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):  # named_children skips a second name
            if isinstance(layer, _BatchNorm | _InstanceNorm):
                replaced.setdefault(id(layer), _replacement(layer, groups))
                setattr(parent, name, replaced[id(layer)])
    return model


def refuse_lazy(model: nn.Module) -> None:
    """Refuse a module with weights that have no shape yet.

    Raises:
        InputError: names the first of them.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"{name} has no shape yet (a lazy layer); run the model once on some inputs first")


def _replacement(layer: _BatchNorm | _InstanceNorm, groups: int) -> nn.Module:
    if isinstance(layer, _InstanceNorm):
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        return layer
    channels = layer.num_features
    count = 1 if isinstance(layer, nn.BatchNorm1d) else next(g for g in range(groups, 0, -1) if channels % g == 0)
    norm = nn.GroupNorm(count, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)
