"""A linear classifier on scattering features: few parameters, good features, strong private accuracy on small images.

Features are normalised before the linear layer: by group norm without scale and shift (27 groups of 3 channels for grey
images), by the mean and variance of public images in each channel, or not at all. None of them looks at private
examples, so nothing but the linear layer is released. The model takes images in [-1, 1), or features that
`model.features(images)` has computed before; a data set's features may be kept, as they never change. 39,700
parameters for 28x28 images and ten classes. No layer couples examples.

References:
    Tramer, Boneh (2021), arXiv 2011.11660, section 2.2 and appendix C.

>>> model = scatternet_linear()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(39700, torch.Size([2, 10]))
>>> features = model.features(torch.zeros(2, 1, 28, 28))
>>> features.shape, model(features).shape
(torch.Size([2, 81, 7, 7]), torch.Size([2, 10]))
"""

from typing import Literal

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers.blocks import check_normalisation, check_shape
from sfumato.models.layers.initialise import glorot
from sfumato.models.layers.public_batch_norm import PublicBatchNorm, refresh_statistics
from sfumato.models.layers.scattering import Scattering, scattering

_EPS = 1e-6  # below the variance of the faint paths of order two, about 1e-5 for images in [0, 1]
_GROUP = 3  # channels in a group: 27 groups for grey images, as in the paper's MNIST runs


class ScatterLinear(nn.Module):
    """Scattering, normalisation, linear layer; see `scatternet_linear`."""

    def __init__(self, *, num_classes: int, transform: Scattering, norm: nn.Module) -> None:
        super().__init__()
        self.transform = transform
        self.norm = norm
        channels, height, width = transform.feature_shape
        self.classifier = nn.Linear(channels * height * width, num_classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Map images in [-1, 1), float [n, C, H, W], to features, float [n, 81 C, h, w], without a graph."""
        check_shape(images, self.transform.input_shape, "scattering classifier")
        scales, orientations = self.transform.scales, self.transform.orientations
        return scattering((images + 1) / 2, scales=scales, orientations=orientations)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images or their features to logits, float [n, num_classes]."""
        if inputs.shape[1:] != self.transform.feature_shape:
            check_shape(inputs, self.transform.input_shape, "scattering classifier")
            with torch.no_grad():
                inputs = self.transform((inputs + 1) / 2)
        return self.classifier(self.norm(inputs).flatten(1))


def scatternet_linear(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    *,
    scales: int = 2,
    orientations: int = 8,
    normalisation: Literal["none", "group", "public_batch"] = "group",
    groups: int | None = None,
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ScatterLinear:
    """Build a linear classifier on scattering features, with Glorot-uniform weights.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        image_size: height and width of the images in pixels, >= 2^(scales + 1); one number means square.
        scales: J >= 1; features are sampled every 2^J pixels.
        orientations: L >= 1.
        normalisation: "group", "public_batch" (mean and variance of public images in each channel) or "none".
        groups: of the group norm, a divisor of the channels; None takes groups of 3 where they divide the channels.
        public_inputs: float [M, C, H, W] in [-1, 1) or their features, for "public_batch".
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is out of range, a choice is unknown, or public inputs and normalisation do not go together.
    """
    whole(num_classes=num_classes)
    check_normalisation(normalisation, ("none", "group", "public_batch"))
    transform = Scattering(in_channels, image_size, scales=scales, orientations=orientations)
    channels = transform.feature_shape[0]
    norm: nn.Module = nn.Identity()
    if normalisation == "group":
        count = groups if groups is not None else next(channels // size for size in (_GROUP, 1) if channels % size == 0)
        whole(groups=count)
        if channels % count:
            raise InputError(f"groups must divide the {channels} channels of the features, got {count}")
        norm = nn.GroupNorm(count, channels, eps=_EPS, affine=False)
    elif normalisation == "public_batch":
        norm = PublicBatchNorm(channels, affine=False, eps=_EPS)
    model = ScatterLinear(num_classes=num_classes, transform=transform, norm=norm)
    glorot(model, generator)
    if public_inputs is not None:
        if normalisation != "public_batch":
            raise InputError(
                f"public_inputs go with normalisation='public_batch', got normalisation={normalisation!r}; "
                "leave them out"
            )
        refresh_statistics(model, public_inputs)  # once: nothing before this layer is trained
    return model
