"""Backbones by name, for configuration files and the command line.

>>> backbone("lenet", embedding_dim=128, input_shape=(28, 28, 1))(torch.zeros(3, 1, 28, 28)).shape
torch.Size([3, 128])
>>> backbone("alexnet", embedding_dim=128, input_shape=(28, 28, 1))
Traceback (most recent call last):
...
sfumato._check.InputError: model must be one of lenet, mobilenet_v2, resnet18, resnet20, resnet50, \
squeezenet, mobilefacenet, got alexnet; or package.module:factory for a torch module of your own
"""

from collections.abc import Sequence

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato.models.backbones.lenet import lenet
from sfumato.models.backbones.mobilefacenet import mobilefacenet
from sfumato.models.backbones.mobilenet import mobilenet_v2
from sfumato.models.backbones.resnet import resnet18, resnet20, resnet50
from sfumato.models.backbones.squeezenet import squeezenet
from sfumato.models.layers.blocks import GroupOrNone, Stem

_CONVOLUTIONAL = {
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet50": resnet50,
}

BACKBONES = ("lenet", *_CONVOLUTIONAL, "squeezenet", "mobilefacenet")
"""The names that `backbone` knows."""

_SMALL = 64  # pixels: below it, a stem that shrinks the image by 4 leaves almost nothing to see


def backbone(
    name: str,
    *,
    embedding_dim: int,
    input_shape: Sequence[int],
    stem: Stem | None = None,
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Build a backbone that maps float [n, C, H, W] to embeddings, float [n, embedding_dim].

    Args:
        name: one of `BACKBONES`.
        embedding_dim: dimensions of the embedding, >= 1.
        input_shape: (height, width, channels) as a data set stores its images; (height, width) means grey.
        stem: "imagenet" or "small"; None takes "small" for images below 64 pixels. LeNet and MobileFaceNet have no
            choice.
        normalisation: "group", or "none" for weights with folded batch norm. LeNet, SqueezeNet and MobileFaceNet have
            none either way.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: the name is unknown, or the shape is not that of an image.
    """
    one_of(BACKBONES, model=name, remedy="or package.module:factory for a torch module of your own")
    if len(input_shape) not in (2, 3):
        raise InputError(
            f"{name} reads images of shape (height, width, channels), got input_shape={tuple(input_shape)}; "
            "for other data bring your own torch module"
        )
    height, width, channels = (*input_shape, 1)[:3]
    whole(height=height, width=width, channels=channels)
    if name == "lenet":
        return lenet(embedding_dim, channels, (height, width), generator=generator)
    if name == "mobilefacenet":
        return mobilefacenet(embedding_dim, channels, (height, width), generator=generator)
    if stem is None:
        stem = "small" if min(height, width) < _SMALL else "imagenet"
    if name == "squeezenet":
        return squeezenet(embedding_dim, channels, stem=stem, generator=generator)
    return _CONVOLUTIONAL[name](embedding_dim, channels, stem=stem, normalisation=normalisation, generator=generator)
