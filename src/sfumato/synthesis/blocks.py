"""New records block by block, so that as many as are asked for fit into memory.

The same seed gives the same records, and more of them begin with those of fewer as long as whole blocks are asked for.
Several threads make a block each; that changes nothing about the records.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from sfumato import _check
from sfumato._one_thread import one_thread_each
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset

BLOCK = 4_000
"""Patients that are generated side by side."""

Made = Callable[[int, int, torch.Generator], EHRDataset]
"""From the place of a block's first patient, how many there are in it, and what draws, to the records."""


def in_blocks(
    made: Made, count: int, *, seed: int | None, block: int, progress: Callable[[int, int], None] | None
) -> Iterator[EHRDataset]:
    """New records, block by block.

    Args:
        made: makes a block, in a thread of its own.
        count: of patients.
        seed: the same records again; None draws from the operating system.
        block: patients in a block, the last one apart.
        progress: is told how many there are, and of how many.

    Raises:
        InputError: a number is out of range.
    """
    _check.whole(count=count, block=block)
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    return _blocks(made, count, source, block, progress)


def _blocks(
    made: Made, count: int, source: RandomSource, block: int, progress: Callable[[int, int], None] | None
) -> Iterator[EHRDataset]:
    def one(first: int) -> EHRDataset:
        generator = torch.Generator().manual_seed(source.seed64("ehr records", first // block))
        with torch.inference_mode():
            return made(first, min(block, count - first), generator)

    # A block that is done waits while others are made and the one before it is used: threads + 1 blocks at the most.
    threads, waiting = torch.get_num_threads(), deque[tuple[int, Future[EHRDataset]]]()
    with one_thread_each(), ThreadPoolExecutor(threads) as workers:
        try:
            for first in range(0, count, block):
                waiting.append((first, workers.submit(one, first)))
                if len(waiting) > threads:
                    yield _next(waiting, count, progress)
            while waiting:
                yield _next(waiting, count, progress)
        finally:
            workers.shutdown(cancel_futures=True)
    if progress is not None:
        progress(count, count)


def _next(
    waiting: deque[tuple[int, Future[EHRDataset]]], count: int, progress: Callable[[int, int], None] | None
) -> EHRDataset:
    first, made = waiting.popleft()
    if progress is not None:
        progress(first, count)
    return made.result()
