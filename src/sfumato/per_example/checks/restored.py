"""A user's model while it is tried out: weights shaken, nothing of it may change, and all is put back afterwards.

Layers that start at zero (a last layer, the scale of a residual block) stop every gradient before them, and would hide
what happens there. So weights are `shaken` for the time of a check: each gets Gaussian noise of a tenth of the
parameter's own size, and 0.01.

>>> layer = nn.Linear(2, 1)
>>> before = layer.weight.detach().clone()
>>> with shaken([layer.weight]):
...     torch.equal(before, layer.weight)
False
>>> torch.equal(before, layer.weight)
True
"""

import copy
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.per_example.same_values import same_values

_SHARE, _LEAST = 0.1, 0.01  # of the noise on a weight
_CHUNK = 1 << 18  # numbers of noise at a time


@contextmanager
def shaken(parameters: Sequence[nn.Parameter], kept: Collection[tuple[Tensor, Tensor]] = ()) -> Iterator[None]:
    """Parameters with some noise; on leaving they are as they were. No generator but its own is used.

    Args:
        parameters: which.
        kept: tensors and copies of them from before; what is not there is copied.
    """
    copies = {id(tensor): copy for tensor, copy in kept}
    before = [copies[id(each)] if id(each) in copies else each.detach().clone() for each in parameters]
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for parameter in parameters:
                size = _SHARE * float(torch.linalg.vector_norm(parameter)) / parameter.numel() ** 0.5 + _LEAST
                noise = torch.randn(min(_CHUNK, parameter.numel()), generator=generator).to(parameter)
                for piece in parameter.view(-1).split(_CHUNK):
                    piece.add_(noise[: len(piece)], alpha=size)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


@contextmanager
def data_kept(model: nn.Module) -> Iterator[list[Tensor]]:
    """Parameters and buffers, whose `.data` may be others for a time; on leaving, all are those that they were."""
    held = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
    try:
        yield [tensor for tensor, _ in held]
    finally:
        for tensor, value in held:
            tensor.data = value


@contextmanager
def unchanged(model: nn.Module, *, buffers: bool = True) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Refuse a model of which a parameter or a buffer, trained or not, changes while examples go through.

    Args:
        model: the user's module.
        buffers: whether these count; not where weights are shaken within, which public statistics follow.

    Yields:
        the tensors and copies of them.

    Raises:
        InputError: names it.
    """
    watched = _state(model, buffers)
    before = {name: tensor.detach().clone() for name, tensor in watched.items()}
    found: InputError | None = None
    try:
        yield [(tensor, before[name]) for name, tensor in watched.items()]
    except InputError as error:  # what examples leave behind may be why
        found = error
    changed = [
        name
        for name, tensor in _state(model, buffers).items()
        if name not in before or not same_values(before[name], tensor.detach())
    ]
    if changed:
        raise InputError(
            f"{changed[0]!r} changes when examples go through the model: it would be released without noise, and the "
            "gradients of later examples depend on it; keep no statistics, counts or other state of the examples"
        ) from found
    if found is not None:
        raise found


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers and attributes are put back, and so is the dropout within recurrent layers and attention."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    inner = [(part, part.dropout) for part in model.modules() if isinstance(part, (nn.RNNBase, nn.MultiheadAttention))]
    attributes = [(part, _copied(vars(part))) for part in model.modules()]
    for part, _ in inner:
        part.dropout = 0.0
    try:
        yield
    finally:
        for part, values in attributes:
            vars(part).clear()
            vars(part).update(values)
        for part, dropout in inner:
            part.dropout = dropout
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes, with copies of containers: what examples left in them goes."""
    return {
        name: copy.copy(value) if type(value) in (list, dict, set, deque) else value
        for name, value in attributes.items()
    }


def _state(model: nn.Module, buffers: bool) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **(dict(model.named_buffers()) if buffers else {})}
