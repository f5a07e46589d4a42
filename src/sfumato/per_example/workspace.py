"""Memory that is used again from layer to layer, and whether memory ran out.

Whether memory ran out: then the same is tried with fewer examples.

>>> out_of_memory(RuntimeError("CUDA out of memory")), out_of_memory(RuntimeError("shapes differ"))
(True, False)

Memory that is used again from layer to layer and from batch to batch.

Fresh memory of some megabytes is given to a process page by page, and that costs more than filling it.

>>> space = Workspace()
>>> space.take("line", (2, 3), torch.zeros(1)).shape
torch.Size([2, 3])
"""

import math
from collections.abc import Hashable

import torch
from torch import Tensor

from sfumato.per_example.shared import Decisions


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    told = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in told or "out of memory" in told)


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
        self._kept = 0
        self.turn = 0
        self.decisions = Decisions()
        self.rows: dict[Hashable, int] = {}

    def begin(self) -> int:
        """A new recording: what was kept for the one before may be overwritten. Gives its turn."""
        self._kept = 0
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
        self._kept += 1
        return self.take(self._kept, shape, like)
