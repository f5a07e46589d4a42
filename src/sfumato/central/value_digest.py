"""The digest of one value, as examples and losses hold them."""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor


def value_digest(value: Any) -> bytes | None:
    """SHA-256 of a tensor, an array, a number, text, bytes or None; None for anything else.

    >>> value_digest(1.0) == value_digest(1.0), value_digest(1.0) == value_digest(2.0), value_digest(object())
    (True, False, None)
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    elif hasattr(value, "__array__"):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        whole = hashlib.sha256(f"{value.dtype.str}{value.shape}".encode())
        whole.update(np.ascontiguousarray(value).data)
        return whole.digest()
    if isinstance(value, bool | int | float | complex | str | bytes | type(None)):
        return hashlib.sha256(repr(value).encode()).digest()
    return None
