"""Initial weights that come from one explicit generator, whatever the layers drew when they were built."""

import torch
from torch import nn


def glorot(model: nn.Module, generator: torch.Generator | None) -> None:
    """Glorot-uniform weights and zero biases in convolutions and dense layers, in place (Keras' default)."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def he(model: nn.Module, generator: torch.Generator | None) -> None:
    """He-normal convolutions (by fan-out) and Glorot-uniform dense layers, zero biases, in place."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
