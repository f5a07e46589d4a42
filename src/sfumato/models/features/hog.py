"""Histograms of oriented gradients (HOG): where edges are and which way they run, without anything to train.

Gradients are central differences without smoothing (zero at the picture's edge); of several channels each pixel takes
the one with the largest gradient. Each pixel votes with the gradient's magnitude for the two nearest of nine unsigned
orientations, 20° wide, whose centres lie at 10°, 30° … 170°; an angle between two centres is shared in proportion.
Votes are summed over square cells. Blocks of 2x2 cells, one cell apart, are brought to length 1, cut off at 0.2 and
brought to length 1 again (L2-Hys). Votes are not shared between neighbouring cells.

Which way along its axis an edge goes from dark to light does not count, nor does what is added to all pixels. A
picture's features depend on it alone.

References:
    Dalal, Triggs: Histograms of Oriented Gradients for Human Detection (2005), section 6.

>>> hog = HOG((1, 28, 28), cell=7)
>>> hog(torch.zeros(2, 1, 28, 28)).shape           # 3x3 blocks of 4 cells of 9 orientations
torch.Size([2, 324])
"""

import math

import torch
from torch import Tensor, nn

from sfumato._check import whole
from sfumato.models.layers.blocks import check_shape, height_and_width

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
            apart = (place - centre).abs()
            apart = torch.minimum(apart, self.orientations - apart)  # 180° is 0° again
            votes = magnitude * (1 - apart).clamp(min=0)
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
