"""LeNet-300-100: dense layers of 300 and 100 units with ReLU, one output a class.

A norm, if any, follows the two hidden layers, before the activation. 266,610 parameters for 28x28 images and ten
classes. No layer couples examples.

References:
    LeCun et al. (1998), section III.C.4. Davody et al. (2020), arXiv 2006.10919.

>>> model = lenet300_100()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(266610, torch.Size([2, 10]))
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import InputError, whole
from sfumato.models.layers.blocks import Normalisation, check_normalisation, has_bias, norm_after, with_public_inputs
from sfumato.models.layers.initialise import glorot


class LeNet300100(nn.Module):
    """Three dense layers; see `lenet300_100`."""

    def __init__(self, *, num_classes: int, in_features: int, normalisation: Normalisation) -> None:
        super().__init__()
        self.in_features = in_features
        bias = has_bias(normalisation)
        self.dense1 = nn.Linear(in_features, 300, bias=bias)
        self.norm1 = norm_after(300, normalisation)
        self.dense2 = nn.Linear(300, 100, bias=bias)
        self.norm2 = norm_after(100, normalisation)
        self.classifier = nn.Linear(100, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map float [n, ...] with `in_features` numbers an example to logits, float [n, num_classes]."""
        x = inputs.flatten(1)
        if x.shape[1] != self.in_features:
            raise InputError(
                f"this LeNet-300-100 reads {self.in_features} numbers an example, got {list(inputs.shape)}; "
                "build it with in_features=..."
            )
        x = functional.relu(self.norm1(self.dense1(x)))
        x = functional.relu(self.norm2(self.dense2(x)))
        return self.classifier(x)


def lenet300_100(
    num_classes: int = 10,
    in_features: int = 784,
    *,
    normalisation: Normalisation = "none",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> LeNet300100:
    """Build a LeNet-300-100 with Glorot-uniform weights and zero biases.

    Args:
        num_classes: outputs, >= 1.
        in_features: numbers in one example, >= 1.
        normalisation: "none", "layer", "group" or "public_batch".
        public_inputs: float [M, ...], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    whole(num_classes=num_classes, in_features=in_features)
    check_normalisation(normalisation)
    model = LeNet300100(num_classes=num_classes, in_features=in_features, normalisation=normalisation)
    glorot(model, generator)
    return with_public_inputs(model, normalisation, public_inputs)
