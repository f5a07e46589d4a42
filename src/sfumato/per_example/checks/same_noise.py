"""The same random numbers for every example, alone or among others, so that two passes can be compared.

Within `SameNoise` every draw whose dimension 0 holds the examples is made example by example from one fixed seed; the
seed depends only on how many draws came before. So dropout and sampled noise are at work, and an example by itself
meets the same numbers as in a batch. Fused attention keeps its own dropout. Random generators are left as they were.

>>> with SameNoise(2):
...     pair = torch.randn(2, 3)
>>> with SameNoise(1):
...     alone = torch.randn(1, 3)
>>> torch.equal(pair[0], alone[0]), torch.equal(pair[1], alone[0])
(True, True)
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError

Losses = Callable[[Any], Tensor]
"""From a batch to one loss for each example, float [B]; calls the model."""


class SameNoise(TorchDispatchMode):
    """A context for passes over a batch of this many examples.

    Args:
        examples: size of dimension 0, or what it is a multiple of (heads of attention).
    """

    def __init__(self, examples: int) -> None:
        super().__init__()
        self._examples = examples
        self._draws = 0
        self._fork: Any = None

    def __enter__(self) -> "SameNoise":
        self._draws = 0
        self._fork = torch.random.fork_rng()
        self._fork.__enter__()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._fork.__exit__(kind, error, trace)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or "attention" in func.__name__:
            return func(*args, **kwargs)
        self._draws += 1
        examples = self._examples
        rows = _rows(args)
        if rows is None or rows % examples:
            torch.manual_seed(self._draws)
            return func(*args, **kwargs)
        parts = []
        for index in range(examples):
            torch.manual_seed(self._draws)
            parts.append(func(*(_part(value, rows, index, examples) for value in args), **kwargs))
        if isinstance(args[0], Tensor) and parts[0].data_ptr() == args[0].data_ptr():
            return args[0]  # drawn in place
        return tree_map(lambda *some: torch.cat(some) if isinstance(some[0], Tensor) else some[0], *parts)


def losses_of(losses: Losses, batch: Any, examples: int) -> Tensor:
    """The losses of a batch of so many examples under `SameNoise`.

    Raises:
        InputError: not one for each example.
    """
    with SameNoise(examples):
        found = losses(batch)
    if found.shape != (examples,):
        raise InputError(
            f"the loss must give one number for each example, [{examples}], got shape {list(found.shape)}; "
            "use reduction='none'"
        )
    return found


def _rows(args: Sequence[Any]) -> int | None:
    """Size of dimension 0: of the first tensor, or asked for by a list of sizes."""
    for value in args:
        if isinstance(value, Tensor):
            return len(value) if value.dim() else None
        if isinstance(value, (list, tuple)) and value and all(isinstance(size, int) for size in value):
            return value[0]
    return next((len(leaf) for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and leaf.dim()), None)


def _part(value: Any, rows: int, index: int, examples: int) -> Any:
    if isinstance(value, Tensor) and value.dim() and len(value) == rows:
        return value.narrow(0, index * rows // examples, rows // examples)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], int) and value[0] == rows:
        return [rows // examples, *value[1:]]
    return value
