"""What the layers of a recording share: memory, and tensors that a model computes once for all examples.

Where memory ran out, the same is tried with fewer examples.

>>> out_of_memory(RuntimeError("CUDA out of memory")), out_of_memory(RuntimeError("shapes differ"))
(True, False)

Memory is used again from layer to layer and from batch to batch: fresh memory of some megabytes is given to a process
page by page, and that costs more than filling it.

>>> space = Workspace()
>>> space.take("line", (2, 3), torch.zeros(1)).shape
torch.Size([2, 3])

What a model computes once for all examples is held once for each of them. Positions [T, D], relative places [T, T, H]
or a scale [D] are computed or kept without a dimension of the examples, and are broadcast over them later. The backward
pass would add the examples' gradients up there. A `Shared` tensor has the shape that the model expects, and holds [B,
*shape] behind it, so that each example's gradient stays its own. An operation on such tensors and on constants gives
another one, by `torch.vmap`. Where it meets a tensor with the examples in dimension 0 that it is broadcast against, it
takes the examples' dimension and is an ordinary tensor from there on.

A constant may have as many rows as there are examples, by chance. So each pass must decide as the passes before it did,
whose batches were of other sizes (`Decisions`).

>>> places = Shared(torch.ones(2, 3, 4), Decisions())       # [T, D] = [3, 4] for two examples
>>> tuple((2 * places).shape), type(2 * places).__name__
((3, 4), 'Shared')
>>> type(places + torch.zeros(2, 3, 4)).__name__
'Tensor'
"""

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from sfumato._check import InputError


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


ONCE = 0
"""In place of a number of rows: computed once for all examples."""


_SHOWN = (32 << 20) - (1 << 16)


class Workspace:
    """Scratch tensors by name; what `take` gave is overwritten by the next `take` of the same name.

    Attributes:
        turn: counts the recordings that have used it; the results of all but the last one may be overwritten.
        decisions: of what is shared by all examples, in this recording and in those before it.
        rows: rows for each example in a layer's call, by the call; `ONCE` where it is computed for all at once.
    """

    def __init__(self) -> None:
        # The allocator of Linux gives freed memory back above twice the largest block below 32 MiB that it has seen
        # freed, and every step would pay for fresh pages again. A block that is never touched shows it that size.
        torch.empty(_SHOWN, dtype=torch.uint8)
        self._held: dict[Hashable, Tensor] = {}
        self._results = 0
        self.turn = 0
        self.decisions = Decisions()
        self.rows: dict[Hashable, int] = {}

    def begin(self) -> int:
        """A new recording: what was kept for the one before may be overwritten. Gives its turn."""
        self._results = 0
        self.turn += 1
        self.decisions.begin()
        return self.turn

    def take(self, name: Hashable, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory of this shape, with the type and device of `like`."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = torch.empty(size, dtype=like.dtype, device=like.device)
        return held[:size].view(shape)

    def keep(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same for a result: not given out again before the next `begin`.

        The layers come in the same order each time, so the memory fits by the place in this order.
        """
        self._results += 1
        return self.take(self._results, shape, like)


_LOOKING_UP = (Tensor.__getitem__, torch.index_select, Tensor.index_select, torch.gather, Tensor.gather, F.embedding)
_STRETCHING = (Tensor.expand, Tensor.repeat, torch.broadcast_to, Tensor.broadcast_to)


class Decisions:
    """Where shared tensors took the dimension of the examples, in this pass and in those before it."""

    def __init__(self) -> None:
        self._so_far = 0  # a digest of this pass
        self._before: dict[int, int] = {}

    def begin(self) -> None:
        """A new pass."""
        self._so_far = 0

    def note(self, operation: tuple[object, ...], rows: int, examples: int) -> None:
        """How many rows each example has in what an operation met; 0 where it met no examples.

        Raises:
            InputError: an earlier pass did the same up to here, and met the examples otherwise.
        """
        if examples == 1:
            return
        here = hash((self._so_far, *operation))
        if self._before.setdefault(here, rows) != rows:
            raise InputError(
                f"a constant of the model has {examples} rows, as many as the examples at once or a multiple; set "
                f"micro_batch to less than {examples}"
            )
        self._so_far = hash((here, rows))


class Shared(Tensor):
    """A tensor of one value for all examples, each of which has a copy.

    Args:
        each: float [B, *shape], the copies.
        decisions: of the model's passes.
    """

    each: Tensor
    decisions: Decisions

    @staticmethod
    def __new__(cls, each: Tensor, decisions: Decisions) -> "Shared":
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, each.shape[1:], dtype=each.dtype, device=each.device, requires_grad=each.requires_grad
        )
        made.each, made.decisions = each, decisions
        return made

    def __init__(self, each: Tensor, decisions: Decisions) -> None:
        super().__init__()

    def __repr__(self) -> str:  # type: ignore[override]
        """Its shape; a tensor's own way would ask for numbers."""
        return f"Shared({tuple(self.each.shape[1:])} for {len(self.each)} examples)"

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any operation that has one among its arguments."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _ABOUT:
                return func(*args, **kwargs)
            leaves, form = tree_flatten((args, kwargs))
            places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Shared)]
            first: Shared = leaves[places[0]]
            rank, rows = _met(func, leaves, places, len(first.each))
            ranks = [leaf.dim() for leaf in leaves if isinstance(leaf, Tensor)]
            first.decisions.note((func, *ranks), rows, len(first.each))
            copies = [leaves[place].each for place in places]

            def run(*values: Tensor) -> Any:
                for place, value in zip(places, values, strict=True):
                    leaves[place] = value
                given, named = tree_unflatten(leaves, form)
                return func(*given, **named)

            if rank:
                return run(*(_with_examples(copy, rank, rows) for copy in copies))
            found = torch.vmap(run)(*copies)
        return tree_map(lambda leaf: cls(leaf, first.decisions) if isinstance(leaf, Tensor) else leaf, found)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """What gets past the way above would ask for numbers that this tensor does not have."""
        raise RuntimeError(f"{func} cannot be computed on what is shared by all examples")


