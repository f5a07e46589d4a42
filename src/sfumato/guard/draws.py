"""The same random numbers for every example, alone or among others, so that two passes can be compared.

Within `SameNoise` a draw is made once, from one seed, for one place along the dimension of the examples, and every
place gets these numbers; the seed depends only on how many draws came before. So dropout and sampled noise are at
work, and an example by itself meets the same numbers as in any batch. What is drawn for all examples together differs
from pass to pass, as it differs for an example when others come or go. Random generators are left as they were.

>>> with SameNoise(2):
...     pair = torch.randn(2, 3)
>>> with SameNoise(1):
...     alone = torch.randn(1, 3)
>>> torch.equal(pair[0], alone[0]), torch.equal(pair[1], alone[0])
(True, True)
>>> with SameNoise(2, number=1):
...     one = torch.rand(1)
>>> with SameNoise(2, number=2):
...     other = torch.rand(1)
>>> torch.equal(one, other)
False
"""

import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

Losses = Callable[[Any], Tensor]
"""From a batch to one loss for each example, float [B]; calls the model."""

_NO_DRAW = ("attention", "rnn", "lstm", "gru")  # tagged as random for their inner dropout, which is off


class SameNoise(TorchDispatchMode):
    """A context for passes over a batch of this many examples.

    Args:
        examples: B.
        axes: of each draw in turn, the dimension of the examples; without it, dimension 0 where B divides it.
        outcome: of the draws; other numbers for another outcome. One for each example gives them different numbers,
            in draws that have just one place for each.
        watch: look at every operation, in which nothing is compiled; without it, which is for what never draws, the
            generators are kept as they were, and nothing is compiled either.

    Attributes:
        apart: False once there was a draw in which examples could not be given different numbers, as they have to be.
        number: of the pass; decides what is drawn for all examples together.
    """

    def __init__(
        self,
        examples: int,
        axes: Sequence[int | None] = (),
        *,
        outcome: int | Sequence[int] = 0,
        number: int = 0,
        watch: bool = True,
    ) -> None:
        super().__init__()
        self._examples, self._axes = examples, axes
        self._outcome, self._number, self._watch = outcome, number, watch
        self._draws = 0
        self._held: Any = None
        self._eager: Any = None
        self.apart = True

    def __enter__(self) -> "SameNoise":
        self._draws = 0
        fork = torch.random.fork_rng()
        fork.__enter__()
        self._held = fork, random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(self._number)
        np.random.seed(self._number)  # noqa: NPY002
        if self._watch:  # it costs some microseconds an operation
            super().__enter__()
        else:
            self._eager = torch.compiler.set_stance("force_eager")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch:
            super().__exit__(kind, error, trace)
        else:
            self._eager.__exit__(kind, error, trace)
        fork, of_python, of_numpy = self._held
        np.random.set_state(of_numpy)  # noqa: NPY002
        random.setstate(of_python)
        fork.__exit__(kind, error, trace)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_draw(func, kwargs):
            return func(*args, **kwargs)
        place = self._draws
        self._draws += 1
        shape = shape_drawn(func, args)
        axis = self._axes[place] if place < len(self._axes) else 0
        if (
            shape is None
            or axis is None
            or axis >= len(shape)
            or not shape[axis]
            or (place >= len(self._axes) and shape[axis] % self._examples)
        ):
            axis = None
        outcomes = [self._outcome] if isinstance(self._outcome, int) else self._outcome
        self.apart &= len(outcomes) == 1 or (axis is not None and shape is not None and len(outcomes) == shape[axis])
        if axis is None or shape is None:
            torch.manual_seed(_mixed(outcomes[0], place, self._number + 1))
            return func(*args, **kwargs)
        if len(outcomes) > 1 and self.apart:
            seeds = [_mixed(outcome, place, 0) for outcome in outcomes]
            return _for_each_place(func, args, kwargs, shape, axis, seeds)
        return _for_one_place(func, args, kwargs, shape, axis, _mixed(outcomes[0], place, 0))


