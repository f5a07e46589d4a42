"""ResNet-18 and ResNet-20 as classifiers: the backbones of `sfumato.models.backbones.resnet` with one output a class.

The dense layer that gives the embedding gives the logits; it keeps its name, so that published weights of a ResNet-18
can be loaded under any classifier (`load_pretrained`). Norms are group norm unless another one is asked for; layer and
public batch norm take its place after each convolution. Neither couples examples.

References:
    He et al. (2015), arXiv 1512.03385. Wu, He (2018), arXiv 1803.08494. Davody et al. (2020), arXiv 2006.10919.

>>> model = resnet20_classifier()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
(272474, torch.Size([2, 10]))
>>> sum(parameter.numel() for parameter in resnet18_classifier().parameters())
11173962
"""

import torch

from sfumato.models.backbones.resnet import ResNet
from sfumato.models.layers.blocks import Normalisation, Stem, check_normalisation, with_public_inputs
from sfumato.models.layers.initialise import he


def resnet18_classifier(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: Normalisation = "group",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ResNet:
    """Build a ResNet-18 classifier.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        stem: "imagenet" for photographs, "small" for images below 64 pixels.
        normalisation: "group", "layer", "public_batch" or "none".
        public_inputs: float [M, C, H, W], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    depths = (2, 2, 2, 2)
    return _build(depths, 64, 32, num_classes, in_channels, stem, normalisation, public_inputs, generator)


def resnet20_classifier(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: Normalisation = "group",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ResNet:
    """Build a ResNet-20 classifier for images of about 32 pixels.

    Arguments and errors as `resnet18_classifier`.
    """
    depths = (3, 3, 3)
    return _build(depths, 16, 8, num_classes, in_channels, stem, normalisation, public_inputs, generator)


def _build(
    depths: tuple[int, ...],
    width: int,
    groups: int,
    num_classes: int,
    in_channels: int,
    stem: Stem,
    normalisation: Normalisation,
    public_inputs: torch.Tensor | None,
    generator: torch.Generator | None,
) -> ResNet:
    check_normalisation(normalisation)
    model = ResNet(
        depths=depths,
        width=width,
        bottleneck=False,
        groups=groups,
        embedding_dim=num_classes,
        in_channels=in_channels,
        stem=stem,
        normalisation=normalisation,
    )
    he(model, generator)
    return with_public_inputs(model, normalisation, public_inputs)
