"""Full single precision for norms and sums, whatever is switched on for the user's own model.

Autocast, or matrix products that round their inputs to TensorFloat32 or bfloat16, are the user's choice for the model:
there they change a gradient, and the bound holds for the gradient as it is. In norms and clipped sums they would break
the bound by parts in a thousand.

>>> with torch.autocast("cpu", torch.bfloat16), full_precision(torch.device("cpu")):
...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
torch.float32
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """A context for matrix products on this device; settings are as they were afterwards."""
    backends: list[Any] = [getattr(getattr(torch.backends, name), "matmul", None) for name in ("cuda", "mkldnn")]
    if not all(hasattr(backend, "fp32_precision") for backend in backends):  # torch before 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.autocast(device.type, enabled=False):
                yield
        finally:
            torch.set_float32_matmul_precision(before)
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