_ABOUT = frozenset(
    {
        Tensor.size,
        Tensor.dim,
        Tensor.ndimension,
        Tensor.numel,
        Tensor.nelement,
        Tensor.__len__,
        Tensor.__repr__,
        Tensor.is_floating_point,
        Tensor.is_complex,
        Tensor.get_device,
        Tensor.stride,
        Tensor.is_contiguous,
        torch.numel,
        torch.is_floating_point,
        torch.is_complex,
        torch.is_tensor,
        *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout")),
        *(getattr(Tensor, name).__get__ for name in ("is_cuda", "is_sparse", "is_mps", "is_meta", "is_quantized")),
        *(getattr(Tensor, name).__get__ for name in ("is_nested", "is_cpu", "grad_fn", "is_leaf")),
    }
)
"""Properties of a tensor that do not depend on its numbers."""


def _met(func: Callable[..., Any], leaves: list[Any], places: list[int], examples: int) -> tuple[int, int]:
    """Dimensions of the tensor with the examples that an operation meets, and rows of each example; zeros for none."""
    others = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, Shared) and leaf.dim()]
    rank, rows = max((leaf.dim() for leaf in others if len(leaf) == examples), default=0), 1
    if func in _LOOKING_UP:  # ids are broadcast against nothing
        return 0, 0
    if func in _STRETCHING:
        sizes = [leaf for leaf in leaves if isinstance(leaf, int)]
        rank = len(sizes) if sizes and sizes[0] == examples else 0
    if not rank:  # examples joined with the dimension behind them; what needs a gradient here comes from examples
        joined = [leaf for leaf in others if leaf.requires_grad and len(leaf) and len(leaf) % examples == 0]
        rank = max((leaf.dim() for leaf in joined), default=0)
        rows = max((len(leaf) // examples for leaf in joined if leaf.dim() == rank), default=0)
    shapes = [tuple(leaves[place].shape) for place in places]
    if not rank or any(len(shape) > rank or (len(shape) == rank and shape[0] != 1) for shape in shapes):
        return 0, 0
    return rank, rows


def _with_examples(each: Tensor, rank: int, rows: int) -> Tensor:
    """The copies [B, *shape] with so many dimensions, the examples in dimension 0, each in so many rows."""
    shape = each.shape[1:] if each.dim() <= rank else each.shape[2:]
    whole = each.reshape(len(each), *[1] * (rank - 1 - len(shape)), *shape)
    return whole if rows == 1 else whole.repeat_interleave(rows, dim=0)
