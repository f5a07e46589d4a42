"""Normal numbers of a stream, added to a tensor wherever it is: on the processor, on a GPU, or on another device."""

import torch
from torch import Tensor

from sfumato._random import Stream

_PIECE = 1 << 24  # numbers on their way to another device at a time


def add_normals(flat: Tensor, stream: Stream, *, std: float, threads: int) -> None:
    """Add std × the stream's next normal numbers to float [n], contiguous, in place; threads change nothing."""
    if flat.device.type == "cpu":
        stream.add_normal(flat.numpy(), std=std, threads=threads)
    elif flat.device.type == "cuda":
        stream.add_normal_on_device(flat, std=std, threads=threads)
    else:  # a device without double precision
        for piece in flat.split(_PIECE):  # no second vector of the model's size
            noise = stream.normal(len(piece), threads=threads)
            piece.add_(torch.from_numpy(noise).to(piece.device), alpha=std)
