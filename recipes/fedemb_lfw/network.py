"""The recipe's embedding as one network: from a picture to whitened channels and the residual layer behind them.

`faces` computes all of it but the last layer once, since nothing before is trained there. Here any of it can be.
"""

from pathlib import Path

import torch
from cells import SHARED
from faces import Residual, whitening
from torch import Tensor, nn

from sfumato import models
from sfumato.models.trainable import Stage, renamed


class Whitening(nn.Module):
    """Less a mean, on axes: a fixed linear map.

    Args:
        mean: float [d].
        axes: float [d, k].
    """

    def __init__(self, mean: Tensor, axes: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("axes", axes)

    def forward(self, channels: Tensor) -> Tensor:
        """Map float [n, d] to float [n, k]."""
        return (channels - self.get_buffer("mean")) @ self.get_buffer("axes")


class Network(nn.Module):
    """SqueezeNet's pooled channels, whitened, and x + W x; begins as the public backbone."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        folder = folder or SHARED
        self.colours = models.ImageNetColours()
        self.trunk = models.squeezenet(None)
        models.load_pretrained(self.trunk, folder / "squeezenet1_0_imagenet.safetensors")
        self.whitening = Whitening(*(torch.from_numpy(each).float().contiguous() for each in whitening(folder)))
        self.residual = Residual()

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, 3, 112, 112] in [−1, 1), to embeddings, float [n, AXES]."""
        return self.residual(self.whitening(self.trunk(self.colours(pictures))))

    def stages(self) -> tuple[Stage, ...]:
        """Colours, the trunk's layers, whitening, the residual layer."""
        return (
            Stage("colours", ("colours",)),
            *renamed(self.trunk.stages(), "trunk"),
            Stage("whitening", ("whitening",)),
            Stage("residual", ("residual",)),
        )
