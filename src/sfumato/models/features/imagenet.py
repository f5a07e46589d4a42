"""Features of pictures from a network that was trained on ImageNet: SqueezeNet's 512 pooled channels.

Pictures come as `sfumato.data.to_tensor` gives them, in [−1, 1); they are brought to [0, 1] and normalised by
ImageNet's mean and standard deviation, as the published weights expect. Grey ones get three equal channels. Pictures
whose shorter side is below 64 pixels are enlarged, bilinearly and by one factor for both sides, until it has 64.

The weights are public and stay as they are, so the features are a fixed public function of one picture. Who appears in
ImageNet is not protected by a guarantee about other records.

>>> features = ImageNetFeatures(squeezenet(None))
>>> features(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 512])
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato.models.backbones.squeezenet import SqueezeNet, squeezenet
from sfumato.models.layers.imagenet_colours import ImageNetColours
from sfumato.models.weights.pretrained import load_pretrained

SMALLEST = 64
"""Pixels of the shorter side, below which pictures are enlarged."""


class ImageNetFeatures(nn.Module):
    """A frozen network behind the input convention of its weights.

    Args:
        network: a `SqueezeNet` with `embedding_dim=None`, that reads three channels.
    """

    def __init__(self, network: SqueezeNet) -> None:
        super().__init__()
        self.network = network
        self.colours = ImageNetColours()

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, 1 or 3, H, W] in [−1, 1), to features, float [n, 512], >= 0.

        Raises:
            InputError: they are no pictures of one or three channels.
        """
        if pictures.ndim != 4 or pictures.shape[1] not in (1, 3):
            raise InputError(
                f"ImageNet features read pictures [n, 1 or 3, height, width], got {list(pictures.shape)}; "
                "other inputs have features='pixels'"
            )
        height, width = pictures.shape[2:]
        if min(height, width) < SMALLEST:
            factor = SMALLEST / min(height, width)
            size = (round(height * factor), round(width * factor))
            pictures = functional.interpolate(pictures, size, mode="bilinear", align_corners=False)
        return self.network(self.colours(pictures))


def imagenet_features(path: str | Path) -> ImageNetFeatures:
    """SqueezeNet with published weights, frozen.

    Args:
        path: a file of SqueezeNet 1.0 under torchvision's names.

    Raises:
        InputError: the file is missing or damaged, or of another network.
    """
    network = squeezenet(None, generator=torch.Generator().manual_seed(0))
    load_pretrained(network, path)
    return ImageNetFeatures(network).eval().requires_grad_(False)
