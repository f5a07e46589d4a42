"""Noise rows of a run: the recurrence on vectors of the model's size.

Everything follows from the run's key. Rows that are asked for in order cost one draw of noise and a pass over the kept
vectors; after a resume, `kept` is made again from the fresh noise of the rounds before. Kept vectors are in single
precision: what that rounds away is a part of the noise, and depends on nothing else.

On a processor the work is done in pieces of fixed places, so that any number of threads gives the same bits.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from sfumato._random import Stream
from sfumato.mechanisms.correlated.recurrence import Recurrence
from sfumato.mechanisms.drawing import add_normals

_PIECE = 1 << 17  # numbers: a piece of a vector stays in the cache
_PIECE_ON_DEVICE = 1 << 25


class NoiseRows:
    """Rows of C⁻¹z for a vector of one size.

    Args:
        recurrence: how a row is made.
        fresh: the stream that a round's fresh noise comes from.
        size: of the vector.
        device: where it is.
        dtype: of the sums that rows are added to.
    """

    def __init__(
        self,
        recurrence: Recurrence,
        fresh: Callable[[int], Stream],
        size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.round = 0
        self._recurrence, self._fresh, self._dtype = recurrence, fresh, dtype
        self._piece = _PIECE if device.type == "cpu" else _PIECE_ON_DEVICE
        self._kept = torch.zeros(recurrence.vectors, size, dtype=torch.float32, device=device)

    def add(self, total: Tensor, *, std: float, round: int) -> None:
        """Add std × the row of this round to float [size], contiguous, in place."""
        if round != self.round:
            self._kept.zero_()
            for earlier in self._recurrence.needed(round):
                self._advance(earlier, None, 0.0)
        self._advance(round, total, std)
        self.round = round + 1

    def _advance(self, round: int, total: Tensor | None, std: float) -> None:
        size, device = self._kept.shape[1], self._kept.device
        starts = range(0, size, self._piece)
        threads = torch.get_num_threads()

        def piece(start: int) -> None:
            end = min(start + self._piece, size)
            noise = torch.zeros(end - start, dtype=self._dtype, device=device)
            stream = self._fresh(round).from_normal(start)
            add_normals(noise, stream, std=1.0, threads=1 if device.type == "cpu" else threads)
            self._recurrence.advance(self._kept[:, start:end], noise, round)
            if total is not None:
                total[start:end].add_(noise, alpha=std)

        if device.type != "cpu" or len(starts) == 1 or threads == 1:
            for start in starts:
                piece(start)
            return
        one_each = {"initializer": torch.set_num_threads, "initargs": (1,)}
        with ThreadPoolExecutor(min(threads, len(starts)), thread_name_prefix="noise rows", **one_each) as pool:
            for _ in pool.map(piece, starts):
                pass
