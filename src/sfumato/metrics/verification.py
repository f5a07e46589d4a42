"""Verification: do two images show the same class? Recall at a false accept rate, ROC and AUC over all pairs.

A pair is two examples: genuine when both have one label, else an impostor pair. Its score is the cosine similarity
of the two embeddings, rounded to the grid of 2^-20 (about 1e-6); everything below is exact on that grid, for
every pair, without sampling. The threshold at a false accept rate (FAR) is the (1 - FAR) quantile of the
impostor pairs: the smallest impostor similarity that at most FAR * impostor_pairs impostor pairs *exceed*.
Recall is the share of genuine pairs that exceed it. A pair that ties with the threshold is rejected, so the
realised rate never exceeds the one that was asked for, and a collapsed model (all similarities equal) has
recall 0, not 1.

Similarities are float32 products of unit rows, rounded to the nearest multiple of 2^-20 (0.00000095). Every
later count is exact on that grid, so nothing is sorted, nothing is sampled, and copies of one embedding tie
instead of being ordered by round-off. Memory: the normalised rows and, for each of at most four threads, a
buffer of 2^24 similarities and two tables of 2^21 + 1 counts, whatever the number of pairs.

Against exact arithmetic a similarity is off by at most half a grid step plus float32 round-off (together
below 1e-6 for some hundred dimensions); thresholds inherit that error, and only pairs that close to the
threshold can fall on its other side. Cost: n^2 / 2 dot products; memory does not grow with the pairs.

These numbers are computed from the data without noise: they are not private.

References:
    Xu et al. (2022), arXiv 2211.10844, section 4 (recall@FAR). The authors' code compares pairs within each
    evaluation batch only and picks among 200 fixed thresholds; `in_batch_recall_at_far` is its counterpart.

>>> embeddings = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.0, 2.0]])
>>> result = recall_at_far(embeddings, np.array([0, 0, 1, 1]), fars=(0.25,))
>>> result.genuine_pairs, result.impostor_pairs
(2, 4)
>>> round(result.threshold[0.25], 6), result.recall[0.25]  # impostors: 0, 0, 0.6, 0.6; genuine: 0.8, 1
(0.6, 1.0)
>>> roc(embeddings, np.array([0, 0, 1, 1])).auc
1.0
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np
import torch

from sfumato._check import InputError, between, whole
from sfumato._torch import one_thread_each
from sfumato.metrics.neighbours import directions

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
        label = partial(_label, start, len(rows))
        rows[start : start + _BLOCK] = directions(embeddings[start : start + _BLOCK].astype(np.float64), label)
    codes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return torch.from_numpy(rows), torch.from_numpy(codes)


def _label(start: int, total: int, row: int) -> str:
    return f"embeddings: row {start + row} of {total}"


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


@dataclass(frozen=True, kw_only=True)
class RecallAtFar:
    """Recall of genuine pairs at given false accept rates.

    The dictionaries have one entry for each false accept rate that was asked for.
    """

    recall: dict[float, float]
    """Share of genuine pairs above the threshold, in [0, 1]."""
    threshold: dict[float, float]
    """Cosine similarity that a pair must exceed, in [-1, 1]."""
    realised_far: dict[float, float]
    """Share of impostor pairs above the threshold; never more than the rate that was asked for."""
    genuine_pairs: int
    impostor_pairs: int
    compared: str
    """Which pairs were compared: "all", "the pairs given", or "within batches of N" for the in-batch approximation."""
    warnings: tuple[str, ...]
    """Sentences to show with the numbers; empty when there are none."""


@dataclass(frozen=True, kw_only=True)
class Roc:
    """Receiver operating characteristic over pairs, for a logarithmic axis."""

    fpr: np.ndarray
    """False accept rates, float64 [points], increasing, log-spaced from 1 / impostor_pairs to 1."""
    tpr: np.ndarray
    """Recall of genuine pairs at each rate, float64 [points], non-decreasing; the last is 1."""
    threshold: np.ndarray
    """Similarity to exceed at each rate, float64 [points]; the last is -inf (accept everything)."""
    auc: float
    """Chance that a genuine pair is more similar than an impostor pair; a tie counts one half."""
    genuine_pairs: int
    impostor_pairs: int
    compared: str


@dataclass(frozen=True, kw_only=True)
class SimilarityHistogram:
    """Counts of the similarities of all pairs: one pass over the pairs, any number of questions after it.

    Build it with `similarity_histogram`. `recall_at_far` and `roc` below are shortcuts for a single question.
    """

    similarity: np.ndarray
    """The distinct similarities, float64 [m], increasing; multiples of 2^-20, but for given pairs."""
    genuine: np.ndarray
    """Genuine pairs at each similarity, int64 [m]."""
    impostor: np.ndarray
    """Impostor pairs at each similarity, int64 [m]."""
    compared: str
    """Which pairs were compared, as in `RecallAtFar.compared`."""

    @property
    def genuine_pairs(self) -> int:
        """Pairs of one class."""
        return int(self.genuine.sum())

    @property
    def impostor_pairs(self) -> int:
        """Pairs of two classes."""
        return int(self.impostor.sum())

    def recall_at_far(self, fars: Sequence[float] = (1e-3,)) -> RecallAtFar:
        """Recall at each of these false accept rates; see `sfumato.metrics.recall_at_far`."""
        _check_rates(fars)
        impostors, warnings = self.impostor_pairs, []
        allowed = []
        for far in fars:
            # The factor undoes float round-off: 0.29 of 100 pairs is 29, not 28.
            allowed.append(int(far * impostors * (1 + 1e-12)))
            if allowed[-1] == 0:
                warnings.append(
                    f"FAR {far:g} of {impostors} impostor pairs allows less than one pair, so recall is at FAR 0; "
                    f"use more examples or FAR >= {1 / impostors:.1e}"
                )
        at, tpr = self._operating_points(np.array(allowed))
        above = _above(self.impostor)[at]
        keys = [float(far) for far in fars]
        return RecallAtFar(
            recall=dict(zip(keys, tpr.tolist())),
            threshold=dict(zip(keys, self.similarity[at].tolist())),
            realised_far=dict(zip(keys, (above / impostors).tolist())),
            genuine_pairs=self.genuine_pairs,
            impostor_pairs=impostors,
            compared=self.compared,
            warnings=tuple(warnings),
        )

    def roc(self, *, points: int = 200) -> Roc:
        """The receiver operating characteristic; see `sfumato.metrics.roc`."""
        whole(at_least=2, points=points)
        impostors, genuines = self.impostor_pairs, self.genuine_pairs
        # Whole numbers of accepted impostor pairs, log-spaced; the last accepts all.
        accepted = np.unique(np.rint(np.geomspace(1, impostors, points)).astype(np.int64))
        at, tpr = self._operating_points(accepted[:-1])
        below = np.cumsum(self.impostor) - self.impostor
        auc = float(np.dot(self.genuine / genuines, (below + self.impostor / 2) / impostors))
        return Roc(
            fpr=accepted / impostors,
            tpr=np.append(tpr, 1.0),
            threshold=np.append(self.similarity[at], -np.inf),
            auc=min(auc, 1.0),
            genuine_pairs=genuines,
            impostor_pairs=impostors,
            compared=self.compared,
        )

    def _operating_points(self, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Index of the smallest similarity that at most `allowed` impostor pairs exceed, and the recall."""
        # Counts above fall from left to right; searchsorted wants them to rise.
        at = np.searchsorted(-_above(self.impostor), -allowed, side="left")
        return at, _above(self.genuine)[at] / self.genuine_pairs


