"""The values that a loss carries with it (weights of classes, a threshold), by which one is told from another."""

import hashlib
from functools import partial
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.modules.loss import _Loss

from sfumato._closures import held_by
from sfumato.central.value_digest import value_digest


def values_of(loss: Any) -> str:
    """SHA-256 of what a loss holds in closures, defaults, arguments, attributes and buffers; "" for nothing.

    What is not a number, text, an array or a tensor counts by its type alone, and so does a network that a loss uses:
    its first weights may be others in each process.

    >>> def weighted(weight):
    ...     return lambda outputs, targets: weight * outputs
    >>> values_of(weighted(1.0)) == values_of(weighted(2.0)), values_of(len)
    (False, '')
    """
    found: list[bytes] = []
    _collect(loss, found, 0)
    return hashlib.sha256(b"|".join(found)).hexdigest() if found else ""


def _collect(value: Any, found: list[bytes], depth: int) -> None:
    if depth > 4:
        return
    if isinstance(value, partial):
        parts = [value.func, *value.args, *(each for item in sorted(value.keywords.items()) for each in item)]
    elif isinstance(value, nn.Module) and (not depth or isinstance(value, _Loss)):
        own = {name: each for name, each in vars(value).items() if not name.startswith("_")}
        parts = [each for item in sorted({**own, **value.state_dict()}.items()) for each in item]
    elif isinstance(value, FunctionType):
        parts = held_by(value)
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = [each for item in value.items() for each in item]
    else:
        if depth:
            found.append(value_digest(value) or type(value).__qualname__.encode())
        return
    for part in parts:
        _collect(part, found, depth + 1)
