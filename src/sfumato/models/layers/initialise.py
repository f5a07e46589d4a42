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


def sequence_layers(model: nn.Module, generator: torch.Generator | None) -> None:
    """Normal embeddings with variance 1 / width, uniform LSTM weights within 1 / sqrt(hidden), zero biases, in place.

    Rows of length about one: longer ones, as torch draws them, drown the gradient of the layers above.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=layer.embedding_dim**-0.5, generator=generator)
        elif isinstance(layer, nn.RNNBase):
            for name, parameter in layer.named_parameters(recurse=False):
                if name.startswith("bias"):
                    nn.init.zeros_(parameter)
                else:
                    bound = layer.hidden_size**-0.5
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)
