"""Which dimension of each random draw belongs to the examples; draws that examples share are refused.

A number that is drawn once for a micro-batch (a gate by `torch.rand(1)`, dropout on a tensor that is broadcast, a
block that all examples skip together) is not harmless. One more example shifts who shares a number with whom, so it
changes the gradients of others, and no choice of their draws makes up for it. Draws of an example's own are independent
of who else is there: given them, its clipped gradient is a function of the example alone.

An example goes through the model alone, and beside a copy of itself. A draw that doubles is the examples' own; one that
does not is shared.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sfumato._check import InputError
from sfumato.per_example.checks.rows import rows_at
from sfumato.per_example.checks.same_noise import draws, shape_drawn
from sfumato.per_example.checks.trial import Trial

SHARED = (
    "who shares it changes when an example comes or goes, and other examples' gradients with it; draw one number for "
    "each example (torch.rand(len(inputs), 1), dropout on a tensor that has the examples as a dimension)"
)

_SEED = 0x5EED_0F_DA7A  # nobody else's


class _Draws(TorchDispatchMode):
    """Notes each draw: the module in which it is made, and its shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[int, ...] | None]] = []
        self.of_its_own = False  # a generator that the model brings
        self._inside: list[str] = []
        self._handles: list[Any] = []
        for name, module in model.named_modules():
            self._handles.append(module.register_forward_pre_hook(lambda *_, at=name: self._inside.append(at)))
            self._handles.append(module.register_forward_hook(lambda *_: _none(self._inside.pop()), always_call=True))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.of_its_own |= kwargs.get("generator") is not None
        if draws(func, kwargs):
            self.found.append((self._inside[-1] if self._inside else "", shape_drawn(func, args)))
        return func(*args, **kwargs)

    def detach(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()


def refuse_shared_draws(trial: Trial, row: Any) -> list[int | None] | None:
    """Refuse a model or loss that draws for several examples at once.

    Args:
        trial: the model and its loss.
        row: a batch of one example.

    Returns:
        for each draw in turn, the dimension of the examples; an empty list where the draws differ in number from pass
        to pass, and None where there are none.

    Raises:
        InputError: names the module in which a shared number is drawn.
    """
    alone, together = (_noted(trial, rows_at(row, [0] * copies)) for copies in (1, 2))
    if not alone and not together:
        return None
    if len(alone) != len(together):
        return []
    axes: list[int | None] = []
    for (name, one), (_, two) in zip(alone, together, strict=True):
        grown = zip(one, two) if one is not None and two is not None and len(one) == len(two) else ()
        axis = next((at for at, (size, twice) in enumerate(grown) if size and twice == 2 * size), None)
        if axis is None:
            where = f"layer {name!r}" if name else "the model's own forward or the loss"
            what = "an order or a choice over the batch" if two is None else f"a random draw of shape {list(two)}"
            raise InputError(f"{where}: {what} is shared by the examples of a batch: {SHARED}")
        axes.append(axis)
    return axes


def _noted(trial: Trial, batch: Any) -> list[tuple[str, tuple[int, ...] | None]]:
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    noted = _Draws(trial.model)
    try:
        with torch.no_grad(), torch.random.fork_rng(), noted:
            torch.manual_seed(_SEED)
            trial.losses(batch)
            seeded = torch.initial_seed() != _SEED
        drawn = random.getstate() != of_python or _differs(np.random.get_state(), of_numpy)  # noqa: NPY002
    finally:
        noted.detach()
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    if seeded:
        raise InputError(
            "the model or the loss seeds torch's generator: then each place in a batch has its numbers, and one more "
            "example moves the others to other places; leave torch.manual_seed out, the run seeds the draws"
        )
    if drawn or noted.of_its_own:
        raise InputError(
            "the model or the loss draws from a generator of its own, Python's random or numpy.random, which the run "
            "does not seed and which belongs to no example; use torch's own. A number for all examples is not allowed: "
            f"{SHARED}"
        )
    return noted.found


def _differs(one: Any, other: Any) -> bool:
    return one[2:] != other[2:] or not np.array_equal(one[1], other[1])


def _none(_: Any) -> None:
    return None
