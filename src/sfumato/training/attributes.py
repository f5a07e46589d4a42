"""What modules hold in plain attributes, put back so that no contribution meets another one's traces.

A count of calls, a list of earlier batches, a mean that is kept as `self.level`: PyTorch knows nothing of them, and a
forward pass that reads them lets one example change another one's gradient. What is remembered elsewhere (in a class, a
global name, a closure, a loss) is not seen here; checks look for that.

>>> layer = nn.Linear(1, 1)
>>> layer.calls, layer.bank = 0, []
>>> attributes = Attributes(layer)
>>> layer.calls, layer.late = 3, True
>>> layer.bank.append(1.0)
>>> attributes.put_back()
>>> layer.calls, layer.bank, hasattr(layer, "late")
(0, [], False)
"""

import copy
from typing import Any

import torch
from torch import nn

from sfumato.models import PublicBatchNorm

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
