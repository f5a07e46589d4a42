"""Random flips and crops of pictures, each drawn for its example alone.

What an example gets is a function of a key, its place in the data set and the number of the copy: neither the size of
a micro-batch nor the number of processes nor anybody else's presence changes it. Shapes stay as they are.

>>> images = torch.arange(8.0).view(1, 1, 1, 8).expand(2, 1, 8, 8)
>>> both = augmented(images, np.array([3, 4]), kind="flip", key=1, copy=0)
>>> both[:, 0, 0].tolist()
[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]]
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError
from sfumato._mixing import mixed_bits

Augmentation = Literal["none", "flip", "crop_flip"]

_MARGIN = 4  # pixels that a crop may move by, as for CIFAR-10 (De et al. 2022)


def refuse_unfit(kind: Augmentation, inputs: tuple[Tensor, ...]) -> None:
    """Refuse to augment what are no pictures.

    Raises:
        InputError: with what to use.
    """
    if kind == "none":
        return
    if len(inputs) != 1 or inputs[0].dim() != 4 or not inputs[0].is_floating_point():
        shapes = " and ".join(str(tuple(each.shape[1:])) for each in inputs)
        raise InputError(f"augmentation {kind} is for pictures, got inputs of shape {shapes}; use augmentation=none")
    if kind == "crop_flip" and min(inputs[0].shape[2:]) <= _MARGIN:
        height, width = inputs[0].shape[2:]
        raise InputError(f"pictures of {height}×{width} are too small to crop; use augmentation=flip")


def augmented(images: Tensor, examples: np.ndarray, *, kind: Augmentation, key: int, copy: int) -> Tensor:
    """One augmentation of each picture.

    Args:
        images: float [n, C, H, W].
        examples: int64 [n], places in the data set.
        kind: "flip" left and right with probability ½; "crop_flip" also moves by up to 4 pixels, edges mirrored.
        key: of the round.
        copy: which of several augmentations.
    """
    if kind == "none":
        return images
    bits = mixed_bits(examples, key, copy)
    device, (height, width) = images.device, images.shape[2:]
    flip = torch.from_numpy((bits & np.uint64(1)).astype(bool)).to(device)
    columns = torch.arange(width, device=device)
    columns = torch.where(flip[:, None], columns.flip(0), columns)
    rows = torch.arange(height, device=device).expand(len(images), height)
    if kind == "crop_flip":
        moves = np.uint64(2 * _MARGIN + 1)
        down = torch.from_numpy(((bits >> np.uint64(1)) % moves).astype(np.int64)).to(device)
        right = torch.from_numpy(((bits >> np.uint64(32)) % moves).astype(np.int64)).to(device)
        images = functional.pad(images, [_MARGIN] * 4, mode="reflect")
        rows, columns = rows + down[:, None], columns + right[:, None]
    each = torch.arange(len(images), device=device)
    # Indices on both sides of a slice put it last: [n, H, W, C], which is torch's channels_last.
    return images[each[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
