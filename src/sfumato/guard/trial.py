"""The conditions of a trial of a user's model: shaken weights, equal random numbers, double precision.

Nothing of the model may change, and all is put back afterwards. Layers that start at zero (a last layer, the scale of a
residual block) stop every gradient before them, and would hide what happens there. So weights are `shaken` for the time
of a check: each gets Gaussian noise of a tenth of the parameter's own size, and 0.01.

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

Two passes can be compared where an example meets the same random numbers alone and among others. Within `SameNoise` a
draw is made once, from one seed, for one place along the dimension of the examples, and every place gets these numbers;
the seed depends only on how many draws came before. So dropout and sampled noise are at work, and an example by itself
meets the same numbers as in any batch. What is drawn for all examples together differs from pass to pass, as it differs
for an example when others come or go. Random generators are left as they were.

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

A model and its loss run in double precision, whatever they ask for, so that round-off hides no coupling. In half
precision, a pass cannot distinguish a coupling of some percent from round-off; in single precision one of a part in a
thousand may be hidden, and a thousand examples add up. Within `in_double` parameters and buffers are in double
precision, and so is all that the model computes: autocast is off, and what asks for another precision gets this one.

>>> layer = nn.Linear(1, 1)
>>> with in_double(layer), torch.autocast("cpu", torch.bfloat16):
...     layer(torch.ones(1, 1).float()).dtype
torch.float64
>>> layer(torch.ones(1, 1)).dtype
torch.float32
"""

import copy
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, FunctionType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sfumato._check import InputError
from sfumato.guard.placeholders import count_of
from sfumato.models import PublicBatchNorm
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer

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
def data_restored(model: nn.Module) -> Iterator[list[Tensor]]:
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
            f"{changed[0]!r} changes when examples go through the model, and would be released without noise; "
            "keep no statistics, counts or other state of examples"
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


_TORCH_ATTRIBUTES = frozenset(vars(nn.Module()))  # parameters, buffers, parts, hooks, and the mode
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
            now, left_alone = vars(part), _left_alone(part)
            for name in [name for name in now if name not in plain and name not in left_alone]:
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
    return _TORCH_ATTRIBUTES | ({"forward", "dropout"} if inner else {"forward"})


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
        separate: False once there was a draw in which examples could not get different numbers, as they have to.
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
        self.separate = True

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
        self.separate &= len(outcomes) == 1 or (axis is not None and shape is not None and len(outcomes) == shape[axis])
        if axis is None or shape is None:
            torch.manual_seed(_mixed(outcomes[0], place, self._number + 1))
            return func(*args, **kwargs)
        if len(outcomes) > 1 and self.separate:
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
        its_args, its_kwargs = _at((args, kwargs), index, shape, axis)
        parts.append(func(*its_args, **its_kwargs))
    return _joined(func, args, parts, axis)


def _for_each_place(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...], axis: int, seeds: Sequence[int]
) -> Any:
    """Draw for each place along a dimension what it gets alone."""
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = []
    for index, seed in enumerate(seeds):
        its_args, its_kwargs = _at((args, kwargs), index, shape, axis)
        parts.append(_for_one_place(func, its_args, its_kwargs, one, axis, seed))
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
        with data_restored(model) as tensors:
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
    with data_restored(model) as tensors:
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
    "the examples of a batch are coupled there; let it work on each example by itself, in the batch's order (no batch "
    "statistics or attention; enforce_sorted=False)"
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
        separate: whether in the last pass examples had numbers of their own where they were to have them.
    """

    model: nn.Module
    losses: Losses
    layers: Sequence[Layer[Any]]
    tolerance: Tolerance
    axes: Sequence[int | None] = ()
    draws: bool = True
    passes: int = 0
    separate: bool = True

    def forward(self, batch: Any, *, outcome: int | Sequence[int] = 0) -> Tensor:
        """The losses of a batch, float [B].

        Raises:
            InputError: not one for each example.
        """
        examples = count_of(batch)
        with self.same_noise(examples, outcome=outcome) as noise:
            found = self.losses(widened(batch) if self.tolerance is DOUBLE else batch)
        self.separate = noise.separate
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
