"""Threads and precision of torch: norms, products and sums in single precision or more.

>>> at_least_single(torch.ones(1, dtype=torch.bfloat16)).dtype, at_least_single(torch.ones(1).double()).dtype
(torch.float32, torch.float64)

Norms and sums have full single precision, whatever is switched on for the user's own model: autocast, or products that
round their inputs to TensorFloat32 or bfloat16, are the user's choice for the model: there they change a gradient, and
the bound holds for the gradient as it is. In norms and clipped sums they would break the bound by parts in a thousand.
Convolutions on a GPU round in that way unless that is turned off; which of a batch they take together depends on its
size, so that a check which compares sizes needs them exact, too.

>>> with torch.autocast("cpu", torch.bfloat16), full_precision(torch.device("cpu")):
...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
torch.float32
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


_KINDS = [
    ("cuda", "matmul"),
    *((name, kind) for name in ("cudnn", "mkldnn") for kind in ("conv", "rnn")),
    ("mkldnn", "matmul"),
]


def _found(name: str, kind: str) -> Any:
    return getattr(getattr(torch.backends, name), kind, None)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """A context for products and convolutions on this device; settings are as they were afterwards."""
    backends = [_found(name, kind) for name, kind in _KINDS]
    if not all(hasattr(backend, "fp32_precision") for backend in backends):  # torch before 2.9
        before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        try:
            with torch.autocast(device.type, enabled=False):
                yield
        finally:
            torch.set_float32_matmul_precision(before)
            torch.backends.cudnn.allow_tf32 = convolutions
        return
    settings = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for backend, setting in zip(backends, settings, strict=True):
            backend.fp32_precision = setting
