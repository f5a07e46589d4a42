"""Threads and precision of torch.

What norms and products are computed in.

>>> at_least_single(torch.ones(1, dtype=torch.bfloat16)).dtype, at_least_single(torch.ones(1).double()).dtype
(torch.float32, torch.float64)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def at_least_single(values: Tensor) -> Tensor:
    """At least single precision: what autocast or the model made half goes back to single."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


# Our threads share the cores, with one thread of torch in each.
#
# torch's own threads wait for each other by spinning, many times a second; and the number of them that a thread sets
# for itself would stay for threads that start later.


_LOCK = threading.Lock()


_inside: list[int] = []  # the number before the first of those that are open, once for each


@contextmanager
def one_thread_each() -> Iterator[None]:
    """One thread of torch in an operation; the number before is there again when the last of those open has ended."""
    with _LOCK:
        _inside.append(_inside[0] if _inside else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            before = _inside.pop()
            if not _inside:
                torch.set_num_threads(before)
