"""Whether a stage's own function holds modules or tensors, beside those that it is given.

A stage that says `run=lambda x: self.block(x)` computes with the network that told it, not with the copy that is
trained: nothing puts that network back between clients, and what its layers write would be released. So only what a
stage names in `parts` is copied, watched and released, and a function that holds more is refused.

>>> block = nn.Linear(1, 1)
>>> holds_more(lambda x, by=block: by(x)), holds_more(lambda x, block: block(x)), holds_more(nn.functional.relu)
(True, False, False)
"""

import functools
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from sfumato._closures import held_by


def holds_more(function: Callable[..., Any]) -> bool:
    """Whether a function has a module or a tensor in its closure, its defaults or its object; globals are not read."""
    return _holds(function, set())


def _holds(value: object, seen: set[int]) -> bool:
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, nn.Module | Tensor):
        return True
    return any(_holds(each, seen) for each in _within(value))


def _within(value: object) -> list[Any]:
    if isinstance(value, FunctionType):
        return held_by(value)
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        return [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        return [*vars(value).values()]
    return []