def is_draw(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation draws random numbers from torch's own generators."""
    if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
        return False
    return not any(part in func.__name__ for part in _NO_DRAW)


def shape_drawn(func: Any, args: Sequence[Any]) -> tuple[int, ...] | None:
    """The shape of a draw; None for one that no dimension of which can belong to examples: an order, or a choice."""
    if "randperm" in func.__name__:
        return None
    for value in args:
        if isinstance(value, Tensor):
            return None if "multinomial" in func.__name__ and value.dim() < 2 else tuple(value.shape)
        if isinstance(value, (list, tuple)) and all(isinstance(size, int) for size in value):
            return tuple(value)
    return next((tuple(leaf.shape) for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), None)


def _mixed(outcome: int, place: int, number: int) -> int:
    return (outcome * 1_000_003 + place) * 1_000_003 + number


def _for_one_place(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...], axis: int, seed: int
) -> Any:
    """Draw for one place along a dimension, and give every place the same."""
    torch.manual_seed(seed)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    name = func.overloadpacket.__name__
    if not tensors:
        sizes = [list(one) if isinstance(value, (list, tuple)) and tuple(value) == shape else value for value in args]
        return func(*sizes, **kwargs).expand(shape).clone()
    if name == "native_dropout":
        values, share, training = args
        if not training:
            return func(*args, **kwargs)
        kept = torch.empty(one, device=values.device).bernoulli_(1 - share).bool().expand(shape).clone()
        return values * kept * (1 / (1 - share) if share < 1 else 0.0), kept
    if len(tensors) == 1 and tensors[0] is args[0] and name.endswith(("_", "_like")):
        piece = args[0].narrow(axis, 0, 1).clone()
        found = func(piece, *args[1:], **kwargs).expand(shape)
        return args[0].copy_(found) if name.endswith("_") else found.clone()
    parts = []
    for index in range(shape[axis]):
        torch.manual_seed(seed)
        own_args, own_kwargs = _at((args, kwargs), index, shape, axis)
        parts.append(func(*own_args, **own_kwargs))
    return _joined(func, args, parts, axis)


def _for_each_place(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...], axis: int, seeds: Sequence[int]
) -> Any:
    """Draw for each place along a dimension what it gets alone."""
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = []
    for index, seed in enumerate(seeds):
        own_args, own_kwargs = _at((args, kwargs), index, shape, axis)
        parts.append(_for_one_place(func, own_args, own_kwargs, one, axis, seed))
    return _joined(func, args, parts, axis)


def _at(given: Any, index: int, shape: tuple[int, ...], axis: int) -> Any:
    """What is given to a draw of this shape, for one place along a dimension."""
    if isinstance(given, Tensor):
        fits = given.dim() > axis and given.shape[axis] == shape[axis]
        return given.narrow(axis, index, 1) if fits else given
    if isinstance(given, dict):
        return {name: _at(value, index, shape, axis) for name, value in given.items()}
    if not isinstance(given, (list, tuple)):
        return given
    if all(isinstance(size, int) for size in given) and tuple(given) == shape:
        return [*shape[:axis], 1, *shape[axis + 1 :]]
    return tuple(_at(value, index, shape, axis) for value in given)


def _joined(func: Any, args: tuple[Any, ...], parts: list[Any], axis: int) -> Any:
    """What was drawn place by place, as one."""
    if func.overloadpacket.__name__.endswith("_"):
        return args[0]  # drawn in place
    return tree_map(lambda *some: torch.cat(some, dim=axis) if isinstance(some[0], Tensor) else some[0], *parts)


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout and the like draw from."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def draws_random(model: nn.Module, *inputs: Tensor) -> bool:
    """Whether a forward pass takes random numbers; they are taken back."""
    device = inputs[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"), torch.no_grad():
        before = states(device)
        model(*inputs)
        return not all(torch.equal(*pair) for pair in zip(before, states(device), strict=True))


def states(device: torch.device) -> list[Tensor]:
    """Where the generators are that a model on this device draws from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states