def _above(counts: np.ndarray) -> np.ndarray:
    """For each entry, the sum of the entries after it."""
    return counts.sum() - np.cumsum(counts)


def _check_rates(fars: Sequence[float]) -> None:
    if not fars:
        raise InputError("fars must name at least one false accept rate, got none; for example fars=(1e-3,)")
    for far in fars:
        between(0, 1, ends="()", far=far)


def similarity_histogram(
    embeddings: np.ndarray,
    labels: np.ndarray,
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> SimilarityHistogram:
    """Compare every pair of embeddings once and count the similarities.

    Args:
        embeddings: float array [n, d] of any float type, n >= 2; need not be normalised.
        labels: class of each example, integers or text [n].
        batch_size: None compares all pairs, a number >= 2 only those within consecutive batches.
        progress: called from time to time with (products done, products in all).

    Raises:
        InputError: shapes do not match, a row is not finite or is zero, or one kind of pair is missing.
    """
    rows, codes = unit_rows(embeddings, labels)
    batches, compared = [slice(None)], "all"
    if batch_size is not None:
        whole(at_least=2, batch_size=batch_size)
        batches = [slice(start, start + batch_size) for start in range(0, len(rows), batch_size)]
        compared = f"within batches of {batch_size}"
    else:
        _refuse_missing_pairs(*pair_counts(codes), compared)
    genuine, impostor = histograms(rows, codes, batches, progress)
    _refuse_missing_pairs(int(genuine.sum()), int(impostor.sum()), compared)
    taken = np.flatnonzero(genuine + impostor)
    return SimilarityHistogram(
        similarity=taken * GRID - 1, genuine=genuine[taken], impostor=impostor[taken], compared=compared
    )


def pair_histogram(similarity: np.ndarray, same: np.ndarray) -> SimilarityHistogram:
    """Count the similarities of given pairs, exactly as they are: recall at a false accept rate and ROC on a pair list.

    Args:
        similarity: float [pairs].
        same: whether a pair is genuine, bool [pairs].

    Raises:
        InputError: shapes do not match, a similarity is not finite, or one kind of pair is missing.

    >>> pairs = pair_histogram(np.array([0.9, 0.4, 0.5, 0.1]), np.array([True, True, False, False]))
    >>> pairs.recall_at_far((0.5,)).recall  # at most one of two impostor pairs exceeds 0.1
    {0.5: 1.0}
    """
    similarity, same = np.asarray(similarity, np.float64), np.asarray(same)
    if similarity.ndim != 1 or similarity.shape != same.shape or same.dtype != bool:
        raise InputError(
            f"similarity and same must be one number and one truth value a pair, got {similarity.shape} and "
            f"{same.shape} ({same.dtype})"
        )
    if not np.isfinite(similarity).all():
        raise InputError(f"similarity: {int((~np.isfinite(similarity)).sum())} pairs are not finite; embed anew")
    compared = "the pairs given"
    _refuse_missing_pairs(int(same.sum()), int((~same).sum()), compared)
    values, place = np.unique(similarity, return_inverse=True)
    genuine, impostor = (np.bincount(place[kind], minlength=len(values)) for kind in (same, ~same))
    return SimilarityHistogram(similarity=values, genuine=genuine, impostor=impostor, compared=compared)


def _refuse_missing_pairs(genuine: int, impostor: int, compared: str) -> None:
    where = "" if compared == "all" else f" {compared}"
    if impostor == 0:
        raise InputError(f"labels: all examples{where} are of one class, so no impostor pair; give >= 2 classes")
    if genuine == 0:
        raise InputError(
            f"labels: no class has two examples{where}, so no genuine pair; give >= 2 examples of some class"
        )


def recall_at_far(
    embeddings: np.ndarray,
    labels: np.ndarray,
    fars: Sequence[float] = (1e-3,),
    *,
    progress: Progress | None = None,
) -> RecallAtFar:
    """Recall of genuine pairs at given false accept rates, over all pairs, by cosine similarity.

    Args:
        embeddings: float array [n, d], n >= 2; need not be normalised.
        labels: class of each example, integers or text [n].
        fars: false accept rates, each in (0, 1). With FAR * impostor_pairs < 1 the threshold is the most
            similar impostor pair and the result carries a warning.
        progress: called from time to time with (products done, products in all).

    Raises:
        InputError: shapes do not match, a row is not finite or zero, a rate is outside (0, 1), or there is no
            genuine or no impostor pair.
    """
    _check_rates(fars)
    return similarity_histogram(embeddings, labels, progress=progress).recall_at_far(fars)


def in_batch_recall_at_far(
    embeddings: np.ndarray,
    labels: np.ndarray,
    fars: Sequence[float] = (1e-3,),
    *,
    batch_size: int,
    progress: Progress | None = None,
) -> RecallAtFar:
    """The in-batch approximation of `recall_at_far`: only pairs within consecutive batches are compared.

    It costs n * batch_size / 2 products instead of n^2 / 2. The result depends on the order of the examples:
    sorted by class, batches hold almost only genuine pairs; shuffle first for an unbiased sample of pairs.

    Args:
        embeddings: float array [n, d], n >= 2; need not be normalised.
        labels: class of each example, integers or text [n].
        fars: false accept rates, each in (0, 1).
        batch_size: consecutive examples that are compared with each other, >= 2; the last may be fewer.
        progress: called from time to time with (products done, products in all).

    Raises:
        InputError: as `recall_at_far`, or no genuine or impostor pair falls within a batch.
    """
    _check_rates(fars)
    histogram = similarity_histogram(embeddings, labels, batch_size=batch_size, progress=progress)
    return histogram.recall_at_far(fars)


def roc(embeddings: np.ndarray, labels: np.ndarray, *, points: int = 200, progress: Progress | None = None) -> Roc:
    """Receiver operating characteristic over all pairs, at log-spaced false accept rates, with its area.

    Args:
        embeddings: float array [n, d], n >= 2; need not be normalised.
        labels: class of each example, integers or text [n].
        points: how many rates at most, >= 2; rates that fall on the same number of pairs are merged.
        progress: called from time to time with (products done, products in all).

    Raises:
        InputError: shapes do not match, a row is not finite or is zero, or one kind of pair is missing.
    """
    whole(at_least=2, points=points)
    return similarity_histogram(embeddings, labels, progress=progress).roc(points=points)
