"""How a vector is made of parameters, one after the other.

>>> layout = Layout(names=("weight", "bias"), shapes=(torch.Size([2, 3]), torch.Size([2])))
>>> layout.size, [tuple(view.shape) for view in layout.views(torch.zeros(8))]
(8, [(2, 3), (2,)])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters in the vector's order.

    Attributes:
        names: of the parameters.
        shapes: of the parameters.
    """

    names: Sequence[str]
    shapes: Sequence[torch.Size]

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each parameter has."""
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.sizes)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector [..., size] in the parameters' shapes [..., *shape]."""
        pieces = vector.split(self.sizes, dim=-1)
        return [piece.view((*vector.shape[:-1], *shape)) for piece, shape in zip(pieces, self.shapes, strict=True)]
