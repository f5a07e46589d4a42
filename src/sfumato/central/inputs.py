"""How a model gets the inputs of a data set: by position, or by the names that the data set gives them.

>>> class Scaled(nn.Module):
...     def forward(self, x, *, factor):
...         return factor * x
>>> call(Scaled(), (torch.ones(1), torch.tensor(3.0)), ("x", "factor"))
tensor([3.])
>>> refuse_names(Scaled(), ("x", "faktor"))
Traceback (most recent call last):
...
sfumato._check.InputError: the model takes no input 'faktor'; its forward takes x, factor: name the inputs so
"""

from collections.abc import Sequence
from inspect import Parameter, signature
from typing import Any

import torch  # noqa: F401  # for the doctest
from torch import Tensor, nn

from sfumato._check import InputError


def call(model: nn.Module, inputs: Sequence[Tensor], names: Sequence[str]) -> Any:
    """What the model gives.

    Args:
        model: any.
        inputs: one tensor each.
        names: the keyword of each; () for positions.
    """
    return model(**dict(zip(names, inputs, strict=True))) if names else model(*inputs)


def in_order(model: nn.Module, inputs: Sequence[Tensor], names: Sequence[str]) -> tuple[Tensor, ...]:
    """The inputs as a call by position would give them: public inputs of a model have no names.

    >>> class Both(nn.Module):
    ...     def forward(self, first, second): ...
    >>> in_order(Both(), (torch.tensor(2), torch.tensor(1)), ("second", "first"))
    (tensor(1), tensor(2))
    """
    taken, _ = _taken(model)
    place = {name: taken.index(name) if name in taken else len(taken) for name in names}
    return tuple(inputs[i] for i in sorted(range(len(inputs)), key=lambda i: place[names[i]] if names else i))


def refuse_names(model: nn.Module, names: Sequence[str]) -> None:
    """Refuse names that the model does not know.

    A forward with `**keywords` takes any, and would drop a misspelt mask without a word; so some part of the model has
    to take the name.

    Raises:
        InputError: tells those that it takes.
    """
    taken, open_ended = _taken(model)
    if open_ended:
        taken += [name for part in model.modules() for name in _taken(part)[0] if name not in taken]
    for name in names:
        if name not in taken:
            raise InputError(
                f"the model takes no input {name!r}; its forward takes {', '.join(_taken(model)[0] or taken)}: name "
                "the inputs so"
            )


def _taken(part: nn.Module) -> tuple[list[str], bool]:
    """Keywords of a forward, and whether it takes any other, too."""
    kinds = {name: each.kind for name, each in signature(part.forward).parameters.items()}
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [name for name, kind in kinds.items() if kind in named], Parameter.VAR_KEYWORD in kinds.values()
