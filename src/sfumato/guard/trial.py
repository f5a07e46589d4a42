"""A pass of a user's model and loss under the conditions of a check, forward alone or recorded.

A model and its loss in double precision, whatever they ask for, so that round-off hides no coupling.

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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError
from sfumato.guard.draws import Losses, SameNoise
from sfumato.guard.placeholders import count_of
from sfumato.guard.state import data_kept
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer

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


class Coupled(InputError):
    """What a user brings lets one unit reach another; no bound on one unit would hold."""


COUPLED = (
    "the examples of a batch are coupled there, and no bound on one example's gradient would hold; "
    "let it work on each example by itself, in the batch's order (attention, statistics, ranks and lengths over the "
    "batch do not; pack sequences with enforce_sorted=False)"
)


@dataclass(frozen=True)
class Tolerance:
    """How much of a difference is round-off.

    Attributes:
        relative: to the number itself.
        floor: to the largest one around it.
    """

    relative: float
    floor: float

    def holds(self, found: Tensor, expected: Tensor, scale: float) -> bool:
        """Whether numbers are the same, wherever there is one to compare with."""
        same = (found - expected).abs() <= self.relative * expected.abs() + self.floor * scale
        return bool((same | ~expected.isfinite()).all())


DOUBLE = Tolerance(1e-6, 1e-9)


SINGLE = Tolerance(1e-3, 1e-5)


HALF = Tolerance(5e-2, 1e-2)


SAME_SHAPE = Tolerance(1e-5, 1e-5)


@dataclass
class Trial:
    """A model, its loss, how it is covered, and what is known of its draws.

    Attributes:
        model: the user's module.
        losses: gives float [B], one loss for each example of a batch; calls the model.
        layers: from `covered`.
        tolerance: of the precision that it runs in.
        axes: of each random draw in turn, the dimension of the examples.
        draws: whether it draws random numbers.
        passes: how many there were; decides what is drawn for all examples together.
        apart: whether in the last pass examples had numbers of their own where they were to have them.
    """

    model: nn.Module
    losses: Losses
    layers: Sequence[Layer[Any]]
    tolerance: Tolerance
    axes: Sequence[int | None] = ()
    draws: bool = True
    passes: int = 0
    apart: bool = True

    def forward(self, batch: Any, *, outcome: int | Sequence[int] = 0) -> Tensor:
        """The losses of a batch, float [B].

        Raises:
            InputError: not one for each example.
        """
        examples = count_of(batch)
        with self.same_noise(examples, outcome=outcome) as noise:
            found = self.losses(widened(batch) if self.tolerance is DOUBLE else batch)
        self.apart = noise.apart
        if found.shape != (examples,):
            raise InputError(
                f"the loss must give one number for each example, [{examples}], got shape {list(found.shape)}; "
                "use reduction='none'"
            )
        return found

    @contextmanager
    def recorded(self, batch: Any, *, outcome: int = 0) -> Iterator[Recording]:
        """A recording of a batch, with its backward pass done."""
        with Recording(self.layers, examples=count_of(batch)) as recording:
            recording.backward(self.forward(batch, outcome=outcome))
        yield recording

    def same_noise(self, examples: int, *, outcome: int | Sequence[int] = 0) -> SameNoise:
        """The draws of the next pass."""
        self.passes += 1
        return SameNoise(examples, self.axes, outcome=outcome, number=self.passes, watch=self.draws)

    def norms(self, batch: Any, *, outcome: int = 0) -> Tensor:
        """The norm of each example's gradient in each parameter, float64 [B, parameters]."""
        with self.recorded(batch, outcome=outcome) as recording:
            squares = [recording.squared_norms([parameter]) for parameter in recording.parameters]
        return torch.stack([square.cpu().expand(count_of(batch)) for square in squares], dim=1).sqrt()
