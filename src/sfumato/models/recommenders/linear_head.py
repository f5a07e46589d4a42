"""A linear layer on frozen features whose bias is each user's own: the smallest model with a local part.

>>> model = linear_head(512, 10)
>>> model(torch.zeros(2, 512)).shape, model.local_parameters
(torch.Size([2, 10]), 'head.bias')
"""

import torch
from torch import nn

from sfumato._check import whole
from sfumato.models.layers.initialise import glorot


class LinearHead(nn.Module):
    """Features to logits; see `linear_head`.

    Attributes:
        local_parameters: fullmatches the names of what is a user's own.
        row_tables: there are none.
    """

    def __init__(self, *, features: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes)
        self.local_parameters = "head.bias"
        self.row_tables: dict[str, int] = {}

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map float [n, features] to logits, float [n, classes]."""
        return self.head(features)


def linear_head(features: int, classes: int, *, generator: torch.Generator | None = None) -> LinearHead:
    """Build a linear layer with Glorot-uniform weights, which all users share, and a bias of zeros, which is local.

    Args:
        features: numbers an example, >= 1.
        classes: outputs, >= 1.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    whole(features=features, classes=classes)
    model = LinearHead(features=features, classes=classes)
    glorot(model, generator)
    return model
