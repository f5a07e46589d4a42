"""Histograms of the cosine similarities of all pairs of rows, block by block, in constant memory.

Similarities are float32 products of unit rows, rounded to the nearest multiple of 2^-20 (0.00000095). Every
later count is exact on that grid, so nothing is sorted, nothing is sampled, and copies of one embedding tie
instead of being ordered by round-off. Memory: the normalised rows and, for each of at most four threads, a
buffer of 2^24 similarities and two tables of 2^21 + 1 counts, whatever the number of pairs.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue

import numpy as np
import torch

from sfumato._check import InputError
from sfumato._torch import one_thread_each

GRID = 2.0**-20
BINS = 2**21 + 1  # the multiples of GRID in [-1, 1]
_BLOCK = 512  # rows and columns of a product: small enough to stay in cache while it is turned into bins
_BUFFER = 2**24  # similarities that are counted at once: enough to make the tables' own cost small
_WORKER_PAIRS = 2**20  # products for which one more thread is worth its tables
_WORKERS = 4  # threads at most, each with its own buffer and tables (about 130 MB)

# float32 numbers in [8, 16) are exactly the multiples of 2^-20, so adding 12 rounds a similarity to the grid,
# and the bits of the sum, read as an integer, count grid steps.
_SHIFT = 12.0
_BITS_OF_MINUS_ONE = int(np.float32(_SHIFT - 1).view(np.int32))

Block = tuple[slice, slice]
"""Rows and columns of a block of pairs."""

Progress = Callable[[int, int], None]
"""Called with (pairs done, pairs in all) after each block."""


def unit_rows(embeddings: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Check the input; return rows of length 1, float32 [n, d], and class codes, int64 [n], in given order.

    Raises:
        InputError: wrong shapes or types, fewer than two rows, a row that is not finite or has length zero.
    """
    embeddings, labels = np.asarray(embeddings), np.asarray(labels)
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f":
        raise InputError(
            f"embeddings must be a float array [examples, dimensions], got {embeddings.dtype} {embeddings.shape}"
        )
    if labels.shape != embeddings.shape[:1] or labels.dtype.kind not in "iubUS":
        raise InputError(
            f"labels must be one class (integer or text) per embedding, shape {embeddings.shape[:1]}, "
            f"got {labels.dtype} {labels.shape}"
        )
    if len(embeddings) < 2:
        raise InputError(f"verification compares pairs and needs at least 2 embeddings, got {len(embeddings)}")
    rows = np.empty(embeddings.shape, dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = embeddings[start : start + _BLOCK].astype(np.float64)
        # Scaled by the largest entry first, so that the squares neither overflow nor vanish.
        largest = np.abs(part).max(axis=1, keepdims=True, initial=0.0)
        if not (np.isfinite(largest) & (largest > 0)).all():
            _refuse_row(start, len(rows), largest[:, 0])
        part /= largest
        rows[start : start + _BLOCK] = part / np.linalg.norm(part, axis=1, keepdims=True)
    codes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return torch.from_numpy(rows), torch.from_numpy(codes)


def _refuse_row(start: int, total: int, largest: np.ndarray) -> None:
    """Name the first row that has no direction; a row's largest entry is NaN, infinite or 0."""
    at = next(i for i, value in enumerate(largest) if not 0 < value < np.inf)
    if largest[at] == 0:
        problem = "is zero; cosine similarity needs a direction, so drop such rows"
    else:
        problem = "is not finite (NaN or infinity); the model has diverged or the image is broken"
    raise InputError(f"embeddings: row {start + at} of {total} {problem}")


def pair_counts(codes: torch.Tensor) -> tuple[int, int]:
    """Count the genuine pairs (same class) and the impostor pairs (different classes) of these codes."""
    n = len(codes)
    genuine = sum(int(size) * (int(size) - 1) // 2 for size in torch.bincount(codes).tolist())
    return genuine, n * (n - 1) // 2 - genuine


def histograms(
    rows: torch.Tensor, codes: torch.Tensor, batches: Sequence[slice], progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Count the similarities of the genuine and the impostor pairs within each batch of rows.

    Args:
        rows: unit rows, float32 [n, d].
        codes: class codes, int64 [n].
        batches: slices of rows; a pair counts where one slice holds both. `[slice(None)]` takes every pair.
        progress: called from time to time with (products done, products in all).

    Returns:
        genuine, impostor: int64 [BINS]; entry b counts the pairs whose similarity is b * GRID - 1.
    """
    for batch in batches:
        # Sorted by class, genuine pairs lie near the diagonal, so that most blocks hold impostor pairs only.
        order = torch.argsort(codes[batch], stable=True)
        rows[batch], codes[batch] = rows[batch][order], codes[batch][order]
    blocks = [block for batch in batches for block in _blocks(*batch.indices(len(rows))[:2])]
    total = sum(map(_size, blocks))
    workers = min(torch.get_num_threads(), _WORKERS, -(-total // _WORKER_PAIRS))
    tasks = list(_tasks(blocks, min(_BUFFER, -(-total // workers))))
    counters: SimpleQueue[_Counter] = SimpleQueue()
    for _ in range(workers):
        counters.put(_Counter(max(sum(map(_size, task)) for task in tasks)))

    def work(task: list[Block]) -> int:
        counter = counters.get()
        try:
            counter.count(rows, codes, task)
        finally:
            counters.put(counter)
        return sum(map(_size, task))

    done = 0
    with one_thread_each():
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            for future in as_completed([pool.submit(work, task) for task in tasks]):
                done += future.result()
                if progress is not None:
                    progress(done, total)
        finally:  # an interrupt waits for the tasks that run, not for those that wait
            pool.shutdown(cancel_futures=True)
    counts = sum((counters.get().counts for _ in range(workers)), torch.zeros((), dtype=torch.int64))
    return counts[BINS : 2 * BINS].numpy(), counts[:BINS].numpy()


def _blocks(start: int, stop: int) -> Iterator[Block]:
    """The blocks of the upper triangle of the pairs of one batch."""
    edges = [slice(at, min(at + _BLOCK, stop)) for at in range(start, stop, _BLOCK)]
    return ((a, b) for i, a in enumerate(edges) for b in edges[i:])


def _tasks(blocks: list[Block], size: int) -> Iterator[list[Block]]:
    """Blocks in groups of at most `size` products, or of one block."""
    task, used = [], 0
    for block in blocks:
        if task and used + _size(block) > size:
            yield task
            task, used = [], 0
        task.append(block)
        used += _size(block)
    yield task


def _size(block: Block) -> int:
    return (block[0].stop - block[0].start) * (block[1].stop - block[1].start)


class _Counter:
    """Turns the similarities of blocks into codes in one buffer, and counts the codes.

    A pair's code is its bin (impostor), BINS + bin (genuine), or 2 * BINS (a pair that is not to be counted).
    """

    def __init__(self, size: int) -> None:
        self.buffer = torch.empty(size)
        self.counts = torch.zeros(2 * BINS + 1, dtype=torch.int64)

    def count(self, rows: torch.Tensor, codes: torch.Tensor, task: list[Block]) -> None:
        used = 0
        for a, b in task:
            block = self.buffer[used : used + _size((a, b))].view(a.stop - a.start, b.stop - b.start)
            used += block.numel()
            torch.mm(rows[a], rows[b].T, out=block)
            block.clamp_(-1, 1).add_(_SHIFT)
            bins = block.view(torch.int32).sub_(_BITS_OF_MINUS_ONE)
            if codes[a.stop - 1] >= codes[b.start]:  # some class has rows in both, or the block is on the diagonal
                bins.add_(codes[a, None] == codes[None, b], alpha=BINS)
            if a == b:
                bins.masked_fill_(torch.ones(bins.shape, dtype=torch.bool).tril_(), 2 * BINS)
        counts = torch.bincount(self.buffer[:used].view(torch.int32))
        self.counts[: len(counts)].add_(counts)
