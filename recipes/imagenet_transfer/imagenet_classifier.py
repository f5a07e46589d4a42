"""SqueezeNet as a classifier of pictures of any size: enlarged, normalised as its weights expect, one linear layer.

The pooled channels are normalised for each picture by itself (layer norm without weights), so all pictures come to the
last layer with the same norm, whatever the data. Nothing couples the pictures of a batch.
"""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from sfumato import models
from sfumato.models.trainable import Stage, renamed

CHANNELS = 512


class Enlarged(nn.Module):
    """Pictures as `sfumato.data.to_tensor` gives them → `side` pixels, three colours, ImageNet's mean and deviation.

    Args:
        side: pixels of a side of what comes out.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side
        self.colours = models.ImageNetColours()

    def forward(self, pictures: Tensor) -> Tensor:
        """Map float [n, 1 or 3, H, W] in [−1, 1) to float [n, 3, side, side]."""
        large = functional.interpolate(pictures, (self.side, self.side), mode="bilinear", align_corners=False)
        return self.colours(large)


class ImageNetClassifier(nn.Module):
    """Enlarged pictures, SqueezeNet's 512 pooled channels, layer norm, a linear layer.

    Args:
        num_classes: outputs.
        side: pixels of a side that the network sees.
    """

    def __init__(self, num_classes: int, side: int) -> None:
        super().__init__()
        self.inputs = Enlarged(side)
        self.trunk = models.squeezenet(None)
        self.norm = nn.LayerNorm(CHANNELS, elementwise_affine=False)
        self.head = nn.Linear(CHANNELS, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, 1 or 3, H, W] in [−1, 1), to logits, float [n, num_classes]."""
        return self.head(self.norm(self.trunk(self.inputs(pictures))))

    def stages(self) -> tuple[Stage, ...]:
        """Enlarging, the trunk's layers, norm, the linear layer."""
        return (
            Stage("inputs", ("inputs",)),
            *renamed(self.trunk.stages(), "trunk"),
            Stage("norm", ("norm",)),
            Stage("head", ("head",)),
        )


def imagenet_classifier(num_classes: int, side: int, weights: Path | None) -> ImageNetClassifier:
    """A fresh classifier; its trunk from a file of published weights, or random without one.

    Raises:
        InputError: the file is missing or damaged, or of another network.
    """
    model = ImageNetClassifier(num_classes, side)
    if weights is not None:
        models.load_pretrained(model.trunk, weights)
    return model
