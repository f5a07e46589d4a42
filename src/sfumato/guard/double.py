"""A model and its loss in double precision, whatever they ask for, so that round-off hides no coupling.

In half precision, a pass cannot tell a coupling of some percent from round-off; in single precision one of a part in a
thousand may be hidden, and a thousand examples add up. Within `in_double` parameters and buffers are in double
precision, and so is all that the model computes: autocast is off, and what asks for another precision gets this one.

>>> layer = nn.Linear(1, 1)
>>> with in_double(layer), torch.autocast("cpu", torch.bfloat16):
...     layer(torch.ones(1, 1).float()).dtype
torch.float64
>>> layer(torch.ones(1, 1)).dtype
torch.float32
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from sfumato.guard.state import data_kept

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)


@contextmanager
def in_double(model: nn.Module, copies: dict[int, Tensor] | None = None) -> Iterator[None]:
    """Double precision for a model, its inputs and its loss; on leaving, all tensors are those that they were.

    Args:
        model: the user's module.
        copies: of parameters, by their id, which are made at the first time and taken again at the next; empty at
            first, and only as long as the parameters stay what they are.
    """
    again = {} if copies is None else copies
    handle = model.register_forward_pre_hook(lambda _, *given: widened(given), with_kwargs=True)
    default = torch.get_default_dtype()
    try:
        with data_kept(model) as tensors:
            for tensor in tensors:
                if tensor.dtype not in _NARROW:
                    continue
                wide = again.get(id(tensor))
                tensor.data = tensor.data.double() if wide is None else wide
                if copies is not None and isinstance(tensor, nn.Parameter):
                    copies[id(tensor)] = tensor.data
            torch.set_default_dtype(torch.float64)
            with _Widening(next((tensor.device.type for tensor in tensors), "cpu")):
                yield
    finally:
        torch.set_default_dtype(default)
        handle.remove()


class _Widening(TorchFunctionMode):
    """Every operation in double precision, and none under autocast."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            func = Tensor.double
        args = tuple(_dtype(value) for value in args)
        kwargs = {name: _dtype(value) for name, value in (kwargs or {}).items()}
        if not torch.is_autocast_enabled(self._device):
            return func(*args, **kwargs)
        with torch.autocast(self._device, enabled=False):
            return func(*args, **kwargs)


def _dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def widened(values: Any) -> Any:
    """Tensors in double precision, in any tuples, lists and dictionaries."""
    return tree_map(
        lambda value: value.double() if isinstance(value, Tensor) and value.dtype in _NARROW else value, values
    )


@contextmanager
def on_processor(model: nn.Module) -> Iterator[None]:
    """Parameters and buffers on the processor; on leaving, all tensors are those that they were."""
    with data_kept(model) as tensors:
        for tensor in tensors:
            tensor.data = tensor.data.cpu()
        yield


def to_processor(batch: Any) -> Any:
    """The tensors of a batch on the processor."""
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, batch)


def elsewhere(batch: Any) -> bool:
    """Whether a batch is on a GPU. The places of examples that somebody else's loop reads are not: there every row was
    given, and that loop puts them where the model is."""
    return any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in tree_leaves(batch))


def other_device(error: Exception) -> bool:
    """Whether a pass failed since something, a loss's weights for example, stayed where the model was."""
    return isinstance(error, RuntimeError) and "device" in str(error) and not isinstance(error, torch.OutOfMemoryError)
