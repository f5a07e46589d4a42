"""Features of pictures by fixed public functions: pixels, HOG, scattering, a network trained on ImageNet.

**Histograms of oriented gradients** (HOG) show where edges are and which way they run, without anything to train.
Gradients are central differences without smoothing (zero at the picture's edge); of several channels each pixel takes
the one with the largest gradient. Each pixel votes with the gradient's magnitude for the two nearest of nine unsigned
orientations, 20° wide, whose centres lie at 10°, 30° … 170°; an angle between two centres is shared in proportion.
Votes are summed over square cells. Blocks of 2x2 cells, at a stride of one cell, are brought to length 1, cut off at
0.2 and brought to length 1 again (L2-Hys). Votes are not shared between neighbouring cells.

Which way along its axis an edge goes from dark to light does not count, nor does what is added to all pixels. A
picture's features depend on it alone.

>>> hog = HOG((1, 28, 28), cell=7)
>>> hog(torch.zeros(2, 1, 28, 28)).shape           # 3x3 blocks of 4 cells of 9 orientations
torch.Size([2, 324])

**By name or by module,** computed in batches: one row for each input, each by itself.

| name       | of                                        | features                                              |
| ---------- | ----------------------------------------- | ----------------------------------------------------- |
| pixels     | anything                                  | the numbers as they are, in one row                   |
| hog        | pictures                                  | 36 for each block of 2x2 cells, see `HOG`             |
| scattering | pictures                                  | 81 a channel for each 4x4 pixels, see `Scattering`    |

With `batch_size=1` a row is the same to the last bit whatever else is computed: matrix products and convolutions may
round differently by the size of a batch and the place in it.

>>> features_of("pixels", torch.tensor([[[0.5, 1.0]], [[2.0, 3.0]]])).tolist()
[[0.5, 1.0], [2.0, 3.0]]
>>> features_of("hog", torch.zeros(3, 1, 28, 28)).shape
(3, 1296)

**Colours** as networks that were trained on ImageNet expect them:

>>> ImageNetColours()(torch.zeros(1, 3, 2, 2))[0, :, 0, 0]
tensor([0.0655, 0.1964, 0.4178])

**ImageNet:** SqueezeNet's 512 pooled channels. Pictures come as `sfumato.data.to_tensor` gives them, in [−1, 1); they
are brought to [0, 1] and normalised by ImageNet's mean and standard deviation, as the published weights expect. Grey
ones get three equal channels. Pictures whose shorter side is below 64 pixels are enlarged, bilinearly and by one factor
for both sides, until it has 64.

The weights are public and stay as they are, so the features are a fixed public function of one picture. Who appears in
ImageNet is not protected by a guarantee about other records.

>>> features = ImageNetFeatures(squeezenet(None))
>>> features(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 512])

References:
    Dalal, Triggs: Histograms of Oriented Gradients for Human Detection (2005), section 6.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, one_of, whole
from sfumato.models.layers import check_shape, height_and_width
from sfumato.models.pretrained import load_pretrained
from sfumato.models.scatternet import Scattering
from sfumato.models.squeeze_net import SqueezeNet, squeezenet

_CUT = 0.2
_FLAT = 1e-3  # gradients far below this length are noise of a flat area and are not brought to length 1
_LARGE = 64


class HOG(nn.Module):
    """The features of pictures of one shape.

    Args:
        input_shape: (channels, height, width); both sides hold at least two cells.
        cell: side of a cell in pixels, >= 2; None takes 8, or 4 for pictures below 64 pixels. Pixels that fill no
            cell, on the right and below, are left out.
        orientations: bins of 180°, >= 2.

    Raises:
        InputError: a size is out of range.
    """

    def __init__(self, input_shape: tuple[int, int, int], *, cell: int | None = None, orientations: int = 9) -> None:
        super().__init__()
        channels, *size = input_shape
        cell = (8 if min(size) >= _LARGE else 4) if cell is None else cell
        whole(at_least=2, cell=cell, orientations=orientations)
        whole(channels=channels)
        height, width = height_and_width((size[0], size[1]), at_least=2 * cell)
        self.input_shape, self.cell, self.orientations = tuple(input_shape), cell, orientations
        self.cells = (height // cell, width // cell)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, C, H, W], to float [n, (rows − 1)(columns − 1) 4 orientations] in [0, 1]."""
        check_shape(pictures, self.input_shape, "HOG")
        found = self._histograms(*_gradients(pictures))
        blocks = torch.cat([found[..., :-1, :-1], found[..., :-1, 1:], found[..., 1:, :-1], found[..., 1:, 1:]], dim=1)
        blocks = _unit(_unit(blocks, _FLAT).clamp(max=_CUT), 1e-12)
        return blocks.permute(0, 2, 3, 1).flatten(1)

    def _histograms(self, across: Tensor, down: Tensor) -> Tensor:
        """The votes of each cell, [n, orientations, rows, columns]."""
        rows, columns = self.cells
        magnitude = torch.hypot(across, down)
        place = torch.atan2(down, across).remainder(math.pi) * (self.orientations / math.pi) - 0.5
        bins = []
        for centre in range(self.orientations):
            distance = (place - centre).abs()
            distance = torch.minimum(distance, self.orientations - distance)  # 180° is 0° again
            votes = magnitude * (1 - distance).clamp(min=0)
            votes = votes[:, : rows * self.cell, : columns * self.cell]
            bins.append(votes.reshape(-1, rows, self.cell, columns, self.cell).sum((2, 4)))
        return torch.stack(bins, dim=1)


