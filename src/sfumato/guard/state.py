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

A Python function carries values with it besides its code (`held_by`):

>>> def scaled(by):
...     return lambda x, offset=1: by * x + offset
>>> held_by(scaled(3))
[3, 1]
"""

import copy
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.models import PublicBatchNorm

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


_TORCH_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, parts, hooks, and the mode
_UNALTERABLE = (int, float, complex, str, bytes, bool, type(None), type, type(len), type(lambda: None))
_NOT_OURS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)  # a model may hold its own


class Attributes:
    """The plain attributes of a module and its parts, as they are now.

    Statistics of public inputs follow the weights and are left alone, and so is what torch compiled.

    Args:
        model: a module of ours, a copy of the user's.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parts = [
            part
            for part in model.modules()
            if not isinstance(part, PublicBatchNorm) and not type(part).__module__.startswith("torch._dynamo")
        ]
        # these stay themselves wherever an attribute leads to them
        self._themselves = {id(each): each for each in (*model.modules(), *model.parameters(), *model.buffers())}
        self._plain: list[dict[str, Any]] = []
        copied: list[dict[str, Any]] = []
        for part in self._parts:
            own = {name: value for name, value in vars(part).items() if name not in _left_alone(part)}
            alterable = {name for name, value in own.items() if not isinstance(value, _UNALTERABLE + _NOT_OURS)}
            copied.append({name: own[name] for name in alterable})
            self._plain.append(own)
        self._alterable = self._copy(copied)

    def put_back(self) -> None:
        """All attributes as they were: new ones go, containers, arrays and objects are copies of what they were."""
        again = self._copy(self._alterable)
        for part, plain, alterable in zip(self._parts, self._plain, again, strict=True):
            now = vars(part)
            for name in [name for name in now if name not in plain and name not in _left_alone(part)]:
                del now[name]
            now.update(plain)
            now.update(alterable)

    def changed(self) -> list[str]:
        """Names of numbers, words and functions that are others now, or new; containers are not compared."""
        found = []
        for part, plain in zip(self._parts, self._plain, strict=True):
            now, left_alone = vars(part), _left_alone(part)
            found += [name for name in now if name not in plain and name not in left_alone]
            found += [
                name
                for name, value in plain.items()
                if isinstance(value, _UNALTERABLE)
                and (name not in now or (now[name] is not value and now[name] != value))
            ]
        return found

    def _copy(self, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One copy of all, so that what two parts share they share again."""
        return copy.deepcopy(values, dict(self._themselves)) if any(values) else values


def _left_alone(part: nn.Module) -> frozenset[str]:
    """Names that are not put back: torch's own, and what a recording or a check changes for its time."""
    inner = isinstance(part, nn.RNNBase | nn.MultiheadAttention)
    return _TORCH_OWN | ({"forward", "dropout"} if inner else {"forward"})


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By a number's bytes, whole numbers of as many."""


def same_values(one: Tensor, other: Tensor) -> bool:
    """Whether shapes, types and values are the same, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return (
        _same_bits(one, other)
        or torch.equal(one, other)
        or bool(((one == other) | ((one != one) & (other != other))).all())
    )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether both are tensors of the processor with the same bits: NumPy sees it in a tenth of torch's time."""
    if one.device.type != "cpu" or other.device.type != "cpu" or not (one.is_contiguous() and other.is_contiguous()):
        return False
    kind = _WORDS.get(one.element_size())
    if kind is None:
        return False
    words, others = (each.detach().reshape(-1).view(kind).numpy() for each in (one, other))
    return np.array_equal(words, others)


def held_by(function: FunctionType) -> list[Any]:
    """The values in a function's closure, then those of its defaults; globals are not among them."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _filled(cell: CellType) -> bool:
    """False for a name of the enclosing function that has no value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
