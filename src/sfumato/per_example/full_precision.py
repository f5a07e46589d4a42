"""Full single precision for norms and sums, whatever is switched on for the user's own model.

Autocast, or products that round their inputs to TensorFloat32 or bfloat16, are the user's choice for the model: there
they change a gradient, and the bound holds for the gradient as it is. In norms and clipped sums they would break the
bound by parts in a thousand. Convolutions on a GPU round in that way unless they are told not to; which of a batch they
take together depends on its size, so that a check which compares sizes needs them exact, too.

>>> with torch.autocast("cpu", torch.bfloat16), full_precision(torch.device("cpu")):
...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
torch.float32
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

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
