"""Memory that is used again from layer to layer: a fresh allocation of some megabytes costs more than filling it.

>>> space = Workspace()
>>> space.take("line", (2, 3), torch.zeros(1)).shape
torch.Size([2, 3])
"""

import math

import torch
from torch import Tensor


class Workspace:
    """Scratch tensors by name; what `take` gave is overwritten by the next `take` of the same name."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory of this shape, with the type and device of `like`."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = torch.empty(size, dtype=like.dtype, device=like.device)
        return held[:size].view(shape)
