"""Noise rows of a run: the recurrence on vectors of the model's size.

Everything follows from the run's key. Rows that are asked for in order cost one draw of noise and a pass over the kept
vectors; after a resume, `kept` is made again from the fresh noise of the rounds before. Kept vectors are in single
precision: what that rounds away is a part of the noise, and depends on nothing else. What is fresh in a row has the
precision of the sum that it is added to, so that it covers the sum's last digits.

On a processor the work is done in pieces of fixed places, each by one thread, so that any number of threads gives the
same bits. The kept vectors of a piece lie together.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from sfumato._one_thread import one_thread_each
from sfumato._random import Stream
from sfumato.mechanisms.gaussian.correlated.recurrence import Recurrence
from sfumato.mechanisms.gaussian.drawing import add_normals
from sfumato.per_example.full_precision import full_precision

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
        self._recurrence, self._fresh, self._device, self._dtype = recurrence, fresh, device, dtype
        piece = _PIECE if device.type == "cpu" else _PIECE_ON_DEVICE
        self._kept = {
            at: torch.zeros(recurrence.vectors, min(piece, size - at), dtype=torch.float32, device=device)
            for at in range(0, size, piece)
        }

    @property
    def kept_bytes(self) -> int:
        """What the kept vectors take."""
        return sum(kept.nbytes for kept in self._kept.values())

    def add(self, total: Tensor, *, std: float, round: int) -> None:
        """Add std × the row of this round to float [size], contiguous, in place."""
        if round != self.round:
            for kept in self._kept.values():
                kept.zero_()
            for earlier in self._recurrence.needed(round):
                self._advance(earlier, None, 0.0)
        self._advance(round, total, std)
        self.round = round + 1

    def _advance(self, round: int, total: Tensor | None, std: float) -> None:
        left = deque(self._kept.items())
        longest = max((kept.shape[1] for kept in self._kept.values()), default=0)
        threads = torch.get_num_threads()
        drawing = 1 if self._device.type == "cpu" else threads

        def taken() -> tuple[int, Tensor] | None:
            try:
                return left.popleft()
            except IndexError:  # another thread may have had the last one
                return None

        def work() -> None:
            # used again: fresh pages cost more than what is written
            memory = torch.empty(longest, dtype=self._dtype, device=self._device)
            for start, kept in iter(taken, None):
                noise = memory[: kept.shape[1]].zero_()
                add_normals(noise, self._fresh(round).from_normal(start), std=1.0, threads=drawing)
                self._recurrence.advance(kept, noise, round)
                if total is not None:
                    total[start : start + len(noise)].add_(noise, alpha=std)

        if self._device.type != "cpu":
            with full_precision(self._device):
                work()
            return
        with one_thread_each(), full_precision(self._device):  # products: their bits follow from no setting
            workers = min(threads, len(left))
            if workers <= 1:
                work()
                return
            one_each = {"initializer": torch.set_num_threads, "initargs": (1,)}
            with ThreadPoolExecutor(workers, thread_name_prefix="noise rows", **one_each) as pool:
                for done in [pool.submit(work) for _ in range(workers)]:
                    done.result()