def _gradients(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Differences to the right and downward, [n, H, W] each, of the channel where they are longest."""
    across, down = torch.zeros_like(pictures), torch.zeros_like(pictures)
    across[..., 1:-1] = pictures[..., 2:] - pictures[..., :-2]
    down[..., 1:-1, :] = pictures[..., 2:, :] - pictures[..., :-2, :]
    longest = (across.square() + down.square()).argmax(dim=1, keepdim=True)
    return across.gather(1, longest)[:, 0], down.gather(1, longest)[:, 0]


def _unit(blocks: Tensor, flat: float) -> Tensor:
    return blocks / (blocks.square().sum(dim=1, keepdim=True) + flat**2).sqrt()


FEATURES = ("pixels", "hog", "scattering")
"""The names that `feature_extractor` knows."""


def feature_extractor(name: str, input_shape: Sequence[int]) -> nn.Module:
    """A fixed module that maps inputs to features.

    Args:
        name: one of `FEATURES`.
        input_shape: of one input as a model gets it: (channels, height, width) of pictures.

    Raises:
        InputError: the name is unknown, or the shape is not that of a picture, or too small.
    """
    one_of(FEATURES, features=name, remedy="or give a module whose weights are public")
    if name == "pixels":
        return nn.Flatten()
    if len(input_shape) != 3:
        raise InputError(
            f"features={name!r} are of pictures (channels, height, width), got inputs of shape {tuple(input_shape)}; "
            "take features='pixels', or a module of your own"
        )
    channels, height, width = input_shape
    if name == "hog":
        return HOG((channels, height, width))
    return nn.Sequential(Scattering(channels, (height, width)), nn.Flatten())


def features_of(
    features: str | nn.Module, inputs: Tensor, *, batch_size: int = 1, device: torch.device | str = "cpu"
) -> np.ndarray:
    """Features of all inputs, without a graph, of the module in evaluation mode.

    Args:
        features: a name of `FEATURES`, or a module that maps [n, *input_shape] to [n, …].
        inputs: [n, *input_shape], as `sfumato.data.to_tensor` gives them.
        batch_size: inputs at once, >= 1.
        device: where the module lies.

    Returns:
        float32 [n, features].

    Raises:
        InputError: an unknown name, or a module that does not give a row an input.
    """
    whole(batch_size=batch_size)
    module = feature_extractor(features, inputs.shape[1:]) if isinstance(features, str) else features
    was_training = module.training
    module.eval()
    found = None
    try:
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                batch = inputs[start : start + batch_size].to(device)
                rows = module(batch)
                if not isinstance(rows, Tensor) or rows.ndim < 1 or len(rows) != len(batch):
                    given = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
                    raise InputError(f"features must be one row an input, [{len(batch)}, features], got {given}")
                rows = rows.reshape(len(batch), -1).float().cpu()
                if found is None:
                    found = torch.empty(len(inputs), rows.shape[1])
                found[start : start + len(batch)] = rows
    finally:
        module.train(was_training)
    return np.zeros((0, 0), np.float32) if found is None else found.numpy()


_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageNetColours(nn.Module):
    """From [−1, 1), as `sfumato.data.to_tensor` gives pictures, to [0, 1] less ImageNet's mean, by its deviation.

    A fixed function of each picture, without parameters; its constants are not stored with a model's weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(_DEVIATION)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, float [n, 1 or 3, H, W] in [−1, 1), to float [n, 3, H, W]; grey ones to three channels."""
        return ((pictures + 1) / 2 - self.get_buffer("mean")) / self.get_buffer("deviation")


SMALLEST = 64
"""Pixels of the shorter side, below which pictures are enlarged."""


class ImageNetFeatures(nn.Module):
    """A frozen network that converts pictures to the input convention of its weights.

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
