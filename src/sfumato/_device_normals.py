"""The normal numbers of `_normals`, computed where they are needed: on a GPU.

The keystream comes from the processor, a pure function of the key; what follows is the same arithmetic in double
precision, so the numbers are those of `_normals` but for the last bits. While the device computes with one part of the
keystream the processor is at the next.

>>> words = torch.tensor([[[1 << 62], [0]]])
>>> _numbers(words).flatten().round(decimals=4).tolist()    # √(-2 ln ½) at the angle 0
[1.1774, 0.0]
"""

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from sfumato._normals import BLOCK, PAIRS, TILE, Keystream

_TILES = 64  # of one part: 2^21 numbers, 16 MiB of keystream
_SHARE = 8  # tiles of keystream that a thread takes at a time


def add_normals_on_device(out: Tensor, key: bytes, first: int, std: float, threads: int) -> None:
    """Add std × normal number `first` + i to out[i].

    Args:
        out: float [n], on a device with double precision.
        key: 32 secret bytes.
        first: place of the first number, >= 0.
        std: standard deviation.
        threads: of the processor, how many share the keystream, >= 1; cannot change the numbers.
    """
    done = 0
    for tile, words in _parts(out, key, first, threads):
        numbers = _numbers(words).mul_(std).view(-1)
        skipped = max(first - tile * TILE, 0)
        piece = out[done : done + len(numbers) - skipped]
        piece.add_(numbers[skipped : skipped + len(piece)].to(out.dtype))
        done += len(piece)


def _parts(out: Tensor, key: bytes, first: int, threads: int) -> Iterator[tuple[int, Tensor]]:
    """The keystream of some tiles at a time, as int64 [tiles, 2, pairs] on the device, and the number of the first."""
    start, end = first // TILE, -(-(first + len(out)) // TILE)
    pool = _pool(os.getpid(), threads)
    for low, high in pairwise([*range(start, end, _TILES), end]):
        # a new one each time: torch hands pinned memory out again once the device has read it
        words = torch.empty((high - low, 2, PAIRS), dtype=torch.int64, pin_memory=out.is_cuda)
        shares = zip(range(low, high, _SHARE), words.split(_SHARE), strict=True)
        for filled in [pool.submit(_fill, key, tile, share.numpy()) for tile, share in shares]:
            filled.result()
        yield low, words.to(out.device, non_blocking=True)


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay: next to a GPU's step, beginning and ending them takes as long as their work."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"keystream of {process}")


def _fill(key: bytes, tile: int, words: np.ndarray) -> None:
    Keystream(key).fill(tile * TILE * 8 // BLOCK, words.reshape(-1))


def _numbers(words: Tensor) -> Tensor:
    """Normal numbers of the words of tiles, int64 [tiles, 2, n] → float64 [tiles, 2, n]; see `_normals`."""
    radius = (words[:, 0] | 1).double().abs_().mul_(2.0**-63).log_().mul_(-2.0).sqrt_()
    tangent = words[:, 1].double().mul_(math.pi * 2.0**-64).tan_()
    double = radius.mul(2.0).div_(tangent.square().add_(1.0))  # 2 R / (1 + T²)
    return torch.stack([double - radius, tangent.mul_(double)], dim=1)
