"""How many examples go through the model at once: measured against a memory budget, and less when memory runs out.

It changes what a step costs in time and memory, and no result beyond float round-off, unless the model draws random
numbers: it draws for a micro-batch at a time. Then a run keeps the size that it began with.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from sfumato.central.live_memory import LiveMemory

_SAFETY = 3.5  # on a GPU
_MOMENTS = 4.5  # on a CPU, for what is alive for a moment only: gradients on their way, scratch memory
_SCATTERED = 1.5  # what the allocator takes for tensors of many sizes
_CPU_BUDGET = 1 << 29
_LARGEST = 4096  # beyond it nothing gets faster


def default_budget(device: torch.device) -> int:
    """Bytes for a micro-batch: half of the free memory of a GPU, 512 MiB on a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return _CPU_BUDGET


def suggested(bytes_per_example: int, budget: int) -> int:
    """The micro-batch that fits, at least 1.

    >>> suggested(1 << 20, 1 << 28)
    256
    """
    return max(1, min(_LARGEST, budget // max(1, bytes_per_example)))


def measured(run: Callable[[int, AbstractContextManager[Any]], int], device: torch.device) -> int:
    """Bytes that one example takes in a forward and backward pass.

    Args:
        run: puts so many examples through, with its forward pass within the context that it is given; gives the bytes
            that are held in the end for the clipped sum.
        device: where it runs.
    """
    if device.type == "cuda":
        peaks = []
        for count in (2, 4):
            torch.cuda.reset_peak_memory_stats(device)
            run(count, nullcontext())
            peaks.append(torch.cuda.max_memory_allocated(device))
        return int(max(1, peaks[1] - peaks[0]) / 2 * _SAFETY)
    totals, peaks = [], []
    for count in (1, 3):
        seen: dict[int, int] = {}

        def pack(tensor: Tensor, seen: dict[int, int] = seen) -> Tensor:
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        # The backward pass stays outside: layers that are run again there, vectorised, bear no such hooks.
        live = LiveMemory()
        held = run(count, _both(live, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)))
        totals.append(sum(seen.values()) + held)
        peaks.append(live.peak)
    kept, alive = totals[1] - totals[0], peaks[1] - peaks[0]  # the difference: parameters are in both
    # A part without gradients keeps nothing for the backward pass, and may still take the most.
    return int(max(1, kept * _MOMENTS, alive * _SCATTERED) / 2)


@contextmanager
def _both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield
