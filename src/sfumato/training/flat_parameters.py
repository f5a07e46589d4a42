"""Trainable parameters as one vector, so that copying, subtracting and clipping a model are single operations.

The vector belongs to a copy of the user's module whose trainable parameters are views of it; the user's own module
is never touched.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatParameters:
    """A float vector and the parameters that are views of it.

    Attributes:
        vector: float [size], all parameters one after the other.
        names: their names, in the vector's order.
        parameters: the parameters, each a view of `vector`.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.views(self.vector), strict=True):
            parameter.data = view

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector [..., size] in the parameters' shapes [..., *shape]."""
        pieces = vector.split([parameter.numel() for parameter in self.parameters], dim=-1)
        return [
            piece.view(*vector.shape[:-1], *parameter.shape)
            for piece, parameter in zip(pieces, self.parameters, strict=True)
        ]
